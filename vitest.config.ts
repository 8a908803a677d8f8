import { availableParallelism } from "node:os";
import { defineConfig } from "vitest/config";
import { LongestFirst } from "./test/longest-first.ts";
import SLOW from "./test/slow.json" with { type: "json" };

/**
 * Minimum branch coverage of these packages in percent. The uncovered branches mostly exist for the type checker (such as
 * the first element of a list that is never empty), or run only in a worker that runs for hours.
 */
const MIN_BRANCHES_PERCENT = {
  "src/engine/commands/{gate,step}.ts": 100,
  "src/engine/source/reply.ts": 100,
  "src/engine/source/quota/*.ts": 93,
  "src/engine/sync/alarms/diff*.ts": 100,
  "src/engine/sync/inventory/diff.ts": 98,
  "src/engine/sync/history/ledger.ts": 100,
  "src/engine/sync/history/ledger-ranges.ts": 98,
  "src/engine/sync/history/buckets.ts": 92,
};

/** Minimum branch coverage of all files together in percent. */
const MIN_TOTAL_BRANCHES_PERCENT = 90;

/** Code that tests run in other processes, where coverage is not measured. */
const UNMEASURED_FILES = ["src/cli/**"];

/** Tests that take minutes each: hours of virtual time in other processes, and thousands of states after a power cut. */
const LONG_TESTS = ["clock/campaign", "losses/losses", "store/power-cut", "world/world"].map(
  (name) => `test/${name}.test.ts`,
);

/** Test files that `--mode fast` excludes. `test/slow.json` lists files, and folders with "/" at the end. */
const SLOW_GLOBS = SLOW.map((path) => (path.endsWith("/") ? `${path}**` : path));

const coverageOfPackages = {
  include: Object.keys(MIN_BRANCHES_PERCENT),
  thresholds: Object.fromEntries(
    Object.entries(MIN_BRANCHES_PERCENT).map(([files, branches]) => [files, { branches }]),
  ),
};
const coverageOfAllFiles = {
  enabled: true,
  include: ["src/**/*.ts", "connectors/**/*.ts"],
  exclude: UNMEASURED_FILES,
  thresholds: { ...coverageOfPackages.thresholds, branches: MIN_TOTAL_BRANCHES_PERCENT },
};

/** Timeouts only end tests that hang. They are long because a busy machine is slow. */
const TEST_TIMEOUT_MS = 15 * 60_000;
const POLL_TIMEOUT_MS = 3 * 60_000;

/**
 * `npm test` runs the fast tests (`--mode fast`), `npm run test:all` all tests. `npm run coverage` measures the packages in
 * `MIN_BRANCHES_PERCENT` with their fast tests, `npm run coverage:all` all files with all tests but the long ones.
 * Continuous integration also uses `--mode long` and `--mode not-long`.
 */
export default defineConfig(({ mode }) => ({
  test: {
    globalSetup: "test/global-setup.ts",
    setupFiles: [...(mode === "fast" ? ["test/no-processes.ts"] : []), "test/each-file.ts"],
    env: mode === "fast" ? { PLENUM_FAST: "1" } : {},
    include: mode === "long" ? LONG_TESTS : ["test/**/*.test.ts"],
    exclude: mode === "fast" ? SLOW_GLOBS : mode === "not-long" || mode === "coverage" ? LONG_TESTS : [],
    reporters: ["default", "./test/plain-reporter.ts"],
    testTimeout: TEST_TIMEOUT_MS,
    hookTimeout: TEST_TIMEOUT_MS,
    expect: { poll: { timeout: POLL_TIMEOUT_MS, interval: 100 } },
    pool: "forks",
    // Each process loads the modules once instead of once per test file, which saves a third of the time. So a test file must
    // undo its changes to the process, such as environment variables.
    isolate: false,
    // One process per core, at most 8. Four more with slow tests, which wait half of their time for processes and for the
    // quota of the next minute.
    maxWorkers: Math.min(availableParallelism(), 8) + (mode === "fast" ? 0 : 4),
    sequence: { sequencer: LongestFirst },
    coverage: {
      ...(mode === "coverage" ? coverageOfAllFiles : coverageOfPackages),
      reporter: [["text", { skipFull: true }]],
    },
  },
}));
