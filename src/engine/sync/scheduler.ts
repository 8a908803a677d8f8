import { createHash } from "node:crypto";
import { asFailure, ConfigError, errorText, type Failure, Throttled } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { isStopping, type Service, Stopping, startedOnce } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import { endsWithin, oneAtATime, rejectOnAbort, runLoop, sleepFor } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Availability } from "./availability.ts";
import type { Follower, Job } from "./job.ts";
import type { Outage } from "./outage.ts";
import { followerRetryMs, jobRetryMs, UNEXPLAINED_RETRY_MS, unexplainedRetryMs } from "./retry-times.ts";
import { cronIntervalMs, type ScheduleTicker } from "./schedule.ts";
import type { TokenScope } from "./scope.ts";
import type { StoredPoll } from "./snapshot.ts";

export interface SchedulerOptions {
  readonly source: string;
  readonly jobs: readonly Job[];
  readonly followers?: readonly Follower[];
  readonly ticker: ScheduleTicker;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly random: () => number;
  readonly spreadMs: number;
  readonly outage: Outage;
  readonly availability: Availability;
  readonly scope: Pick<TokenScope, "known" | "hasAbility" | "respondedAtMs" | "changes" | "watch">;
  readonly watchLostSites?: (signal: AbortSignal) => Promise<void>;
  readonly succeeded?: (job: string) => void;
  readonly storeState: (job: string, state: StoredPoll) => void;
  readonly storedState: (job: string) => StoredPoll | undefined;
}

export interface Scheduler extends Service {
  change(next: SchedulerChange): void;
}

export interface SchedulerChange extends Pick<SchedulerOptions, "jobs" | "spreadMs"> {
  readonly again: ReadonlySet<string>;
}

const STORE_STATE_INTERVAL_MS = 60_000;
const LISTS_OF_NEW_SITE: ReadonlySet<string> = new Set(["sites", "gateways", "systems", "tags", "hosts"]);

type NamedJob = Pick<Job, "name" | "ability">;

type JobState = ReturnType<typeof newJobState>;

function newJobState(job: Job) {
  return {
    ...{ job, isRunning: false, failuresInRow: 0, isRefused: false },
    /** The job takes no ticks before this monotonic time, because the service refused it or ordered a pause. */
    notBeforeMs: Number.NEGATIVE_INFINITY,
    isPending: job.firstRun,
    /** True once the job's first run has begun, or if the job has no first run. */
    takesTicks: !job.firstRun,
    wait: null as AbortController | null,
    stopTicks: (): void => undefined,
  };
}

/** Runs the jobs of one source at their times: no job twice at once, and no job during an outage. */
export function createScheduler(options: SchedulerOptions): Scheduler {
  const { source, clock, log, metrics, random, outage, availability, scope } = options;
  const isOn = (job: Job) => job.schedule !== false;
  let states: readonly JobState[] = options.jobs.filter(isOn).map(newJobState);
  let { spreadMs } = options;
  const end = new AbortController();
  const waits = new AbortController();
  const backgroundWork = new Set<Promise<void>>();
  const runs = new Set<Promise<void>>();
  const currentRuns = new Map<string, Promise<void>>();
  let postponed = Promise.withResolvers<void>();
  const storedAtMs = new Map<string, number>();

  function runInParallel(work: Promise<void>): void {
    const watched = work
      .catch((error: unknown) => {
        if (!isStopping(error)) log.error({ err: error }, "a job broke");
      })
      .finally(() => backgroundWork.delete(watched));
    backgroundWork.add(watched);
  }

  function run(state: JobState): Promise<void> {
    const { name } = state.job;
    const mine = runOnce(state).finally(() => {
      runs.delete(mine);
      if (currentRuns.get(name) === mine) currentRuns.delete(name);
    });
    runs.add(mine);
    if (!currentRuns.has(name)) currentRuns.set(name, mine);
    return mine;
  }

  async function runOnce(state: JobState): Promise<void> {
    if (waits.signal.aborted) return;
    if (outage.isOn()) {
      postpone(state);
      return;
    }
    state.isPending = false;
    state.takesTicks = true;
    state.wait?.abort(new Stopping());
    const { job } = state;
    const labels = { source, job: job.name };
    if (state.isRunning) {
      metrics.polls.inc({ ...labels, outcome: "overlap" });
      return;
    }
    state.isRunning = true;
    const result = await runJob(job).finally(() => (state.isRunning = false));
    const endedAtMs = clock.monotonic();
    const failure = result.kind === "failed" ? result.failure : null;
    state.failuresInRow = result.kind === "ok" ? 0 : state.failuresInRow + 1;
    state.isRefused = failure instanceof ConfigError;
    metrics.polls.inc({ ...labels, outcome: result.kind });
    if (failure === null) {
      metrics.pollSuccess.set(labels, clock.now() / 1000);
      options.succeeded?.(job.name);
    }
    let retryMs = result.kind === "ok" ? null : jobRetryMs(failure, state.failuresInRow, random);
    const isHeld = state.isRefused || failure instanceof Throttled;
    state.notBeforeMs = isHeld ? endedAtMs + (retryMs ?? 0) : Number.NEGATIVE_INFINITY;
    try {
      if (result.kind !== "failed")
        await recordSuccess(state.job, result.kind === "ok" ? (result.remark ?? null) : result.reason);
      else if (await recordFailure(state.job, result.failure, state.failuresInRow)) postpone(state);
    } catch (error) {
      end.signal.throwIfAborted();
      log.error({ job: job.name, err: error }, "the state of a job could not be recorded");
    }
    if (state.isRefused && state.failuresInRow === 1 && scope.respondedAtMs() < endedAtMs) {
      retryMs = UNEXPLAINED_RETRY_MS;
      state.notBeforeMs = clock.monotonic() + retryMs;
    }
    if (retryMs !== null && !outage.isOn()) runInParallel(runLater(state, retryMs));
  }

  async function runJob(job: Job) {
    try {
      return await job.run(end.signal);
    } catch (error) {
      end.signal.throwIfAborted();
      return { kind: "failed" as const, failure: asFailure(error) };
    }
  }

  async function runLater(state: JobState, inMs: number): Promise<void> {
    state.wait?.abort(new Stopping());
    const wait = new AbortController();
    state.wait = wait;
    const isTime = await sleepFor(clock, inMs, wait.signal, waits.signal);
    if (state.wait === wait) state.wait = null;
    if (isTime) await run(state);
  }

  /** Runs the job again after its current run, which may have begun before the change. */
  async function runNext(state: JobState): Promise<void> {
    await currentRuns.get(state.job.name);
    await run(state);
  }

  async function recordSuccess(work: NamedJob, remark: string | null): Promise<void> {
    outage.noteSuccess();
    await availability.featureUp(work.name);
    storeState(work, remark);
  }

  /** Returns true when the complete service is unavailable. */
  async function recordFailure(work: NamedJob, failure: Failure, failures: number): Promise<boolean> {
    log.warn({ job: work.name, err: failure }, "a poll failed");
    const isDown = await outage.judge(failure, { isRepeat: failures > 1, isMeJob: work.name === "token" }, end.signal);
    const problem = problemOf(work, failure);
    if (!isDown && failure instanceof ConfigError) await availability.featureDown(work.name, problem);
    storeState(work, problem, false);
    return isDown;
  }

  const lacksAbility = ({ ability }: NamedJob) => ability !== undefined && !scope.hasAbility(ability);

  function problemOf(work: NamedJob, failure: Failure): string {
    const isForbidden = failure instanceof ConfigError && failure.reason === "forbidden";
    return isForbidden && lacksAbility(work)
      ? `${errorText(failure)} The token lacks ${work.ability}.`
      : errorText(failure);
  }

  function storeState({ name }: NamedJob, problem: string | null, success = true): void {
    const before = options.storedState(name);
    const nowMs = clock.monotonic();
    const isRecent = nowMs - (storedAtMs.get(name) ?? Number.NEGATIVE_INFINITY) < STORE_STATE_INTERVAL_MS;
    if (isRecent && before?.problem === problem) return;
    const at = isoUtc(clock.now());
    options.storeState(name, { lastSuccess: success ? at : (before?.lastSuccess ?? null), lastAttempt: at, problem });
    storedAtMs.set(name, nowMs);
  }

  async function keepFollowing(follower: Follower): Promise<void> {
    let failures = 0;
    let refusals = 0;
    let wasAway = false;
    const labels = { source, job: follower.name };
    const inOrder = oneAtATime();
    const onWell = () => {
      failures = 0;
      refusals = 0;
      metrics.pollSuccess.set(labels, clock.now() / 1000);
      options.succeeded?.(follower.name);
      runInParallel(inOrder(() => recordSuccess(follower, null)));
    };
    await runLoop({
      clock,
      signal: waits.signal,
      wakeup: scope.changes,
      random,
      async turn() {
        const afterOutage = wasAway || outage.isOn();
        wasAway = false;
        await rejectOnAbort(outage.over(end.signal), waits.signal);
        const away = new AbortController();
        const onAway = rejectOnAbort(outage.begun(end.signal), away.signal).then(
          () => {
            wasAway = true;
            away.abort(new Stopping());
          },
          () => undefined,
        );
        const draining = AbortSignal.any([waits.signal, away.signal]);
        try {
          await follower.follow({ draining, forced: end.signal, afterOutage, well: onWell });
          return 0;
        } catch (error) {
          end.signal.throwIfAborted();
          const failure = asFailure(error);
          const isRefused = failure instanceof ConfigError;
          failures += 1;
          refusals = isRefused ? refusals + 1 : 0;
          metrics.polls.inc({ ...labels, outcome: "failed" });
          if (await inOrder(() => recordFailure(follower, failure, failures))) return 0;
          return isRefused && !lacksAbility(follower)
            ? unexplainedRetryMs(refusals)
            : followerRetryMs(failure, failures, random);
        } finally {
          away.abort(new Stopping());
          await onAway;
        }
      },
      fault: (error, inMs) => log.error({ job: follower.name, inMs, err: error }, "a job broke"),
    });
  }

  /** Watches the token's scope, except during an outage: then only the outage's probe sends requests. */
  async function watchScope(): Promise<void> {
    while (!end.signal.aborted) {
      await outage.over(end.signal);
      const away = new AbortController();
      const watching = scope.watch(AbortSignal.any([end.signal, away.signal]));
      try {
        await rejectOnAbort(outage.begun(end.signal), end.signal);
      } finally {
        away.abort(new Stopping());
        await watching;
      }
    }
  }

  async function followScope(): Promise<void> {
    let before = scope.known();
    await runLoop({
      clock,
      signal: waits.signal,
      wakeup: scope.changes,
      async turn() {
        const now = scope.known();
        const had = (now && before) ?? new Set<number>();
        const has = (before && now) ?? new Set<number>();
        const gained = !has.isSubsetOf(had);
        const lost = !had.isSubsetOf(has);
        before = now;
        for (const state of states) {
          const { name } = state.job;
          const isConcerned = gained ? LISTS_OF_NEW_SITE.has(name) : lost && name === "sites";
          if (isConcerned && state.takesTicks) postpone(state);
        }
        for (const state of states) if (state.isRefused) runInParallel(run(state));
        return Number.POSITIVE_INFINITY;
      },
      fault: (error) => log.error({ err: error }, "a change of the token's scope could not be followed"),
    });
  }

  /** Runs the job as soon as the service is available, unless a tick comes earlier. */
  function postpone(state: JobState): void {
    state.isPending = true;
    postponed.resolve();
  }

  async function runPending(): Promise<void> {
    for (;;) {
      await outage.over(end.signal);
      const state = states.find(({ isPending }) => isPending);
      if (state === undefined) {
        await rejectOnAbort(postponed.promise, end.signal);
        postponed = Promise.withResolvers();
        continue;
      }
      state.isPending = false;
      if (state.job.isLong === true) runInParallel(runNext(state));
      else await run(state);
    }
  }

  function startTicks(state: JobState): void {
    state.stopTicks();
    const { name, schedule } = state.job;
    if (schedule === false) return;
    const offsetMs = tickOffsetMs(`${source} ${name}`, Math.min(spreadMs, cronIntervalMs(schedule, clock.now()) / 4));
    state.stopTicks = options.ticker.every(schedule, () => {
      if (state.isRunning) metrics.polls.inc({ source, job: name, outcome: "overlap" });
      else if (state.takesTicks && clock.monotonic() >= state.notBeforeMs) runInParallel(runLater(state, offsetMs));
    });
  }

  function change({ jobs, spreadMs: nextSpreadMs, again }: SchedulerChange): void {
    if (waits.signal.aborted) return;
    const isSpreadSame = nextSpreadMs === spreadMs;
    spreadMs = nextSpreadMs;
    const before = new Map(states.map((state) => [state.job.name, state]));
    states = jobs.filter(isOn).map((job) => before.get(job.name) ?? newJobState(job));
    for (const state of before.values()) if (!states.includes(state)) switchOff(state);
    for (const job of jobs.filter(isOn)) {
      const state = states.find((each) => each.job.name === job.name);
      if (state === undefined) continue;
      const isNew = !before.has(job.name);
      const isSame = !isNew && state.job.schedule === job.schedule && isSpreadSame;
      state.job = job;
      if (!isSame) startTicks(state);
      if (isNew) postpone(state);
      else if (again.has(job.name)) runInParallel(runAgain(state));
    }
  }

  /** Runs the job again after its current run, which began with the old settings. */
  async function runAgain(state: JobState): Promise<void> {
    await currentRuns.get(state.job.name);
    postpone(state);
  }

  function switchOff(state: JobState): void {
    state.stopTicks();
    state.isPending = false;
    state.takesTicks = false;
    state.wait?.abort(new Stopping());
  }

  const service = startedOnce({
    name: `sync ${source}`,

    async start(signal) {
      signal.addEventListener("abort", () => end.abort(signal.reason), { once: true });
      runInParallel(outage.watch(end.signal));
      runInParallel(watchScope());
      runInParallel(followScope());
      if (options.watchLostSites !== undefined) runInParallel(options.watchLostSites(end.signal));
      runInParallel(runPending());
      for (const follower of options.followers ?? []) {
        const following = keepFollowing(follower).finally(() => runs.delete(following));
        runs.add(following);
        runInParallel(following);
      }
      for (const state of states) startTicks(state);
    },

    async stop(deadlineMs) {
      for (const state of states) state.stopTicks();
      waits.abort(new Stopping());
      await endsWithin(clock, deadlineMs, Promise.allSettled(runs));
      end.abort(new Stopping());
      await Promise.all(backgroundWork);
    },
  });
  return { ...service, change };
}

function tickOffsetMs(key: string, mostMs: number): number {
  const share = createHash("sha256").update(key).digest().readUInt32BE(0) / 2 ** 32;
  return Math.floor(share * mostMs);
}
