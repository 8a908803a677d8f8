import { DateTime } from "luxon";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { createReceiverSink } from "#connectors/shared/receiver/sink.ts";
import type { Sink } from "#src/core/connector.ts";
import { ConfigError, Rejected, Retryable, Throttled } from "#src/core/errors/errors.ts";
import type { Event } from "#src/core/model/event.ts";
import { globMatches } from "#src/core/values/glob.ts";
import { lagFiltersBySink } from "#src/engine/delivery/filter.ts";
import { configured } from "../config/configured.ts";
import { contextFor, never } from "../connectors/context.ts";
import { openDispatcher } from "../delivery/dispatcher-harness.ts";
import { SPARKLINE_TEXT, storeTagValues } from "../receivers/stored-tag-values.ts";
import { sampleOfEveryKind } from "../sample-events.ts";
import { createMemoryStore } from "../sync/memory-store.ts";
import { disposeAfterTest } from "../test-resources.ts";
import { createVirtualClock } from "../virtual-clock.ts";
import { ReceiverOptions, START, sampleAlarm } from "./receiver-harness.ts";
import { createStub, type ReceiverStub } from "./receiver-stub.ts";

const textCounter = { made: 0 };
beforeEach(() => {
  const parseIso = DateTime.fromISO.bind(DateTime);
  vi.spyOn(DateTime, "fromISO").mockImplementation((...given) => {
    textCounter.made += 1;
    return parseIso(...given);
  });
});
afterEach(() => void vi.restoreAllMocks());

const ALARM_KINDS = ["alarm-raised", "alarm-resolved", "alarm-recovering", "alarm-retriggered"];
const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
const sampleAlarms = (count: number, priority: string, from = 0) =>
  Array.from({ length: count }, (_, n) => sampleAlarm(from + n, { priority }));

const createSlowStub = () => createStub("same", { rates: [{ count: 1, windowMs: SECOND_MS }] });

const raisedEvents = (count: number, priority: string, from = 0) =>
  sampleAlarms(count, priority, from).map((alarm) => alarm.raised());

async function openSinkRun(stub: ReceiverStub, options: object = {}) {
  const harness = disposeAfterTest(await openDispatcher());
  const { clock, store } = harness;
  const sink = createReceiverSink(stub, ReceiverOptions.parse(options), contextFor("chat", clock, store));
  const dispatcher = harness.dispatcher({ chat: sink }, { filter: { kinds: ["alarm-*"] } });
  const times: { readonly what: string; readonly atMs: number }[] = [];
  return {
    ...{ clock, store, times, sink, dispatcher },
    start: () => dispatcher.start(new AbortController().signal),
    commit: (...events: readonly Event[]) => store.commit({ events }),
    status: () => dispatcher.status()[0],
    failing(fails: (title: string, what: string) => Error | null) {
      stub.failCall = (isDone, what, message) => {
        if (isDone) return;
        times.push({ what: `${what} ${message.text.title}`, atMs: clock.monotonic() });
        const failure = fails(message.text.title, what);
        if (failure !== null) throw failure;
      };
    },
  };
}

async function startSinkRun(fails: (title: string) => Error | null = () => null, stub = createStub("same")) {
  const sinkRun = await openSinkRun(stub);
  sinkRun.failing(fails);
  await sinkRun.start();
  return sinkRun;
}

describe("a receiver that fails occasionally", () => {
  test("receives an alarm again a second after its request failed, and the other alarms at once", async () => {
    const sinkRun = await openSinkRun(createStub("findable"));
    let callCount = 0;
    sinkRun.failing(() => {
      callCount += 1;
      return callCount % 10 === 0 ? new Retryable("The connection was reset.") : null;
    });
    await sinkRun.start();
    await sinkRun.commit(...raisedEvents(100, "B"));
    await sinkRun.clock.advance(5 * SECOND_MS);
    expect(new Set(sinkRun.times.map(({ what }) => what)).size).toBe(100);
    expect((await sinkRun.store.outbox.lag())[0]).toMatchObject({ depth: 0, deadLetters: 0 });
    expect(sinkRun.status()).toMatchObject({ state: "idle", waiting: 0, lastError: null });
  });

  test("receives the other alarms while one failing alarm is retried with growing waits", async () => {
    const sinkRun = await startSinkRun((title) => (title.startsWith("Alarm 1,") ? new Retryable("Broken.") : null));
    await sinkRun.commit(sampleAlarm(1, { priority: "A" }).raised());
    for (let n = 2; n < 32; n += 1) {
      await sinkRun.commit(sampleAlarm(n, { priority: "C" }).raised());
      await sinkRun.clock.advance(20 * SECOND_MS);
      expect(sinkRun.times.some(({ what }) => what.startsWith(`open Alarm ${n},`))).toBe(true);
    }
    const alarmAttempts = sinkRun.times.filter(({ what }) => what.startsWith("open Alarm 1,"));
    expect(alarmAttempts.length).toBeGreaterThan(10);
    expect(alarmAttempts.length).toBeLessThan(26);
    expect(sinkRun.sink.pendingRequests?.()).toBe(1);
  });

  test("is shown in the sink status with its failure and the number of waiting incidents", async () => {
    const sinkRun = await startSinkRun(() => new Retryable("Jira answered 500."));
    await sinkRun.commit(sampleAlarm(1).raised(), sampleAlarm(2).raised());
    await sinkRun.clock.advance(20 * MINUTE_MS);
    expect(sinkRun.status()).toMatchObject({ state: "retrying", lastError: "Jira answered 500.", waiting: 2 });
    sinkRun.failing(() => null);
    await sinkRun.clock.advance(6 * MINUTE_MS);
    expect(sinkRun.status()).toMatchObject({ state: "idle", lastError: null, waiting: 0 });
  });

  test.each([1, 8])("has the status idle once quiet hours delay the failed alarms (%i)", async (count) => {
    const quiet = [{ priorities: ["B"], from: "07:05", to: "08:00" }];
    const sinkRun = await openSinkRun(createStub("same"), { quiet });
    sinkRun.failing(() => new Retryable("Jira answered 500."));
    await sinkRun.start();
    await sinkRun.commit(...raisedEvents(count, "B"));
    await sinkRun.clock.advance(4 * MINUTE_MS);
    expect(sinkRun.status()).toMatchObject({ state: "retrying", waiting: count });
    await sinkRun.clock.advance(10 * MINUTE_MS);
    expect(sinkRun.status()).toMatchObject({ state: "idle", lastError: null, waiting: 0 });
    const runTick = vi.spyOn(sinkRun.sink, "tick");
    await sinkRun.clock.advance(5 * MINUTE_MS);
    expect(runTick.mock.calls.length).toBeLessThanOrEqual(61);
    sinkRun.failing(() => null);
    sinkRun.times.length = 0;
    await sinkRun.clock.advance(45 * MINUTE_MS);
    expect(sinkRun.times).toHaveLength(count);
  });

  test("is called with growing waits while no call succeeds", async () => {
    let isAway = true;
    const sinkRun = await startSinkRun(() => (isAway ? new Retryable("Connection refused.") : null));
    await sinkRun.commit(...raisedEvents(200, "B"));
    await sinkRun.clock.advance(HOUR_MS);
    expect(sinkRun.status()?.waiting).toBe(200);
    expect(sinkRun.times.length).toBeLessThan(6 + 9 + 24);
    expect(sinkRun.times.length).toBeGreaterThan(15);
    const gapsMs = sinkRun.times.slice(7).map(({ atMs }, n) => atMs - (sinkRun.times[n + 6]?.atMs ?? 0));
    expect(gapsMs.every((gap) => gap > 0)).toBe(true);
    isAway = false;
    await sinkRun.clock.advance(5 * MINUTE_MS + 2 * SECOND_MS);
    expect(sinkRun.status()).toMatchObject({ state: "idle", waiting: 0 });
  });

  test("is not called during the wait that its response requested", async () => {
    let isFull = true;
    const sinkRun = await startSinkRun(() => (isFull ? new Throttled("Wait.", 90 * SECOND_MS) : null));
    await sinkRun.commit(...raisedEvents(20, "B"));
    await sinkRun.clock.advance(80 * SECOND_MS);
    expect(sinkRun.times).toHaveLength(1);
    expect(sinkRun.status()).toMatchObject({ state: "throttled", waiting: 20 });
    isFull = false;
    await sinkRun.clock.advance(11 * SECOND_MS);
    expect(sinkRun.times).toHaveLength(21);
  });

  test("is not called again after a configuration error", async () => {
    const sinkRun = await startSinkRun(() => new ConfigError("The token is wrong."));
    await sinkRun.commit(...raisedEvents(20, "B"));
    await sinkRun.clock.advance(60 * SECOND_MS);
    expect(sinkRun.times).toHaveLength(1);
    expect(sinkRun.status()).toMatchObject({ state: "stopped" });
  });
});

describe("a backlog of incidents", () => {
  test("is sent in the order of priorities, across the batches of the event log", async () => {
    const sinkRun = await openSinkRun(createStub("same"));
    sinkRun.failing(() => null);
    const mixed = Array.from({ length: 150 }, (_, n) => sampleAlarm(n, { priority: "CCBA"[n % 4] ?? "C" }));
    await sinkRun.commit(...mixed.map((alarm) => alarm.raised()));
    await sinkRun.clock.advance(MINUTE_MS);
    await sinkRun.start();
    await sinkRun.clock.advance(3 * MINUTE_MS);
    const order = sinkRun.times.map(({ what }) => "CCBA"[Number(/Alarm (\d+)/.exec(what)?.[1]) % 4]).join("");
    expect(order).toMatch(/^A+B+C+$/);
    expect(order).toHaveLength(150);
  });

  test("does not delay a new urgent alarm by more than a second", async () => {
    const sinkRun = await startSinkRun(() => null, createSlowStub());
    await sinkRun.commit(...raisedEvents(300, "C"));
    await sinkRun.clock.advance(30 * SECOND_MS);
    const atMs = sinkRun.clock.monotonic();
    await sinkRun.commit(sampleAlarm(999, { priority: "A" }).raised());
    await sinkRun.clock.advance(10 * SECOND_MS);
    const sentCall = sinkRun.times.find(({ what }) => what.includes("Alarm 999"));
    expect((sentCall?.atMs ?? Number.POSITIVE_INFINITY) - atMs).toBeLessThanOrEqual(SECOND_MS);
  });

  test("is sent before the periodic resending of open incidents", async () => {
    const rates = [{ count: 1, windowMs: SECOND_MS }];
    const sinkRun = await startSinkRun(() => null, createStub("same", { rates, resendIntervalMs: MINUTE_MS }));
    await sinkRun.commit(...raisedEvents(100, "A"));
    await sinkRun.clock.advance(5 * MINUTE_MS);
    const callsBefore = sinkRun.times.length;
    await sinkRun.commit(sampleAlarm(999, { priority: "C" }).raised());
    await sinkRun.clock.advance(5 * SECOND_MS);
    const nextCalls = sinkRun.times.slice(callsBefore, callsBefore + 3).map(({ what }) => what);
    expect(nextCalls).toContain("open Alarm 999, Building 1");
    expect(sinkRun.status()?.waiting).toBe(0);
  });

  test("is sent with only the newest state of each alarm", async () => {
    const sinkRun = await startSinkRun(() => null, createSlowStub());
    const all = sampleAlarms(60, "B");
    await sinkRun.commit(...all.map((alarm) => alarm.raised()));
    for (let n = 0; n < 10; n += 1) await sinkRun.commit(...all.map((alarm) => alarm.changed(`Now ${n}`, n + 1)));
    await sinkRun.clock.advance(5 * MINUTE_MS);
    expect(sinkRun.times.length).toBeLessThanOrEqual(62);
    expect(sinkRun.status()).toMatchObject({ state: "idle", waiting: 0 });
  });

  test("is reported as the number of waiting incidents, while the sink's event lag is 0", async () => {
    const sinkRun = await startSinkRun(() => null, createSlowStub());
    await sinkRun.commit(...raisedEvents(100, "B"));
    await sinkRun.clock.advance(15.5 * SECOND_MS);
    expect(sinkRun.status()).toMatchObject({ waiting: 84, lag: { depth: 0, exact: true } });
  });

  test("adds a dead letter for an incident that is rejected after its event was settled", async () => {
    const sinkRun = await startSinkRun(
      (title) => (title.startsWith("Alarm 5,") ? new Rejected("A field is missing.") : null),
      createSlowStub(),
    );
    await sinkRun.commit(...raisedEvents(10, "B"));
    await sinkRun.clock.advance(30 * SECOND_MS);
    const [letter, ...others] = await sinkRun.store.outbox.deadLetters("chat");
    expect(others).toEqual([]);
    expect(letter).toMatchObject({ reason: "A field is missing.", event: { id: sampleAlarm(5).raised().id } });
    expect(sinkRun.times).toHaveLength(10);
    expect((await sinkRun.store.outbox.lag())[0]).toMatchObject({ depth: 0, deadLetters: 1 });
    sinkRun.failing(() => null);
    await sinkRun.store.outbox.resendDeadLetters("chat", "all");
    await sinkRun.clock.advance(30 * SECOND_MS);
    expect(await sinkRun.store.outbox.deadLetters("chat")).toEqual([]);
    expect(sinkRun.times.at(-1)?.what).toContain("Alarm 5,");
  });
});

const SLACK = { slack: { token: { env: "T" }, channel: "C0123ABCD" } };
const INCIDENT_KINDS = ["alarm-*", "gateway-offline", "gateway-online"];

test.each([
  [SLACK, undefined, INCIDENT_KINDS],
  [SLACK, ["alarm-r*", "tag-*"], ALARM_KINDS],
  [SLACK, ["tag-value"], ["tag-value"]],
  [{ webhook: { format: "pagerduty", key: { env: "T" } } }, undefined, INCIDENT_KINDS],
  [{ webhook: { url: "https://hooks.example.com/x", unsigned: true } }, undefined, []],
])("a sink %j with the kinds %j receives, and counts in its lag, only %j", async (connector, kinds, offered) => {
  const filter = kinds === undefined ? {} : { filter: { kinds } };
  const { sinks } = configured((whole) => {
    whole.sinks = { people: { ...connector, ...filter } };
  });
  expect(sinks.people?.filter.kinds).toEqual(offered);
  const harness = disposeAfterTest(await openDispatcher());
  await harness.store.outbox.register("people", "beginning");
  const events = sampleOfEveryKind();
  await harness.store.commit({ events });
  const [lag] = await harness.store.outbox.lag(lagFiltersBySink([["people", sinks.people?.filter ?? ({} as never)]]));
  const patterns = offered.length === 0 ? ["*"] : offered;
  const expectedEvents = events.filter(({ type }) => patterns.some((pattern) => globMatches(pattern, type)));
  expect(lag).toMatchObject({ depth: expectedEvents.length, exact: true });
});

describe("the rate limit of a receiver", () => {
  test("of 4 calls in 1 s and 60 in 30 s is used completely and never exceeded", async () => {
    const rateOfOneSecond = { count: 4, windowMs: SECOND_MS };
    const rates = [rateOfOneSecond, { count: 60, windowMs: 30 * SECOND_MS }];
    const sinkRun = await startSinkRun(() => null, createStub("same", { rates }));
    await sinkRun.commit(...raisedEvents(240, "B"));
    await sinkRun.clock.advance(21 * MINUTE_MS);
    expect(sinkRun.times).toHaveLength(240);
    for (const { count, windowMs } of rates) {
      const waitsMs = sinkRun.times.slice(count).map(({ atMs }, n) => atMs - (sinkRun.times[n]?.atMs ?? 0));
      expect(Math.min(...waitsMs)).toBeGreaterThanOrEqual(windowMs);
    }
    const tookMs = (sinkRun.times.at(-1)?.atMs ?? 0) - (sinkRun.times[0]?.atMs ?? 0);
    const leastMs = Math.max(...rates.map(({ count, windowMs }) => (240 / count) * windowMs));
    expect(tookMs).toBeLessThanOrEqual(leastMs);
  });
});

function createSinks(stubs: readonly ReceiverStub[], options: readonly object[] = []) {
  const clock = createVirtualClock(START);
  const store = createMemoryStore(() => clock.now());
  const { building } = contextFor("chat", clock, store);
  const make = () =>
    stubs.map(
      (stub, n): Sink =>
        createReceiverSink(stub, ReceiverOptions.parse(options[n] ?? {}), {
          ...contextFor(`chat${n}`, clock, store),
          building,
        }),
    );
  let sinks = make();
  let position = 0;
  return {
    ...{ store, building },
    restart() {
      sinks = make();
    },
    async offer(...events: readonly Event[]) {
      const positions = events.map((_, n) => position + n + 1);
      position += events.length;
      const offer = { positions, committedAt: positions.map(() => ""), isRedelivery: false };
      for (const sink of sinks) await sink.write(events, never(), undefined, offer);
    },
    offerAtOnce: (event: Event) => Promise.all(sinks.map((sink) => sink.write([event], never()))),
    async pass(ms: number) {
      for (let remainingMs = ms; remainingMs > 0; remainingMs -= 5 * SECOND_MS) {
        await clock.advance(5 * SECOND_MS);
        for (const sink of sinks) await sink.tick?.(never());
      }
    },
  };
}

describe("the text of an incident", () => {
  test("is not created again for 5,000 unchanged alarms within an hour", async () => {
    const stub = createStub("same");
    const sinks = createSinks([stub]);
    for (let n = 0; n < 5_000; n += 500) await sinks.offer(...raisedEvents(500, "B", n));
    await sinks.pass(MINUTE_MS);
    expect(stub.incidents).toHaveLength(5_000);
    textCounter.made = 0;
    await sinks.pass(HOUR_MS);
    expect(textCounter.made).toBe(0);
    expect(stub.calls).toHaveLength(5_000);
  });

  test("is created once per change for all receivers of one language together", async () => {
    const stubs = [createStub("same"), createStub("findable"), createStub("another")];
    const sinks = createSinks(stubs, [{ language: "no" }, { language: "en" }, { language: "no" }]);
    await sinks.offer(...raisedEvents(100, "B"));
    textCounter.made = 0;
    await sinks.offer(sampleAlarm(7).acknowledged());
    await sinks.pass(MINUTE_MS);
    expect(textCounter.made).toBe(2);
    const status = stubs.map(
      ({ incidents }) => incidents.find(({ message }) => message.alarm?.id === sampleAlarm(7).record.id)?.message.text,
    );
    expect(status.map((text) => text?.status)).toEqual(["Kvittert", "Acknowledged", "Kvittert"]);
  });

  test("is compared with the sent text once after a restart, 250 alarms per tick, and sent if it changed", async () => {
    const stub = createStub("same");
    const options: object[] = [{}];
    const sinks = createSinks([stub], options);
    await sinks.offer(...raisedEvents(500, "B"));
    await sinks.offer(...raisedEvents(100, "B", 500));
    options[0] = { words: { active: "Gjeldende" } };
    sinks.restart();
    textCounter.made = 0;
    await sinks.pass(5 * SECOND_MS);
    expect(textCounter.made).toBe(250);
    await sinks.pass(MINUTE_MS);
    expect(textCounter.made).toBe(600);
    expect(stub.incidents.every(({ message }) => message.text.status === "Gjeldende")).toBe(true);
    textCounter.made = 0;
    await sinks.pass(HOUR_MS);
    expect(textCounter.made).toBe(0);
  });
});

describe("the time series of an alarm", () => {
  async function createSeriesSinks(stubs: readonly ReceiverStub[], options?: readonly object[]) {
    const sinks = createSinks(stubs, options);
    await storeTagValues(sinks.store, START);
    const listSeries = () => stubs.map(({ incidents }) => incidents[0]?.message.text.timeSeriesLines);
    return { ...sinks, listSeries, readTimeSeries: vi.spyOn(sinks.building, "timeSeries") };
  }
  const expectSeries = (time: string, line: unknown) => [`Values until 2026-11-02 ${time} +01:00`, line];

  test("is read and rendered once for five receivers, and again when the alarm returns", async () => {
    const stubs = Array.from({ length: 5 }, () => createStub("same"));
    const sinks = await createSeriesSinks(stubs);
    const alarm = sampleAlarm(1);
    await sinks.offer(alarm.raised());
    expect(sinks.readTimeSeries).toHaveBeenCalledTimes(1);
    expect(sinks.listSeries()).toEqual(stubs.map(() => expectSeries("13:00:00", `VS1-GT11 ${SPARKLINE_TEXT}`)));
    await sinks.pass(MINUTE_MS);
    await sinks.offer(alarm.acknowledged(), alarm.resolved(3));
    await sinks.offer(alarm.retriggered(4));
    expect(sinks.readTimeSeries).toHaveBeenCalledTimes(2);
    expect(sinks.listSeries()).toEqual(stubs.map(() => expectSeries("13:01:00", expect.any(String))));
  });

  test("is read once by receivers that send at the same time, and again by one that sends six minutes later", async () => {
    const stubs = Array.from({ length: 3 }, () => createStub("same"));
    const sinks = await createSeriesSinks(stubs, [{}, {}, { hold: "6m" }]);
    await sinks.offerAtOnce(sampleAlarm(1).raised());
    expect(sinks.readTimeSeries).toHaveBeenCalledTimes(1);
    await sinks.pass(7 * MINUTE_MS);
    expect(sinks.readTimeSeries).toHaveBeenCalledTimes(2);
    const times = ["13:00:00", "13:00:00", "13:06:00"];
    expect(sinks.listSeries()).toEqual(times.map((time) => expectSeries(time, expect.any(String))));
  });

  test("is read again for the next receiver after a failure", async () => {
    const sinks = await createSeriesSinks([createStub("same"), createStub("same")]);
    sinks.readTimeSeries.mockRejectedValueOnce(new Error("The disk is busy."));
    await sinks.offer(sampleAlarm(1).raised());
    expect(sinks.listSeries().map((series) => series?.length)).toEqual([0, 2]);
  });
});

describe("the delay of an alarm", () => {
  test.each([
    ["hold", { dossier: false, hold: "10m" }, 10],
    ["quiet hours", { dossier: false, quiet: [{ priorities: ["B"], from: "12:00", to: "13:30" }] }, 30],
  ])("by %s renders no message text before the delay ends, and then sends all alarms", async (_, options, minutes) => {
    const stub = createStub("same");
    const sinks = createSinks([stub], [options]);
    await sinks.offer(...raisedEvents(500, "B"));
    textCounter.made = 0;
    await sinks.pass(minutes * MINUTE_MS - 5 * SECOND_MS);
    expect([textCounter.made, stub.calls.length]).toEqual([0, 0]);
    await sinks.pass(MINUTE_MS);
    expect([textCounter.made, stub.calls.length]).toEqual([500, 500]);
  });
});
