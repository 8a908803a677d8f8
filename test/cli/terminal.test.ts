import { Writable } from "node:stream";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { createTerminal } from "#src/cli/shell/terminal.ts";

function stream(isTTY = false) {
  let text = "";
  const writable = new Writable({
    write(chunk: Buffer, _encoding, done) {
      text += chunk.toString();
      done();
    },
  });
  return Object.assign(writable, { isTTY, text: () => text });
}

function terminal(options: { readonly json?: boolean; readonly isTTY?: boolean } = {}) {
  const out = stream();
  const err = stream(options.isTTY);
  return { ...createTerminal({ json: options.json ?? false, streams: { out, err } }), out, err };
}

describe("the progress line of a command", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  const working = async (shell: ReturnType<typeof terminal>, ms: number) => {
    const done = shell.progress("Reading", async (update) => {
      await new Promise((resolve) => setTimeout(resolve, ms / 2));
      update("Reading more");
      await new Promise((resolve) => setTimeout(resolve, ms / 2));
    });
    await vi.advanceTimersByTimeAsync(ms);
    await done;
  };

  test("is not printed in the first two seconds", async () => {
    const shell = terminal();
    await working(shell, 1_900);
    expect(shell.err.text()).toBe("");
  });

  test("shows the current step on standard error every 10 s", async () => {
    const shell = terminal();
    await working(shell, 25_000);
    expect(shell.err.text()).toBe("Reading … 2 s\nReading … 10 s\nReading more … 20 s\n");
    expect(shell.out.text()).toBe("");
  });

  test("is removed from a terminal at the end", async () => {
    const shell = terminal({ isTTY: true });
    await working(shell, 3_500);
    expect(shell.err.text().endsWith("Reading more … 3 s\r\u001b[K")).toBe(true);
  });
});

describe("rows printed by a command", () => {
  const columns = { id: "id", name: "name" } as const;

  test("are a table without control characters", () => {
    const shell = terminal();
    shell.rows(
      [
        { id: "1", name: "\u001b[2J\u001b]0;owned\u0007Boi\nler\u009b" },
        { id: "22", name: null },
      ],
      columns,
    );
    expect(shell.out.text()).toBe("id  name\n1   \ufffd[2J\ufffd]0;owned\ufffdBoi ler\ufffd\n22  –\n");
  });

  test("are one JSON array with --json, also for an empty list", () => {
    const shell = terminal({ json: true });
    shell.rows([], columns);
    expect(shell.out.text()).toBe("[]\n");
    expect(shell.err.text()).toBe("");
  });

  test("are replaced by `nothing` on standard error for an empty list", () => {
    const shell = terminal();
    shell.rows([], columns);
    expect([shell.out.text(), shell.err.text()]).toEqual(["", "nothing\n"]);
  });
});
