import { createHash } from "node:crypto";
import { asFailure, ConfigError, errorText, type Failure, Throttled } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { isOrderlyStop, OrderlyStop, startServiceOnce } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import { createSerialRunner, endsWithin, rejectOnAbort, runLoop, sleepFor } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { type CronTicker, cronIntervalMs } from "./cron-schedule.ts";
import type { LoopJob, SyncJob } from "./job.ts";
import { continuousRetryMs, jobRetryPauseMs, unexplainedRefusalRetryMs } from "./retry-times.ts";
import type { ServiceAvailability } from "./service-availability.ts";
import type { ServiceOutage } from "./service-outage.ts";
import type { StoredJob } from "./stored-documents.ts";
import type { TokenScope } from "./token-scope.ts";

export interface JobSchedulerOptions {
  readonly source: string;
  readonly jobs: readonly SyncJob[];
  readonly loopJobs?: readonly LoopJob[];
  readonly ticker: CronTicker;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly random: () => number;
  readonly spreadMs: number;
  readonly outage: ServiceOutage;
  readonly availability: ServiceAvailability;
  readonly scope: Pick<TokenScope, "known" | "hasAbility" | "changes" | "watch">;
  /** These loops run until the signal aborts, also during an outage. */
  readonly watches?: readonly ((signal: AbortSignal) => Promise<void>)[];
  readonly onJobSuccess?: (job: string) => void;
  readonly storeState: (job: string, state: StoredJob) => void;
  readonly storedState: (job: string) => StoredJob | undefined;
}

export type JobScheduler = ReturnType<typeof createJobScheduler>;

const JOB_STATE_STORE_INTERVAL_MS = 60_000;
const LIST_JOBS_OF_NEW_SITE: ReadonlySet<string> = new Set(["sites", "gateways", "systems", "tags", "hosts"]);

type JobNameAndAbility = Pick<SyncJob, "name" | "ability">;

type JobState = ReturnType<typeof createJobState>;

function createJobState(job: SyncJob) {
  return {
    ...{ job, isRunning: false, failuresInRow: 0, refusalsInRow: 0 },
    /** The job does not run before this monotonic time, because the service refused it or ordered a pause. */
    notBeforeMs: Number.NEGATIVE_INFINITY,
    isPending: job.firstRun,
    isScheduled: !job.firstRun,
    waitController: null as AbortController | null,
    stopTicks: (): void => undefined,
  };
}

/** Runs the jobs of one source at their times: no job twice at once, and no job during an outage. */
export function createJobScheduler(options: JobSchedulerOptions) {
  const { source, clock, log, metrics, random, outage, availability, scope } = options;
  const isJobScheduled = (job: SyncJob) => job.schedule !== false;
  let jobStates: readonly JobState[] = options.jobs.filter(isJobScheduled).map(createJobState);
  let { spreadMs } = options;
  const abortRunsController = new AbortController();
  const noNewRunsController = new AbortController();
  const backgroundPromises = new Set<Promise<void>>();
  const allJobRuns = new Set<Promise<void>>();
  const currentJobRuns = new Map<string, Promise<void>>();
  let jobPostponed = Promise.withResolvers<void>();
  const jobStateStoredAtMs = new Map<string, number>();

  function runInParallel(work: Promise<void>): void {
    const watchedWork = work
      .catch((error: unknown) => {
        if (!isOrderlyStop(error)) log.error({ err: error }, "a job broke");
      })
      .finally(() => backgroundPromises.delete(watchedWork));
    backgroundPromises.add(watchedWork);
  }

  function startJobRun(state: JobState): Promise<void> {
    const { name } = state.job;
    const currentJobRun = runJobOnce(state).finally(() => {
      allJobRuns.delete(currentJobRun);
      if (currentJobRuns.get(name) === currentJobRun) currentJobRuns.delete(name);
    });
    allJobRuns.add(currentJobRun);
    if (!currentJobRuns.has(name)) currentJobRuns.set(name, currentJobRun);
    return currentJobRun;
  }

  async function runJobOnce(state: JobState): Promise<void> {
    if (noNewRunsController.signal.aborted) return;
    if (outage.isOn()) {
      postponeJob(state);
      return;
    }
    state.isPending = false;
    state.isScheduled = true;
    state.waitController?.abort(new OrderlyStop());
    const { job } = state;
    const jobMetricLabels = { source, job: job.name };
    if (state.isRunning) {
      metrics.polls.inc({ ...jobMetricLabels, outcome: "overlap" });
      return;
    }
    state.isRunning = true;
    const jobResult = await tryJobRun(job).finally(() => (state.isRunning = false));
    const jobEndedAtMs = clock.monotonic();
    const failure = jobResult.kind === "failed" ? jobResult.failure : null;
    state.failuresInRow = jobResult.kind === "ok" ? 0 : state.failuresInRow + 1;
    state.refusalsInRow = failure instanceof ConfigError ? state.refusalsInRow + 1 : 0;
    metrics.polls.inc({ ...jobMetricLabels, outcome: jobResult.kind });
    if (failure === null) {
      metrics.pollSuccess.set(jobMetricLabels, clock.now() / 1000);
      options.onJobSuccess?.(job.name);
    }
    let retryMs = jobResult.kind === "ok" ? null : jobRetryPauseMs(failure, state.failuresInRow, random);
    const isJobPaused = state.refusalsInRow > 0 || failure instanceof Throttled;
    state.notBeforeMs = isJobPaused ? jobEndedAtMs + (retryMs ?? 0) : Number.NEGATIVE_INFINITY;
    try {
      if (jobResult.kind !== "failed")
        await recordJobSuccess(state.job, jobResult.kind === "ok" ? (jobResult.remark ?? null) : jobResult.reason);
      else if (await recordJobFailure(state.job, jobResult.failure, state.failuresInRow)) postponeJob(state);
    } catch (error) {
      abortRunsController.signal.throwIfAborted();
      log.error({ job: job.name, err: error }, "the state of a job could not be recorded");
    }
    // Check the permission only now, because recording a failure may request `GET me`.
    const unexplainedRetryMs = retryMsIfUnexplained(state.job, state.refusalsInRow);
    if (unexplainedRetryMs !== null) {
      retryMs = unexplainedRetryMs;
      state.notBeforeMs = clock.monotonic() + retryMs;
    }
    if (retryMs !== null && !outage.isOn()) runInParallel(runJobLater(state, retryMs));
  }

  async function tryJobRun(job: SyncJob) {
    try {
      return await job.run(abortRunsController.signal);
    } catch (error) {
      abortRunsController.signal.throwIfAborted();
      return { kind: "failed" as const, failure: asFailure(error) };
    }
  }

  async function runJobLater(state: JobState, delayMs: number): Promise<void> {
    state.waitController?.abort(new OrderlyStop());
    const retryWaitController = new AbortController();
    state.waitController = retryWaitController;
    const isRetryTime = await sleepFor(clock, delayMs, retryWaitController.signal, noNewRunsController.signal);
    if (state.waitController === retryWaitController) state.waitController = null;
    if (isRetryTime) await startJobRun(state);
  }

  /** Waits for the job's current run, which may use old settings or an old scope. Then calls `action`. */
  async function actAfterCurrentRun(state: JobState, action: (state: JobState) => Promise<void> | void): Promise<void> {
    await currentJobRuns.get(state.job.name);
    await action(state);
  }

  async function recordJobSuccess(job: JobNameAndAbility, remark: string | null): Promise<void> {
    outage.noteJobSuccess();
    await availability.featureUp(job.name);
    storeJobState(job, remark);
  }

  async function recordJobFailure(job: JobNameAndAbility, failure: Failure, failureCount: number): Promise<boolean> {
    log.warn({ job: job.name, err: failure }, "a poll failed");
    const failureContext = { isRepeat: failureCount > 1, isMeJob: job.name === "token" };
    const isServiceDown = await outage.detectOutage(failure, failureContext, abortRunsController.signal);
    const jobProblem = describeJobProblem(job, failure);
    if (!isServiceDown && failure instanceof ConfigError) await availability.featureDown(job.name, jobProblem);
    storeJobState(job, jobProblem, false);
    return isServiceDown;
  }

  const lacksTokenAbility = ({ ability }: JobNameAndAbility) => ability !== undefined && !scope.hasAbility(ability);

  /** Returns the pause after a refusal although the token has the permission; null if there is no such refusal. */
  const retryMsIfUnexplained = (job: JobNameAndAbility, refusalsInRow: number): number | null =>
    refusalsInRow > 0 && !lacksTokenAbility(job) ? unexplainedRefusalRetryMs(refusalsInRow) : null;

  function describeJobProblem(job: JobNameAndAbility, failure: Failure): string {
    const isForbidden = failure instanceof ConfigError && failure.reason === "forbidden";
    return isForbidden && lacksTokenAbility(job)
      ? `${errorText(failure)} The token lacks ${job.ability}.`
      : errorText(failure);
  }

  function storeJobState({ name }: JobNameAndAbility, problem: string | null, isSuccess = true): void {
    const lastJobState = options.storedState(name);
    const nowMs = clock.monotonic();
    const isRecent = nowMs - (jobStateStoredAtMs.get(name) ?? Number.NEGATIVE_INFINITY) < JOB_STATE_STORE_INTERVAL_MS;
    if (isRecent && lastJobState?.problem === problem) return;
    const nowIso = isoUtc(clock.now());
    const lastSuccess = isSuccess ? nowIso : (lastJobState?.lastSuccess ?? null);
    options.storeState(name, { lastSuccess, lastAttempt: nowIso, problem });
    jobStateStoredAtMs.set(name, nowMs);
  }

  async function keepLoopJobRunning(loopJob: LoopJob): Promise<void> {
    let failureCount = 0;
    let refusalCount = 0;
    let wasServiceUnavailable = false;
    const jobMetricLabels = { source, job: loopJob.name };
    const recordInOrder = createSerialRunner();
    const reportSuccess = () => {
      failureCount = 0;
      refusalCount = 0;
      metrics.pollSuccess.set(jobMetricLabels, clock.now() / 1000);
      options.onJobSuccess?.(loopJob.name);
      runInParallel(recordInOrder(() => recordJobSuccess(loopJob, null)));
    };
    await runLoop({
      clock,
      signal: noNewRunsController.signal,
      wakeup: scope.changes,
      random,
      async step() {
        const afterOutage = wasServiceUnavailable || outage.isOn();
        wasServiceUnavailable = false;
        await rejectOnAbort(outage.over(abortRunsController.signal), noNewRunsController.signal);
        const stopAtOutageController = new AbortController();
        const outageWatch = rejectOnAbort(outage.begun(abortRunsController.signal), stopAtOutageController.signal).then(
          () => {
            wasServiceUnavailable = true;
            stopAtOutageController.abort(new OrderlyStop());
          },
          () => undefined,
        );
        const draining = AbortSignal.any([noNewRunsController.signal, stopAtOutageController.signal]);
        try {
          await loopJob.follow({ draining, forced: abortRunsController.signal, afterOutage, reportSuccess });
          return 0;
        } catch (error) {
          abortRunsController.signal.throwIfAborted();
          const failure = asFailure(error);
          failureCount += 1;
          refusalCount = failure instanceof ConfigError ? refusalCount + 1 : 0;
          metrics.polls.inc({ ...jobMetricLabels, outcome: "failed" });
          if (await recordInOrder(() => recordJobFailure(loopJob, failure, failureCount))) return 0;
          return retryMsIfUnexplained(loopJob, refusalCount) ?? continuousRetryMs(failure, failureCount, random);
        } finally {
          stopAtOutageController.abort(new OrderlyStop());
          await outageWatch;
        }
      },
      onFault: (error, inMs) => log.error({ job: loopJob.name, inMs, err: error }, "a job broke"),
    });
  }

  /** Watches the token's scope, except during an outage: then only the check for the outage's end sends requests. */
  async function watchTokenScope(): Promise<void> {
    while (!abortRunsController.signal.aborted) {
      await outage.over(abortRunsController.signal);
      const stopAtOutageController = new AbortController();
      const tokenScopeWatch = scope.watch(AbortSignal.any([abortRunsController.signal, stopAtOutageController.signal]));
      try {
        await rejectOnAbort(outage.begun(abortRunsController.signal), abortRunsController.signal);
      } finally {
        stopAtOutageController.abort(new OrderlyStop());
        await tokenScopeWatch;
      }
    }
  }

  async function runJobsAfterScopeChanges(): Promise<void> {
    let visibleSitesBefore = scope.known();
    await runLoop({
      clock,
      signal: noNewRunsController.signal,
      wakeup: scope.changes,
      async step() {
        const visibleSitesNow = scope.known();
        const sitesBeforeChange = (visibleSitesNow && visibleSitesBefore) ?? new Set<number>();
        const sitesAfterChange = (visibleSitesBefore && visibleSitesNow) ?? new Set<number>();
        const hasGainedSites = !sitesAfterChange.isSubsetOf(sitesBeforeChange);
        const hasLostSites = !sitesBeforeChange.isSubsetOf(sitesAfterChange);
        visibleSitesBefore = visibleSitesNow;
        for (const state of jobStates) {
          const { name } = state.job;
          const isJobConcerned = hasGainedSites ? LIST_JOBS_OF_NEW_SITE.has(name) : hasLostSites && name === "sites";
          if (isJobConcerned && state.isScheduled) postponeJob(state);
        }
        for (const jobState of jobStates) if (jobState.refusalsInRow > 0) runInParallel(startJobRun(jobState));
        return Number.POSITIVE_INFINITY;
      },
      onFault: (error) => log.error({ err: error }, "a change of the token's scope could not be followed"),
    });
  }

  function postponeJob(state: JobState): void {
    state.isPending = true;
    jobPostponed.resolve();
  }

  async function runPendingJobs(): Promise<void> {
    for (;;) {
      await outage.over(abortRunsController.signal);
      const pendingJobState = jobStates.find(({ isPending }) => isPending);
      if (pendingJobState === undefined) {
        await rejectOnAbort(jobPostponed.promise, abortRunsController.signal);
        jobPostponed = Promise.withResolvers();
        continue;
      }
      pendingJobState.isPending = false;
      if (pendingJobState.job.isLong === true) runInParallel(actAfterCurrentRun(pendingJobState, startJobRun));
      else await startJobRun(pendingJobState);
    }
  }

  function startJobTicks(state: JobState): void {
    state.stopTicks();
    const { name, schedule } = state.job;
    if (schedule === false) return;
    const offsetMs = tickOffsetMs(`${source} ${name}`, Math.min(spreadMs, cronIntervalMs(schedule, clock.now()) / 4));
    state.stopTicks = options.ticker.addCronTimer(schedule, () => {
      if (state.isRunning) metrics.polls.inc({ source, job: name, outcome: "overlap" });
      else if (state.isScheduled && clock.monotonic() >= state.notBeforeMs) runInParallel(runJobLater(state, offsetMs));
    });
  }

  function changeJobs(jobs: readonly SyncJob[], newSpreadMs: number, jobsToRerun: ReadonlySet<string>): void {
    if (noNewRunsController.signal.aborted) return;
    const isSpreadSame = newSpreadMs === spreadMs;
    spreadMs = newSpreadMs;
    const jobStatesBefore = new Map(jobStates.map((state) => [state.job.name, state]));
    jobStates = jobs.filter(isJobScheduled).map((job) => jobStatesBefore.get(job.name) ?? createJobState(job));
    for (const jobState of jobStatesBefore.values()) if (!jobStates.includes(jobState)) switchJobOff(jobState);
    for (const job of jobs.filter(isJobScheduled)) {
      const jobState = jobStates.find((state) => state.job.name === job.name);
      if (jobState === undefined) continue;
      const isNewJob = !jobStatesBefore.has(job.name);
      const isScheduleSame = !isNewJob && jobState.job.schedule === job.schedule && isSpreadSame;
      jobState.job = job;
      if (!isScheduleSame) startJobTicks(jobState);
      if (isNewJob) postponeJob(jobState);
      else if (jobsToRerun.has(job.name)) runInParallel(actAfterCurrentRun(jobState, postponeJob));
    }
  }

  function switchJobOff(state: JobState): void {
    state.stopTicks();
    state.isPending = false;
    state.isScheduled = false;
    state.waitController?.abort(new OrderlyStop());
  }

  const schedulerService = startServiceOnce({
    name: `sync ${source}`,
    async start(signal) {
      signal.addEventListener("abort", () => abortRunsController.abort(signal.reason), { once: true });
      runInParallel(outage.watchOutage(abortRunsController.signal));
      runInParallel(watchTokenScope());
      runInParallel(runJobsAfterScopeChanges());
      for (const watch of options.watches ?? []) runInParallel(watch(abortRunsController.signal));
      runInParallel(runPendingJobs());
      for (const loopJob of options.loopJobs ?? []) {
        const loopJobRun = keepLoopJobRunning(loopJob).finally(() => allJobRuns.delete(loopJobRun));
        allJobRuns.add(loopJobRun);
        runInParallel(loopJobRun);
      }
      for (const jobState of jobStates) startJobTicks(jobState);
    },
    async stop(deadlineMs) {
      for (const jobState of jobStates) jobState.stopTicks();
      noNewRunsController.abort(new OrderlyStop());
      await endsWithin(clock, deadlineMs, Promise.allSettled(allJobRuns));
      abortRunsController.abort(new OrderlyStop());
      await Promise.all(backgroundPromises);
    },
  });
  return { ...schedulerService, changeJobs };
}

function tickOffsetMs(key: string, maxOffsetMs: number): number {
  const hashFraction = createHash("sha256").update(key).digest().readUInt32BE(0) / 2 ** 32;
  return Math.floor(hashFraction * maxOffsetMs);
}
