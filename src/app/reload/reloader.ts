import { isDeepStrictEqual } from "node:util";
import { ConfigError, errorText } from "../../core/errors/errors.ts";
import { makeEvent } from "../../core/model/event.ts";
import {
  type ConfigChange,
  type ConfigurationState,
  changeLine,
  type ReloadCause,
  type ReloadReport,
  refusedNotice,
} from "../../core/model/reload-facts.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { Stopping, startedOnce } from "../../core/runtime/lifecycle.ts";
import { type Log, withoutCredentials } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import { endsWithin, oneAtATime, retryUntilDone } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Store } from "../../engine/store/store.ts";
import { changesBetween, configInForceAfter } from "../config/changes.ts";
import type { Config } from "../config/config.ts";
import { sharedTokens } from "../config/contradictions.ts";
import { formatProblems } from "../config/problems.ts";
import { watchFile } from "./file-watch.ts";

/** Part of the worker that can apply a changed configuration. */
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
  /** Loads the file. Throws an error with the problems of the file. */
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
  const oneReload = oneAtATime();
  const stopping = new AbortController();
  let inForce = options.config;
  let last: ReloadReport | null = null;
  let pending: readonly ConfigChange[] = [];
  let refused: readonly string[] | null = null;
  let failures: readonly string[] = [];
  const recording = new Set<Promise<unknown>>();

  async function prepareReload() {
    const wanted = options.load();
    const next = configInForceAfter(inForce, wanted);
    // Check shared tokens again, because a running source keeps its token until a restart.
    const [shared] = sharedTokens(next);
    if (shared !== undefined) throw new ConfigError(`${shared.path.join(".")}: ${shared.message}`);
    const all = changesBetween(inForce, wanted);
    const ready: (PreparedChange & { readonly name: string })[] = [];
    const discard = () => Promise.all(ready.map((part) => part.discard?.()));
    try {
      for (const part of options.parts) ready.push({ name: part.name, ...(await part.prepare(next)) });
    } catch (error) {
      await discard();
      throw error;
    }
    const changes = all.filter(({ effect }) => effect === "alone");
    const waiting = all.filter(({ effect }) => effect === "restart");
    return { next, ready, discard, changes, waiting };
  }

  async function reload(by: ReloadCause, isDryRun: boolean): Promise<ReloadReport> {
    const report = { by, at: isoUtc(clock.now()), file, isDryRun, changes: [], refused: null, failures: [] };
    if (stopping.signal.aborted) return { ...report, pending, refused: ["The worker is stopping."] };
    let prepared: Awaited<ReturnType<typeof prepareReload>>;
    try {
      prepared = await prepareReload();
    } catch (error) {
      const rejected = { ...report, pending, refused: formatProblems(error) };
      if (!isDryRun) noteRefusal(rejected);
      return rejected;
    }
    const { changes, waiting } = prepared;
    if (isDryRun) {
      await prepared.discard();
      return { ...report, changes, pending: waiting };
    }

    const failed: string[] = [];
    for (const part of prepared.ready) {
      try {
        await part.takeOver();
      } catch (error) {
        log.error({ part: part.name, err: error }, "a part could not take the new configuration over");
        failed.push(`${part.name}: ${withoutCredentials(errorText(error))}`);
      }
    }
    const isNew = changes.length > 0 || !isDeepStrictEqual(waiting, pending);
    const done = { ...report, changes, pending: waiting, failures: failed };
    if (refused !== null) log.info({ file }, "the configuration file is right again");
    refused = null;
    metrics.configRefused.set(0);
    inForce = prepared.next;
    pending = waiting;
    failures = failed.length > 0 || changes.length > 0 ? failed : failures;
    metrics.configPending.set(pending.length);
    metrics.reloads.inc({ outcome: changes.length > 0 ? "changed" : "unchanged" });
    if (isNew || by !== "file") last = done;
    if (isNew) await record(done);
    else if (by !== "file") log.info({ by }, "the configuration file says what is in force");
    return done;
  }

  function noteRefusal(report: ReloadReport): void {
    metrics.reloads.inc({ outcome: "refused" });
    metrics.configRefused.set(1);
    if (!isDeepStrictEqual(refused, report.refused))
      log.warn({ file, problems: report.refused }, "the configuration file is wrong and changes nothing");
    refused = report.refused;
    last = report;
  }

  async function record({ by, at, changes, pending: waiting }: ReloadReport): Promise<void> {
    const lines = { changes: changes.map(changeLine), pending: waiting.map(changeLine) };
    const restart = "the configuration file was changed, and a restart has to follow";
    const unchanged = waiting.length > 0 ? restart : "the configuration file says what is in force again";
    log.info({ by, ...lines }, changes.length > 0 ? "the configuration was changed" : unchanged);
    const event = makeEvent({
      type: "configuration-changed",
      source: "/plenum",
      subject: "configuration",
      time: at,
      data: { by, changes, pending: waiting },
      facts: [at, ...lines.changes, "pending", ...lines.pending],
    });
    const recorded = retryUntilDone({
      clock,
      signal: stopping.signal,
      work: () => options.store.commit({ events: [event] }),
      fault: (error) => log.warn({ err: error }, "a change of the configuration could not be recorded yet"),
    }).catch((error: unknown) => {
      log.error({ err: error }, "a change of the configuration was not recorded");
    });
    recording.add(recorded);
    void recorded.finally(() => recording.delete(recorded));
    await endsWithin(clock, RECORD_WAIT_MS, recorded);
  }

  const watch = watchFile({
    ...{ file, clock, log },
    onStable: async () => (await oneReload(() => reload("file", false))).refused === null,
  });
  const started = Promise.withResolvers<void>();
  const service = startedOnce({
    name: "reload",
    async start(signal) {
      started.resolve();
      if (options.isWatched) await watch.start(signal);
    },
    async stop(deadlineMs) {
      stopping.abort(new Stopping());
      started.resolve();
      await watch.stop(deadlineMs);
      // Wait until a running reload has finished, so that all parts have the same configuration.
      const finished = oneReload(async () => undefined);
      await endsWithin(clock, deadlineMs, finished);
      await endsWithin(clock, deadlineMs, Promise.all(recording));
    },
  });

  return {
    ...service,
    /** Reloads the file. Never rejects, because the report contains the problems. */
    async reload(by: ReloadCause, isDryRun: boolean): Promise<ReloadReport> {
      await started.promise;
      return oneReload(() => reload(by, isDryRun));
    },
    state: (): ConfigurationState => ({ file, last, pending, refused }),
    /** Returns the last accepted configuration, with the old values of options that wait for a restart. */
    inForce: () => inForce,
    notices(): readonly string[] {
      const count = pending.length === 1 ? "A change" : `${pending.length} changes`;
      const waits = `wait${pending.length === 1 ? "s" : ""} for a restart`;
      const paths = pending.map(({ path }) => path).join(", ");
      return [
        ...(refused === null ? [] : [refusedNotice(file, refused)]),
        ...failures.map(
          (failure) => `A part of the new configuration is not in force, and a restart puts it there. ${failure}`,
        ),
        ...(pending.length === 0 ? [] : [`${count} of the configuration ${waits}: ${paths}.`]),
      ];
    },
  };
}

export type Reloader = ReturnType<typeof createReloader>;
