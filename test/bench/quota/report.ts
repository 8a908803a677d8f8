/** Prints tables, and keeps count of the goals that were missed. */
export interface Report {
  title(text: string): void;
  table(head: readonly string[], rows: readonly (readonly string[])[]): void;
  /** `least`: the value must be at least the goal; `most`: at most. */
  goal(what: string, value: number, kind: "least" | "most", goal: number, unit?: string): void;
  missed(): number;
}

export function createReport(write: (line: string) => void): Report {
  let missed = 0;
  return {
    title: (text) => write(`\n${text}\n`),
    table(head, rows) {
      const widths = head.map((cell, column) => Math.max(cell.length, ...rows.map((row) => row[column]?.length ?? 0)));
      const line = (cells: readonly string[]) =>
        cells
          .map((cell, column) => (column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0)))
          .join("  ");
      write(line(head));
      write(widths.map((width) => "-".repeat(width)).join("  "));
      for (const row of rows) write(line(row));
    },
    goal(what, value, kind, goal, unit = "") {
      const reached = kind === "least" ? value >= goal : value <= goal;
      if (!reached) missed += 1;
      const bound = kind === "least" ? "at least" : "at most";
      write(`  ${reached ? "reached" : "MISSED "}  ${what}: ${round(value)}${unit}, ${bound} ${round(goal)}${unit}`);
    },
    missed: () => missed,
  };
}

export function percent(share: number): string {
  return (share * 100).toFixed(2);
}

export function seconds(ms: number): string {
  return (ms / 1000).toFixed(2);
}

function round(value: number): string {
  return String(Math.round(value * 1000) / 1000);
}
