import type { Command } from "commander";
import { configView } from "../../app/build-status.ts";
import { planSettings } from "../../app/build-sync.ts";
import type { SourceEntry } from "../../app/config/config.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import type { Tag } from "../../core/model/building.ts";
import { type Event, isTelemetry, isUrgent, KINDS, sourceUri, subjectOf } from "../../core/model/event.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { StateConfig } from "../../engine/store/config.ts";
import { documentSet, type LoggedEvent, type Store, type Wanted } from "../../engine/store/store.ts";
import { pastFromState } from "../../engine/sync/facts-for-plan.ts";
import { fetchedSince } from "../../engine/sync/history/ledger.ts";
import { gapsIn } from "../../engine/sync/history/progress.ts";
import { historyKey } from "../../engine/sync/history/series.ts";
import { matcher } from "../../engine/sync/schedule.ts";
import {
  type Listed,
  type StoredAlarm,
  type StoredLeftOut,
  type StoredPoll,
  type StoredQuarantine,
  type StoredValue,
  syncSet,
} from "../../engine/sync/snapshot.ts";
import { ticketKey, ticketsOf } from "../../engine/views/tickets.ts";
import { requestPolls, requestTag, type TagWork } from "../../ui/operator/work.ts";
import { type CliContext, chooseSource } from "../shell/context.ts";
import { findWorkerFor } from "../shell/find-worker.ts";
import { readState } from "../shell/state-access.ts";
import type { AlarmExplanation, SinkProgress, TagExplanation, WorkerPresence } from "./explain-lines.ts";
import { alarmLines, tagLines } from "./explain-lines.ts";

const COMMANDS_SHOWN = 5;
const ALARM_EVENTS = 50;

export function define(command: Command, context: CliContext): void {
  command
    .argument("<id>", "id of a tag or of an alarm")
    .option("--source <name>", "which source, when there are several")
    .addHelpText("after", "\nExample:\n  plenum explain 10001")
    .action(async (id: string, options: { readonly source?: string }) => {
      const terminal = context.terminal();
      const config = await context.acceptedConfig();
      const [name, entry] = chooseSource(config, options.source);
      await readState({ config, source: name }, async (store) => {
        const known = { store, name, entry, state: config.state, ...configView(config) };
        const tag = await store.document<Listed<Tag>>(documentSet("tag", name), id);
        if (tag !== undefined) {
          const found = await findWorkerFor({ config, source: name }, context.signal);
          const work = found.kind === "open" ? await requestTag(found.door, name, id, context.signal) : null;
          const explanation = await explainTag(known, tag, work, found.kind);
          terminal.object(explanation, tagLines(explanation));
          return;
        }
        const alarm = await store.document<StoredAlarm>(documentSet("alarm", name), id);
        if (alarm === undefined) {
          throw new ConfigError(`The state knows neither a tag nor an alarm ${id} of ${name}.`, {
            hint: "`plenum alarms` and `plenum tags` list what there is.",
          });
        }
        const found = await findWorkerFor({ config, source: name }, context.signal);
        const lastPolls = found.kind === "open" ? await requestPolls(found.door, name, context.signal) : {};
        const explanation = await explainAlarm(known, alarm, lastPolls, found.kind);
        terminal.object(explanation, alarmLines(explanation));
      });
    });
}

interface Known {
  readonly store: Store;
  readonly name: string;
  readonly entry: SourceEntry;
  readonly state: StateConfig;
  readonly wanted: ReadonlyMap<string, Wanted>;
  readonly sinks: readonly string[];
}

async function explainTag(
  { store, name, entry, state, wanted }: Known,
  held: Listed<Tag>,
  work: TagWork | null,
  worker: WorkerPresence,
): Promise<TagExplanation> {
  const { id } = held.value;
  const nowMs = systemClock.now();
  const about = {
    source: sourceUri(name),
    // A rejected command may have no site.
    subjects: [subjectOf("tag", held.siteId, id), `site/-/tag/${id}`],
  };
  const [value, quarantine, leftOut, past, events, results] = await Promise.all([
    store.document<StoredValue>(documentSet("value", name), id),
    store.document<StoredQuarantine>(syncSet("quarantine", name), id),
    store.document<StoredLeftOut>(syncSet("left-out", name), id),
    pastFromState(store, planSettings(name, entry, state), nowMs),
    store.outbox.latest(1, KINDS.filter(isTelemetry), about),
    store.outbox.latest(COMMANDS_SHOWN, ["command-result"], about),
  ]);
  const own = past.ledgers.filter(({ located: placed }) => placed.tag.id === id);
  return {
    source: name,
    tag: held.value,
    siteId: held.siteId,
    missingSince: held.missingSince,
    value: value ?? null,
    quarantine: quarantine ?? null,
    leftOut: leftOut ?? null,
    work,
    worker,
    history: own.map(({ rules, total, ledger }) => ({
      key: historyKey(id, { resolution: rules.resolution, total }),
      held: ledger,
      hadSince: isoUtc(fetchedSince(ledger)),
    })),
    holes: gapsIn(own, past.orders, nowMs, { silences: true }),
    sinks: await sinkProgress(store, wanted, events[0]),
    commands: results.map(({ event }) => (event as Event<"command-result">).data),
  };
}

async function explainAlarm(
  { store, name, entry, sinks, wanted }: Known,
  held: StoredAlarm,
  lastPolls: Readonly<Record<string, string>>,
  worker: WorkerPresence,
): Promise<AlarmExplanation> {
  const { id, site } = held.alarm;
  const [events, polls] = await Promise.all([
    store.outbox.latest(
      ALARM_EVENTS,
      KINDS.filter((kind) => kind.startsWith("alarm-")),
      { source: sourceUri(name), subjects: [subjectOf("alarm", site.id, id)] },
    ),
    store.documents<StoredPoll>(documentSet("poll", name)),
  ]);
  const jobs = (["alarms", "resolved_sweep"] as const).flatMap((job) => {
    const written = polls.get(job);
    const schedule = entry.schedules[job];
    // The worker stores successful polls once a minute; its own answer is newer.
    const poll = withLastGood(written, lastPolls[job]);
    if (poll === undefined) return [];
    return [{ job, ...poll, nextAt: schedule === false ? null : isoUtc(matcher(schedule)(systemClock.now())) }];
  });
  return {
    source: name,
    held,
    told: events.map(({ event }) => ({
      time: event.time,
      type: event.type,
      late: (event as Event<"alarm-raised">).data.late,
    })),
    polls: jobs,
    worker,
    sinks: await sinkProgress(store, wanted, events[0]),
    tickets: (await ticketsOf((set) => store.documents(set), sinks)).get(ticketKey(name, held.episode)) ?? [],
  };
}

function withLastGood(poll: StoredPoll | undefined, lastGood: string | undefined): StoredPoll | undefined {
  if (lastGood === undefined) return poll;
  if (poll === undefined) return { lastSuccess: lastGood, lastAttempt: lastGood, problem: null };
  const isLater = (time: string | null) => time === null || Date.parse(lastGood) > Date.parse(time);
  return {
    ...poll,
    lastSuccess: isLater(poll.lastSuccess) ? lastGood : poll.lastSuccess,
    lastAttempt: isLater(poll.lastAttempt) ? lastGood : poll.lastAttempt,
  };
}

async function sinkProgress(
  store: Store,
  wanted: ReadonlyMap<string, Wanted>,
  last: LoggedEvent | undefined,
): Promise<readonly SinkProgress[]> {
  const [lags, letters] = await Promise.all([store.outbox.lag(wanted), store.outbox.deadLetters()]);
  return lags.map(({ sink, position, urgent, depth, again, exact }): SinkProgress => {
    const reached = last !== undefined && isUrgent(last.event.type) ? Math.max(position, urgent) : position;
    const isRefused = letters.some(
      (letter) => letter.sink === sink && last !== undefined && letter.event?.id === last.event.id,
    );
    const place = last === undefined ? null : reached >= last.position ? "settled" : "waiting";
    return { sink, last: isRefused ? "refused" : place, behind: depth + again, exact };
  });
}
