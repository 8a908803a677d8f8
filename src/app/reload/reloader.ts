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
import { endsWithin, retryUntilDone, serialRunner } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Store } from "../../engine/store/store.ts";
import type { Config } from "../config/config.ts";
import { configInForceAfter, findConfigChanges } from "../config/config-changes.ts";
import { formatProblems } from "../config/config-problems.ts";
import { sharedTokens } from "../config/contradictory-options.ts";
import { watchFile } from "./config-file-watch.ts";

export interface ReconfigurablePart {
  readonly name: string;
  /** Prepares a configuration change without applying it; an error rejects the complete file. */
  prepare(next: Config): Promise<PreparedChange>;
}

export interface PreparedChange {
  takeOver(): Promise<void> | void;
  /** Frees the prepared resources if the change is not applied. */
  discard?(): Promise<void>;
}

export interface ConfigFile {
  readonly file: string;
  load(): Config;
  readonly isWatched: boolean;
}

/** Time for which a reload waits until its event is stored; storing is then retried in the background. */
const RECORD_WAIT_MS = 5_000;

export function createReloader(
  options: ConfigFile & {
    readonly config: Config;
    /** Parts of the worker, in the order in which they apply a change. */
    readonly parts: readonly ReconfigurablePart[];
    readonly store: Pick<Store, "commit">;
    readonly clock: Clock;
    readonly log: Log;
    readonly metrics: Pick<Metrics, "reloads" | "configRefused" | "configPending">;
  },
) {
  const { clock, file, log, metrics } = options;
  const runReloadInTurn = serialRunner();
  const stopController = new AbortController();
  let configInForce = options.config;
  let last: ReloadReport | null = null;
  let pending: readonly ConfigChange[] = [];
  let refused: readonly string[] | null = null;
  let failures: readonly string[] = [];
  const pendingRecords = new Set<Promise<unknown>>();

  async function prepareReload() {
    const loadedConfig = options.load();
    const nextConfig = configInForceAfter(configInForce, loadedConfig);
    // Check shared tokens again, because a running source keeps its token until a restart.
    const [sharedToken] = sharedTokens(nextConfig);
    if (sharedToken !== undefined) throw new ConfigError(`${sharedToken.path.join(".")}: ${sharedToken.message}`);
    const allChanges = findConfigChanges(configInForce, loadedConfig);
    const preparedParts: (PreparedChange & { readonly name: string })[] = [];
    const discard = () => Promise.all(preparedParts.map((part) => part.discard?.()));
    try {
      for (const part of options.parts) preparedParts.push({ name: part.name, ...(await part.prepare(nextConfig)) });
    } catch (error) {
      await discard();
      throw error;
    }
    const immediateChanges = allChanges.filter(({ effect }) => effect === "alone");
    const changesAfterRestart = allChanges.filter(({ effect }) => effect === "restart");
    return { next: nextConfig, ready: preparedParts, discard, changes: immediateChanges, waiting: changesAfterRestart };
  }

  async function reloadNow(by: ReloadCause, isDryRun: boolean): Promise<ReloadReport> {
    const report = { by, at: isoUtc(clock.now()), file, isDryRun, changes: [], refused: null, failures: [] };
    if (stopController.signal.aborted) return { ...report, pending, refused: ["The worker is stopping."] };
    let prepared: Awaited<ReturnType<typeof prepareReload>>;
    try {
      prepared = await prepareReload();
    } catch (error) {
      const rejectedReport = { ...report, pending, refused: formatProblems(error) };
      if (!isDryRun) recordRefusal(rejectedReport);
      return rejectedReport;
    }
    const { changes, waiting } = prepared;
    if (isDryRun) {
      await prepared.discard();
      return { ...report, changes, pending: waiting };
    }

    const failedParts: string[] = [];
    for (const part of prepared.ready) {
      try {
        await part.takeOver();
      } catch (error) {
        log.error({ part: part.name, err: error }, "a part could not take the new configuration over");
        failedParts.push(`${part.name}: ${maskCredentials(errorText(error))}`);
      }
    }
    const hasNewChanges = changes.length > 0 || !isDeepStrictEqual(waiting, pending);
    const finalReport = { ...report, changes, pending: waiting, failures: failedParts };
    if (refused !== null) log.info({ file }, "the configuration file is right again");
    refused = null;
    metrics.configRefused.set(0);
    configInForce = prepared.next;
    pending = waiting;
    failures = failedParts.length > 0 || changes.length > 0 ? failedParts : failures;
    metrics.configPending.set(pending.length);
    metrics.reloads.inc({ outcome: changes.length > 0 ? "changed" : "unchanged" });
    if (hasNewChanges || by !== "file") last = finalReport;
    if (hasNewChanges) await recordChange(finalReport);
    else if (by !== "file") log.info({ by }, "the configuration file says what is in force");
    return finalReport;
  }

  function recordRefusal(report: ReloadReport): void {
    metrics.reloads.inc({ outcome: "refused" });
    metrics.configRefused.set(1);
    if (!isDeepStrictEqual(refused, report.refused))
      log.warn({ file, problems: report.refused }, "the configuration file is wrong and changes nothing");
    refused = report.refused;
    last = report;
  }

  async function recordChange({ by, at, changes, pending: waiting }: ReloadReport): Promise<void> {
    const changeLines = { changes: changes.map(formatConfigChange), pending: waiting.map(formatConfigChange) };
    const restartMessage = "the configuration file was changed, and a restart has to follow";
    const unchangedMessage = waiting.length > 0 ? restartMessage : "the configuration file says what is in force again";
    log.info({ by, ...changeLines }, changes.length > 0 ? "the configuration was changed" : unchangedMessage);
    const event = makeEvent({
      type: "configuration-changed",
      source: "/plenum",
      subject: "configuration",
      time: at,
      data: { by, changes, pending: waiting },
      facts: [at, ...changeLines.changes, "pending", ...changeLines.pending],
    });
    const commitAttempt = retryUntilDone({
      clock,
      signal: stopController.signal,
      work: () => options.store.commit({ events: [event] }),
      fault: (error) => log.warn({ err: error }, "a change of the configuration could not be recorded yet"),
    }).catch((error: unknown) => {
      log.error({ err: error }, "a change of the configuration was not recorded");
    });
    pendingRecords.add(commitAttempt);
    void commitAttempt.finally(() => pendingRecords.delete(commitAttempt));
    await endsWithin(clock, RECORD_WAIT_MS, commitAttempt);
  }

  const fileWatch = watchFile({
    ...{ file, clock, log },
    onStable: async () => (await runReloadInTurn(() => reloadNow("file", false))).refused === null,
  });
  const startSignal = Promise.withResolvers<void>();
  const service = startServiceOnce({
    name: "reload",
    async start(signal) {
      startSignal.resolve();
      if (options.isWatched) await fileWatch.start(signal);
    },
    async stop(deadlineMs) {
      stopController.abort(new OrderlyStop());
      startSignal.resolve();
      await fileWatch.stop(deadlineMs);
      // Wait until a running reload has finished, so that all parts have the same configuration.
      const lastReload = runReloadInTurn(async () => undefined);
      await endsWithin(clock, deadlineMs, lastReload);
      await endsWithin(clock, deadlineMs, Promise.all(pendingRecords));
    },
  });

  return {
    ...service,
    /** Reloads the file. Never rejects, because the report contains the problems. */
    async reload(by: ReloadCause, isDryRun: boolean): Promise<ReloadReport> {
      await startSignal.promise;
      return runReloadInTurn(() => reloadNow(by, isDryRun));
    },
    state: (): ConfigurationState => ({ file, last, pending, refused }),
    /** Returns the last accepted configuration, with the old values of options that wait for a restart. */
    inForce: () => configInForce,
    notices(): readonly string[] {
      const changeCount = pending.length === 1 ? "A change" : `${pending.length} changes`;
      const waitText = `wait${pending.length === 1 ? "s" : ""} for a restart`;
      const paths = pending.map(({ path }) => path).join(", ");
      return [
        ...(refused === null ? [] : [invalidConfigNotice(file, refused)]),
        ...failures.map(
          (failure) => `A part of the new configuration is not in force, and a restart puts it there. ${failure}`,
        ),
        ...(pending.length === 0 ? [] : [`${changeCount} of the configuration ${waitText}: ${paths}.`]),
      ];
    },
  };
}

export type Reloader = ReturnType<typeof createReloader>;
