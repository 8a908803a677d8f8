import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { beforeEach, expect, test } from "vitest";
import { openStore } from "#src/engine/store/open.ts";
import { valueEvent } from "../sample-events.ts";
import { replay, seed } from "../seed.ts";
import { testFolder } from "../test-resources.ts";
import { CLOCK } from "./filled-state.ts";
import { flipBytes } from "./flipped-bytes/campaign.ts";
import { editState, eventsOf, pragmaOf, values } from "./store-steps.ts";

let folder: string;
let file: string;
beforeEach(() => {
  folder = testFolder();
  file = join(folder, "plenum.db");
});

const BOUNDS = { maxBytes: 2 ** 30, maxAgeMs: 2 ** 40, ranMs: 60_000, replayMs: 2 ** 40 };

test(`flipped bytes anywhere in the file stop no sink, and every lost event is counted (seed ${seed})`, async () => {
  const { broken, replaced, reindexed } = await flipBytes(100, seed);
  expect(broken, replay).toEqual([]);
  expect(replaced + reindexed, "flips that needed a repair").toBeGreaterThan(5);
});

/** Changes one byte of an id in an index of the log, but not in the row. */
function flipIdInIndex(id: string): void {
  const database = new DatabaseSync(file, { readOnly: true });
  const pages = database
    .prepare("select pageno from dbstat where name = 'sqlite_autoindex_event_1'")
    .all()
    .map(({ pageno }) => Number(pageno));
  const pageBytes = Number(database.prepare("pragma page_size").get()?.page_size);
  database.close();
  const bytes = readFileSync(file);
  const at = pages
    .map((page) => bytes.indexOf(id, (page - 1) * pageBytes))
    .find((found, n) => found >= 0 && found < (pages[n] ?? 0) * pageBytes);
  if (at === undefined) throw new Error(`No index page holds ${id}.`);
  bytes[at + id.length - 1] = (bytes[at + id.length - 1] ?? 0) ^ 1;
  writeFileSync(file, bytes);
}

/** Lets the sixth leaf of the log's table appear in the place of the third one, too. */
function repeatLeafInTable(): void {
  const database = new DatabaseSync(file, { readOnly: true });
  const page = database.prepare("select pageno from dbstat where name = 'event' and pagetype = 'internal'").get();
  const pageBytes = Number(database.prepare("pragma page_size").get()?.page_size);
  database.close();
  const bytes = readFileSync(file);
  const start = (Number(page?.pageno) - 1) * pageBytes;
  const cellAt = (n: number) => start + bytes.readUInt16BE(start + 12 + 2 * n);
  bytes.writeUInt32BE(bytes.readUInt32BE(cellAt(5)), cellAt(2));
  writeFileSync(file, bytes);
}

test("a sink that read past a misplaced page of the event log gets every event after the recovery", async () => {
  const events = values(1, 60);
  const store = await openStore({ folder, clock: CLOCK });
  await store.outbox.register("a", "beginning");
  await store.commit({ events });
  await store.close();
  repeatLeafInTable();
  const received = new Set<string>();
  const again = await openStore({ folder, clock: CLOCK });
  for await (const { id } of eventsOf(again, "a", 1)) received.add(id);
  expect(received.size).toBeLessThan(events.length);
  await expect(again.outbox.prune(BOUNDS)).rejects.toThrow();
  await again.close();
  const recovered = await openStore({ folder, clock: CLOCK });
  for await (const { id } of eventsOf(recovered, "a", 10)) received.add(id);
  expect(received).toEqual(new Set(events.map(({ id }) => id)));
  await recovered.close();
});

test("the check of the event log repairs a wrong id in an index", async () => {
  const store = await openStore({ folder, clock: CLOCK });
  await store.outbox.register("a", "beginning");
  await store.commit({ events: values(1, 3) });
  await store.close();
  flipIdInIndex(valueEvent(2).id);
  const again = await openStore({ folder, clock: CLOCK });
  await again.outbox.prune(BOUNDS);
  expect((await again.outbox.next("a", 10)).events).toHaveLength(3);
  expect((await again.commit({ events: [valueEvent(2)] })).repeated, "the index finds it").toHaveLength(1);
  expect(again.damaged?.aborted).toBe(false);
  await again.close();
  expect(pragmaOf(folder, "integrity_check")).toBe("ok");
});

test("the check of the event log corrects a wrong byte count", async () => {
  const store = await openStore({ folder, clock: CLOCK });
  await store.commit({ events: values(1, 3) });
  const { bytes } = await store.outbox.pressure();
  await store.close();
  editState(folder, "update log_size set bytes = bytes - 100");
  const again = await openStore({ folder, clock: CLOCK });
  expect((await again.outbox.pressure()).bytes).toBe(bytes - 100);
  await again.outbox.prune(BOUNDS);
  await again.commit({ documents: [{ set: "x", put: [["y", 1]] }] });
  expect((await again.outbox.pressure()).bytes).toBe(bytes);
  await again.close();
});
