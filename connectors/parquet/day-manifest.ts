import { createHash } from "node:crypto";
import type { Clock } from "../../src/core/runtime/clock.ts";
import { isoUtc } from "../../src/core/values/iso-utc.ts";
import { HISTORY_TABLE, TABLES, TOTAL_TABLE } from "../shared/lake/tables.ts";
import { hasPartitions, type LakePartition, manifestKey, toPartition } from "./lake-paths.ts";
import type { ObjectStore } from "./object-store.ts";
import { readRowCount } from "./parquet-file.ts";
import type { CompleteDay, SiteDay } from "./sink-state.ts";
import type { TableFormat } from "./table-format.ts";

/** Manifest of a day that is over, in `_manifests/`. Times are UTC. */
interface DayManifest {
  readonly site: string | null;
  readonly date: string;
  readonly complete: boolean;
  readonly revision: number;
  /** Time of finalization; null if the day was not finalized. */
  readonly sealed_at: string | null;
  readonly written_at: string;
  /** Account of the ledger, as in the event `day-sealed`. */
  readonly account: unknown;
  readonly tables: Readonly<Record<string, { readonly rows: number; readonly files: readonly ListedFile[] }>>;
  readonly before: readonly {
    readonly revision: number;
    readonly sealed_at: string;
    readonly rows: Readonly<Record<string, number>>;
  }[];
}

interface ListedFile {
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

/** Compacts and lists the files of a day that the ledger has accounted for. Safe to repeat after a crash. */
export async function finalizeDay(day: CompleteDay, tools: DayContext): Promise<void> {
  for (const table of TABLES) {
    if (table.rowPolicy === "append") {
      await tools.format.compact(toPartition(table, day.day, day.site), tools.signal);
    }
  }
  const sealed_at = isoUtc(tools.clock.now());
  const previousManifest = await readManifest(day, tools);
  const { account, revision } = day;
  const previousRevisions = previousManifest === null ? [] : earlierRevisions(revision, previousManifest);
  await writeManifest(day, { complete: true, revision, sealed_at, account, before: previousRevisions }, tools);
}

/** Writes the manifest of a compacted day without an account, unless the ledger will account for the day. */
export async function writeUnaccountedManifest(day: SiteDay, hasLedger: boolean, tools: DayContext): Promise<void> {
  const previousManifest = await readManifest(day, tools);
  if (previousManifest !== null && previousManifest.revision > 0) {
    await writeManifest(day, { ...previousManifest, complete: true }, tools);
  } else if (!hasLedger && !(await hasHistory(day, tools))) {
    await writeManifest(day, { complete: false, revision: 0, sealed_at: null, account: null, before: [] }, tools);
  }
}

async function hasHistory({ day, site }: SiteDay, { format, signal }: DayContext): Promise<boolean> {
  for (const table of [HISTORY_TABLE, TOTAL_TABLE]) {
    if ((await format.filesOf(toPartition(table, day, site), signal)).length > 0) return true;
  }
  return false;
}

async function writeManifest(
  { day, site }: SiteDay,
  accountFields: Pick<DayManifest, "complete" | "revision" | "sealed_at" | "account" | "before">,
  tools: DayContext,
): Promise<void> {
  const tables: Record<string, DayManifest["tables"][string]> = {};
  for (const table of TABLES.filter(hasPartitions)) {
    const files = await listFiles(toPartition(table, day, site), tools);
    if (files.length > 0) tables[table.name] = { rows: files.reduce((sum, { rows }) => sum + rows, 0), files };
  }
  const { account, before, complete, revision, sealed_at } = accountFields;
  const written_at = isoUtc(tools.clock.now());
  const manifest: DayManifest = { site, date: day, complete, revision, sealed_at, account, written_at, tables, before };
  const bytes = Buffer.from(`${JSON.stringify(manifest, null, 2)}\n`);
  await tools.store.put(manifestKey(day, site), bytes, tools.signal);
}

async function listFiles(partition: LakePartition, { format, signal }: DayContext): Promise<ListedFile[]> {
  const files: ListedFile[] = [];
  for (const { key } of await format.filesOf(partition, signal)) {
    const bytes = await format.read(key, signal);
    if (bytes === null) continue;
    const rows = readRowCount(bytes, `${format.where}/${key}`);
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    files.push({ name: key, rows, bytes: bytes.length, sha256 });
  }
  return files;
}

function earlierRevisions(revision: number, previous: DayManifest): DayManifest["before"] {
  const rows = Object.fromEntries(Object.entries(previous.tables).map(([name, table]) => [name, table.rows]));
  const newestRevision = { revision: previous.revision, sealed_at: previous.sealed_at ?? previous.written_at, rows };
  return [newestRevision, ...previous.before].filter((each) => each.revision > 0 && each.revision < revision);
}

/** Returns null without a readable manifest; the new manifest then has no earlier revisions. */
async function readManifest({ day, site }: SiteDay, { signal, store }: DayContext): Promise<DayManifest | null> {
  const bytes = await store.get(manifestKey(day, site), signal);
  if (bytes === null) return null;
  try {
    const manifest = JSON.parse(Buffer.from(bytes).toString()) as DayManifest;
    return Array.isArray(manifest.before) && typeof manifest.tables === "object" ? manifest : null;
  } catch {
    return null;
  }
}
