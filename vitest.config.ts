import { availableParallelism } from "node:os";
import { defineConfig } from "vitest/config";
import { LongestFirst } from "./test/longest-first.ts";

/**
 * Rooms where a branch that no test walks is a promise that nobody has checked, and the share of branches, in per cent,
 * below which a run that measures fails. What is missing to 100 is mostly for the type checker (the first of
 * a list that is never empty) or asked for by p-queue's interface and never called; in the quota also what only a worker
 * does that runs for hours, and in the buckets a zone that no test knows.
 */
const BRANCHES = {
  "src/engine/commands/{gate,step}.ts": 100,
  "src/engine/source/reply.ts": 100,
  "src/engine/source/quota/*.ts": 93,
  "src/engine/sync/alarms/diff*.ts": 100,
  "src/engine/sync/inventory/diff.ts": 98,
  "src/engine/sync/history/{ledger,ledger-before,ranges,spans}.ts": 100,
  "src/engine/sync/history/buckets.ts": 92,
};

/** The share of all branches together, in per cent, below which a run that measures all of them fails. */
const WHOLE = 90;

/** What the tests run in processes of their own, where nothing is measured. */
const ELSEWHERE = ["src/cli/**"];

/**
 * Minutes for each: hours of virtual time in processes of their own, where no branch is counted, and thousands of states
 * after a power cut, each opened by the same few lines. Where branches are counted they are a run of their own.
 */
const LONG = ["clock/campaign", "losses/losses", "store/power-cut", "world/world"].map(
  (name) => `test/${name}.test.ts`,
);

const looksAtAll = (mode: string) => mode === "whole" || process.env.PLENUM_COVERAGE === "all";

/** What computes takes up to six times as long where its branches are counted. */
const guardMs = (mode: string) => (looksAtAll(mode) ? 180_000 : 60_000);

const ofRooms = { include: Object.keys(BRANCHES) };
const ofAll = { include: ["src/**/*.ts", "connectors/**/*.ts"], exclude: ELSEWHERE };

/**
 * `npm run coverage` runs the tests of the rooms and looks at the rooms; `npm run coverage:all` runs all but the long ones
 * and looks at all, as continuous integration does, which says so by `PLENUM_COVERAGE` because `npm cit` hands on no
 * options, and runs the others with `--mode long`.
 */
export default defineConfig(({ mode }) => ({
  test: {
    globalSetup: "test/before-all.ts",
    setupFiles: ["test/each-file.ts"],
    include: mode === "long" ? LONG : ["test/**/*.test.ts"],
    exclude: looksAtAll(mode) ? LONG : [],
    reporters: ["default", "./test/plain-reporter.ts"],
    // Guards against hanging, not expectations: a busy machine takes its time.
    testTimeout: guardMs(mode),
    hookTimeout: guardMs(mode),
    expect: { poll: { timeout: 30_000, interval: 100 } },
    pool: "forks",
    // The worker with all it needs is loaded once in each process and not once for each of some hundred files, which is a
    // third of the whole. What a file changes of its process (an environment variable, say) it has to change back.
    isolate: false,
    // Four more than there are cores: half of the time tests wait for the quota of real minutes, and for processes.
    maxWorkers: Math.min(availableParallelism(), 8) + 4,
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
