/** The last lines of a log, kept in memory so that whoever has trouble can look at them: `plenum doctor`. */
export interface RecentLines {
  add(line: string): void;
  /** The oldest first. */
  lines(): readonly string[];
}

/** So many lines are kept. */
const LINES = 300;
/** Of a line so many characters, so that all of them take 600 kB at most. */
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
