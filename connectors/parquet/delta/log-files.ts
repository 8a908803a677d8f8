/**
 * Names of the files in `_delta_log/`, by which a log is found. Source: PROTOCOL.md, "Delta Log Entries", "Checkpoints".
 *
 *   00000000000000000012.json                                     what version 12 changed
 *   00000000000000000010.checkpoint.parquet                       all that counts at version 10
 *   00000000000000000010.checkpoint.0000000001.0000000003.parquet the same in three parts, which nobody should write
 *   00000000000000000010.checkpoint.80a083e8-….parquet            the same in the second form, which needs reader version 3
 *   _last_checkpoint                                              where to begin to read
 */

export const LAST_CHECKPOINT = "_last_checkpoint";

export function padded(version: number): string {
  return String(version).padStart(20, "0");
}

export function commitName(version: number): string {
  return `${padded(version)}.json`;
}

export function checkpointName(version: number): string {
  return `${padded(version)}.checkpoint.parquet`;
}

export interface Listing {
  readonly commits: ReadonlySet<number>;
  /** Names of the files that make up a checkpoint, by its version; whole ones only. */
  readonly checkpoints: ReadonlyMap<number, readonly string[]>;
  /** There is a checkpoint in a form that we do not read. */
  readonly hasForeign: boolean;
}

const COMMIT = /^(\d{20})\.json$/;
const CLASSIC = /^(\d{20})\.checkpoint\.parquet$/;
const PART = /^(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet$/;
const FOREIGN = /^\d{20}\.checkpoint\.[0-9a-f-]{36}\.(?:json|parquet)$/i;

/** What a listing of the folder says; names that mean nothing to us are passed over. */
export function listingOf(names: readonly string[]): Listing {
  const commits = new Set<number>();
  const checkpoints = new Map<number, readonly string[]>();
  const parts = new Map<string, string[]>();
  for (const name of names) {
    const commit = COMMIT.exec(name);
    if (commit !== null) commits.add(Number(commit[1]));
    const [, version, , count] = PART.exec(name) ?? [];
    if (version !== undefined && count !== undefined) {
      const together = parts.get(`${version}.${count}`) ?? [];
      together.push(name);
      parts.set(`${version}.${count}`, together);
      if (together.length === Number(count)) checkpoints.set(Number(version), together);
    }
  }
  // Of two forms of the same checkpoint the classic one, which is one file.
  for (const name of names) {
    const classic = CLASSIC.exec(name);
    if (classic !== null) checkpoints.set(Number(classic[1]), [name]);
  }
  return { commits, checkpoints, hasForeign: names.some((name) => FOREIGN.test(name)) };
}

/** The highest of some versions; -1 where there are none. */
export function highest(versions: Iterable<number>): number {
  let most = -1;
  for (const version of versions) most = Math.max(most, version);
  return most;
}
