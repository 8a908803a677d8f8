/** Last lines of the log, kept in memory for `plenum doctor`. */
export interface RecentLines {
  add(line: string): void;
  /** Oldest first. */
  lines(): readonly string[];
}

/** Number of lines. */
const LINES = 300;
/** Most characters of a line; all lines together take at most 600 kB. */
const LENGTH = 2_000;

export function createRecentLines(): RecentLines {
  const recent: string[] = [];
  let next = 0;
  return {
    add(line) {
      const text = line.trimEnd();
      recent[next] = text.length > LENGTH ? `${text.slice(0, LENGTH)}…` : text;
      next = (next + 1) % LINES;
    },
    lines: () => [...recent.slice(next), ...recent.slice(0, next)],
  };
}
