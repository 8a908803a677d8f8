import { DateTime } from "luxon";
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { createReceiverSink } from "#connectors/shared/receiver/sink.ts";
import type { Sink } from "#src/core/connector.ts";
import { ConfigError, Rejected, Retryable, Throttled } from "#src/core/errors/errors.ts";
import type { Event } from "#src/core/model/event.ts";
import { globMatches } from "#src/core/values/glob.ts";
import { lagFiltersBySink } from "#src/engine/delivery/filter.ts";
import { configured } from "../config/configured.ts";
import { contextFor, never } from "../connectors/context.ts";
import { openDispatcherRig } from "../delivery/dispatcher-rig.ts";
import { sampleOfEveryKind } from "../sample-events.ts";
import { createMemoryStore } from "../sync/memory-store.ts";
import { createVirtualClock } from "../virtual-clock.ts";
import { type NoticeBoard, noticeBoard } from "./notice-board.ts";
import { alarm, OPTIONS, START } from "./trial.ts";

const texts = { made: 0 };
beforeEach(() => {
  const read = DateTime.fromISO.bind(DateTime);
  vi.spyOn(DateTime, "fromISO").mockImplementation((...given) => {
    texts.made += 1;
    return read(...given);
  });
});
afterEach(() => void vi.restoreAllMocks());

const RAISED = ["alarm-raised", "alarm-resolved", "alarm-recovering", "alarm-retriggered"];
const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const many = (count: number, priority: string, from = 0) =>
  Array.from({ length: count }, (_, n) => alarm(from + n, { priority }));

const raised = (count: number, priority: string, from = 0) => many(count, priority, from).map((one) => one.raised());

async function running(board: NoticeBoard) {
  const rig = await openDispatcherRig();
  onTestFinished(() => rig.dispose());
  const { clock, store } = rig;
  const sink = createReceiverSink(board, OPTIONS.parse({}), contextFor("chat", clock, store));
  const dispatcher = rig.dispatcher({ chat: sink }, { filter: { kinds: ["alarm-*"] } });
  const times: { readonly what: string; readonly atMs: number }[] = [];
  return {
    ...{ clock, store, times, sink, dispatcher },
    start: () => dispatcher.start(new AbortController().signal),
    commit: (...events: readonly Event[]) => store.commit({ events }),
    status: () => dispatcher.status()[0],
    failing(fails: (title: string, what: string) => Error | null) {
      board.trouble = (isDone, what, told) => {
        if (isDone) return;
        times.push({ what: `${what} ${told.text.title}`, atMs: clock.monotonic() });
        const failure = fails(told.text.title, what);
        if (failure !== null) throw failure;
      };
    },
  };
}

async function started(fails: (title: string) => Error | null = () => null, board = noticeBoard("same")) {
  const room = await running(board);
  room.failing(fails);
  await room.start();
  return room;
}

describe("a receiver that fails occasionally", () => {
  test("receives a failed alarm a second later and the others at once", async () => {
    const room = await running(noticeBoard("findable"));
    let calls = 0;
    room.failing(() => {
      calls += 1;
      return calls % 10 === 0 ? new Retryable("The connection was reset.") : null;
    });
    await room.start();
    await room.commit(...raised(100, "B"));
    await room.clock.advance(5 * SECOND);
    expect(new Set(room.times.map(({ what }) => what)).size).toBe(100);
    expect((await room.store.outbox.lag())[0]).toMatchObject({ depth: 0, deadLetters: 0 });
    expect(room.status()).toMatchObject({ state: "idle", waiting: 0, lastError: null });
  });

  test("retries one failing alarm with growing waits and sends the others", async () => {
    const room = await started((title) => (title.startsWith("Alarm 1,") ? new Retryable("It is broken there.") : null));
    await room.commit(alarm(1, { priority: "A" }).raised());
    for (let n = 2; n < 32; n += 1) {
      await room.commit(alarm(n, { priority: "C" }).raised());
      await room.clock.advance(20 * SECOND);
      expect(room.times.some(({ what }) => what.startsWith(`open Alarm ${n},`))).toBe(true);
    }
    const attempts = room.times.filter(({ what }) => what.startsWith("open Alarm 1,"));
    expect(attempts.length).toBeGreaterThan(10);
    expect(attempts.length).toBeLessThan(26);
    expect(room.sink.pendingRequests?.()).toBe(1);
  });

  test("has its failure and the number of waiting incidents in the status", async () => {
    const room = await started(() => new Retryable("Jira answered 500."));
    await room.commit(alarm(1).raised(), alarm(2).raised());
    await room.clock.advance(20 * MINUTE);
    expect(room.status()).toMatchObject({ state: "retrying", lastError: "Jira answered 500.", waiting: 2 });
    room.failing(() => null);
    await room.clock.advance(6 * MINUTE);
    expect(room.status()).toMatchObject({ state: "idle", lastError: null, waiting: 0 });
  });

  test("is called with growing waits while no call succeeds", async () => {
    let isAway = true;
    const room = await started(() => (isAway ? new Retryable("Connection refused.") : null));
    await room.commit(...raised(200, "B"));
    await room.clock.advance(HOUR);
    expect(room.times.length).toBeLessThan(6 + 9 + 24);
    expect(room.times.length).toBeGreaterThan(15);
    const gaps = room.times.slice(7).map(({ atMs }, n) => atMs - (room.times[n + 6]?.atMs ?? 0));
    expect(gaps.every((gap) => gap > 0)).toBe(true);
    isAway = false;
    await room.clock.advance(5 * MINUTE + 2 * SECOND);
    expect(room.status()).toMatchObject({ state: "idle", waiting: 0 });
  });

  test("is not called during the wait that its response requested", async () => {
    let isFull = true;
    const room = await started(() => (isFull ? new Throttled("Wait.", 90 * SECOND) : null));
    await room.commit(...raised(20, "B"));
    await room.clock.advance(80 * SECOND);
    expect(room.times).toHaveLength(1);
    expect(room.status()).toMatchObject({ state: "throttled", waiting: 20 });
    isFull = false;
    await room.clock.advance(11 * SECOND);
    expect(room.times).toHaveLength(21);
  });

  test("is not called again after a configuration error", async () => {
    const room = await started(() => new ConfigError("The token is wrong."));
    await room.commit(...raised(20, "B"));
    await room.clock.advance(60 * SECOND);
    expect(room.times).toHaveLength(1);
    expect(room.status()).toMatchObject({ state: "stopped" });
  });
});

describe("a backlog of incidents", () => {
  test("is sent in the order of priorities, across the batches of the event log", async () => {
    const room = await running(noticeBoard("same"));
    room.failing(() => null);
    const mixed = Array.from({ length: 150 }, (_, n) => alarm(n, { priority: "CCBA"[n % 4] ?? "C" }));
    await room.commit(...mixed.map((one) => one.raised()));
    await room.clock.advance(MINUTE);
    await room.start();
    await room.clock.advance(3 * MINUTE);
    const order = room.times.map(({ what }) => "CCBA"[Number(/Alarm (\d+)/.exec(what)?.[1]) % 4]).join("");
    expect(order).toMatch(/^A+B+C+$/);
    expect(order).toHaveLength(150);
  });

  test("does not delay a new urgent alarm by more than a second", async () => {
    const room = await started(() => null, noticeBoard("same", { rates: [{ count: 1, inMs: SECOND }] }));
    await room.commit(...raised(300, "C"));
    await room.clock.advance(30 * SECOND);
    const atMs = room.clock.monotonic();
    await room.commit(alarm(999, { priority: "A" }).raised());
    await room.clock.advance(10 * SECOND);
    const sent = room.times.find(({ what }) => what.includes("Alarm 999"));
    expect((sent?.atMs ?? Number.POSITIVE_INFINITY) - atMs).toBeLessThanOrEqual(SECOND);
  });

  test("is sent before repetitions of known incidents", async () => {
    const rates = [{ count: 1, inMs: SECOND }];
    const room = await started(() => null, noticeBoard("same", { rates, repeatMs: MINUTE }));
    await room.commit(...raised(100, "A"));
    await room.clock.advance(5 * MINUTE);
    const before = room.times.length;
    await room.commit(alarm(999, { priority: "C" }).raised());
    await room.clock.advance(5 * SECOND);
    expect(room.times.slice(before, before + 3).map(({ what }) => what)).toContain("open Alarm 999, Building 1");
    expect(room.status()?.waiting).toBe(0);
  });

  test("is sent with only the newest state of each alarm", async () => {
    const room = await started(() => null, noticeBoard("same", { rates: [{ count: 1, inMs: SECOND }] }));
    const all = many(60, "B");
    await room.commit(...all.map((one) => one.raised()));
    for (let n = 0; n < 10; n += 1) await room.commit(...all.map((one) => one.changed(`Now ${n}`, n + 1)));
    await room.clock.advance(5 * MINUTE);
    expect(room.times.length).toBeLessThanOrEqual(62);
    expect(room.status()).toMatchObject({ state: "idle", waiting: 0 });
  });

  test("is reported as waiting incidents, while the sink's event lag is 0", async () => {
    const room = await started(() => null, noticeBoard("same", { rates: [{ count: 1, inMs: SECOND }] }));
    await room.commit(...raised(100, "B"));
    await room.clock.advance(15.5 * SECOND);
    expect(room.status()).toMatchObject({ waiting: 84, lag: { depth: 0, exact: true } });
  });

  test("adds a dead letter for an incident that is rejected after its event was settled", async () => {
    const room = await started(
      (title) => (title.startsWith("Alarm 5,") ? new Rejected("A field is missing.") : null),
      noticeBoard("same", { rates: [{ count: 1, inMs: SECOND }] }),
    );
    await room.commit(...raised(10, "B"));
    await room.clock.advance(30 * SECOND);
    const [letter, ...others] = await room.store.outbox.deadLetters("chat");
    expect(others).toEqual([]);
    expect(letter).toMatchObject({ reason: "A field is missing.", event: { id: alarm(5).raised().id } });
    expect(room.times).toHaveLength(10);
    expect((await room.store.outbox.lag())[0]).toMatchObject({ depth: 0, deadLetters: 1 });
    room.failing(() => null);
    await room.store.outbox.resendDeadLetters("chat", "all");
    await room.clock.advance(30 * SECOND);
    expect(await room.store.outbox.deadLetters("chat")).toEqual([]);
    expect(room.times.at(-1)?.what).toContain("Alarm 5,");
  });
});

test.each([
  [{ slack: { token: { env: "T" }, channel: "C0123ABCD" } }, undefined, ["alarm-*", "gateway-online"]],
  [{ slack: { token: { env: "T" }, channel: "C0123ABCD" } }, ["alarm-r*", "tag-*"], RAISED],
  [{ slack: { token: { env: "T" }, channel: "C0123ABCD" } }, ["tag-value"], ["tag-value"]],
  [{ webhook: { format: "pagerduty", key: { env: "T" } } }, undefined, ["alarm-*", "gateway-online"]],
  [{ webhook: { url: "https://hooks.example.com/x", unsigned: true } }, undefined, []],
])("a sink %j with the kinds %j receives, and counts in its lag, only %j", async (connector, kinds, offered) => {
  const filter = kinds === undefined ? {} : { filter: { kinds } };
  const { sinks } = configured((whole) => {
    whole.sinks = { people: { ...connector, ...filter } };
  });
  expect(sinks.people?.filter.kinds).toEqual(offered);
  const rig = await openDispatcherRig();
  onTestFinished(() => rig.dispose());
  await rig.store.outbox.register("people", "beginning");
  const events = sampleOfEveryKind();
  await rig.store.commit({ events });
  const [lag] = await rig.store.outbox.lag(lagFiltersBySink([["people", sinks.people?.filter ?? ({} as never)]]));
  const patterns = offered.length === 0 ? ["*"] : offered;
  const wanted = events.filter(({ type }) => patterns.some((pattern) => globMatches(pattern, type)));
  expect(lag).toMatchObject({ depth: wanted.length, exact: true });
});

describe("the rate limit of a receiver", () => {
  test.each([
    [
      "4 in 1 s and 60 in 30 s",
      [
        { count: 4, inMs: 1_000 },
        { count: 60, inMs: 30_000 },
      ],
    ],
  ])("of %s calls is used completely and never exceeded", async (_, rates) => {
    const room = await started(() => null, noticeBoard("same", { rates }));
    await room.commit(...raised(240, "B"));
    await room.clock.advance(21 * MINUTE);
    expect(room.times).toHaveLength(240);
    for (const { count, inMs } of rates) {
      const over = room.times.filter(({ atMs }, n) => atMs - (room.times[n - count]?.atMs ?? -inMs) < inMs);
      expect(over).toEqual([]);
    }
    const tookMs = (room.times.at(-1)?.atMs ?? 0) - (room.times[0]?.atMs ?? 0);
    const leastMs = Math.max(...rates.map(({ count, inMs }) => (240 / count) * inMs));
    expect(tookMs).toBeLessThanOrEqual(leastMs);
  });
});

function sinksOf(boards: readonly NoticeBoard[], options: readonly object[] = []) {
  const clock = createVirtualClock(START);
  const store = createMemoryStore(() => clock.now());
  const { building } = contextFor("chat", clock, store);
  const make = () =>
    boards.map(
      (board, n): Sink =>
        createReceiverSink(board, OPTIONS.parse(options[n] ?? {}), {
          ...contextFor(`chat${n}`, clock, store),
          building,
        }),
    );
  let sinks = make();
  let position = 0;
  return {
    ...{ clock, store },
    restart() {
      sinks = make();
    },
    async offer(...events: readonly Event[]) {
      const positions = events.map((_, n) => position + n + 1);
      position += events.length;
      const offer = { positions, committedAt: positions.map(() => ""), isRedelivery: false };
      for (const sink of sinks) await sink.write(events, never(), undefined, offer);
    },
    async pass(ms: number) {
      for (let left = ms; left > 0; left -= 5 * SECOND) {
        await clock.advance(5 * SECOND);
        for (const sink of sinks) await sink.tick?.(never());
      }
    },
  };
}

describe("the text of an incident", () => {
  test("is not created again for 5,000 unchanged alarms within an hour", async () => {
    const board = noticeBoard("same");
    const sinks = sinksOf([board]);
    for (let n = 0; n < 5_000; n += 500) await sinks.offer(...raised(500, "B", n));
    await sinks.pass(MINUTE);
    expect(board.notes).toHaveLength(5_000);
    texts.made = 0;
    await sinks.pass(HOUR);
    expect(texts.made).toBe(0);
    expect(board.said).toHaveLength(5_000);
  });

  test("is created once per change for all receivers of one language together", async () => {
    const boards = [noticeBoard("same"), noticeBoard("findable"), noticeBoard("another")];
    const sinks = sinksOf(boards, [{ language: "no" }, { language: "en" }, { language: "no" }]);
    await sinks.offer(...raised(100, "B"));
    texts.made = 0;
    await sinks.offer(alarm(7).acknowledged());
    await sinks.pass(MINUTE);
    expect(texts.made).toBe(2);
    const status = boards.map(
      ({ notes }) => notes.find(({ told }) => told.alarm?.id === alarm(7).record.id)?.told.text,
    );
    expect(status.map((text) => text?.status)).toEqual(["Kvittert", "Acknowledged", "Kvittert"]);
  });

  test("is compared once after a restart, 250 alarms per tick, and sent where it changed", async () => {
    const board = noticeBoard("same");
    const options: object[] = [{}];
    const sinks = sinksOf([board], options);
    await sinks.offer(...raised(500, "B"));
    await sinks.offer(...raised(100, "B", 500));
    options[0] = { words: { active: "Gjeldende" } };
    sinks.restart();
    texts.made = 0;
    await sinks.pass(5 * SECOND);
    expect(texts.made).toBe(250);
    await sinks.pass(MINUTE);
    expect(texts.made).toBe(600);
    expect(board.notes.every(({ told }) => told.text.status === "Gjeldende")).toBe(true);
    texts.made = 0;
    await sinks.pass(HOUR);
    expect(texts.made).toBe(0);
  });
});

describe("the delay of an alarm", () => {
  test.each([
    ["hold", { dossier: false, hold: "10m" }, 10],
    ["quiet hours", { dossier: false, quiet: [{ priorities: ["B"], from: "12:00", to: "13:30" }] }, 30],
  ])("by %s creates no text before its end and then sends all alarms", async (_, options, minutes) => {
    const board = noticeBoard("same");
    const sinks = sinksOf([board], [options]);
    await sinks.offer(...raised(500, "B"));
    texts.made = 0;
    await sinks.pass(minutes * MINUTE - 5 * SECOND);
    expect([texts.made, board.said.length]).toEqual([0, 0]);
    await sinks.pass(MINUTE);
    expect([texts.made, board.said.length]).toEqual([500, 500]);
  });
});
