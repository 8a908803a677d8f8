import { hash } from "node:crypto";
import type { Clock } from "../../src/core/runtime/clock.ts";
import { isoUtc } from "../../src/core/values/iso-utc.ts";
import { HISTORY_TABLE, LAKE_TABLES, TOTAL_TABLE } from "../shared/lake/tables.ts";
import { buildManifestKey, dayPartition, hasDayPartitions, type LakePartition } from "./lake-paths.ts";
import type { ObjectStore } from "./object-store.ts";
import { readRowCount } from "./parquet-file.ts";
import type { CompleteDay, SiteDay } from "./sink-state.ts";
import type { LakeTableFormat } from "./table-format.ts";

/** Manifest of a day that is over, in `_manifests/`. Times are UTC. */
interface DayManifest {
  readonly site: string | null;
  readonly date: string;
  readonly complete: boolean;
  readonly revision: number;
  /** Time of finalization; null if the day was not finalized. */
  readonly sealed_at: string | null;
  readonly written_at: string;
  /** Counts of expected and missing history points, as in the event `day-sealed`. */
  readonly account: unknown;
  readonly tables: Readonly<Record<string, { readonly rows: number; readonly files: readonly ManifestFile[] }>>;
  readonly before: readonly {
    readonly revision: number;
    readonly sealed_at: string;
    readonly rows: Readonly<Record<string, number>>;
  }[];
}

interface ManifestFile {
  readonly name: string;
  readonly rows: number;
  readonly bytes: number;
  readonly sha256: string;
}

interface ManifestContext {
  readonly store: ObjectStore;
  readonly format: LakeTableFormat;
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

/** Compacts the files of a complete day and writes its manifest. Safe to repeat after a crash. */
export async function finalizeDay(day: CompleteDay, manifestContext: ManifestContext): Promise<void> {
  for (const table of LAKE_TABLES) {
    if (table.rowPolicy === "append")
      await manifestContext.format.mergeFiles(dayPartition(table, day.day, day.site), manifestContext.signal);
  }
  const sealed_at = isoUtc(manifestContext.clock.now());
  const previousManifest = await readDayManifest(day, manifestContext);
  const { account, revision } = day;
  const before = previousManifest === null ? [] : listEarlierRevisions(revision, previousManifest);
  await writeDayManifest(day, { complete: true, revision, sealed_at, account, before }, manifestContext);
}

/** Updates a manifest after a merge. Creates a manifest only for a day that no `day-sealed` event will report. */
export async function updateManifestAfterMerge(day: SiteDay, readsHistory: boolean, manifestContext: ManifestContext) {
  const previousManifest = await readDayManifest(day, manifestContext);
  if (previousManifest !== null && previousManifest.revision > 0) {
    await writeDayManifest(day, { ...previousManifest, complete: true }, manifestContext);
  } else if (!readsHistory && !(await hasHistoryFiles(day, manifestContext))) {
    const emptyRevision = { complete: false, revision: 0, sealed_at: null, account: null, before: [] };
    await writeDayManifest(day, emptyRevision, manifestContext);
  }
}

async function hasHistoryFiles({ day, site }: SiteDay, { format, signal }: ManifestContext): Promise<boolean> {
  for (const table of [HISTORY_TABLE, TOTAL_TABLE]) {
    if ((await format.listFiles(dayPartition(table, day, site), signal)).length > 0) return true;
  }
  return false;
}

async function writeDayManifest(
  { day, site }: SiteDay,
  revisionFields: Pick<DayManifest, "complete" | "revision" | "sealed_at" | "account" | "before">,
  manifestContext: ManifestContext,
): Promise<void> {
  const tables: Record<string, DayManifest["tables"][string]> = {};
  for (const table of LAKE_TABLES.filter(hasDayPartitions)) {
    const files = await listManifestFiles(dayPartition(table, day, site), manifestContext);
    if (files.length > 0) tables[table.name] = { rows: files.reduce((sum, { rows }) => sum + rows, 0), files };
  }
  const { account, before, complete, revision, sealed_at } = revisionFields;
  const written_at = isoUtc(manifestContext.clock.now());
  const manifest: DayManifest = { site, date: day, complete, revision, sealed_at, account, written_at, tables, before };
  const bytes = Buffer.from(`${JSON.stringify(manifest, null, 2)}\n`);
  await manifestContext.store.put(buildManifestKey(day, site), bytes, manifestContext.signal);
}

async function listManifestFiles(partition: LakePartition, { format, signal }: ManifestContext) {
  const files: ManifestFile[] = [];
  for (const { key } of await format.listFiles(partition, signal)) {
    const bytes = await format.readFile(key, signal);
    if (bytes === null) continue;
    const rows = readRowCount(bytes, `${format.location}/${key}`);
    const sha256 = hash("sha256", bytes);
    files.push({ name: key, rows, bytes: bytes.length, sha256 });
  }
  return files;
}

function listEarlierRevisions(revision: number, previous: DayManifest): DayManifest["before"] {
  const rows = Object.fromEntries(Object.entries(previous.tables).map(([name, table]) => [name, table.rows]));
  const newestRevision = { revision: previous.revision, sealed_at: previous.sealed_at ?? previous.written_at, rows };
  return [newestRevision, ...previous.before].filter(
    (earlierRevision) => earlierRevision.revision > 0 && earlierRevision.revision < revision,
  );
}

/** Reads the manifest of a day. Returns null if it is missing or unreadable; earlier revisions are then lost. */
async function readDayManifest({ day, site }: SiteDay, { signal, store }: ManifestContext) {
  const bytes = await store.get(buildManifestKey(day, site), signal);
  if (bytes === null) return null;
  try {
    const manifest = JSON.parse(Buffer.from(bytes).toString()) as DayManifest;
    return Array.isArray(manifest.before) && typeof manifest.tables === "object" ? manifest : null;
  } catch {
    return null;
  }
}
