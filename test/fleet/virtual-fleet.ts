import { createMetrics, type Metrics } from "#src/core/runtime/metrics.ts";
import { createFleet, type Fleet, type FleetOptions } from "#src/scale/fleet/fleet.ts";
import type { HeldLease, Lease } from "#src/scale/fleet/holdings.ts";
import { countingLog } from "../broken-parts.ts";
import { createVirtualClock, type VirtualClock } from "../virtual-clock.ts";
import { createMemoryTables, type MemoryLink, type MemoryTables } from "./memory-tables.ts";

/** A member in virtual time; what runs for its sources does what the test says. */
export interface VirtualMember {
  readonly fleet: Fleet;
  readonly link: MemoryLink;
  readonly metrics: Metrics;
  /** Leases for which `hold` was called, in order. */
  readonly leases: Lease[];
  /** Stops that were called: the source and the deadline. */
  readonly stops: (readonly [source: string, deadlineMs: number])[];
  /** How long a start and a stop take, in milliseconds, and what a start throws. */
  readonly does: { startMs: number; stopMs: number; startFails: Error | null; stopFails: Error | null };
  /** Which services answer its health checks, and how many it has made. */
  readonly network: { reaches: (source: string) => boolean; checks: number };
  readonly warnings: () => number;
  /** Sources for which something runs and whose lease is good. */
  holding(): readonly string[];
  /** Starts, and waits as long as that takes. */
  start(): Promise<void>;
  /** Answers what the start threw. */
  refused(): Promise<unknown>;
  stop(deadlineMs?: number): Promise<void>;
}

export interface VirtualFleet {
  readonly clock: VirtualClock;
  readonly tables: MemoryTables;
  /** What must never be: two who hold one source, and epochs that do not rise. */
  readonly faults: readonly string[];
  member(name: string, options?: Partial<FleetOptions>): VirtualMember;
}

export const START_MS = Date.UTC(2026, 5, 1);

/** A fleet in memory. At each beginning it is judged that no other lease on the source is good, and that epochs rise. */
export function createVirtualFleet(sources: readonly string[]): VirtualFleet {
  const clock = createVirtualClock(START_MS, { turns: 12 });
  const tables = createMemoryTables(clock);
  const all: { readonly member: string; readonly lease: Lease }[] = [];
  const faults: string[] = [];

  function judge(member: string, lease: Lease): void {
    for (const other of all) {
      if (other.lease.source !== lease.source) continue;
      if (other.lease.leftMs() > 0) faults.push(`${member} holds ${lease.source}, and ${other.member} does`);
      if (other.lease.epoch >= lease.epoch) faults.push(`${member} holds ${lease.source} with an old epoch`);
    }
    all.push({ member, lease });
  }

  return {
    ...{ clock, tables, faults },
    member(name, options = {}) {
      const link = tables.connect();
      const { log, lines } = countingLog(1_000);
      const metrics = createMetrics();
      const running = new Map<string, Lease>();
      const does: VirtualMember["does"] = { startMs: 0, stopMs: 0, startFails: null, stopFails: null };
      const network: VirtualMember["network"] = { reaches: () => true, checks: 0 };
      const [leases, stops]: [Lease[], VirtualMember["stops"]] = [[], []];

      async function hold(lease: Lease): Promise<HeldLease> {
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
        ...{ database: link.database, name, sources, digest: "0123456789abcdef", hold, clock, log, metrics },
        page: () => `http://${name}.example:9850`,
        random: () => 1,
        async check(source) {
          network.checks += 1;
          return network.reaches(source);
        },
        ...options,
      });
      async function ended<T>(work: Promise<T>): Promise<T | Error> {
        let answer: T | Error | undefined;
        let isOver = false;
        work.then(
          (value) => {
            [answer, isOver] = [value, true];
          },
          (error: unknown) => {
            [answer, isOver] = [error as Error, true];
          },
        );
        for (let n = 0; n < 1_000 && !isOver; n += 1) await clock.advance(100);
        if (!isOver) throw new Error("That takes more than a hundred seconds.");
        return answer as T | Error;
      }
      return {
        ...{ fleet, link, metrics, leases, stops, does, network, warnings: lines },
        holding: () =>
          [...running]
            .filter(([, lease]) => lease.leftMs() > 0)
            .map(([source]) => source)
            .toSorted(),
        async start() {
          const error = await ended(fleet.start(new AbortController().signal));
          if (error instanceof Error) throw error;
        },
        refused: () => ended(fleet.start(new AbortController().signal)),
        async stop(deadlineMs = 1_000) {
          await ended(fleet.stop(deadlineMs));
        },
      };
    },
  };
}
