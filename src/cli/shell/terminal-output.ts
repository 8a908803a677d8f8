import { styleText } from "node:util";
import { printableLine, toPrintableJson } from "../../core/values/printable-text.ts";

/**
 * Output of a command: data goes to standard output, messages to standard error. Lines are sanitized, so that names
 * of the service cannot control the terminal. UTC times become local times with an age, but not in JSON or with `--utc`.
 */
export interface Terminal {
  readonly json: boolean;
  /** Prints a table, or a JSON array with `--json`. */
  printRows<T>(rows: readonly T[], columns: TableColumns<T>): void;
  print(value: unknown, lines: readonly string[]): void;
  /** Prints lines for another program, such as a schema or a script. */
  printText(lines: readonly string[]): void;
  info(...lines: readonly string[]): void;
  progress<T>(activity: string, work: (update: (progressText: string) => void) => Promise<T>): Promise<T>;
}

/** Columns of a table by title: a field of the row, or a function of the row. */
export type TableColumns<T> = Readonly<
  Record<string, (keyof T & string) | ((row: T) => string | number | boolean | null)>
>;

export interface TerminalStreams {
  readonly out: NodeJS.WritableStream & { readonly isTTY?: boolean };
  readonly err: NodeJS.WritableStream & { readonly isTTY?: boolean };
}

const PROGRESS_DELAY_MS = 2_000;

export function createTerminal(options: {
  readonly json: boolean;
  readonly utc?: boolean;
  readonly streams?: TerminalStreams;
}): Terminal {
  const { out, err } = options.streams ?? { out: process.stdout, err: process.stderr };
  const writeJson = (value: unknown) => out.write(`${toPrintableJson(JSON.stringify(value))}\n`);
  const isMachineReadable = options.json || options.utc === true;
  const toTerminalText = (text: string) => printableLine(isMachineReadable ? text : localizeUtcTimes(text, Date.now()));
  const printLines = (stream: NodeJS.WritableStream, lines: readonly string[]) =>
    stream.write(`${lines.map(toTerminalText).join("\n")}\n`);
  const toCell = (value: unknown) => (value === null || value === undefined ? "–" : toTerminalText(String(value)));
  return {
    json: options.json,
    printRows<T>(rows: readonly T[], columns: TableColumns<T>) {
      if (options.json) writeJson(rows);
      else if (rows.length === 0) err.write("nothing\n");
      else {
        const fields = Object.values(columns);
        const cells = rows.map((row) => fields.map((key) => toCell(typeof key === "function" ? key(row) : row[key])));
        const [head = "", ...lines] = formatTextTable(Object.keys(columns), cells);
        out.write(`${[out.isTTY === true ? styleText("bold", head) : head, ...lines].join("\n")}\n`);
      }
    },
    print(value, lines) {
      if (options.json) writeJson(value);
      else printLines(out, lines);
    },
    printText: (lines) => void out.write(`${lines.map(printableLine).join("\n")}\n`),
    info: (...lines) => void printLines(err, lines),
    async progress(activity, work) {
      let progressText = activity;
      let wasProgressShown = false;
      const startMs = performance.now();
      const showProgress = () => {
        const elapsedSeconds = Math.round((performance.now() - startMs) / 1000);
        const progressLine = printableLine(`${progressText} … ${elapsedSeconds} s`);
        if (err.isTTY === true) err.write(`\r\u001b[K${progressLine}`);
        else if (!wasProgressShown || elapsedSeconds % 10 === 0) err.write(`${progressLine}\n`);
        wasProgressShown = true;
      };
      let progressTimer: NodeJS.Timeout | undefined;
      const progressDelayTimer = setTimeout(() => {
        showProgress();
        progressTimer = setInterval(showProgress, 1000);
      }, PROGRESS_DELAY_MS);
      try {
        return await work((newText) => {
          progressText = newText;
        });
      } finally {
        clearTimeout(progressDelayTimer);
        clearInterval(progressTimer);
        if (wasProgressShown && err.isTTY === true) err.write("\r\u001b[K");
      }
    },
  };
}

/** Makes messages of the argument parser printable, because they repeat what the user typed. */
export function createParserOutput({ out, err }: TerminalStreams = { out: process.stdout, err: process.stderr }) {
  const writePrintable = (stream: NodeJS.WritableStream) => (text: string) =>
    stream.write(text.split("\n").map(printableLine).join("\n"));
  return { writeOut: writePrintable(out), writeErr: writePrintable(err) };
}

export function omitMissingLines(...lines: readonly (string | false | null)[]): readonly string[] {
  return lines.filter((line) => typeof line === "string");
}

/** Formats a table; with "right", all columns but the first are aligned right. */
export function formatTextTable(
  columnTitles: readonly string[],
  rows: readonly (readonly string[])[],
  alignment: "left" | "right" = "left",
): readonly string[] {
  const textWidth = (text = "") => [...text].length;
  const tableRows = [columnTitles, ...rows];
  const columnWidths = columnTitles.map((_, column) => Math.max(...tableRows.map((cells) => textWidth(cells[column]))));
  const padTableCell = (text: string, column: number) => {
    const padding = " ".repeat((columnWidths[column] ?? 0) - textWidth(text));
    return alignment === "right" && column > 0 ? padding + text : text + padding;
  };
  return tableRows.map((cells) => cells.map(padTableCell).join("  ").trimEnd());
}

const UTC_TIME_PATTERN = /\b\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?Z\b/g;

export function localizeUtcTimes(text: string, nowMs: number): string {
  return text.replace(UTC_TIME_PATTERN, (time) => {
    const atMs = Date.parse(time);
    if (Number.isNaN(atMs)) return time;
    const age = formatAge(nowMs - atMs);
    return age === null ? formatLocalTime(atMs) : `${formatLocalTime(atMs)} (${age})`;
  });
}

export function formatLocalTime(atMs: number): string {
  const date = new Date(atMs);
  const dateText = [date.getFullYear(), padTwoDigits(date.getMonth() + 1), padTwoDigits(date.getDate())].join("-");
  return `${dateText} ${formatClockTime(atMs)} ${formatUtcOffset(date)}`;
}

export function formatClockTime(atMs: number): string {
  const date = new Date(atMs);
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map(padTwoDigits).join(":");
}

function formatUtcOffset(date: Date): string {
  const signedOffsetMinutes = -date.getTimezoneOffset();
  const offsetMinutes = Math.abs(signedOffsetMinutes);
  return `${signedOffsetMinutes < 0 ? "-" : "+"}${padTwoDigits(Math.floor(offsetMinutes / 60))}:${padTwoDigits(offsetMinutes % 60)}`;
}

const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const MAX_PRINTED_AGE_MS = 60 * DAY_MS;

/** Formats an age, such as `3 min ago` or `in 5 days`; null beyond 60 days. */
export function formatAge(agoMs: number): string | null {
  const timeDistanceMs = Math.abs(agoMs);
  if (timeDistanceMs > MAX_PRINTED_AGE_MS) return null;
  if (timeDistanceMs < SECOND_MS) return "now";
  const durationText = formatDurationInOneUnit(timeDistanceMs);
  return agoMs > 0 ? `${durationText} ago` : `in ${durationText}`;
}

/** Formats a duration in one unit, such as `119 s` or `2 min`. */
function formatDurationInOneUnit(ms: number): string {
  if (ms < 2 * MINUTE_MS) return `${Math.floor(ms / SECOND_MS)} s`;
  if (ms < 2 * HOUR_MS) return `${Math.floor(ms / MINUTE_MS)} min`;
  if (ms < 2 * DAY_MS) return `${Math.floor(ms / HOUR_MS)} h`;
  return `${Math.floor(ms / DAY_MS)} days`;
}

const padTwoDigits = (number: number): string => String(number).padStart(2, "0");
