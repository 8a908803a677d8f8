import { availableParallelism } from "node:os";
import { defineConfig } from "vitest/config";
import { LongestFirst } from "./test/longest-first.ts";
import SLOW from "./test/slow.json" with { type: "json" };

/**
 * Least share of branches, in per cent, that tests must cover in these packages when branches are counted. The missing ones
 * are mostly for the type checker (the first of a list that is never empty), or run only in a worker that lives for hours.
 */
const BRANCHES = {
  "src/engine/commands/{gate,step}.ts": 100,
  "src/engine/source/reply.ts": 100,
  "src/engine/source/quota/*.ts": 93,
  "src/engine/sync/alarms/diff*.ts": 100,
  "src/engine/sync/inventory/diff.ts": 98,
  "src/engine/sync/history/ledger.ts": 100,
  "src/engine/sync/history/ledger-ranges.ts": 98,
  "src/engine/sync/history/buckets.ts": 92,
};

/** The share of all branches together, in per cent, below which a run that measures all of them fails. */
const WHOLE = 90;

/** Code that tests run in other processes, where no branches are counted. */
const ELSEWHERE = ["src/cli/**"];

/**
 * Minutes for each: hours of virtual time in processes of their own, where no branch is counted, and thousands of states
 * after a power cut, each opened by the same few lines. Where branches are counted they are a run of their own.
 */
const LONG = ["clock/campaign", "losses/losses", "store/power-cut", "world/world"].map(
  (name) => `test/${name}.test.ts`,
);

/** `--mode fast`: all test files but those that `test/slow.json` lists, each as a file or as a folder that ends with "/". */
const SLOW_GLOBS = SLOW.map((path) => (path.endsWith("/") ? `${path}**` : path));

const looksAtAll = (mode: string) => mode === "whole" || process.env.PLENUM_COVERAGE === "all";

/** Counting branches takes up to six times as long, and fast tests must pass on a slow and busy machine. */
const guardMs = (mode: string) => (looksAtAll(mode) || mode === "fast" ? 180_000 : 60_000);

const ofRooms = { include: Object.keys(BRANCHES) };
const ofAll = { include: ["src/**/*.ts", "connectors/**/*.ts"], exclude: ELSEWHERE };

/**
 * `npm test` runs the fast tests (`--mode fast`), `npm run test:all` all tests. `npm run coverage` runs the tests of the
 * packages in `BRANCHES` and counts their branches. `npm run coverage:all` counts all branches in all tests but the long
 * ones. Continuous integration does the same with `PLENUM_COVERAGE=all`, and runs the long ones with `--mode long`.
 */
export default defineConfig(({ mode }) => ({
  test: {
    globalSetup: "test/global-setup.ts",
    setupFiles: [...(mode === "fast" ? ["test/no-processes.ts"] : []), "test/each-file.ts"],
    env: mode === "fast" ? { PLENUM_FAST: "1" } : {},
    include: mode === "long" ? LONG : ["test/**/*.test.ts"],
    exclude: mode === "fast" ? SLOW_GLOBS : looksAtAll(mode) ? LONG : [],
    reporters: ["default", "./test/plain-reporter.ts"],
    // Guards against hanging, not expectations: a busy machine takes its time.
    testTimeout: guardMs(mode),
    hookTimeout: guardMs(mode),
    expect: { poll: { timeout: mode === "fast" ? 120_000 : 30_000, interval: 100 } },
    pool: "forks",
    // The worker with all it needs is loaded once in each process and not once for each of some hundred files, which is a
    // third of the whole. What a file changes of its process (an environment variable, say) it has to change back.
    isolate: false,
    // Four more than there are cores: slow tests spend half of their time waiting for quotas of real minutes and for
    // processes. Fast tests only compute.
    maxWorkers: Math.min(availableParallelism(), 8) + (mode === "fast" ? 0 : 4),
    sequence: { sequencer: LongestFirst },
    coverage: {
      enabled: looksAtAll(mode),
      ...(looksAtAll(mode) ? ofAll : ofRooms),
      reporter: [["text", { skipFull: true }]],
      thresholds: {
        ...(looksAtAll(mode) ? { branches: WHOLE } : {}),
        ...Object.fromEntries(Object.entries(BRANCHES).map(([files, branches]) => [files, { branches }])),
      },
    },
  },
}));
