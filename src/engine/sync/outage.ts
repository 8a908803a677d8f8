import { ConfigError, type Failure, LocalFailure, meaningOf, sentence, Throttled } from "../../core/errors/errors.ts";
import { LOCAL_RETRY_MS } from "../../core/errors/local-failure.ts";
import { backoffMs } from "../../core/runtime/backoff.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { abortable, createWakeup, sleepFor, WOKEN } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Source } from "../source/source.ts";
import type { Availability } from "./availability.ts";
import type { JobOutcome } from "./job.ts";
import { ORDERED_BACKOFF_MS } from "./retry-times.ts";
import type { TokenScope } from "./scope.ts";
import type { StoredHealth } from "./snapshot.ts";

/**
 * An outage of the complete service: it rejects the token, is in maintenance, or cannot be reached. Everything pauses except one
 * probe, and the stored state stays as it was. When the service is back, `source-available` comes first; then one pass emits the
 * contents of each page, and compares everything before it reports absences.
 */
export interface Outage {
  isOn(): boolean;
  /** Resolves when the service is available; at once when it is. */
  over(signal: AbortSignal): Promise<void>;
  /** Resolves when an outage begins; at once during one. */
  begun(signal: AbortSignal): Promise<void>;
  /** Judges a failed job; true when it means an outage. */
  judge(failure: Failure, of: FailedJob, signal: AbortSignal): Promise<boolean>;
  /** Probes during an outage until the service is back. Runs in parallel to everything else. */
  watch(signal: AbortSignal): Promise<void>;
  /** Any job has succeeded. */
  noteSuccess(): void;
}

export interface FailedJob {
  /** It has failed before and has not succeeded since. */
  readonly repeated: boolean;
  /** It asks `GET me`, which is what others are judged by. */
  readonly isAboutMe: boolean;
}

export interface OutageOptions {
  readonly source: Source;
  readonly clock: Clock;
  readonly log: Log;
  readonly random: () => number;
  readonly availability: Availability;
  readonly scope: Pick<TokenScope, "refresh" | "explain">;
  /** The service's own word about its health, asked while it is away; null when it is back. It decides nothing. */
  readonly noteHealth: (health: StoredHealth | null) => Promise<void>;
  /** The pass that compares everything; its commits carry the good news. Null while alarms are not followed. */
  readonly reconcile: () => ((signal: AbortSignal) => Promise<JobOutcome>) | null;
  /** A text that changes when the token does, to try a new one at once; null when that cannot be known. */
  readonly tokenStamp: (() => Promise<string>) | null;
}

/**
 * A refused token is tried again every minute at first, because it may have been renewed under the same secret, later
 * every 8 minutes, so that an hour costs 12 requests; one that was changed is tried within 5 seconds (milliseconds).
 */
const REFUSED_TOKEN_MS = 60_000;
const REFUSED_TOKEN_LATER_MS = 480_000;
const SOON_PROBES = 5;
const TOKEN_LOOK_MS = 5_000;
/** The health check is asked at most this often, in milliseconds. */
const HEALTH_EVERY_MS = 60_000;
/**
 * After `GET me` was asked whether a failure is everybody's, the next failure does not ask again for so long
 * (milliseconds): an endpoint that answers 500 for ten minutes costs 10 questions, not one with each of its 100 tries.
 */
const WORD_EVERY_MS = 60_000;
/** A service that cannot be reached is tried again after 5 s at first and every 30 s at most. */
const UNREACHABLE = { firstMs: 5_000, maxMs: 30_000 };
/**
 * For so long after an outage, and after the last time that this counted, a question that fails is not enough for
 * another: nothing at all may have come for a minute, in milliseconds. Where `GET me` fails and lists come, the service
 * would be away and back every five seconds.
 */
const RELAPSE_MS = 600_000;
const SILENT_MS = 60_000;
/** Maintenance without a stated end: the source room keeps the requests back as long as it thinks right. */
const MAINTENANCE_MS = 30_000;
/** Passes over a list that moves too much to be compared, after which life goes on without. */
const PASSES = 3;

export function createOutage(options: OutageOptions): Outage {
  const { source, clock, log, random, availability, scope, tokenStamp } = options;
  let cause: Failure | null = null;
  let attempts = 0;
  let lastSuccessMs = Number.NEGATIVE_INFINITY;
  let suspectSinceMs: number | null = null;
  let endedMs = Number.NEGATIVE_INFINITY;
  let relapseUntilMs = Number.NEGATIVE_INFINITY;
  let healthAskedMs = Number.NEGATIVE_INFINITY;
  let wordAskedMs = Number.NEGATIVE_INFINITY;
  /** Rings when an outage begins or ends. */
  const turns = createWakeup();

  const isOn = () => cause !== null || availability.isDown();

  async function begin(failure: Failure): Promise<void> {
    if (!isOn()) {
      log.warn({ err: failure }, "the service is unavailable; polling pauses");
      await availability.down(reasonOf(failure));
    }
    cause = failure;
    turns.wakeUp();
  }

  async function until(holds: () => boolean, signal: AbortSignal): Promise<void> {
    while (!holds()) await abortable(turns.nextWakeup(signal), signal);
  }

  /** A hint for a person who looks; whatever comes of it. */
  async function askHealth(signal: AbortSignal): Promise<void> {
    if (clock.monotonic() - healthAskedMs < HEALTH_EVERY_MS) return;
    healthAskedMs = clock.monotonic();
    try {
      const { status, time } = await source.health(signal);
      await options.noteHealth({ status, time, askedAt: isoUtc(clock.now()) });
    } catch (error) {
      signal.throwIfAborted();
      log.debug({ err: error }, "the health check could not be asked");
    }
  }

  const wasAskedLately = () => clock.monotonic() - wordAskedMs < WORD_EVERY_MS;

  /** The word of `GET me`: null when it answers. */
  async function askMe(signal: AbortSignal): Promise<Failure | null> {
    wordAskedMs = clock.monotonic();
    try {
      await scope.refresh(signal);
      return null;
    } catch (error) {
      signal.throwIfAborted();
      return meaningOf(error);
    }
  }

  /** Decides what a rejection means for the complete service. Requests `GET me` once a minute at most. */
  async function wordAbout(failure: ConfigError, signal: AbortSignal): Promise<Failure | null> {
    if (failure.reason === "unauthenticated") return failure;
    if (failure.reason !== "forbidden" && failure.reason !== "validation") {
      return wasAskedLately() ? null : askMe(signal);
    }
    try {
      await scope.explain({ siteIds: [], ability: null, atMs: clock.monotonic() }, signal);
      return null;
    } catch (error) {
      signal.throwIfAborted();
      return meaningOf(error);
    }
  }

  async function waitForProbe(signal: AbortSignal): Promise<void> {
    // The last probe never left: it was none.
    if (cause instanceof LocalFailure) return clock.sleep(LOCAL_RETRY_MS, signal);
    attempts += 1;
    if (!isForPerson(cause)) {
      const told =
        cause instanceof Throttled ? Math.min(cause.retryAfterMs ?? MAINTENANCE_MS, ORDERED_BACKOFF_MS) : null;
      await clock.sleep(told ?? backoffMs(UNREACHABLE, attempts, random), signal);
      return;
    }
    const before = await tokenStamp?.();
    const waitMs = attempts <= SOON_PROBES ? REFUSED_TOKEN_MS : REFUSED_TOKEN_LATER_MS;
    const untilMs = clock.monotonic() + waitMs;
    while (clock.monotonic() < untilMs) {
      await clock.sleep(tokenStamp === null ? waitMs : TOKEN_LOOK_MS, signal);
      if ((await tokenStamp?.()) !== before) return;
    }
  }

  /** The probe of a service that ordered a long wait is itself kept back by the source: the health is asked meanwhile. */
  async function probeNotingHealth(signal: AbortSignal): Promise<Failure | null> {
    if (!(cause instanceof Throttled)) return probe(signal);
    const over = new AbortController();
    const noting = (async () => {
      while (await sleepFor(clock, HEALTH_EVERY_MS, over.signal, signal)) await askHealth(signal);
    })().catch(() => undefined);
    try {
      return await probe(signal);
    } finally {
      over.abort(WOKEN);
      await noting;
    }
  }

  /** Null after the service is back and `source-available` was emitted. */
  async function probe(signal: AbortSignal): Promise<Failure | null> {
    const reconcile = options.reconcile();
    if (isRefusedToken(cause) || reconcile === null) {
      const trouble = await askMe(signal);
      if (trouble !== null) return trouble;
    }
    try {
      for (let pass = 0; reconcile !== null && pass < PASSES; pass += 1) {
        if ((await reconcile(signal)).kind === "ok") break;
      }
    } catch (error) {
      signal.throwIfAborted();
      const failure = meaningOf(error);
      // Pages were emitted after `source-available`: a temporary failure does not revoke that.
      const isAway = availability.isDown() || failure instanceof ConfigError || failure instanceof Throttled;
      if (!isAnswer(failure) && isAway) {
        await availability.down(reasonOf(failure));
        return failure;
      }
    }
    await availability.up();
    return null;
  }

  return {
    isOn,
    async over(signal) {
      await until(() => !isOn(), signal);
    },
    async begun(signal) {
      await until(isOn, signal);
    },
    noteSuccess() {
      lastSuccessMs = clock.monotonic();
      suspectSinceMs = null;
    },

    async judge(failure, { repeated, isAboutMe }, signal) {
      if (isOn()) return true;
      if (failure instanceof LocalFailure) return false;
      if (failure instanceof ConfigError) {
        // Another address than the service's answers 404 to every job; to this one alone also a service that is there.
        if (isAboutMe && failure.reason === "settings") return false;
        const whole = await wordAbout(failure, signal);
        if (whole instanceof ConfigError && !isAnswer(whole)) await begin(whole);
        return isOn();
      }
      if (failure instanceof Throttled) {
        if (failure.scope === "everything") await begin(failure);
        return isOn();
      }
      suspectSinceMs ??= clock.monotonic();
      if (!repeated || lastSuccessMs > suspectSinceMs) return false;
      const nowMs = clock.monotonic();
      if (nowMs < relapseUntilMs && nowMs - Math.max(lastSuccessMs, endedMs) < SILENT_MS) {
        relapseUntilMs = nowMs + RELAPSE_MS;
        return false;
      }
      if (wasAskedLately()) return false;
      const whole = await askMe(signal);
      if (whole instanceof LocalFailure) return false;
      if (whole === null || isAnswer(whole)) suspectSinceMs = null;
      else await begin(whole);
      return isOn();
    },

    async watch(signal) {
      for (;;) {
        await until(isOn, signal);
        attempts = 0;
        while (isOn()) {
          // After a restart in the middle of an outage the cause is not known any more: look at once.
          if (cause !== null) {
            if (!isForPerson(cause)) await askHealth(signal);
            await waitForProbe(signal);
          }
          const before = cause;
          try {
            cause = await probeNotingHealth(signal);
          } catch (error) {
            signal.throwIfAborted();
            cause = meaningOf(error);
            log.error({ err: error }, "the end of an outage could not be recorded");
          }
          // Waits for an unavailable service do not count for a token that is rejected now.
          if (isForPerson(before) !== isForPerson(cause)) attempts = 0;
        }
        log.info("the service is back");
        endedMs = clock.monotonic();
        relapseUntilMs = endedMs + RELAPSE_MS;
        suspectSinceMs = null;
        if (Number.isFinite(healthAskedMs)) await options.noteHealth(null);
        healthAskedMs = Number.NEGATIVE_INFINITY;
        turns.wakeUp();
      }
    },
  };
}

/** Refused or told to wait, but by a service that is there. */
function isAnswer(failure: Failure): boolean {
  if (failure instanceof Throttled) return failure.scope === "allowance";
  return failure instanceof ConfigError && failure.reason === "forbidden";
}

/** Mended by a person: a token that is refused, or an address that is not the service's. */
function isForPerson(cause: Failure | null): boolean {
  return cause instanceof ConfigError;
}

function isRefusedToken(cause: Failure | null): boolean {
  return cause instanceof ConfigError && cause.reason === "unauthenticated";
}

function reasonOf(failure: Failure): string {
  const kind =
    failure instanceof ConfigError
      ? failure.reason
      : failure instanceof Throttled
        ? "maintenance"
        : failure.kind === "malformed"
          ? "unusable-answers"
          : "unreachable";
  return `${kind}: ${sentence(failure)}`;
}
