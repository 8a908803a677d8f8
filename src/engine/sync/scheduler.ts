import { createHash } from "node:crypto";
import { asFailure, ConfigError, errorText, type Failure, Throttled } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { isOrderlyStop, OrderlyStop, startServiceOnce, type WorkerService } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import { endsWithin, rejectOnAbort, runLoop, serialRunner, sleepFor } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Availability } from "./availability.ts";
import { cronIntervalMs, type ScheduleTicker } from "./cron-schedule.ts";
import type { Follower, Job } from "./job.ts";
import type { Outage } from "./outage.ts";
import { followerRetryMs, jobRetryMs, UNEXPLAINED_RETRY_MS, unexplainedRetryMs } from "./retry-times.ts";
import type { StoredPoll } from "./snapshot.ts";
import type { TokenScope } from "./token-scope.ts";

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

export interface Scheduler extends WorkerService {
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
    takesTicks: !job.firstRun,
    wait: null as AbortController | null,
    stopTicks: (): void => undefined,
  };
}

/** Runs the jobs of one source at their times: no job twice at once, and no job during an outage. */
export function createScheduler(options: SchedulerOptions): Scheduler {
  const { source, clock, log, metrics, random, outage, availability, scope } = options;
  const isScheduled = (job: Job) => job.schedule !== false;
  let states: readonly JobState[] = options.jobs.filter(isScheduled).map(newJobState);
  let { spreadMs } = options;
  const aborter = new AbortController();
  const drainController = new AbortController();
  const backgroundWork = new Set<Promise<void>>();
  const allRuns = new Set<Promise<void>>();
  const currentRuns = new Map<string, Promise<void>>();
  let jobPostponed = Promise.withResolvers<void>();
  const stateStoredAtMs = new Map<string, number>();

  function runInParallel(work: Promise<void>): void {
    const watchedWork = work
      .catch((error: unknown) => {
        if (!isOrderlyStop(error)) log.error({ err: error }, "a job broke");
      })
      .finally(() => backgroundWork.delete(watchedWork));
    backgroundWork.add(watchedWork);
  }

  function startRun(state: JobState): Promise<void> {
    const { name } = state.job;
    const currentRun = runOnce(state).finally(() => {
      allRuns.delete(currentRun);
      if (currentRuns.get(name) === currentRun) currentRuns.delete(name);
    });
    allRuns.add(currentRun);
    if (!currentRuns.has(name)) currentRuns.set(name, currentRun);
    return currentRun;
  }

  async function runOnce(state: JobState): Promise<void> {
    if (drainController.signal.aborted) return;
    if (outage.isOn()) {
      postpone(state);
      return;
    }
    state.isPending = false;
    state.takesTicks = true;
    state.wait?.abort(new OrderlyStop());
    const { job } = state;
    const labels = { source, job: job.name };
    if (state.isRunning) {
      metrics.polls.inc({ ...labels, outcome: "overlap" });
      return;
    }
    state.isRunning = true;
    const result = await runJob(job).finally(() => (state.isRunning = false));
    const runEndedAtMs = clock.monotonic();
    const failure = result.kind === "failed" ? result.failure : null;
    state.failuresInRow = result.kind === "ok" ? 0 : state.failuresInRow + 1;
    state.isRefused = failure instanceof ConfigError;
    metrics.polls.inc({ ...labels, outcome: result.kind });
    if (failure === null) {
      metrics.pollSuccess.set(labels, clock.now() / 1000);
      options.succeeded?.(job.name);
    }
    let retryMs = result.kind === "ok" ? null : jobRetryMs(failure, state.failuresInRow, random);
    const isPaused = state.isRefused || failure instanceof Throttled;
    state.notBeforeMs = isPaused ? runEndedAtMs + (retryMs ?? 0) : Number.NEGATIVE_INFINITY;
    try {
      if (result.kind !== "failed")
        await recordSuccess(state.job, result.kind === "ok" ? (result.remark ?? null) : result.reason);
      else if (await recordFailure(state.job, result.failure, state.failuresInRow)) postpone(state);
    } catch (error) {
      aborter.signal.throwIfAborted();
      log.error({ job: job.name, err: error }, "the state of a job could not be recorded");
    }
    if (state.isRefused && state.failuresInRow === 1 && scope.respondedAtMs() < runEndedAtMs) {
      retryMs = UNEXPLAINED_RETRY_MS;
      state.notBeforeMs = clock.monotonic() + retryMs;
    }
    if (retryMs !== null && !outage.isOn()) runInParallel(runLater(state, retryMs));
  }

  async function runJob(job: Job) {
    try {
      return await job.run(aborter.signal);
    } catch (error) {
      aborter.signal.throwIfAborted();
      return { kind: "failed" as const, failure: asFailure(error) };
    }
  }

  async function runLater(state: JobState, inMs: number): Promise<void> {
    state.wait?.abort(new OrderlyStop());
    const retryWait = new AbortController();
    state.wait = retryWait;
    const isJobTime = await sleepFor(clock, inMs, retryWait.signal, drainController.signal);
    if (state.wait === retryWait) state.wait = null;
    if (isJobTime) await startRun(state);
  }

  /** Acts after the job's current run, which may have begun with old settings or with an old scope. */
  async function afterCurrentRun(state: JobState, act: (state: JobState) => Promise<void> | void): Promise<void> {
    await currentRuns.get(state.job.name);
    await act(state);
  }

  async function recordSuccess(work: NamedJob, remark: string | null): Promise<void> {
    outage.noteSuccess();
    await availability.featureUp(work.name);
    storeState(work, remark);
  }

  async function recordFailure(work: NamedJob, failure: Failure, failures: number): Promise<boolean> {
    log.warn({ job: work.name, err: failure }, "a poll failed");
    const failureContext = { isRepeat: failures > 1, isMeJob: work.name === "token" };
    const isDown = await outage.judge(failure, failureContext, aborter.signal);
    const problem = describeProblem(work, failure);
    if (!isDown && failure instanceof ConfigError) await availability.featureDown(work.name, problem);
    storeState(work, problem, false);
    return isDown;
  }

  const lacksAbility = ({ ability }: NamedJob) => ability !== undefined && !scope.hasAbility(ability);

  function describeProblem(work: NamedJob, failure: Failure): string {
    const isForbidden = failure instanceof ConfigError && failure.reason === "forbidden";
    return isForbidden && lacksAbility(work)
      ? `${errorText(failure)} The token lacks ${work.ability}.`
      : errorText(failure);
  }

  function storeState({ name }: NamedJob, problem: string | null, success = true): void {
    const lastState = options.storedState(name);
    const nowMs = clock.monotonic();
    const isRecent = nowMs - (stateStoredAtMs.get(name) ?? Number.NEGATIVE_INFINITY) < STORE_STATE_INTERVAL_MS;
    if (isRecent && lastState?.problem === problem) return;
    const at = isoUtc(clock.now());
    const lastSuccess = success ? at : (lastState?.lastSuccess ?? null);
    options.storeState(name, { lastSuccess, lastAttempt: at, problem });
    stateStoredAtMs.set(name, nowMs);
  }

  async function keepFollowing(follower: Follower): Promise<void> {
    let failures = 0;
    let refusals = 0;
    let wasAway = false;
    const labels = { source, job: follower.name };
    const runInOrder = serialRunner();
    const noteSuccess = () => {
      failures = 0;
      refusals = 0;
      metrics.pollSuccess.set(labels, clock.now() / 1000);
      options.succeeded?.(follower.name);
      runInParallel(runInOrder(() => recordSuccess(follower, null)));
    };
    await runLoop({
      clock,
      signal: drainController.signal,
      wakeup: scope.changes,
      random,
      async turn() {
        const afterOutage = wasAway || outage.isOn();
        wasAway = false;
        await rejectOnAbort(outage.over(aborter.signal), drainController.signal);
        const outageBegun = new AbortController();
        const outageWatch = rejectOnAbort(outage.begun(aborter.signal), outageBegun.signal).then(
          () => {
            wasAway = true;
            outageBegun.abort(new OrderlyStop());
          },
          () => undefined,
        );
        const draining = AbortSignal.any([drainController.signal, outageBegun.signal]);
        try {
          await follower.follow({ draining, forced: aborter.signal, afterOutage, well: noteSuccess });
          return 0;
        } catch (error) {
          aborter.signal.throwIfAborted();
          const failure = asFailure(error);
          const isRefused = failure instanceof ConfigError;
          failures += 1;
          refusals = isRefused ? refusals + 1 : 0;
          metrics.polls.inc({ ...labels, outcome: "failed" });
          if (await runInOrder(() => recordFailure(follower, failure, failures))) return 0;
          return isRefused && !lacksAbility(follower)
            ? unexplainedRetryMs(refusals)
            : followerRetryMs(failure, failures, random);
        } finally {
          outageBegun.abort(new OrderlyStop());
          await outageWatch;
        }
      },
      fault: (error, inMs) => log.error({ job: follower.name, inMs, err: error }, "a job broke"),
    });
  }

  /** Watches the token's scope, except during an outage: then only the outage's probe sends requests. */
  async function watchScope(): Promise<void> {
    while (!aborter.signal.aborted) {
      await outage.over(aborter.signal);
      const outageBegun = new AbortController();
      const scopeWatch = scope.watch(AbortSignal.any([aborter.signal, outageBegun.signal]));
      try {
        await rejectOnAbort(outage.begun(aborter.signal), aborter.signal);
      } finally {
        outageBegun.abort(new OrderlyStop());
        await scopeWatch;
      }
    }
  }

  async function followScope(): Promise<void> {
    let sitesBefore = scope.known();
    await runLoop({
      clock,
      signal: drainController.signal,
      wakeup: scope.changes,
      async turn() {
        const sitesNow = scope.known();
        const hadSites = (sitesNow && sitesBefore) ?? new Set<number>();
        const hasSites = (sitesBefore && sitesNow) ?? new Set<number>();
        const gainedSites = !hasSites.isSubsetOf(hadSites);
        const lostSites = !hadSites.isSubsetOf(hasSites);
        sitesBefore = sitesNow;
        for (const state of states) {
          const { name } = state.job;
          const isJobConcerned = gainedSites ? LISTS_OF_NEW_SITE.has(name) : lostSites && name === "sites";
          if (isJobConcerned && state.takesTicks) postpone(state);
        }
        for (const jobState of states) if (jobState.isRefused) runInParallel(startRun(jobState));
        return Number.POSITIVE_INFINITY;
      },
      fault: (error) => log.error({ err: error }, "a change of the token's scope could not be followed"),
    });
  }

  /** Runs the job as soon as the service is available, unless a tick comes earlier. */
  function postpone(state: JobState): void {
    state.isPending = true;
    jobPostponed.resolve();
  }

  async function runPending(): Promise<void> {
    for (;;) {
      await outage.over(aborter.signal);
      const pendingState = states.find(({ isPending }) => isPending);
      if (pendingState === undefined) {
        await rejectOnAbort(jobPostponed.promise, aborter.signal);
        jobPostponed = Promise.withResolvers();
        continue;
      }
      pendingState.isPending = false;
      if (pendingState.job.isLong === true) runInParallel(afterCurrentRun(pendingState, startRun));
      else await startRun(pendingState);
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

  function changeJobs({ jobs, spreadMs: nextSpreadMs, again }: SchedulerChange): void {
    if (drainController.signal.aborted) return;
    const isSpreadSame = nextSpreadMs === spreadMs;
    spreadMs = nextSpreadMs;
    const statesBefore = new Map(states.map((state) => [state.job.name, state]));
    states = jobs.filter(isScheduled).map((job) => statesBefore.get(job.name) ?? newJobState(job));
    for (const jobState of statesBefore.values()) if (!states.includes(jobState)) switchJobOff(jobState);
    for (const job of jobs.filter(isScheduled)) {
      const jobState = states.find((each) => each.job.name === job.name);
      if (jobState === undefined) continue;
      const isNewJob = !statesBefore.has(job.name);
      const isScheduleSame = !isNewJob && jobState.job.schedule === job.schedule && isSpreadSame;
      jobState.job = job;
      if (!isScheduleSame) startTicks(jobState);
      if (isNewJob) postpone(jobState);
      else if (again.has(job.name)) runInParallel(afterCurrentRun(jobState, postpone));
    }
  }

  function switchJobOff(state: JobState): void {
    state.stopTicks();
    state.isPending = false;
    state.takesTicks = false;
    state.wait?.abort(new OrderlyStop());
  }

  const schedulerService = startServiceOnce({
    name: `sync ${source}`,
    async start(signal) {
      signal.addEventListener("abort", () => aborter.abort(signal.reason), { once: true });
      runInParallel(outage.watch(aborter.signal));
      runInParallel(watchScope());
      runInParallel(followScope());
      if (options.watchLostSites !== undefined) runInParallel(options.watchLostSites(aborter.signal));
      runInParallel(runPending());
      for (const followerJob of options.followers ?? []) {
        const followerRun = keepFollowing(followerJob).finally(() => allRuns.delete(followerRun));
        allRuns.add(followerRun);
        runInParallel(followerRun);
      }
      for (const jobState of states) startTicks(jobState);
    },
    async stop(deadlineMs) {
      for (const jobState of states) jobState.stopTicks();
      drainController.abort(new OrderlyStop());
      await endsWithin(clock, deadlineMs, Promise.allSettled(allRuns));
      aborter.abort(new OrderlyStop());
      await Promise.all(backgroundWork);
    },
  });
  return { ...schedulerService, change: changeJobs };
}

function tickOffsetMs(key: string, mostMs: number): number {
  const hashShare = createHash("sha256").update(key).digest().readUInt32BE(0) / 2 ** 32;
  return Math.floor(hashShare * mostMs);
}
