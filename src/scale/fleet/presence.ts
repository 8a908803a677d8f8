import { ConfigError, sentence } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import { sleepFor } from "../../core/runtime/waiting.ts";
import type { StateDatabase } from "../postgres/state-database.ts";
import { answered } from "./answered.ts";
import type { Heartbeats } from "./heartbeats.ts";
import {
  announceLeaving,
  type Blocker,
  bury,
  leave,
  type Myself,
  type Registration,
  refusalBy,
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
  readonly registration: Omit<Registration, "page">;
  readonly page: () => string;
  readonly timing: Timing;
  readonly trust: Trust;
  readonly heartbeats: Heartbeats;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics?: Pick<Metrics, "fleetRenewed">;
  /** It was taken for dead: what it held may be somebody else's. */
  buried(): void;
  /** It takes part from now on. */
  arrived(): void;
}

export function createPresence(options: PresenceOptions): Presence {
  const { clock, database, heartbeats, log, metrics, registration, timing, trust } = options;
  const { renewMs } = timing;
  let me: Myself | null = null;
  let isLeaving = false;

  const ask = <T>(work: Promise<T>) => answered(clock, renewMs, work);

  /** The members that keep this one out; none when it takes part now. */
  async function registerOnce(): Promise<readonly Blocker[]> {
    const sent = trust.mark();
    const answer = await ask(register(database, { ...registration, page: options.page() }));
    if ("blockers" in answer) {
      const silent = heartbeats.observe(answer.beats);
      if (silent.length > 0) await ask(bury(database, silent));
      return answer.blockers;
    }
    me = answer;
    renewed(sent);
    log.info({ member: me.name, incarnation: me.incarnation }, "this member takes part in the fleet");
    options.arrived();
    return [];
  }

  /**
   * A process that was killed and comes again finds its former self, which counts as alive until it was silent for the
   * lease duration, and after a change of the configuration it finds others that were killed. One that renews meanwhile
   * is alive, and keeps this member out.
   */
  async function arrive(signal: AbortSignal): Promise<void> {
    const first = await registerOnce();
    const [blocker] = first;
    if (blocker === undefined) return;
    log.info({ member: blocker.name, host: blocker.host }, "waiting whether another member is still alive");
    const renewals = new Map(first.map((each) => [each.incarnation, each.renewals]));
    for (;;) {
      await sleepFor(clock, renewMs / 3, signal);
      signal.throwIfAborted();
      const now = await registerOnce();
      if (now.length === 0) return;
      const alive = now.find((each) => renewals.get(each.incarnation) !== each.renewals);
      if (alive !== undefined) throw refusalBy(alive, registration.name);
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
        if (await ask(renew(database, me, options.page()))) return renewed(sent);
        if (isLeaving) return;
        log.warn({ member: me.name }, "this member was not heard of in time, and others took over");
        me = null;
        options.buried();
      }
      // A member that signed off does not register again.
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

/** Advice when a person has to fix something before this member can join; null for temporary failures. */
export function refusalOf(error: unknown): string | null {
  return error instanceof ConfigError ? sentence(error) : null;
}
