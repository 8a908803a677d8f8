import { sentence } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { type Service, Stopping, startedOnce } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import { createWakeup, loop, within } from "../../core/runtime/waiting.ts";
import type { StateDatabase } from "../postgres/state-database.ts";
import { answered } from "./answered.ts";
import { createAssignment } from "./assignment.ts";
import { createFailedStarts } from "./failed-starts.ts";
import { createHandoverLog } from "./handover-log.ts";
import { createHeartbeats } from "./heartbeats.ts";
import type { HeldLease, Lease } from "./lease.ts";
import { giveBack } from "./leases.ts";
import { bury, FLEET, readHeartbeats, reportFailedStart } from "./membership.ts";
import { createHoldings } from "./ownership.ts";
import { createPresence, refusalOf } from "./presence.ts";
import { createReach } from "./reach.ts";
import { readFleet, shown } from "./report.ts";
import type { FleetStatus } from "./status.ts";
import { TIMING, type Timing } from "./timing.ts";
import { createTrust } from "./trust.ts";

export type { HeldLease as Held, Lease } from "./lease.ts";
export type {
  DatabaseStatus,
  FleetStatus,
  MemberState,
  MemberStatus,
  Reason,
  SourceOwnership as SourceHolding,
  Takeover,
} from "./status.ts";

/**
 * A member of a fleet: shares the sources out with the other members of the same database, and holds some of them. No
 * member is special, and none speaks to another; what they have in common is in the tables.
 *
 * Five loops: one renews this member's lease (`presence`), one observes whether the others renew theirs (`heartbeats`), one
 * looks at the tables and does what follows (`sharing`), one checks services that a member does not reach (`reach`), and one
 * watches measured time, so that all ends here before anybody else may begin, also while the database is away.
 */
export interface Fleet extends Service {
  /** For a person. Answers what was known last while the database is away. */
  status(): Promise<FleetStatus>;
  /** A sentence for each thing that is not as it should be. */
  notices(): readonly string[];
}

export interface FleetOptions {
  readonly database: StateDatabase;
  /** Name of this member; unique in the fleet. */
  readonly name: string;
  readonly sources: readonly string[];
  /** Digest of the configuration (`digestOf`): a member with another one is rejected while others run. */
  readonly digest: string;
  /** Address of this member's status page; empty where there is none. */
  page(): string;
  /**
   * Begins what runs for a source. May take seconds, and should end early when the lease's signal aborts; when it throws,
   * the lease is given back, and others may try.
   */
  hold(lease: Lease): Promise<HeldLease>;
  /** One free health check of a source's service, held here or not. Without it no service counts as out of reach. */
  check?(source: string, signal: AbortSignal): Promise<boolean>;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics?: Pick<Metrics, "fleetMembers" | "fleetSources" | "fleetTakeovers" | "fleetRenewed">;
  readonly timing?: Partial<Timing>;
  readonly random?: () => number;
}

/** A look whether the leases have run out, in milliseconds: also after a suspended machine went on. */
const WATCH_MS = 1_000;
/** The last words at a stop, in milliseconds; so long a stop may take beyond its deadline. */
const GOODBYE_MS = 1_000;
/** How long a person waits for the database before what was known last is shown, in milliseconds. */
const STATUS_MS = 2_000;
/** Waits between tries while the database is away. */
const RETRY = { firstMs: 250, maxMs: 1_000 };

/** `start` throws a `ConfigError` where the member is refused: its name is taken, or others run another configuration. */
export function createFleet(options: FleetOptions): Fleet {
  const { clock, database, log, name, sources } = options;
  const timing: Timing = { ...TIMING, ...options.timing };
  const trust = createTrust(clock, timing.ttlMs, timing.marginMs);
  const heartbeats = createHeartbeats(clock, timing.ttlMs, timing.ttlMs - timing.marginMs);
  const handovers = createHandoverLog(clock, log);
  const unable = createFailedStarts(clock, options.random);
  const news = createWakeup();
  const renewal = createWakeup();
  const arrival = createWakeup();
  const checkDue = createWakeup();
  const stopping = new AbortController();
  /** Ends after the last source is handed over. */
  const ending = new AbortController();
  let running: readonly Promise<void>[] = [];
  let unlisten = () => {};
  /** Why the database cannot be asked, or why it does not let this member take part; null while all is well. */
  let trouble: string | null = null;
  let refusal: string | null = null;

  const holdings = createHoldings({
    clock,
    log,
    handovers,
    trust,
    hold: options.hold,
    async giveBack({ lease, incarnation }, reason) {
      const { source, epoch } = lease;
      const me = presence.me();
      // Mark the source unavailable on this member before releasing the lease; otherwise the assignment would hand it
      // straight back.
      if (reason === "could-not-start" && me !== null) await ask(reportFailedStart(database, me, unable.sources()));
      await ask(giveBack(database, { incarnation }, [{ source, epoch, reason }]));
    },
    reached: (source, isReached) => {
      if (options.check !== undefined) reach.noted(source, isReached);
    },
    worked: unable.worked,
    failed: unable.failed,
    changed: news.wakeUp,
  });

  const reach = createReach({
    ...{ name, sources, clock, random: options.random },
    isHeld: (source) => holdings.get(source) !== undefined,
    check: options.check ?? (async () => true),
    changed: news.wakeUp,
    due: checkDue,
  });

  const presence = createPresence({
    database,
    registration: { name, sources, digest: options.digest },
    page: () => options.page(),
    timing,
    trust,
    heartbeats,
    clock,
    log,
    ...(options.metrics && { metrics: options.metrics }),
    buried: () => loseAll("this member was not heard of in time"),
    arrived() {
      arrival.wakeUp();
      news.wakeUp();
    },
  });

  const sharing = createAssignment({
    database,
    sources,
    holdings,
    unable,
    reach,
    trust,
    timing,
    clock,
    log,
    handovers,
    ...(options.metrics && { metrics: options.metrics }),
    buried: renewal.wakeUp,
  });

  const ask = <T>(work: Promise<T>) => answered(clock, timing.renewMs, work);

  function loseAll(why: string): void {
    for (const { lease } of holdings.all()) holdings.lose(lease.source, why);
  }

  function well(): void {
    if (trouble !== null) log.info({ database: database.name }, "the fleet's database answers again");
    trouble = null;
    refusal = null;
  }

  /** Told once, and not at each try. */
  function ill(error: unknown): void {
    const said = sentence(error);
    if (trouble === null) log.warn({ database: database.name, reason: said }, "this member cannot take part");
    trouble = said;
    refusal = refusalOf(error);
  }

  async function renewOnce(signal: AbortSignal): Promise<void> {
    const hadRunOut = trust.leftMs() === 0;
    await presence.turn(signal);
    // The tables may still show this member as the holder of released sources.
    if (hadRunOut) news.wakeUp();
    well();
  }

  const renewing = (signal: AbortSignal) =>
    loop({
      clock,
      signal,
      bell: renewal,
      async turn() {
        await renewOnce(signal);
        return timing.renewMs;
      },
      fault: ill,
      backoff: RETRY,
    });

  const observing = (signal: AbortSignal) =>
    loop({
      clock,
      signal,
      bell: arrival,
      async turn() {
        const me = presence.me();
        if (me === null) return Number.POSITIVE_INFINITY;
        const silent = heartbeats.observe(await ask(readHeartbeats(database, me)));
        if (silent.length > 0) await ask(bury(database, silent));
        return Math.min(timing.renewMs / 3, heartbeats.nextMs());
      },
      fault: (error) => log.debug({ reason: sentence(error) }, "the other members could not be observed"),
      backoff: RETRY,
    });

  const looking = (signal: AbortSignal) =>
    loop({
      clock,
      signal,
      bell: news,
      async turn() {
        const me = presence.me();
        return me === null ? Number.POSITIVE_INFINITY : sharing.turn(me, signal);
      },
      fault: (error) => log.debug({ reason: sentence(error) }, "the fleet's tables could not be looked at"),
      backoff: RETRY,
    });

  const checking = (signal: AbortSignal) =>
    loop({
      clock,
      signal,
      bell: checkDue,
      turn: () => reach.turn(signal),
      fault: (error) => log.debug({ reason: sentence(error) }, "a service could not be checked"),
      backoff: RETRY,
    });

  const watching = (signal: AbortSignal) =>
    loop({
      clock,
      signal,
      async turn() {
        const leftMs = trust.leftMs();
        if (leftMs === 0) loseAll("it could not be renewed in time");
        handovers.flush();
        options.metrics?.fleetSources.set(holdings.all().filter(({ lease }) => lease.leftMs() > 0).length);
        return leftMs === 0 ? WATCH_MS : Math.min(WATCH_MS, leftMs);
      },
      fault: (error) => log.warn({ err: error }, "the time of the leases could not be watched"),
    });

  async function handAllOver(deadlineMs: number): Promise<void> {
    const announced = presence.announceLeaving().catch((error: unknown) => error);
    const handed = holdings.all().map(({ lease: { source } }) => {
      handovers.note("info", "sources were handed over", { to: null, reason: "left" }, source);
      return holdings.handOver(source, "left", deadlineMs);
    });
    await within(clock, deadlineMs + GOODBYE_MS, Promise.all([announced, ...handed]));
    loseAll("this member stops");
    const left = presence.leave().catch((error: unknown) => {
      log.warn({ reason: sentence(error) }, "no goodbye could be said; the lease of this member will run out");
    });
    await within(clock, GOODBYE_MS, left);
  }

  async function fresh(): Promise<FleetStatus | string> {
    try {
      return await answered(clock, STATUS_MS, readFleet(database, name, sources));
    } catch (error) {
      return sentence(error);
    }
  }

  function lateNotices(): readonly string[] {
    if (refusal !== null) return [refusal];
    if (trouble === null) return [];
    const after =
      trust.leftMs() > 0 ? "" : " Nothing is polled here, because nothing could be committed; it goes on by itself.";
    return [`The fleet's database ${database.name} cannot be asked: ${trouble}${after}`];
  }

  return startedOnce({
    name: "fleet",
    async start(signal) {
      const whole = AbortSignal.any([signal, ending.signal]);
      const until = AbortSignal.any([whole, stopping.signal]);
      unlisten = database.onNotified(FLEET, news.wakeUp);
      try {
        await renewOnce(until);
      } catch (error) {
        // The loop retries temporary failures.
        if (until.aborted) return;
        if (refusalOf(error) !== null) throw error;
        ill(error);
      }
      signal.addEventListener("abort", () => loseAll("this member stops"), { once: true });
      running = [renewing(whole), observing(until), looking(until), checking(until), watching(whole)];
    },
    async stop(deadlineMs) {
      stopping.abort(new Stopping());
      await handAllOver(deadlineMs);
      ending.abort(new Stopping());
      unlisten();
      await Promise.all(running);
      handovers.flush(true);
    },
    async status() {
      const now = await fresh();
      if (typeof now !== "string") return now;
      const view = sharing.latest() ?? { members: [], sources: [] };
      return { self: name, ...shown(view), takeovers: [], database: null, trouble: now };
    },
    notices() {
      const view = sharing.latest();
      const own = view?.members.find((member) => member.name === name);
      const drained =
        own?.isDraining === true
          ? [`This member is drained and takes no source; plenum fleet undrain ${name} ends that.`]
          : [];
      return [...lateNotices(), ...drained, ...unable.notices(), ...reach.notices(), ...sharing.notices()];
    },
  });
}
