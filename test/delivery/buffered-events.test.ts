import { describe, expect, test } from "vitest";
import type { BatchInfo, Receipt, Sink, TickResult } from "#src/core/connector.ts";
import { Rejected, Retryable } from "#src/core/errors/errors.ts";
import { seededRandom } from "../commands/seeded-random.ts";
import { sampleEvent, valueEvent } from "../sample-events.ts";
import { replay, seed } from "../seed.ts";
import { type ScriptedSink, scriptedSink } from "./dispatcher-harness.ts";
import { commit, gapsOf, harness, ids, lag, started, useHarness, values } from "./dispatcher-steps.ts";

useHarness();

const alarm = (n: number) => sampleEvent("alarm-raised", {}, n);
const GATHERED: Receipt = { rejected: [], buffered: true };

describe("buffered events", () => {
  test("are settled together with the first batch that the sink reports as durable, and do not block later events", async () => {
    const sink = scriptedSink(() => GATHERED);
    await started({ a: sink });
    await commit(values(0, 3));
    await commit(values(10, 2));
    expect(sink.writes.map(ids)).toEqual([ids(values(0, 3)), ids(values(10, 2))]);
    expect(await lag()).toMatchObject({ depth: 5 });
    sink.respond = () => ({ rejected: [] });
    await commit([valueEvent(20)]);
    expect(await lag()).toMatchObject({ depth: 0 });
    expect(sink.writes).toHaveLength(3);
    expect(await harness.metrics.deliveries.get()).toMatchObject({
      values: [{ labels: { sink: "a", outcome: "accepted" }, value: 6 }],
    });
  });

  test("have sequence numbers without a gap, also after a failure", async () => {
    const numbers: (number | undefined)[][] = [];
    let answer: Receipt = GATHERED;
    const sink = scriptedSink((_batch, _signal, _accepted, offer) => {
      numbers.push((offer?.sequences ?? []).map((each) => each?.number));
      if (numbers.length === 3) throw new Retryable("away");
      return answer;
    });
    await started({ a: sink }, { sequence: true });
    await commit(values(0, 2));
    await commit(values(10, 2));
    answer = { rejected: [] };
    await commit(values(20, 1));
    await harness.clock.advance(60_000);
    await commit(values(30, 1));
    expect(numbers).toEqual([[1, 2], [3, 4], [5], [1, 2, 3, 4, 5], [6]]);
  });

  test("are offered again from the first event after a failure, and none becomes a dead letter", async () => {
    const sink = scriptedSink(() => GATHERED);
    await started({ a: sink }, { schedule: [] });
    await commit(values(0, 3));
    sink.respond = () => {
      throw new Rejected("The far end does not want it.");
    };
    await commit([valueEvent(10)]);
    expect(await lag()).toMatchObject({ depth: 4, deadLetters: 0 });
    sink.respond = () => ({ rejected: [] });
    await harness.clock.advance(60_000);
    expect(ids(sink.writes.at(-1) ?? [])).toEqual(ids([...values(0, 3), valueEvent(10)]));
    expect(await lag()).toMatchObject({ depth: 0, deadLetters: 0 });
  });

  test("are settled, with their rejections, when the sink's tick returns `settled`", async () => {
    const sink: ScriptedSink & Sink = Object.assign(
      scriptedSink(() => ({ rejected: [{ index: 1, reason: "no row" }], buffered: true })),
      { tick: async (): Promise<TickResult> => ({ tickInMs: 10_000 }) },
    );
    await started({ a: sink });
    await commit(values(0, 3));
    await harness.clock.advance(10_000);
    expect(await lag()).toMatchObject({ depth: 3, deadLetters: 0 });
    sink.tick = async () => ({ tickInMs: 10_000, settled: true });
    await harness.clock.advance(10_000);
    expect(await lag()).toMatchObject({ depth: 0, deadLetters: 1 });
  });

  test("keep the cursor at its position while the filter excludes all later events", async () => {
    const sink = scriptedSink(() => GATHERED);
    await started({ a: sink }, { filter: { kinds: ["tag-value"] } });
    await commit(values(0, 2));
    await commit(
      Array.from({ length: 1_500 }, (_, n) => alarm(n)),
      60_000,
    );
    expect(await lag()).toMatchObject({ position: 0 });
    expect(sink.writes).toHaveLength(1);
  });

  test("are offered again during a replay, because replayed events must not be buffered", async () => {
    const sink = scriptedSink();
    await started({ a: sink });
    await commit(values(0, 2));
    sink.respond = () => GATHERED;
    await harness.store.outbox.replay("a", "2026-01-01T00:00:00Z");
    await harness.clock.advance(0);
    expect(harness.lines.some(({ msg }) => msg.includes("does not accept events"))).toBe(true);
    sink.respond = () => ({ rejected: [] });
    await harness.clock.advance(60_000);
    expect(ids(sink.writes.at(-1) ?? [])).toEqual(ids(values(0, 2)));
  });

  test("are retried with growing waits when they never become durable", async () => {
    const at: number[] = [];
    const sink = scriptedSink((_batch, _signal, _accepted, offer) => {
      if (offer?.positions[0] === 1) return GATHERED;
      at.push(harness.clock.now());
      throw new Retryable("The disk is full.");
    });
    await harness.store.commit({ events: values(0, 2) });
    await started({ a: sink }, { batch: 1 });
    await harness.clock.advance(10 * 60_000);
    const waits = gapsOf(at);
    expect(at.length).toBeGreaterThan(3);
    expect(at.length).toBeLessThan(60);
    expect(Math.max(...waits)).toBeGreaterThan(4 * Math.min(...waits));
  });
});

test("a sink that buffers, writes, fails and is killed at random receives every event", async () => {
  const random = seededRandom(seed);
  const landed = new Set<number>();
  let inHand: number[] = [];
  let calm = false;
  const land = () => {
    for (const position of inHand) landed.add(position);
    inHand = [];
  };
  const fail = () => {
    inHand = [];
    throw new Retryable("Something happened.");
  };
  const act = (offer: BatchInfo | undefined): Receipt => {
    for (const position of offer?.positions ?? []) {
      const before = inHand.at(-1) ?? 0;
      expect(position, replay).toBeGreaterThan(before);
      inHand.push(position);
    }
    const dice = random();
    if (calm || dice < 0.2) {
      land();
      return { rejected: [] };
    }
    return dice < 0.3 ? fail() : GATHERED;
  };
  const sink: ScriptedSink & Sink = Object.assign(
    scriptedSink((_batch, _signal, _accepted, offer) => act(offer)),
    {
      async tick(): Promise<TickResult> {
        const inMs = Math.ceil(random() * 3_000);
        const dice = random();
        if (dice < 0.1) return fail();
        if (!calm && dice < 0.7) return { tickInMs: inMs };
        land();
        return { tickInMs: inMs, settled: true };
      },
    },
  );
  let dispatcher = await started({ a: sink }, { batch: 3, filter: { kinds: ["tag-value"] } });
  for (let round = 0; round < 300; round++) {
    const events = Array.from({ length: Math.floor(random() * 6) }, (_, n) =>
      random() < 0.5 ? valueEvent(round * 10 + n) : alarm(round * 10 + n),
    );
    await harness.store.commit({ events });
    await harness.clock.advance(Math.floor(random() * 2_000));
    const next = (await harness.store.outbox.next("a", 1)).events[0]?.position ?? Number.POSITIVE_INFINITY;
    expect(Math.min(...inHand, Number.POSITIVE_INFINITY), replay).toBeGreaterThanOrEqual(next);
    if (random() > 0.02) continue;
    await dispatcher.stop(0);
    inHand = [];
    dispatcher = await started({ a: sink }, { batch: 3, filter: { kinds: ["tag-value"] } });
  }
  calm = true;
  await commit([valueEvent(1_000_000)], 120_000);
  expect(await lag(), replay).toMatchObject({ depth: 0 });
  const told = await harness.store.outbox.latest(10_000, ["tag-value"]);
  expect(told.length, replay).toBeGreaterThan(300);
  expect(landed, replay).toEqual(new Set(told.map(({ position }) => position)));
});
