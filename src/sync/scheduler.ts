import { createHash } from "node:crypto";
import { type Clock, isoUtc } from "../clock.ts";
import { ConfigError, sentence } from "../errors.ts";
import { isStopping, type Service, Stopping, startedOnce } from "../lifecycle.ts";
import type { Log } from "../log.ts";
import type { Metrics } from "../metrics.ts";
import { abortable } from "./abortable.ts";
import type { Availability } from "./availability.ts";
import type { Job } from "./job.ts";
import type { Outage } from "./outage.ts";
import { createRunner, type Runner, type RunResult } from "./runner.ts";
import { matcher, type Ticker } from "./schedule.ts";
import type { HeldPoll } from "./snapshot.ts";

export interface SchedulerOptions {
  /** The configured source's name. */
  readonly source: string;
  /** In the order of their first runs. */
  readonly jobs: readonly Job[];
  readonly ticker: Ticker;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly random: () => number;
  /** The longest stable offset of a job after its tick, in milliseconds. */
  readonly spreadMs: number;
  readonly outage: Outage;
  readonly availability: Availability;
  /** Abilities of the token, as last told; null when not known. */
  readonly abilities: () => readonly string[] | null;
  /** Remembers how a job is doing. */
  readonly remember: (job: string, state: HeldPoll) => Promise<void>;
  readonly remembered: (job: string) => HeldPoll | undefined;
}

/** A job that is doing well says so on disk this often, in milliseconds. */
const REMEMBER_MS = 60_000;

/** Runs the jobs of one source at their times: never twice at once, never all together, at rest in an outage. */
export function createScheduler(options: SchedulerOptions): Service {
  const { source, clock, log, metrics, random, outage, availability } = options;
  const jobs = options.jobs.filter((job) => job.schedule !== false);
  const runners = jobs.map((job) => createRunner(job, { source, clock, metrics, random }));
  const end = new AbortController();
  const waits = new AbortController();
  const underWay = new Set<Promise<void>>();
  const runs = new Set<Promise<void>>();
  const pending = new Set<Job>(jobs.filter((job) => job.firstRun));
  /** Jobs that take ticks: those that had their first run, or need none. */
  const ticking = new Set<Job>(jobs.filter((job) => !job.firstRun));
  let postponed = Promise.withResolvers<void>();
  const waiting = new Map<Runner, AbortController>();
  let stops: readonly (() => void)[] = [];

  /** Something that runs beside the rest; a stop ends it quietly, anything else is our own mistake. */
  function beside(work: Promise<void>): void {
    const watched = work
      .catch((error: unknown) => {
        if (!isStopping(error)) log.error({ err: error }, "a job broke");
      })
      .finally(() => underWay.delete(watched));
    underWay.add(watched);
  }

  function run(runner: Runner): Promise<void> {
    const mine = runOnce(runner).finally(() => runs.delete(mine));
    runs.add(mine);
    return mine;
  }

  async function runOnce(runner: Runner): Promise<void> {
    if (waits.signal.aborted) return;
    if (outage.isOn()) {
      postpone(runner.job);
      return;
    }
    pending.delete(runner.job);
    ticking.add(runner.job);
    waiting.get(runner)?.abort(new Stopping());
    const result = await runner.run(end.signal);
    if (result === null) return;
    try {
      await take(runner, result);
    } catch (error) {
      end.signal.throwIfAborted();
      log.error({ job: runner.job.name, err: error }, "the state of a job could not be recorded");
    }
    const inMs = runner.retryInMs(result);
    if (inMs !== null && !outage.isOn()) beside(runLater(runner, inMs));
  }

  /** One pending run for each job: the next wait takes the place of the one before. */
  async function runLater(runner: Runner, inMs: number): Promise<void> {
    waiting.get(runner)?.abort(new Stopping());
    const wait = new AbortController();
    waiting.set(runner, wait);
    try {
      await clock.sleep(inMs, AbortSignal.any([wait.signal, waits.signal]));
    } finally {
      if (waiting.get(runner) === wait) waiting.delete(runner);
    }
    await run(runner);
  }

  async function take(runner: Runner, result: RunResult): Promise<void> {
    const { job } = runner;
    if (result.kind !== "failed") {
      outage.noteSuccess();
      await availability.featureUp(job.name);
      await remember(job, result.kind === "ok" ? (result.remark ?? null) : result.reason);
      return;
    }
    const { failure } = result;
    log.warn({ job: job.name, err: failure }, "a poll failed");
    const whole = await outage.judge(failure, runner.failures() > 1, end.signal);
    if (whole) postpone(job);
    else if (failure instanceof ConfigError) await availability.featureDown(job.name, explain(job, failure));
    await remember(job, explain(job, failure), false);
  }

  function explain(job: Job, failure: Error): string {
    const abilities = options.abilities();
    const lacks = job.ability !== undefined && abilities !== null && !abilities.includes(job.ability);
    const refused = failure instanceof ConfigError && failure.reason === "forbidden";
    return refused && lacks ? `${sentence(failure)} The token lacks ${job.ability}.` : sentence(failure);
  }

  async function remember(job: Job, problem: string | null, success = true): Promise<void> {
    const known = options.remembered(job.name);
    const at = isoUtc(clock.now());
    const fresh = known !== undefined && clock.now() - Date.parse(known.lastAttempt) < REMEMBER_MS;
    if (fresh && known.problem === problem) return;
    await options.remember(job.name, {
      lastSuccess: success ? at : (known?.lastSuccess ?? null),
      lastAttempt: at,
      problem,
    });
  }

  /** For as soon as the service is back, if no tick is sooner. */
  function postpone(job: Job): void {
    pending.add(job);
    postponed.resolve();
  }

  /** First runs, and after an outage what was missed: one after the other, in order, whatever comes of each. */
  async function catchUp(): Promise<void> {
    for (;;) {
      await outage.over(end.signal);
      const runner = runners.find((one) => pending.has(one.job));
      if (runner === undefined) {
        await abortable(postponed.promise, end.signal);
        postponed = Promise.withResolvers();
        continue;
      }
      pending.delete(runner.job);
      await run(runner);
    }
  }

  function onTick(runner: Runner, offsetMs: number): void {
    if (runner.isRunning()) {
      if (runner.job.goesOn !== true) metrics.polls.inc({ source, job: runner.job.name, outcome: "overlap" });
    } else if (ticking.has(runner.job) && !runner.isHeld()) beside(runLater(runner, offsetMs));
  }

  return startedOnce({
    name: `sync ${source}`,

    async start(signal) {
      signal.addEventListener("abort", () => end.abort(signal.reason), { once: true });
      beside(outage.watch(end.signal));
      beside(catchUp());
      stops = runners.map((runner) => {
        const expression = runner.job.schedule;
        if (expression === false) return () => undefined;
        const offsetMs = offsetOf(source, runner.job.name, expression, options.spreadMs, clock.now());
        return options.ticker.every(expression, () => onTick(runner, offsetMs));
      });
    },

    async stop(deadlineMs) {
      for (const stop of stops) stop();
      waits.abort(new Stopping());
      const timer = new AbortController();
      const deadline = clock.sleep(deadlineMs, timer.signal).catch(() => undefined);
      await Promise.race([Promise.allSettled(runs), deadline]);
      timer.abort(new Stopping());
      end.abort(new Stopping());
      await Promise.all(underWay);
    },
  });
}

/** The same for a job every time, at most a quarter of the time between two ticks. */
function offsetOf(source: string, job: string, expression: string, spreadMs: number, nowMs: number): number {
  const next = matcher(expression);
  const first = next(nowMs);
  const between = next(first) - first;
  const hash = createHash("sha256").update(`${source} ${job}`).digest().readUInt32BE(0) / 2 ** 32;
  return Math.floor(hash * Math.min(spreadMs, between / 4));
}
