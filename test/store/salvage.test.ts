import { cpSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { beforeEach, expect, test } from "vitest";
import type { Event } from "#src/core/model/event.ts";
import { recoverEvents } from "#src/engine/store/damaged-state-recovery.ts";
import { openStore } from "#src/engine/store/open.ts";
import { SQLITE_PAGE_BYTES } from "#src/engine/store/sqlite-page-format.ts";
import { checkStateInFolder, isStateIntact } from "#src/engine/store/state-check.ts";
import type { Store } from "#src/engine/store/store.ts";
import { seededRandom } from "../commands/seeded-random.ts";
import { sampleEvent, valueEvent } from "../sample-events.ts";
import { replay, seed } from "../seed.ts";
import { closeAfterTest, testFolder } from "../test-resources.ts";
import { CLOCK } from "./filled-state.ts";
import { ids, settle } from "./store-steps.ts";

let base: string;
let fresh: Store;
beforeEach(async () => {
  base = testFolder();
  fresh = closeAfterTest(await openStore({ folder: join(base, "fresh"), clock: CLOCK }));
  for (const sink of ["a", "b"]) await fresh.outbox.register(sink, "beginning");
});

/** Every tenth event is larger than a page. */
function event(n: number): Event {
  if (n % 10 !== 0) return valueEvent(n);
  const sample = sampleEvent("tag-history", {}, n);
  const points = Array.from({ length: 50 * ((n % 7) + 1) }, (_, at) => ({ time: `point ${at}`, value: at / 7 }));
  return { ...sample, data: { ...sample.data, points } };
}

const EVENTS = Array.from({ length: 400 }, (_, n) => event(n));
const SETTLED = 100;

/** A state as a kill leaves it: the latest commits are in the write-ahead log only. */
async function killed(logged = 50): Promise<string> {
  const folder = join(base, "old");
  let store = await openStore({ folder, clock: CLOCK });
  for (const sink of ["a", "b"]) await store.outbox.register(sink, "beginning");
  await store.commit({ events: EVENTS.slice(0, EVENTS.length - logged) });
  await settle(store, "a", SETTLED);
  await settle(store, "b", SETTLED * 2, { rejected: [{ position: 7, reason: "no" }] });
  await store.close();
  store = await openStore({ folder, clock: CLOCK });
  for (const each of EVENTS.slice(EVENTS.length - logged)) await store.commit({ events: [each] });
  const dead = join(base, "dead");
  cpSync(folder, dead, { recursive: true });
  await store.close();
  return join(dead, "plenum.db");
}

async function offered(): Promise<readonly Event[]> {
  const all: Event[] = [];
  for (let after = 0; ; ) {
    const { events } = await fresh.outbox.next("a", 500, after);
    const last = events.at(-1);
    if (last === undefined) return all;
    all.push(...events.map((logged) => logged.event));
    after = last.position;
  }
}

function overwrite(file: string, page: number, pages: number, by: (at: number) => number = () => 0xa5): void {
  const bytes = readFileSync(file);
  const from = (page - 1) * SQLITE_PAGE_BYTES;
  for (let at = from; at < Math.min(from + pages * SQLITE_PAGE_BYTES, bytes.length); at += 1) bytes[at] = by(at);
  writeFileSync(file, bytes);
}

test("recovery of an intact state file returns, in order and once, all events that the slowest sink had not received", async () => {
  const file = await killed();
  const before = readFileSync(file);
  expect(await recoverEvents(join(base, "fresh"), file, CLOCK)).toMatchObject({
    found: 400,
    taken: 300,
    delivered: SETTLED,
    known: 0,
    damaged: 0,
    deadLetters: 1,
    cursors: { a: SETTLED, b: SETTLED * 2 },
  });
  expect(await offered()).toEqual(EVENTS.slice(SETTLED));
  expect(await recoverEvents(join(base, "fresh"), file, CLOCK)).toMatchObject({ taken: 0, known: 300 });
  expect(await offered()).toHaveLength(300);
  expect(readFileSync(file)).toEqual(before);
});

test.each([
  ["the header", 1, 1],
  ["the first eight pages", 1, 8],
])("recovery of a state file with %s overwritten returns the events in the other pages", async (_, page, pages) => {
  const file = await killed();
  overwrite(file, page, pages);
  const { found, taken } = await recoverEvents(join(base, "fresh"), file, CLOCK);
  expect(found).toBeGreaterThan(350);
  expect(taken).toBeGreaterThan(250);
  const eventsById = new Map(EVENTS.map((each) => [each.id, each]));
  for (const each of await offered()) expect(each).toEqual(eventsById.get(each.id));
});

test.each([512, 1_024, 4_096, 65_536])(
  "recovery of a state file rewritten with pages of %d bytes returns all events, and most events without the header",
  async (bytes) => {
    const file = await killed();
    const database = new DatabaseSync(file);
    database.exec(`pragma journal_mode = delete; pragma page_size = ${bytes}; vacuum; pragma journal_mode = wal`);
    expect({ ...database.prepare("pragma page_size").get() }).toEqual({ page_size: bytes });
    // An entry in the log, which also states the page size.
    database.exec("pragma wal_autocheckpoint = 0; create table by_hand (n)");
    const anew = join(base, "anew.db");
    for (const end of ["", "-wal"]) cpSync(`${file}${end}`, `${anew}${end}`);
    database.close();
    expect(await recoverEvents(join(base, "fresh"), anew, CLOCK)).toMatchObject({ found: 400, taken: 300 });
    writeFileSync(anew, readFileSync(anew).fill(0xa5, 0, 100));
    expect((await recoverEvents(join(base, "fresh"), anew, CLOCK)).found).toBeGreaterThan(350);
  },
);

test("recovery of a state file whose header states a wrong page size returns all events", async () => {
  const file = await killed();
  const bytes = readFileSync(file);
  bytes.writeUInt16BE(1_024, 16);
  writeFileSync(file, bytes);
  expect(await recoverEvents(join(base, "fresh"), file, CLOCK)).toMatchObject({ found: 400, taken: 300 });
});

test("recovery of an empty state file returns the events of its write-ahead log", async () => {
  const file = await killed();
  writeFileSync(file, "");
  const { found, cursors } = await recoverEvents(join(base, "fresh"), file, CLOCK);
  expect(found).toBeGreaterThanOrEqual(50);
  expect(cursors).toEqual({ a: null, b: null });
  expect(ids(await offered())).toEqual(expect.arrayContaining(ids(EVENTS.slice(-50))));
});

test("recovery of a state file ignores uncommitted events in its write-ahead log", async () => {
  const file = await killed();
  const wal = readFileSync(`${file}-wal`);
  // Without the last frame, which marks the commit.
  writeFileSync(`${file}-wal`, wal.subarray(0, -1));
  expect(await recoverEvents(join(base, "fresh"), file, CLOCK)).toMatchObject({ found: 399 });
});

test(`recovery of a randomly damaged state file never crashes and returns only committed events (seed ${seed})`, async () => {
  const random = seededRandom(seed);
  const file = await killed();
  const told = new Map(EVENTS.map((each) => [each.id, each]));
  const sound = readFileSync(file);
  for (let round = 0; round < 40; round += 1) {
    const pages = sound.length / SQLITE_PAGE_BYTES;
    writeFileSync(file, sound);
    for (let damageIndex = 0; damageIndex < 10; damageIndex += 1)
      overwrite(file, 1 + random.below(pages), 1 + random.below(3), () => (random.chance(0.9) ? 0 : random.below(256)));
    const bytes = readFileSync(file);
    for (let bit = 0; bit < 200; bit += 1) {
      const at = random.below(bytes.length);
      bytes[at] = (bytes[at] ?? 0) ^ (1 << random.below(8));
    }
    writeFileSync(file, random.chance(0.2) ? bytes.subarray(0, random.below(bytes.length)) : bytes);
    const { found } = await recoverEvents(join(base, "fresh"), file, CLOCK);
    expect(found, replay).toBeLessThanOrEqual(400);
    for (const each of await offered()) expect(each, replay).toEqual(told.get(each.id));
  }
});

test("recovery of a state file works while a worker runs, and preserves the worker's commits", async () => {
  const file = await killed();
  const [done] = await Promise.all([
    recoverEvents(join(base, "fresh"), file, CLOCK),
    (async () => {
      for (let n = 1_001; n < 1_050; n += 1) await fresh.commit({ events: [valueEvent(n)] });
    })(),
  ]);
  expect(done.taken).toBe(300);
  expect(await offered()).toHaveLength(349);
  await fresh.close();
  expect(isStateIntact(checkStateInFolder(join(base, "fresh")))).toBe(true);
});

test("recovery rejects a missing state file and the state in use", async () => {
  const folder = join(base, "fresh");
  await expect(recoverEvents(folder, join(base, "none"), CLOCK)).rejects.toThrow("There is no file");
  await expect(recoverEvents(folder, join(folder, "plenum.db"), CLOCK)).rejects.toThrow("is the state in use");
  await expect(recoverEvents(join(base, "nowhere"), join(folder, "plenum.db"), CLOCK)).rejects.toThrow("no state");
  writeFileSync(join(base, "text"), "not a state ".repeat(10_000));
  expect(await recoverEvents(folder, join(base, "text"), CLOCK)).toMatchObject({ found: 0, taken: 0 });
  expect(readdirSync(folder).filter((name) => name.includes("damaged"))).toEqual([]);
});
