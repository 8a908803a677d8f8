import { createHash } from "node:crypto";
import type { Clock } from "../../src/core/runtime/clock.ts";
import { isoUtc } from "../../src/core/values/iso-utc.ts";
import { HISTORY_TABLE, TABLES, TOTAL_TABLE } from "../shared/lake/tables.ts";
import type { ObjectStore } from "./object-store.ts";
import { rowsOf } from "./parquet-file.ts";
import { isDivided, manifestOf, type Partition, partitionOf } from "./paths.ts";
import type { CompleteDay } from "./sink-state.ts";
import type { TableFormat } from "./table-format.ts";

/** Manifest of a day that is over. JSON in `_manifests/`. */
interface Manifest {
  readonly site: string | null;
  readonly date: string;
  /** True where the ledger has accounted for the day: `account` lists what is present and missing. */
  readonly complete: boolean;
  /** 0 where no ledger has accounted for the day. */
  readonly revision: number;
  /** When the day was finalized, UTC; null where it was not. */
  readonly sealed_at: string | null;
  /** When this list of files was written, UTC. */
  readonly written_at: string;
  /** Account of the ledger, as in the event `day-sealed`; null without one. */
  readonly account: unknown;
  readonly tables: Tables;
  /** Earlier revisions, the newest first. */
  readonly before: readonly EarlierRevision[];
}

type Tables = Readonly<Record<string, { readonly rows: number; readonly files: readonly ListedFile[] }>>;

interface ListedFile {
  /** Key, relative to the root of the lake. */
  readonly name: string;
  readonly rows: number;
  readonly bytes: number;
  /** Hexadecimal. */
  readonly sha256: string;
}

interface EarlierRevision {
  readonly revision: number;
  readonly sealed_at: string;
  readonly rows: Readonly<Record<string, number>>;
}

interface Tools {
  readonly store: ObjectStore;
  readonly format: TableFormat;
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

/**
 * Compacts the files of a site's day that the ledger has accounted for, and lists them in a manifest. A repetition
 * changes only the time in the manifest, so it is safe after a crash.
 */
export async function finalizeDay(day: CompleteDay, tools: Tools): Promise<void> {
  const { clock, format, signal } = tools;
  for (const table of TABLES) {
    if (table.rowPolicy === "append") await format.compact(partitionOf(table, day.day, day.site), signal);
  }
  const now = isoUtc(clock.now());
  const last = await manifestAt(day, tools);
  const { account, revision } = day;
  const before = last === null ? [] : revisionsBefore(revision, last);
  await put(day, { complete: true, revision, sealed_at: now, account, before }, tools);
}

/**
 * Lists the files of a compacted day. A day that the ledger has accounted for keeps its account. If the ledger has
 * yet to account for it, no manifest is written, because readers of complete days wait for the manifest.
 */
export async function listUnaccountedDay(
  day: Pick<CompleteDay, "site" | "day">,
  tools: Tools & { readonly hasLedger: boolean },
): Promise<void> {
  const last = await manifestAt(day, tools);
  if (last !== null && last.revision > 0) {
    const { account, before, revision, sealed_at } = last;
    await put(day, { complete: true, revision, sealed_at, account, before }, tools);
    return;
  }
  if (tools.hasLedger || (await hasHistory(day, tools))) return;
  await put(day, { complete: false, revision: 0, sealed_at: null, account: null, before: [] }, tools);
}

async function hasHistory({ day, site }: Pick<CompleteDay, "site" | "day">, tools: Tools): Promise<boolean> {
  for (const table of [HISTORY_TABLE, TOTAL_TABLE]) {
    if ((await tools.format.filesOf(partitionOf(table, day, site), tools.signal)).length > 0) return true;
  }
  return false;
}

async function put(
  { day, site }: Pick<CompleteDay, "site" | "day">,
  about: Pick<Manifest, "complete" | "revision" | "sealed_at" | "account" | "before">,
  { clock, format, signal, store }: Tools,
): Promise<void> {
  const tables: Record<string, Tables[string]> = {};
  for (const table of TABLES) {
    if (!isDivided(table)) continue;
    const files = await filesIn(partitionOf(table, day, site), format, store.where, signal);
    if (files.length === 0) continue;
    tables[table.name] = { rows: files.reduce((sum, { rows }) => sum + rows, 0), files };
  }
  const { before, ...first } = about;
  const written_at = isoUtc(clock.now());
  const manifest: Manifest = { site, date: day, ...first, written_at, tables, before };
  await store.put(manifestOf(day, site), Buffer.from(`${JSON.stringify(manifest, null, 2)}\n`), signal);
}

async function filesIn(
  partition: Partition,
  format: TableFormat,
  where: string,
  signal: AbortSignal,
): Promise<ListedFile[]> {
  const files: ListedFile[] = [];
  for (const { key } of await format.filesOf(partition, signal)) {
    const bytes = await format.read(key, signal);
    if (bytes === null) continue;
    files.push({
      name: key,
      rows: rowsOf(bytes, `${where}/${key}`),
      bytes: bytes.length,
      sha256: createHash("sha256").update(bytes).digest("hex"),
    });
  }
  return files;
}

function revisionsBefore(revision: number, last: Manifest): readonly EarlierRevision[] {
  const { sealed_at, tables, written_at } = last;
  const rows = Object.fromEntries(Object.entries(tables).map(([name, table]) => [name, table.rows]));
  const known = [{ revision: last.revision, sealed_at: sealed_at ?? written_at, rows }, ...last.before];
  return known.filter((each) => each.revision > 0 && each.revision < revision);
}

/** Returns null where no readable manifest exists; the new one then starts without earlier revisions. */
async function manifestAt(
  { day, site }: Pick<CompleteDay, "site" | "day">,
  { signal, store }: Tools,
): Promise<Manifest | null> {
  const bytes = await store.get(manifestOf(day, site), signal);
  if (bytes === null) return null;
  try {
    const manifest = JSON.parse(Buffer.from(bytes).toString()) as Manifest;
    return Array.isArray(manifest.before) && typeof manifest.tables === "object" ? manifest : null;
  } catch {
    return null;
  }
}
