import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Receipt } from "#src/core/connector.ts";
import { Rejected, Retryable } from "#src/core/errors/errors.ts";
import { type Event, type EventKind, eventOrderingKey } from "#src/core/model/event.ts";
import { yieldToEventLoop } from "#src/core/runtime/waiting.ts";
import type { OfferedEvents, Outbox } from "#src/engine/store/store.ts";
import {
  type DispatcherHarness,
  type Location,
  openDispatcher,
  type ScriptedSink,
  scriptedSink,
} from "../delivery/dispatcher-harness.ts";
import { sampleEvent, valueEvent } from "../sample-events.ts";
import { replay, seed } from "../seed.ts";

const ALL_TIME = "2020-01-01T00:00:00Z";
/** How long the slow sink takes for one write, in milliseconds. */
const WRITE_MS = 200;

const values = (from: number, count: number): readonly Event[] =>
  Array.from({ length: count }, (_, n) => valueEvent(from + n, `tag-${(from + n) % 50}`));
const alarm = (n: number, kind: EventKind = "alarm-raised"): Event =>
  sampleEvent(kind, { subject: `site/1/alarm/${n}` }, n);

const randomStep = fc.oneof(
  { weight: 5, arbitrary: fc.record({ do: fc.constant("commit" as const), count: fc.nat(40) }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant("wait" as const), ms: fc.nat(4_000) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("crash" as const) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("replay" as const) }) },
);
const randomBehaviour = fc.oneof(
  { weight: 3, arbitrary: fc.constant("accept" as const) },
  fc.constantFrom("slow" as const, "half" as const, "lost" as const, "refuse" as const),
);

/**
 * Alarms do not wait behind values, whatever the values wait for. `behind` values are replayed or waiting; `runs` random
 * schedules are tried.
 */
export function describeUrgent(name: string, behind: number, runs: number, location?: () => Location): void {
  let harness: DispatcherHarness;
  beforeEach(async () => {
    harness = await openDispatcher(location?.());
  });
  afterEach(() => harness.dispose());

  const commit = (...events: readonly Event[]) => harness.store.commit({ events });

  async function commitMany(events: readonly Event[]): Promise<void> {
    for (let from = 0; from < events.length; from += 1_000) await commit(...events.slice(from, from + 1_000));
  }

  /** A sink whose server needs `WRITE_MS` for each write, once it is slow. */
  function slowSink(options: Partial<ScriptedSink> = {}) {
    const sink = scriptedSink();
    const slow = Object.assign(sink, options, {
      async writeSlowly(): Promise<Receipt> {
        await harness.clock.sleep(WRITE_MS);
        return { rejected: [] };
      },
    });
    return slow;
  }

  async function startDispatcher(sink: ScriptedSink, delivery: Record<string, unknown> = {}) {
    const dispatcher = harness.dispatcher({ a: sink }, { retry: { first: "1s", max: "1s" }, ...delivery });
    await dispatcher.start(new AbortController().signal);
    await harness.clock.advance(0);
    return dispatcher;
  }

  async function stopDispatcher(dispatcher: { stop(deadlineMs: number): Promise<void> }): Promise<void> {
    const stop = dispatcher.stop(10_000);
    await harness.clock.advance(10_000);
    await stop;
  }

  const lag = async () => {
    const [found] = await harness.store.outbox.lag();
    if (found === undefined) throw new Error("the sink is not known");
    return found;
  };
  const buildSettlement = ({ isRepeat: again, urgent = false, events }: OfferedEvents) => ({
    ...{ isRepeat: again, urgent, rejected: [], through: events.at(-1)?.position ?? 0 },
  });
  const ids = (events: readonly Event[]) => events.map(({ id }) => id);
  const listAlarms = (sink: ScriptedSink) => sink.writes.flat().filter(({ type }) => type.startsWith("alarm-"));

  describe(`${name}: urgent events`, () => {
    test(`a new alarm is sent before ${behind} replayed values`, async () => {
      const sink = slowSink();
      await startDispatcher(sink);
      await commitMany(values(0, behind));
      await harness.clock.advance(1_000);
      expect(await lag()).toMatchObject({ depth: 0 });
      sink.respond = sink.writeSlowly;
      expect(await harness.store.outbox.replay("a", ALL_TIME)).toBe(behind);
      await harness.clock.advance(3 * WRITE_MS);
      const writesBefore = sink.writes.length;
      await commit(alarm(1));
      await harness.clock.advance(2 * WRITE_MS);
      expect(ids(sink.writes[writesBefore] ?? [])).toEqual(ids([alarm(1)]));
      expect((await lag()).again).toBeGreaterThan(behind - 1_000);
      sink.respond = () => ({ rejected: [] });
      await harness.clock.advance(10_000);
      expect(sink.writes.flat()).toHaveLength(2 * behind + 1);
    });

    test("a replayed alarm-raised event is sent before the new alarm-resolved event of the same alarm", async () => {
      const sink = slowSink();
      await startDispatcher(sink);
      await commit(...values(0, 300), alarm(1), ...values(300, 300));
      await harness.clock.advance(1_000);
      let refusals = 2;
      sink.respond = async () => {
        if (refusals === 1) await commit(alarm(1, "alarm-resolved"));
        refusals -= 1;
        if (refusals >= 0) throw new Retryable("not now");
        return sink.writeSlowly();
      };
      sink.writes.length = 0;
      await harness.store.outbox.replay("a", ALL_TIME);
      await harness.clock.advance(10_000);
      const delivered = sink.writes.slice(2);
      expect(ids(delivered[0] ?? [])).toEqual(ids([alarm(1)]));
      expect(ids(delivered[1] ?? [])).toEqual(ids([alarm(1, "alarm-resolved")]));
      expect(delivered.flat()).toHaveLength(602);
    });

    test("a tag-removed event stays in order between the values of its tag", async () => {
      const sink = slowSink({ maxBatch: 1 });
      sink.respond = sink.writeSlowly;
      await startDispatcher(sink);
      const removed = sampleEvent("tag-removed", {}, 1);
      await commit(...values(0, 20), removed, ...values(20, 20), alarm(1));
      await harness.clock.advance(100 * WRITE_MS);
      const kinds = sink.writes.flat().map(({ type }) => type);
      expect(kinds.indexOf("tag-removed")).toBe(21);
      expect(kinds.indexOf("alarm-raised")).toBe(0);
    });

    test("values are still delivered while new alarms arrive continuously", async () => {
      const sink = slowSink({ maxBatch: 10 });
      await harness.store.outbox.register("a", "beginning");
      await commit(...values(0, 400));
      let n = 0;
      sink.respond = async () => {
        await commit(...Array.from({ length: 30 }, (_, at) => alarm(n + at + 1)));
        n += 30;
        return sink.writeSlowly();
      };
      await startDispatcher(sink);
      await harness.clock.advance(100 * WRITE_MS);
      const writtenValues = sink.writes.flat().filter(({ type }) => type === "tag-value");
      expect(writtenValues.length).toBeGreaterThanOrEqual(150);
      expect(ids(writtenValues)).toEqual(ids(values(0, writtenValues.length)));
      const writtenAlarms = listAlarms(sink);
      expect(ids(writtenAlarms)).toEqual(ids(Array.from({ length: writtenAlarms.length }, (_, at) => alarm(at + 1))));
    });

    test("a restart after alarms were sent ahead of values loses no event and repeats no event", async () => {
      const firstSink = slowSink({ maxBatch: 10 });
      firstSink.respond = firstSink.writeSlowly;
      await harness.store.outbox.register("a", "beginning");
      const events = [...values(0, 50), alarm(1), ...values(50, 50), alarm(2), ...values(100, 50)];
      await commit(...events);
      const dispatcher = await startDispatcher(firstSink);
      await harness.clock.advance(3 * WRITE_MS);
      await stopDispatcher(dispatcher);
      expect(listAlarms(firstSink)).toHaveLength(2);
      expect(firstSink.writes.flat().length).toBeLessThan(100);
      await harness.reopen();
      expect(await lag()).toMatchObject({ depth: 152 - firstSink.writes.flat().length });
      const secondSink = slowSink({ maxBatch: 10 });
      await startDispatcher(secondSink);
      await harness.clock.advance(10_000);
      const delivered = ids([...firstSink.writes.flat(), ...secondSink.writes.flat()]);
      expect(new Set(delivered).size).toBe(152);
      expect(delivered).toHaveLength(152);
      expect(await lag()).toMatchObject({ depth: 0, position: 152 });
    });

    test("urgent events delivered ahead of other events are not counted as pending or lost, and are replayed on request", async () => {
      const sink = slowSink({ maxBatch: 10 });
      sink.respond = (batch) => {
        if (batch.some(({ type }) => type === "tag-value")) throw new Retryable("no values now");
        return { rejected: [] };
      };
      await startDispatcher(sink);
      await commit(...values(0, 50), alarm(1), ...values(50, 50));
      await harness.clock.advance(5_000);
      expect(listAlarms(sink)).toHaveLength(1);
      expect(await lag()).toMatchObject({ depth: 100, position: 0, urgent: 51 });
      const { outbox } = harness.store;
      expect(await outbox.replay("a", ALL_TIME)).toBe(1);
      await harness.clock.advance(5_000);
      expect(listAlarms(sink)).toHaveLength(2);
      expect(await outbox.replayBetween("a", 0, 1_000, 51)).toBe(0);
      const pruneReport = await outbox.prune({ maxBytes: 0, ranMs: 0, maxAgeMs: 1e12, replayMs: 1e12 });
      expect(pruneReport.gaps).toMatchObject([{ sink: "a", count: 100 }]);
    });

    test("a value that the server rejects delays no alarm, and alarms do not postpone the value's retry", async () => {
      const sink = slowSink({ maxBatch: 1 });
      let refusedCount = 0;
      sink.respond = ([event]) => {
        if (event?.id !== valueEvent(0, "tag-0").id) return { rejected: [] };
        refusedCount += 1;
        throw new Rejected("no such tag");
      };
      const dispatcher = await startDispatcher(sink, { schedule: ["1h", "1h"] });
      await commit(...values(0, 5));
      await harness.clock.advance(1_000);
      for (let n = 1; n <= 2; n += 1) {
        await commit(alarm(n));
        await harness.clock.advance(1_000);
        expect(listAlarms(sink)).toHaveLength(n);
      }
      expect(dispatcher.status()).toMatchObject([{ state: "retrying", lastError: "no such tag" }]);
      await harness.clock.advance(2 * 3_600_000);
      expect(refusedCount).toBe(3);
      expect(await harness.store.outbox.deadLetters("a")).toHaveLength(1);
      expect(sink.writes.flat().filter(({ type }) => type === "tag-value")).toHaveLength(3 + 4);
      expect(dispatcher.status()).toMatchObject([{ state: "idle", lastError: null }]);
    });

    test("an alarm-raised dead letter that has left the log is sent before the replayed alarm-resolved event", async () => {
      const sink = slowSink();
      sink.respond = () => ({ rejected: [{ index: 0, reason: "not now" }] });
      await startDispatcher(sink);
      await commit(alarm(1));
      await harness.clock.advance(1_000);
      sink.respond = () => ({ rejected: [] });
      const { outbox } = harness.store;
      const pruneBounds = { maxBytes: 1e9, ranMs: 60_000, maxAgeMs: 1e12, replayMs: 1_000 };
      await outbox.prune(pruneBounds);
      expect(await outbox.prune(pruneBounds)).toMatchObject({ removed: 1 });
      await commit(alarm(1, "alarm-resolved"), ...values(0, 10));
      await harness.clock.advance(1_000);
      // The sink is busy until both are marked.
      sink.respond = sink.writeSlowly;
      await commit(valueEvent(10));
      await harness.clock.advance(0);
      sink.writes.length = 0;
      await outbox.replay("a", ALL_TIME);
      await outbox.resendDeadLetters("a", "all");
      await harness.clock.advance(1_000);
      expect(listAlarms(sink).map(({ type }) => type)).toEqual(["alarm-raised", "alarm-resolved"]);
    });

    test("an event that is settled during a replay is sent again after the older replayed event", async () => {
      const { outbox } = harness.store;
      await outbox.register("a", "beginning");
      for (let ticks = 0; ticks < 60; ticks += 1) {
        await commit(alarm(2 * ticks));
        const firstOffer = await outbox.nextUrgent("a", 10);
        await outbox.settle("a", buildSettlement(firstOffer));
        await commit(alarm(2 * ticks + 1));
        const secondOffer = await outbox.nextUrgent("a", 10);
        const replayed = outbox.replay("a", ALL_TIME);
        for (let tick = 0; tick < ticks; tick += 1) await yieldToEventLoop();
        await outbox.settle("a", buildSettlement(secondOffer));
        await replayed;
        const replayOffer = await outbox.nextUrgent("a", 1_000);
        expect({ ticks, ids: ids(replayOffer.events.map(({ event }) => event)) }).toEqual({
          ticks,
          ids: ids(Array.from({ length: 2 * ticks + 2 }, (_, n) => alarm(n))),
        });
        await outbox.settle("a", buildSettlement(replayOffer));
      }
    });

    test(`events per alarm and per tag arrive in order despite replays, failures and crashes (${replay})`, async () => {
      const schedules = fc.asyncProperty(
        fc.array(randomStep, { minLength: 5, maxLength: 25 }),
        fc.array(randomBehaviour, { minLength: 1, maxLength: 20 }),
        (steps, behaviours) => checkOrder(steps, behaviours),
      );
      await fc.assert(schedules, { numRuns: runs, seed, endOnFailure: true });
    });

    async function checkOrder(
      steps: readonly (typeof randomStep extends fc.Arbitrary<infer T> ? T : never)[],
      behaviours: readonly (typeof randomBehaviour extends fc.Arbitrary<infer T> ? T : never)[],
    ): Promise<void> {
      await harness.dispose();
      harness = await openDispatcher(location?.());
      const { clock, store } = harness;
      const committed: Event[] = [];
      const delivered: Event[] = [];
      let writeCalls = 0;
      let repeats = 1;
      let isHealthy = false;

      /** A worker whose settlements come to nothing once it has crashed, and whose connection is cut then. */
      async function startWorker() {
        let isGone = false;
        const sink = scriptedSink(async (batch) => {
          const behaviour = isHealthy ? "accept" : (behaviours[writeCalls % behaviours.length] ?? "accept");
          writeCalls += 1;
          const deliverEvents = (count: number) => void (isGone || delivered.push(...batch.slice(0, count)));
          const halfLength = batch.length >> 1;
          if (behaviour === "slow") await clock.sleep(700);
          if (behaviour !== "accept" && behaviour !== "slow") repeats += 1;
          if (behaviour === "refuse") throw new Retryable("not now");
          deliverEvents(behaviour === "half" ? halfLength : batch.length);
          if (behaviour === "lost") throw new Retryable("no answer");
          return behaviour === "half"
            ? { rejected: [], retry: { from: halfLength, error: new Retryable("half") } }
            : { rejected: [] };
        });
        const outbox: Outbox = {
          ...store.outbox,
          async settle(...settlement) {
            if (isGone) return new Promise(() => undefined);
            await store.outbox.settle(...settlement);
          },
        };
        const dispatcher = harness.dispatcher({ a: sink }, { batch: 5, retry: { first: "1s", max: "1s" } }, outbox);
        await dispatcher.start(new AbortController().signal);
        return async () => {
          isGone = true;
          void dispatcher.stop(1).catch(() => undefined);
          await clock.advance(10);
        };
      }

      let crash = await startWorker();
      for (const scheduleStep of steps) {
        if (scheduleStep.do === "wait") await clock.advance(scheduleStep.ms);
        else if (scheduleStep.do === "commit") {
          const firstIndex = committed.length;
          const events = Array.from({ length: scheduleStep.count }, (_, n) =>
            (firstIndex + n) % 7 === 0
              ? sampleEvent("alarm-raised", { subject: `site/1/alarm/${(firstIndex + n) % 2}` }, firstIndex + n)
              : valueEvent(firstIndex + n, `tag-${(firstIndex + n) % 3}`),
          );
          committed.push(...events);
          await commit(...events);
        } else if (scheduleStep.do === "crash") {
          await crash();
          repeats += 1;
          crash = await startWorker();
        } else {
          repeats += 1;
          await store.outbox.replay("a", ALL_TIME);
        }
      }
      isHealthy = true;
      await clock.advance(60_000);
      expect(await lag()).toMatchObject({ depth: 0, again: 0 });
      const firsts = [...new Map(delivered.map((event) => [event.id, event])).values()];
      const byKey = (events: readonly Event[]) =>
        [...Map.groupBy(events, eventOrderingKey)].map(([key, of]) => [key, ids(of)]).toSorted();
      expect(byKey(firsts)).toEqual(byKey(committed));
      const lastByKey = (events: readonly Event[]) => byKey(events).map(([key, of]) => [key, of?.at(-1)]);
      expect(lastByKey(delivered)).toEqual(lastByKey(committed));
      for (const [, times] of Map.groupBy(delivered, ({ id }) => id)) expect(times.length).toBeLessThanOrEqual(repeats);
    }

    test.each([
      ["requires a single order", { strictOrder: true } as const, {}],
      ["receives sequence numbers", {}, { sequence: true }],
    ])("a sink that %s receives all events in commit order", async (_, options, delivery) => {
      const sink = slowSink({ maxBatch: 10, ...options });
      sink.respond = sink.writeSlowly;
      await startDispatcher(sink, delivery);
      const events = [...values(0, 50), alarm(1), ...values(50, 20), alarm(2)];
      await commit(...events);
      await harness.clock.advance(20 * WRITE_MS);
      expect(ids(sink.writes.flat())).toEqual(ids(events));
    });
  });
}
