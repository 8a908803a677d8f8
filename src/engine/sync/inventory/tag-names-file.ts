import type { TagNames } from "../../../core/model/building.ts";

const NAMES_FILE_COLUMNS = ["tag_id", "path", "alias", "unit_code"] as const;
const NAMES_FILE_HEADER = NAMES_FILE_COLUMNS.join(",");
/** Maximum length of a name in characters: InfluxDB cuts longer texts, and other programs reject them. */
const MAX_NAME_LENGTH = 200;

export interface NamesFile {
  /** A tag whose other cells are empty has an entry without names. */
  readonly entries: ReadonlyMap<string, TagNames>;
  /** Mistakes of the file, one sentence each. The names of a file with mistakes must not be used. */
  readonly problems: readonly string[];
  /** Entries with an unknown tag, one sentence each. Such an entry has no effect until the tag is listed. */
  readonly unknownTags: readonly string[];
}

interface NamesFileRow {
  readonly line: number;
  readonly id: string;
  readonly names: TagNames;
}

export type KnownTagIds = Pick<ReadonlySet<string>, "has" | "size">;

/** Parses and checks a names file. `knownIds`: ids of the known tags; empty before the first list of tags. */
export function parseNamesFile(content: Uint8Array, knownIds: KnownTagIds): NamesFile {
  const problems: string[] = [];
  const rowById = new Map<string, NamesFileRow>();
  const [header = "", ...lines] = decodeUtf8(content)?.split(/\r?\n/) ?? [];
  if (header !== NAMES_FILE_HEADER)
    problems.push(`Line 1: The header must be ${NAMES_FILE_HEADER}, in UTF-8 and separated by commas.`);
  for (const [index, text] of problems.length > 0 ? [] : lines.entries()) {
    if (text === "") continue;
    const line = index + 2;
    const row = parseNamesRow(text, line);
    const earlierRow = typeof row === "string" ? undefined : rowById.get(row.id);
    if (typeof row === "string") problems.push(`Line ${line}: ${row}`);
    else if (earlierRow === undefined) rowById.set(row.id, row);
    else problems.push(`Line ${line}: The tag ${row.id} is already in line ${earlierRow.line}.`);
  }
  const rows = [...rowById.values()];
  const lineByPath = new Map<string, number>();
  for (const { line, id, names } of rows) {
    const { alias, path } = names;
    if (alias !== undefined && alias !== id && (knownIds.has(alias) || rowById.has(alias)))
      problems.push(`Line ${line}: The alias ${alias} is the id of another tag.`);
    if (path === undefined) continue;
    // Some programs ignore the case of letters in paths.
    const comparedPath = path.toLowerCase();
    const earlierLine = lineByPath.get(comparedPath);
    if (earlierLine === undefined) lineByPath.set(comparedPath, line);
    else problems.push(`Line ${line}: The path ${path} is already in line ${earlierLine}.`);
  }
  const unknownRows = knownIds.size === 0 ? [] : rows.filter(({ id }) => !knownIds.has(id));
  return {
    entries: new Map(rows.map(({ id, names }) => [id, names])),
    problems,
    unknownTags: unknownRows.map(({ line, id }) => `Line ${line}: The source has no tag ${id}.`),
  };
}

function decodeUtf8(content: Uint8Array): string | null {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(content);
  } catch {
    return null;
  }
}

const CSV_CELL = /(?:"((?:[^"]|"")*)"|([^",]*)),/gy;

/** Returns null for a line with a misplaced quotation mark. */
function splitCsvLine(line: string): readonly string[] | null {
  const cells = [...`${line},`.matchAll(CSV_CELL)];
  if (cells.reduce((sum, [text]) => sum + text.length, 0) !== line.length + 1) return null;
  return cells.map(([, quoted, plain = ""]) => quoted?.replaceAll('""', '"') ?? plain);
}

function parseNamesRow(text: string, line: number): NamesFileRow | string {
  const cells = splitCsvLine(text);
  if (cells === null) return "A quotation mark is in the wrong place.";
  if (cells.length > NAMES_FILE_COLUMNS.length)
    return `There are ${cells.length} cells, but only ${NAMES_FILE_COLUMNS.length} columns.`;
  for (const [index, column] of NAMES_FILE_COLUMNS.entries()) {
    const problem = findCellProblem(column, cells[index] ?? "");
    if (problem !== null) return `The cell ${column} ${problem}.`;
  }
  const [id = "", path = "", alias = "", unitCode = ""] = cells.map((cell) => cell.trim());
  if (id === "") return "The cell tag_id is empty.";
  const names = { ...(alias && { alias }), ...(path && { path }), ...(unitCode && { unitCode }) };
  return { line, id, names };
}

function findCellProblem(column: (typeof NAMES_FILE_COLUMNS)[number], cell: string): string | null {
  if (/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u.test(cell)) return "contains a control character or an invisible character";
  if (cell !== "" && cell.trim() === "") return "contains only spaces";
  if (cell.length > MAX_NAME_LENGTH) return `has ${cell.length} characters, but at most ${MAX_NAME_LENGTH} are allowed`;
  if (column !== "path" || cell === "") return null;
  if (/[+#]/.test(cell)) return "contains + or #, which MQTT reserves";
  return cell.split("/").some((level) => level.trim() === "") ? "has an empty level" : null;
}

export function formatNamesFile(entries: ReadonlyMap<string, TagNames>): string {
  const quote = (cell: string) => (/[",]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
  const lines = [...entries].map(([id, { path = "", alias = "", unitCode = "" }]) =>
    [id, path, alias, unitCode].map(quote).join(","),
  );
  return [NAMES_FILE_HEADER, ...lines, ""].join("\n");
}
