/**
 * The table of rooms in src/README.md, as a program reads it. A line is
 * `| Room | One sentence | May import | Packages |`, and its cells are written so that people can read them too:
 *
 * - Room: what belongs to it, in backticks, from `src/` on and without `.ts`. `source/` is the files of that folder,
 *   not those of the folders in it; `*` is any letters but a slash; `<name>` is the same, and each name is a room of
 *   its own. Words before a colon are the name of the row: others may import `base` by it.
 * - May import: what is in backticks, in the same spelling, and the names of rows, with commas between; or "nothing".
 *   A room may always import itself.
 * - Packages: what it may import that is not ours. `node:*` is all that Node brings along but the database.
 *
 * What stands in parentheses is the reason, for people. Where two rows fit a file the longer pattern counts.
 */
export interface Room {
  /** The first cell as it is written: what a sentence about a violation says. */
  readonly title: string;
  readonly name: string | null;
  readonly patterns: readonly string[];
  /** Patterns and names of rows. */
  readonly mayImport: readonly string[];
  readonly packages: readonly string[];
}

const HEADING = "| Room | One sentence | May import | Packages |";

export function roomsOf(markdown: string): readonly Room[] {
  const lines = markdown.split("\n");
  const start = lines.indexOf(HEADING);
  if (start === -1) throw new Error(`There is no table with the heading "${HEADING}".`);
  const end = lines.findIndex((line, index) => index > start && !line.startsWith("|"));
  const rooms = lines.slice(start + 2, end === -1 ? lines.length : end).map(roomOfLine);
  const names = new Set(rooms.map(({ name }) => name));
  for (const { title, mayImport } of rooms) {
    for (const item of mayImport) {
      if (!isPattern(item) && !names.has(item)) throw new Error(`${title}: no row is named "${item}".`);
    }
  }
  return rooms;
}

function roomOfLine(line: string): Room {
  const [room, sentence, mayImport, packages, ...others] = line
    .split("|")
    .slice(1, -1)
    .map((cell) => cell.trim());
  if (room === undefined || sentence === undefined || mayImport === undefined || packages === undefined)
    throw new Error(`A row has too few cells: ${line}`);
  if (others.length > 0) throw new Error(`A row has too many cells: ${line}`);
  const named = /^([a-z ]+): /.exec(room);
  const patterns = inBackticks(room);
  if (patterns.length === 0) throw new Error(`A row names no files: ${line}`);
  return {
    title: room,
    name: named?.[1] ?? null,
    patterns: patterns.map(pathOf),
    mayImport: items(mayImport).map((item) => (item.startsWith("`") ? pathOf(item.slice(1, -1)) : item)),
    packages: items(packages).map((item) => item.replaceAll("`", "")),
  };
}

function items(cell: string): readonly string[] {
  const list = cell
    .replaceAll(/\([^)]*\)/g, "")
    .split(",")
    .map((item) => item.trim())
    .filter((item) => item !== "" && item !== "nothing");
  for (const item of list) {
    if (!/^(`[^`]+`|[a-z ]+)$/.test(item))
      throw new Error(`Not understood in the table of rooms: "${item}".`);
  }
  return list;
}

function inBackticks(cell: string): readonly string[] {
  return [...cell.matchAll(/`([^`]+)`/g)].map((match) => match[1] ?? "");
}

function pathOf(spelling: string): string {
  return spelling.startsWith("../") ? spelling.slice(3) : `src/${spelling}`;
}

export function isPattern(item: string): boolean {
  return item.includes("/");
}

/** What of the pattern a file fits: its own part of the room where the pattern has a `<name>`; null if it does not. */
export function ownPart(pattern: string, file: string): string | null {
  const whole = pattern.endsWith("/") ? `${pattern}*` : pattern;
  const source = whole
    .split(/(\*|<name>)/)
    .map((part) => (part === "*" ? "[^/]*" : part === "<name>" ? "([^/]+)" : RegExp.escape(part)))
    .join("");
  const found = new RegExp(`^${source}$`).exec(file.replace(/\.(ts|mjs)$/, ""));
  return found === null ? null : (found[1] ?? "");
}
