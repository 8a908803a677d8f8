import { Writable } from "node:stream";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { createTerminal, formatAge, formatLocalTime, localizeUtcTimes } from "#src/cli/shell/terminal-output.ts";

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
  const runProgress = async (shell: ReturnType<typeof terminal>, ms: number) => {
    const progressEnd = shell.progress("Reading", async (update) => {
      await new Promise((resolve) => setTimeout(resolve, ms / 2));
      update("Reading more");
      await new Promise((resolve) => setTimeout(resolve, ms / 2));
    });
    await vi.advanceTimersByTimeAsync(ms);
    await progressEnd;
  };

  test.each([
    ["not in the first two seconds", 1_900, ""],
    ["every 10 s", 25_000, "Reading … 2 s\nReading … 10 s\nReading more … 20 s\n"],
  ])("shows the current step on standard error, %s", async (_, ms, shown) => {
    const shell = terminal();
    await runProgress(shell, ms);
    expect([shell.err.text(), shell.out.text()]).toEqual([shown, ""]);
  });

  test("is removed from the terminal when the command ends", async () => {
    const shell = terminal({ isTTY: true });
    await runProgress(shell, 3_500);
    expect(shell.err.text().endsWith("Reading more … 3 s\r\u001b[K")).toBe(true);
  });
});

describe("the output of printRows", () => {
  const columns = { id: "id", name: "name" } as const;

  test("is a table without control characters", () => {
    const shell = terminal();
    shell.printRows(
      [
        { id: "1", name: "\u001b[2J\u001b]0;owned\u0007Boi\nler\u009b" },
        { id: "22", name: null },
      ],
      columns,
    );
    expect(shell.out.text()).toBe("id  name\n1   \ufffd[2J\ufffd]0;owned\ufffdBoi ler\ufffd\n22  –\n");
  });

  test.each([
    ["one JSON array with --json", true, "[]\n", ""],
    ["the word nothing on standard error", false, "", "nothing\n"],
  ])("is, for an empty list, %s", (_, json, out, err) => {
    const shell = terminal({ json });
    shell.printRows([], columns);
    expect([shell.out.text(), shell.err.text()]).toEqual([out, err]);
  });
});

describe("times printed by a command", () => {
  beforeEach(() => void vi.stubEnv("TZ", "Europe/Oslo"));
  afterEach(() => void vi.unstubAllEnvs());
  const NOW = Date.parse("2026-11-23T07:55:30Z");

  test.each([
    ["at 2026-11-23T07:52:10.123Z.", "at 2026-11-23 08:52:10 +01:00 (3 min ago)."],
    ["until 2026-07-01T00:00:00Z", "until 2026-07-01 02:00:00 +02:00"],
    ["due 2026-11-23T07:55Z", "due 2026-11-23 08:55:00 +01:00 (30 s ago)"],
    ["in 2026-11-28T08:00:00Z", "in 2026-11-28 09:00:00 +01:00 (in 5 days)"],
    ["plenum.db.damaged-2026-11-02T06-00-00-000Z", "plenum.db.damaged-2026-11-02T06-00-00-000Z"],
    ["9999-99-99T99:99:99Z stays", "9999-99-99T99:99:99Z stays"],
  ])("localizeTimes replaces UTC times by local times with an age: %s", (utc, local) => {
    expect(localizeUtcTimes(utc, NOW)).toBe(local);
  });

  test.each([
    [0, "now"],
    [120_000, "2 min ago"],
    [47 * 3_600_000, "47 h ago"],
    [59 * 86_400_000, "59 days ago"],
    [61 * 86_400_000, null],
    [-90_000, "in 90 s"],
  ])("formatAge prints %d ms as %s", (ms, text) => {
    expect(formatAge(ms)).toBe(text);
  });

  test("formatLocalTime formats the zone −03:30", () => {
    vi.stubEnv("TZ", "America/St_Johns");
    expect(formatLocalTime(NOW)).toBe("2026-11-23 04:25:30 -03:30");
  });

  test("the terminal keeps UTC in JSON, with --utc, and in output for programs", () => {
    const printWith = (options: { readonly json?: boolean; readonly utc?: boolean }) => {
      const out = stream();
      const terminal = createTerminal({ json: false, ...options, streams: { out, err: out } });
      terminal.print({ at: "2026-11-23T07:52:10Z" }, ["at 2026-11-23T07:52:10Z"]);
      terminal.printRows([1], { at: () => "2026-11-23T07:52:10Z" });
      terminal.info("said 2026-11-23T07:52:10Z");
      terminal.printText(["text 2026-11-23T07:52:10Z"]);
      return out.text();
    };
    expect(printWith({ json: true })).not.toContain("08:52:10");
    expect(printWith({ utc: true })).not.toContain("08:52:10");
    const localOutput = printWith({});
    expect(localOutput.match(/2026-11-23 08:52:10 \+01:00/g)).toHaveLength(3);
    expect(localOutput).toContain("text 2026-11-23T07:52:10Z");
  });
});
