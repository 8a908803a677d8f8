import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";

/** Writes one line for all sources that change their holder together, in place of one for each of 300. */
export interface HandoverLog {
  /** Adds a source to the line with this text and these fields. */
  note(level: "info" | "warn", text: string, fields: object, source: string): void;
  /** Writes the lines to which nothing was added for a moment; at the end all. */
  flush(isEnd?: boolean): void;
}

/** Without another source for so long a group is complete, in milliseconds: a gentle handover gives the next one within that. */
const COMPLETE_MS = 2_000;

export function createHandoverLog(clock: Pick<Clock, "monotonic">, log: Log): HandoverLog {
  const groups = new Map<string, { readonly write: () => void; readonly sources: string[]; atMs: number }>();
  return {
    note(level, text, fields, source) {
      const key = JSON.stringify([text, fields]);
      const sources = groups.get(key)?.sources ?? [];
      sources.push(source);
      const write = () => log[level]({ ...fields, count: sources.length, sources: sources.toSorted() }, text);
      groups.set(key, { write, sources, atMs: clock.monotonic() });
    },
    flush(isEnd = false) {
      for (const [key, { write, atMs }] of groups) {
        if (!isEnd && clock.monotonic() - atMs < COMPLETE_MS) continue;
        groups.delete(key);
        write();
      }
    },
  };
}
