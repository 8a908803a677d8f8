import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { SeededRandom } from "../../commands/seeded-random.ts";
import type { Naming, Step } from "./record.ts";

/** A disk writes whole sectors; a longer write can be torn between two of them. */
const SECTOR = 512;

type Change = Extract<Step, { readonly kind: "write" | "truncate" }>;

interface Inode {
  content: Buffer;
  /** How long the process sees it. */
  size: number;
  /** Not synced yet: at a power cut each may be there, or not, or in part. */
  pending: Change[];
}

interface Named {
  readonly naming: Naming;
  readonly inode: Inode;
}

/**
 * A disk that honours a sync and nothing else. Writes that were not synced happen in any choice and may be torn;
 * names that were made or removed stay in their order, and for sure once the folder is synced.
 */
export function createDisk() {
  const synced = new Map<string, Inode>();
  /** Content that the process sees. */
  const seen = new Map<string, Inode>();
  let unsynced: Named[] = [];

  function rename(names: Map<string, Inode>, { naming, inode }: Named): void {
    if (naming.kind !== "create") names.delete(naming.file);
    if (naming.kind !== "remove") names.set(naming.kind === "rename" ? naming.to : naming.file, inode);
  }

  function name(naming: Naming): void {
    const before = seen.get(naming.file);
    // Opened with O_CREAT although it exists.
    if (naming.kind === "create" && before !== undefined) return;
    const named = { naming, inode: before ?? { content: Buffer.alloc(0), size: 0, pending: [] } };
    rename(seen, named);
    unsynced.push(named);
  }

  return {
    take(step: Step): void {
      if (step.kind === "said") return;
      if (step.kind === "create" || step.kind === "remove" || step.kind === "rename") {
        name(step);
        return;
      }
      if (step.kind === "sync-folder") {
        for (const named of unsynced) rename(synced, named);
        unsynced = [];
        return;
      }
      const inode = seen.get(step.file);
      if (inode === undefined) throw new Error(`${step.kind} of ${step.file}, which is not there`);
      if (step.kind !== "sync") {
        const { file } = step;
        const change =
          step.kind === "append" ? { kind: "write" as const, file, at: inode.size, bytes: step.bytes } : step;
        inode.size = change.kind === "truncate" ? change.size : Math.max(inode.size, change.at + change.bytes.length);
        inode.pending.push(change);
        return;
      }
      inode.content = inode.pending.reduce(applied, inode.content);
      inode.pending = [];
    },

    /** Writes a possible content after a power cut at this moment into a folder. */
    cut(folder: string, random: SeededRandom): void {
      const names = new Map(synced);
      for (const named of unsynced.slice(0, random.below(unsynced.length + 1))) rename(names, named);
      // Whole, nothing or by chance: the extremes are where orders matter.
      const share = random.pick([0, 0.5, 0.9, 1]);
      for (const [file, { content, pending }] of names) {
        const found = pending.filter(() => random.chance(share)).map((change) => torn(change, random));
        writeFileSync(join(folder, file), found.reduce(applied, content), { mode: 0o600 });
      }
    },
  };
}

function torn(change: Change, random: SeededRandom): Change {
  if (change.kind === "truncate" || random.chance(0.7)) return change;
  const sectors = Math.ceil(change.bytes.length / SECTOR);
  const from = random.chance(0.5) ? 0 : random.below(sectors);
  const bytes = change.bytes.subarray(from * SECTOR, (from + 1 + random.below(sectors)) * SECTOR);
  return { ...change, at: change.at + from * SECTOR, bytes };
}

function applied(content: Buffer, change: Change): Buffer {
  const end = change.kind === "write" ? change.at + change.bytes.length : change.size;
  const size = change.kind === "write" ? Math.max(content.length, end) : end;
  const next = Buffer.alloc(size);
  content.copy(next);
  if (change.kind === "write") change.bytes.copy(next, change.at);
  return next;
}
