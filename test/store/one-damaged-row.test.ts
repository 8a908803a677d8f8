import { pino } from "pino";
import { beforeEach, describe, expect, test } from "vitest";
import type { Log } from "#src/core/runtime/log.ts";
import { openCommandJournal } from "#src/engine/commands/journal.ts";
import { DAMAGED_EVENT_REASON } from "#src/engine/store/event-log.ts";
import { openStore } from "#src/engine/store/open.ts";
import type { Store } from "#src/engine/store/store.ts";
import { createStatus } from "#src/ui/status/status-report.ts";
import { valueEvent } from "../sample-events.ts";
import { closeAfterTest, testFolder } from "../test-resources.ts";
import { CLOCK } from "./filled-state.ts";
import { editState, settle, values } from "./store-steps.ts";

let folder: string;
let lines: string[];
let store: Store;
beforeEach(async () => {
  folder = testFolder();
  lines = [];
  store = await open();
});

async function open(): Promise<Store> {
  const log: Log = pino({ base: null }, { write: (line) => void lines.push(line) });
  return closeAfterTest(await openStore({ folder, clock: CLOCK, log }));
}

async function damage(sql: string): Promise<void> {
  await store.close();
  editState(folder, sql);
  store = await open();
}

describe("a damaged event", () => {
  const DAMAGE_EVENT_3 = "update event set body = replace(body, '°C', '°F') where position = 3";

  test("becomes a dead letter with its bytes for sinks that had not received it; other events continue", async () => {
    await store.commit({ events: values(0, 5) });
    for (const sink of ["past", "before", "ended"]) await store.outbox.register(sink, "beginning");
    await settle(store, "past", 4);
    await store.outbox.setEnded("ended", "410");
    const { bytes } = await store.outbox.pressure();
    editState(folder, DAMAGE_EVENT_3);
    const ids = async (sink: string) => (await store.outbox.next(sink, 100)).events.map(({ event }) => event.id);
    const [first, second, , fourth, fifth] = values(0, 5).map(({ id }) => id);
    expect(await ids("before")).toEqual([first, second, fourth, fifth]);
    expect(await ids("past")).toEqual([fifth]);
    expect((await store.outbox.pressure()).bytes, "what is left is counted").toBe((bytes / 5) * 4);
    const letters = await store.outbox.deadLetters();
    expect(letters).toMatchObject([{ sink: "before", reason: DAMAGED_EVENT_REASON, event: null }]);
    expect(letters[0]?.bytes).toContain("°F");
    expect(await store.outbox.lag()).toMatchObject([
      { sink: "before", deadLetters: 1 },
      { deadLetters: 0 },
      { deadLetters: 0 },
    ]);
    expect(lines.join()).toMatch(/"table":"event","rows":1.*Damaged rows of the state/);
    expect((await store.describe()).damaged).toMatchObject([{ table: "event", part: "tag-value", rows: 1 }]);
    expect(await store.outbox.resendDeadLetters("before", "all"), "nobody can send it").toBe(0);
    expect(await store.outbox.deadLetters("before")).toHaveLength(1);
  });

  test("does not block a sink even if the next 50 events are damaged", async () => {
    await store.outbox.register("a", "beginning");
    await store.commit({ events: values(0, 60) });
    editState(folder, "update event set body = replace(body, '°C', '°F') where position <= 50");
    expect((await store.outbox.next("a", 20)).events).toHaveLength(10);
    expect(await store.outbox.deadLetters("a", 100)).toHaveLength(50);
  });

  test("becomes a dead letter when it is replayed", async () => {
    await store.outbox.register("a", "beginning");
    await store.commit({ events: values(0, 5) });
    await settle(store, "a", 5);
    await store.outbox.replay("a", "2020-01-01T00:00:00Z");
    editState(folder, DAMAGE_EVENT_3);
    expect(await store.outbox.next("a", 100)).toMatchObject({ isRepeat: true, events: { length: 4 } });
    expect(await store.outbox.deadLetters("a")).toMatchObject([{ event: null }]);
  });

  test("is counted in the gap when it expires before a sink has received it", async () => {
    await store.outbox.register("a", "beginning");
    await store.commit({ events: values(0, 5) });
    editState(folder, DAMAGE_EVENT_3);
    const { gaps } = await store.outbox.prune({ maxBytes: 2 ** 30, maxAgeMs: -1, ranMs: 60_000, replayMs: 1 });
    expect(gaps).toMatchObject([{ sink: "a", count: 5 }]);
  });
});

describe("a damaged document", () => {
  test("reads as missing, is quarantined, and is reported in the log and the status", async () => {
    await store.commit({ documents: [{ set: "tag/main", put: Object.entries({ 1: "one", 2: "two" }) }] });
    editState(folder, `update document set body = '"owe"' where key = '1'`);
    expect(await store.document("tag/main", "1")).toBeUndefined();
    expect(await store.documents("tag/main")).toEqual(new Map([["2", "two"]]));
    expect(await store.damagedKeys("tag/main")).toEqual(["1"]);
    expect(lines).toHaveLength(1);
    const status = createStatus({ version: "1", clock: CLOCK, store, sources: [], live: null });
    expect((await status.report()).notices).toEqual([
      expect.stringMatching(/^Damaged rows of the state .* at 2026-11-02T08:00:00.000Z: 1 of document tag\/main\./),
    ]);
    await store.commit({ documents: [{ set: "tag/main", put: [["1", "one"]] }] });
    expect(await store.document("tag/main", "1")).toBe("one");
  });

  test("about a command does not free the id of the command for reuse", async () => {
    const entry = { state: "confirmed", changedAt: "2026-11-02T07:00:00Z" };
    await store.commit({ documents: [{ set: "command", put: [["c1", entry]] }] });
    await damage("update document set body = replace(body, 'confirmed', 'confirmee')");
    const journal = await openCommandJournal({
      store,
      clock: CLOCK,
      rehearsal: false,
      estimateCost: () => ({ waitsMs: [], requestCount: 0, totalSeconds: 0 }),
    });
    expect([journal.isKnownId("c1"), journal.isKnownId("c2")]).toEqual([true, false]);
  });
});

describe("a damaged cursor", () => {
  beforeEach(async () => {
    await store.commit({ events: values(0, 9) });
    await store.outbox.register("a", "now");
    await store.outbox.register("b", "now");
  });

  test("restarts at the beginning of the event log when its position is damaged", async () => {
    await damage("update sink set position = position + 64 where name = 'a'");
    await store.commit({ events: [valueEvent(10)] });
    expect(await store.outbox.register("a", "now")).toMatchObject({ position: 0 });
    expect(await store.outbox.register("b", "now")).toMatchObject({ position: 9 });
  });

  test("makes each new sink start at the beginning of the log while it is unknown which sink the cursor belongs to", async () => {
    await damage("update sink set name = 'q' where name = 'a'");
    expect(await store.outbox.register("new", "now")).toMatchObject({ position: 0 });
    expect(await store.outbox.register("a", "now")).toMatchObject({ position: 0 });
    expect(await store.outbox.register("b", "now")).toMatchObject({ position: 9 });
    await store.outbox.setEnded("q", "not in the configuration");
    expect(await store.outbox.register("later", "now")).toMatchObject({ position: 9 });
  });

  test("restarts at the beginning of the event log when it becomes damaged while the worker runs", async () => {
    editState(folder, "update sink set position = position + 64 where name = 'a'");
    expect((await store.outbox.next("a", 100)).events).toHaveLength(9);
    editState(folder, "update sink set position = position + 64 where name = 'a'");
    await settle(store, "a", 4);
    expect((await store.outbox.next("a", 100)).events).toHaveLength(5);
  });
});

test("a damaged quota slot counts as used now, in every token bucket, for two minutes", async () => {
  const before = CLOCK.now() - 90_000;
  await store.quotaStore.save("main", { id: 1, sentAtMs: before, countedByMs: before });
  await damage("update quota set counted_ms = 0");
  const now = { sentAtMs: CLOCK.now(), countedByMs: CLOCK.now() };
  expect(await store.quotaStore.load("main")).toMatchObject([now]);
  expect(await store.quotaStore.load("other")).toMatchObject([now]);
});

test("later events are offered although the counter of log positions was reset", async () => {
  await store.outbox.register("a", "beginning");
  await store.commit({ events: values(0, 9) });
  await settle(store, "a", 9);
  await damage("delete from event; update sqlite_sequence set seq = 2 where name = 'event'");
  await store.commit({ events: [valueEvent(10)] });
  expect((await store.outbox.next("a", 10)).events).toMatchObject([{ position: 10 }]);
});

test("a damaged record of the audit log keeps its sequence number and has an empty body", async () => {
  await store.commit({ records: [1, 2, 3].map((n) => ({ log: "audit", body: { n } })) });
  await damage(`update record set body = '{"n":4}' where sequence = 2`);
  expect(await store.records("audit", 0, 9)).toEqual([
    { sequence: 1, body: { n: 1 } },
    { sequence: 2, body: {}, damaged: true },
    { sequence: 3, body: { n: 3 } },
  ]);
  expect(lines).toHaveLength(1);
  await damage("select 1");
  expect(lines, "each is told once").toHaveLength(1);
});

test("a settlement of older events that arrives late does not move a cursor back", async () => {
  await store.outbox.register("a", "beginning");
  await store.commit({ events: values(0, 9) });
  await settle(store, "a", 7);
  await settle(store, "a", 3);
  expect((await store.outbox.next("a", 100)).events).toHaveLength(2);
});
