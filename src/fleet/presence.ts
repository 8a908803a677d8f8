import type { Clock } from "../clock.ts";
import { ConfigError, sentence } from "../errors.ts";
import type { Log } from "../log.ts";
import type { Metrics } from "../metrics.ts";
import type { StateDatabase } from "../store/postgres/state-database.ts";
import { rest } from "../waiting.ts";
import { answered } from "./answered.ts";
import {
  announceLeaving,
  leave,
  type Myself,
  nameTaken,
  type Occupied,
  type Registration,
  register,
  renew,
} from "./membership.ts";
import type { Timing } from "./timing.ts";
import type { Trust } from "./trust.ts";

/** This member among the others: it comes, says again and again that it is there, and says goodbye. */
export interface Presence {
  /** Null while it does not take part. */
  me(): Myself | null;
  /**
   * Renews, or registers where it does not take part. Throws a `ConfigError` where another has its name or others run
   * another configuration, whatever the database throws, and the signal's reason.
   */
  turn(signal: AbortSignal): Promise<void>;
  /** It takes nothing any more. */
  announceLeaving(): Promise<void>;
  leave(): Promise<void>;
}

export interface PresenceOptions {
  readonly database: StateDatabase;
  readonly registration: Omit<Registration, "page" | "ttlMs">;
  readonly page: () => string;
  readonly timing: Timing;
  readonly trust: Trust;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics?: Pick<Metrics, "fleetRenewed">;
  /** It was taken for dead: what it held may be somebody else's. */
  buried(): void;
  /** It takes part from now on. */
  arrived(): void;
}

export function createPresence(options: PresenceOptions): Presence {
  const { clock, database, log, metrics, registration, timing, trust } = options;
  const { ttlMs, renewMs } = timing;
  let me: Myself | null = null;
  let isLeaving = false;

  const ask = <T>(work: Promise<T>) => answered(clock, renewMs, work);

  async function registerOnce(): Promise<Occupied | null> {
    const sent = trust.mark();
    const answer = await ask(register(database, { ...registration, page: options.page(), ttlMs }));
    if (!("name" in answer)) return answer;
    me = answer;
    renewed(sent);
    log.info({ member: me.name, incarnation: me.incarnation }, "this member takes part in the fleet");
    options.arrived();
    return null;
  }

  /**
   * A process that was killed and comes again finds its former self, which is still counted as alive for a moment: that
   * one is waited for. One that renews meanwhile is somebody else.
   */
  async function arrive(signal: AbortSignal): Promise<void> {
    const first = await registerOnce();
    if (first === null) return;
    log.info({ host: first.host }, "waiting whether another member with this name is alive");
    for (;;) {
      await rest(clock, renewMs / 3, signal);
      signal.throwIfAborted();
      const now = await registerOnce();
      if (now === null) return;
      if (now.seenAt !== first.seenAt || now.incarnation !== first.incarnation) {
        throw nameTaken(registration.name, now);
      }
    }
  }

  function renewed(sent: ReturnType<Trust["mark"]>): void {
    trust.renewed(sent);
    metrics?.fleetRenewed.set(clock.now() / 1_000);
  }

  return {
    me: () => me,
    async turn(signal) {
      if (me !== null) {
        const sent = trust.mark();
        if (await ask(renew(database, me, ttlMs, options.page()))) return renewed(sent);
        if (isLeaving) return;
        log.warn({ member: me.name }, "this member was not heard of in time, and others took over");
        me = null;
        options.buried();
      }
      // Whoever has said goodbye does not come again.
      if (!isLeaving) await arrive(signal);
    },
    async announceLeaving() {
      isLeaving = true;
      if (me !== null) await ask(announceLeaving(database, me));
    },
    async leave() {
      if (me === null) return;
      await ask(leave(database, me));
      me = null;
    },
  };
}

/** What a person has to change before this member can take part; null for what may pass by itself. */
export function refusalOf(error: unknown): string | null {
  return error instanceof ConfigError ? sentence(error) : null;
}
