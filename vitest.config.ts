import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    globalSetup: "test/one-temporary-folder.ts",
    setupFiles: ["test/one-seed.ts"],
    include: ["test/**/*.test.ts"],
    reporters: ["default", "./test/plain-reporter.ts"],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // Guards against hanging, not expectations: a busy machine takes its time.
    expect: { poll: { timeout: 30_000, interval: 100 } },
    pool: "forks",
    maxWorkers: 2,
  },
});
