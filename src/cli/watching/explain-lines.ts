import type { TracedRequest } from "../../engine/source/request-trace.ts";
import type { Ticket } from "../../engine/views/tickets.ts";
import { reasonOf } from "../past/gaps.ts";
import { presentLines } from "../shell/terminal.ts";
import type { AlarmExplanation, SinkProgress, TagExplanation } from "./explain.ts";

/** Requests and events that are printed; --json has all. */
const SHOWN = 8;

export function tagLines(explained: TagExplanation): readonly string[] {
  const { tag, value, history, holes, commands, siteId, source, missingSince, quarantine, leftOut } = explained;
  return presentLines(
    `tag ${tag.id} ${tag.displayName}${tag.unit === null ? "" : ` [${tag.unit}]`}, site ${siteId ?? "unknown"} of ${source}`,
    tag.description !== null && `  ${tag.description}`,
    missingSince !== null && `  Complete listings do not show it since ${missingSince}, so it is not asked for.`,
    "",
    "Value",
    value === null
      ? "  Never read."
      : `  ${value.value ?? "nothing"} (${value.quality}) at ${value.time}${(value.nulls ?? 0) > 0 ? `, nothing ${value.nulls} times in a row` : ""}`,
    value?.value === null && value.lastGood ? `  last good: ${value.lastGood.value} at ${value.lastGood.time}` : null,
    value?.typeDoubt === "unit" && `  uncertain: it is a boolean, and ${tag.unit} is a unit of numbers.`,
    value?.typeDoubt === "changed" &&
      "  uncertain: the values before were of another type, until a further reading confirms this one.",
    leftOut !== null &&
      `  ${leftOut.kind === "unreadable" ? "Unreadable" : "No value"} in the replies since ${leftOut.since}: ${leftOut.reason}`,
    quarantine !== null && `  Set aside until ${quarantine.until}: ${quarantine.reason}`,
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
      .map((gap) => `  ${gap.resolution} from ${gap.from} to ${gap.to}: ${reasonOf(gap)}`),
    "",
    "Sinks",
    ...sinkLines(explained.sinks),
    ...(commands.length === 0 ? [] : ["", "Last commands"]),
    ...commands.map(
      ({ commandId, outcome, requested, message }) => `  ${commandId}: ${requested} ended as ${outcome}: ${message}`,
    ),
  );
}

function historyLine({ key, held, hadSince }: TagExplanation["history"][number]): string {
  const { state, refusal, watermark } = held;
  const fetched = `  ${key}: ${hadSince === watermark ? "nothing is had yet" : `answered from ${hadSince} to ${watermark}`}`;
  const retry = refusal === null ? "" : `; asked again after ${refusal.againAt}`;
  if (state === "no-log") return `${fetched}; the service says that it has no log of it (${refusal?.said})${retry}`;
  if (refusal !== null) return `${fetched}; refused at ${refusal.at}: ${refusal.said}${retry}`;
  return `${fetched}${state === "unproven" ? "; it is not known yet whether it has a log" : ""}`;
}

const SILENT = "  Unknown: a worker is there and does not answer.";

function nextLines({ work, worker, missingSince }: TagExplanation): readonly string[] {
  if (worker === "silent") return [SILENT];
  if (work === null) return ["  No worker is running; nothing is due."];
  if (work.live === null && missingSince !== null) return ["  It is missing in the listings."];
  if (work.live === null) return ["  No class of live reads selects it, or the worker has only just started."];
  const { dueAt, everySeconds, reasons } = work.live;
  return presentLines(
    dueAt !== null && `  Due by ${dueAt}, every ${everySeconds} s at the latest.`,
    ...reasons.map((reason) => `  ${reason}`),
    dueAt !== null && "  It may go earlier, when a request has a place left.",
  );
}

function requestLines({ work, worker }: TagExplanation): readonly string[] {
  if (worker === "silent") return [SILENT];
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
  return presentLines(
    `alarm ${alarm.id} ${alarm.trigger.displayName}, priority ${alarm.trigger.priority}, site ${alarm.site.displayName} of ${source}`,
    `  ${state} since ${since}; triggered at ${alarm.triggeredAt}${alarm.resolvedAt === null ? "" : `, resolved at ${alarm.resolvedAt}`}`,
    misses > 0 && `  ${misses} complete listings in a row did not show it; evidence is looked for.`,
    returns > 0 && `  It came back ${returns} times in this episode.`,
    "",
    "Told, newest first",
    told.length === 0 && "  Nothing that the log still has.",
    ...told.slice(0, SHOWN).map(({ time, type, late }) => `  ${time}  ${type}${late ? " (found later)" : ""}`),
    "",
    worker === "open" ? "Asked" : "Asked, as it was written down up to a minute later",
    ...polls.map((poll) => pollLine(poll, worker)),
    "",
    "Sinks",
    ...sinkLines(sinks),
    ...tickets.map(ticketLine),
  );
}

function pollLine(poll: AlarmExplanation["polls"][number], worker: AlarmExplanation["worker"]): string {
  const { job, lastAttempt, lastSuccess, nextAt, problem } = poll;
  return [
    `  ${job}: last at ${lastAttempt}`,
    lastSuccess === lastAttempt ? "" : `, last well ${lastSuccess === null ? "never" : `at ${lastSuccess}`}`,
    worker === "none" ? ", next when a worker runs" : `, next at ${nextAt ?? "no time: switched off"}`,
    problem === null ? "" : `; ${problem}`,
  ].join("");
}

function ticketLine({ sink, ticket, link, isOpen, isFolded }: Ticket): string {
  const where = [ticket, link].filter((text) => text !== null).join(" ") || "told there";
  return `  ${sink}: ${where}, ${isOpen ? "open" : "closed"}${isFolded ? ", together with others" : ""}`;
}

const LAST_EVENT = {
  settled: "has the last event, or its filter leaves it out",
  refused: "refused the last event (`plenum outbox dead`)",
  waiting: "still waits for the last event",
  none: "the log holds no event of it",
} as const;

function sinkLines(sinks: readonly SinkProgress[]): readonly string[] {
  if (sinks.length === 0) return ["  There are none."];
  return sinks.map(
    ({ sink, last, behind, exact }) =>
      `  ${sink}: ${LAST_EVENT[last ?? "none"]}; ${exact ? "" : "at most "}${behind} events behind`,
  );
}
