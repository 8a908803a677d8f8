import type { Command } from "commander";
import { buildPlanSettings } from "../../app/build-sync.ts";
import { toPageConfig } from "../../app/status-page-settings.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import type { Tag } from "../../core/model/building.ts";
import { EVENT_KINDS, type Event, eventSubject, isTelemetry, isUrgentKind, sourceUri } from "../../core/model/event.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { TracedRequest } from "../../engine/source/request-trace.ts";
import { documentSet, type LoggedEvent } from "../../engine/store/store.ts";
import { cronMatcher } from "../../engine/sync/cron-schedule.ts";
import { listHistoryGaps } from "../../engine/sync/history/history-progress.ts";
import { fetchedSinceMs } from "../../engine/sync/history/ledger.ts";
import { historySeriesKey } from "../../engine/sync/history/series-registry.ts";
import { historyProgressFromStore } from "../../engine/sync/quota-plan-inputs.ts";
import {
  type StoredAlarm,
  type StoredJob,
  type StoredLeftOut,
  type StoredObject,
  type StoredTagQuarantine,
  type StoredValue,
  syncSet,
} from "../../engine/sync/stored-documents.ts";
import { alarmTicketKey, readAlarmTickets, type Ticket } from "../../engine/views/alarm-tickets.ts";
import { type FoundWorker, requestLastPollTimes, requestTagActivity } from "../../ui/operator/control-socket-client.ts";
import { gapReasonText } from "../past/history-gaps-command.ts";
import { type CliContext, readSourceFromState, type SourceWithStore } from "../shell/command-context.ts";
import { findWorkerOfConfig } from "../shell/find-worker.ts";
import { omitMissingLines } from "../shell/terminal-output.ts";

const MAX_PRINTED_COMMANDS = 5;
const MAX_PRINTED_ALARM_EVENTS = 50;

export function defineCommand(command: Command, context: CliContext): void {
  command
    .argument("<id>", "id of a tag or of an alarm")
    .option("--source <name>", "which source, when there are several")
    .addHelpText("after", "\nExample:\n  plenum explain 10001")
    .action(async (id: string, options: { readonly source?: string }) => {
      const config = await context.acceptedConfig();
      await readSourceFromState(config, options.source, async (state) => {
        const { source, store } = state;
        const tag = await store.document<StoredObject<Tag>>(documentSet("tag", source), id);
        const alarm = tag ? undefined : await store.document<StoredAlarm>(documentSet("alarm", source), id);
        if (tag === undefined && alarm === undefined)
          throw new ConfigError(`The state knows neither a tag nor an alarm ${id} of ${source}.`, {
            hint: "`plenum alarms` and `plenum tags` list what there is.",
          });
        const worker = await findWorkerOfConfig({ config, source }, context.signal);
        if (tag !== undefined) {
          const explanation = await explainTag(state, tag, worker, context.signal);
          context.terminal().print(explanation, describeTag(explanation));
        } else if (alarm !== undefined) {
          const explanation = await explainAlarm(state, alarm, worker, context.signal);
          context.terminal().print(explanation, describeAlarm(explanation));
        }
      });
    });
}

export type TagExplanation = Awaited<ReturnType<typeof explainTag>>;

async function explainTag(
  state: SourceWithStore,
  storedTag: StoredObject<Tag>,
  worker: FoundWorker,
  signal: AbortSignal,
) {
  const { store, source, sourceConfig, config } = state;
  const { id } = storedTag.value;
  const nowMs = systemClock.now();
  const eventSubjects = [eventSubject("tag", storedTag.siteId, id), `site/-/tag/${id}`];
  const eventOrigin = { source: sourceUri(source), subjects: eventSubjects };
  const [value, quarantine, leftOut, historyProgress, events, commandResults] = await Promise.all([
    store.document<StoredValue>(documentSet("value", source), id),
    store.document<StoredTagQuarantine>(syncSet("quarantine", source), id),
    store.document<StoredLeftOut>(syncSet("left-out", source), id),
    historyProgressFromStore(store, buildPlanSettings(source, sourceConfig, config.state), nowMs),
    store.outbox.latest(1, EVENT_KINDS.filter(isTelemetry), eventOrigin),
    store.outbox.latest(MAX_PRINTED_COMMANDS, ["command-result"], eventOrigin),
  ]);
  const tagLedgers = historyProgress.ledgers.filter(({ siteTag }) => siteTag.tag.id === id);
  return {
    source,
    tag: storedTag.value,
    siteId: storedTag.siteId,
    missingSince: storedTag.missingSince,
    value: value ?? null,
    quarantine: quarantine ?? null,
    leftOut: leftOut ?? null,
    /** Next and last requests of the tag, which only the running worker knows. */
    work: worker.kind === "open" ? await requestTagActivity(worker.socket, source, id, signal) : null,
    worker: worker.kind,
    history: tagLedgers.map(({ rules, total, ledger }) => ({
      key: historySeriesKey(id, { resolution: rules.resolution, total }),
      held: ledger,
      /** Start of the time range for which history was fetched; it ends at the watermark. */
      hadSince: isoUtc(fetchedSinceMs(ledger)),
    })),
    holes: listHistoryGaps(tagLedgers, historyProgress.backfill, nowMs, { silences: true }),
    sinks: await readSinkProgress(state, events[0]),
    commands: commandResults.map(({ event }) => (event as Event<"command-result">).data),
  };
}

export type AlarmExplanation = Awaited<ReturnType<typeof explainAlarm>>;

async function explainAlarm(
  state: SourceWithStore,
  storedAlarm: StoredAlarm,
  worker: FoundWorker,
  signal: AbortSignal,
) {
  const { store, source, sourceConfig, config } = state;
  const { id, site } = storedAlarm.alarm;
  const eventOrigin = { source: sourceUri(source), subjects: [eventSubject("alarm", site.id, id)] };
  const alarmEventKinds = EVENT_KINDS.filter((kind) => kind.startsWith("alarm-"));
  const [events, polls, lastPollTimes, tickets] = await Promise.all([
    store.outbox.latest(MAX_PRINTED_ALARM_EVENTS, alarmEventKinds, eventOrigin),
    store.documents<StoredJob>(documentSet("poll", source)),
    worker.kind === "open" ? requestLastPollTimes(worker.socket, source, signal) : null,
    readAlarmTickets((set) => store.documents(set), toPageConfig(config).sinks),
  ]);
  const alarmPolls = (["alarms", "resolved_sweep"] as const).flatMap((job) => {
    const schedule = sourceConfig.schedules[job];
    // The worker stores successful polls once a minute, so the response of the worker is newer.
    const poll = addLatestPollSuccess(polls.get(job), lastPollTimes?.[job]);
    if (poll === undefined) return [];
    return [{ job, ...poll, nextAt: schedule === false ? null : isoUtc(cronMatcher(schedule)(systemClock.now())) }];
  });
  return {
    source,
    held: storedAlarm,
    told: events.map(({ event: { time, type, data } }) => ({ time, type, late: (data as { late: boolean }).late })),
    polls: alarmPolls,
    worker: worker.kind,
    sinks: await readSinkProgress(state, events[0]),
    tickets: tickets.get(alarmTicketKey(source, storedAlarm.episode)) ?? [],
  };
}

function addLatestPollSuccess(poll: StoredJob | undefined, lastSuccessTime: string | undefined): StoredJob | undefined {
  if (lastSuccessTime === undefined) return poll;
  if (poll === undefined) return { lastSuccess: lastSuccessTime, lastAttempt: lastSuccessTime, problem: null };
  const laterTime = (time: string | null) =>
    time === null || Date.parse(lastSuccessTime) > Date.parse(time) ? lastSuccessTime : time;
  return { ...poll, lastSuccess: laterTime(poll.lastSuccess), lastAttempt: laterTime(poll.lastAttempt) };
}

type SinkEventProgress = Awaited<ReturnType<typeof readSinkProgress>>[number];

/** Returns how far each sink has delivered the last event of a tag or an alarm. */
async function readSinkProgress({ store, config }: SourceWithStore, lastEvent: LoggedEvent | undefined) {
  const { filterBySink } = toPageConfig(config);
  const [lags, deadLetters] = await Promise.all([store.outbox.lag(filterBySink), store.outbox.deadLetters()]);
  /** `settled`: the sink received the event, or its filter excludes the event. Null if there is no event. */
  const lastEventState = (sink: string, reachedPosition: number): "settled" | "waiting" | "refused" | null => {
    if (lastEvent === undefined) return null;
    if (deadLetters.some((deadLetter) => deadLetter.sink === sink && deadLetter.event?.id === lastEvent.event.id))
      return "refused";
    return reachedPosition >= lastEvent.position ? "settled" : "waiting";
  };
  return lags.map(({ sink, position, urgent, depth, again, exact }) => {
    const reachedPosition = lastEvent && isUrgentKind(lastEvent.event.type) ? Math.max(position, urgent) : position;
    // The number of events behind is an upper bound if `exact` is false.
    return { sink, last: lastEventState(sink, reachedPosition), behind: depth + again, exact };
  });
}

const MAX_PRINTED_ENTRIES = 8;

export function describeTag(explanation: TagExplanation): readonly string[] {
  const { tag, value, history, holes, commands, siteId, source, missingSince, quarantine, leftOut } = explanation;
  return omitMissingLines(
    `tag ${tag.id} ${tag.displayName}${tag.unit === null ? "" : ` [${tag.unit}]`}, site ${siteId ?? "unknown"} of ${source}`,
    tag.description !== null && `  ${tag.description}`,
    missingSince !== null && `  Complete listings do not show it since ${missingSince}, so it is not asked for.`,
    "",
    "Value",
    value === null
      ? "  Never read."
      : `  ${value.value ?? "nothing"} (${value.quality}${value.staleReason === undefined ? "" : `: ${value.staleReason}`}) at ${value.time}${(value.nulls ?? 0) > 0 ? `, nothing ${value.nulls} times in a row` : ""}`,
    value?.value === null && value.lastGood ? `  last good: ${value.lastGood.value} at ${value.lastGood.time}` : null,
    value?.typeDoubt === "unit" && `  uncertain: it is a boolean, and ${tag.unit} is a unit of numbers.`,
    value?.typeDoubt === "changed" &&
      "  uncertain: the values before were of another type, until a further reading confirms this one.",
    leftOut !== null &&
      `  ${leftOut.kind === "unreadable" ? "Unreadable" : "No value"} in the replies since ${leftOut.since}: ${leftOut.reason}`,
    quarantine !== null && `  Set aside until ${quarantine.until}: ${quarantine.reason}`,
    "",
    "Next reading",
    ...nextRequestLines(explanation),
    "",
    "Last requests",
    ...lastRequestLines(explanation),
    ...(history.length === 0 ? [] : ["", "History"]),
    ...history.map(historySeriesLine),
    ...holes
      .filter(({ from }) => from !== null)
      .map((gap) => `  ${gap.resolution} from ${gap.from} to ${gap.to}: ${gapReasonText(gap)}`),
    "",
    "Sinks",
    ...sinkProgressLines(explanation.sinks),
    ...(commands.length === 0 ? [] : ["", "Last commands"]),
    ...commands.map(
      ({ commandId, outcome, requested, message }) => `  ${commandId}: ${requested} ended as ${outcome}: ${message}`,
    ),
  );
}

function historySeriesLine({ key, held, hadSince }: TagExplanation["history"][number]): string {
  const { state, refusal, watermark } = held;
  const rangeText = `  ${key}: ${hadSince === watermark ? "nothing is fetched yet" : `fetched from ${hadSince} to ${watermark}`}`;
  const retryText = refusal === null ? "" : `; asked again after ${refusal.againAt}`;
  if (state === "no-log")
    return `${rangeText}; the service says that it has no log of it (${refusal?.said})${retryText}`;
  if (refusal !== null) return `${rangeText}; refused at ${refusal.at}: ${refusal.said}${retryText}`;
  return `${rangeText}${state === "unproven" ? "; it is not known yet whether it has a log" : ""}`;
}

const SILENT_WORKER_TEXT = "  Unknown: a worker is there and does not answer.";

function nextRequestLines({ work, worker, missingSince }: TagExplanation): readonly string[] {
  if (worker === "silent") return [SILENT_WORKER_TEXT];
  if (work === null) return ["  No worker is running; nothing is due."];
  if (work.live === null && missingSince !== null) return ["  It is missing in the listings."];
  if (work.live === null) return ["  No class of live reads selects it, or the worker has only just started."];
  const { dueAt, everySeconds, reasons } = work.live;
  return omitMissingLines(
    dueAt !== null && `  Due by ${dueAt}, every ${everySeconds} s at the latest.`,
    ...reasons.map((reason) => `  ${reason}`),
    dueAt !== null && "  Plenum reads it earlier if a request has room for it.",
  );
}

function lastRequestLines({ work, worker }: TagExplanation): readonly string[] {
  if (worker === "silent") return [SILENT_WORKER_TEXT];
  if (work === null) return ["  Only a running worker remembers them."];
  const { requests, remembered } = work;
  const tagShareOfRequests = requests.reduce((sum, { tagIds }) => sum + 1 / tagIds.length, 0);
  return [
    ...requests.slice(-MAX_PRINTED_ENTRIES).toReversed().map(tracedRequestLine),
    `  It was in ${requests.length} of the last ${remembered.requests} tag requests (since ${remembered.since ?? "now"}): ${tagShareOfRequests.toFixed(2)} of them are its share.`,
  ];
}

function tracedRequestLine({ number, at, endpoint, lane, tagIds, outcome, message, tookMs }: TracedRequest) {
  const otherTagCount = tagIds.length - 1;
  const outcomeText = outcome === "ok" ? "" : `: ${outcome}${message === null ? "" : `, ${message}`}`;
  return `  ${at}  request ${number}, ${endpoint} (${lane}), with ${otherTagCount} others, ${tookMs} ms with waiting${outcomeText}`;
}

function describeAlarm({ source, held, told, polls, sinks, tickets, worker }: AlarmExplanation): readonly string[] {
  const { alarm, state, since, misses, returns } = held;
  return omitMissingLines(
    `alarm ${alarm.id} ${alarm.trigger.displayName}, priority ${alarm.trigger.priority}, site ${alarm.site.displayName} of ${source}`,
    `  ${state} since ${since}; triggered at ${alarm.triggeredAt}${alarm.resolvedAt === null ? "" : `, resolved at ${alarm.resolvedAt}`}`,
    misses > 0 && `  ${misses} complete listings in a row did not show it; Plenum checks whether it has ended.`,
    returns > 0 && `  It came back ${returns} times in this episode.`,
    "",
    "Told, newest first",
    told.length === 0 && "  The log contains no event of this alarm.",
    ...told
      .slice(0, MAX_PRINTED_ENTRIES)
      .map(({ time, type, late }) => `  ${time}  ${type}${late ? " (found later)" : ""}`),
    "",
    worker === "open" ? "Polls" : "Polls, as stored up to a minute later",
    ...polls.map((poll) => alarmPollLine(poll, worker)),
    "",
    "Sinks",
    ...sinkProgressLines(sinks),
    ...tickets.map(alarmTicketLine),
  );
}

function alarmPollLine(poll: AlarmExplanation["polls"][number], worker: AlarmExplanation["worker"]): string {
  const { job, lastAttempt, lastSuccess, nextAt, problem } = poll;
  return [
    `  ${job}: last at ${lastAttempt}`,
    lastSuccess === lastAttempt ? "" : `, last success ${lastSuccess === null ? "never" : `at ${lastSuccess}`}`,
    worker === "none" ? ", next when a worker runs" : `, next at ${nextAt ?? "no time: switched off"}`,
    problem === null ? "" : `; ${problem}`,
  ].join("");
}

function alarmTicketLine({ sink, ticket, link, isOpen, isFolded }: Ticket): string {
  const ticketText = [ticket, link].filter((text) => text !== null).join(" ") || "notified";
  return `  ${sink}: ${ticketText}, ${isOpen ? "open" : "closed"}${isFolded ? ", together with others" : ""}`;
}

const LAST_EVENT_STATE_TEXTS = {
  settled: "has the last event, or its filter leaves it out",
  refused: "refused the last event (`plenum outbox dead`)",
  waiting: "still waits for the last event",
  none: "the log holds no event of it",
} as const;

function sinkProgressLines(sinks: readonly SinkEventProgress[]): readonly string[] {
  if (sinks.length === 0) return ["  There are none."];
  return sinks.map(
    ({ sink, last, behind, exact }) =>
      `  ${sink}: ${LAST_EVENT_STATE_TEXTS[last ?? "none"]}; ${exact ? "" : "at most "}${behind} events behind`,
  );
}
