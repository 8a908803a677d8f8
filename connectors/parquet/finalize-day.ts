import { createHash } from "node:crypto";
import type { Clock } from "../../src/core/runtime/clock.ts";
import { isoUtc } from "../../src/core/values/iso-utc.ts";
import { HISTORY_TABLE, TABLES, TOTAL_TABLE } from "../shared/lake/tables.ts";
import type { ObjectStore } from "./object-store.ts";
import { rowCountOf } from "./parquet-file.ts";
import { isDivided, manifestKeyOf, type Partition, partitionOf } from "./paths.ts";
import type { CompleteDay, SiteDay } from "./sink-state.ts";
import type { TableFormat } from "./table-format.ts";

/** Manifest of a day that is over, in `_manifests/`. Times are UTC. */
interface Manifest {
  readonly site: string | null;
  readonly date: string;
  /** True where the ledger has accounted for the day. */
  readonly complete: boolean;
  /** 0 without an account. */
  readonly revision: number;
  /** Null where the day was not finalized. */
  readonly sealed_at: string | null;
  readonly written_at: string;
  /** Account of the ledger, as in the event `day-sealed`. */
  readonly account: unknown;
  readonly tables: Readonly<Record<string, { readonly rows: number; readonly files: readonly ListedFile[] }>>;
  /** Earlier revisions, newest first, with row counts by table. */
  readonly before: readonly {
    readonly revision: number;
    readonly sealed_at: string;
    readonly rows: Readonly<Record<string, number>>;
  }[];
}

interface ListedFile {
  /** Key in the lake. */
  readonly name: string;
  readonly rows: number;
  readonly bytes: number;
  readonly sha256: string;
}

interface DayContext {
  readonly store: ObjectStore;
  readonly format: TableFormat;
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

/** Compacts and lists the files of a day that the ledger has accounted for. A repetition after a crash is safe. */
export async function finalizeDay(day: CompleteDay, tools: DayContext): Promise<void> {
  for (const table of TABLES) {
    if (table.rowPolicy === "append") {
      await tools.format.compact(partitionOf(table, day.day, day.site), tools.signal);
    }
  }
  const sealed_at = isoUtc(tools.clock.now());
  const last = await readManifest(day, tools);
  const { account, revision } = day;
  const before = last === null ? [] : earlierRevisions(revision, last);
  await writeManifest(day, { complete: true, revision, sealed_at, account, before }, tools);
}

/** Lists the files of a compacted day. Readers wait for the manifest of a day that the ledger will account for. */
export async function listUnaccountedDay(day: SiteDay, hasLedger: boolean, tools: DayContext): Promise<void> {
  const last = await readManifest(day, tools);
  if (last !== null && last.revision > 0) {
    await writeManifest(day, { ...last, complete: true }, tools);
  } else if (!hasLedger && !(await hasHistory(day, tools))) {
    await writeManifest(day, { complete: false, revision: 0, sealed_at: null, account: null, before: [] }, tools);
  }
}

async function hasHistory({ day, site }: SiteDay, { format, signal }: DayContext): Promise<boolean> {
  for (const table of [HISTORY_TABLE, TOTAL_TABLE]) {
    if ((await format.filesOf(partitionOf(table, day, site), signal)).length > 0) return true;
  }
  return false;
}

async function writeManifest(
  { day, site }: SiteDay,
  about: Pick<Manifest, "complete" | "revision" | "sealed_at" | "account" | "before">,
  tools: DayContext,
): Promise<void> {
  const tables: Record<string, Manifest["tables"][string]> = {};
  for (const table of TABLES.filter(isDivided)) {
    const files = await listFiles(partitionOf(table, day, site), tools);
    if (files.length > 0) tables[table.name] = { rows: files.reduce((sum, { rows }) => sum + rows, 0), files };
  }
  const { account, before, complete, revision, sealed_at } = about;
  const written_at = isoUtc(tools.clock.now());
  const manifest: Manifest = { site, date: day, complete, revision, sealed_at, account, written_at, tables, before };
  const bytes = Buffer.from(`${JSON.stringify(manifest, null, 2)}\n`);
  await tools.store.put(manifestKeyOf(day, site), bytes, tools.signal);
}

async function listFiles(partition: Partition, { format, signal }: DayContext): Promise<ListedFile[]> {
  const files: ListedFile[] = [];
  for (const { key } of await format.filesOf(partition, signal)) {
    const bytes = await format.read(key, signal);
    if (bytes === null) continue;
    const rows = rowCountOf(bytes, `${format.where}/${key}`);
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    files.push({ name: key, rows, bytes: bytes.length, sha256 });
  }
  return files;
}

function earlierRevisions(revision: number, last: Manifest): Manifest["before"] {
  const rows = Object.fromEntries(Object.entries(last.tables).map(([name, table]) => [name, table.rows]));
  const newest = { revision: last.revision, sealed_at: last.sealed_at ?? last.written_at, rows };
  return [newest, ...last.before].filter((each) => each.revision > 0 && each.revision < revision);
}

/** Returns null where no readable manifest exists; the new one then starts without earlier revisions. */
async function readManifest({ day, site }: SiteDay, { signal, store }: DayContext): Promise<Manifest | null> {
  const bytes = await store.get(manifestKeyOf(day, site), signal);
  if (bytes === null) return null;
  try {
    const manifest = JSON.parse(Buffer.from(bytes).toString()) as Manifest;
    return Array.isArray(manifest.before) && typeof manifest.tables === "object" ? manifest : null;
  } catch {
    return null;
  }
}
