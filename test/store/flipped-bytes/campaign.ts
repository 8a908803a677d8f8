import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { isDeepStrictEqual } from "node:util";
import { pino } from "pino";
import { errorText } from "#src/core/errors/errors.ts";
import type { Event } from "#src/core/model/event.ts";
import type { Log } from "#src/core/runtime/log.ts";
import { openStore } from "#src/engine/store/open.ts";
import { StateDamaged } from "#src/engine/store/sqlite.ts";
import type { Store } from "#src/engine/store/store.ts";
import { type SeededRandom, seededRandom } from "../../commands/seeded-random.ts";
import { temporaryFolder } from "../../real-servers.ts";
import { CLOCK, createFilledState } from "../filled-state.ts";
import { eventsOf, values } from "../store-steps.ts";

/**
 * Flips one byte of a state file at a time. Every sink gets all later events, no changed event, and each loss is
 * counted.
 */
interface State {
  readonly file: string;
  readonly events: ReadonlyMap<string, Event>;
  readonly outstanding: ReadonlyMap<string, ReadonlySet<string>>;
}

const MORE_EVENTS = 400;
const BOUNDS = { maxBytes: 2 ** 30, maxAgeMs: 2 ** 40, ranMs: 60_000, replayMs: 2 ** 40 };

/** A state whose tables and indexes have several levels, with free pages. */
async function fill(folder: string): Promise<State> {
  const was = await createFilledState(folder);
  const store = await openStore({ folder, clock: CLOCK });
  const more = values(1_000, MORE_EVENTS);
  for (let at = 0; at < more.length; at += 50) await store.commit({ events: more.slice(at, at + 50) });
  const keys = Array.from({ length: 60 }, (_, n) => `large ${n}`);
  await store.commit({ documents: [{ set: "large", put: keys.map((key) => [key, key.repeat(150)]) }] });
  await store.commit({ documents: [{ set: "large", remove: keys }] });
  await store.close();
  const ids = more.map(({ id }) => id);
  return {
    file: join(folder, "plenum.db"),
    events: new Map([...was.events, ...more.map((event) => [event.id, event] as const)]),
    outstanding: new Map([...was.outstanding].map(([sink, before]) => [sink, new Set([...before, ...ids])])),
  };
}

function listening(totals: { replaced: number; reindexed: number; quarantined: number }): Log {
  return pino(
    { base: null },
    {
      write(line) {
        if (line.includes("The state file was damaged")) totals.replaced += 1;
        if (line.includes("were rebuilt")) totals.reindexed += 1;
        if (line.includes("Damaged rows of the state")) totals.quarantined += 1;
      },
    },
  );
}

type Region = "header" | "table" | "index" | "free" | "other";

function regions(file: string): ReadonlyMap<Region, readonly number[]> {
  const bytes = readFileSync(file);
  const pageBytes = bytes.readUInt16BE(16);
  const database = new DatabaseSync(file, { readOnly: true });
  const usedPages = database.prepare("select pageno, name from dbstat").all();
  database.close();
  const indexes = new Set(
    usedPages.filter(({ name }) => /autoindex|_by_/.test(String(name))).map(({ pageno }) => Number(pageno)),
  );
  const tables = new Set(usedPages.map(({ pageno }) => Number(pageno)).filter((page) => !indexes.has(page)));
  const found = new Map<Region, number[]>([["header", [0]]]);
  for (let page = 1; page <= bytes.length / pageBytes; page += 1) {
    const map = 2 + Math.floor((page - 2) / (Math.floor(pageBytes / 5) + 1)) * (Math.floor(pageBytes / 5) + 1);
    const region = indexes.has(page) ? "index" : tables.has(page) ? "table" : map === page ? "other" : "free";
    found.set(region, [...(found.get(region) ?? []), (page - 1) * pageBytes]);
  }
  return found;
}

/** Flips one byte, but not the schema version: a newer version is refused. */
function flip(file: string, offsets: ReadonlyMap<Region, readonly number[]>, n: number, random: SeededRandom) {
  const kinds = [...offsets.keys()];
  const region = kinds[n % kinds.length] ?? "header";
  const pages = offsets.get(region) ?? [0];
  const bytes = readFileSync(file);
  const pageBytes = bytes.readUInt16BE(16);
  let at: number;
  do {
    at = (pages[random.below(pages.length)] ?? 0) + random.below(region === "header" ? 100 : pageBytes);
  } while (at === 63);
  const before = bytes[at] ?? 0;
  bytes[at] = before ^ (1 + random.below(255));
  writeFileSync(file, bytes);
  return `byte ${at} (${region}, page ${Math.floor(at / pageBytes) + 1}) from ${before} to ${bytes[at]}`;
}

async function used<T>(folder: string, log: Log, use: (store: Store) => Promise<T>): Promise<T> {
  for (let attempts = 3; ; attempts -= 1) {
    const store = await openStore({ folder, clock: CLOCK, log });
    try {
      return await use(store);
    } catch (error) {
      if (!(error instanceof StateDamaged) || store.damaged?.aborted !== true || attempts === 0) throw error;
    } finally {
      await store.close().catch(() => undefined);
    }
  }
}

async function judge(folder: string, state: State, n: number, log: Log): Promise<string[]> {
  const broken: string[] = [];
  const fresh = values(100_000 + 10 * n, 3);
  const known = new Map([...state.events, ...fresh.map((event) => [event.id, event] as const)]);
  const got = new Map<string, Set<string>>([...state.outstanding.keys()].map((sink) => [sink, new Set()]));
  let counted = 0;

  async function deliver(store: Store): Promise<void> {
    for (const [sink, ids] of got) {
      await store.outbox.register(sink, "now");
      for await (const event of eventsOf(store, sink, 50)) {
        if (event.type !== "delivery-gap" && !isDeepStrictEqual(event, known.get(event.id)))
          broken.push(`${sink} got ${event.id}, which was not committed so`);
        ids.add(event.id);
      }
    }
  }

  for (const event of fresh) {
    await used(folder, log, async (store) => {
      await deliver(store);
      await store.commit({ events: [event] });
      await store.outbox.prune(BOUNDS);
      await deliver(store);
      await store.outbox.latest(1_000);
      const { damaged, recoveryMessage: takenOver } = await store.describe();
      const rows = damaged.reduce((sum, each) => sum + each.rows, 0);
      const lost = (takenOver?.match(/(?:are|,|and) (\d+) (?:events of|dead|marks)/g) ?? [])
        .map((text) => Number(/\d+/.exec(text)?.[0]))
        .reduce((sum, each) => sum + each, 0);
      const letters = (await store.outbox.deadLetters(undefined, 1_000)).filter((letter) => letter.event === null);
      counted = Math.max(counted, rows + lost + letters.length);
    });
  }
  for (const [sink, outstanding] of state.outstanding) {
    const ids = got.get(sink) ?? new Set();
    for (const { id } of fresh) if (!ids.has(id)) broken.push(`${sink} did not get ${id}, committed afterwards`);
    const missing = [...outstanding].filter((id) => !ids.has(id));
    if (missing.length > counted)
      broken.push(`${sink} did not get ${missing.length} events, ${counted} were counted: ${missing[0]}`);
  }
  return broken;
}

export async function flipBytes(flips: number, seed: number) {
  const random = seededRandom(seed);
  const base = temporaryFolder();
  const totals = { replaced: 0, reindexed: 0, quarantined: 0 };
  const log = listening(totals);
  const broken: string[] = [];
  try {
    const state = await fill(join(base, "template"));
    const offsets = regions(state.file);
    for (let n = 0; n < flips; n += 1) {
      const folder = join(base, "flipped");
      mkdirSync(folder, { mode: 0o700 });
      copyFileSync(state.file, join(folder, "plenum.db"));
      const what = flip(join(folder, "plenum.db"), offsets, n, random);
      try {
        for (const message of await judge(folder, state, n, log)) broken.push(`${n} ${what}: ${message}`);
      } catch (error) {
        broken.push(`${what}: ${errorText(error)}`);
      }
      rmSync(folder, { recursive: true });
    }
  } finally {
    rmSync(base, { recursive: true });
  }
  return { flips, ...totals, broken };
}
