import { hash } from "node:crypto";
import type { FailedRequest } from "../../../src/core/connector.ts";
import { asFailure, ConfigError, type Failure, Rejected, Throttled } from "../../../src/core/errors/errors.ts";
import { backoffMs } from "../../../src/core/runtime/backoff.ts";
import type { Clock } from "../../../src/core/runtime/clock.ts";
import { isoUtc } from "../../../src/core/values/iso-utc.ts";
import type {
  AlarmReceiver,
  IncidentMessage,
  IncidentReference,
  RateLimit,
  ReceiverCall,
} from "./receiver-interface.ts";
import { createStoredIncident, isResolved, type StoredIncident } from "./stored-incident.ts";

const RECEIVER_BACKOFF = { firstMs: 1_000, maxMs: 300_000 };
const INCIDENT_BACKOFF = { firstMs: 1_000, maxMs: 60_000 };
/** The receiver counts as down after this number of different incidents failed in a row. */
const FAILURES_UNTIL_RECEIVER_DOWN = 6;
/** Longest pause that a Retry-After header can cause; a wrong header must not stop a sink for years. */
const MAX_RECEIVER_PAUSE_MS = 86_400_000;

export type IncidentRetries = ReturnType<typeof createIncidentRetries>;

/**
 * Decides when to call a receiver again after failures. Each failed incident has a back-off; a success resets all.
 *     up ──► 6 different incidents failed in a row ──► down: one call at a time, longer waits ──► one succeeds ──► up
 */
export function createIncidentRetries(nowMs: () => number, random: () => number = Math.random) {
  const retryByKey = new Map<string, { readonly attempts: number; readonly atMs: number }>();
  const failedIncidentKeys = new Set<string>();
  let failedCallCount = 0;
  let failedProbeCount = 0;
  let pauseCount = 0;
  let waitUntilMs = Number.NEGATIVE_INFINITY;
  let lastFailure: Failure | null = null;

  const isReceiverDown = () => failedIncidentKeys.size >= FAILURES_UNTIL_RECEIVER_DOWN;
  const waitMs = () => Math.max(0, waitUntilMs - nowMs());

  function findEarliestRetryKey(): string | undefined {
    let earliestKey: string | undefined;
    let earliestMs = Number.POSITIVE_INFINITY;
    for (const [key, { atMs }] of retryByKey) if (atMs < earliestMs) [earliestKey, earliestMs] = [key, atMs];
    return earliestKey;
  }

  return {
    waitMs,
    retryAtMs: (key: string) => retryByKey.get(key)?.atMs,
    isDown: isReceiverDown,
    earliestRetryKey: findEarliestRetryKey,

    recordFailure(key: string, failure: Failure): void {
      lastFailure = failure;
      failedCallCount += 1;
      if (failure.kind === "throttled" && (failure.scope === "allowance" || failure.retryAfterMs !== null)) {
        pauseCount += 1;
        const pauseMs = failure.retryAfterMs ?? backoffMs(RECEIVER_BACKOFF, pauseCount, random);
        waitUntilMs = nowMs() + Math.min(pauseMs, MAX_RECEIVER_PAUSE_MS);
        return;
      }
      const attempts = (retryByKey.get(key)?.attempts ?? 0) + 1;
      retryByKey.set(key, { attempts, atMs: nowMs() + backoffMs(INCIDENT_BACKOFF, attempts, random) });
      failedIncidentKeys.add(key);
      if (!isReceiverDown()) return;
      failedProbeCount += 1;
      waitUntilMs = nowMs() + backoffMs(RECEIVER_BACKOFF, failedProbeCount, random);
    },

    /** Resets all back-offs after a success. Returns the incidents that failed only because the receiver was down. */
    recordSuccess(): readonly string[] {
      const releasedIncidentKeys = isReceiverDown() ? [...failedIncidentKeys] : [];
      for (const key of releasedIncidentKeys) retryByKey.delete(key);
      failedIncidentKeys.clear();
      failedCallCount = 0;
      failedProbeCount = 0;
      pauseCount = 0;
      lastFailure = null;
      waitUntilMs = Number.NEGATIVE_INFINITY;
      return releasedIncidentKeys;
    },

    clearRetry: (key: string) => void retryByKey.delete(key),
    countPendingRetries: (isCounted: (key: string) => boolean) => retryByKey.keys().filter(isCounted).toArray().length,

    /** Returns the last failure and the next retry; undefined after a success or without a pending retry. */
    describeFailure(): FailedRequest | undefined {
      if (lastFailure === null || (retryByKey.size === 0 && waitMs() === 0)) return undefined;
      const nextRetryInMs = (retryByKey.get(findEarliestRetryKey() ?? "")?.atMs ?? Number.NEGATIVE_INFINITY) - nowMs();
      return { error: lastFailure, attempts: failedCallCount, retryInMs: Math.max(0, waitMs() || nextRetryInMs) };
    },
  };
}

/** Longest wait for a rate limit during the sending of one incident, which can take two calls. */
const MAX_RATE_LIMIT_WAIT_MS = 2_500;

type RateLimitedCalls = ReturnType<typeof createRateLimitedCalls>;

/** Limits the rate of calls to a receiver. `onDelivered` runs after each successful call, except `find`. */
export function createRateLimitedCalls(rates: readonly RateLimit[], clock: Clock, onDelivered: () => void) {
  const rateLimiters = rates.map((rate) => ({ rate, callTimesMs: [] as number[] }));
  const findRateLimiters = (kind: ReceiverCall) =>
    rateLimiters.filter(({ rate }) => rate.limitedCalls?.includes(kind) ?? true);
  const receiverErrors = new WeakSet<object>();

  function computeWaitMs(kind: ReceiverCall): number {
    const waitTimesMs = findRateLimiters(kind).map(({ rate, callTimesMs: times }) => {
      const [oldestCallMs] = times.length < rate.count ? [] : times;
      return oldestCallMs === undefined ? 0 : oldestCallMs + rate.windowMs - clock.monotonic();
    });
    return Math.max(0, ...waitTimesMs);
  }

  async function callWithinRateLimits<T>(kind: ReceiverCall, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    const ms = computeWaitMs(kind);
    if (ms > MAX_RATE_LIMIT_WAIT_MS) throw new Throttled("The receiver's rate limit is used up for now.", ms);
    if (ms > 0) await clock.sleep(ms, signal);
    const limitersOfCall = findRateLimiters(kind);
    for (const { rate, callTimesMs: times } of limitersOfCall) {
      times.push(clock.monotonic());
      if (times.length > rate.count) times.shift();
    }
    try {
      const result = await work();
      if (kind !== "find") onDelivered();
      return result;
    } finally {
      // For the rate limit, count an edit when the edit ends, because an edit may also post a reply.
      if (kind === "update" || kind === "close")
        for (const { callTimesMs: times } of limitersOfCall) times[times.length - 1] = clock.monotonic();
    }
  }

  return {
    waitMs: computeWaitMs,
    /** Returns true for an error of the receiver, as opposed to an error of the stored state. */
    isReceiverError: (error: unknown) => typeof error === "object" && error !== null && receiverErrors.has(error),
    async call<T>(kind: ReceiverCall, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
      try {
        return await callWithinRateLimits(kind, signal, work);
      } catch (error) {
        if (typeof error === "object" && error !== null) receiverErrors.add(error);
        throw error;
      }
    },
  };
}

export type IncidentNotifier = ReturnType<typeof createIncidentNotifier>;

/**
 * Brings the receiver up to date with one incident. Stores each intent before the request and each result after it:
 *     store "opening" → open → store the reference        after a crash: search for it
 *     store "in doubt" → close → store "closed"           after a crash: send again
 */
export function createIncidentNotifier(
  receiver: AlarmReceiver,
  call: RateLimitedCalls["call"],
  buildMessage: (storedIncident: StoredIncident) => IncidentMessage,
  wallMs: () => number,
  monotonicMs: () => number,
  storeIncident: (storedIncident: StoredIncident) => Promise<StoredIncident>,
) {
  const computeStoredDigest = (storedIncident: StoredIncident) => computeMessageDigest(buildMessage(storedIncident));

  function storeSentIncident(
    storedIncident: StoredIncident,
    reference: IncidentReference,
    isClosed: boolean,
    digestToStore?: string,
  ) {
    const { lookAtMs: _, openingAs: __, refused: ___, ...sentIncident } = storedIncident;
    const { retriggers, status } = storedIncident;
    const digest = digestToStore ?? computeStoredDigest(storedIncident);
    const sentState = { place: reference, status, retriggers, digest, isClosed, atMs: monotonicMs() };
    return storeIncident({ ...sentIncident, openingMs: null, told: sentState });
  }

  async function openIncidentAtReceiver(incident: StoredIncident, signal: AbortSignal): Promise<StoredIncident> {
    const { openingMs } = incident;
    let mayExistAtReceiver = openingMs !== null;
    if (openingMs !== null && receiver.find !== undefined) {
      const message = buildMessage(incident);
      const searchResult = await call("find", signal, async () => receiver.find?.(message, openingMs, signal));
      if (searchResult && "retryInMs" in searchResult)
        return storeIncident({ ...incident, lookAtMs: monotonicMs() + searchResult.retryInMs });
      // The content of a found incident may be outdated, so store an empty digest, which causes an update.
      if (searchResult) return storeSentIncident(incident, searchResult, false, "");
      mayExistAtReceiver = false;
    }
    // Store the time before each `open` call: a search after a crash begins at this time.
    const storedOpening = await storeIncident({ ...incident, ...buildIncidentIdentity(incident), openingMs: wallMs() });
    try {
      const message = buildMessage(storedOpening);
      const reference = await call("open", signal, () => receiver.open(message, signal, storedOpening.openingAs));
      return await storeSentIncident(storedOpening, reference, false);
    } catch (error) {
      const { openingAs: _, ...unopened } = storedOpening;
      if (!mayExistAtReceiver && wasCertainlyNotExecuted(error)) await storeIncident({ ...unopened, openingMs: null });
      throw error;
    }
  }

  function buildIncidentIdentity(storedIncident: StoredIncident): Pick<StoredIncident, "openingAs"> {
    if (receiver.identify === undefined) return {};
    return {
      openingAs:
        storedIncident.openingAs ?? storedIncident.told?.place.ref ?? receiver.identify(buildMessage(storedIncident)),
    };
  }

  async function sendNextMessage(storedIncident: StoredIncident, signal: AbortSignal): Promise<StoredIncident> {
    const { told } = storedIncident;
    if (told === null) return openIncidentAtReceiver(storedIncident, signal);
    const hasEnded = isResolved(storedIncident);
    const mayBeClosed = told.isClosed || told.isInDoubt === true;
    if (mayBeClosed && !hasEnded && receiver.repeatedOpenEffect !== "findable")
      return openIncidentAtReceiver(storedIncident, signal);
    const message = buildMessage(storedIncident);
    if (told.isClosed !== hasEnded) await storeIncident({ ...storedIncident, told: { ...told, isInDoubt: true } });
    const kind = hasEnded ? "close" : "update";
    const reference = await call(kind, signal, () => receiver[kind](message, told.place, signal));
    if (reference !== "gone") return storeSentIncident(storedIncident, reference, hasEnded);
    // The incident no longer exists at the receiver: open another incident only for an active alarm.
    if (hasEnded) return storeSentIncident(storedIncident, told.place, true);
    return openIncidentAtReceiver({ ...storedIncident, told: null, openingMs: null }, signal);
  }

  function needsIncidentMessage(storedIncident: StoredIncident): boolean {
    const { openingMs, told } = storedIncident;
    if (told === null || told.isInDoubt === true) return true;
    if (isResolved(storedIncident)) return !told.isClosed || openingMs !== null;
    return told.isClosed || told.digest !== computeStoredDigest(storedIncident);
  }

  const waitsForIncidentSearch = ({ lookAtMs, openingMs }: StoredIncident) =>
    openingMs !== null && lookAtMs !== undefined && monotonicMs() < lookAtMs;

  return {
    computeDigest: computeStoredDigest,
    needsSending: needsIncidentMessage,

    /** Sends an incident; throws the receiver's error. With `resendsUnchanged`, also sends an unchanged incident. */
    async send(storedIncident: StoredIncident, resendsUnchanged: boolean, signal: AbortSignal): Promise<void> {
      if (resendsUnchanged && storedIncident.told !== null) return void (await sendNextMessage(storedIncident, signal));
      let incident = storedIncident;
      for (let step = 0; step < 3 && needsIncidentMessage(incident) && !waitsForIncidentSearch(incident); step += 1)
        incident = await sendNextMessage(incident, signal);
    },
  };
}

function wasCertainlyNotExecuted(error: unknown): boolean {
  const failure = asFailure(error);
  if (failure instanceof Throttled) return failure.scope === "allowance";
  return failure instanceof ConfigError || failure instanceof Rejected;
}

/** Digest of the visible text. Changes of event id, change name or time series alone need no message. */
export function computeMessageDigest({ text, status, priority, link }: IncidentMessage): string {
  const { timeSeriesLines: _, ...visibleText } = text;
  return hash("sha256", JSON.stringify([visibleText, status, priority, link]), "base64url");
}

export async function runTestAlarm(
  receiver: AlarmReceiver,
  buildMessageOf: (storedIncident: StoredIncident) => IncidentMessage,
  clock: Pick<Clock, "now">,
  report: (line: string) => void,
  signal: AbortSignal,
): Promise<void> {
  const nowMs = clock.now();
  const incident = createStoredIncident("test", "plenum", String(nowMs), {
    ...{ priority: "C", change: "raised", changeId: `test.${nowMs}`, startedAt: isoUtc(nowMs) },
    ...{ metMs: nowMs, holdFromMs: nowMs, changedMs: nowMs, through: 0 },
  });
  const buildTestMessage = (stepName: string, state: Partial<StoredIncident>) =>
    buildMessageOf({ ...incident, ...state, changeId: `${incident.changeId}.${stepName}` });
  const reportTestStep = (completedStep: string, reference: IncidentReference | "gone") => {
    if (reference === "gone") report(`${completedStep}: it is not there any more`);
    else report([completedStep, reference.ticket, reference.link].filter((text) => text !== null).join(" "));
  };

  const openedReference = await receiver.open(buildTestMessage("opened", {}), signal);
  reportTestStep("opened", openedReference);
  const acknowledgedMessage = buildTestMessage("changed", { status: "acknowledged", change: "acknowledged" });
  const updatedReference = await receiver.update(acknowledgedMessage, openedReference, signal);
  reportTestStep("changed", updatedReference);
  if (updatedReference === "gone") return;
  const endedAt = isoUtc(clock.now());
  const endMessage = buildTestMessage("closed", { status: "resolved", change: "resolved", endedAt });
  reportTestStep("closed", await receiver.close(endMessage, updatedReference, signal));
}
