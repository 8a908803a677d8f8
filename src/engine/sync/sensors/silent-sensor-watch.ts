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
import { OrderlyStop, startServiceOnce } from "../../../core/runtime/lifecycle.ts";
import type { Log } from "../../../core/runtime/log.ts";
import { endsWithin, runLoop, yieldToEventLoop, yieldUnlessAborted } from "../../../core/runtime/waiting.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { Store } from "../../store/store.ts";
import { loadRequestableTags, loadVisibleSites, type SiteTag } from "../inventory/requestable-tags.ts";
import { type StoredSensorPeriod, type StoredSensors, syncSet } from "../stored-documents.ts";
import { createTagFilter } from "../tag-selection.ts";
import type { SensorSelection, SilentSensorsConfig } from "./config.ts";
import { findSensorFindings, hasEnoughReadings } from "./sensor-findings.ts";
import { createSensorTable } from "./sensor-statistics.ts";

/** Reports once per period which sensors seem dead. Counts only hours in which the worker was running. */
export type SensorWatch = ReturnType<typeof createSensorWatch>;

interface SensorWatchOptions {
  readonly source: string;
  readonly store: Store;
  readonly clock: Clock;
  readonly clockCheck: Pick<ClockCheck, "deviation" | "latestStep">;
  readonly log: Pick<Log, "info" | "warn">;
  readonly config: SilentSensorsConfig;
  readonly classOf: (siteTag: SiteTag) => string | undefined;
}

const HOUR_MS = 3_600_000;
const SENSOR_CHECK_INTERVAL_MS = 60_000;
/** Statistics of 50,000 tags are 5 MB, so they are saved hourly. A crash loses the readings since then. */
const SENSOR_SAVE_INTERVAL_MS = HOUR_MS;
/** A longer gap between two checks does not count as watched time, because the process was suspended. */
const MAX_WATCHED_GAP_MS = 5 * SENSOR_CHECK_INTERVAL_MS;
const SENSOR_PERIOD_KEY = "period";

export function createSensorWatch(options: SensorWatchOptions) {
  const { source, store, clock, clockCheck, log } = options;
  let { config, classOf } = options;
  const documentSetName = syncSet("sensors", source);
  const reportSet = syncSet("silent-sensors", source);
  const sensorTable = createSensorTable();
  const sensorStopController = new AbortController();
  let sensorCheckLoop: Promise<void> = Promise.resolve();
  let periodStart = isoUtc(clock.now());
  let watchedMs = 0;
  let lastCheckMs = clock.monotonic();
  let lastSaveMs = clock.monotonic();

  const sinceLastCheckMs = () => Math.min(clock.monotonic() - lastCheckMs, MAX_WATCHED_GAP_MS);
  const watchedHour = () => Math.floor((watchedMs + sinceLastCheckMs()) / HOUR_MS);

  async function loadSensorTable(): Promise<void> {
    const storedSensorDocuments = await store.documents<StoredSensorPeriod | StoredSensors>(documentSetName);
    const storedSensorPeriod = storedSensorDocuments.get(SENSOR_PERIOD_KEY) as StoredSensorPeriod | undefined;
    if (storedSensorPeriod === undefined) return;
    periodStart = storedSensorPeriod.from;
    watchedMs = storedSensorPeriod.watchedMs;
    for (const [, storedDocument] of [...storedSensorDocuments].sort(([a], [b]) => Number(a) - Number(b)))
      if ("ids" in storedDocument && storedDocument.from === periodStart) sensorTable.load(storedDocument);
  }

  function countWatchedTime(): void {
    watchedMs += sinceLastCheckMs();
    lastCheckMs = clock.monotonic();
  }

  async function saveSensorTable(): Promise<void> {
    const sensorPeriod: StoredSensorPeriod = { from: periodStart, watchedMs: Math.round(watchedMs) };
    await store.commit({ documents: [{ set: documentSetName, put: [[SENSOR_PERIOD_KEY, sensorPeriod]] }] });
    for (const group of sensorTable.changedGroups()) {
      const sensorDocument: StoredSensors = { from: periodStart, ...sensorTable.pack(group) };
      await store.commit({ documents: [{ set: documentSetName, put: [[String(group), sensorDocument]] }] });
      await yieldToEventLoop();
    }
    lastSaveMs = clock.monotonic();
  }

  async function checkSensorPeriod(): Promise<number> {
    countWatchedTime();
    const nowMs = clock.now();
    // The clock was set back to before the period, so the period begins again now.
    if (nowMs < Date.parse(periodStart)) periodStart = isoUtc(nowMs);
    const isPeriodOver = nowMs - Date.parse(periodStart) >= config.every;
    if (isPeriodOver && clockCheck.latestStep() === null) await emitSensorReport(nowMs);
    else if (clock.monotonic() - lastSaveMs >= SENSOR_SAVE_INTERVAL_MS) await saveSensorTable();
    return SENSOR_CHECK_INTERVAL_MS;
  }

  /** Emits and stores each part of the report, then begins the new period, so that a restart emits missing parts. */
  async function emitSensorReport(nowMs: number): Promise<void> {
    const reportPeriod = { from: periodStart, to: isoUtc(nowMs), watchedHours: Math.floor(watchedMs / HOUR_MS) };
    const isTagExcluded = sensorFilter(config.exclude, classOf);
    const mayBeConstant = sensorFilter(config.may_rest, classOf);
    const periodHours = config.every / HOUR_MS;
    const sites = await loadVisibleSites(store, source);
    const watchedSensors = await findSensorsBySite(isTagExcluded);
    let findingCount = 0;
    for (const site of sites) {
      const sensorsOfSite = watchedSensors.get(site.id) ?? [];
      if (sensorsOfSite.length === 0) continue;
      const findings = findSensorFindings(sensorsOfSite, { periodHours, mayStayConstant: mayBeConstant });
      const judged = sensorsOfSite.filter(({ row }) => hasEnoughReadings(row, periodHours)).length;
      for (const reportPart of splitReport(site, reportPeriod, { tags: sensorsOfSite.length, judged, findings })) {
        await emitReportPart(reportPart);
        await yieldUnlessAborted(clock, sensorStopController.signal);
      }
      findingCount += findings.length;
    }
    await beginSensorPeriod(nowMs, new Set(sites.map(({ id }) => String(id))));
    log.info({ findings: findingCount, hours: reportPeriod.watchedHours }, "the sensor report was emitted");
  }

  async function findSensorsBySite(isExcluded: (siteTag: SiteTag) => boolean) {
    const statisticsByTagId = new Map(sensorTable.rows());
    const watchedSensors = (await loadRequestableTags(store, source)).flatMap((siteTag) => {
      const row = statisticsByTagId.get(siteTag.tag.id);
      return row === undefined || isExcluded(siteTag) ? [] : [{ siteTag, row }];
    });
    return Map.groupBy(watchedSensors, ({ siteTag }) => siteTag.siteId);
  }

  async function emitReportPart(report: SilentSensors): Promise<void> {
    const oldKeys = report.part > 1 ? [] : [...(await store.documents<SilentSensors>(reportSet)).keys()];
    const remove = oldKeys.filter((key) => key.startsWith(`${report.site.id} `));
    const documents = [{ set: reportSet, remove, put: [[`${report.site.id} ${report.part}`, report] as const] }];
    await store.commit({ documents, events: [buildSilentSensorsEvent(source, report)] });
  }

  async function beginSensorPeriod(nowMs: number, siteIds: ReadonlySet<string>): Promise<void> {
    const newSensorPeriod: StoredSensorPeriod = { from: isoUtc(nowMs), watchedMs: 0 };
    const sensorDocumentKeys = Array.from({ length: sensorTable.groupCount() }, (_, group) => String(group));
    const reportKeys = [...(await store.documents<SilentSensors>(reportSet)).keys()];
    await store.commit({
      documents: [
        { set: documentSetName, put: [[SENSOR_PERIOD_KEY, newSensorPeriod]], remove: sensorDocumentKeys },
        { set: reportSet, remove: reportKeys.filter((key) => !siteIds.has(key.split(" ")[0] ?? "")) },
      ],
    });
    periodStart = newSensorPeriod.from;
    watchedMs = 0;
    sensorTable.clear();
    lastSaveMs = clock.monotonic();
  }

  const sensorWatchService = startServiceOnce({
    name: `sensors ${source}`,
    async start(signal) {
      await loadSensorTable();
      lastCheckMs = clock.monotonic();
      sensorCheckLoop = runLoop({
        clock,
        signal: AbortSignal.any([signal, sensorStopController.signal]),
        alignSleeps: true,
        step: checkSensorPeriod,
        onFault: (error) => log.warn({ err: error }, "the sensors could not be checked"),
      });
    },
    async stop(deadlineMs) {
      sensorStopController.abort(new OrderlyStop());
      await endsWithin(clock, deadlineMs, sensorCheckLoop);
      countWatchedTime();
      await saveSensorTable();
    },
  });

  return {
    ...sensorWatchService,
    changeConfig(newOptions: Pick<SensorWatchOptions, "config" | "classOf">): void {
      ({ config, classOf } = newOptions);
    },
    read(id: string, value: TagValue, atMs: number): void {
      sensorTable.addReading(id, value, watchedHour(), clockCheck.deviation() === null ? atMs : null);
    },
    logged(id: string, resolution: Resolution, points: TagPoints, nowMs: number): void {
      if (clockCheck.deviation() === null) sensorTable.addPoints(id, resolution, points, nowMs);
    },
  };
}

function sensorFilter({ classes, ...fields }: SensorSelection, classOf: (siteTag: SiteTag) => string | undefined) {
  const tagFieldFilters = Object.entries(fields)
    .filter(([, entries]) => entries !== undefined)
    .map(([field, entries]) => createTagFilter({ [field]: entries }));
  const classNames = new Set(classes);
  return (siteTag: SiteTag) => tagFieldFilters.some((one) => one(siteTag)) || classNames.has(classOf(siteTag) ?? "");
}

const FINDINGS_PER_REPORT_PART = 500;
const CHARACTERS_PER_REPORT_PART = 150_000;

export function splitReport(
  site: Site,
  period: Pick<SilentSensors, "from" | "to" | "watchedHours">,
  results: Pick<SilentSensors, "tags" | "judged"> & { readonly findings: readonly SensorFinding[] },
): readonly SilentSensors[] {
  const { findings, tags, judged } = results;
  const parts = splitFindingsIntoParts(findings);
  const counts = Object.fromEntries(
    SENSOR_FINDINGS.map((kind) => [kind, findings.filter((one) => one.finding === kind).length]),
  ) as Record<SensorFindingKind, number>;
  return parts.map((partFindings, index) => {
    return { site, ...period, tags, judged, counts, part: index + 1, parts: parts.length, findings: partFindings };
  });
}

function splitFindingsIntoParts(findings: readonly SensorFinding[]): readonly (readonly SensorFinding[])[] {
  const findingsByPart: SensorFinding[][] = [[]];
  let partLength = 0;
  for (const finding of findings) {
    const findingLength = JSON.stringify(finding).length;
    const lastPart = findingsByPart.at(-1) ?? [];
    const isPartTooLong = lastPart.length > 0 && partLength + findingLength > CHARACTERS_PER_REPORT_PART;
    const startsPart = isPartTooLong || lastPart.length >= FINDINGS_PER_REPORT_PART;
    if (startsPart) findingsByPart.push([finding]);
    else lastPart.push(finding);
    partLength = (startsPart ? 0 : partLength) + findingLength;
  }
  return findingsByPart;
}

function buildSilentSensorsEvent(source: string, data: SilentSensors): Event<"silent-sensors"> {
  const { from, part, site, to } = data;
  const fields = { source: sourceUri(source), subject: eventSubject("site", null, String(site.id)), siteId: site.id };
  return makeEvent({ ...fields, type: "silent-sensors", time: to, data, facts: [from, part] });
}
