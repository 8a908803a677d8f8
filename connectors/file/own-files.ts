/**
 * Names of the files, e.g. `events-2026-11-21-001.jsonl`: the day (UTC) of the writing, and a number within it.
 * Only names of exactly this form are ever opened, counted or removed; with compression also those with `.gz` behind it.
 */
export interface OwnFile {
  readonly fileName: string;
  readonly day: string;
  readonly number: number;
  readonly isCompressed: boolean;
}

export interface StoredFile extends OwnFile {
  readonly bytes: number;
}

export function ownFile(name: string, day: string, number: number): OwnFile {
  const fileName = `${name}-${day}-${String(number).padStart(3, "0")}.jsonl`;
  return { fileName, day, number, isCompressed: false };
}

/** Null when the file is none of ours. */
export function parseOwnFile(name: string, fileName: string, withCompressed = false): OwnFile | null {
  const match = /^([a-z0-9_]+)-(\d{4}-\d{2}-\d{2})-(\d{3,9})\.jsonl(\.gz)?$/.exec(fileName);
  if (match === null || match[1] !== name || match[2] === undefined) return null;
  const isCompressed = match[4] !== undefined;
  if (isCompressed && !withCompressed) return null;
  return { fileName, day: match[2], number: Number(match[3]), isCompressed };
}

/** Oldest first. */
export function byAge(a: OwnFile, b: OwnFile): number {
  return a.day === b.day ? a.number - b.number : a.day < b.day ? -1 : 1;
}

/** The file after `latest`: the next number of that day, or the first of a new one. */
export function nextFile(name: string, day: string, latest: OwnFile | undefined): OwnFile {
  // A clock set back must not make a new file sort before an old one.
  const onDay = latest !== undefined && latest.day > day ? latest.day : day;
  return ownFile(name, onDay, latest?.day === onDay ? latest.number + 1 : 1);
}

export interface Retention {
  readonly keepFiles: number;
  readonly maxTotalBytes: number;
  /** Space that is kept free for the file that is being written. */
  readonly reserveBytes: number;
}

/** Which of the closed files have to go, oldest first, while one more is being written. */
export function tooMany(closed: readonly StoredFile[], retention: Retention): readonly StoredFile[] {
  const files = closed.toSorted(byAge);
  let total = files.reduce((sum, { bytes }) => sum + bytes, retention.reserveBytes);
  let count = files.length + 1;
  return files.filter((file) => {
    if (count <= retention.keepFiles && total <= retention.maxTotalBytes) return false;
    count -= 1;
    total -= file.bytes;
    return true;
  });
}
