import type { Pipeline } from "../app/build-pipeline.ts";
import { Retryable } from "../core/errors/errors.ts";
import type { Clock } from "../core/runtime/clock.ts";
import { VERSION } from "../core/runtime/version.ts";
import { mapInSlices } from "../core/runtime/waiting.ts";
import { isoUtc } from "../core/values/iso-utc.ts";
import { endSilence, SILENCE_SET, shortenSilence } from "../engine/silence/alarm-silences.ts";
import { joinSourceStores } from "../engine/store/joined-stores.ts";
import type { Outbox } from "../engine/store/store.ts";
import { createValueCache } from "../ui/status/cache-of-stored-documents.ts";
import type { CommandRow } from "../ui/status/command-list.ts";
import type { PageApi, SourceHolder } from "../ui/status/page-api.ts";
import type { SilenceStore } from "../ui/status/silence-routes.ts";
import type { PlotColumns, SinkReport, SinkResponse } from "../ui/status/sink-reports.ts";
import type { AlarmDayCounts } from "../ui/status/site-responses.ts";
import type { Status, StatusReport } from "../ui/status/status-report.ts";
import { createTagIndex } from "../ui/status/tag-index.ts";
import { openSourceState } from "./postgres/source-state.ts";
import type { SourceStateOptions, StateDatabase } from "./postgres/state-database.ts";

/** Maximum age of the cached status for each source of the member: 20 ms with 2 sources, 3 s with 300 sources. */
const STATUS_CACHE_AGE_PER_SOURCE_MS = 10;

/** Combines the status of all sources that a member holds. Queries about one source go to its pipeline. */
export function createMemberStatusView(options: {
  readonly clock: Clock;
  readonly startedAtMs: number;
  readonly name: string;
  readonly databaseLocation: string;
  readonly pipelines: ReadonlyMap<string, Pipeline>;
  readonly configuration: () => StatusReport["configuration"];
  readonly notices: () => readonly string[];
  readonly databaseBytes: () => Promise<number>;
  readonly findOtherHolder: (source: string) => Promise<SourceHolder | null>;
}) {
  const { clock, pipelines } = options;
  const cache = createValueCache(clock);
  const maxAgeMs = () => pipelines.size * STATUS_CACHE_AGE_PER_SOURCE_MS;
  const joinedStore = () => joinSourceStores([...pipelines].map(([source, { store }]) => ({ source, store })));
  const mapPipelines = <T>(query: (pipeline: Pipeline) => Promise<T>) => mapInSlices([...pipelines.values()], query);

  function pageApiOfSource(source: string): PageApi {
    const pipeline = pipelines.get(source);
    if (pipeline === undefined) throw new Retryable(`The source ${source} is not held here any more.`);
    return pipeline.pageApi;
  }

  const listSinkReports = async () => sumSinkReports((await mapPipelines(({ status }) => status.sinks())).flat());
  const status: Status = {
    sinks: listSinkReports,
    async health() {
      const healthReports = await mapPipelines(({ status: each }) => each.health());
      const sinkReports = healthReports.flatMap((part) => part.sinks);
      return {
        now: isoUtc(clock.now()),
        sources: healthReports.flatMap((part) => part.sources),
        sinks: [...Map.groupBy(sinkReports, ({ name }) => name).values()].flatMap(selectWorstReports),
        commands: healthReports[0]?.commands ?? null,
        // Unknown, because the state is on the disk of the database server.
        disk: { free: null, diskBytes: null },
      };
    },
    async report() {
      const sourceReports = await cache("reports", maxAgeMs(), () => mapPipelines(({ status: each }) => each.report()));
      const commandReports = sourceReports.flatMap((report) => report.commands ?? []);
      const [firstCommandReport] = commandReports;
      return {
        version: VERSION,
        member: options.name,
        now: isoUtc(clock.now()),
        startedAt: isoUtc(options.startedAtMs),
        notices: [...new Set([...options.notices(), ...sourceReports.flatMap(({ notices }) => notices)])],
        // Sort by name, because members take sources in any order, and the page must keep one order.
        sources: sourceReports.flatMap(({ sources }) => sources).toSorted((a, b) => a.name.localeCompare(b.name)),
        sinks: sumSinkReports(sourceReports.flatMap((report) => report.sinks)),
        commands:
          firstCommandReport === undefined
            ? null
            : {
                ...firstCommandReport,
                stopped: commandReports.some(({ stopped }) => stopped),
                writable: sumNumbers(commandReports.map(({ writable }) => writable)),
                waiting: sumNumbers(commandReports.map(({ waiting }) => waiting)),
                locks: {
                  count: sumNumbers(commandReports.map(({ locks }) => locks.count)),
                  nextEnd: commandReports.flatMap(({ locks }) => locks.nextEnd ?? []).toSorted()[0] ?? null,
                },
              },
        configuration: options.configuration(),
        store: {
          ...{ file: options.databaseLocation, bytes: await options.databaseBytes() },
          ...{ free: null, diskBytes: null, copy: null, damaged: [] },
        },
      };
    },
    async alarms() {
      const alarmLists = await cache("alarms", maxAgeMs(), () => mapPipelines(({ status: each }) => each.alarms()));
      return alarmLists
        .flat()
        .toSorted(
          (a, b) =>
            a.alarm.trigger.priority.localeCompare(b.alarm.trigger.priority) ||
            Date.parse(b.alarm.triggeredAt) - Date.parse(a.alarm.triggeredAt),
        );
    },
    async silences(query) {
      const rows = (await mapPipelines(({ status: each }) => each.silences(query))).flat();
      const silenceById = new Map(rows.map((row) => [row.id, row]));
      return [...silenceById.values()].toSorted((a, b) => a.from.localeCompare(b.from) || a.id.localeCompare(b.id));
    },
  };

  const memberPageApi: PageApi = {
    get sources() {
      return [...pipelines.keys()];
    },
    holderOf: options.findOtherHolder,
    async sinkNames() {
      return [...new Set((await mapPipelines(({ pageApi: each }) => each.sinkNames())).flat())];
    },
    async tags(query) {
      if (query.source !== undefined) return pageApiOfSource(query.source).tags(query);
      return createTagIndex({
        clock,
        store: joinedStore(),
        sources: [...pipelines.keys()],
        findReadClass: (source, id) => pipelines.get(source)?.activities.get(source)?.tagReadClass(id) ?? null,
      }).list(query);
    },
    tag: async (source, id) => pageApiOfSource(source).tag(source, id),
    alarm: async (query) => pageApiOfSource(query.source).alarm(query),
    site: async (source, id) => pageApiOfSource(source).site(source, id),
    async alarmDays(query) {
      if (query.source !== undefined) return pageApiOfSource(query.source).alarmDays(query);
      return sumAlarmDays(await mapPipelines(({ pageApi: each }) => each.alarmDays(query)), clock);
    },
    async commands(query) {
      if (query.source !== undefined) return pageApiOfSource(query.source).commands(query);
      const rows: readonly CommandRow[] = (await mapPipelines(({ pageApi: each }) => each.commands(query))).flat();
      return rows.toSorted((a, b) => b.at.localeCompare(a.at)).slice(0, query.limit);
    },
    async sink(name) {
      const sinkResponses = (await mapPipelines(({ pageApi: each }) => each.sink(name))).flatMap((part) => part ?? []);
      const sinkReport = (await listSinkReports()).find(({ sink }) => sink === name);
      return sinkReport ? sumSinkResponses(sinkResponses, sinkReport) : null;
    },
    source: async (name) => pageApiOfSource(name).source(name),
    plot: async (query) => pageApiOfSource(query.source).plot(query),
    stop() {
      for (const pipeline of pipelines.values()) pipeline.pageApi.stop();
    },
  };

  const outbox: Pick<Outbox, "latest" | "resendDeadLetters"> = {
    latest: (...args) => joinedStore().outbox.latest(...args),
    resendDeadLetters: (...args) => joinedStore().outbox.resendDeadLetters(...args),
  };

  return {
    ...{ status, pageApi: memberPageApi, outbox },
    findSilenceStore: (source: string): SilenceStore | null => pipelines.get(source)?.store ?? null,
  };
}

/** Ends a silence in all sources; each member emits `silence-ended` for its sources. Returns false if unknown. */
export async function endSilenceOfFleet(
  pipelines: ReadonlyMap<string, Pipeline>,
  database: StateDatabase,
  runtime: Pick<SourceStateOptions, "clock" | "log">,
  ...[id, at, by]: readonly [id: string, at: string, by: string | null]
): Promise<boolean> {
  const { rows } = await database.query(
    `select source from ${database.table("document")} where set_name = $1 and key = $2`,
    [SILENCE_SET, id],
  );
  let hasEnded = false;
  for (const [name] of rows) {
    const source = String(name);
    const pipeline = pipelines.get(source);
    if (pipeline !== undefined) {
      hasEnded = (await endSilence(pipeline.store, id, at, by)) || hasEnded;
      continue;
    }
    const store = await openSourceState(database, { source, access: "operator", ...runtime });
    try {
      hasEnded = (await shortenSilence(store, id, at, by)) || hasEnded;
    } finally {
      await store.close();
    }
  }
  return hasEnded;
}

/** States of a sink from best to worst; a sink of several sources is shown in the worst state. */
const SINK_STATE_ORDER = ["idle", "delivering", "starting", "never started", "not running"];

function selectWorstReports<T extends { readonly state: string }>(parts: readonly T[]): readonly T[] {
  const sinkStateRank = ({ state }: T) =>
    SINK_STATE_ORDER.indexOf(state) + (SINK_STATE_ORDER.includes(state) ? 0 : SINK_STATE_ORDER.length + 1);
  return parts.toSorted((a, b) => sinkStateRank(b) - sinkStateRank(a)).slice(0, 1);
}

function sumSinkReports(reports: readonly SinkReport[]): readonly SinkReport[] {
  return [...Map.groupBy(reports, ({ sink }) => sink).values()].flatMap((parts) =>
    selectWorstReports(parts).map((worstReport) => ({
      ...worstReport,
      depth: sumKnownNumbers(parts.map(({ depth }) => depth)),
      again: sumKnownNumbers(parts.map(({ again }) => again)),
      exact: parts.every(({ exact }) => exact),
      oldest: parts.flatMap(({ oldest }) => oldest ?? []).toSorted()[0] ?? null,
      deadLetters: sumKnownNumbers(parts.map(({ deadLetters }) => deadLetters)),
      dropped: sumKnownNumbers(parts.map(({ dropped }) => dropped)),
      remembered: sumKnownNumbers(parts.map(({ remembered }) => remembered)),
    })),
  );
}

function sumSinkResponses(parts: readonly SinkResponse[], report: SinkReport): SinkResponse {
  const { connector, problem, sink, state } = report;
  return {
    ...{ sink, connector, state, problem },
    lag: sumPlotColumns(parts.map(({ lag }) => lag)),
    rate: sumPlotColumns(parts.map(({ rate }) => rate)),
    dead: parts.flatMap(({ dead }) => dead).toSorted((a, b) => b.at.localeCompare(a.at)),
    deadTotal: sumNumbers(parts.map(({ deadTotal }) => deadTotal)),
  };
}

/** Adds columns minute by minute; a minute without a known value is null. */
function sumPlotColumns(parts: readonly PlotColumns[]): PlotColumns {
  const sumByMs = new Map<number, number | null>();
  for (const { t, value } of parts)
    for (const [n, ms] of t.entries()) sumByMs.set(ms, sumKnownNumbers([sumByMs.get(ms) ?? null, value[n] ?? null]));
  const sortedMinuteSums = [...sumByMs].toSorted(([a], [b]) => a - b);
  return { t: sortedMinuteSums.map(([ms]) => ms), value: sortedMinuteSums.map(([, value]) => value) };
}

function sumAlarmDays(parts: readonly AlarmDayCounts[], clock: Clock): AlarmDayCounts {
  const listedDays = parts[0]?.days ?? [isoUtc(clock.now()).slice(0, 10)];
  const alarmCountsByPriority: Record<string, readonly number[]> = {};
  for (const alarmDaysOfSource of parts)
    for (const [priority, counts] of Object.entries(alarmDaysOfSource.byPriority))
      alarmCountsByPriority[priority] = counts.map((count, n) => count + (alarmCountsByPriority[priority]?.[n] ?? 0));
  return { days: listedDays, byPriority: alarmCountsByPriority };
}

const sumNumbers = (numbers: readonly number[]): number => numbers.reduce((total, number) => total + number, 0);

function sumKnownNumbers(numbers: readonly (number | null)[]): number | null {
  const knownNumbers = numbers.filter((number) => number !== null);
  return knownNumbers.length === 0 ? null : sumNumbers(knownNumbers);
}
