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
import { DEMO_CONFIG_FILE, findRunningDemo, registerRunningDemo } from "#src/cli/demo/registry-of-running-demos.ts";
import { temporaryFolder } from "../real-servers.ts";

const DEMO = {
  config: DEMO_CONFIG_FILE,
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

test("findDemo finds a running demo of the same user", () => {
  expect(findRunningDemo()).toBeNull();
  const unregister = registerRunningDemo(DEMO);
  expect(findRunningDemo()).toEqual({ ...DEMO, pid: process.pid });
  expect(statSync(demoFile(process.pid)).mode & 0o777).toBe(0o600);
  expect(statSync(join(runtime, "plenum")).mode & 0o777).toBe(0o700);
  unregister();
  expect(findRunningDemo()).toBeNull();
  expect(existsSync(join(runtime, "plenum"))).toBe(false);
});

test("findDemo ignores a folder that another user can write to", () => {
  registerRunningDemo(DEMO);
  chmodSync(join(runtime, "plenum"), 0o777);
  expect(findRunningDemo()).toBeNull();
  rmSync(join(runtime, "plenum"), { recursive: true });
  mkdirSync(join(runtime, "elsewhere"), { mode: 0o700 });
  symlinkSync(join(runtime, "elsewhere"), join(runtime, "plenum"));
  registerRunningDemo(DEMO);
  expect([findRunningDemo(), readdirSync(join(runtime, "elsewhere"))]).toEqual([null, []]);
});

test.each([
  ["no JSON", "{"],
  ["another variable", JSON.stringify({ ...DEMO, pid: process.pid, environment: { PATH: "/tmp" } })],
  ["a process that is gone", JSON.stringify({ ...DEMO, pid: 2 ** 22 + 1 })],
])("findDemo ignores a registration file with %s", (_, text) => {
  mkdirSync(join(runtime, "plenum"), { mode: 0o700 });
  writeFileSync(demoFile(1234), text);
  expect(findRunningDemo()).toBeNull();
  registerRunningDemo(DEMO);
  expect(readdirSync(join(runtime, "plenum"))).toEqual([`demo-${process.pid}.json`]);
});

test("findDemo returns the running demo that was started last", () => {
  const otherDemo = { ...DEMO, statusUrl: "http://127.0.0.1:9851", pid: process.ppid };
  const unregister = registerRunningDemo(DEMO);
  writeFileSync(demoFile(otherDemo.pid), JSON.stringify(otherDemo));
  const setStartTime = (pid: number, seconds: number) => utimesSync(demoFile(pid), seconds, seconds);
  setStartTime(process.pid, 1_000);
  setStartTime(otherDemo.pid, 2_000);
  expect(findRunningDemo()).toEqual(otherDemo);
  setStartTime(otherDemo.pid, 500);
  expect(findRunningDemo()?.pid).toBe(process.pid);
  unregister();
  expect(findRunningDemo()).toEqual(otherDemo);
});

function demoFile(pid: number): string {
  return join(runtime, `plenum/demo-${pid}.json`);
}
