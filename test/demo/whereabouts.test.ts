import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { DEMO_CONFIG, findDemo, leaveWord } from "#src/cli/demo/whereabouts.ts";
import { temporaryFolder } from "../real-servers.ts";

const WORD = {
  config: DEMO_CONFIG,
  statusUrl: "http://127.0.0.1:9850",
  environment: { PLENUM_DEMO_FOLDER: "/home/kari/plenum-demo" },
};
let runtime: string;

beforeEach(() => {
  runtime = temporaryFolder();
  vi.stubEnv("XDG_RUNTIME_DIR", runtime);
});
afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(runtime, { recursive: true, force: true });
});

test("a demo is found while it runs, by its own user only", () => {
  expect(findDemo()).toBeNull();
  const takeBack = leaveWord(WORD);
  expect(findDemo()).toEqual({ ...WORD, pid: process.pid });
  expect(statSync(wordOf(process.pid)).mode & 0o777).toBe(0o600);
  expect(statSync(join(runtime, "plenum")).mode & 0o777).toBe(0o700);
  takeBack();
  expect(findDemo()).toBeNull();
  expect(existsSync(join(runtime, "plenum"))).toBe(false);
});

test("what another user could have put there is not believed", () => {
  leaveWord(WORD);
  chmodSync(join(runtime, "plenum"), 0o777);
  expect(findDemo()).toBeNull();
  // Nor is anything written into such a folder, or through a link.
  rmSync(join(runtime, "plenum"), { recursive: true });
  mkdirSync(join(runtime, "elsewhere"), { mode: 0o700 });
  symlinkSync(join(runtime, "elsewhere"), join(runtime, "plenum"));
  leaveWord(WORD);
  expect([findDemo(), readdirSync(join(runtime, "elsewhere"))]).toEqual([null, []]);
});

test.each([
  ["no JSON", "{"],
  ["another variable", JSON.stringify({ ...WORD, pid: process.pid, environment: { PATH: "/tmp" } })],
  ["a process that is gone", JSON.stringify({ ...WORD, pid: 2 ** 22 + 1 })],
])("a word with %s counts as none", (_, text) => {
  mkdirSync(join(runtime, "plenum"), { mode: 0o700 });
  writeFileSync(wordOf(1234), text);
  expect(findDemo()).toBeNull();
  // The next demo clears it away.
  leaveWord(WORD);
  expect(readdirSync(join(runtime, "plenum"))).toEqual([`demo-${process.pid}.json`]);
});

test("of several demos the last one that still runs is found, whichever ends", () => {
  const other = { ...WORD, statusUrl: "http://127.0.0.1:9851", pid: process.ppid };
  const takeBack = leaveWord(WORD);
  writeFileSync(wordOf(other.pid), JSON.stringify(other));
  const startedAt = (pid: number, seconds: number) => utimesSync(wordOf(pid), seconds, seconds);
  startedAt(process.pid, 1_000);
  startedAt(other.pid, 2_000);
  expect(findDemo()).toEqual(other);
  startedAt(other.pid, 500);
  expect(findDemo()?.pid).toBe(process.pid);
  takeBack();
  expect(findDemo()).toEqual(other);
});

function wordOf(pid: number): string {
  return join(runtime, `plenum/demo-${pid}.json`);
}
