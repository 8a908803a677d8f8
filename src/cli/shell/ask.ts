import { createInterface } from "node:readline/promises";
import { Writable } from "node:stream";
import { Rejected } from "../../core/errors/errors.ts";
import { printable } from "../../core/values/printable.ts";

/** Asks a person at a terminal. */
export interface Asker {
  /** The answer without space around it; `proposed` where only Enter was pressed. Rejects once the terminal is closed. */
  ask(question: string, proposed?: string): Promise<string>;
  /** The same with nothing shown of what is typed. */
  askHidden(question: string): Promise<string>;
  close(): void;
}

/** Null where nobody sits there: input or error output is no terminal. */
export function createAsker(signal: AbortSignal): Asker | null {
  if (!process.stdin.isTTY || !process.stderr.isTTY) return null;
  let hidden = false;
  const output = new Writable({
    write(chunk, _encoding, done) {
      if (!hidden) process.stderr.write(chunk);
      done();
    },
  });
  const lines = createInterface({ input: process.stdin, output, terminal: true });
  // In this mode the terminal's Ctrl-C is a key like others.
  lines.on("SIGINT", () => process.kill(process.pid, "SIGINT"));
  const closed = new AbortController();
  lines.once("close", () => closed.abort(new Rejected("The terminal was closed before all was answered.")));
  const either = AbortSignal.any([signal, closed.signal]);

  async function question(text: string): Promise<string> {
    try {
      return (await lines.question(text, { signal: either })).trim();
    } catch (error) {
      signal.throwIfAborted();
      closed.signal.throwIfAborted();
      throw error;
    }
  }

  return {
    async ask(text, proposed) {
      const answer = await question(printable(`${text}${proposed === undefined ? "" : ` [${proposed}]`}: `));
      return answer === "" ? (proposed ?? "") : answer;
    },
    async askHidden(text) {
      process.stderr.write(printable(`${text}: `));
      hidden = true;
      try {
        return await question("");
      } finally {
        hidden = false;
        process.stderr.write("\n");
      }
    },
    close: () => lines.close(),
  };
}
