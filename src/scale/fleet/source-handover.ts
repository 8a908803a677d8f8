import { isDeepStrictEqual } from "node:util";
import { errorText } from "../../core/errors/errors.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import type { StateDatabase } from "../postgres/state-database.ts";
import { assignSources, type MemberBySource } from "./assign-sources.ts";
import type { FleetSourceRow, FleetTables, MemberSession } from "./fleet-tables.ts";
import {
  findHolder,
  listMemberCandidates,
  listSourceHolders,
  readFleetRows,
  releaseSources,
  reportFailedStarts,
  reportReach,
  takeFreeSources,
} from "./fleet-tables.ts";
import type { FleetTiming, LeaseExpiryTimer } from "./lease-timing.ts";
import type { FailedSourceStarts, HandoverLog, SourceHoldings } from "./running-sources.ts";
import type { ServiceReachability } from "./service-reachability.ts";

/** Limits simultaneous starts, so that a member that joins a moment later gets its share of the sources. */
const MAX_STARTING_SOURCES = 8;
const MAX_STEP_INTERVAL_MS = 30_000;
/** Time limit for ending the work for a source whose service this member does not reach. */
const UNREACHED_STOP_TIMEOUT_MS = 1_000;
const LOCKED_ROW_RETRY_MS = 250;

/** Takes and releases sources by the fleet's tables. Each step reads the tables, so it repairs a missed earlier step. */
export function createSourceHandover(options: {
  readonly database: StateDatabase;
  readonly sources: readonly string[];
  readonly holdings: SourceHoldings;
  readonly failedStarts: FailedSourceStarts;
  readonly reach: ServiceReachability;
  readonly leaseExpiry: Pick<LeaseExpiryTimer, "leftMs">;
  readonly timing: FleetTiming;
  readonly log: Log;
  readonly handoverLog: HandoverLog;
  readonly metrics: Pick<Metrics, "fleetMembers" | "fleetTakeovers"> | undefined;
  runWithTimeLimit<T>(work: Promise<T>): Promise<T>;
  onMembersGone(): void;
}) {
  const { database, failedStarts, handoverLog, holdings, leaseExpiry, log } = options;
  const { metrics, reach, runWithTimeLimit, sources, timing } = options;
  let latestTables: FleetTables | null = null;
  let isHandoverRunning = false;
  let unpolledSources: readonly string[] = [];

  async function reconcileSourceHoldings(view: FleetTables, me: MemberSession): Promise<void> {
    for (const { lease, incarnation, state } of holdings.getAll()) {
      const row = view.sources.find(({ name }) => name === lease.source);
      const isOwnLease = row?.epoch === lease.epoch && row.incarnation === incarnation;
      // While a source stops, the tables may show it as held or as released.
      if (!isOwnLease && state !== "stopping") holdings.lose(lease.source, "somebody else holds it");
    }
    // A statement whose response was lost may have taken sources for which this member runs no pipeline.
    const unmanagedSources = view.sources
      .filter(({ name, incarnation }) => incarnation === me.incarnation && holdings.get(name) === undefined)
      .map(({ name, epoch }) => ({ source: name, epoch, reason: "lease-ran-out" as const }));
    if (unmanagedSources.length > 0) await runWithTimeLimit(releaseSources(database, me.incarnation, unmanagedSources));
    const ownMemberRow = view.members.find(({ name }) => name === me.name);
    const [failedSources, ownReach] = [failedStarts.sources(), reach.report()];
    if (!isDeepStrictEqual(ownMemberRow?.unable, failedSources))
      await runWithTimeLimit(reportFailedStarts(database, me, failedSources));
    if (!isDeepStrictEqual(ownMemberRow?.reach, ownReach)) await runWithTimeLimit(reportReach(database, me, ownReach));
  }

  /** Takes the free sources assigned to this member; returns false if another transaction locked some of them. */
  async function takeAssignedSources(
    freeSources: readonly FleetSourceRow[],
    memberBySource: MemberBySource,
    me: MemberSession,
    signal: AbortSignal,
  ): Promise<boolean> {
    const startingCount = holdings.getAll().filter(({ state }) => state === "starting").length;
    const freeSourcesToTake = freeSources
      .filter(({ name }) => memberBySource.get(name) === me.name && holdings.get(name) === undefined)
      .slice(0, Math.max(0, MAX_STARTING_SOURCES - startingCount));
    if (freeSourcesToTake.length === 0 || leaseExpiry.leftMs() === 0) return true;
    const takenSources = await runWithTimeLimit(takeFreeSources(database, me, freeSourcesToTake));
    // Start no taken source during a stop: the member then ends its session, which frees all its sources.
    if (signal.aborted) return true;
    for (const { source, epoch, from, reason } of takenSources) {
      log.debug({ source, epoch, from, reason }, "a source was taken");
      handoverLog.note("info", "sources were taken", { from, reason }, source);
      metrics?.fleetTakeovers.inc({ reason });
      reach.beginSource(source);
      holdings.beginHolding(source, epoch, me.incarnation);
    }
    return takenSources.length === freeSourcesToTake.length;
  }

  /** Hands over one source at a time and waits until it is taken, so that few sources lack a holder. */
  function handOverSurplus(memberBySource: MemberBySource, me: MemberSession, view: FleetTables, isDraining: boolean) {
    if (isHandoverRunning) return;
    const surplusSourceHolding = holdings
      .getAll()
      .find(
        ({ lease: { source }, state }) =>
          state !== "stopping" &&
          memberBySource.get(source) !== me.name &&
          (isDraining || !reach.isUnreached(source) || reach.mayHandOver(source, view)),
      );
    if (surplusSourceHolding === undefined) return;
    isHandoverRunning = true;
    const { source } = surplusSourceHolding.lease;
    const isServiceUnreached = !isDraining && reach.isUnreached(source);
    const reason = isDraining ? "drained" : isServiceUnreached ? "unreachable" : "joined";
    handoverLog.note("info", "sources were handed over", { to: memberBySource.get(source) ?? null, reason }, source);
    holdings
      .handOver(source, reason, isServiceUnreached ? UNREACHED_STOP_TIMEOUT_MS : timing.handOverMs)
      .catch((error: unknown) => log.warn({ source, reason: errorText(error) }, "a source was not handed over cleanly"))
      .finally(() => {
        isHandoverRunning = false;
      });
  }

  return {
    latest: () => latestTables,
    notices: (): readonly string[] =>
      unpolledSources.length === 0
        ? []
        : [
            `No member polls ${unpolledSources.join(", ")}: every member is drained, is stopping or could not start them.`,
          ],
    /** Takes and releases sources once, unless the signal has aborted. Returns milliseconds until the next step. */
    async step(me: MemberSession, signal: AbortSignal): Promise<number> {
      const fleetTables = await runWithTimeLimit(readFleetRows(database, sources));
      latestTables = fleetTables;
      const ownMemberRow = fleetTables.members.find(({ name }) => name === me.name);
      if (ownMemberRow === undefined || ownMemberRow.incarnation !== me.incarnation || ownMemberRow.gone !== null) {
        options.onMembersGone();
        return MAX_STEP_INTERVAL_MS;
      }
      reach.applyFleetTables(fleetTables);
      await reconcileSourceHoldings(fleetTables, me);
      const memberBySource = assignSources(listMemberCandidates(fleetTables), listSourceHolders(fleetTables));
      unpolledSources = sources.filter((source) => memberBySource.get(source) === null);
      const freeSources = fleetTables.sources.filter((source) => findHolder(source, fleetTables) === null);
      const areAllTaken = await takeAssignedSources(freeSources, memberBySource, me, signal);
      if (signal.aborted) return MAX_STEP_INTERVAL_MS;
      // Wait until the new holder takes a released source before handing over another one.
      const isTakeoverPending = freeSources.some(({ name }) => (memberBySource.get(name) ?? me.name) !== me.name);
      if (!isTakeoverPending) handOverSurplus(memberBySource, me, fleetTables, ownMemberRow.isDraining);
      metrics?.fleetMembers.set(fleetTables.members.filter(({ gone }) => gone === null).length);
      return areAllTaken ? Math.min(MAX_STEP_INTERVAL_MS, failedStarts.waitMs(), reach.waitMs()) : LOCKED_ROW_RETRY_MS;
    },
  };
}
