import { Client } from "pg";
import { afterAll, afterEach, beforeAll, expect } from "vitest";
import { type Clock, systemClock } from "#src/core/runtime/clock.ts";
import { createLog } from "#src/core/runtime/log.ts";
import { createMetrics, type Metrics } from "#src/core/runtime/metrics.ts";
import { PostgresState } from "#src/engine/store/config.ts";
import { createFleet, type Fleet, type FleetOptions } from "#src/scale/fleet/fleet.ts";
import type { HeldLease, Lease } from "#src/scale/fleet/holdings.ts";
import type { Timing } from "#src/scale/fleet/timing.ts";
import { openStateDatabase } from "#src/scale/postgres/open.ts";
import type { StateDatabase } from "#src/scale/postgres/state-database.ts";
import { type RealServer, startPostgres } from "../real-servers.ts";
import { type Network, startNetwork } from "./network.ts";

/** As in life, in a fifth of the time. */
export const TIMING: Timing = { ttlMs: 1_800, renewMs: 600, marginMs: 200, handOverMs: 1_000 };

export const SOURCES = Array.from({ length: 9 }, (_, n) => `building${n}`);

/** A member in this process; what runs for its sources is only written down. */
export interface TestMember {
  readonly name: string;
  readonly fleet: Fleet;
  readonly database: StateDatabase;
  readonly network: Network;
  readonly clock: PausableClock;
  readonly metrics: Metrics;
  /** Sources for which something runs and whose lease is good. */
  holding(): readonly string[];
  /** Ends without a goodbye, as by SIGKILL. */
  crash(): Promise<void>;
  stop(deadlineMs?: number): Promise<void>;
}

export interface MemberWishes extends Partial<Pick<FleetOptions, "sources" | "digest" | "hold" | "timing">> {
  /** By how much its wall clock is wrong, in milliseconds. */
  readonly wrongByMs?: number;
  /** In place of the database itself. */
  readonly around?: (database: StateDatabase) => StateDatabase;
}

export interface Rig {
  /** A member that is not started, at somebody's connections. */
  fleet(
    name: string,
    database: StateDatabase,
    more?: MemberWishes & { readonly clock?: Clock; readonly metrics?: Metrics },
  ): Fleet;
  member(name: string, wishes?: MemberWishes): Promise<TestMember>;
  /** Rows as lists. */
  ask(text: string, values?: readonly unknown[]): Promise<readonly (readonly unknown[])[]>;
  /** For an operator. */
  database(): Promise<StateDatabase>;
  /** What must never be: two who hold one source, and epochs that do not rise. */
  readonly faults: readonly string[];
  /** All that was ever begun, in order. */
  readonly begun: readonly Begun[];
  /** Sources for which something runs somewhere. */
  held(): readonly string[];
  /** Waits until these members, and nobody else, hold all sources, evenly. */
  settled(...members: readonly TestMember[]): Promise<void>;
  close(): Promise<void>;
}

export interface Begun {
  readonly member: string;
  readonly source: string;
  readonly epoch: number;
  readonly lease: Lease;
  readonly atMs: number;
  isOver: boolean;
}

let schemas = 0;

/** A server for the tests of a `describe`, and a fleet of its own for each test that begins one. */
export function fleetsOfTheirOwn(hasOwnClock = false) {
  let server: RealServer;
  const rigs: Rig[] = [];
  beforeAll(async () => {
    server = await startPostgres({ lines: ["fsync = off", "max_connections = 100"], hasOwnClock });
  });
  afterAll(() => server.stop());
  afterEach(async () => {
    for (const each of rigs.splice(0)) await each.close();
  });
  return {
    server: () => server,
    begin(): Rig {
      const rig = createRig(server);
      rigs.push(rig);
      return rig;
    },
  };
}

/**
 * A fleet in a schema of its own. Of every lease that is begun it is judged at that moment that no other lease on the
 * same source is good any more, and that its epoch is higher than all before; the faults are thrown by `close`.
 */
export function createRig(server: Pick<RealServer, "port">): Rig {
  schemas += 1;
  const schema = `fleet_${process.pid}_${schemas}`;
  const begun: Begun[] = [];
  const faults: string[] = [];
  const endings: (() => Promise<void>)[] = [];
  const log = createLog({ level: process.env.PLENUM_TEST_LOG ?? "silent" });

  function judge(): void {
    const good = begun.filter(({ lease }) => lease.leftMs() > 0);
    for (const [n, one] of good.entries()) {
      const other = good.slice(n + 1).find(({ source }) => source === one.source);
      if (other !== undefined) {
        faults.push(`${one.member} (${one.epoch}) and ${other.member} (${other.epoch}) hold ${one.source} at once`);
      }
    }
  }

  function noteBegin(member: string, lease: Lease): Begun {
    const { source, epoch } = lease;
    const highest = Math.max(0, ...begun.filter((each) => each.source === source).map((each) => each.epoch));
    if (epoch <= highest) faults.push(`${member} holds ${source} with ${epoch} after ${highest}`);
    const one = { member, source, epoch, lease, atMs: performance.now(), isOver: false };
    begun.push(one);
    judge();
    return one;
  }

  const judging = setInterval(judge, 20);

  async function open(port: number): Promise<StateDatabase> {
    return openStateDatabase({
      config: PostgresState.parse({
        url: `postgresql://postgres@127.0.0.1:${port}/postgres?sslmode=disable`,
        schema,
      }),
      clock: systemClock,
      log,
      migrate: true,
      connections: 3,
    });
  }

  const holds = (member: string) =>
    begun
      .filter((each) => each.member === member && !each.isOver && each.lease.leftMs() > 0)
      .map(({ source }) => source)
      .toSorted();

  const rig: Rig = {
    begun,
    faults,
    fleet(name, database, wishes = {}) {
      const { sources = SOURCES, digest = "0123456789abcdef", timing = TIMING, hold = noted } = wishes;
      async function noted(lease: Lease): Promise<HeldLease> {
        const one = noteBegin(name, lease);
        lease.signal.addEventListener("abort", () => {
          one.isOver = true;
        });
        return {
          async stop() {
            one.isOver = true;
          },
        };
      }
      return createFleet({
        database,
        name,
        sources,
        digest,
        page: () => "http://127.0.0.1:8080",
        hold,
        clock: wishes.clock ?? systemClock,
        log: log.child({ member: name }),
        metrics: wishes.metrics ?? createMetrics(),
        timing,
      });
    },
    async member(name, wishes = {}) {
      const network = await startNetwork(server.port);
      const real = await open(network.port);
      const database = wishes.around?.(real) ?? real;
      const clock = pausable(wishes.wrongByMs ?? 0);
      const metrics = createMetrics();
      const killed = new AbortController();
      const fleet = rig.fleet(name, database, { ...wishes, clock, metrics });
      let isOver = false;
      const end = async (work: () => Promise<void>) => {
        if (isOver) return;
        isOver = true;
        clock.resume();
        await work();
        await real.close();
        await network.close();
      };
      const member: TestMember = {
        name,
        fleet,
        database,
        network,
        clock,
        metrics,
        holding: () => holds(name),
        crash: () =>
          end(async () => {
            network.cut();
            killed.abort(new Error("killed"));
            await fleet.stop(0);
          }),
        stop: (deadlineMs = 2_000) => end(() => fleet.stop(deadlineMs)),
      };
      endings.push(() => member.crash());
      await fleet.start(killed.signal);
      return member;
    },
    async ask(text, values = []) {
      const client = new Client({
        host: "127.0.0.1",
        port: server.port,
        database: "postgres",
        user: "postgres",
      });
      await client.connect();
      try {
        await client.query(`set search_path = ${schema}`);
        const { rows } = await client.query({ text, values: [...values], rowMode: "array" });
        return rows as unknown[][];
      } finally {
        await client.end();
      }
    },
    async database() {
      const database = await open(server.port);
      endings.push(() => database.close());
      return database;
    },
    held: () => [...new Set(begun.flatMap(({ member }) => holds(member)))].toSorted(),
    async settled(...members) {
      await expect
        .poll(
          () => {
            const counts = members.map((member) => member.holding().length);
            const isEven = Math.max(...counts) - Math.min(...counts) <= 1;
            return [isEven, rig.held().length, ...members.flatMap((member) => member.holding()).toSorted()];
          },
          { interval: 20 },
        )
        .toEqual([true, SOURCES.length, ...SOURCES]);
    },
    async close() {
      for (const end of endings.toReversed()) await end();
      clearInterval(judging);
      expect(faults).toEqual([]);
    },
  };
  return rig;
}

/** The system's time, with another wall clock; while it is paused nobody wakes, as in a stopped process. */
export interface PausableClock extends Clock {
  pause(): void;
  resume(): void;
}

function pausable(wrongByMs: number): PausableClock {
  let paused: Promise<void> | null = null;
  let resume = () => {};
  return {
    ...systemClock,
    now: () => systemClock.now() + wrongByMs,
    async sleep(ms, signal) {
      await systemClock.sleep(ms, signal);
      while (paused !== null) await paused;
      signal?.throwIfAborted();
    },
    pause() {
      paused ??= new Promise((resolve) => {
        resume = resolve;
      });
    },
    resume() {
      paused = null;
      resume();
    },
  };
}
