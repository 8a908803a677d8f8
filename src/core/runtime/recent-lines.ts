/** Last lines of the log, kept in memory for `plenum doctor`. */
export interface RecentLines {
  add(line: string): void;
  /** The oldest first. */
  lines(): readonly string[];
}

/** So many lines are kept. */
const LINES = 300;
/** Most characters of a line; all lines together take at most 600 kB. */
const LENGTH = 2_000;

export function createRecentLines(): RecentLines {
  const kept: string[] = [];
  let next = 0;
  return {
    add(line) {
      const text = line.trimEnd();
      kept[next] = text.length > LENGTH ? `${text.slice(0, LENGTH)}…` : text;
      next = (next + 1) % LINES;
    },
    lines: () => [...kept.slice(next), ...kept.slice(0, next)],
  };
}
