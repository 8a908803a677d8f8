import type { Tag } from "../../core/model/building.ts";
import type { CommandResult } from "../../core/model/command-facts.ts";
import type { Kind } from "../../core/model/event.ts";
import type { TracedRequest } from "../../engine/source/request-trace.ts";
import type { HistoryGap } from "../../engine/sync/history/progress.ts";
import type {
  StoredAlarm,
  StoredHistory,
  StoredLeftOut,
  StoredPoll,
  StoredQuarantine,
  StoredValue,
} from "../../engine/sync/snapshot.ts";
import type { Ticket } from "../../engine/views/tickets.ts";
import type { TagWork } from "../../ui/operator/work.ts";
import { reasonOf } from "../past/gaps.ts";

const SHOWN = 8;

export function tagLines(explained: TagExplanation): readonly string[] {
  const { tag, value, history, holes, commands } = explained;
  return [
    `tag ${tag.id} ${tag.displayName}${tag.unit === null ? "" : ` [${tag.unit}]`}, site ${explained.siteId ?? "unknown"} of ${explained.source}`,
    ...(tag.description === null ? [] : [`  ${tag.description}`]),
    ...(explained.missingSince === null
      ? []
      : [`  Complete listings do not show it since ${explained.missingSince}, so it is not asked for.`]),
    "",
    "Value",
    value === null
      ? "  Never read."
      : `  ${value.value ?? "nothing"} (${value.quality}) at ${value.time}${(value.nulls ?? 0) > 0 ? `, nothing ${value.nulls} times in a row` : ""}`,
    ...(value?.lastGood && value.value === null
      ? [`  last good: ${value.lastGood.value} at ${value.lastGood.time}`]
      : []),
    ...unverifiedLines(explained),
    ...(explained.quarantine === null
      ? []
      : [`  Set aside until ${explained.quarantine.until}: ${explained.quarantine.reason}`]),
    "",
    "Next reading",
    ...nextLines(explained),
    "",
    "Last requests",
    ...requestLines(explained),
    ...(history.length === 0 ? [] : ["", "History"]),
    ...history.map(historyLine),
    ...holes
      .filter(({ from }) => from !== null)
      .map((hole) => `  ${hole.resolution} from ${hole.from} to ${hole.to}: ${reasonOf(hole)}`),
    "",
    "Sinks",
    ...sinkLines(explained.sinks),
    ...(commands.length === 0 ? [] : ["", "Last commands"]),
    ...commands.map(
      ({ commandId, outcome, requested, message }) => `  ${commandId}: ${requested} ended as ${outcome}: ${message}`,
    ),
  ];
}

function unverifiedLines({ tag, value, leftOut }: TagExplanation): readonly string[] {
  return [
    ...(value?.typeDoubt === "unit" ? [`  uncertain: it is a boolean, and ${tag.unit} is a unit of numbers.`] : []),
    ...(value?.typeDoubt === "changed"
      ? ["  uncertain: the values before were of another type, until a further reading confirms this one."]
      : []),
    ...(leftOut === null
      ? []
      : [
          `  ${leftOut.kind === "unreadable" ? "Unreadable" : "No value"} in the replies since ${leftOut.since}: ${leftOut.reason}`,
        ]),
  ];
}

function historyLine({ key, held, hadSince }: TagExplanation["history"][number]): string {
  const { state, refusal, watermark } = held;
  const had = hadSince === watermark ? "nothing is had yet" : `answered from ${hadSince} to ${watermark}`;
  const rest = refusal === null ? "" : `; asked again after ${refusal.againAt}`;
  if (state === "no-log")
    return `  ${key}: ${had}; the service says that it has no log of it (${refusal?.said})${rest}`;
  if (refusal !== null) return `  ${key}: ${had}; refused at ${refusal.at}: ${refusal.said}${rest}`;
  return `  ${key}: ${had}${state === "unproven" ? "; it is not known yet whether it has a log" : ""}`;
}

function nextLines({ work, worker, missingSince }: TagExplanation): readonly string[] {
  if (worker === "silent") return ["  Unknown: a worker is there and does not answer."];
  if (work === null) return ["  No worker is running; nothing is due."];
  if (work.live === null) {
    return [
      missingSince === null
        ? "  No class of live reads selects it, or the worker has only just started."
        : "  It is missing in the listings.",
    ];
  }
  const { dueAt, everySeconds, reasons } = work.live;
  const isWaiting = dueAt !== null;
  return [
    ...(isWaiting ? [`  Due by ${dueAt}, every ${everySeconds} s at the latest.`] : []),
    ...reasons.map((reason) => `  ${reason}`),
    ...(isWaiting ? ["  It may go earlier, when a request has a place left."] : []),
  ];
}

function requestLines({ work, worker }: TagExplanation): readonly string[] {
  if (worker === "silent") return ["  Unknown: a worker is there and does not answer."];
  if (work === null) return ["  Only a running worker remembers them."];
  const { requests, remembered } = work;
  const slots = requests.reduce((sum, { tagIds }) => sum + 1 / tagIds.length, 0);
  return [
    ...requests.slice(-SHOWN).toReversed().map(requestLine),
    `  It was in ${requests.length} of the last ${remembered.requests} tag requests (since ${remembered.since ?? "now"}): ${slots.toFixed(2)} of them are its share.`,
  ];
}

function requestLine({ number, at, endpoint, lane, tagIds, outcome, message, tookMs }: TracedRequest) {
  const others = tagIds.length - 1;
  const result = outcome === "ok" ? "" : `: ${outcome}${message === null ? "" : `, ${message}`}`;
  return `  ${at}  request ${number}, ${endpoint} (${lane}), with ${others} others, ${tookMs} ms with waiting${result}`;
}

export function alarmLines({ source, held, told, polls, sinks, tickets, worker }: AlarmExplanation): readonly string[] {
  const { alarm, state, since, misses, returns } = held;
  return [
    `alarm ${alarm.id} ${alarm.trigger.displayName}, priority ${alarm.trigger.priority}, site ${alarm.site.displayName} of ${source}`,
    `  ${state} since ${since}; triggered at ${alarm.triggeredAt}${alarm.resolvedAt === null ? "" : `, resolved at ${alarm.resolvedAt}`}`,
    ...(misses > 0 ? [`  ${misses} complete listings in a row did not show it; evidence is looked for.`] : []),
    ...(returns > 0 ? [`  It came back ${returns} times in this episode.`] : []),
    "",
    "Told, newest first",
    ...(told.length === 0 ? ["  Nothing that the log still has."] : []),
    ...told.slice(0, SHOWN).map(({ time, type, late }) => `  ${time}  ${type}${late ? " (found later)" : ""}`),
    "",
    worker === "open" ? "Asked" : "Asked, as it was written down up to a minute later",
    ...polls.map(
      ({ job, lastAttempt, lastSuccess, nextAt, problem }) =>
        `  ${job}: last at ${lastAttempt}${lastSuccess === lastAttempt ? "" : `, last well ${lastSuccess === null ? "never" : `at ${lastSuccess}`}`}, ${nextWords(worker, nextAt)}${problem === null ? "" : `; ${problem}`}`,
    ),
    "",
    "Sinks",
    ...sinkLines(sinks),
    ...tickets.map(ticketLine),
  ];
}

function ticketLine({ sink, ticket, link, isOpen, isFolded }: Ticket): string {
  const where = [ticket, link].filter((text) => text !== null).join(" ") || "told there";
  return `  ${sink}: ${where}, ${isOpen ? "open" : "closed"}${isFolded ? ", together with others" : ""}`;
}

function nextWords(worker: WorkerPresence, nextAt: string | null): string {
  if (worker === "none") return "next when a worker runs";
  return `next at ${nextAt ?? "no time: switched off"}`;
}

function sinkLines(sinks: readonly SinkProgress[]): readonly string[] {
  if (sinks.length === 0) return ["  There are none."];
  return sinks.map(({ sink, last, behind, exact }) => {
    const has =
      last === null
        ? "the log holds no event of it"
        : last === "settled"
          ? "has the last event, or its filter leaves it out"
          : last === "refused"
            ? "refused the last event (`plenum outbox dead`)"
            : "still waits for the last event";
    return `  ${sink}: ${has}; ${exact ? "" : "at most "}${behind} events behind`;
  });
}

/** Facts about one tag from the state and the running worker. */
export interface TagExplanation {
  readonly source: string;
  readonly tag: Tag;
  readonly siteId: number | null;
  readonly missingSince: string | null;
  readonly value: StoredValue | null;
  readonly quarantine: StoredQuarantine | null;
  /** Reason why the responses have no usable value; null while they have one. */
  readonly leftOut: StoredLeftOut | null;
  /** Next and last requests, known only to the worker; null if no worker responds. */
  readonly work: TagWork | null;
  readonly worker: WorkerPresence;
  /** `hadSince`: everything from then up to the watermark is fetched. */
  readonly history: readonly {
    readonly key: string;
    readonly held: StoredHistory;
    readonly hadSince: string;
  }[];
  /** Gaps and intervals without a value, with the reason. */
  readonly holes: readonly HistoryGap[];
  readonly sinks: readonly SinkProgress[];
  readonly commands: readonly CommandResult[];
}

export interface AlarmExplanation {
  readonly source: string;
  readonly held: StoredAlarm;
  /** Events in the log, newest first, at most 50. */
  readonly told: readonly { readonly time: string; readonly type: Kind; readonly late: boolean }[];
  readonly polls: readonly (StoredPoll & { readonly job: string; readonly nextAt: string | null })[];
  readonly worker: WorkerPresence;
  readonly sinks: readonly SinkProgress[];
  /** Tickets and messages of the alarm. */
  readonly tickets: readonly Ticket[];
}

/** Delivery state of the last event of a tag or alarm at one sink. */
export interface SinkProgress {
  readonly sink: string;
  /** `settled`: delivered, or excluded by the filter of the sink. Null if the log has no event. */
  readonly last: "settled" | "waiting" | "refused" | null;
  /** Pending events; an upper bound if `exact` is false. */
  readonly behind: number;
  readonly exact: boolean;
}

/** `silent`: a worker runs but does not respond, so facts that only it knows are missing. */
export type WorkerPresence = "open" | "none" | "silent";
