import { ParquetConfig } from "#connectors/parquet/config.ts";
import { createParquetSink } from "#connectors/parquet/sink.ts";
import type { ConnectorContext, Offered, Sink, SinkStateChange, Ticked } from "#src/core/connector.ts";
import type { Event } from "#src/core/model/event.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import type { Store } from "#src/engine/store/store.ts";
import { createMemoryStore } from "../../sync/memory-store.ts";
import { contextFor, never } from "../context.ts";

/**
 * What the engine does to a sink that gathers, step by step, as a test says: a log, a cursor, what is remembered, and
 * settlement of both in one step. `kill` leaves only these.
 */
export interface Engine {
  readonly sink: Sink;
  readonly store: Store;
  /** Events that are in the log, in order; the position of the first is 1. */
  readonly log: Event[];
  /** The last position that is settled. */
  cursor: number;
  /** Positions that are no longer in the log. */
  readonly dropped: Set<number>;
  /** Milliseconds by which it knows what is old; a wall clock that was set goes with it. */
  pass(ms: number): void;
  readonly wallMs: number;
  /** Sets the wall clock of the sink, which is that of this machine before. */
  setWall(ms: number): void;
  /** Ticks until the sink has nothing left to do. */
  settleDown(): Promise<void>;
  /** Offers so many of what is next; answers how many that were. Throws what the sink throws. */
  offer(batch: number): Promise<number>;
  /** Offers all there is, then lets the sink wait until it is old enough. */
  finish(batch?: number): Promise<void>;
  tick(): Promise<Ticked>;
  /** Copy of the sink's current state, for another engine. */
  copy(): Promise<SinkStateChange>;
  /** The process ends without a word, and another one begins. */
  kill(config?: Record<string, unknown>): void;
}

const START = "2026-11-21T12:00:00.000Z";

export function createEngine(
  given: Record<string, unknown>,
  remembered?: SinkStateChange,
  more: Partial<ConnectorContext> = {},
): Engine {
  const store = createMemoryStore();
  let monotonic = 0;
  let wallAhead = 0;
  let isWallSet = false;
  let gathered = 0;
  let config = given;
  const context = () => ({
    ...contextFor(
      "lake",
      { ...systemClock, now: () => systemClock.now() + wallAhead, monotonic: () => monotonic },
      store,
    ),
    ...more,
  });
  const isReady = remembered === undefined ? null : context().memory.put(remembered);
  const make = () => createParquetSink(ParquetConfig.parse(config), context());

  async function settle(through: number, remember: ReadonlyMap<string, unknown> = new Map()) {
    await context().memory.put(remember);
    engine.cursor = through;
    gathered = 0;
  }

  const engine: Engine & { sink: Sink } = {
    sink: make(),
    store,
    log: [],
    cursor: 0,
    dropped: new Set(),
    pass(ms) {
      monotonic += ms;
      if (isWallSet) wallAhead += ms;
    },
    get wallMs() {
      return systemClock.now() + wallAhead;
    },
    setWall(ms) {
      wallAhead = ms - systemClock.now();
      isWallSet = true;
    },
    async settleDown() {
      for (let n = 0; n < 500; n++) {
        const { remember, settled: isSettled } = await engine.tick();
        if (remember === undefined && isSettled !== true) return;
      }
      throw new Error("The sink never has nothing left to do.");
    },
    async offer(batch) {
      await isReady;
      const after = Math.max(engine.cursor, gathered);
      const next = engine.log
        .map((event, n) => ({ event, position: n + 1 }))
        .filter(({ position }) => position > after && !engine.dropped.has(position))
        .slice(0, batch);
      const last = next.at(-1)?.position;
      if (last === undefined) return 0;
      const offered: Offered = {
        positions: next.map(({ position }) => position),
        committedAt: next.map(({ position }) => committedAt(position)),
        again: false,
      };
      try {
        const events = next.map(({ event }) => event);
        const receipt = await engine.sink.write(events, never(), undefined, offered);
        if (receipt.gathered === true) gathered = last;
        else await settle(last, receipt.remember);
      } catch (error) {
        gathered = 0;
        throw error;
      }
      return next.length;
    },
    async finish(batch = 100) {
      while ((await engine.offer(batch)) > 0);
      engine.pass(86_400_000);
      await engine.tick();
      await engine.tick();
    },
    async tick() {
      const ticked = await engine.sink.tick?.(never()).catch((error: unknown) => {
        gathered = 0;
        throw error;
      });
      if (ticked === undefined) throw new Error("The sink has no tick.");
      if (ticked.settled === true) await settle(Math.max(gathered, engine.cursor), ticked.remember);
      else await context().memory.put(ticked.remember ?? new Map());
      return ticked;
    },
    copy: () => context().memory.all(),
    kill(other = config) {
      config = other;
      gathered = 0;
      engine.sink = make();
    },
  };
  return engine;
}

/** A second apart. */
export function committedAt(position: number): string {
  return new Date(Date.parse(START) + 1_000 * position).toISOString();
}
