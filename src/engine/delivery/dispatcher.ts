import { OrderlyStop, type WorkerService } from "../../core/runtime/lifecycle.ts";
import { createWakeup, endsWithin, retryUntilDone, runLoop } from "../../core/runtime/waiting.ts";
import type { SinkLag } from "../store/store.ts";
import { lagFiltersBySink } from "./filter.ts";
import type { DeliveryContext } from "./sink-loop.ts";
import { createSinkRegistration } from "./sink-registration.ts";
import { type ConfiguredSink, createSinkRunner, INTERNAL_FAULT_BACKOFF, type SinkRunner } from "./sink-runner.ts";
import type { SinkStatus } from "./sink-status.ts";

export interface DispatcherOptions
  extends Omit<DeliveryContext, "random" | "checkEveryMs">,
    Partial<Pick<DeliveryContext, "random" | "checkEveryMs">> {
  readonly sinks: readonly ConfiguredSink[];
}

export interface Dispatcher extends WorkerService {
  status(): readonly SinkStatus[];
  notices(): readonly string[];
  /** Replaces the sinks; resolves once new ones are registered. An identical object continues undisturbed. */
  change(sinks: readonly ConfiguredSink[]): Promise<void>;
}

const LAG_INTERVAL_MS = 5_000;
const CHECK_EVERY_MS = 1_000;
const REPLACE_TIMEOUT_MS = 40_000;

/** Runs one loop per sink over the same log. `start` registers the sinks and waits for no server. */
export function createDispatcher(options: DispatcherOptions): Dispatcher {
  const { outbox, clock, log, metrics, building, store, random = Math.random, checkEveryMs = CHECK_EVERY_MS } = options;
  const drainController = new AbortController();
  const wakeup = createWakeup();
  const registration = createSinkRegistration({ outbox, store, log, clock });
  let runners: readonly SinkRunner[] = options.sinks.map(createRunner);
  const leavingRunners = new Set<SinkRunner>();
  const sinkEndPromises = new Set<Promise<void>>();
  let lagFilters = buildLagFilters(options.sinks);
  let lagBySink: ReadonlyMap<string, SinkLag> = new Map();
  let lagVersion: number | null = null;
  let runningWatches: readonly Promise<void>[] | null = null;
  let stopPromise: Promise<void> | null = null;
  let endCalls = 0;

  function createRunner(configured: ConfiguredSink): SinkRunner {
    const runnerOptions = { outbox, store, building, wakeup, checkEveryMs, clock, log, metrics, random };
    return createSinkRunner({ ...runnerOptions, configured, registration });
  }
  const isConfigured = (name: string) => runners.some(({ configured }) => configured.name === name);

  function trackEnding(work: Promise<void>): void {
    const trackedEnding = work.finally(() => sinkEndPromises.delete(trackedEnding));
    sinkEndPromises.add(trackedEnding);
  }

  /** Ends sinks that are not configured. Resolves after the first attempt, and retries failures until they succeed. */
  function endUnconfiguredSinks(): Promise<void> {
    endCalls += 1;
    const callNumber = endCalls;
    const firstAttempt = Promise.withResolvers<void>();
    const endLoop = retryUntilDone({
      clock,
      signal: drainController.signal,
      random,
      backoff: INTERNAL_FAULT_BACKOFF,
      async work() {
        if (callNumber === endCalls) await registration.endUnconfiguredSinks({ has: isConfigured });
      },
      fault(error) {
        log.warn({ err: error }, "The sinks of before could not be looked through; it is tried again.");
        firstAttempt.resolve();
      },
    });
    const endPromise = endLoop.catch((error: unknown) => {
      if (!drainController.signal.aborted) throw error;
    });
    trackEnding(endPromise.finally(firstAttempt.resolve));
    return firstAttempt.promise;
  }

  async function changeSinks(sinks: readonly ConfiguredSink[]): Promise<void> {
    if (runningWatches === null || stopPromise !== null) return;
    const runnersBySink = new Map(runners.map((runner) => [runner.configured, runner]));
    const removedRunners = runners.filter(({ configured }) => !sinks.includes(configured));
    for (const runner of removedRunners) leavingRunners.add(runner);
    runners = sinks.map((configured) => runnersBySink.get(configured) ?? createRunner(configured));
    lagFilters = buildLagFilters(sinks);
    lagVersion = null;
    const addedRunners = runners.filter(({ configured }) => !runnersBySink.has(configured));
    const startPromises = addedRunners.map((runner) => runner.start(waitForPredecessors(runner.configured)));
    trackEnding(endRemoved(removedRunners));
    await Promise.all(startPromises);
  }

  /** Two sinks of one name would move one cursor, and a renamed sink would write the same files as its predecessor. */
  async function waitForPredecessors(successor: ConfiguredSink): Promise<void> {
    const predecessors = [...leavingRunners].filter(
      ({ configured }) => configured.name === successor.name || successor.meets?.(configured) === true,
    );
    await Promise.all(predecessors.map((each) => each.ended()));
  }

  async function endRemoved(removed: readonly SinkRunner[]): Promise<void> {
    for (const runner of removed) void runner.ended().then(() => leavingRunners.delete(runner));
    await Promise.all(removed.map((runner) => runner.stop(REPLACE_TIMEOUT_MS)));
    for (const { configured } of removed) {
      if (!isConfigured(configured.name)) metrics.sinkUp.remove({ sink: configured.name });
    }
    await endUnconfiguredSinks();
  }

  function watchOutbox(): Promise<void> {
    // Listen again before waking the sinks, so that no commit is missed.
    let nextChange: Promise<void> | null = null;
    const listen = () => {
      const changePromise = outbox.changed(drainController.signal);
      changePromise.catch(() => undefined);
      return changePromise;
    };
    return runLoop({
      clock,
      signal: drainController.signal,
      async turn() {
        await (nextChange ?? listen());
        nextChange = listen();
        wakeup.wakeUp();
        return 0;
      },
      fault(error) {
        nextChange = null;
        log.warn({ err: error }, "What is committed is not heard; it is looked for every second.");
      },
    });
  }

  function watchState(everyMs: number, problem: string, check: (version: number) => Promise<void> | void) {
    return runLoop({
      clock,
      signal: drainController.signal,
      onlyChecks: true,
      async turn() {
        await check(await store.changes());
        return everyMs;
      },
      fault: (error) => log.warn({ err: error }, problem),
      backoff: INTERNAL_FAULT_BACKOFF,
    });
  }

  function watchOtherProcesses(): Promise<void> {
    let seenVersion: number | null = null;
    return watchState(checkEveryMs, "What other processes have marked could not be looked for.", (changes) => {
      if (changes !== seenVersion) wakeup.wakeUp();
      seenVersion = changes;
    });
  }

  function watchLag(): Promise<void> {
    return watchState(LAG_INTERVAL_MS, "The lag of the sinks could not be read.", async (changes) => {
      if (changes === lagVersion) return;
      lagBySink = new Map((await outbox.lag(lagFilters)).map((lag) => [lag.sink, lag]));
      lagVersion = changes;
    });
  }

  async function stopDelivery(deadlineMs: number): Promise<void> {
    drainController.abort(new OrderlyStop());
    for (const runner of leavingRunners) runner.abortWrites();
    await Promise.all([...runners, ...leavingRunners].map((runner) => runner.stop(deadlineMs)));
    await endsWithin(clock, deadlineMs, Promise.all([...(runningWatches ?? []), ...sinkEndPromises]));
  }

  return {
    name: "dispatcher",
    async start(signal) {
      if (runningWatches !== null || stopPromise !== null) return;
      const onAbort = () => {
        drainController.abort(new OrderlyStop());
        for (const runner of runners) runner.abortWrites();
      };
      signal.addEventListener("abort", onAbort, { once: true, signal: drainController.signal });
      const startPromise = Promise.all(runners.map((runner) => runner.start(Promise.resolve())));
      if (signal.aborted) onAbort();
      runningWatches = [watchOutbox(), watchOtherProcesses(), watchLag()];
      await startPromise;
      await endUnconfiguredSinks();
    },
    stop(deadlineMs) {
      stopPromise ??= stopDelivery(deadlineMs);
      return stopPromise;
    },
    change: changeSinks,
    notices: () => runners.flatMap(({ state }) => state.notices()),
    status: () =>
      runners.map(({ configured, state }) => ({
        ...state.status(),
        waiting: configured.sink.pendingRequests?.() ?? 0,
        lag: lagBySink.get(configured.name) ?? null,
      })),
  };
}

function buildLagFilters(sinks: readonly ConfiguredSink[]) {
  return lagFiltersBySink(sinks.map(({ name, delivery }) => [name, delivery.filter]));
}
