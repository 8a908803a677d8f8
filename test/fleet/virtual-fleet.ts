import { createMetrics } from "#src/core/runtime/metrics.ts";
import { createFleet, type FleetOptions } from "#src/scale/fleet/fleet.ts";
import type { Lease, RunningSource } from "#src/scale/fleet/running-sources.ts";
import { countingLog } from "../failing-parts.ts";
import { createVirtualClock } from "../virtual-clock.ts";
import { createMemoryTables } from "./memory-tables.ts";

type VirtualFleet = ReturnType<typeof createVirtualFleet>;
export type VirtualMember = ReturnType<VirtualFleet["member"]>;

export const START_MS = Date.UTC(2026, 5, 1);
export const SOURCES = Array.from({ length: 9 }, (_, n) => `s${n}`);

export function createVirtualFleet(sources: readonly string[]) {
  const clock = createVirtualClock(START_MS, { ticks: 12 });
  const tables = createMemoryTables(clock);
  const all: { readonly member: string; readonly lease: Lease }[] = [];
  /** Two members that held one source at once, and epochs that did not rise. */
  const faults: string[] = [];
  const members: { stop(): Promise<void> }[] = [];

  function judge(member: string, lease: Lease): void {
    for (const other of all) {
      if (other.lease.source !== lease.source) continue;
      if (other.lease.remainingMs() > 0) faults.push(`${member} holds ${lease.source}, and ${other.member} does`);
      if (other.lease.epoch >= lease.epoch) faults.push(`${member} holds ${lease.source} with an old epoch`);
    }
    all.push({ member, lease });
  }

  /** Advances the clock until the work is done, and returns its error. */
  async function finish(work: Promise<void>): Promise<unknown> {
    let isOver = false;
    const error = work
      .then(
        () => null,
        (reason: unknown) => reason,
      )
      .finally(() => {
        isOver = true;
      });
    for (let n = 0; n < 1_000 && !isOver; n += 1) await clock.advance(100);
    if (!isOver) throw new Error("That takes more than a hundred seconds.");
    return error;
  }

  /** Creates a member in virtual time, without real work for its sources. */
  function createMember(name: string, options: Partial<FleetOptions>) {
    const link = tables.connect();
    const { log, lines } = countingLog(1_000);
    const metrics = createMetrics();
    const running = new Map<string, Lease>();
    /** Behavior of the work for a source. */
    const does = { startMs: 0, stopMs: 0, startFails: null as Error | null, stopFails: null as Error | null };
    /** Results of health checks, and their number. */
    const network = { reaches: (_source: string) => true, checks: 0 };
    const leases: Lease[] = [];
    const stops: (readonly [source: string, deadlineMs: number])[] = [];

    async function run(lease: Lease): Promise<RunningSource> {
      leases.push(lease);
      judge(name, lease);
      if (does.startMs > 0) await clock.sleep(does.startMs);
      if (does.startFails !== null) throw does.startFails;
      running.set(lease.source, lease);
      return {
        async stop(deadlineMs) {
          stops.push([lease.source, deadlineMs]);
          if (does.stopMs > 0) await clock.sleep(does.stopMs);
          if (running.get(lease.source) === lease) running.delete(lease.source);
          if (does.stopFails !== null) throw does.stopFails;
        },
      };
    }

    const fleet = createFleet({
      database: link.database,
      name,
      sources,
      configDigest: "0123456789abcdef",
      startSource: run,
      clock,
      log,
      metrics,
      pageUrl: () => `http://${name}.example:9850`,
      random: () => 1,
      async checkServiceHealth(source) {
        network.checks += 1;
        return network.reaches(source);
      },
      ...options,
    });
    /** Returns the error of a start. */
    const refused = () => finish(fleet.start(new AbortController().signal));
    return {
      ...{ fleet, link, metrics, leases, stops, does, network, warnings: lines, refused },
      holding: () =>
        [...running]
          .filter(([, lease]) => lease.remainingMs() > 0)
          .map(([source]) => source)
          .toSorted(),
      async start(): Promise<void> {
        const error = await refused();
        if (error !== null) throw error;
      },
      async stop(deadlineMs = 1_000): Promise<void> {
        await finish(fleet.stop(deadlineMs));
      },
    };
  }

  return {
    ...{ clock, tables, faults, members },
    member(name: string, options: Partial<FleetOptions> = {}) {
      const member = createMember(name, options);
      members.push(member);
      return member;
    },
  };
}

export let fleet: VirtualFleet;

/** Stops all members and returns the faults. */
export async function endVirtualFleet(): Promise<readonly string[]> {
  for (const member of fleet.members) await member.stop();
  return fleet.faults;
}

export function startNewFleet(sources: readonly string[] = SOURCES) {
  fleet = createVirtualFleet(sources);
  return fleet;
}

/** Starts members one after the other, half a second apart. */
export async function started<const Names extends readonly string[]>(...names: Names) {
  const members = names.map((name) => fleet.member(name));
  for (const member of members) {
    await member.start();
    await fleet.clock.advance(500);
  }
  return members as { [Index in keyof Names]: VirtualMember };
}

export const counts = (...members: readonly VirtualMember[]) => members.map((each) => each.holding().length);
export const takeoversByReason = () => Object.groupBy(fleet.tables.takeovers, ([, , , , , reason]) => reason);
