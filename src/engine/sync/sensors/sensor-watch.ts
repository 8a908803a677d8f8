import type { TagPoints } from "../../../core/codec/points.ts";
import type { Resolution, Site, TagValue } from "../../../core/model/building.ts";
import { type Event, eventSubject, makeEvent, sourceUri } from "../../../core/model/event.ts";
import {
  SENSOR_FINDINGS,
  type SensorFinding,
  type SensorFindingKind,
  type SilentSensors,
} from "../../../core/model/tag-event-data.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { ClockCheck } from "../../../core/runtime/clock-check.ts";
import { OrderlyStop, startServiceOnce, type WorkerService } from "../../../core/runtime/lifecycle.ts";
import type { Log } from "../../../core/runtime/log.ts";
import { endsWithin, runLoop, yieldToEventLoop, yieldUnlessAborted } from "../../../core/runtime/waiting.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { Store } from "../../store/store.ts";
import { expectedTags, type LocatedTag, visibleSites } from "../inventory/requestable-tags.ts";
import { type StoredSensorPeriod, type StoredSensors, syncSet } from "../snapshot.ts";
import { createTagFilter } from "../tag-selection.ts";
import type { SensorSelection, SilentSensorsConfig } from "./config.ts";
import { findSensorFindings, hasEnoughReadings } from "./findings.ts";
import { createSensorTable } from "./sensor-table.ts";

/** Reports once per period which sensors seem dead. Counts only hours in which the worker was running. */
export interface SensorWatch extends WorkerService {
  read(id: string, value: TagValue, atMs: number): void;
  logged(id: string, resolution: Resolution, points: TagPoints, nowMs: number): void;
  change(next: Pick<SensorWatchOptions, "config" | "classOf">): void;
}

interface SensorWatchOptions {
  readonly source: string;
  readonly store: Store;
  readonly clock: Clock;
  readonly clockDoubt: Pick<ClockCheck, "anywhere" | "stepped">;
  readonly log: Pick<Log, "info" | "warn">;
  readonly config: SilentSensorsConfig;
  readonly classOf: (located: LocatedTag) => string | undefined;
}

const HOUR_MS = 3_600_000;
const CHECK_INTERVAL_MS = 60_000;
/** Interval between saves: 50,000 tags are 5 MB. A crash loses the readings since the last save. */
const SAVE_INTERVAL_MS = HOUR_MS;
/** Longest time between two checks that counts as watched; a longer gap means a suspended process. */
const MAX_WATCHED_GAP_MS = 5 * CHECK_INTERVAL_MS;
const SENSOR_PERIOD_KEY = "period";

export function createSensorWatch(options: SensorWatchOptions): SensorWatch {
  const { source, store, clock, clockDoubt, log } = options;
  let { config, classOf } = options;
  const set = syncSet("sensors", source);
  const reportSet = syncSet("silent-sensors", source);
  const table = createSensorTable();
  const stopController = new AbortController();
  let running: Promise<void> = Promise.resolve();
  let from = isoUtc(clock.now());
  let watchedMs = 0;
  let lookedMs = clock.monotonic();
  let savedMs = clock.monotonic();

  const sinceLookMs = () => Math.min(clock.monotonic() - lookedMs, MAX_WATCHED_GAP_MS);
  const hour = () => Math.floor((watchedMs + sinceLookMs()) / HOUR_MS);

  async function load(): Promise<void> {
    const storedDocuments = await store.documents<StoredSensorPeriod | StoredSensors>(set);
    const period = storedDocuments.get(SENSOR_PERIOD_KEY) as StoredSensorPeriod | undefined;
    if (period === undefined) return;
    from = period.from;
    watchedMs = period.watchedMs;
    for (const [, each] of [...storedDocuments].sort(([a], [b]) => Number(a) - Number(b)))
      if ("ids" in each && each.from === from) table.load(each);
  }

  function countWatchedTime(): void {
    watchedMs += sinceLookMs();
    lookedMs = clock.monotonic();
  }

  async function save(): Promise<void> {
    const period: StoredSensorPeriod = { from, watchedMs: Math.round(watchedMs) };
    await store.commit({ documents: [{ set, put: [[SENSOR_PERIOD_KEY, period]] }] });
    for (const group of table.changedGroups()) {
      const sensorDocument: StoredSensors = { from, ...table.pack(group) };
      await store.commit({ documents: [{ set, put: [[String(group), sensorDocument]] }] });
      await yieldToEventLoop();
    }
    savedMs = clock.monotonic();
  }

  async function checkPeriod(): Promise<number> {
    countWatchedTime();
    const nowMs = clock.now();
    // The clock was set back to before the period, so the period begins again now.
    if (nowMs < Date.parse(from)) from = isoUtc(nowMs);
    const isPeriodOver = nowMs - Date.parse(from) >= config.every;
    if (isPeriodOver && clockDoubt.stepped() === null) await emitReport(nowMs);
    else if (clock.monotonic() - savedMs >= SAVE_INTERVAL_MS) await save();
    return CHECK_INTERVAL_MS;
  }

  /** Emits and stores each part of the report, then begins the new period, so that a crash repeats missing parts. */
  async function emitReport(nowMs: number): Promise<void> {
    const period = { from, to: isoUtc(nowMs), watchedHours: Math.floor(watchedMs / HOUR_MS) };
    const isExcluded = makeFilter(config.exclude, classOf);
    const mayRest = makeFilter(config.may_rest, classOf);
    const periodHours = config.every / HOUR_MS;
    const sites = await visibleSites(store, source);
    const sensors = await sensorsBySite(isExcluded);
    let count = 0;
    for (const site of sites) {
      const siteSensors = sensors.get(site.id) ?? [];
      if (siteSensors.length === 0) continue;
      const findings = findSensorFindings(siteSensors, { periodHours, mayRest });
      const judged = siteSensors.filter(({ row }) => hasEnoughReadings(row, periodHours)).length;
      for (const reportPart of splitReport(site, period, { tags: siteSensors.length, judged, findings })) {
        await emitPart(reportPart);
        await yieldUnlessAborted(clock, stopController.signal);
      }
      count += findings.length;
    }
    await beginPeriod(nowMs, new Set(sites.map(({ id }) => String(id))));
    log.info({ findings: count, hours: period.watchedHours }, "the sensors were looked through");
  }

  async function sensorsBySite(isExcluded: (located: LocatedTag) => boolean) {
    const rows = new Map(table.rows());
    const sensors = (await expectedTags(store, source)).flatMap((located) => {
      const row = rows.get(located.tag.id);
      return row === undefined || isExcluded(located) ? [] : [{ located, row }];
    });
    return Map.groupBy(sensors, ({ located }) => located.siteId);
  }

  async function emitPart(part: SilentSensors): Promise<void> {
    const old = part.part > 1 ? [] : [...(await store.documents<SilentSensors>(reportSet)).keys()];
    const remove = old.filter((key) => key.startsWith(`${part.site.id} `));
    const documents = [{ set: reportSet, remove, put: [[`${part.site.id} ${part.part}`, part] as const] }];
    await store.commit({ documents, events: [buildReportEvent(source, part)] });
  }

  async function beginPeriod(nowMs: number, siteIds: ReadonlySet<string>): Promise<void> {
    const period: StoredSensorPeriod = { from: isoUtc(nowMs), watchedMs: 0 };
    const groups = Array.from({ length: table.groups() }, (_, group) => String(group));
    const keys = [...(await store.documents<SilentSensors>(reportSet)).keys()];
    const goneKeys = keys.filter((key) => !siteIds.has(key.split(" ")[0] ?? ""));
    await store.commit({
      documents: [
        { set, put: [[SENSOR_PERIOD_KEY, period]], remove: groups },
        { set: reportSet, remove: goneKeys },
      ],
    });
    from = period.from;
    watchedMs = 0;
    table.clear();
    savedMs = clock.monotonic();
  }

  const service = startServiceOnce({
    name: `sensors ${source}`,
    async start(signal) {
      await load();
      lookedMs = clock.monotonic();
      running = runLoop({
        clock,
        signal: AbortSignal.any([signal, stopController.signal]),
        onlyChecks: true,
        turn: checkPeriod,
        fault: (error) => log.warn({ err: error }, "the sensors could not be looked through"),
      });
    },
    async stop(deadlineMs) {
      stopController.abort(new OrderlyStop());
      await endsWithin(clock, deadlineMs, running);
      countWatchedTime();
      await save();
    },
  });

  return {
    ...service,
    change(next) {
      ({ config, classOf } = next);
    },
    read(id, value, atMs) {
      table.read(id, value, hour(), clockDoubt.anywhere() === null ? atMs : null);
    },
    logged(id, resolution, points, nowMs) {
      if (clockDoubt.anywhere() === null) table.logged(id, resolution, points, nowMs);
    },
  };
}

function makeFilter({ classes, ...fields }: SensorSelection, classOf: (located: LocatedTag) => string | undefined) {
  const fieldFilters = Object.entries(fields)
    .filter(([, entries]) => entries !== undefined)
    .map(([field, entries]) => createTagFilter({ [field]: entries }));
  const names = new Set(classes);
  return (located: LocatedTag) => fieldFilters.some((one) => one(located)) || names.has(classOf(located) ?? "");
}

const FINDINGS_PER_PART = 500;
const CHARACTERS_PER_PART = 150_000;

export function splitReport(
  site: Site,
  period: Pick<SilentSensors, "from" | "to" | "watchedHours">,
  seen: Pick<SilentSensors, "tags" | "judged"> & { readonly findings: readonly SensorFinding[] },
): readonly SilentSensors[] {
  const { findings, tags, judged } = seen;
  const reportParts = splitFindings(findings);
  const counts = Object.fromEntries(
    SENSOR_FINDINGS.map((kind) => [kind, findings.filter((one) => one.finding === kind).length]),
  ) as Record<SensorFindingKind, number>;
  const parts = reportParts.length;
  return reportParts.map((portion, index) => {
    return { site, ...period, tags, judged, counts, part: index + 1, parts, findings: portion };
  });
}

function splitFindings(findings: readonly SensorFinding[]): readonly (readonly SensorFinding[])[] {
  const reportParts: SensorFinding[][] = [[]];
  let characters = 0;
  for (const finding of findings) {
    const findingLength = JSON.stringify(finding).length;
    const lastPart = reportParts.at(-1) ?? [];
    const isTooLong = lastPart.length > 0 && characters + findingLength > CHARACTERS_PER_PART;
    if (isTooLong || lastPart.length >= FINDINGS_PER_PART) {
      reportParts.push([finding]);
      characters = findingLength;
    } else {
      lastPart.push(finding);
      characters += findingLength;
    }
  }
  return reportParts;
}

function buildReportEvent(source: string, data: SilentSensors): Event<"silent-sensors"> {
  const { from, part, site, to } = data;
  const address = { source: sourceUri(source), subject: eventSubject("site", null, String(site.id)), siteId: site.id };
  return makeEvent({ ...address, type: "silent-sensors", time: to, data, facts: [from, part] });
}
