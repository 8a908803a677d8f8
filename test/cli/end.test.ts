import { expect, test } from "vitest";
import { workplace } from "./plenum.ts";

/** Leaves a timer behind as a library does, and removes the timer that ends the process after a second. */
const LEFTOVER = `data:text/javascript,${encodeURIComponent(`
  const { setTimeout: original } = globalThis;
  globalThis.setTimeout = (work, ms, ...rest) =>
    ms === 1_000 ? { unref() {} } : original(work, ms, ...rest);
  original(() => process.exit(99), 30_000);
`)}`;

test("a command prints its complete output and exits even if a library left a timer running", async () => {
  const cli = workplace("http://127.0.0.1:9", { NODE_OPTIONS: `--import=${LEFTOVER}` });
  const { code, stdout } = await cli.start("schema").ended;
  expect(code).toBe(0);
  expect(stdout.length).toBeGreaterThan(64 * 1_024);
  expect(() => JSON.parse(stdout)).not.toThrow();
});

test("plenum run exits as soon as the services of the worker have stopped", async () => {
  const cli = workplace("http://127.0.0.1:9", { NODE_OPTIONS: `--import=${LEFTOVER}` });
  const worker = await cli.run();
  const { stderr } = await worker.stop();
  expect(stderr).toContain('"msg":"stopped"');
});
