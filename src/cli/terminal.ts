import { stripVTControlCharacters, styleText } from "node:util";

/** Data goes to standard output, everything said about it to standard error, so that a pipe gets data only. */
export interface Terminal {
  readonly json: boolean;
  /** Rows as a table for a person, or as one JSON array with `--json`. */
  rows<T>(rows: readonly T[], columns: readonly Column<T>[]): void;
  /** One object: lines for a person, or JSON with `--json`. */
  object(value: unknown, lines: readonly string[]): void;
  say(text: string): void;
  /** Shows that something is under way once it takes longer than two seconds. */
  progress<T>(what: string, work: (update: (text: string) => void) => Promise<T>): Promise<T>;
}

export interface Column<T> {
  readonly title: string;
  readonly value: (row: T) => string | number | boolean | null;
}

export interface TerminalStreams {
  readonly out: NodeJS.WritableStream & { readonly isTTY?: boolean };
  readonly err: NodeJS.WritableStream & { readonly isTTY?: boolean };
}

const PROGRESS_AFTER_MS = 2_000;

export function createTerminal(options: {
  readonly json: boolean;
  readonly streams?: TerminalStreams;
}): Terminal {
  const { out, err } = options.streams ?? { out: process.stdout, err: process.stderr };
  return {
    json: options.json,
    rows(rows, columns) {
      if (options.json) {
        out.write(`${JSON.stringify(rows)}\n`);
        return;
      }
      if (rows.length === 0) {
        err.write("nothing\n");
        return;
      }
      const cells = rows.map((row) => columns.map((column) => printable(column.value(row))));
      const widths = columns.map((column, i) =>
        Math.max(column.title.length, ...cells.map((line) => width(line[i] ?? ""))),
      );
      const line = (texts: readonly string[]) =>
        texts
          .map((text, i) => text + " ".repeat(Math.max(0, (widths[i] ?? 0) - width(text))))
          .join("  ")
          .trimEnd();
      const head = line(columns.map((column) => column.title));
      out.write(`${out.isTTY === true ? styleText("bold", head) : head}\n`);
      for (const texts of cells) out.write(`${line(texts)}\n`);
    },
    object(value, lines) {
      out.write(options.json ? `${JSON.stringify(value)}\n` : `${lines.join("\n")}\n`);
    },
    say: (text) => {
      err.write(`${text}\n`);
    },
    async progress(what, work) {
      let text = what;
      let shown = false;
      const begin = performance.now();
      const show = () => {
        const seconds = Math.round((performance.now() - begin) / 1000);
        if (err.isTTY === true) err.write(`\r\u001b[K${text} … ${seconds} s`);
        else if (!shown || seconds % 10 === 0) err.write(`${text} … ${seconds} s\n`);
        shown = true;
      };
      let every: NodeJS.Timeout | undefined;
      const first = setTimeout(() => {
        show();
        every = setInterval(show, 1000);
      }, PROGRESS_AFTER_MS);
      try {
        return await work((next) => {
          text = next;
        });
      } finally {
        clearTimeout(first);
        clearInterval(every);
        if (shown && err.isTTY === true) err.write("\r\u001b[K");
      }
    },
  };
}

/** Names come from other systems: control characters must not reach a terminal. */
function printable(value: string | number | boolean | null): string {
  if (value === null) return "–";
  // biome-ignore lint/suspicious/noControlCharactersInRegex: taking control characters out is the purpose.
  return stripVTControlCharacters(String(value)).replace(/[\u0000-\u001f\u007f-\u009f]/g, " ");
}

function width(text: string): number {
  return [...text].length;
}
