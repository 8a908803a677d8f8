import { afterEach, beforeEach, expect, test } from "vitest";
import { ageText, createTerminal, localTime, withLocalTimes } from "#src/cli/shell/terminal.ts";

const before = process.env.TZ;
beforeEach(() => {
  process.env.TZ = "Europe/Oslo";
});
afterEach(() => {
  if (before === undefined) delete process.env.TZ;
  else process.env.TZ = before;
});
const NOW = Date.parse("2026-11-23T07:55:30Z");

test.each([
  ["at 2026-11-23T07:52:10.123Z.", "at 2026-11-23 08:52:10 +01:00 (3 min ago)."],
  ["until 2026-07-01T00:00:00Z", "until 2026-07-01 02:00:00 +02:00"],
  ["due 2026-11-23T07:55Z", "due 2026-11-23 08:55:00 +01:00 (30 s ago)"],
  ["in 2026-11-28T08:00:00Z", "in 2026-11-28 09:00:00 +01:00 (in 5 days)"],
  ["plenum.db.damaged-2026-11-02T06-00-00-000Z", "plenum.db.damaged-2026-11-02T06-00-00-000Z"],
  ["9999-99-99T99:99:99Z stays", "9999-99-99T99:99:99Z stays"],
])("withLocalTimes replaces UTC times by local times with an age: %s", (utc, local) => {
  expect(withLocalTimes(utc, NOW)).toBe(local);
});

test.each([
  [0, "now"],
  [119_000, "119 s ago"],
  [120_000, "2 min ago"],
  [7_199_000, "119 min ago"],
  [47 * 3_600_000, "47 h ago"],
  [59 * 86_400_000, "59 days ago"],
  [61 * 86_400_000, null],
  [-90_000, "in 90 s"],
])("ageText prints %d ms as %s", (ms, text) => {
  expect(ageText(ms)).toBe(text);
});

test("localTime formats the zone −03:30", () => {
  process.env.TZ = "America/St_Johns";
  expect(localTime(NOW)).toBe("2026-11-23 04:25:30 -03:30");
});

test("the terminal keeps UTC in JSON, with --utc, and in output for programs", () => {
  const printed = (options: { readonly json?: boolean; readonly utc?: boolean }) => {
    let text = "";
    const stream = { write: (piece: string) => (text += piece) } as unknown as NodeJS.WritableStream;
    const terminal = createTerminal({ json: false, ...options, streams: { out: stream, err: stream } });
    terminal.object({ at: "2026-11-23T07:52:10Z" }, ["at 2026-11-23T07:52:10Z"]);
    terminal.rows([1], { at: () => "2026-11-23T07:52:10Z" });
    terminal.say("said 2026-11-23T07:52:10Z");
    terminal.text(["text 2026-11-23T07:52:10Z"]);
    return text;
  };
  expect(printed({ json: true })).not.toContain("08:52:10");
  expect(printed({ utc: true })).not.toContain("08:52:10");
  const local = printed({});
  expect(local.match(/2026-11-23 08:52:10 \+01:00/g)).toHaveLength(3);
  expect(local).toContain("text 2026-11-23T07:52:10Z");
});
