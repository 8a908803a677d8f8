import { createHash } from "node:crypto";
import { type Clock, isoUtc } from "../../src/clock.ts";
import { TABLES } from "../../src/lake/tables.ts";
import type { ObjectStore } from "./object-store.ts";
import { rowsOf } from "./parquet-file.ts";
import { isDivided, manifestOf, type Partition, partitionOf } from "./paths.ts";
import type { Seal } from "./sealed-day.ts";
import type { TableFormat } from "./table-format.ts";

/** What lies in the lake of a sealed day, and why that is all. JSON in `_manifests/`. */
interface Manifest {
  readonly site: string | null;
  readonly date: string;
  readonly revision: number;
  /** When it was written, UTC. */
  readonly sealed_at: string;
  /** The ledger's account, as the event `day-sealed` has it. */
  readonly account: unknown;
  readonly tables: Readonly<Record<string, { readonly rows: number; readonly files: readonly ListedFile[] }>>;
  /** The revisions before this one, the newest first. */
  readonly before: readonly Before[];
}

interface ListedFile {
  /** From the root of the lake. */
  readonly name: string;
  readonly rows: number;
  readonly bytes: number;
  /** Hexadecimal. */
  readonly sha256: string;
}

interface Before {
  readonly revision: number;
  readonly sealed_at: string;
  /** By table. */
  readonly rows: Readonly<Record<string, number>>;
}

/**
 * Compacts the files of a site's day, and says in a manifest what they are. Done again it changes nothing but the time in
 * the manifest, so a crash needs no care.
 */
export async function sealDay(
  seal: Seal,
  tools: {
    readonly store: ObjectStore;
    readonly format: TableFormat;
    readonly clock: Clock;
    readonly signal: AbortSignal;
  },
): Promise<void> {
  const { clock, format, signal, store } = tools;
  const tables: Record<string, Manifest["tables"][string]> = {};
  for (const table of TABLES) {
    if (!isDivided(table)) continue;
    const partition = partitionOf(table, seal.day, seal.site);
    if (table.keeping === "append") await format.compact(partition, signal);
    const files = await filesIn(partition, format, store.where, signal);
    if (files.length === 0) continue;
    tables[table.name] = { rows: files.reduce((sum, { rows }) => sum + rows, 0), files };
  }
  const key = manifestOf(seal.day, seal.site);
  const manifest: Manifest = {
    site: seal.site,
    date: seal.day,
    revision: seal.revision,
    sealed_at: isoUtc(clock.now()),
    account: seal.account,
    tables,
    before: await revisionsBefore(seal.revision, key, store, signal),
  };
  await store.put(key, Buffer.from(`${JSON.stringify(manifest, null, 2)}\n`), signal);
}

async function filesIn(
  partition: Partition,
  format: TableFormat,
  where: string,
  signal: AbortSignal,
): Promise<ListedFile[]> {
  const files: ListedFile[] = [];
  for (const key of await format.filesOf(partition, signal)) {
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

async function revisionsBefore(
  revision: number,
  key: string,
  store: ObjectStore,
  signal: AbortSignal,
): Promise<readonly Before[]> {
  const last = await manifestAt(key, store, signal);
  if (last === null) return [];
  const { sealed_at, tables } = last;
  const rows = Object.fromEntries(Object.entries(tables).map(([name, table]) => [name, table.rows]));
  const known = [{ revision: last.revision, sealed_at, rows }, ...last.before];
  return known.filter((each) => each.revision < revision);
}

/** Null where there is none, or it is none of ours: then this one is the first. */
async function manifestAt(key: string, store: ObjectStore, signal: AbortSignal): Promise<Manifest | null> {
  const bytes = await store.get(key, signal);
  if (bytes === null) return null;
  try {
    const manifest = JSON.parse(Buffer.from(bytes).toString()) as Manifest;
    return Array.isArray(manifest.before) && typeof manifest.tables === "object" ? manifest : null;
  } catch {
    return null;
  }
}
