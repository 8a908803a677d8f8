import { describe, expect, test } from "vitest";
import { ConfigError, LocalFailure, Rejected, Retryable } from "#src/core/errors/errors.ts";
import { openStore } from "#src/engine/store/open.ts";
import { sampleEvent, valueEvent } from "../sample-events.ts";
import { describeService } from "../suites/service-suite.ts";
import { openDispatcher, scriptedSink, waitingSink } from "./dispatcher-harness.ts";
import { commit, gapsOf, harness, ids, lag, started, stop, useHarness, values, written } from "./dispatcher-steps.ts";

useHarness();

describe("delivery", () => {
  test("counts accepted, rejected and retried events", async () => {
    const sink = scriptedSink((batch) => ({
      rejected: batch.length > 2 ? [{ index: 1, reason: "No." }] : [],
      ...(batch.length > 3 ? { retry: { from: 3, error: new Retryable("away") } } : {}),
    }));
    await started({ a: sink });
    await commit(values(0, 5), 10_000);
    const { values: counts } = await harness.metrics.deliveries.get();
    const of = (outcome: string) =>
      counts.find(({ labels }) => "outcome" in labels && labels.outcome === outcome)?.value;
    expect([of("accepted"), of("rejected"), of("kept")]).toEqual([4, 1, 2]);
  });

  test("reads one batch at a time without a filter, and 500 events with a narrow filter", async () => {
    const limits: number[] = [];
    const { outbox } = harness.store;
    const { next } = outbox;
    outbox.next = (sink, limit, after) => {
      limits.push(limit);
      return next(sink, limit, after);
    };
    for (const [filter, limit] of [
      [{}, 2],
      [{ kinds: ["alarm-raised"] }, 500],
    ] as const) {
      limits.length = 0;
      const dispatcher = await started({ a: scriptedSink() }, { batch: 2, filter });
      await commit(values(limit * 10, 3), 1_000);
      expect(new Set(limits)).toEqual(new Set([limit]));
      await stop(dispatcher);
    }
  });

  test("delivers committed events at once, in order and in batches, and settles them", async () => {
    const sink = scriptedSink();
    const dispatcher = await started({ a: sink }, { batch: 2 });
    await commit(values(0, 5));
    expect(sink.writes.map(ids)).toEqual([ids(values(0, 2)), ids(values(2, 2)), ids(values(4, 1))]);
    expect(await lag()).toMatchObject({ depth: 0 });
    await harness.clock.advance(1);
    expect(dispatcher.status()).toMatchObject([{ name: "a", state: "idle", lastError: null, attempts: 0 }]);
    await stop(dispatcher);
    const next = scriptedSink();
    await started({ a: next });
    await harness.clock.advance(10_000);
    expect(written(next)).toEqual([]);
  });

  test("delivers events that another process marked for replay within a second", async () => {
    const sink = scriptedSink();
    await started({ a: sink });
    await commit(values(0, 1));
    const { folder, clock } = harness;
    const operator = await openStore({ folder, clock, locksFolder: false });
    expect(await operator.outbox.replay("a", "2026-11-01T00:00:00Z")).toBe(1);
    await operator.close();
    await clock.advance(1_000);
    expect(written(sink)).toEqual(ids([valueEvent(0), valueEvent(0)]));
    expect((await lag()).again).toBe(0);
  });

  test("wakes once a second for all sinks together while the outbox receives no event", async () => {
    const asked: number[] = [];
    const sinks = Object.fromEntries(["a", "b", "c", "d", "e"].map((name) => [name, scriptedSink()]));
    const asking = Object.assign(scriptedSink(), {
      async detectRestart(before: string | null) {
        asked.push(harness.clock.monotonic());
        return { instanceId: "1", isNew: before === null };
      },
    });
    await started({ ...sinks, a: asking });
    await harness.clock.advance(60_000);
    const woken = harness.clock.woken();
    const from = harness.clock.monotonic();
    await harness.clock.advance(600_000);
    // 600 checks for changes, 120 computations of the lag, and a check for a restarted server every 30 s.
    expect(harness.clock.woken() - woken).toBeLessThan(600 + 120 + 100);
    expect(asked.filter((atMs) => atMs > from)).toHaveLength(20);
    expect(new Set(gapsOf(asked).slice(-20))).toEqual(new Set([30_000]));
  });

  test("retries every five seconds after a failure of the local machine, and counts no attempt", async () => {
    const attempts: number[] = [];
    const ours = new LocalFailure("The broker could not be reached, because of this machine (EMFILE).");
    const sink = scriptedSink(() => {
      attempts.push(harness.clock.monotonic());
      return Promise.reject(ours);
    });
    const dispatcher = await started({ a: sink }, { retry: { first: "1m", max: "10m" }, schedule: [] });
    await commit(values(0, 1), 60_000);
    expect(attempts.length).toBeGreaterThan(10);
    expect(gapsOf(attempts).every((ms) => ms >= 5_000 && ms < 6_000)).toBe(true);
    expect(dispatcher.status()).toMatchObject([{ state: "retrying", attempts: 0 }]);
    expect(await lag()).toMatchObject({ depth: 1, deadLetters: 0 });
  });

  test("delivers to other sinks while one sink fails or hangs", async () => {
    const dead = scriptedSink(() => Promise.reject(new Retryable("refused")));
    const hanging = scriptedSink(() => new Promise(() => {}));
    const closed = scriptedSink();
    closed.onOpen = () => Promise.reject(new Retryable("no route"));
    const alive = scriptedSink();
    const dispatcher = await started({ dead, hanging, closed, alive });
    await commit(values(0, 3));
    expect(written(alive)).toEqual(ids(values(0, 3)));
    await harness.clock.advance(1);
    const states = dispatcher.status().map(({ name, state }) => `${name} ${state}`);
    expect(states).toEqual(["dead retrying", "hanging delivering", "closed retrying", "alive idle"]);
    expect(closed.writes).toEqual([]);
  });

  test("offers only the unsettled events of a batch again", async () => {
    const sink = scriptedSink(() => ({
      rejected: [
        { index: 0, reason: "bad" },
        { index: 2, reason: "kept all the same" },
      ],
      retry: { from: 2, error: new Retryable("connection lost") },
    }));
    await started({ a: sink });
    await commit(values(0, 4));
    sink.respond = () => ({ rejected: [] });
    await harness.clock.advance(1_000);
    expect(sink.writes.map(ids)).toEqual([ids(values(0, 4)), ids(values(2, 2))]);
    expect(sink.opens).toBe(2);
    expect((await harness.store.outbox.deadLetters()).map(({ reason }) => reason)).toEqual(["bad"]);
  });

  test.each([
    ["Retryable", new Retryable("refused")],
    ["Rejected", new Rejected("thrown where a receipt was due")],
    ["an unknown error", new TypeError("x is not a function")],
    ["a rejection without an error", undefined],
  ])("retries the batch after %s with growing waits, and logs one warning", async (_, error) => {
    const sink = scriptedSink(() => Promise.reject(error));
    const dispatcher = await started({ a: sink });
    await commit(values(0, 2));
    // Half of each wait is fixed, and random is 0.5: 0.75 × 1, 2, 4 … 300 s.
    await harness.clock.advance(750 + 1_500 + 3_000);
    expect(sink.writes).toHaveLength(4);
    expect(dispatcher.status()).toMatchObject([{ state: "retrying", attempts: 4 }]);
    await harness.clock.advance(3_600_000);
    expect(sink.writes.length).toBeLessThan(30);
    sink.respond = () => ({ rejected: [] });
    await harness.clock.advance(300_000);
    expect(await lag()).toMatchObject({ depth: 0, deadLetters: 0 });
    expect(harness.lines.map(({ level }) => level)).toEqual([40, 30]);
  });

  test("removes credentials in an error message from the status and the log", async () => {
    const sink = scriptedSink(() => Promise.reject(new Retryable("mqtt://ann:secret@host refused")));
    const dispatcher = await started({ a: sink });
    await commit(values(0, 1));
    expect(dispatcher.status()[0]?.lastError).toBe("mqtt://[redacted]@host refused");
    expect(JSON.stringify(harness.lines)).not.toContain("secret");
  });

  test("reports a sink with a configuration error as stopped and retries the sink every five minutes", async () => {
    const sink = scriptedSink(() => Promise.reject(new ConfigError("The token is wrong.", { hint: "Renew it." })));
    const dispatcher = await started({ a: sink });
    await commit(values(0, 1));
    expect(dispatcher.status()).toMatchObject([{ state: "stopped", lastError: "The token is wrong. Renew it." }]);
    expect(harness.lines.at(-1)?.msg).toContain("a person has to change something");
    await harness.clock.advance(299_999);
    expect(sink.writes).toHaveLength(1);
    sink.respond = () => ({ rejected: [] });
    await harness.clock.advance(1);
    expect(dispatcher.status()).toMatchObject([{ state: "idle" }]);
    expect(await lag()).toMatchObject({ depth: 0 });
  });

  test("settles accepted events while the rest of the batch is being written", async () => {
    const events = values(0, 5);
    const rest = Promise.withResolvers<void>();
    const sink = scriptedSink(async (_batch, _signal, accepted) => {
      accepted?.(1);
      accepted?.(3);
      // Late and excessive counts change nothing.
      accepted?.(2);
      accepted?.(9);
      await rest.promise;
      return { rejected: [] };
    });
    await started({ a: sink });
    await commit(events);
    await harness.clock.advance(0);
    const beside = await openStore({ folder: harness.folder, clock: harness.clock, readOnly: true });
    expect(ids((await beside.outbox.next("a", 100)).events.map(({ event }) => event))).toEqual(ids(events.slice(3)));
    await beside.close();
    rest.resolve();
    await harness.clock.advance(1_000);
    expect(await lag()).toMatchObject({ depth: 0, deadLetters: 0 });
    expect(written(sink)).toEqual(ids(events));
  });

  describe("a server that answers 410 Gone", () => {
    const gone = () => Promise.reject(new ConfigError("410 Gone", { reason: "gone" }));
    const at = (serverId: string, answer = scriptedSink().respond) => Object.assign(scriptedSink(answer), { serverId });

    test("ends the sink permanently, also after restarts", async () => {
      const sink = at("one", gone);
      const dispatcher = await started({ a: sink });
      await commit(values(0, 1), 3_600_000);
      expect(sink.writes).toHaveLength(1);
      expect(dispatcher.status()).toMatchObject([{ state: "ended", lastError: "410 Gone" }]);
      await stop(dispatcher);
      expect(sink.closes).toBe(1);
      const again = at("one");
      expect((await started({ a: again })).status()).toMatchObject([{ state: "ended" }]);
      await harness.clock.advance(60_000);
      expect(again.writes).toEqual([]);
    });

    test("gets no more events; a sink configured for another server continues with the undelivered events", async () => {
      const dispatcher = await started({ a: at("one", gone) });
      await commit(values(0, 2), 1_000);
      await stop(dispatcher);
      await commit(values(2, 2));
      const elsewhere = at("two");
      const next = await started({ a: elsewhere });
      await harness.clock.advance(1_000);
      expect(written(elsewhere)).toEqual(ids(values(0, 4)));
      expect(next.status()).toMatchObject([{ state: "idle", lastError: null }]);
      expect(await lag()).toMatchObject({ ended: null, depth: 0 });
    });

    test("receives events again when an operator resumes the sink while the worker runs", async () => {
      const sink = at("one", gone);
      const dispatcher = await started({ a: sink });
      await commit(values(0, 1), 1_000);
      sink.respond = () => ({ rejected: [] });
      await commit(values(1, 1), 10_000);
      expect(sink.writes).toHaveLength(1);
      const beside = await openStore({ folder: harness.folder, clock: harness.clock, locksFolder: false });
      await beside.outbox.setEnded("a", null);
      await beside.close();
      await harness.clock.advance(2_000);
      expect(dispatcher.status()).toMatchObject([{ state: "idle", lastError: null }]);
      expect(written(sink).slice(1)).toEqual(ids(values(0, 2)));
      await stop(dispatcher);
      expect([sink.closes, sink.faults]).toEqual([1, []]);
    });

    test("receives events again after the sink was removed from the configuration and added again", async () => {
      const dispatcher = await started({ a: at("one", gone) });
      await commit(values(0, 1), 2_000);
      expect(dispatcher.status()).toMatchObject([{ name: "a", state: "ended" }]);
      await stop(dispatcher);
      await stop(await started({ b: scriptedSink() }));
      const back = at("one");
      await started({ a: back });
      await harness.clock.advance(1_000);
      expect(written(back)).toEqual(ids(values(0, 1)));
    });
  });

  test("makes a rejected event a dead letter after the last wait of its schedule and delivers the next event", async () => {
    const poison = valueEvent(0).id;
    const sink = scriptedSink((batch) =>
      batch[0]?.id === poison ? { rejected: [], retry: { from: 0, error: new Rejected("500") } } : { rejected: [] },
    );
    await started({ a: sink }, { schedule: ["5s", "5m"], batch: 1 });
    await commit(values(0, 2));
    await harness.clock.advance(5_000);
    expect(sink.writes).toHaveLength(2);
    await harness.clock.advance(299_999);
    expect(sink.writes).toHaveLength(2);
    await harness.clock.advance(1);
    expect(written(sink)).toEqual([poison, poison, poison, valueEvent(1).id]);
    expect(await harness.store.outbox.deadLetters()).toMatchObject([{ reason: "attempts-exhausted: 500" }]);
  });

  test("waits for a sink that ignores the abort instead of calling it again, and uses its late result", async () => {
    const sink = waitingSink();
    const dispatcher = await started({ a: sink });
    await commit(values(0, 1), 3_600_000);
    expect(dispatcher.status()).toMatchObject([{ state: "retrying" }]);
    expect(sink.writes).toHaveLength(1);
    sink.finish();
    await harness.clock.advance(1_000);
    expect(await lag()).toMatchObject({ depth: 0 });
    expect([sink.writes.length, sink.faults]).toEqual([1, []]);
  });

  test("settles accepted events without sending the events again after the state was unwritable for a while", async () => {
    const sink = scriptedSink();
    const { outbox } = harness.store;
    const settle = outbox.settle;
    outbox.settle = () => Promise.reject(new Retryable("The disk is full."));
    const dispatcher = await started({ a: sink });
    await commit(values(0, 1), 10_000);
    expect(dispatcher.status()).toMatchObject([{ state: "retrying", lastError: "The disk is full." }]);
    outbox.settle = settle;
    await harness.clock.advance(60_000);
    expect(await lag()).toMatchObject({ depth: 0 });
    expect(sink.writes).toHaveLength(1);
  });
});

describe("filters and positions", () => {
  test("delivers events that pass the filter and moves the cursor past all other events", async () => {
    const sink = scriptedSink();
    await started({ a: sink }, { filter: { kinds: ["alarm-*"] } });
    await commit([...values(0, 3), sampleEvent("alarm-raised"), ...values(3, 3)], 10_000);
    expect(written(sink)).toEqual([sampleEvent("alarm-raised").id]);
    expect(await lag()).toMatchObject({ depth: 0 });
  });

  test("writes the cursor rarely when the filter matches no event", async () => {
    let settlements = 0;
    const { outbox } = harness.store;
    const settle = outbox.settle;
    outbox.settle = (...values) => {
      settlements += 1;
      return settle(...values);
    };
    const sink = scriptedSink();
    const dispatcher = await started({ a: sink }, { filter: { kinds: ["site-added"] } });
    for (let n = 0; n < 60; n += 1) await commit(values(n, 1), 100);
    expect(settlements).toBeLessThanOrEqual(2);
    await stop(dispatcher);
    expect(await lag()).toMatchObject({ depth: 0 });
    expect(settlements).toBeLessThanOrEqual(3);
  });

  test("delivers events committed after the start to a sink with `from: now` that opens later", async () => {
    await commit(values(0, 1));
    const sink = scriptedSink();
    sink.onOpen = () => Promise.reject(new Retryable("not yet"));
    await started({ a: sink }, { from: "now" });
    await commit(values(1, 1), 60_000);
    sink.onOpen = async () => {};
    await harness.clock.advance(300_000);
    expect(written(sink)).toEqual(ids(values(1, 1)));
  });
});

describe("stopping", () => {
  test("lets a running write finish and settles its events", async () => {
    const sink = scriptedSink(async () => {
      await harness.clock.sleep(5_000);
      return { rejected: [] };
    });
    const dispatcher = await started({ a: sink });
    await commit(values(0, 1));
    await stop(dispatcher);
    expect(await lag()).toMatchObject({ depth: 0 });
    expect(sink.closes).toBe(1);
    expect(harness.clock.sleepers()).toBe(0);
  });

  test("aborts a running write after three quarters of the deadline without settling its events", async () => {
    let abortedAtMs = 0;
    const sink = scriptedSink(async (_, signal) => {
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      abortedAtMs = harness.clock.monotonic();
      throw signal.reason;
    });
    const dispatcher = await started({ a: sink });
    await commit(values(0, 1));
    await stop(dispatcher, 8_000);
    expect(abortedAtMs).toBe(6_000);
    expect(await lag()).toMatchObject({ depth: 1 });
    expect(sink.closes).toBe(1);
    expect(harness.lines).toEqual([]);
  });

  test("stops in time when write and close never return", async () => {
    const sink = scriptedSink(() => new Promise(() => {}));
    sink.close = () => new Promise(() => {});
    const dispatcher = await started({ a: sink });
    await commit(values(0, 1));
    await stop(dispatcher, 4_000);
    expect(await lag()).toMatchObject({ depth: 1 });
  });
});

describeService("dispatcher", async () => {
  const own = await openDispatcher();
  const sinks = { a: scriptedSink(), b: scriptedSink() };
  await own.store.commit({ events: values(0, 10) });
  return {
    service: own.dispatcher(sinks),
    quiet() {
      expect(own.clock.sleepers()).toBe(0);
      for (const sink of [sinks.a, sinks.b]) {
        expect(sink.closes).toBe(1);
        expect(sink.faults).toEqual([]);
      }
    },
    dispose: own.dispose,
  };
});
