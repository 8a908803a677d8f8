import { expect } from "vitest";
import { systemClock } from "#src/core/runtime/clock.ts";
import { createLog } from "#src/core/runtime/log.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { PostgresState } from "#src/engine/store/state-config.ts";
import { createFleet, type FleetOptions } from "#src/scale/fleet/fleet.ts";
import type { FleetTiming } from "#src/scale/fleet/lease-timing.ts";
import type { Lease, RunningSource } from "#src/scale/fleet/running-sources.ts";
import { openStateDatabase } from "#src/scale/postgres/open-state-database.ts";
import type { StateDatabase } from "#src/scale/postgres/state-database.ts";
import { queryPostgres } from "../query-postgres.ts";
import type { RealServer } from "../real-servers.ts";
import { startServerForTests, urlAt } from "../store/postgres/postgres-harness.ts";
import { startDatabaseProxy } from "../takeovers/database-proxy.ts";
import { closeAfterTest } from "../test-resources.ts";

/** Production timing, five times as fast. */
const TIMING: FleetTiming = { ttlMs: 1_800, renewMs: 600, marginMs: 200, handOverMs: 1_000 };

export const SOURCES = Array.from({ length: 9 }, (_, n) => `building${n}`);

type MemberOptions = Partial<Pick<FleetOptions, "configDigest" | "startSource" | "timing" | "clock">>;

let schemas = 0;

/** Starts PostgreSQL for the tests of a `describe`; each test begins its own fleet. */
export function fleetsInPostgres(hasOwnClock = false) {
  const server = startServerForTests({ lines: ["fsync = off", "max_connections = 100"], hasOwnClock });
  return { server, begin: () => closeAfterTest(createPostgresFleet(server())) };
}

/** A fleet in its own schema. `close` fails if two leases on one source were ever valid at once, or an epoch did not rise. */
export function createPostgresFleet(server: Pick<RealServer, "port">) {
  schemas += 1;
  const schema = `fleet_${process.pid}_${schemas}`;
  const started: { readonly member: string; readonly lease: Lease; isOver: boolean }[] = [];
  const faults: string[] = [];
  const endings: (() => Promise<void>)[] = [];
  const log = createLog({ level: process.env.PLENUM_TEST_LOG ?? "silent" });

  function judge(): void {
    const valid = started.filter(({ lease }) => lease.remainingMs() > 0);
    for (const { member, lease } of valid) {
      const other = valid.find((each) => each.lease.source === lease.source && each.lease !== lease);
      if (other !== undefined) faults.push(`${member} and ${other.member} hold ${lease.source} at once`);
    }
  }
  const judging = setInterval(judge, 20);

  function record(member: string, lease: Lease) {
    const { source, epoch } = lease;
    const former = started.filter((each) => each.lease.source === source && each.lease.epoch >= epoch);
    if (former.length > 0) faults.push(`${member} holds ${source} with the old epoch ${epoch}`);
    const entry = { member, lease, isOver: false };
    started.push(entry);
    judge();
    return entry;
  }

  const open = (port: number) =>
    openStateDatabase({
      config: PostgresState.parse({ url: urlAt(port), schema }),
      ...{ clock: systemClock, log, migrate: true, connections: 3 },
    });

  const ownedBy = (member: string) =>
    started
      .filter((each) => each.member === member && !each.isOver && each.lease.remainingMs() > 0)
      .map(({ lease }) => lease.source)
      .toSorted();

  const owned = () => [...new Set(started.flatMap(({ member }) => ownedBy(member)))].toSorted();

  function createMember(name: string, database: StateDatabase, options: MemberOptions = {}) {
    async function run(lease: Lease): Promise<RunningSource> {
      const entry = record(name, lease);
      const end = () => {
        entry.isOver = true;
      };
      lease.signal.addEventListener("abort", end);
      return { stop: async () => end() };
    }
    const metrics = createMetrics();
    const fleet = createFleet({
      database,
      name,
      sources: SOURCES,
      configDigest: "0123456789abcdef",
      startSource: run,
      metrics,
      timing: TIMING,
      ...{ pageUrl: () => "http://127.0.0.1:8080", clock: systemClock, log: log.child({ member: name }) },
      ...options,
    });
    return { fleet, metrics };
  }

  return {
    ...{ faults, createMember, owned },
    async member(name: string, options: MemberOptions = {}) {
      const network = await startDatabaseProxy(server.port);
      const connected = await open(network.port);
      const killed = new AbortController();
      const { fleet, metrics } = createMember(name, connected, options);
      let isOver = false;
      const end = async (work: () => Promise<void>) => {
        if (isOver) return;
        isOver = true;
        await work();
        await connected.close();
        await network.close();
      };
      const crash = () =>
        end(async () => {
          network.cut();
          killed.abort(new Error("killed"));
          await fleet.stop(0);
        });
      endings.push(crash);
      await fleet.start(killed.signal);
      return {
        ...{ name, fleet, metrics, crash },
        holding: () => ownedBy(name),
        stop: () => end(() => fleet.stop(2_000)),
      };
    },
    query: (text: string) => queryPostgres(server, "postgres", `set search_path = ${schema}; ${text}`),
    async database() {
      const database = await open(server.port);
      endings.push(() => database.close());
      return database;
    },
    /** Waits until only these members hold all sources, evenly. */
    async settled(...members: readonly { holding(): readonly string[] }[]) {
      const state = () => {
        const counts = members.map((member) => member.holding().length);
        const isEven = Math.max(...counts) - Math.min(...counts) <= 1;
        return [isEven, owned().length, ...members.flatMap((member) => member.holding()).toSorted()];
      };
      await expect.poll(state, { interval: 20 }).toEqual([true, SOURCES.length, ...SOURCES]);
    },
    async close() {
      for (const end of endings.toReversed()) await end();
      clearInterval(judging);
      expect(faults).toEqual([]);
    },
  };
}
