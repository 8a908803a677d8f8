import { OrderlyStop, type WorkerService } from "../../core/runtime/lifecycle.ts";
import { createWakeup, endsWithin, retryUntilDone, runLoop } from "../../core/runtime/waiting.ts";
import type { SinkLag } from "../store/store.ts";
import { lagFiltersBySink } from "./filter.ts";
import type { SinkDeliveryContext } from "./sink-loop.ts";
import { createSinkRegistration } from "./sink-registration.ts";
import { type ConfiguredSink, createSinkRunner, INTERNAL_FAULT_BACKOFF, type SinkRunner } from "./sink-runner.ts";
import type { SinkStatus } from "./sink-status.ts";

export interface EventDispatcherOptions
  extends Omit<SinkDeliveryContext, "random" | "checkEveryMs">,
    Partial<Pick<SinkDeliveryContext, "random" | "checkEveryMs">> {
  readonly sinks: readonly ConfiguredSink[];
}

export type EventDispatcher = ReturnType<typeof createEventDispatcher>;

const SINK_LAG_READ_INTERVAL_MS = 5_000;
const STORE_CHECK_MS = 1_000;
const SINK_REPLACE_TIMEOUT_MS = 40_000;

/** Runs one loop per sink over the same event log. `start` registers the sinks without waiting for their servers. */
export function createEventDispatcher(options: EventDispatcherOptions) {
  const { outbox, clock, log, metrics, building, store, random = Math.random, checkEveryMs = STORE_CHECK_MS } = options;
  const deliveryStopController = new AbortController();
  const sinkWakeup = createWakeup();
  const sinkRegistration = createSinkRegistration({ outbox, store, log, clock });
  let sinkRunners: readonly SinkRunner[] = options.sinks.map(createRunnerOfSink);
  const endingSinkRunners = new Set<SinkRunner>();
  const sinkEndPromises = new Set<Promise<void>>();
  let sinkLagFilters = buildSinkLagFilters(options.sinks);
  let lagBySink: ReadonlyMap<string, SinkLag> = new Map();
  let lagReadAtVersion: number | null = null;
  let storeWatchPromises: readonly Promise<void>[] | null = null;
  let deliveryStopPromise: Promise<void> | null = null;
  let endSinksCallCount = 0;

  function createRunnerOfSink(configuredSink: ConfiguredSink): SinkRunner {
    const runnerOptions = { outbox, store, building, wakeup: sinkWakeup, checkEveryMs, clock, log, metrics, random };
    return createSinkRunner({ ...runnerOptions, configured: configuredSink, registration: sinkRegistration });
  }
  const isSinkConfigured = (name: string) => sinkRunners.some(({ configured }) => configured.name === name);

  function trackSinkEnding(work: Promise<void>): void {
    const trackedSinkEnding = work.finally(() => sinkEndPromises.delete(trackedSinkEnding));
    sinkEndPromises.add(trackedSinkEnding);
  }

  /** Ends sinks that the configuration no longer contains. Resolves after the first attempt; failures are retried. */
  function endUnconfiguredSinks(): Promise<void> {
    endSinksCallCount += 1;
    const callNumber = endSinksCallCount;
    const firstEndAttempt = Promise.withResolvers<void>();
    const endSinksLoop = retryUntilDone({
      clock,
      signal: deliveryStopController.signal,
      random,
      backoff: INTERNAL_FAULT_BACKOFF,
      async work() {
        if (callNumber === endSinksCallCount) await sinkRegistration.endUnconfiguredSinks({ has: isSinkConfigured });
      },
      onFault(error) {
        log.warn({ err: error }, "Sinks that are no longer configured could not be ended; Plenum tries again.");
        firstEndAttempt.resolve();
      },
    });
    const endSinksPromise = endSinksLoop.catch((error: unknown) => {
      if (!deliveryStopController.signal.aborted) throw error;
    });
    trackSinkEnding(endSinksPromise.finally(firstEndAttempt.resolve));
    return firstEndAttempt.promise;
  }

  /** Replaces the sinks; resolves once the new sinks are registered. A sink whose object is in both lists continues. */
  async function replaceConfiguredSinks(sinks: readonly ConfiguredSink[]): Promise<void> {
    if (storeWatchPromises === null || deliveryStopPromise !== null) return;
    const runnersBySink = new Map(sinkRunners.map((runner) => [runner.configured, runner]));
    const removedSinkRunners = sinkRunners.filter(({ configured }) => !sinks.includes(configured));
    for (const sinkRunner of removedSinkRunners) endingSinkRunners.add(sinkRunner);
    sinkRunners = sinks.map((configured) => runnersBySink.get(configured) ?? createRunnerOfSink(configured));
    sinkLagFilters = buildSinkLagFilters(sinks);
    lagReadAtVersion = null;
    const addedSinkRunners = sinkRunners.filter(({ configured }) => !runnersBySink.has(configured));
    const sinkStartPromises = addedSinkRunners.map((runner) => runner.start(waitForPredecessors(runner.configured)));
    trackSinkEnding(endRemovedSinks(removedSinkRunners));
    await Promise.all(sinkStartPromises);
  }

  /** Waits for the end of old sinks with the same name or files: only one sink may move a cursor or write a file. */
  async function waitForPredecessors(successor: ConfiguredSink): Promise<void> {
    const predecessorRunners = [...endingSinkRunners].filter(
      ({ configured }) => configured.name === successor.name || successor.conflictsWith?.(configured) === true,
    );
    await Promise.all(predecessorRunners.map((each) => each.whenEnded()));
  }

  async function endRemovedSinks(runners: readonly SinkRunner[]): Promise<void> {
    for (const sinkRunner of runners) void sinkRunner.whenEnded().then(() => endingSinkRunners.delete(sinkRunner));
    await Promise.all(runners.map((runner) => runner.stop(SINK_REPLACE_TIMEOUT_MS)));
    for (const { configured } of runners) {
      if (!isSinkConfigured(configured.name)) metrics.sinkUp.remove({ sink: configured.name });
    }
    await endUnconfiguredSinks();
  }

  function watchOutbox(): Promise<void> {
    // Listen again before the sinks wake, so that no commit is missed.
    let nextCommitPromise: Promise<void> | null = null;
    const listenForCommit = () => {
      const commitPromise = outbox.waitForChange(deliveryStopController.signal);
      commitPromise.catch(() => undefined);
      return commitPromise;
    };
    return runLoop({
      clock,
      signal: deliveryStopController.signal,
      async step() {
        await (nextCommitPromise ?? listenForCommit());
        nextCommitPromise = listenForCommit();
        sinkWakeup.wakeUp();
        return 0;
      },
      onFault(error) {
        nextCommitPromise = null;
        log.warn({ err: error }, "Notifications of commits failed; Plenum checks for new events every second.");
      },
    });
  }

  function watchStoreVersion(everyMs: number, problem: string, check: (version: number) => Promise<void> | void) {
    return runLoop({
      clock,
      signal: deliveryStopController.signal,
      alignSleeps: true,
      async step() {
        await check(await store.changes());
        return everyMs;
      },
      onFault: (error) => log.warn({ err: error }, problem),
      backoff: INTERNAL_FAULT_BACKOFF,
    });
  }

  function watchOtherProcesses(): Promise<void> {
    let seenStoreVersion: number | null = null;
    return watchStoreVersion(checkEveryMs, "Changes by other processes could not be checked.", (version) => {
      if (version !== seenStoreVersion) sinkWakeup.wakeUp();
      seenStoreVersion = version;
    });
  }

  function watchSinkLag(): Promise<void> {
    return watchStoreVersion(SINK_LAG_READ_INTERVAL_MS, "The lag of the sinks could not be read.", async (version) => {
      if (version === lagReadAtVersion) return;
      lagBySink = new Map((await outbox.lag(sinkLagFilters)).map((lag) => [lag.sink, lag]));
      lagReadAtVersion = version;
    });
  }

  async function stopDelivery(deadlineMs: number): Promise<void> {
    deliveryStopController.abort(new OrderlyStop());
    for (const sinkRunner of endingSinkRunners) sinkRunner.abortWrites();
    await Promise.all([...sinkRunners, ...endingSinkRunners].map((runner) => runner.stop(deadlineMs)));
    await endsWithin(clock, deadlineMs, Promise.all([...(storeWatchPromises ?? []), ...sinkEndPromises]));
  }

  return {
    name: "dispatcher",
    async start(signal) {
      if (storeWatchPromises !== null || deliveryStopPromise !== null) return;
      const abortDelivery = () => {
        deliveryStopController.abort(new OrderlyStop());
        for (const sinkRunner of sinkRunners) sinkRunner.abortWrites();
      };
      signal.addEventListener("abort", abortDelivery, { once: true, signal: deliveryStopController.signal });
      const sinksStartPromise = Promise.all(sinkRunners.map((runner) => runner.start(Promise.resolve())));
      if (signal.aborted) abortDelivery();
      storeWatchPromises = [watchOutbox(), watchOtherProcesses(), watchSinkLag()];
      await sinksStartPromise;
      await endUnconfiguredSinks();
    },
    stop(deadlineMs) {
      deliveryStopPromise ??= stopDelivery(deadlineMs);
      return deliveryStopPromise;
    },
    changeSinks: replaceConfiguredSinks,
    notices: (): readonly string[] => sinkRunners.flatMap(({ statusTracker: state }) => state.notices()),
    status: (): readonly SinkStatus[] =>
      sinkRunners.map(({ configured, statusTracker: state }) => ({
        ...state.status(),
        waiting: configured.sink.pendingRequests?.() ?? 0,
        lag: lagBySink.get(configured.name) ?? null,
      })),
  } satisfies WorkerService & Record<string, unknown>;
}

function buildSinkLagFilters(sinks: readonly ConfiguredSink[]) {
  return lagFiltersBySink(sinks.map(({ name, delivery }) => [name, delivery.filter]));
}
