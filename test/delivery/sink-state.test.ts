import { describe, expect, test } from "vitest";
import type { BatchInfo, Receipt, Sink } from "#src/core/connector.ts";
import { ConfigError, Retryable, Throttled } from "#src/core/errors/errors.ts";
import { createSinkState } from "#src/engine/delivery/batches.ts";
import { openStore } from "#src/engine/store/open.ts";
import { valueEvent } from "../sample-events.ts";
import { type ScriptedSink, scriptedSink } from "./dispatcher-harness.ts";
import { commit, harness, lag, started, useHarness, values } from "./dispatcher-steps.ts";

useHarness();

const memory = () => createSinkState("a", harness.store);
const remembered = async () => Object.fromEntries(await memory().all());

describe("the state of a sink", () => {
  test("is written, changed and deleted in the transaction that moves the cursor, and counted in the lag", async () => {
    const sink = scriptedSink((batch) => ({
      rejected: [],
      stateChanges: new Map<string, unknown>(batch.map(({ id }) => [id, { ticket: 1 }])),
    }));
    await started({ a: sink });
    await commit(values(0, 2));
    expect(await remembered()).toEqual({ [valueEvent(0).id]: { ticket: 1 }, [valueEvent(1).id]: { ticket: 1 } });
    expect(await lag()).toMatchObject({ remembered: 2 });
    sink.respond = () => ({ rejected: [], stateChanges: new Map([[valueEvent(0).id, null]]) });
    await commit([valueEvent(7)]);
    expect(Object.keys(await remembered())).toEqual([valueEvent(1).id]);
  });

  test("is written in one transaction with the cursor: a failed write of the state settles no event", async () => {
    const sink = scriptedSink(() => ({ rejected: [], stateChanges: new Map([["key", 1n]]) }));
    await started({ a: sink });
    await commit(values(0, 1));
    expect(await lag()).toMatchObject({ depth: 1, remembered: 0 });
  });

  test("is written even if no event is settled, and is durable once `put` resolves", async () => {
    const sink = scriptedSink(async () => {
      await memory().put(new Map([["intent", true]]));
      return { rejected: [], retry: { from: 0, error: new Retryable("away") }, stateChanges: new Map([["said", 1]]) };
    });
    await started({ a: sink });
    await commit(values(0, 1));
    const other = await openStore({ folder: harness.folder, clock: harness.clock, readOnly: true });
    expect(await createSinkState("a", other).all()).toEqual(new Map(Object.entries({ intent: true, said: 1 })));
    await other.close();
  });

  test("is written with an event that is settled early, even if the rest of the batch fails", async () => {
    const sink = scriptedSink((_, _signal, accepted) => {
      accepted?.(1, new Map([["first", "settled"]]));
      return { rejected: [], retry: { from: 1, error: new Retryable("away") } };
    });
    await started({ a: sink });
    await commit(values(0, 3));
    expect(await remembered()).toEqual({ first: "settled" });
    expect(await lag()).toMatchObject({ depth: 2 });
  });
});

describe("the outbox positions of the events in a batch", () => {
  test("ascend, and are the same in a replay", async () => {
    const seen: BatchInfo[] = [];
    const sink = scriptedSink((_batch, _signal, _accepted, offer) => {
      if (offer !== undefined) seen.push(offer);
      return { rejected: [] };
    });
    await started({ a: sink });
    await commit(values(0, 3));
    await harness.store.outbox.replay("a", "2026-01-01T00:00:00Z");
    await harness.clock.advance(0);
    const [first, again] = seen;
    expect(first).toMatchObject({ isRedelivery: false });
    expect([...(first?.positions ?? [])]).toEqual([...(first?.positions ?? [])].sort((a, b) => a - b));
    expect(first?.positions).toHaveLength(3);
    expect(first?.committedAt.map(Date.parse)).toEqual(Array(3).fill(harness.clock.now()));
    expect(again).toEqual({ ...first, isRedelivery: true });
  });
});

describe("the tick function of a sink", () => {
  function ticking(tick: () => Promise<void> | void = () => undefined) {
    const at: number[] = [];
    const sink: ScriptedSink & Sink = Object.assign(scriptedSink(), {
      async tick() {
        at.push(Math.round((harness.clock.now() - START) / 1_000));
        await tick();
        return { tickInMs: 10_000, stateChanges: new Map([["ticks", at.length]]) };
      },
    });
    return { sink, at };
  }
  const START = Date.parse("2026-11-02T06:00:00Z");

  test("is called after open and then at the returned times, and its state is stored", async () => {
    const { sink, at } = ticking();
    await started({ a: sink });
    await harness.clock.advance(35_000);
    expect(at).toEqual([0, 10, 20, 30]);
    expect(await remembered()).toEqual({ ticks: 4 });
  });

  test("is delayed after a failure like a write after a failure, and no event is lost", async () => {
    let failure: Error | null = new Throttled("Wait.", 60_000);
    const { sink, at } = ticking(() => {
      if (failure !== null) throw failure;
    });
    const dispatcher = await started({ a: sink });
    await commit(values(0, 1), 30_000);
    expect(at).toEqual([0]);
    expect(dispatcher.status()).toMatchObject([{ state: "throttled" }]);
    failure = new ConfigError("No.");
    await harness.clock.advance(60_000);
    expect(dispatcher.status()).toMatchObject([{ state: "stopped", lastError: "No." }]);
    expect(sink.writes).toEqual([]);
    failure = null;
    const before = sink.opens;
    await harness.clock.advance(6 * 60_000);
    expect(sink.opens).toBe(before + 1);
    expect(sink.writes.flat()).toHaveLength(1);
    expect(dispatcher.status()).toMatchObject([{ state: "idle" }]);
  });

  test("is called ten times a second when it returns 0 ms", async () => {
    let ticks = 0;
    const tick = async () => {
      ticks += 1;
      return { tickInMs: 0 };
    };
    await started({ a: Object.assign(scriptedSink(), { tick }) });
    ticks = 0;
    await harness.clock.advance(1_000);
    expect(ticks).toBe(10);
  });

  test("is never called during a write", async () => {
    const { sink, at } = ticking(() => expect(sink.faults).toEqual([]));
    const { promise, resolve } = Promise.withResolvers<Receipt>();
    sink.respond = () => promise;
    await started({ a: sink });
    await commit(values(0, 1), 25_000);
    expect(at).toEqual([0]);
    resolve({ rejected: [] });
    await harness.clock.advance(1_000);
    expect(at).toEqual([0, 25]);
  });
});
