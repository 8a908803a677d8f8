import { sentence } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import type { StateDatabase } from "../postgres/state-database.ts";
import { answered } from "./answered.ts";
import type { FailedStarts } from "./failed-starts.ts";
import type { HandoverLog } from "./handover-log.ts";
import { giveBack, take } from "./leases.ts";
import { type Myself, reportFailedStart, reportReach } from "./membership.ts";
import type { Holdings } from "./ownership.ts";
import type { Reach } from "./reach.ts";
import { type Reached, type Shares, sharesOf } from "./share.ts";
import type { Timing } from "./timing.ts";
import type { Trust } from "./trust.ts";
import { holderOf, holdersOf, look, type SourceRow, sharersOf, type View } from "./view.ts";

/**
 * Reads the tables and acts on them: leases that were lost, taken, or have to be given away. Each look starts from the tables, so
 * the next one repairs what a previous one missed.
 */
export interface Assignment {
  /** Answers after how many milliseconds to look again at the latest. Begins nothing after the signal aborted. */
  turn(me: Myself, signal: AbortSignal): Promise<number>;
  /** Null before the first. */
  latest(): View | null;
  /** Messages about sources that no member can hold. */
  notices(): readonly string[];
}

export interface AssignmentOptions {
  readonly database: StateDatabase;
  readonly sources: readonly string[];
  readonly holdings: Holdings;
  readonly unable: FailedStarts;
  readonly reach: Reach;
  readonly trust: Pick<Trust, "leftMs">;
  readonly timing: Timing;
  readonly clock: Clock;
  readonly log: Log;
  readonly handovers: HandoverLog;
  readonly metrics?: Pick<Metrics, "fleetMembers" | "fleetTakeovers">;
  /** This incarnation is gone. */
  buried(): void;
}

/** Sources that begin at once, so that a member that comes a moment later gets its share before they have begun here. */
const STARTING_AT_ONCE = 8;
/** Notifications tell of all that members do; this is for what they missed, in milliseconds. */
const SLOW_MS = 30_000;
/** How long what runs for a source may take to finish whose service it does not reach anyway, in milliseconds. */
const UNREACHED_MS = 1_000;
/** When something that should be free is held by a transaction, in milliseconds. */
const SOON_MS = 250;

export function createAssignment(options: AssignmentOptions): Assignment {
  const { clock, database, handovers, holdings, log, metrics, reach, sources, timing, trust, unable } = options;
  let latest: View | null = null;
  let isGiving = false;
  let nobodys: readonly string[] = [];

  const ask = <T>(work: Promise<T>) => answered(clock, timing.renewMs, work);

  /** Compares the tables with this member's own state. */
  async function settle(view: View, me: Myself): Promise<void> {
    for (const { lease, incarnation } of holdings.all()) {
      const row = view.sources.find(({ name }) => name === lease.source);
      const isOurs = row?.epoch === lease.epoch && row.incarnation === incarnation;
      // The tables may show either state of a source that is being given back.
      if (!isOurs && holdings.get(lease.source)?.state !== "stopping") {
        holdings.lose(lease.source, "somebody else holds it");
      }
    }
    // Taken or given back by a statement whose answer was lost: nothing runs for it here.
    const astray = view.sources.filter(
      ({ name, incarnation }) => incarnation === me.incarnation && holdings.get(name) === undefined,
    );
    if (astray.length > 0) {
      const given = astray.map(({ name, epoch }) => ({
        source: name,
        epoch,
        reason: "lease-ran-out" as const,
      }));
      await ask(giveBack(database, me, given));
    }
    const own = view.members.find(({ name }) => name === me.name);
    const left = unable.sources();
    if (own !== undefined && own.unable.join() !== left.join()) await ask(reportFailedStart(database, me, left));
    const reached = reach.report();
    if (own !== undefined && !isSame(own.reach, reached)) await ask(reportReach(database, me, reached));
  }

  /** False when not all could be taken just now. */
  async function takeShare(
    free: readonly SourceRow[],
    shares: Shares,
    me: Myself,
    signal: AbortSignal,
  ): Promise<boolean> {
    const starting = holdings.all().filter(({ state }) => state === "starting").length;
    const wanted = free
      .filter(({ name }) => shares.get(name) === me.name && holdings.get(name) === undefined)
      .slice(0, Math.max(0, STARTING_AT_ONCE - starting));
    if (wanted.length === 0 || trust.leftMs() === 0) return true;
    const taken = await ask(take(database, me, wanted));
    // A stopping member signs off, which frees its sources.
    if (signal.aborted) return true;
    for (const { source, epoch, from, reason } of taken) {
      log.debug({ source, epoch, from, reason }, "a source was taken");
      handovers.note("info", "sources were taken", { from, reason }, source);
      metrics?.fleetTakeovers.inc({ reason });
      reach.begun(source);
      holdings.begin(source, epoch, me.incarnation);
    }
    return taken.length === wanted.length;
  }

  /** Gives one source away and waits until it is taken, so that few sources are without a holder. */
  function giveSurplus(shares: Shares, me: Myself, view: View, isDraining: boolean): void {
    if (isGiving) return;
    const mayGive = (source: string) => isDraining || !reach.isUnreached(source) || reach.mayGive(source, view);
    const surplus = holdings
      .all()
      .find(
        ({ lease: { source }, state }) => state !== "stopping" && shares.get(source) !== me.name && mayGive(source),
      );
    if (surplus === undefined) return;
    isGiving = true;
    const { source } = surplus.lease;
    const isUnreached = !isDraining && reach.isUnreached(source);
    const reason = isDraining ? "drained" : isUnreached ? "unreachable" : "joined";
    handovers.note("info", "sources were handed over", { to: shares.get(source) ?? null, reason }, source);
    holdings
      .handOver(source, reason, isUnreached ? UNREACHED_MS : timing.handOverMs)
      .catch((error: unknown) => log.warn({ source, reason: sentence(error) }, "a source was not handed over cleanly"))
      .finally(() => {
        isGiving = false;
      });
  }

  return {
    latest: () => latest,
    notices: () =>
      nobodys.length === 0
        ? []
        : [`Nobody polls ${nobodys.join(", ")}: every member is drained, is stopping or could not start them.`],
    async turn(me, signal) {
      const view = await ask(look(database, sources));
      latest = view;
      const own = view.members.find(({ name }) => name === me.name);
      if (own === undefined || own.incarnation !== me.incarnation || own.gone !== null) {
        options.buried();
        return SLOW_MS;
      }
      reach.seen(view);
      await settle(view, me);
      const shares = sharesOf(sharersOf(view), holdersOf(view));
      nobodys = sources.filter((source) => shares.get(source) === null);
      const free = view.sources.filter((source) => holderOf(source, view) === null);
      const isComplete = await takeShare(free, shares, me, signal);
      if (signal.aborted) return SLOW_MS;
      // The next holder takes it at once; until then this member gives away no other.
      const isAwaited = free.some(({ name }) => (shares.get(name) ?? me.name) !== me.name);
      if (!isAwaited) giveSurplus(shares, me, view, own.isDraining);
      metrics?.fleetMembers.set(view.members.filter(({ gone }) => gone === null).length);
      if (!isComplete) return SOON_MS;
      return Math.min(SLOW_MS, unable.nextMs(), reach.nextMs());
    },
  };
}

function isSame(one: Reached, other: Reached): boolean {
  const keys = Object.keys(one);
  return keys.length === Object.keys(other).length && keys.every((key) => one[key] === other[key]);
}
