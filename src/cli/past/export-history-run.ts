import { existsSync } from "node:fs";
import { join } from "node:path";
import { buildPlanSettings } from "../../app/build-sync.ts";
import { Config, type SourceConfigEntry } from "../../app/config/config.ts";
import { createWorker, type Worker } from "../../app/worker.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import type { Site } from "../../core/model/building.ts";
import { type Event, eventSubject, makeEvent, sourceUri } from "../../core/model/event.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { sleepFor, yieldToEventLoop } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { documentSet, type QuotaStore, type Store } from "../../engine/store/store.ts";
import { getDayCount, isCountedDay, utcDay } from "../../engine/sync/completeness/complete-days.ts";
import { createDayCounter, daySealedFact } from "../../engine/sync/completeness/daily-bucket-counts.ts";
import { DAY_MS } from "../../engine/sync/history/buckets.ts";
import { type HistoryGap, type HistoryGapReason, listHistoryGaps } from "../../engine/sync/history/history-progress.ts";
import {
  type BackfillRequest,
  backfillRange,
  historySeriesKey,
  parseStoredBackfill,
  type SeriesLedger,
} from "../../engine/sync/history/series-registry.ts";
import { loadBackfillLedgers } from "../../engine/sync/quota-plan-inputs.ts";
import { type StoredBackfill, type StoredJob, type StoredObject, syncSet } from "../../engine/sync/stored-documents.ts";
import { TagSelection } from "../../engine/sync/tag-selection.ts";
import { requestStatus } from "../../ui/operator/control-socket-client.ts";
import { refuseUnknownIds } from "../shell/refuse-unknown-ids.ts";
import { formatProgressBar, listBackfills, pauseBackfills } from "./backfill-command.ts";

export interface ExportRequest {
  readonly backfillRequest: StoredBackfill;
  readonly requestText: string;
}

export interface ExportRun {
  readonly config: Config;
  readonly source: string;
  readonly sourceConfig: SourceConfigEntry;
  readonly folder: string;
  readonly stateFolder: string;
  readonly request: ExportRequest;
  readonly quotaStore: QuotaStore;
  readonly signal: AbortSignal;
  update(progressText: string): void;
}

export type ExportOutcome = Awaited<ReturnType<typeof writeExportedDays>>;

const POLL_INTERVAL_MS = 1_000;
const STOP_TIMEOUT_MS = 8_000;
const EXPORT_DOCUMENT_SET = "export";
const EXPORT_BACKFILL_ID = "export";
const LIST_JOBS = ["sites", "systems", "tags", "gateways", "hosts"] as const;

const REFUSED_GAP_REASONS: ReadonlySet<HistoryGapReason> = new Set(["refused", "unreadable"]);
const FINAL_GAP_REASONS: ReadonlySet<HistoryGapReason> = new Set([
  "no-log",
  "null",
  "out-of-scope",
  "not-listed",
  ...REFUSED_GAP_REASONS,
]);

/** Starts or resumes an export: one worker fetches the history, then a second worker writes complete days. */
export async function runExport(run: ExportRun): Promise<ExportOutcome | ConfigError> {
  const request = await useExportWorker(run, "fetching", (worker) => fetchHistory(run, worker));
  if (request instanceof ConfigError) return request;
  return useExportWorker(run, "landing", (worker) => writeExportedDays(run, worker, request));
}

async function fetchHistory(run: ExportRun, worker: Worker): Promise<BackfillRequest | ConfigError> {
  const { store } = worker;
  const storedBackfill = await storeExportRequest(run, store);
  await refuseTokenWithoutTags(run, worker);
  await worker.start();
  await waitUntil(run, async () => {
    run.update(`Listing tags${await readWorkerProblem(run)}`);
    return (await readJobPolls(run, store)).get("tags")?.lastSuccess != null;
  });
  const unknownIdError = await findUnknownIdError(run, store);
  if (unknownIdError !== null) return unknownIdError;
  const backfillSet = syncSet("backfill", run.source);
  if ((await store.document(backfillSet, EXPORT_BACKFILL_ID)) === undefined)
    await store.commit({ documents: [{ set: backfillSet, put: [[EXPORT_BACKFILL_ID, storedBackfill]] }] });
  const request = parseStoredBackfill(EXPORT_BACKFILL_ID, storedBackfill);
  if (request === null) throw new Error("an order that was just made cannot be read");
  if ((await readLedgers(run, store, request)).length === 0)
    return new ConfigError("No tag fits this selection.", {
      hint: "`plenum sites` lists the sites; names are patterns, * is any text.",
    });
  await waitUntil(run, async () => {
    run.update(await describeFetchProgress(run, store));
    const nowMs = systemClock.now();
    const gaps = listHistoryGaps(await readLedgers(run, store, request), { open: [request], paused: false }, nowMs);
    const pollsByJob = await readJobPolls(run, store);
    return !gaps.some((gap) => isGapStillRequested(gap, nowMs)) && LIST_JOBS.every((name) => pollsByJob.has(name));
  });
  return request;
}

async function writeExportedDays(run: ExportRun, { store, start }: Worker, request: BackfillRequest) {
  await pauseBackfills(store, run.source, true);
  run.update("Counting days");
  const nowMs = systemClock.now();
  const seriesLedgers = await readLedgers(run, store, request);
  const finalizationResult = await finalizeCompleteDays(store, run.source, request, seriesLedgers, nowMs);
  await store.commit({ events: finalizationResult.daySealedEvents });
  await start();
  const daysToWrite = new Set(finalizationResult.daySealedEvents);
  await waitUntil(run, async () => {
    const eventsLeft = (await store.outbox.lag()).reduce((sum, { depth }) => sum + depth, 0);
    for (const event of daysToWrite) if (existsSync(join(run.folder, manifestPath(event)))) daysToWrite.delete(event);
    run.update(`Writing: ${eventsLeft} events, ${daysToWrite.size} days to be sealed${await readWorkerProblem(run)}`);
    return eventsLeft === 0 && daysToWrite.size === 0;
  });
  const gaps = listHistoryGaps(seriesLedgers, { open: [request], paused: true }, nowMs);
  const exportProblems = await listExportProblems(run, store);
  return {
    /** Intervals that the service does not log do not count as missing. */
    complete: gaps.every(({ why }) => why === "no-log") && exportProblems.length === 0,
    from: request.stored.from,
    to: request.stored.to,
    tags: seriesLedgers.length,
    had: finalizationResult.had,
    null: finalizationResult.null,
    sealedDays: finalizationResult.daySealedEvents.length,
    holes: gaps,
    troubles: exportProblems,
  };
}

async function findUnknownIdError({ request, source }: ExportRun, store: Store): Promise<ConfigError | null> {
  const { ids = [], sites = [] } = TagSelection.parse(request.backfillRequest.select);
  try {
    await refuseUnknownIds(store, [source], "tag", ids);
    await refuseUnknownIds(store, [source], "site", sites.map(String));
    return null;
  } catch (error) {
    if (error instanceof ConfigError) return error;
    throw error;
  }
}

async function useExportWorker<T>(
  run: ExportRun,
  phase: ExportPhase,
  useWorker: (worker: Worker) => Promise<T>,
): Promise<T> {
  const worker = await createWorker({ config: buildExportConfig(run, phase), quotaStore: run.quotaStore });
  try {
    return await useWorker(worker);
  } finally {
    await worker.stop(STOP_TIMEOUT_MS);
  }
}

/** Stores the export request; a resumed export returns the request of its first run. */
async function storeExportRequest(run: ExportRun, store: Store): Promise<StoredBackfill> {
  const request = await store.document<ExportRequest>(EXPORT_DOCUMENT_SET, "request");
  if (request !== undefined && request.requestText !== run.request.requestText)
    throw new ConfigError(`Another export was begun in ${run.folder}, and is not complete.`, {
      hint: "Repeat that one with the same options, or name another folder.",
    });
  if (request === undefined)
    await store.commit({ documents: [{ set: EXPORT_DOCUMENT_SET, put: [["request", run.request]] }] });
  await pauseBackfills(store, run.source, false);
  return (request ?? run.request).backfillRequest;
}

async function refuseTokenWithoutTags({ signal, source }: ExportRun, worker: Worker): Promise<void> {
  const token = await worker.sources.get(source)?.me(signal);
  if (token?.abilities.includes("read:tags") !== false) return;
  throw new ConfigError(`The token of ${source} lacks read:tags, without which there is no history.`, {
    hint: "Make one in the user profile of the service that has it.",
  });
}

async function waitUntil({ signal }: ExportRun, isDone: () => Promise<boolean>): Promise<void> {
  do if (await isDone()) return;
  while (await sleepFor(systemClock, POLL_INTERVAL_MS, signal));
  signal.throwIfAborted();
}

const exportPlanSettings = ({ source, sourceConfig, config }: ExportRun) =>
  buildPlanSettings(source, { ...sourceConfig, read: [], history: [] }, config.state);

const readLedgers = (run: ExportRun, store: Store, request: BackfillRequest): Promise<readonly SeriesLedger[]> =>
  loadBackfillLedgers(store, exportPlanSettings(run), request, systemClock.now());

function isGapStillRequested({ why, againAt }: HistoryGap, nowMs: number): boolean {
  return !FINAL_GAP_REASONS.has(why) || (REFUSED_GAP_REASONS.has(why) && Date.parse(againAt ?? "") <= nowMs);
}

const readJobPolls = ({ source }: ExportRun, store: Store) => store.documents<StoredJob>(documentSet("poll", source));

async function describeFetchProgress(run: ExportRun, store: Store): Promise<string> {
  const backfills = await listBackfills(store, exportPlanSettings(run), run.config.state);
  const unfinishedBackfill = backfills.find(({ id, doneAt }) => id !== null && doneAt === null);
  if (unfinishedBackfill === undefined) return "Listing what is left";
  return `${formatProgressBar({ ...unfinishedBackfill, sinksBehind: false })}${await readWorkerProblem(run)}`;
}

async function readWorkerProblem({ stateFolder, signal }: ExportRun): Promise<string> {
  const { notices, sinks } = await requestStatus({ stateFolder }, signal);
  const exportSink = sinks.find(({ sink: name }) => name === EXPORT_SINK_NAME);
  const problem = exportSink?.problem ?? notices[0] ?? null;
  return problem === null ? "" : `; ${problem}`;
}

async function listExportProblems(run: ExportRun, store: Store): Promise<readonly string[]> {
  const pollsByJob = await readJobPolls(run, store);
  const listingProblems = LIST_JOBS.flatMap((name) => {
    const problem = pollsByJob.get(name)?.problem;
    return problem == null ? [] : [`The list of ${name} could not be read: ${problem}`];
  });
  const deadLetters = await store.outbox.deadLetters(EXPORT_SINK_NAME, 1);
  return [...listingProblems, ...deadLetters.map(({ reason }) => `Something could not be written: ${reason}`)];
}

/** Path of a day's manifest in the lake; see connectors/parquet/README.md. */
function manifestPath({ siteid = "none", data: { date } }: Event<"day-sealed">): string {
  return join("_manifests", `site=${siteid}`, `date=${date}.json`);
}

const EXPORT_SINK_NAME = "export";

/** Cron schedule that runs once a year, so that lists are read only at the start of the worker. */
const START_ONLY_CRON = "0 0 1 1 *";

/** Step of an export: `fetching` requests history; `landing` sends no requests and writes all data. */
type ExportPhase = "fetching" | "landing";

/** Builds the configuration of an export: a source that lists objects and fetches history, and a data lake as sink. */
function buildExportConfig(
  { config, sourceConfig, folder, source, stateFolder }: ExportRun,
  phase: ExportPhase,
): Config {
  const isFetching = phase === "fetching";
  const parsedConfig = Config.parse({
    // The parsed source below replaces this one; Config cannot parse its own output.
    sources: { [source]: { base_url: "https://replaced.invalid", token: { env: "REPLACED" }, time_zone: "UTC" } },
    sinks: {
      [EXPORT_SINK_NAME]: { from: "beginning", batch: 5_000, parquet: { folder, max_age: isFetching ? "15m" : "1s" } },
    },
  });
  const listSchedule = isFetching ? START_ONLY_CRON : false;
  const schedules: SourceConfigEntry["schedules"] = {
    ...{ token: isFetching ? sourceConfig.schedules.token : false, alarms: false, resolved_sweep: false },
    ...{ sites: listSchedule, gateways: listSchedule, hosts: listSchedule, systems: listSchedule, tags: listSchedule },
  };
  const inventory = { ...sourceConfig.inventory, tags_of_systems: true };
  return {
    ...parsedConfig,
    state: { ...config.state, folder: stateFolder, replay_window: 15 * 60_000 },
    // Log nothing, because the export command itself prints failures.
    log: { level: "silent" },
    status: { ...parsedConfig.status, port: 0 },
    sources: { [source]: { ...sourceConfig, read: [], history: [], heartbeat: false, inventory, schedules } },
  };
}

/** A day is finalized only after this time, because the service may still log late data of the day. */
const MAX_DATA_DELAY_MS = DAY_MS;

/** Builds a `day-sealed` event for each complete UTC day of a site that ended at least a day ago. */
async function finalizeCompleteDays(
  store: Store,
  source: string,
  request: BackfillRequest,
  ledgers: readonly SeriesLedger[],
  nowMs: number,
) {
  const daySealedEvents: Event<"day-sealed">[] = [];
  let [fetchedCount, nullCount] = [0, 0];
  const time = isoUtc(nowMs);
  for (const [siteId, series] of Map.groupBy(ledgers, ({ siteTag }) => siteTag.siteId)) {
    const requestedSeries = series.map((seriesLedger) => limitLedgerToRequest(seriesLedger, request, nowMs));
    const fromMs = Math.min(...requestedSeries.map(({ range }) => range.fromMs));
    const toMs = Math.max(...requestedSeries.map(({ range }) => range.toMs));
    const storedSite = await store.document<StoredObject<Site>>(documentSet("site", source), String(siteId));
    const site = storedSite?.value ?? { id: siteId, displayName: String(siteId) };
    for (let day = utcDay(fromMs); day * DAY_MS < toMs; day++) {
      const siteDayCounter = createDayCounter(day);
      for (const { series: seriesLedger } of requestedSeries) {
        const seriesKey = historySeriesKey(seriesLedger.siteTag.tag.id, {
          resolution: request.resolution,
          total: false,
        });
        siteDayCounter.add(seriesLedger, await getDayCount(store, source, seriesKey, seriesLedger.ledger, day), nowMs);
      }
      await yieldToEventLoop();
      const siteDayCounts = siteDayCounter.buildCounts();
      const { account } = siteDayCounts;
      fetchedCount += account.had;
      nullCount += account.null;
      const isDayComplete = account.expected > 0 && account.pending + account.refused === 0;
      const isDayInRange = day * DAY_MS >= fromMs && (day + 1) * DAY_MS <= toMs;
      const canDayStillChange = (day + 1) * DAY_MS + MAX_DATA_DELAY_MS > nowMs;
      if (!isDayComplete || !isDayInRange || canDayStillChange) continue;
      if (!series.every(({ ledger }) => isCountedDay(ledger, day, nowMs))) continue;
      const data = daySealedFact(site, day, siteDayCounts, 1, 0);
      const eventOrigin = { source: sourceUri(source), subject: eventSubject("site", null, String(siteId)), siteId };
      daySealedEvents.push(makeEvent({ type: "day-sealed", ...eventOrigin, time, data, facts: [data.date, 1] }));
    }
  }
  return { had: fetchedCount, null: nullCount, daySealedEvents };
}

/** Limits a series' ledger of fetched history to the requested range, so that earlier history is not missing. */
function limitLedgerToRequest(series: SeriesLedger, request: BackfillRequest, nowMs: number) {
  const range = backfillRange(request, series.rules, nowMs);
  const rangeStart = isoUtc(range.fromMs);
  const ledger = { ...series.ledger, wished: rangeStart, since: rangeStart, watermark: isoUtc(range.toMs) };
  return { range, series: { ...series, ledger, rules: { ...series.rules, everyMs: 0 } } };
}
