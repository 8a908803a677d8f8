import { existsSync, rmSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { createGathering } from "#connectors/parquet/commits.ts";
import { createPlainFormat } from "#connectors/parquet/plain-format.ts";
import { createHand } from "#connectors/parquet/row-buffer.ts";
import { type Landing, openBook } from "#connectors/parquet/sink-state.ts";
import type { Event } from "#src/core/model/event.ts";
import { temporaryFolder } from "../../real-servers.ts";
import { sampleEvent, valueEvent } from "../../sample-events.ts";
import { createVirtualClock } from "../../virtual-clock.ts";
import { contextFor, never } from "../context.ts";
import { createMemoryStore } from "./delta/memory-store.ts";
import { committedAt, createEngine } from "./engine.ts";

function gathering({ landings = [] as readonly Landing[], maxRows = 2, maxAgeMs = 60_000 } = {}) {
  const store = createMemoryStore();
  const clock = createVirtualClock(0);
  const { memory } = contextFor("lake");
  const here = createGathering({
    book: { life: "life", landings },
    format: createPlainFormat({ store, memory, clock }),
    arrived: new Map(),
    ...{ store, memory, clock, maxRows, maxAgeMs },
  });
  return {
    ...{ here, clock, memory },
    take: (n: number) => here.take(valueEvent(n), n, committedAt(n), never()),
    land: () => here.land(never()),
    files: () => [...store.objects.keys()].filter((key) => key.endsWith(".parquet")),
  };
}

test("is settled when all that was taken is in files and the cursor has passed it", async () => {
  const { files, here, land, take } = gathering();
  expect([here.isSettled, here.settle()]).toEqual([true, null]);
  await take(1);
  await land();
  expect([here.isSettled, here.settle(), files()]).toEqual([true, null, []]);
  await take(2);
  await land();
  expect([here.isSettled, files().length]).toEqual([false, 1]);
  // What came after the file has to be offered again after a crash, and the file with it.
  await take(3);
  expect([here.isSettled, here.settle()]).toEqual([false, null]);
  await take(4);
  await land();
  expect(files()).toHaveLength(2);
  expect(here.settle()?.seals).toEqual([]);
  expect([here.isSettled, here.settle()]).toEqual([true, null]);
});

test("makes the files of before a crash again from the same events, before anything else", async () => {
  const landings = [{ from: 1, through: 3, keys: [] }];
  const { files, here, land, memory, take } = gathering({ landings });
  expect([here.isSettled, here.hasTaken(1)]).toEqual([false, false]);
  for (const n of [1, 2]) await take(n);
  await land();
  expect(files()).toEqual([]);
  await take(3);
  expect([here.hasTaken(3), here.hasTaken(4)]).toEqual([true, false]);
  await land();
  expect(files()).toEqual(["value/date=2026-11-02/site=1/life-000000000001-000000000003.parquet"]);
  expect((await memory.all()).get("landings")).toEqual([{ from: 1, through: 3, keys: files() }]);
  expect([here.isSettled, here.settle() === null, here.isSettled]).toEqual([false, false, true]);
});

test("makes several files of before a crash again, also where all their events come in one batch", async () => {
  const landings = [
    { from: 1, through: 2, keys: [] },
    { from: 3, through: 4, keys: [] },
  ];
  const { files, here, land, take } = gathering({ landings });
  for (const n of [1, 2, 3, 4, 5]) await take(n);
  const name = (range: string) => `value/date=2026-11-02/site=1/life-${range}.parquet`;
  expect(files()).toEqual([name("000000000001-000000000002"), name("000000000003-000000000004")]);
  await land();
  expect([files().length, here.settle()]).toEqual([2, null]);
});

test("writes what has waited for max_age, to the millisecond", async () => {
  const { clock, files, land, take } = gathering();
  await take(1);
  await clock.advance(59_999);
  await land();
  expect(files()).toEqual([]);
  await clock.advance(1);
  await land();
  expect(files()).toHaveLength(1);
});

test("a hand counts the characters of all its tables, which bound its memory", () => {
  const hand = createHand();
  const { data, ...event } = valueEvent(1);
  hand.add({ ...event, data: { ...data, behindGateway: "x".repeat(1_000) } } as Event, 1, committedAt(1));
  const before = hand.characters;
  expect(before).toBeGreaterThan(1_000);
  hand.add(sampleEvent("audit-head"), 2, committedAt(2));
  expect(hand.characters).toBeGreaterThan(before);
  expect([hand.from, hand.through, hand.rows]).toEqual([1, 2, 2]);
});

test.each([
  ["as far as the state", { through: 7 }, true],
  ["less far", { through: 6 }, true],
  ["further, so the state is an older copy", { through: 8 }, false],
  ["without a number", {}, true],
])("the state goes on under its name where the lake is %s", async (_, there, goesOn) => {
  const store = createMemoryStore();
  const context = contextFor("lake");
  await context.memory.put(new Map([["life", { id: "abc", through: 7 }]]));
  store.write("_lives/abc.json", JSON.stringify(there));
  const { life } = await openBook(context, store, never());
  expect(life === "abc").toBe(goesOn);
  // Without anything landed it is the same.
  await context.memory.put(new Map([["life", { id: "def", through: 0 }]]));
  store.write("_lives/def.json", "{}");
  expect((await openBook(context, store, never())).life).toBe("def");
});

test("a day is sealed only when no file of before a crash is still to be made again", async () => {
  const folder = temporaryFolder();
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const seal = { site: "1", day: "2026-11-02", revision: 1, account: {} };
  const remembered = new Map<string, unknown>([
    ["life", { id: "abc", through: 0 }],
    ["landings", [{ from: 1, through: 3, keys: [] }]],
    ["seal 2026-11-02 1", seal],
  ]);
  const engine = createEngine({ folder }, remembered);
  const isSealed = () => existsSync(join(folder, "_manifests/site=1/date=2026-11-02.json"));
  engine.log.push(...[1, 2, 3].map((n) => valueEvent(n)));
  await engine.offer(2);
  await engine.tick();
  expect(isSealed()).toBe(false);
  await engine.offer(1);
  await engine.tick();
  expect([engine.cursor, isSealed()]).toEqual([3, true]);
});
