import { hash } from "node:crypto";
import type { FailedRequest } from "../../../src/core/connector.ts";
import { asFailure, ConfigError, type Failure, Rejected, Throttled } from "../../../src/core/errors/errors.ts";
import { backoffMs } from "../../../src/core/runtime/backoff.ts";
import type { Clock } from "../../../src/core/runtime/clock.ts";
import { isoUtc } from "../../../src/core/values/iso-utc.ts";
import type { IncidentMessage, IncidentReference, RateLimit, Receiver, ReceiverCall } from "./receiver.ts";
import { createIncident, isOver, type StoredIncident } from "./stored-incident.ts";

const RECEIVER_BACKOFF = { firstMs: 1_000, maxMs: 300_000 };
const INCIDENT_BACKOFF = { firstMs: 1_000, maxMs: 60_000 };
/** Number of different incidents that must fail in a row before the receiver counts as down. */
const DOWN_AFTER_FAILURES = 6;
/** Longest pause that a Retry-After header can cause; a wrong header must not stop a sink for years. */
const MAX_PAUSE_MS = 86_400_000;

export type IncidentRetries = ReturnType<typeof createRetries>;

/**
 * Decides when to call a receiver again after failures. Each failed incident has a back-off; a success resets all.
 *
 *     up ──► 6 different incidents failed in a row ──► down: one call at a time, longer waits ──► one succeeds ──► up
 */
export function createRetries(nowMs: () => number, random: () => number = Math.random) {
  const retryByKey = new Map<string, { readonly attempts: number; readonly atMs: number }>();
  const failedKeys = new Set<string>();
  let calls = 0;
  let probes = 0;
  let pauses = 0;
  let waitUntilMs = Number.NEGATIVE_INFINITY;
  let lastFailure: Failure | null = null;

  const isDown = () => failedKeys.size >= DOWN_AFTER_FAILURES;
  const waitMs = () => Math.max(0, waitUntilMs - nowMs());

  function earliest(): string | undefined {
    let first: string | undefined;
    let firstMs = Number.POSITIVE_INFINITY;
    for (const [key, { atMs }] of retryByKey) if (atMs < firstMs) [first, firstMs] = [key, atMs];
    return first;
  }

  return {
    waitMs,
    againMs: (key: string) => retryByKey.get(key)?.atMs,
    /** Returns true while the receiver is down. Then only one call at a time is made. */
    isDown,
    earliest,

    failed(key: string, failure: Failure): void {
      lastFailure = failure;
      calls += 1;
      // A 503 without a time may concern one request only.
      if (failure.kind === "throttled" && (failure.scope === "allowance" || failure.retryAfterMs !== null)) {
        pauses += 1;
        const ms = failure.retryAfterMs ?? backoffMs(RECEIVER_BACKOFF, pauses, random);
        waitUntilMs = nowMs() + Math.min(ms, MAX_PAUSE_MS);
        return;
      }
      const attempts = (retryByKey.get(key)?.attempts ?? 0) + 1;
      retryByKey.set(key, { attempts, atMs: nowMs() + backoffMs(INCIDENT_BACKOFF, attempts, random) });
      failedKeys.add(key);
      if (!isDown()) return;
      probes += 1;
      waitUntilMs = nowMs() + backoffMs(RECEIVER_BACKOFF, probes, random);
    },

    /** Resets all back-offs after a success. Returns the incidents that failed only because the receiver was down. */
    delivered(): readonly string[] {
      const released = isDown() ? [...failedKeys] : [];
      for (const key of released) retryByKey.delete(key);
      failedKeys.clear();
      calls = 0;
      probes = 0;
      pauses = 0;
      lastFailure = null;
      waitUntilMs = Number.NEGATIVE_INFINITY;
      return released;
    },

    forget: (key: string) => void retryByKey.delete(key),
    size: () => retryByKey.size,

    /** Returns the last failure and the next retry; undefined after a success or without a pending retry. */
    failing(): FailedRequest | undefined {
      if (lastFailure === null || (retryByKey.size === 0 && waitMs() === 0)) return undefined;
      const ownMs = (retryByKey.get(earliest() ?? "")?.atMs ?? Number.NEGATIVE_INFINITY) - nowMs();
      return { error: lastFailure, attempts: calls, retryInMs: Math.max(0, waitMs() || ownMs) };
    },
  };
}

/** Longest wait for the rate limit inside one incident: a search and an opening are two calls. */
const MAX_RATE_LIMIT_WAIT_MS = 2_500;

type RateLimitedCalls = ReturnType<typeof createRateLimitedCalls>;

/** `onDelivered` runs after each successful call that sends something. */
export function createRateLimitedCalls(rates: readonly RateLimit[], clock: Clock, onDelivered: () => void) {
  const limits = rates.map((rate) => ({ rate, times: [] as number[] }));
  const findLimits = (kind: ReceiverCall) => limits.filter(({ rate }) => rate.of?.includes(kind) ?? true);
  const receiverErrors = new WeakSet<object>();

  function waitMs(kind: ReceiverCall): number {
    const waits = findLimits(kind).map(({ rate, times }) => {
      const [oldest] = times.length < rate.count ? [] : times;
      return oldest === undefined ? 0 : oldest + rate.inMs - clock.monotonic();
    });
    return Math.max(0, ...waits);
  }

  async function callWithinLimits<T>(kind: ReceiverCall, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    const ms = waitMs(kind);
    if (ms > MAX_RATE_LIMIT_WAIT_MS) throw new Throttled("The receiver's rate limit is used up for now.", ms);
    if (ms > 0) await clock.sleep(ms, signal);
    const counting = findLimits(kind);
    for (const { rate, times } of counting) {
      times.push(clock.monotonic());
      if (times.length > rate.count) times.shift();
    }
    try {
      const result = await work();
      if (kind !== "find") onDelivered();
      return result;
    } finally {
      // An edit may include a reply, which is another message, so the end counts.
      if (kind === "update" || kind === "close")
        for (const { times } of counting) times[times.length - 1] = clock.monotonic();
    }
  }

  return {
    waitMs,
    /** Returns true for an error of the receiver, as opposed to an error of the stored state. */
    threw: (error: unknown) => typeof error === "object" && error !== null && receiverErrors.has(error),
    async call<T>(kind: ReceiverCall, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
      try {
        return await callWithinLimits(kind, signal, work);
      } catch (error) {
        if (typeof error === "object" && error !== null) receiverErrors.add(error);
        throw error;
      }
    },
  };
}

export type Notifier = ReturnType<typeof createNotifier>;

/**
 * Brings the receiver up to date with one incident. Stores each intent before the request and each result after it:
 *
 *     store "opening" → open → store the reference        after a crash: search for it
 *     store "in doubt" → close → store "closed"           after a crash: send again
 */
export function createNotifier(options: {
  readonly receiver: Receiver;
  readonly call: RateLimitedCalls["call"];
  readonly buildMessage: (stored: StoredIncident) => IncidentMessage;
  readonly wallMs: () => number;
  readonly monotonicMs: () => number;
  readonly store: (stored: StoredIncident) => Promise<void>;
}) {
  const { receiver, call, buildMessage, wallMs, monotonicMs } = options;
  const digestOfIncident = (stored: StoredIncident) => digestMessage(buildMessage(stored));

  async function store(stored: StoredIncident): Promise<StoredIncident> {
    await options.store(stored);
    return stored;
  }

  function storeSent(
    stored: StoredIncident,
    place: IncidentReference,
    isClosed: boolean,
    digest = digestOfIncident(stored),
  ) {
    const { lookAtMs: _, openingAs: __, refused: ___, ...rest } = stored;
    const { retriggers, status } = stored;
    const told = { place, status, retriggers, digest, isClosed, atMs: monotonicMs() };
    return store({ ...rest, openingMs: null, told });
  }

  async function open(before: StoredIncident, signal: AbortSignal): Promise<StoredIncident> {
    const { openingMs } = before;
    let mayExist = openingMs !== null;
    if (openingMs !== null && receiver.find !== undefined) {
      const found = await call("find", signal, async () => receiver.find?.(buildMessage(before), openingMs, signal));
      if (found && "againInMs" in found) return store({ ...before, lookAtMs: monotonicMs() + found.againInMs });
      // The content of a found incident may be outdated, so the digest stays empty.
      if (found) return storeSent(before, found, false, "");
      mayExist = false;
    }
    // Store a new start even after a search found nothing: a later search begins there.
    const stored = await store({ ...before, ...identityOf(before), openingMs: wallMs() });
    try {
      const place = await call("open", signal, () => receiver.open(buildMessage(stored), signal, stored.openingAs));
      return await storeSent(stored, place, false);
    } catch (error) {
      const { openingAs: _, ...rest } = stored;
      if (!mayExist && isCertainlyNotDone(error)) await store({ ...rest, openingMs: null });
      throw error;
    }
  }

  function identityOf(stored: StoredIncident): Pick<StoredIncident, "openingAs"> {
    if (receiver.identify === undefined) return {};
    return { openingAs: stored.openingAs ?? stored.told?.place.ref ?? receiver.identify(buildMessage(stored)) };
  }

  async function sendStep(stored: StoredIncident, signal: AbortSignal): Promise<StoredIncident> {
    const { told } = stored;
    if (told === null) return open(stored, signal);
    const over = isOver(stored);
    const mayBeClosed = told.isClosed || told.isInDoubt === true;
    if (mayBeClosed && !over && receiver.opensAgain !== "findable") return open(stored, signal);
    const message = buildMessage(stored);
    if (told.isClosed !== over) await store({ ...stored, told: { ...told, isInDoubt: true } });
    const kind = over ? "close" : "update";
    const place = await call(kind, signal, () => receiver[kind](message, told.place, signal));
    if (place !== "gone") return storeSent(stored, place, over);
    // The incident was removed there. Open a new one only if the alarm is not over.
    return over ? storeSent(stored, told.place, true) : open({ ...stored, told: null, openingMs: null }, signal);
  }

  function needsSending(stored: StoredIncident): boolean {
    const { openingMs, told } = stored;
    if (told === null || told.isInDoubt === true) return true;
    // A reopening may have succeeded.
    if (isOver(stored)) return !told.isClosed || openingMs !== null;
    return told.isClosed || told.digest !== digestOfIncident(stored);
  }

  const waitsForSearch = ({ lookAtMs, openingMs }: StoredIncident) =>
    openingMs !== null && lookAtMs !== undefined && monotonicMs() < lookAtMs;

  return {
    digestOf: digestOfIncident,
    needsSending,

    /** Throws the error of the receiver. `again`: send although nothing changed. */
    async send(stored: StoredIncident, again: boolean, signal: AbortSignal): Promise<void> {
      if (again && stored.told !== null) return void (await sendStep(stored, signal));
      let now = stored;
      // Opening and closing are two messages even when both are late.
      for (let steps = 0; steps < 3 && needsSending(now) && !waitsForSearch(now); steps += 1)
        now = await sendStep(now, signal);
    },
  };
}

/** Returns true for failures after which the receiver certainly did nothing. */
function isCertainlyNotDone(error: unknown): boolean {
  const failure = asFailure(error);
  if (failure instanceof Throttled) return failure.scope === "allowance";
  return failure instanceof ConfigError || failure instanceof Rejected;
}

/** Digest of the visible text. Changes of event id, change name or time series alone need no message. */
export function digestMessage({ text, status, priority, link }: IncidentMessage): string {
  const { curves: _, ...visible } = text;
  return hash("sha256", JSON.stringify([visible, status, priority, link]), "base64url");
}

export async function runTestAlarm(
  options: {
    readonly receiver: Receiver;
    readonly buildMessage: (stored: StoredIncident) => IncidentMessage;
    readonly clock: Pick<Clock, "now">;
    readonly report: (line: string) => void;
  },
  signal: AbortSignal,
): Promise<void> {
  const { receiver, clock, report } = options;
  const nowMs = clock.now();
  const incident = createIncident("test", "plenum", String(nowMs), {
    ...{ priority: "C", change: "raised", changeId: `test.${nowMs}`, startedAt: isoUtc(nowMs) },
    ...{ metMs: nowMs, holdFromMs: nowMs, changedMs: nowMs, through: 0 },
  });
  const buildMessage = (step: string, state: Partial<StoredIncident>) =>
    options.buildMessage({ ...incident, ...state, changeId: `${incident.changeId}.${step}` });
  const reportStep = (done: string, { ticket, link }: IncidentReference) =>
    report([done, ticket, link].filter((text) => text !== null).join(" "));

  const opened = await receiver.open(buildMessage("opened", {}), signal);
  reportStep("opened", opened);
  const acknowledged = buildMessage("changed", { status: "acknowledged", change: "acknowledged" });
  const changed = await receiver.update(acknowledged, opened, signal);
  if (changed === "gone") return report("changed: it is not there any more");
  reportStep("changed", changed);
  const over = buildMessage("closed", { status: "resolved", change: "resolved", endedAt: isoUtc(clock.now()) });
  const closed = await receiver.close(over, changed, signal);
  if (closed === "gone") return report("closed: it is not there any more");
  reportStep("closed", closed);
}
