import { isDeepStrictEqual } from "node:util";
import { ConfigError, errorText } from "../../core/errors/errors.ts";
import {
  type ConfigChange,
  type ConfigurationState,
  formatConfigChange,
  invalidConfigNotice,
  type ReloadCause,
  type ReloadReport,
} from "../../core/model/config-change-report.ts";
import { makeEvent } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { OrderlyStop, startServiceOnce } from "../../core/runtime/lifecycle.ts";
import { type Log, maskCredentials } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import { createSerialRunner, endsWithin, retryUntilDone } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Store } from "../../engine/store/store.ts";
import type { Config } from "../config/config.ts";
import { computeConfigInForce, findConfigChanges } from "../config/config-changes.ts";
import { formatConfigProblems } from "../config/config-problems.ts";
import { findSharedTokens } from "../config/contradictory-options.ts";
import { watchFile } from "./file-watch.ts";

export interface ReconfigurableWorkerPart {
  readonly name: string;
  /** Prepares a configuration change without applying the change. An error rejects the whole file. */
  prepare(nextConfig: Config): Promise<PreparedConfigChange>;
}

export interface PreparedConfigChange {
  applyChange(): Promise<void> | void;
  discardChange?(): Promise<void>;
}

export interface ReloadableConfigFile {
  readonly file: string;
  loadConfig(): Config;
  readonly isWatched: boolean;
}

/** Maximum time for which a reload waits until the event about the change is stored. */
const RELOAD_EVENT_WAIT_MS = 5_000;

export function createReloader(
  options: ReloadableConfigFile & {
    readonly config: Config;
    /** Parts of the worker, in the order in which they apply a change. */
    readonly parts: readonly ReconfigurableWorkerPart[];
    readonly store: Pick<Store, "commit">;
    readonly clock: Clock;
    readonly log: Log;
    readonly metrics: Pick<Metrics, "reloads" | "configRefused" | "configPending">;
  },
) {
  const { clock, file, log, metrics } = options;
  const runOneReloadAtATime = createSerialRunner();
  const stopController = new AbortController();
  let configInForce = options.config;
  let lastReport: ReloadReport | null = null;
  let pendingChanges: readonly ConfigChange[] = [];
  let fileProblems: readonly string[] | null = null;
  let workerPartFailures: readonly string[] = [];
  const pendingEventCommits = new Set<Promise<unknown>>();

  async function prepareReload() {
    const loadedConfig = options.loadConfig();
    const nextConfig = computeConfigInForce(configInForce, loadedConfig);
    // Check again that no source shares its token: a running source keeps its old token until a restart.
    const [sharedToken] = findSharedTokens(nextConfig);
    if (sharedToken !== undefined) throw new ConfigError(`${sharedToken.path.join(".")}: ${sharedToken.message}`);
    const allConfigChanges = findConfigChanges(configInForce, loadedConfig);
    const preparedChanges: (PreparedConfigChange & { readonly name: string })[] = [];
    const discard = () => Promise.all(preparedChanges.map((part) => part.discardChange?.()));
    try {
      for (const part of options.parts) preparedChanges.push({ name: part.name, ...(await part.prepare(nextConfig)) });
    } catch (error) {
      await discard();
      throw error;
    }
    const instantChanges = allConfigChanges.filter(({ effect }) => effect === "alone");
    const changesAfterRestart = allConfigChanges.filter(({ effect }) => effect === "restart");
    return { next: nextConfig, preparedParts: preparedChanges, discard, changes: instantChanges, changesAfterRestart };
  }

  async function reloadNow(by: ReloadCause, isDryRun: boolean): Promise<ReloadReport> {
    const reloadReport = { by, at: isoUtc(clock.now()), file, isDryRun, changes: [], refused: null, failures: [] };
    if (stopController.signal.aborted)
      return { ...reloadReport, pending: pendingChanges, refused: ["The worker is stopping."] };
    let prepared: Awaited<ReturnType<typeof prepareReload>>;
    try {
      prepared = await prepareReload();
    } catch (error) {
      const refusedReloadReport = { ...reloadReport, pending: pendingChanges, refused: formatConfigProblems(error) };
      if (!isDryRun) recordRefusedReload(refusedReloadReport);
      return refusedReloadReport;
    }
    const { changes, changesAfterRestart } = prepared;
    if (isDryRun) {
      await prepared.discard();
      return { ...reloadReport, changes, pending: changesAfterRestart };
    }

    const failedPartMessages: string[] = [];
    for (const part of prepared.preparedParts) {
      try {
        await part.applyChange();
      } catch (error) {
        log.error({ part: part.name, err: error }, "a part could not take the new configuration over");
        failedPartMessages.push(`${part.name}: ${maskCredentials(errorText(error))}`);
      }
    }
    const hasNewConfigChanges = changes.length > 0 || !isDeepStrictEqual(changesAfterRestart, pendingChanges);
    const appliedReloadReport = {
      ...reloadReport,
      changes,
      pending: changesAfterRestart,
      failures: failedPartMessages,
    };
    if (fileProblems !== null) log.info({ file }, "the configuration file is right again");
    fileProblems = null;
    metrics.configRefused.set(0);
    configInForce = prepared.next;
    pendingChanges = changesAfterRestart;
    workerPartFailures = failedPartMessages.length > 0 || changes.length > 0 ? failedPartMessages : workerPartFailures;
    metrics.configPending.set(pendingChanges.length);
    metrics.reloads.inc({ outcome: changes.length > 0 ? "changed" : "unchanged" });
    if (hasNewConfigChanges || by !== "file") lastReport = appliedReloadReport;
    if (hasNewConfigChanges) await recordConfigChange(appliedReloadReport);
    else if (by !== "file") log.info({ by }, "the configuration file says what is in force");
    return appliedReloadReport;
  }

  function recordRefusedReload(report: ReloadReport): void {
    metrics.reloads.inc({ outcome: "refused" });
    metrics.configRefused.set(1);
    if (!isDeepStrictEqual(fileProblems, report.refused))
      log.warn({ file, problems: report.refused }, "the configuration file is wrong and changes nothing");
    fileProblems = report.refused;
    lastReport = report;
  }

  async function recordConfigChange({ by, at, changes, pending: waiting }: ReloadReport): Promise<void> {
    const configChangeLines = { changes: changes.map(formatConfigChange), pending: waiting.map(formatConfigChange) };
    const restartMessage = "the configuration file was changed, and a restart has to follow";
    const noChangeMessage = waiting.length > 0 ? restartMessage : "the configuration file says what is in force again";
    log.info({ by, ...configChangeLines }, changes.length > 0 ? "the configuration was changed" : noChangeMessage);
    const configChangedEvent = makeEvent({
      type: "configuration-changed",
      source: "/plenum",
      subject: "configuration",
      time: at,
      data: { by, changes, pending: waiting },
      facts: [at, ...configChangeLines.changes, "pending", ...configChangeLines.pending],
    });
    const eventCommitAttempt = retryUntilDone({
      clock,
      signal: stopController.signal,
      work: () => options.store.commit({ events: [configChangedEvent] }),
      onFault: (error) => log.warn({ err: error }, "a change of the configuration could not be recorded yet"),
    }).catch((error: unknown) => {
      log.error({ err: error }, "a change of the configuration was not recorded");
    });
    pendingEventCommits.add(eventCommitAttempt);
    void eventCommitAttempt.finally(() => pendingEventCommits.delete(eventCommitAttempt));
    await endsWithin(clock, RELOAD_EVENT_WAIT_MS, eventCommitAttempt);
  }

  const configFileWatch = watchFile({
    ...{ name: "configuration file", file, clock, log },
    onStable: async () => (await runOneReloadAtATime(() => reloadNow("file", false))).refused === null,
  });
  const reloaderStart = Promise.withResolvers<void>();
  const reloadService = startServiceOnce({
    name: "reload",
    async start(signal) {
      reloaderStart.resolve();
      if (options.isWatched) await configFileWatch.start(signal);
    },
    async stop(deadlineMs) {
      stopController.abort(new OrderlyStop());
      reloaderStart.resolve();
      await configFileWatch.stop(deadlineMs);
      // Wait until a running reload has finished, so that all parts have the same configuration.
      const lastReloadDone = runOneReloadAtATime(async () => undefined);
      await endsWithin(clock, deadlineMs, lastReloadDone);
      await endsWithin(clock, deadlineMs, Promise.all(pendingEventCommits));
    },
  });

  return {
    ...reloadService,
    /** Reloads the configuration file. Never throws: the report contains the problems. */
    async reload(by: ReloadCause, isDryRun: boolean): Promise<ReloadReport> {
      await reloaderStart.promise;
      return runOneReloadAtATime(() => reloadNow(by, isDryRun));
    },
    state: (): ConfigurationState => ({ file, last: lastReport, pending: pendingChanges, refused: fileProblems }),
    /** Returns the last accepted configuration, with the old values of options that wait for a restart. */
    configInForce: () => configInForce,
    notices(): readonly string[] {
      const changeCountText = pendingChanges.length === 1 ? "A change" : `${pendingChanges.length} changes`;
      const restartWaitText = `wait${pendingChanges.length === 1 ? "s" : ""} for a restart`;
      const optionPaths = pendingChanges.map(({ path }) => path).join(", ");
      return [
        ...(fileProblems === null ? [] : [invalidConfigNotice(file, fileProblems)]),
        ...workerPartFailures.map(
          (failure) => `A part of the new configuration is not in force, and a restart puts it there. ${failure}`,
        ),
        ...(pendingChanges.length === 0
          ? []
          : [`${changeCountText} of the configuration ${restartWaitText}: ${optionPaths}.`]),
      ];
    },
  };
}

export type ConfigReloader = ReturnType<typeof createReloader>;
