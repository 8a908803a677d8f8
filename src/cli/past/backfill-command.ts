import { randomBytes } from "node:crypto";
import { type Command, InvalidArgumentError, Option } from "commander";
import { buildPlanSettings } from "../../app/build-sync.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import { RESOLUTIONS, type Resolution } from "../../core/model/building.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { sleepFor } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { areSinksBehind } from "../../engine/delivery/back-pressure.ts";
import type { StateConfig } from "../../engine/store/state-config.ts";
import type { Store } from "../../engine/store/store.ts";
import type { BackfillProgress } from "../../engine/sync/history/history-progress.ts";
import { hasBackfillEnded } from "../../engine/sync/history/series-registry.ts";
import { type PlanReport, reportPlan } from "../../engine/sync/plan/report.ts";
import { historyProgressFromStore, loadPlanFacts, type PlanSettings } from "../../engine/sync/quota-plan-inputs.ts";
import { type StoredBackfill, type StoredPause, syncSet } from "../../engine/sync/stored-documents.ts";
import { type CliContext, chooseSource } from "../shell/command-context.ts";
import {
  addTagSelectionOptions,
  buildTagSelection,
  createTimeOption,
  parseTime,
  type TagSelectionOptions,
} from "../shell/common-command-options.ts";
import { findWorkerOfConfig } from "../shell/find-worker.ts";
import { useStateStore } from "../shell/open-worker-state.ts";
import { refuseUnknownIds } from "../shell/refuse-unknown-ids.ts";

interface BackfillCommandOptions extends TagSelectionOptions {
  readonly source?: string;
  readonly from?: string;
  readonly to: string;
  readonly resolution: Resolution;
  readonly detach?: boolean;
  readonly pause?: boolean;
  readonly resume?: boolean;
  readonly cancel?: string;
}

/** Defines `plenum backfill`, which stores requests that the running worker fetches in idle slots. */
export function defineCommand(command: Command, context: CliContext): void {
  command
    .argument("[tag...]", "only these tags; with no selection at all, every tag")
    .option("--source <name>", "which source, when there are several")
    .option("--from <time>", "start: ISO 8601, or an age such as 365d; without it, shows how far it is", parseTime)
    .addOption(createTimeOption("--to <time>", "end: ISO 8601, or an age", "0s"))
    .addOption(new Option("--resolution <size>", "interval of the series").choices(RESOLUTIONS).default("5m"));
  addTagSelectionOptions(command)
    .option("--detach", "do not wait for the end")
    .option("--pause", "pause fetching the past; live reads continue")
    .option("--resume", "resume it")
    .option("--cancel <id>", "cancel a request; events that were emitted stay")
    .addHelpText(
      "after",
      "\nCtrl-C ends the waiting, not the backfill. Readings that were emitted are not emitted again.\n" +
        "\nExamples:\n  plenum backfill --from 365d --site 1\n  plenum backfill --pause",
    )
    .action(async (tagIds: string[], options: BackfillCommandOptions) => {
      const config = context.config();
      const [source, sourceConfig] = chooseSource(config, options.source);
      await useStateStore({ config, source }, false, async (store) => {
        // A worker that does not respond still counts as running: it reads the backfill request from the state later.
        const isWorkerRunning = (await findWorkerOfConfig({ config, source }, context.signal)).kind !== "none";
        const settings = buildPlanSettings(source, sourceConfig, config.state);
        const backfillContext = {
          context,
          store,
          source,
          isWorkerRunning,
          listStatuses: () => listBackfills(store, settings, config.state),
        };
        if (options.pause === true || options.resume === true)
          await pauseOrResumeBackfills(backfillContext, options.pause === true);
        else if (options.cancel !== undefined) await cancelBackfill(backfillContext, options.cancel);
        else if (options.from === undefined) await showBackfills(backfillContext);
        else await requestBackfill(backfillContext, tagIds, { ...options, from: options.from });
      });
    });
}

interface BackfillContext {
  readonly context: CliContext;
  readonly store: Store;
  readonly source: string;
  readonly isWorkerRunning: boolean;
  readonly listStatuses: () => Promise<readonly BackfillStatus[]>;
}

const NO_WORKER_TEXT = "No worker is running on this state folder; it is done once one runs (`plenum run`).";
const POLL_INTERVAL_MS = 2_000;

async function requestBackfill(
  backfillContext: BackfillContext,
  tagIds: readonly string[],
  options: BackfillCommandOptions & { from: string },
) {
  const { context, store, source, isWorkerRunning } = backfillContext;
  const { from, to, resolution } = options;
  const terminal = context.terminal();
  if (from >= to) throw new InvalidArgumentError("--from has to be before --to.");
  const select = buildTagSelection(tagIds, options);
  await refuseUnknownIds(store, [source], "tag", select.ids ?? []);
  await refuseUnknownIds(store, [source], "site", (select.sites ?? []).map(String));
  const request: StoredBackfill = { from, to, resolution, select, askedAt: isoUtc(systemClock.now()), doneAt: null };
  const id = randomBytes(4).toString("hex");
  const backfillSetName = syncSet("backfill", source);
  await store.commit({ documents: [{ set: backfillSetName, insert: [[id, request]] }] });
  const newBackfillStatus = await findBackfillStatus(backfillContext, id);
  if (newBackfillStatus.tags === 0) {
    await store.commit({ documents: [{ set: backfillSetName, remove: [id] }] });
    throw new ConfigError("No known tag fits this selection.", {
      hint: "`plenum plan` says how many tags are known; names are patterns, * is any text.",
    });
  }
  if (terminal.json || options.detach === true || !isWorkerRunning) {
    terminal.print({ ...request, ...newBackfillStatus }, [backfillStatusLine(newBackfillStatus)]);
    if (!isWorkerRunning) terminal.info(NO_WORKER_TEXT);
    return;
  }
  terminal.info(`Order ${id}. Ctrl-C ends the waiting, not the backfill.`);
  await terminal.progress("Backfilling", async (showProgress) => {
    do {
      const currentStatus = await findBackfillStatus(backfillContext, id);
      if (currentStatus.doneAt !== null) return;
      showProgress(formatProgressBar(currentStatus));
    } while (await sleepFor(systemClock, POLL_INTERVAL_MS, context.signal));
    context.signal.throwIfAborted();
  });
  const { withoutLog } = await findBackfillStatus(backfillContext, id);
  terminal.info(`Order ${id} is done${intervalsWithoutLogText(withoutLog)}.`);
}

async function showBackfills({ context, listStatuses, isWorkerRunning }: BackfillContext): Promise<void> {
  const rows = await listStatuses();
  context.terminal().print(rows, rows.length === 0 ? ["No history is left to fetch."] : rows.map(backfillStatusLine));
  if (!isWorkerRunning) context.terminal().info(NO_WORKER_TEXT);
}

async function pauseOrResumeBackfills(
  { context, store, source, isWorkerRunning }: BackfillContext,
  isPaused: boolean,
): Promise<void> {
  const pauseEffectText = isPaused
    ? "Nothing of the past is fetched until `plenum backfill --resume`; the worker follows within seconds."
    : "The past is fetched again; the worker follows within seconds.";
  context.terminal().print(await pauseBackfills(store, source, isPaused), [pauseEffectText]);
  if (!isWorkerRunning) context.terminal().info(NO_WORKER_TEXT);
}

export async function pauseBackfills(store: Store, source: string, isPaused: boolean): Promise<StoredPause> {
  const storedPause: StoredPause = { pausedAt: isPaused ? isoUtc(systemClock.now()) : null };
  await store.commit({ documents: [{ set: syncSet("backfill-pause", source), put: [["pause", storedPause]] }] });
  return storedPause;
}

async function cancelBackfill({ context, store, source }: BackfillContext, id: string): Promise<void> {
  const backfillSet = syncSet("backfill", source);
  if ((await store.document(backfillSet, id)) === undefined)
    throw new ConfigError(`There is no order ${id}.`, { hint: "`plenum backfill` lists them." });
  await store.commit({ documents: [{ set: backfillSet, remove: [id] }] });
  context.terminal().print({ cancelled: id }, [`Order ${id} is cancelled; events that were emitted stay.`]);
}

async function findBackfillStatus({ listStatuses }: BackfillContext, id: string): Promise<BackfillStatus> {
  const backfillStatus = (await listStatuses()).find((status) => status.id === id);
  if (backfillStatus === undefined) throw new ConfigError(`Order ${id} was given up.`);
  return backfillStatus;
}

interface BackfillStatus extends Pick<BackfillProgress, "resolution" | "tags" | "requestsLeft"> {
  /** Id of the backfill request; null for the configured backfill. */
  readonly id: string | null;
  readonly from: string | null;
  readonly to: string | null;
  /** Share of the history that was fetched, 0 to 1. */
  readonly done: number;
  readonly paused: boolean;
  /** True while the backfill waits for sinks that are behind. */
  readonly sinksBehind: boolean;
  readonly doneAt: string | null;
  /** Numbers of intervals and tags that the service did not log; null until the request is done. */
  readonly withoutLog: StoredBackfill["withoutLog"] | null;
  /** Expected end of the backfill; null while it is paused or when it is done. */
  readonly expectedAt: string | null;
}

/** Lists backfill requests, then the configured backfill, in the order in which they are fetched. */
export async function listBackfills(
  store: Store,
  settings: PlanSettings,
  { max_bytes: maxBytes }: StateConfig,
): Promise<readonly BackfillStatus[]> {
  const nowMs = systemClock.now();
  const [{ backfill, progress }, planFacts, storedBackfills, outboxPressure] = await Promise.all([
    historyProgressFromStore(store, settings, nowMs),
    loadPlanFacts(store, settings, systemClock, null),
    store.documents<StoredBackfill>(syncSet("backfill", settings.source)),
    store.outbox.pressure(),
  ]);
  const { paused } = backfill;
  const unfinishedFields = {
    paused,
    sinksBehind: areSinksBehind(outboxPressure, maxBytes, false),
    doneAt: null,
    withoutLog: null,
  };
  const requestsPerMinute = backfillRequestsPerMinute(reportPlan(planFacts));
  let precedingRequestCount = 0;
  const estimateEndAfter = (requests: number) => {
    precedingRequestCount += requests;
    return paused ? null : isoUtc(nowMs + (precedingRequestCount / requestsPerMinute) * 60_000);
  };
  const pendingBackfills = progress.orders.map((backfill): BackfillStatus => {
    const requestsLeft = backfill.requestsLeft + Math.ceil(backfill.unproven / 20);
    return { ...backfill, ...unfinishedFields, requestsLeft, expectedAt: estimateEndAfter(requestsLeft) };
  });
  const endedBackfills = [...storedBackfills].flatMap(([id, storedBackfill]): readonly BackfillStatus[] => {
    const { from, to, resolution, doneAt, withoutLog = null } = storedBackfill;
    if (!hasBackfillEnded(storedBackfill)) return [];
    const finishedFields = { tags: 1, requestsLeft: 0, done: 1, paused: false, sinksBehind: false, expectedAt: null };
    return [{ id, from, to, resolution, doneAt, withoutLog, ...finishedFields }];
  });
  const configuredBackfills = progress.resolutions
    .filter(({ total, pendingRanges }) => !total && pendingRanges > 0)
    .map(({ resolution, tags, requestsLeft, done }): BackfillStatus => {
      const progressFields = { resolution, tags, requestsLeft, done, expectedAt: estimateEndAfter(requestsLeft) };
      return { id: null, from: null, to: null, ...unfinishedFields, ...progressFields };
    });
  return [...endedBackfills, ...pendingBackfills, ...configuredBackfills];
}

function backfillRequestsPerMinute({ backfill, lanes, quota }: PlanReport): number {
  const spareRequestsPerMinute = lanes.find(({ lane }) => lane === "spare")?.requestsPerMinute ?? 0;
  return backfill?.requestsPerMinute ?? Math.max(0.03 * quota.polls, spareRequestsPerMinute);
}

const PROGRESS_BAR_WIDTH = 24;

/** Formats progress as `████░░░░░░░░ 33 %, 120 requests left, done about …`; shows 100 % only at the end. */
export function formatProgressBar({ done, requestsLeft, paused, sinksBehind, expectedAt }: BackfillStatus): string {
  const filledCells = Math.floor(done * PROGRESS_BAR_WIDTH);
  const progressBar = `${"█".repeat(filledCells)}${"░".repeat(PROGRESS_BAR_WIDTH - filledCells)}`;
  const expectedEndText = expectedAt === null ? "" : `done about ${formatUtcMinute(expectedAt)}`;
  const progressText = paused ? "paused" : sinksBehind ? "waiting for the sinks (plenum outbox)" : expectedEndText;
  return `${progressBar} ${Math.min(99, Math.floor(done * 100))} %, ${requestsLeft} requests left, ${progressText}`;
}

function backfillStatusLine(backfill: BackfillStatus): string {
  const { id, from, to, resolution, tags, doneAt, withoutLog } = backfill;
  const backfillText =
    id === null ? "configured backfill" : `order ${id}, ${formatUtcMinute(from ?? "")} to ${formatUtcMinute(to ?? "")}`;
  if (doneAt === null) return `${backfillText}, ${resolution}, ${tags} tags: ${formatProgressBar(backfill)}`;
  return `${backfillText}, ${resolution}: done at ${formatUtcMinute(doneAt)}${intervalsWithoutLogText(withoutLog)}`;
}

function intervalsWithoutLogText(withoutLog: BackfillStatus["withoutLog"]): string {
  if (!withoutLog || withoutLog.buckets === 0) return "";
  return `; the service has no log of ${withoutLog.buckets} intervals of ${withoutLog.tags} tags`;
}

export const formatUtcMinute = (time: string): string => `${time.slice(0, 16)}Z`;
