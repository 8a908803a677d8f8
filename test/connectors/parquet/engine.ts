import { join } from "node:path";
import { ParquetConfig } from "#connectors/parquet/config.ts";
import { createParquetSink } from "#connectors/parquet/sink.ts";
import type { BatchInfo, ConnectorContext, Receipt, SinkStateChange, TickResult } from "#src/core/connector.ts";
import type { Event } from "#src/core/model/event.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { sampleEvent, valueEvent } from "../../sample-events.ts";
import { createMemoryStore } from "../../sync/memory-store.ts";
import { closeAfterTest, testFolder } from "../../test-resources.ts";
import { contextFor, never } from "../context.ts";
import { type S3Server, startS3 } from "./s3-server.ts";

const START_MS = Date.parse("2026-11-21T12:00:00.000Z");
export const DAY_MS = 86_400_000;
export const LAKES = [
  ["folder", "plain"],
  ["s3", "plain"],
  ["folder", "delta"],
  ["s3", "delta"],
] as const;

export type Engine = ReturnType<typeof createEngine>;

/** A step-by-step engine: event log, cursor and sink state survive `kill`. */
export function createEngine(
  sinkOptions: Record<string, unknown>,
  initialState?: SinkStateChange,
  contextChanges: Partial<ConnectorContext> = {},
) {
  const store = createMemoryStore();
  let monotonic = 0;
  let wallAhead = 0;
  let isWallSet = false;
  let buffered = 0;
  let config = sinkOptions;
  const clock = { ...systemClock, now: () => systemClock.now() + wallAhead, monotonic: () => monotonic };
  const context = () => ({ ...contextFor("lake", clock, store), ...contextChanges });
  const isReady = initialState === undefined ? null : context().sinkState.put(initialState);
  const make = () => createParquetSink(ParquetConfig.parse(config), context());

  async function settle(through: number, remember: ReadonlyMap<string, unknown> = new Map()): Promise<void> {
    await context().sinkState.put(remember);
    engine.cursor = through;
    buffered = 0;
  }

  function restart(error: unknown): never {
    buffered = 0;
    throw error;
  }

  const engine = {
    sink: make(),
    store,
    log: [] as Event[],
    cursor: 0,
    dropped: new Set<number>(),
    /** The wall clock moves only after `setWall`. */
    pass(ms: number): void {
      monotonic += ms;
      if (isWallSet) wallAhead += ms;
    },
    wallMs: (): number => clock.now(),
    setWall(ms: number): void {
      wallAhead = ms - systemClock.now();
      isWallSet = true;
    },
    async settleDown(): Promise<void> {
      for (let n = 0; n < 500; n++) {
        const { stateChanges: remember, settled: isSettled } = await engine.tick();
        if (remember === undefined && isSettled !== true) return;
      }
      throw new Error("The sink never has nothing left to do.");
    },
    async offer(batch: number): Promise<number> {
      await isReady;
      const after = Math.max(engine.cursor, buffered);
      const positions = engine.log
        .map((_, n) => n + 1)
        .filter((position) => position > after && !engine.dropped.has(position))
        .slice(0, batch);
      const last = positions.at(-1);
      if (last === undefined) return 0;
      const events = positions.flatMap((position) => engine.log[position - 1] ?? []);
      const receipt = await engine.sink.write(events, never(), undefined, offered(positions)).catch(restart);
      if (receipt.buffered === true) buffered = last;
      else await settle(last, receipt.stateChanges);
      return positions.length;
    },
    async finish(batch = 100): Promise<void> {
      while ((await engine.offer(batch)) > 0);
      engine.pass(DAY_MS);
      await engine.tick();
      await engine.tick();
    },
    async deliver(...events: readonly Event[]): Promise<void> {
      engine.log.push(...events);
      await engine.finish();
    },
    redeliver(): Promise<Receipt> {
      const positions = engine.log.map((_, n) => n + 1);
      return engine.sink.write(engine.log, never(), undefined, { ...offered(positions), isRedelivery: true });
    },
    async tick(): Promise<TickResult> {
      const ticked = await engine.sink.tick?.(never()).catch(restart);
      if (ticked === undefined) throw new Error("The sink has no tick.");
      if (ticked.settled === true) await settle(Math.max(buffered, engine.cursor), ticked.stateChanges);
      else await context().sinkState.put(ticked.stateChanges ?? new Map());
      return ticked;
    },
    copy: (): Promise<SinkStateChange> => context().sinkState.all(),
    kill(other = config): void {
      config = other;
      buffered = 0;
      engine.sink = make();
    },
  };
  return engine;
}

/** Counts the turns of the event loop while asynchronous work runs. */
export async function countLoopTicks(work: () => Promise<unknown>): Promise<number> {
  let ticks = 0;
  let isDone = false;
  const count = () => {
    ticks += 1;
    if (!isDone) setImmediate(count);
  };
  setImmediate(count);
  await work();
  isDone = true;
  return ticks;
}

export function createFolderEngine(config: Record<string, unknown> = {}) {
  const folder = join(testFolder(), "lake");
  return { folder, engine: createEngine({ folder, ...config }) };
}

export async function openS3(): Promise<S3Server> {
  return closeAfterTest(await startS3());
}

export function copyOf(s3: S3Server): string {
  const folder = testFolder();
  s3.dump(folder);
  return folder;
}

export function offered(positions: readonly number[]): BatchInfo {
  return { positions, committedAt: positions.map(committedAt), isRedelivery: false };
}

export function committedAt(position: number): string {
  return new Date(START_MS + 1_000 * position).toISOString();
}

export const values = (count: number, from = 0) => Array.from({ length: count }, (_, n) => valueEvent(from + n));

export function renamedTag(displayName: string): Event {
  const event = sampleEvent("tag-changed", { time: "2026-11-03T00:00:00.000Z" });
  return { ...event, data: { ...event.data, tag: { ...event.data.tag, displayName } } } as Event;
}

export function daySealed(revision = 1): Event {
  const event = sampleEvent("day-sealed", { time: "2026-11-05T00:00:00.000Z" }, revision);
  return { ...event, data: { ...event.data, date: "2026-11-02", revision, expected: 42 } } as Event;
}
