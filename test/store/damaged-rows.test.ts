import { copyFileSync, mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterAll, beforeAll, expect, test } from "vitest";
import { SINK_NOT_CONFIGURED } from "#src/engine/delivery/sink-registration.ts";
import { openStore } from "#src/engine/store/open.ts";
import type { Store } from "#src/engine/store/store.ts";
import { type SeededRandom, seededRandom } from "../commands/seeded-random.ts";
import { temporaryFolder } from "../real-servers.ts";
import { replay, seed } from "../seed.ts";
import { CLOCK, createFilledState, type Furnished } from "./filled-state.ts";
import { drain, ids } from "./store-steps.ts";

/** Flips single bits in each column of each table. The worker uses no changed data and reports each loss. */
const ROUNDS = 4;
/** Columns that are computed from others, or that say nothing about committed data. */
const DERIVED = new Set(["event.written", "event.position", "log_size.written", "dead_letter.id", "gap.id"]);

let base: string;
let template: string;
let was: Furnished;
beforeAll(async () => {
  base = temporaryFolder();
  was = await createFilledState(join(base, "template"));
  template = join(base, "template", "plenum.db");
});
afterAll(() => rmSync(base, { recursive: true }));

interface Column {
  readonly table: string;
  readonly column: string;
  /** SQL condition for row number ? of the table. */
  readonly row: string;
  readonly rows: number;
}

function columns(): readonly Column[] {
  const database = new DatabaseSync(template, { readOnly: true });
  const tables = database
    .prepare("select name from sqlite_master where type = 'table' and name not in ('damaged', 'log_size')")
    .all();
  const all = tables.flatMap(({ name: table }) => {
    const info = database.prepare(`select name, pk from pragma_table_info('${table}')`).all();
    const rows = Number(database.prepare(`select count(*) as n from ${table}`).get()?.n);
    const keys = info.filter(({ pk }) => Number(pk) > 0).map(({ name }) => name);
    const key = keys.length === 0 ? "rowid" : `(${keys.join(", ")})`;
    const row = `${key} = (select ${key.replace(/^\(|\)$/g, "")} from ${table} limit 1 offset ?)`;
    return info.map(({ name }) => ({ table: String(table), column: String(name), row, rows }));
  });
  database.close();
  return all.filter(({ table, column }) => !DERIVED.has(`${table}.${column}`));
}

/** Flips a bit of one value, without changing the row's length; null when there is nothing to flip. */
function flip(file: string, { table, column, row, rows }: Column, random: SeededRandom): string | null {
  const database = new DatabaseSync(file);
  try {
    const at = random.below(rows);
    const found = database
      .prepare(`select typeof(${column}) as type, hex(${column}) as hex, ${column} as value from ${table} where ${row}`)
      .get(at);
    const write = (value: string) => database.prepare(`update ${table} set ${column} = ${value} where ${row}`).run(at);
    if (found?.type === "text" && found.hex !== "") {
      const bytes = Buffer.from(String(found.hex), "hex");
      const place = random.below(bytes.length);
      bytes[place] = (bytes[place] ?? 0) ^ (1 << random.below(8));
      write(`cast(x'${bytes.toString("hex")}' as text)`);
      return `${table}.${column} of row ${at}, byte ${place}: ${bytes.toString("latin1")}`;
    }
    if (found?.type === "integer" || found?.type === "real") {
      const value = BigInt(Math.trunc(Number(found.value))) ^ (1n << BigInt(random.below(50)));
      write(String(value));
      return `${table}.${column} of row ${at}: ${value}`;
    }
    return null;
  } catch (error) {
    // The flipped key exists already.
    if (String(error).includes("UNIQUE")) return null;
    throw error;
  } finally {
    database.close();
  }
}

async function deliver(store: Store): Promise<ReadonlyMap<string, ReadonlySet<string>>> {
  const got = new Map<string, ReadonlySet<string>>();
  for (const sink of was.outstanding.keys()) await store.outbox.register(sink, "now");
  for (const { sink, ended } of await store.outbox.lag())
    if (ended === null && !was.outstanding.has(sink)) await store.outbox.setEnded(sink, SINK_NOT_CONFIGURED);
  for (const sink of was.outstanding.keys()) {
    const events = await drain(store, sink, 50);
    for (const event of events) expect(event, "a delivered event").toEqual(was.events.get(event.id));
    got.set(sink, new Set(ids(events)));
  }
  return got;
}

async function judge(store: Store): Promise<void> {
  for (const [set, written] of was.documents) {
    const held = await store.documents(set);
    for (const [key, value] of held) expect(value, `${set} ${key}`).toEqual(written.get(key));
    const [one] = written.keys();
    expect(await store.document(set, one ?? "")).toEqual(held.get(one ?? ""));
    expect(held.size).toBeGreaterThanOrEqual(written.size - 1);
    if (held.size < written.size) expect((await store.describe()).damaged.length).toBe(1);
  }
  const records = await store.records("audit", 0, 100);
  for (const { sequence, body, damaged } of records)
    if (damaged !== true) expect(body).toEqual(was.records[sequence - 1]);
  for (const bucket of ["main", "spare"]) {
    const acquire = await store.quotaStore.loadPause(bucket);
    expect((acquire?.untilMs ?? 0) - CLOCK.now(), "the pause goes on").toBeGreaterThan(0);
    expect((await store.quotaStore.load(bucket)).length, "no slot is forgotten").toBeGreaterThanOrEqual(3);
  }
  await store.lastRecord("audit");
  await store.outbox.pressure();
  for (const { event } of await store.outbox.latest(500)) expect(event).toEqual(was.events.get(event.id));
  const wanted = { kinds: ["tag-value" as const], kindsOnly: false, matches: () => true };
  await store.outbox.lag(new Map([...was.outstanding.keys()].map((sink) => [sink, wanted])));

  const got = await deliver(store);
  const letters = await store.outbox.deadLetters(undefined, 1_000);
  for (const [sink, ids] of was.outstanding) {
    const missing = [...ids].filter((id) => !got.get(sink)?.has(id));
    const told = letters.filter((letter) => letter.event === null && letter.sink === sink).length;
    const marks = (await store.describe()).damaged.length;
    expect(missing.length, `untold: ${missing.join(", ")} of ${sink}`).toBeLessThanOrEqual(Math.max(told, marks));
    if (missing.length > 0 && marks === 0) expect(told).toBeGreaterThan(0);
  }
  for (const [sink, ids] of was.letters) {
    for (const id of ids) {
      const isThere = letters.some((letter) => letter.sink === sink && letter.event?.id === id);
      const damaged = letters.filter((letter) => letter.event === null).length;
      expect(isThere || damaged > 0 || got.get(sink)?.has(id) === true, `letter ${id}`).toBe(true);
    }
  }
  for (const { event, reason } of letters) {
    if (event === null) continue;
    expect(event).toEqual(was.events.get(event.id));
    expect(reason).toMatch(/^refused by (ahead|behind)$/);
  }
  await store.outbox.prune({ maxBytes: 2 ** 30, maxAgeMs: 2 ** 40, ranMs: 60_000, replayMs: 2 ** 40 });
}

test(`a flipped bit in any row causes no wrong data and no unreported loss (seed ${seed})`, async () => {
  const random = seededRandom(seed);
  let flips = 0;
  for (const column of columns()) {
    for (let round = 0; round < ROUNDS; round += 1) {
      const folder = join(base, "damaged");
      mkdirSync(folder);
      copyFileSync(template, join(folder, "plenum.db"));
      const what = flip(join(folder, "plenum.db"), column, random);
      if (what !== null) {
        flips += 1;
        try {
          const store = await openStore({ folder, clock: CLOCK });
          try {
            await judge(store);
          } finally {
            await store.close();
          }
        } catch (error) {
          throw new Error(`${what}; ${replay}`, { cause: error });
        }
      }
      rmSync(folder, { recursive: true });
    }
  }
  expect(flips).toBeGreaterThan(200);
});
