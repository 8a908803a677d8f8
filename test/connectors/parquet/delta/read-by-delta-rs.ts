import { deepStrictEqual } from "node:assert";
import { execFile, execFileSync } from "node:child_process";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { createFolderStore } from "#connectors/parquet/folder-store.ts";
import { emitEventRows } from "#connectors/shared/lake/event-rows.ts";
import type { LakeRow, LakeTable, RowCells } from "#connectors/shared/lake/table-model.ts";
import { applyRowUpdates } from "#connectors/shared/lake/table-model.ts";
import { LAKE_TABLES } from "#connectors/shared/lake/tables.ts";
import type { Event } from "#src/core/model/event.ts";
import { temporaryFolder } from "../../../real-servers.ts";
import { AWKWARD_TEXTS, sampleEvent, sampleOfEveryKind, valueEvent } from "../../../sample-events.ts";
import { committedAt, createEngine } from "../engine.ts";
import { readObjects } from "../read-objects.ts";
import { fillTable, withUnit } from "./filled-table.ts";
import { ADDED, METER_WITH_UNIT, openMeter, reading, writtenFile } from "./meter-table.ts";
import { checkDeltaTable } from "./strict-checker.ts";

/** `npm run lake:delta`: delta-rs and Plenum read each other's tables. Needs `pip install deltalake pyarrow`. */
const PYTHON = process.env.PYTHON ?? "python3";
const SCRIPT = join(import.meta.dirname, "delta_rs.py");
const signal = new AbortController().signal;

try {
  const versions =
    "import deltalake, pyarrow; print('deltalake', deltalake.__version__, 'pyarrow', pyarrow.__version__)";
  process.stdout.write(execFileSync(PYTHON, ["-c", versions], { stdio: ["ignore", "pipe", "ignore"] }));
} catch {
  process.stderr.write(`${PYTHON} with deltalake and pyarrow is not here: pip install deltalake pyarrow\n`);
  process.exit(1);
}

const root = temporaryFolder("plenum-delta");
const folder = join(root, "meter");
const store = createFolderStore(root, 0o640);

interface Read {
  readonly version: number;
  readonly rows: readonly (readonly unknown[])[];
  readonly [more: string]: unknown;
}

async function theirs<T = Read>(...words: readonly string[]): Promise<T> {
  const { stdout } = await promisify(execFile)(PYTHON, [SCRIPT, ...words], { maxBuffer: 2 ** 26 });
  return JSON.parse(stdout) as T;
}

function same(what: string, found: unknown, wanted: unknown): void {
  deepStrictEqual(found, wanted, `${what} differs`);
  process.stdout.write(`${what}: the same\n`);
}

const SITES = ["1", null, "a/b c%"];
const DAYS = ["2026-11-21", "2026-11-21", "2026-11-22"];

function asRead(number: number): readonly unknown[] {
  const batch = Math.floor(number / 10);
  const [unit] = batch < 6 ? [null] : withUnit(number).slice(-1);
  return [...reading(number), DAYS[batch % 3], SITES[batch % 3], unit];
}

async function sinkAndTheirs(): Promise<void> {
  const lake = join(root, "lake");
  const engine = createEngine({ folder: lake, table_format: "delta", max_rows: 40 });
  const seen = async () => theirs<Readonly<Record<string, readonly RowCells[]>>>("lake", lake, ...NAMES);
  await engine.sink.open(signal);
  same("tables before anything was told", await seen(), Object.fromEntries(NAMES.map((name) => [name, []])));
  engine.log.push(...sampleOfEveryKind());
  engine.log.push(...AWKWARD_TEXTS.map((text, n) => behind(text, valueEvent(n, "1", n % 2 === 0))));
  engine.log.push({ ...valueEvent(500, "2", null), siteid: "a/b c%" });
  for (let n = 0; n < 200; n += 1) engine.log.push(valueEvent(n + (n % 3) * 86_400_000, `1004${n % 7}`, n / 3));
  await engine.finish(25);
  sameLake("rows of every table", await seen(), engine.log, 0);
  const gone = engine.log.length;
  const { deleted } = await theirs<{ readonly deleted: number }>("meddle", lake, String(gone));
  same("values that they took away", deleted, 1);
  engine.kill();
  engine.log.push(...Array.from({ length: 50 }, (_, n) => valueEvent(1_000 + n)), sampleEvent("tag-changed"));
  engine.log.push(sampleEvent("alarm-resolved"), sampleEvent("day-sealed"));
  await engine.finish(25);
  sameLake("rows after their changes, ours and a sealed day", await seen(), engine.log, gone);
}

const NAMES = LAKE_TABLES.map(({ name }) => name);

function behind(behindGateway: string, event: ReturnType<typeof valueEvent>) {
  return { ...event, data: { ...event.data, behindGateway } };
}

function sameLake(
  what: string,
  found: Readonly<Record<string, readonly RowCells[]>>,
  log: readonly Event[],
  gone: number,
): void {
  const rows = new Map<LakeTable, LakeRow[]>(LAKE_TABLES.map((table) => [table, []]));
  for (const [n, event] of log.entries()) {
    const position = n + 1;
    emitEventRows({ event, position, committedAt: committedAt(position) }, (table, row) => {
      if (table.name !== "value" || position !== gone) rows.get(table)?.push([...row]);
    });
  }
  for (const [table, told] of rows) {
    const wanted = table.rowPolicy === "append" ? told : applyRowUpdates(table, [], told);
    const cells = (found[table.name] ?? []).map((row) => table.columns.map(({ name }) => row[name] ?? null));
    same(`${what}: ${table.name}, ${wanted.length}`, ordered(cells), ordered(wanted));
  }
}

function ordered(rows: readonly LakeRow[]): readonly string[] {
  const whole = (cell: LakeRow[number]) => (typeof cell === "string" ? cell.toWellFormed() : cell);
  return rows.map((row) => JSON.stringify(row.map(whole))).toSorted();
}

try {
  const numbers = await fillTable(store);
  const read = await theirs("read", folder);
  same("version", read.version, 12);
  same("name and protocol", [read.name, read.protocol], ["meter", [1, 2]]);
  same("columns", read.columns, [
    ...METER_WITH_UNIT.columns.slice(0, 6).map(({ name }) => name),
    "date",
    "site",
    "unit",
  ]);
  same("rows", read.rows, numbers.map(asRead));
  same("rows of a day", read.day, numbers.filter((n) => Math.floor(n / 10) % 3 === 2).map(asRead));
  same("rows above a value, by statistics", read.above, numbers.filter((n) => Number(reading(n)[2] ?? 0) > 20).length);
  same("rows as they were at version 9", read.earlier, numbers.slice(0, 18));
  same("how far the worker has come", read.app, 11);
  same("history", read.operations, [...Array(6).fill("WRITE"), "OPTIMIZE", ...Array(6).fill("WRITE")]);
  const { deleted } = await theirs<{ readonly deleted: number }>("change", folder);
  same("rows that they took away", deleted, 1);
  const table = openMeter(store, { table: METER_WITH_UNIT, checkpointEvery: 4 });
  const { files } = await table.readActiveFiles(signal);
  same(
    "rows that we count after their changes",
    files.reduce((sum, { rows }) => sum + Number(rows), 0),
    numbers.length,
  );
  const add = await writtenFile(store, "after", [withUnit(500)], { table: METER_WITH_UNIT });
  await table.commit({ ...ADDED, add: [add], txn: { appId: "worker", version: 12 } }, signal);
  const mixed = await theirs("read", folder);
  same(
    "rows after their changes and ours",
    mixed.rows.map((row) => row[4]),
    [...numbers.filter((n) => n !== 10), 500, 9000],
  );
  same(
    "their column in our rows",
    mixed.rows.map((row) => row[9]),
    [...Array(numbers.length).fill(null), "theirs"],
  );

  const races = 20;
  const before = (await table.readActiveFiles(signal)).version;
  const appending = theirs("append", folder, String(races));
  for (let n = 0; n < races; n += 1) {
    const file = await writtenFile(store, `race-${n}`, [withUnit(600 + n)], { table: METER_WITH_UNIT });
    await table.commit({ ...ADDED, add: [file], txn: { appId: "worker", version: 13 + n } }, signal);
  }
  await appending;
  const raced = await theirs("read", folder);
  same("versions after both wrote at once", raced.version, before + 2 * races);
  same("rows after both wrote at once", raced.rows.length, mixed.rows.length + 2 * races);
  const ours = openMeter(store, { table: METER_WITH_UNIT });
  same("files as we see them", (await ours.readActiveFiles(signal)).version, raced.version);
  const own = checkDeltaTable(readObjects(folder), 12);
  same("faults by the strict checker, before they came", own.faults, []);
  await sinkAndTheirs();
} finally {
  rmSync(root, { recursive: true });
}
