import { isDeepStrictEqual } from "node:util";
import { ConfigError, sentence } from "../../core/errors/errors.ts";
import { makeEvent } from "../../core/model/event.ts";
import {
  type ConfigChange,
  type ConfigurationState,
  changeLine,
  type ReloadedBy,
  type ReloadReport,
  refusedNotice,
} from "../../core/model/reload-facts.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { type Service, Stopping, startedOnce } from "../../core/runtime/lifecycle.ts";
import { type Log, withoutCredentials } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import { oneAtATime, persist, within } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Store } from "../../engine/store/store.ts";
import { changesBetween, inForceAfter } from "../config/changes.ts";
import type { Config } from "../config/config.ts";
import { sharedTokens } from "../config/contradictions.ts";
import { ConfigurationError, problemLine } from "../config/problems.ts";
import { watchFile } from "./file-watch.ts";

/**
 * A part of the worker that can apply a changed configuration. Only these parts read a configuration after the start.
 */
export interface Reconfigurable {
  /** For the log. */
  readonly name: string;
  /**
   * Gets ready and changes nothing yet: what it throws makes the whole file count as wrong. What it answers must not
   * fail for a reason that could have been known.
   */
  prepare(next: Config): Promise<Prepared>;
}

export interface Prepared {
  /** The configuration is in force when it resolves. */
  takeOver(): Promise<void> | void;
  /** Instead: frees what was made ready. */
  discard?(): Promise<void>;
}

export interface Reloader extends Service {
  /** Runs one reload at a time. Never rejects: problems are in the report. */
  reload(by: ReloadedBy, isDryRun: boolean): Promise<ReloadReport>;
  state(): ConfigurationState;
  /** The configuration that was accepted last, with what waits for a restart as it was. */
  inForce(): Config;
  /** For a person; empty while the file is what is in force. */
  notices(): readonly string[];
}

export interface ReloaderOptions {
  readonly file: string;
  /** Reads the file now; throws what is wrong with it. */
  readonly load: () => Config;
  /** Configuration at the start. */
  readonly config: Config;
  /** In the order in which they take over: what closes or receives before what opens or sends. */
  readonly parts: readonly Reconfigurable[];
  readonly store: Pick<Store, "commit">;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Pick<Metrics, "reloads" | "configRefused" | "configPending">;
  /** Whether the file is watched; otherwise only who asks has it read again. */
  readonly isWatched: boolean;
}

/** How long a reload waits until it is recorded, in milliseconds; it goes on trying behind that. */
const RECORDED_WITHIN_MS = 5_000;

export function createReloader(options: ReloaderOptions): Reloader {
  const { clock, file, log, metrics } = options;
  const alone = oneAtATime();
  const stopping = new AbortController();
  let inForce = options.config;
  let last: ReloadReport | null = null;
  let pending: readonly ConfigChange[] = [];
  let refused: readonly string[] | null = null;
  let failures: readonly string[] = [];
  const recording = new Set<Promise<unknown>>();

  /** Computes what the file would change, without changing anything. */
  async function plan() {
    const wanted = options.load();
    const next = inForceAfter(inForce, wanted);
    // The file itself names no token twice; but a source keeps the token that it was started with.
    const [lent] = sharedTokens(next);
    if (lent !== undefined) throw new ConfigError(`${lent.path.join(".")}: ${lent.message}`);
    const all = changesBetween(inForce, wanted);
    const ready: { readonly part: Reconfigurable; readonly prepared: Prepared }[] = [];
    const discard = () => Promise.all(ready.map(({ prepared }) => prepared.discard?.()));
    try {
      for (const part of options.parts) ready.push({ part, prepared: await part.prepare(next) });
    } catch (error) {
      await discard();
      throw error;
    }
    return { next, ready, discard, all };
  }

  async function reload(by: ReloadedBy, isDryRun: boolean): Promise<ReloadReport> {
    const report = { by, at: isoUtc(clock.now()), file, isDryRun, changes: [], refused: null, failures: [] };
    let planned: Awaited<ReturnType<typeof plan>>;
    if (stopping.signal.aborted) return { ...report, pending, refused: ["The worker is stopping."] };
    try {
      planned = await plan();
    } catch (error) {
      const wrong = { ...report, pending, refused: linesOf(error) };
      if (!isDryRun) noteRefusal(wrong);
      return wrong;
    }
    const changes = planned.all.filter(({ effect }) => effect === "alone");
    const waiting = planned.all.filter(({ effect }) => effect === "restart");
    if (isDryRun) {
      await planned.discard();
      return { ...report, changes, pending: waiting };
    }

    const failed: string[] = [];
    for (const { part, prepared } of planned.ready) {
      try {
        await prepared.takeOver();
      } catch (error) {
        log.error({ part: part.name, err: error }, "a part could not take the new configuration over");
        failed.push(`${part.name}: ${withoutCredentials(sentence(error))}`);
      }
    }
    const isNews = changes.length > 0 || !isDeepStrictEqual(waiting, pending);
    const done = { ...report, changes, pending: waiting, failures: failed };
    noteRight();
    inForce = planned.next;
    pending = waiting;
    failures = failed.length > 0 || changes.length > 0 ? failed : failures;
    metrics.configPending.set(pending.length);
    metrics.reloads.inc({ outcome: changes.length > 0 ? "changed" : "unchanged" });
    if (isNews || by !== "file") last = done;
    if (isNews) await tell(done);
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

  function noteRight(): void {
    if (refused !== null) log.info({ file }, "the configuration file is right again");
    refused = null;
    metrics.configRefused.set(0);
  }

  async function tell({ by, at, changes, pending: waiting }: ReloadReport): Promise<void> {
    const lines = { changes: changes.map(changeLine), pending: waiting.map(changeLine) };
    log.info({ by, ...lines }, newsOf(lines));
    const event = makeEvent({
      type: "configuration-changed",
      source: "/plenum",
      subject: "configuration",
      time: at,
      data: { by, changes, pending: waiting },
      facts: [at, ...changes.map(changeLine), "pending", ...waiting.map(changeLine)],
    });
    const recorded = persist({
      clock,
      signal: stopping.signal,
      work: () => options.store.commit({ events: [event] }),
      fault: (error) => log.warn({ err: error }, "a change of the configuration could not be recorded yet"),
    }).catch((error: unknown) => {
      log.error({ err: error }, "a change of the configuration was not recorded");
    });
    recording.add(recorded);
    void recorded.finally(() => recording.delete(recorded));
    await within(clock, RECORDED_WITHIN_MS, recorded);
  }

  const watch = watchFile({
    file,
    clock,
    log,
    onQuiet: async () => (await alone(() => reload("file", false))).refused === null,
  });
  /** Resolves when the first reload may start. */
  const begun = Promise.withResolvers<void>();
  const service = startedOnce({
    name: "reload",
    async start(signal) {
      begun.resolve();
      if (options.isWatched) await watch.start(signal);
    },
    async stop(deadlineMs) {
      stopping.abort(new Stopping());
      begun.resolve();
      await watch.stop(deadlineMs);
      // One that has begun is finished: half of a configuration is none.
      await within(
        clock,
        deadlineMs,
        alone(async () => undefined),
      );
      await within(clock, deadlineMs, Promise.all(recording));
    },
  });

  return {
    ...service,
    async reload(by, isDryRun) {
      await begun.promise;
      return alone(() => reload(by, isDryRun));
    },
    state: () => ({ file, last, pending, refused }),
    inForce: () => inForce,
    notices: () => [
      ...(refused === null ? [] : [refusedNotice(file, refused)]),
      ...failures.map(
        (failure) => `A part of the new configuration is not in force, and a restart puts it there. ${failure}`,
      ),
      ...(pending.length === 0
        ? []
        : [
            `${pending.length === 1 ? "A change" : `${pending.length} changes`} of the configuration wait${pending.length === 1 ? "s" : ""} for a restart: ${pending.map(({ path }) => path).join(", ")}.`,
          ]),
    ],
  };
}

/** The same sentences as `plenum check` says. */
function linesOf(error: unknown): readonly string[] {
  const lines = error instanceof ConfigurationError ? error.problems.map(problemLine) : [sentence(error)];
  return lines.map(withoutCredentials);
}

function newsOf({
  changes,
  pending,
}: {
  readonly changes: readonly string[];
  readonly pending: readonly string[];
}): string {
  if (changes.length > 0) return "the configuration was changed";
  return pending.length > 0
    ? "the configuration file was changed, and a restart has to follow"
    : "the configuration file says what is in force again";
}
