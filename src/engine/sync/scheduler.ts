import { createHash } from "node:crypto";
import { ConfigError, type Failure, meaningOf, sentence } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { isStopping, type Service, Stopping, startedOnce } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import { abortable, loop, oneAtATime, sleepFor, within } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Availability } from "./availability.ts";
import type { Follower } from "./follower.ts";
import type { Job } from "./job.ts";
import type { LostSites } from "./lost-sites.ts";
import type { Outage } from "./outage.ts";
import {
  createRunner,
  followedBackoffMs,
  type Runner,
  type RunResult,
  SECOND_LOOK_MS,
  unexplainedBackoffMs,
} from "./runner.ts";
import { matcher, type Ticker } from "./schedule.ts";
import type { TokenScope } from "./scope.ts";
import type { StoredPoll } from "./snapshot.ts";

export interface SchedulerOptions {
  /** The configured source's name. */
  readonly source: string;
  /** In the order of their first runs. */
  readonly jobs: readonly Job[];
  /** Continuous work. */
  readonly followers?: readonly Follower[];
  readonly ticker: Ticker;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly random: () => number;
  /** The longest stable offset of a job after its tick, in milliseconds. */
  readonly spreadMs: number;
  readonly outage: Outage;
  readonly availability: Availability;
  /** Scope of the token: a change retries rejected jobs at once. */
  readonly scope: Pick<TokenScope, "known" | "may" | "saidAtMs" | "changes" | "watch">;
  /** Tells which sites the token lost. */
  readonly lostSites?: LostSites;
  /** Called for each successful run of a job, and for each good reply to a follower. */
  readonly succeeded?: (job: string) => void;
  /** Remembers how a job is doing. */
  readonly remember: (job: string, state: StoredPoll) => void;
  readonly remembered: (job: string) => StoredPoll | undefined;
}

export interface Scheduler extends Service {
  /** Other jobs under the same names, from their next runs on. */
  change(next: SchedulerChange): void;
}

export interface SchedulerChange extends Pick<SchedulerOptions, "jobs" | "spreadMs"> {
  /** Jobs to run at once, because their request changed. A disabled job runs, too. */
  readonly again: ReadonlySet<string>;
}

/** A job that is doing well says so on disk this often, in milliseconds. */
const REMEMBER_MS = 60_000;
/** The lists that tell of a site that the token did not see before, in the order of their first runs. */
const OF_A_NEW_SITE: ReadonlySet<string> = new Set(["sites", "gateways", "systems", "tags", "hosts"]);

/** A job or a follower, as far as its state is concerned. */
type Named = Pick<Job, "name" | "ability">;

/** Runs the jobs of one source at their times: never twice at once, never all together, at rest in an outage. */
export function createScheduler(options: SchedulerOptions): Scheduler {
  const { source, clock, log, metrics, random, outage, availability } = options;
  const isOn = (job: Job) => job.schedule !== false;
  const runnerOf = (job: Job) => createRunner(job, { source, clock, metrics, random, succeeded: options.succeeded });
  const first = options.jobs.filter(isOn);
  let runners: readonly Runner[] = first.map(runnerOf);
  let { spreadMs } = options;
  const end = new AbortController();
  const waits = new AbortController();
  const underWay = new Set<Promise<void>>();
  const runs = new Set<Promise<void>>();
  const runningNow = new Map<string, Promise<void>>();
  const namesOf = (jobs: readonly Job[]) => new Set(jobs.map(({ name }) => name));
  const pending = namesOf(first.filter((job) => job.firstRun));
  /** Jobs that take ticks: those that had their first run, or need none. */
  const ticking = namesOf(first.filter((job) => !job.firstRun));
  let postponed = Promise.withResolvers<void>();
  const waiting = new Map<Runner, AbortController>();
  /** When each job said last on disk how it is doing, by measured time. */
  const rememberedMs = new Map<string, number>();
  /** Ends the ticks of a job, by its name. */
  const stops = new Map<string, () => void>();

  /** Runs work in parallel; a stop ends it quietly, any other end is a fault. */
  function beside(work: Promise<void>): void {
    const watched = work
      .catch((error: unknown) => {
        if (!isStopping(error)) log.error({ err: error }, "a job broke");
      })
      .finally(() => underWay.delete(watched));
    underWay.add(watched);
  }

  function run(runner: Runner): Promise<void> {
    const mine = runOnce(runner).finally(() => {
      runs.delete(mine);
      if (runningNow.get(runner.name) === mine) runningNow.delete(runner.name);
    });
    runs.add(mine);
    // A second one finds the first running and ends at once.
    if (!runningNow.has(runner.name)) runningNow.set(runner.name, mine);
    return mine;
  }

  async function runOnce(runner: Runner): Promise<void> {
    if (waits.signal.aborted) return;
    if (outage.isOn()) {
      postpone(runner.name);
      return;
    }
    pending.delete(runner.name);
    ticking.add(runner.name);
    waiting.get(runner)?.abort(new Stopping());
    const result = await runner.run(end.signal);
    if (result === null) return;
    const refusedAtMs = clock.monotonic();
    try {
      await take(runner, result);
    } catch (error) {
      end.signal.throwIfAborted();
      log.error({ job: runner.name, err: error }, "the state of a job could not be recorded");
    }
    let inMs = runner.retryInMs(result);
    if (runner.isRefused() && runner.failures() === 1 && isUnexplained(refusedAtMs)) {
      inMs = SECOND_LOOK_MS;
      runner.holdFor(inMs);
    }
    if (inMs !== null && !outage.isOn()) beside(runLater(runner, inMs));
  }

  /** Whether the service has not said since then what the token may. */
  const isUnexplained = (refusedAtMs: number) => options.scope.saidAtMs() < refusedAtMs;

  /** One pending run for each job: the next wait takes the place of the one before. */
  async function runLater(runner: Runner, inMs: number): Promise<void> {
    waiting.get(runner)?.abort(new Stopping());
    const wait = new AbortController();
    waiting.set(runner, wait);
    const isTime = await sleepFor(clock, inMs, wait.signal, waits.signal);
    if (waiting.get(runner) === wait) waiting.delete(runner);
    if (isTime) await run(runner);
  }

  async function take(runner: Runner, result: RunResult): Promise<void> {
    const job = runner.job();
    if (result.kind !== "failed") {
      await well(job, result.kind === "ok" ? (result.remark ?? null) : result.reason);
      return;
    }
    if (await failed(job, result.failure, runner.failures())) postpone(job.name);
  }

  async function well(work: Named, remark: string | null): Promise<void> {
    outage.noteSuccess();
    await availability.featureUp(work.name);
    remember(work, remark);
  }

  /** True when the complete service is unavailable. */
  async function failed(work: Named, failure: Failure, failures: number): Promise<boolean> {
    log.warn({ job: work.name, err: failure }, "a poll failed");
    const whole = await outage.judge(failure, { repeated: failures > 1, isAboutMe: work.name === "token" }, end.signal);
    if (!whole && failure instanceof ConfigError) await availability.featureDown(work.name, explain(work, failure));
    remember(work, explain(work, failure), false);
    return whole;
  }

  /** Keeps one follower at work; it rests while the service is away, and after a failure as long as that means. */
  async function keepFollowing(follower: Follower): Promise<void> {
    let failures = 0;
    /** Consecutive rejections among the failures: an earlier outage proves nothing about a rejection. */
    let refusals = 0;
    let wasAway = false;
    const labels = { source, job: follower.name };
    const noted = oneAtATime();
    await loop({
      clock,
      signal: waits.signal,
      bell: options.scope.changes,
      random,
      async turn() {
        const afterOutage = wasAway || outage.isOn();
        wasAway = false;
        await abortable(outage.over(end.signal), waits.signal);
        const away = new AbortController();
        const onAway = abortable(outage.begun(end.signal), away.signal).then(
          () => {
            wasAway = true;
            away.abort(new Stopping());
          },
          () => undefined,
        );
        const draining = AbortSignal.any([waits.signal, away.signal]);
        const onWell = () => {
          failures = 0;
          refusals = 0;
          metrics.pollSuccess.set(labels, clock.now() / 1000);
          options.succeeded?.(follower.name);
          beside(noted(() => well(follower, null)));
        };
        try {
          await follower.follow({ draining, forced: end.signal, afterOutage, well: onWell });
          return 0;
        } catch (error) {
          end.signal.throwIfAborted();
          const failure = meaningOf(error);
          failures += 1;
          refusals = failure instanceof ConfigError ? refusals + 1 : 0;
          metrics.polls.inc({ ...labels, outcome: "failed" });
          if (await noted(() => failed(follower, failure, failures))) return 0;
          const lacks = follower.ability !== undefined && !options.scope.may(follower.ability);
          const mayPass = failure instanceof ConfigError && !lacks;
          return mayPass ? unexplainedBackoffMs(refusals) : followedBackoffMs(failure, failures, random);
        } finally {
          away.abort(new Stopping());
          await onAway;
        }
      },
      fault: (error, inMs) => log.error({ job: follower.name, inMs, err: error }, "a job broke"),
    });
  }

  /** While the service is away, its own probe is the only one that asks it anything. */
  async function watchScope(): Promise<void> {
    while (!end.signal.aborted) {
      await outage.over(end.signal);
      const away = new AbortController();
      const watching = options.scope.watch(AbortSignal.any([end.signal, away.signal]));
      try {
        await abortable(outage.begun(end.signal), end.signal);
      } finally {
        away.abort(new Stopping());
        await watching;
      }
    }
  }

  /** Retries rejected jobs when the scope changes; lists a new site at once. */
  async function followScope(): Promise<void> {
    let before = options.scope.known();
    await loop({
      clock,
      signal: waits.signal,
      bell: options.scope.changes,
      async turn() {
        const now = options.scope.known();
        const isChanged = before !== null && now !== null;
        const gained = isChanged && [...now].some((siteId) => !before?.has(siteId));
        const lost = isChanged && [...(before ?? [])].some((siteId) => !now.has(siteId));
        before = now;
        for (const { name } of runners) {
          const concerned = gained ? OF_A_NEW_SITE.has(name) : lost && name === "sites";
          if (concerned && ticking.has(name)) postpone(name);
        }
        for (const runner of runners) if (runner.isRefused()) beside(run(runner));
        return Number.POSITIVE_INFINITY;
      },
      fault: (error) => log.error({ err: error }, "a change of the token's scope could not be followed"),
    });
  }

  function explain(work: Named, failure: Error): string {
    const lacks = work.ability !== undefined && !options.scope.may(work.ability);
    const refused = failure instanceof ConfigError && failure.reason === "forbidden";
    return refused && lacks ? `${sentence(failure)} The token lacks ${work.ability}.` : sentence(failure);
  }

  function remember(job: Named, problem: string | null, success = true): void {
    const known = options.remembered(job.name);
    const at = isoUtc(clock.now());
    const saidMs = rememberedMs.get(job.name) ?? Number.NEGATIVE_INFINITY;
    if (clock.monotonic() - saidMs < REMEMBER_MS && known?.problem === problem) return;
    options.remember(job.name, {
      lastSuccess: success ? at : (known?.lastSuccess ?? null),
      lastAttempt: at,
      problem,
    });
    rememberedMs.set(job.name, clock.monotonic());
  }

  /** For as soon as the service is back, if no tick is sooner. */
  function postpone(name: string): void {
    pending.add(name);
    postponed.resolve();
  }

  /**
   * First runs, and after an outage what was missed: in order, whatever comes of each; one after the other, but for long
   * ones, which the next ones do not wait for.
   */
  async function catchUp(): Promise<void> {
    for (;;) {
      await outage.over(end.signal);
      const runner = runners.find((one) => pending.has(one.name));
      if (runner === undefined) {
        await abortable(postponed.promise, end.signal);
        postponed = Promise.withResolvers();
        continue;
      }
      pending.delete(runner.name);
      if (runner.job().isLong === true) beside(runNext(runner));
      else await run(runner);
    }
  }

  /** A run that begins after the one that is under way: that one may have begun before there was something new. */
  async function runNext(runner: Runner): Promise<void> {
    await runningNow.get(runner.name);
    await run(runner);
  }

  function onTick(runner: Runner, offsetMs: number): void {
    if (runner.isRunning()) {
      metrics.polls.inc({ source, job: runner.name, outcome: "overlap" });
    } else if (ticking.has(runner.name) && !runner.isHeld()) beside(runLater(runner, offsetMs));
  }

  function tick(runner: Runner): void {
    stops.get(runner.name)?.();
    const expression = runner.job().schedule;
    if (expression === false) return;
    const offsetMs = offsetOf(source, runner.name, expression, spreadMs, clock.now());
    stops.set(
      runner.name,
      options.ticker.every(expression, () => onTick(runner, offsetMs)),
    );
  }

  /** Applies new jobs; running ones finish unchanged. */
  function change({ jobs, spreadMs: nextSpreadMs, again }: SchedulerChange): void {
    if (waits.signal.aborted) return;
    const isSpread = nextSpreadMs !== spreadMs;
    spreadMs = nextSpreadMs;
    const before = new Map(runners.map((runner) => [runner.name, runner]));
    runners = jobs.filter(isOn).map((job) => before.get(job.name) ?? runnerOf(job));
    const names = namesOf(jobs.filter(isOn));
    for (const runner of before.values()) if (!names.has(runner.name)) switchOff(runner);
    for (const job of jobs.filter(isOn)) {
      const known = before.get(job.name);
      const runner = known ?? runners.find(({ name }) => name === job.name);
      if (runner === undefined) continue;
      const isSame = known?.job().schedule === job.schedule && !isSpread;
      runner.become(job);
      if (!isSame) tick(runner);
      // As at a start.
      if (known === undefined) postpone(job.name);
      else if (again.has(job.name)) beside(askAgain(runner));
    }
  }

  /** With what is new: a run that is under way was begun with what was. */
  async function askAgain(runner: Runner): Promise<void> {
    await runningNow.get(runner.name);
    postpone(runner.name);
  }

  function switchOff(runner: Runner): void {
    stops.get(runner.name)?.();
    stops.delete(runner.name);
    pending.delete(runner.name);
    ticking.delete(runner.name);
    waiting.get(runner)?.abort(new Stopping());
  }

  const service = startedOnce({
    name: `sync ${source}`,

    async start(signal) {
      signal.addEventListener("abort", () => end.abort(signal.reason), { once: true });
      beside(outage.watch(end.signal));
      beside(watchScope());
      beside(followScope());
      if (options.lostSites !== undefined) beside(options.lostSites.watch(end.signal));
      beside(catchUp());
      for (const follower of options.followers ?? []) {
        const following = keepFollowing(follower).finally(() => runs.delete(following));
        runs.add(following);
        beside(following);
      }
      for (const runner of runners) tick(runner);
    },

    async stop(deadlineMs) {
      for (const stop of stops.values()) stop();
      waits.abort(new Stopping());
      await within(clock, deadlineMs, Promise.allSettled(runs));
      end.abort(new Stopping());
      await Promise.all(underWay);
    },
  });
  return { ...service, change };
}

/** The same for a job every time, at most a quarter of the time between two ticks. */
function offsetOf(source: string, job: string, expression: string, spreadMs: number, nowMs: number): number {
  const next = matcher(expression);
  const first = next(nowMs);
  const between = next(first) - first;
  const hash = createHash("sha256").update(`${source} ${job}`).digest().readUInt32BE(0) / 2 ** 32;
  return Math.floor(hash * Math.min(spreadMs, between / 4));
}
