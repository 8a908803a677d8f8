import { describe, expect, test } from "vitest";
import { Retryable } from "#src/core/errors/errors.ts";
import { type ScriptedSink, scriptedSink } from "./dispatcher-harness.ts";
import { commit, gapsOf, harness, ids, started, stop, useHarness, values } from "./dispatcher-steps.ts";

useHarness();

const SECOND = 1_000;
const MINUTE = 60 * SECOND;

interface MortalSink extends ScriptedSink {
  /** Changes with each restart; null: the server states no instance. */
  life: string | null;
  looks: number;
}

function mortalSink(life: string | null = "1"): MortalSink {
  const sink: MortalSink = Object.assign(scriptedSink(), {
    life,
    looks: 0,
    async detectRestart(before: string | null) {
      sink.looks += 1;
      if (sink.life === "broken") throw new Retryable("no answer");
      return sink.life === null ? null : { instanceId: sink.life, isNew: before !== null && before !== sink.life };
    },
  });
  return sink;
}

async function minutes(from: number, count: number): Promise<void> {
  for (const event of values(from, count)) await commit([event], MINUTE);
}

/** 15 minutes of events, plus up to two of the half minute between two checks. */
function expectWindow(again: readonly unknown[], minutes = 15): void {
  expect(again.length).toBeGreaterThanOrEqual(minutes);
  expect(again.length).toBeLessThanOrEqual(minutes + 2);
}

const since = (sink: ScriptedSink, count: number) => ids(sink.writes.flat().slice(count));

describe("a restarted server", () => {
  test("receives the events of the last 15 minutes again, in order, and the restart is reported in a notice", async () => {
    const sink = mortalSink();
    const dispatcher = await started({ a: sink });
    await minutes(0, 25);
    expect(since(sink, 25)).toEqual([]);
    sink.life = "2";
    await harness.clock.advance(MINUTE);
    const again = since(sink, 25);
    expectWindow(again);
    expect(again).toEqual(ids(values(25 - again.length, again.length)));
    expect(harness.lines.filter(({ level }) => level >= 40)).toMatchObject([{ sink: "a", again: again.length }]);
    expect(dispatcher.notices()).toEqual([expect.stringContaining(`are sent again: ${again.length} events.`)]);
    await harness.clock.advance(61 * MINUTE);
    expect(dispatcher.notices()).toEqual([]);
    expect(since(sink, 25)).toEqual(again);
  });

  test("receives at most the events of 15 minutes again after a time in which it reported no instance id", async () => {
    const sink = mortalSink();
    await started({ a: sink });
    await minutes(0, 2);
    sink.life = null;
    await minutes(2, 28);
    sink.life = "1";
    await minutes(30, 1);
    sink.life = "2";
    await harness.clock.advance(MINUTE);
    const again = since(sink, 31);
    expectWindow(again);
  });

  test("receives all replayed events again when the replay was shortly before the restart", async () => {
    const sink = mortalSink();
    await started({ a: sink }, { batch: 1 });
    await commit(values(0, 600), 20 * MINUTE);
    expect(await harness.store.outbox.replay("a", "2026-01-01T00:00:00Z")).toBe(600);
    await harness.clock.advance(MINUTE);
    expect(since(sink, 600)).toHaveLength(600);
    sink.life = "2";
    await harness.clock.advance(2 * MINUTE);
    expect(new Set(since(sink, 1_200))).toEqual(new Set(ids(values(0, 600))));
  });

  test("receives recently delivered events again, however long ago they were committed", async () => {
    const sink = mortalSink();
    await started({ a: sink }, { retry: { first: "1m", max: "1m" } });
    await minutes(0, 1);
    sink.respond = () => Promise.reject(new Retryable("away"));
    await minutes(1, 60);
    const tries = sink.writes.flat().length;
    sink.respond = () => ({ rejected: [] });
    await harness.clock.advance(2 * MINUTE);
    const caughtUp = since(sink, tries);
    expect(caughtUp).toEqual(ids(values(1, 60)));
    sink.life = "2";
    await harness.clock.advance(MINUTE);
    expect(since(sink, tries + 60)).toEqual(caughtUp);
  });

  test("is detected at the next start when it restarted while no worker ran", async () => {
    const first = mortalSink();
    const dispatcher = await started({ a: first });
    await minutes(0, 25);
    await stop(dispatcher);
    await harness.clock.advance(7 * 60 * MINUTE);
    const second = mortalSink("2");
    await started({ a: second });
    await harness.clock.advance(SECOND);
    const again = ids(second.writes.flat());
    expect(again.length).toBeGreaterThanOrEqual(15);
    expect(again).toEqual(ids(values(25 - again.length, again.length)));
  });

  test("receives events from before a restart of the worker again; the downtime of the worker does not count", async () => {
    const sink = mortalSink();
    const first = await started({ a: sink });
    await minutes(0, 10);
    await stop(first);
    const next = mortalSink();
    await started({ a: next });
    await minutes(10, 2);
    const before = next.writes.flat().length;
    next.life = "2";
    await harness.clock.advance(MINUTE);
    expect(since(next, before)).toEqual(ids(values(0, 12)));
  });

  test("receives the events of the first replay again when it restarts during that replay", async () => {
    const sink = mortalSink();
    await started({ a: sink }, { batch: 5 });
    await minutes(0, 25);
    sink.life = "2";
    await harness.clock.advance(MINUTE);
    const first = since(sink, 25);
    await minutes(25, 5);
    const before = sink.writes.flat().length;
    sink.life = "3";
    await harness.clock.advance(MINUTE);
    expect(new Set(since(sink, before))).toEqual(new Set([...first, ...ids(values(25, 5))]));
  });

  test("receives the events delivered since the last check again when the worker was killed as well", async () => {
    const first = mortalSink();
    const dispatcher = await started({ a: first });
    await minutes(0, 25);
    // The worker is killed after the settlement and before the next check.
    await commit(values(25, 3), 10);
    await stop(dispatcher);
    const second = mortalSink("2");
    await started({ a: second });
    await harness.clock.advance(SECOND);
    expect(ids(second.writes.flat()).slice(-3)).toEqual(ids(values(25, 3)));
  });

  test("is checked at each opening of the sink and every 30 s", async () => {
    const sink = mortalSink();
    await started({ a: sink }, { retry: { first: "1s", max: "1s" } });
    expect(sink.looks).toBe(1);
    await harness.clock.advance(10 * MINUTE);
    expect(sink.looks).toBeGreaterThanOrEqual(19);
    expect(sink.looks).toBeLessThanOrEqual(21);
    const before = sink.looks;
    sink.respond = () => Promise.reject(new Retryable("away"));
    await commit(values(0, 1), 2 * SECOND);
    expect(sink.looks).toBeGreaterThan(before);
  });

  test("is checked again after 5, 10, 20 and 30 s when it stops responding to checks", async () => {
    const sink = mortalSink();
    await started({ a: sink });
    await minutes(0, 2);
    sink.life = "broken";
    const looks: number[] = [];
    for (let second = 0; second < 120; second += 1) {
      const before = sink.looks;
      await harness.clock.advance(SECOND);
      if (sink.looks > before) looks.push(second);
    }
    expect(gapsOf(looks).slice(0, 4)).toEqual([5, 10, 20, 30]);
    sink.life = "2";
    await harness.clock.advance(30 * SECOND);
    expect(since(sink, 2)).toHaveLength(2);
  });

  test("receives no event again when it reports no instance id or the check fails", async () => {
    for (const life of [null, "broken"]) {
      const sink = mortalSink(life);
      const dispatcher = await started({ a: sink });
      const count = 3;
      await minutes(life === null ? 0 : 10, count);
      expect(sink.writes.flat()).toHaveLength(count);
      await harness.clock.advance(10 * MINUTE);
      sink.life = "1";
      await harness.clock.advance(MINUTE);
      expect(sink.writes.flat()).toHaveLength(count);
      sink.life = "broken";
      await harness.clock.advance(10 * MINUTE);
      sink.life = "1";
      await harness.clock.advance(MINUTE);
      expect(sink.writes.flat()).toHaveLength(count);
      await stop(dispatcher);
    }
  });

  test("delays a delivery by at most five seconds when it never responds to the check, and never delays a stop", async () => {
    const sink = mortalSink();
    sink.detectRestart = () => new Promise(() => undefined);
    const dispatcher = await started({ a: sink });
    await commit(values(0, 1), 4 * SECOND);
    expect(sink.writes).toEqual([]);
    await harness.clock.advance(SECOND + 1);
    expect(sink.writes).toHaveLength(1);
    await harness.clock.advance(31 * SECOND);
    await stop(dispatcher);
    expect(sink.closes).toBe(1);
  });

  test("is not checked with `replay_after_restart: 0s`, and receives the events of the last 3 minutes again with `3m`", async () => {
    const [off, short] = [mortalSink(), mortalSink()];
    const first = await started({ a: off }, { replay_after_restart: "0s" });
    await minutes(0, 5);
    off.life = "2";
    await harness.clock.advance(5 * MINUTE);
    expect([off.looks, off.writes.flat().length]).toEqual([0, 5]);
    await stop(first);
    await started({ b: short }, { replay_after_restart: "3m" });
    await minutes(5, 25);
    const before = short.writes.flat().length;
    short.life = "2";
    await harness.clock.advance(MINUTE);
    expectWindow(since(short, before), 3);
  });

  test("is detected although the wall clock was changed", async () => {
    for (const stepMs of [-60 * MINUTE, 10 * 1_440 * MINUTE]) {
      const sink = mortalSink(`before ${stepMs}`);
      const dispatcher = await started({ a: sink });
      const had = sink.writes.flat().length;
      await minutes(stepMs < 0 ? 100 : 200, 20);
      harness.clock.stepWall(stepMs);
      await minutes(stepMs < 0 ? 120 : 220, 5);
      const before = sink.writes.flat().length;
      expect(before).toBe(had + 25);
      sink.life = `after ${stepMs}`;
      await harness.clock.advance(MINUTE);
      const again = since(sink, before);
      expectWindow(again);
      await stop(dispatcher);
    }
  });
});
