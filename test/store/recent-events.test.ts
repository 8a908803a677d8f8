import { join } from "node:path";
import { beforeEach, expect, test } from "vitest";
import { type Event, makeEvent, sourceUri } from "#src/core/model/event.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { createStore } from "#src/engine/store/open.ts";
import { prepareSchema } from "#src/engine/store/schema.ts";
import { openDatabase } from "#src/engine/store/sqlite.ts";
import type { Store } from "#src/engine/store/store.ts";
import { effortOf } from "../effort.ts";
import { TAG } from "../sample-events.ts";
import { closeAfterTest, testFolder } from "../test-resources.ts";
import { editState } from "./store-steps.ts";

const START = Date.parse("2026-11-02T06:00:00Z");
let folder: string;
let store: Store;
let nowMs = START;

beforeEach(() => {
  folder = testFolder();
  const database = openDatabase(join(folder, "plenum.db"));
  prepareSchema(database, true);
  nowMs = START;
  store = closeAfterTest(createStore(database, { ...systemClock, now: () => nowMs }, {}));
});

function value(id: string, n: number, note = "", source = "main"): Event {
  const time = new Date(START + n * 1_000).toISOString();
  const data = { tag: { ...TAG, id }, value: n, quality: "good", time, note } as never;
  const subject = `site/1/tag/${id}`;
  return makeEvent({ type: "tag-value", source: sourceUri(source), subject, time, data, facts: [n] });
}

async function found(...ids: readonly string[]): Promise<readonly unknown[]> {
  const about = { source: sourceUri("main"), subjects: ids.map((id) => `site/1/tag/${id}`) };
  const bounds = { sinceMs: START, maxSearched: 1_000, limit: 5 };
  const events = await store.outbox.recent(about, ["tag-value"], bounds);
  return events.map(({ event }) => (event.data as { readonly value: unknown }).value);
}

test("the search for recent events finds exactly the requested subjects, newest first, up to the limit", async () => {
  const inner = { text: '"subject":"site/1/tag/7"' } as unknown as string;
  await store.commit({
    events: [value("7", 1), value("77", 2), value("7", 3, "", "other"), value("8", 4), value("9", 5, inner)],
  });
  expect(await found("7", "8")).toEqual([4, 1]);
  expect(await found("site")).toEqual([]);
  await store.commit({ events: Array.from({ length: 9 }, (_, n) => value("7", 10 + n)) });
  expect(await found("7")).toEqual([18, 17, 16, 15, 14]);
});

test("the search for recent events ignores events before the start time and events larger than 32 kB", async () => {
  nowMs = START - 1;
  await store.commit({ events: [value("7", 1)] });
  nowMs = START;
  await store.commit({ events: [value("7", 2, "x".repeat(40_000)), value("7", 3, "x".repeat(20_000))] });
  expect(await found("7")).toEqual([3]);
});

test("the search for recent events skips a damaged event and finds all other events", async () => {
  await store.commit({ events: [value("7", 1), value("7", 2), value("7", 3), value("7", 4)] });
  editState(
    folder,
    `update event set body = '{"subject":' where position = 2;
    update event set body = replace(body, '"value":3', '"value":5') where position = 3`,
  );
  expect(await found("7")).toEqual([4, 1]);
});

test("the search for recent events lets other work run between parts of 100,000 events, and reads at most the given number", async () => {
  await store.commit({ events: [value("7", 1)] });
  const body = JSON.stringify(value("8", 2, "x".repeat(300)));
  editState(
    folder,
    `insert into event (id, kind, telemetry, committed_ms, bytes, body, checksum)
    with recursive n(i) as (select 1 union all select i + 1 from n where i < 100000)
    select 'e' || i, 'tag-value', 1, ${START}, 600, '${body}', 0 from n`,
  );
  await store.commit({ events: [value("7", 3)] });
  const about = { source: sourceUri("main"), subjects: Array.from({ length: 60 }, (_, n) => `site/1/tag/7${n || ""}`) };
  const search = (within: number) =>
    store.outbox.recent(about, ["tag-value", "tag-history"], { sinceMs: START, maxSearched: within, limit: 5_000 });
  const effort = await effortOf(async () => expect(await search(75_000)).toHaveLength(1));
  expect(effort).toBeLessThan(200);
  let ticks = 0;
  const countTicks = () => {
    ticks += 1;
    other = setImmediate(countTicks);
  };
  let other = setImmediate(countTicks);
  expect(await search(200_000)).toHaveLength(2);
  expect(await store.outbox.latest(9, ["tag-value"], { ...about, subjects: ["site/1/tag/7"] })).toHaveLength(2);
  clearImmediate(other);
  expect(ticks).toBeGreaterThanOrEqual(2 * 19);
});

test("the cost of the query for urgent events of a new sink does not grow with the number of other events in the log", async () => {
  editState(
    folder,
    `insert into event (id, kind, telemetry, committed_ms, bytes, body, checksum)
    with recursive n(i) as (select 1 union all select i + 1 from n where i < 100000)
    select 'f' || i, 'tag-added', 0, ${START}, 600, '{}', 0 from n`,
  );
  const effort = await effortOf(async () => {
    for (let n = 0; n < 20; n += 1) {
      await store.outbox.register("desk", "now");
      expect((await store.outbox.nextUrgent("desk", 10)).events).toEqual([]);
    }
  });
  expect(effort).toBeLessThan(20);
});
