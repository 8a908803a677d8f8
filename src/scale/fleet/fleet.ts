import { ConfigError, errorText } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { readClocks, type TimeReading } from "../../core/runtime/elapsed-time.ts";
import { OrderlyStop, startServiceOnce } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import { createWakeup, endsWithin, runLoop, sleepFor, type Wakeup } from "../../core/runtime/waiting.ts";
import type { StateDatabase } from "../postgres/state-database.ts";
import { buildFleetStatus, type FleetStatus, readFleetStatus } from "./fleet-status.ts";
import type { JoinBlocker, MemberSession } from "./fleet-tables.ts";
import {
  announceMemberLeaving,
  declareMembersGone,
  FLEET_TOPIC,
  leaveFleet,
  readHeartbeats,
  registerMember,
  registrationError,
  releaseSources,
  renewMemberLease,
  reportFailedStarts,
} from "./fleet-tables.ts";
import type { FleetTiming } from "./lease-timing.ts";
import { createHeartbeatObserver, createLeaseExpiryTimer, FLEET_LEASE_TIMING, withTimeLimit } from "./lease-timing.ts";
import {
  createFailedStarts,
  createHandoverLog,
  createHoldings,
  type Lease,
  type RunningSource,
} from "./running-sources.ts";
import { createServiceReachability } from "./service-reachability.ts";
import { createSourceHandover } from "./source-handover.ts";

/**
 * Member of a fleet without a leader. Five loops: renew the lease, detect silent members, take and release sources
 * (`source-handover.ts`), check unreached services (`service-reachability.ts`), and end expired leases.
 */
export type Fleet = ReturnType<typeof createFleet>;

export interface FleetOptions {
  readonly database: StateDatabase;
  readonly name: string;
  readonly sources: readonly string[];
  /** Digest of the configuration. A fleet rejects a member whose configuration differs from that of running members. */
  readonly configDigest: string;
  pageUrl(): string;
  /** Starts the work for a source, unless the lease ends before. If it throws, the lease is released. */
  startSource(lease: Lease): Promise<RunningSource>;
  /** Requests the health check of a service, which needs no quota. If absent, every service counts as reached. */
  checkServiceHealth?(source: string, signal: AbortSignal): Promise<boolean>;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics?: Pick<Metrics, "fleetMembers" | "fleetSources" | "fleetTakeovers" | "fleetRenewed">;
  readonly timing?: Partial<FleetTiming>;
  readonly random?: () => number;
}

/** Longest interval of lease expiry checks, so that a machine notices an expired lease soon after a suspension. */
const LEASE_CHECK_INTERVAL_MS = 1_000;
const MEMBER_SIGN_OFF_TIMEOUT_MS = 1_000;
const FLEET_STATUS_TIMEOUT_MS = 2_000;
const DATABASE_RETRY_BACKOFF = { firstMs: 250, maxMs: 1_000 };

/** Creates a fleet member. `start` throws `ConfigError` if its name is taken or its configuration differs. */
export function createFleet(options: FleetOptions) {
  const { clock, database, log, metrics, name, sources } = options;
  const fleetTiming: FleetTiming = { ...FLEET_LEASE_TIMING, ...options.timing };
  const leaseExpiry = createLeaseExpiryTimer(clock, fleetTiming.ttlMs, fleetTiming.marginMs);
  const heartbeatObserver = createHeartbeatObserver(clock, fleetTiming.ttlMs, fleetTiming.ttlMs - fleetTiming.marginMs);
  const handoverLog = createHandoverLog(clock, log);
  const failedStarts = createFailedStarts(clock, options.random);
  const tablesChanged = createWakeup();
  const renewalDue = createWakeup();
  const memberJoined = createWakeup();
  const checksDue = createWakeup();
  const stopController = new AbortController();
  const loopEndController = new AbortController();
  let runningLoops: readonly Promise<void>[] = [];
  let stopListening = () => {};
  let me: MemberSession | null = null;
  let isMemberLeaving = false;
  let failure: { readonly message: string; readonly isRejection: boolean } | null = null;
  const runWithTimeLimit = <T>(work: Promise<T>) => withTimeLimit(clock, fleetTiming.renewMs, work);
  const sourceHoldings = createHoldings({
    ...{ clock, log, handoverLog, failedStarts, leaseExpiry },
    ...{ startSource: options.startSource, onChanged: tablesChanged.wakeUp },
    async release({ lease, incarnation }, reason) {
      const { source, epoch } = lease;
      // Report the failed start before releasing the lease; otherwise the assignment would return the source at once.
      if (reason === "could-not-start" && me !== null)
        await runWithTimeLimit(reportFailedStarts(database, me, failedStarts.sources()));
      await runWithTimeLimit(releaseSources(database, incarnation, [{ source, epoch, reason }]));
    },
    onReachChanged: (source, isReached) => {
      if (options.checkServiceHealth !== undefined) serviceReach.noteRequest(source, isReached);
    },
  });

  const serviceReach = createServiceReachability({
    ...{ name, sources, clock, random: options.random, onChanged: tablesChanged.wakeUp, checkDueWakeup: checksDue },
    isHeld: (source) => sourceHoldings.get(source) !== undefined,
    checkHealth: options.checkServiceHealth ?? (async () => true),
  });

  const sourceHandover = createSourceHandover({
    ...{ runWithTimeLimit, database, sources, failedStarts, log, handoverLog, metrics, holdings: sourceHoldings },
    ...{ reach: serviceReach, leaseExpiry, timing: fleetTiming },
    onMembersGone: renewalDue.wakeUp,
  });

  function loseAllLeases(reason: string): void {
    for (const { lease } of sourceHoldings.getAll()) sourceHoldings.lose(lease.source, reason);
  }

  function recordLeaseRenewal(sentAt: TimeReading): void {
    leaseExpiry.noteRenewal(sentAt);
    metrics?.fleetRenewed.set(clock.now() / 1_000);
  }

  async function tryToJoinFleet(): Promise<readonly JoinBlocker[]> {
    const sentAt = readClocks(clock);
    const registration = await runWithTimeLimit(
      registerMember(database, { name, sources, digest: options.configDigest, page: options.pageUrl() }),
    );
    if ("blockers" in registration) {
      const silentMembers = heartbeatObserver.observe(registration.beats);
      if (silentMembers.length > 0) await runWithTimeLimit(declareMembersGone(database, silentMembers));
      return registration.blockers;
    }
    me = registration;
    recordLeaseRenewal(sentAt);
    log.info({ member: name, incarnation: me.incarnation }, "this member takes part in the fleet");
    memberJoined.wakeUp();
    tablesChanged.wakeUp();
    return [];
  }

  /** Joins once all blocking members were silent for the lease duration, e.g. a killed predecessor; otherwise throws. */
  async function joinFleet(signal: AbortSignal): Promise<void> {
    const firstJoinBlockers = await tryToJoinFleet();
    const [blocker] = firstJoinBlockers;
    if (blocker === undefined) return;
    log.info({ member: blocker.name, host: blocker.host }, "waiting whether another member is still alive");
    const earlierRenewalCounts = new Map(firstJoinBlockers.map((each) => [each.incarnation, each.renewals]));
    for (;;) {
      await sleepFor(clock, fleetTiming.renewMs / 3, signal);
      signal.throwIfAborted();
      const currentBlockers = await tryToJoinFleet();
      if (currentBlockers.length === 0) return;
      const aliveBlocker = currentBlockers.find((each) => earlierRenewalCounts.get(each.incarnation) !== each.renewals);
      if (aliveBlocker !== undefined) throw registrationError(aliveBlocker, name);
    }
  }

  async function renewLeaseOrJoin(signal: AbortSignal): Promise<void> {
    if (me !== null) {
      const sentAt = readClocks(clock);
      if (await runWithTimeLimit(renewMemberLease(database, me, options.pageUrl()))) return recordLeaseRenewal(sentAt);
      if (isMemberLeaving) return;
      log.warn({ member: name }, "this member was not heard of in time, and others took over");
      me = null;
      loseAllLeases("this member was not heard of in time");
    }
    if (!isMemberLeaving) await joinFleet(signal);
  }

  async function renewLeaseOnce(signal: AbortSignal): Promise<void> {
    const wasLeaseExpired = leaseExpiry.leftMs() === 0;
    await renewLeaseOrJoin(signal);
    // The tables may still show this member as the holder of released sources.
    if (wasLeaseExpired) tablesChanged.wakeUp();
    if (failure !== null) log.info({ database: database.name }, "the fleet's database answers again");
    failure = null;
  }

  function noteRenewalFailure(error: unknown): void {
    const message = errorText(error);
    if (failure === null) log.warn({ database: database.name, reason: message }, "this member cannot take part");
    failure = { message, isRejection: error instanceof ConfigError };
  }

  /** Runs a loop that logs failures at `debug`, because the renewal loop reports an unavailable database. */
  const runFleetLoop = (signal: AbortSignal, wakeup: Wakeup, step: () => Promise<number>, failureText: string) =>
    runLoop({
      ...{ clock, signal, wakeup, step, backoff: DATABASE_RETRY_BACKOFF },
      onFault: (error) => log.debug({ reason: errorText(error) }, failureText),
    });

  async function observeOtherMembers(): Promise<number> {
    if (me === null) return Number.POSITIVE_INFINITY;
    const silentMembers = heartbeatObserver.observe(await runWithTimeLimit(readHeartbeats(database, me)));
    if (silentMembers.length > 0) await runWithTimeLimit(declareMembersGone(database, silentMembers));
    return Math.min(fleetTiming.renewMs / 3, heartbeatObserver.msUntilNextExpiry());
  }

  async function endExpiredLeases(): Promise<number> {
    const remainingLeaseMs = leaseExpiry.leftMs();
    if (remainingLeaseMs === 0) loseAllLeases("it could not be renewed in time");
    handoverLog.flush();
    metrics?.fleetSources.set(sourceHoldings.getAll().filter(({ lease }) => lease.remainingMs() > 0).length);
    return remainingLeaseMs === 0 ? LEASE_CHECK_INTERVAL_MS : Math.min(LEASE_CHECK_INTERVAL_MS, remainingLeaseMs);
  }

  const startFleetLoops = (endSignal: AbortSignal, stopSignal: AbortSignal) => [
    runLoop({
      ...{ clock, signal: endSignal, wakeup: renewalDue, onFault: noteRenewalFailure, backoff: DATABASE_RETRY_BACKOFF },
      step: async () => {
        await renewLeaseOnce(endSignal);
        return fleetTiming.renewMs;
      },
    }),
    runFleetLoop(stopSignal, memberJoined, observeOtherMembers, "the other members could not be observed"),
    runFleetLoop(
      stopSignal,
      tablesChanged,
      async () => (me === null ? Number.POSITIVE_INFINITY : sourceHandover.step(me, stopSignal)),
      "the fleet's tables could not be looked at",
    ),
    runFleetLoop(stopSignal, checksDue, () => serviceReach.checkServices(stopSignal), "a service could not be checked"),
    runLoop({
      ...{ clock, signal: endSignal, step: endExpiredLeases },
      onFault: (error) => log.warn({ err: error }, "the time of the leases could not be watched"),
    }),
  ];

  async function handOverAllSources(deadlineMs: number): Promise<void> {
    isMemberLeaving = true;
    const announcement =
      me === null ? undefined : runWithTimeLimit(announceMemberLeaving(database, me)).catch(() => undefined);
    const handOverResults = sourceHoldings.getAll().map(({ lease: { source } }) => {
      handoverLog.note("info", "sources were handed over", { to: null, reason: "left" }, source);
      return sourceHoldings.handOver(source, "left", deadlineMs);
    });
    await endsWithin(clock, deadlineMs + MEMBER_SIGN_OFF_TIMEOUT_MS, Promise.all([announcement, ...handOverResults]));
    loseAllLeases("this member stops");
    if (me === null) return;
    const leaveRequest = runWithTimeLimit(leaveFleet(database, me)).then(
      () => {
        me = null;
      },
      (error: unknown) =>
        log.warn({ reason: errorText(error) }, "no goodbye could be said; the lease of this member will run out"),
    );
    await endsWithin(clock, MEMBER_SIGN_OFF_TIMEOUT_MS, leaveRequest);
  }

  return startServiceOnce({
    name: "fleet",
    async start(signal) {
      const loopEndSignal = AbortSignal.any([signal, loopEndController.signal]);
      const loopStopSignal = AbortSignal.any([loopEndSignal, stopController.signal]);
      stopListening = database.onNotified(FLEET_TOPIC, tablesChanged.wakeUp);
      try {
        await renewLeaseOnce(loopStopSignal);
      } catch (error) {
        if (loopStopSignal.aborted) return;
        if (error instanceof ConfigError) throw error;
        noteRenewalFailure(error);
      }
      signal.addEventListener("abort", () => loseAllLeases("this member stops"), { once: true });
      runningLoops = startFleetLoops(loopEndSignal, loopStopSignal);
    },
    async stop(deadlineMs) {
      stopController.abort(new OrderlyStop());
      await handOverAllSources(deadlineMs);
      loopEndController.abort(new OrderlyStop());
      stopListening();
      await Promise.all(runningLoops);
      handoverLog.flush(true);
    },
    /** Returns the last known status while the database is unavailable. */
    async status(): Promise<FleetStatus> {
      try {
        return await withTimeLimit(clock, FLEET_STATUS_TIMEOUT_MS, readFleetStatus(database, name, sources));
      } catch (error) {
        const status = buildFleetStatus(sourceHandover.latest() ?? { members: [], sources: [] });
        return { self: name, ...status, takeovers: [], database: null, trouble: errorText(error) };
      }
    },
    notices(): readonly string[] {
      const ownMemberRow = sourceHandover.latest()?.members.find((member) => member.name === name);
      const pausedNotice = " Nothing is polled here, because nothing could be committed; it goes on by itself.";
      const databaseNotice =
        failure === null || failure.isRejection
          ? failure?.message
          : `The fleet's database ${database.name} cannot be asked: ${failure.message}${leaseExpiry.leftMs() > 0 ? "" : pausedNotice}`;
      const isDrained = ownMemberRow?.isDraining === true;
      return [
        ...(databaseNotice === undefined ? [] : [databaseNotice]),
        ...(isDrained ? [`This member is drained and takes no source; plenum fleet undrain ${name} ends that.`] : []),
        ...failedStarts.notices(),
        ...serviceReach.notices(),
        ...sourceHandover.notices(),
      ];
    },
  });
}
