import { join } from "node:path";
import { createVitest } from "vitest/node";

/**
 * Child process that runs tests against mutants in one vitest instance, which saves the start for each mutant. A vitest
 * plugin loads the mutant's text in place of the file; no file is changed.
 */
export interface Task {
  /** Path from the root of the repository; null for the unchanged code. */
  readonly file: string | null;
  readonly text: string;
}

export interface Played {
  /** The first failed test or another error; null when all tests passed. */
  readonly failed: string | null;
  readonly tookMs: number;
}

const repositoryFolder = join(import.meta.dirname, "..", "..");
const tests = process.argv.slice(2);
let task: Task = { file: null, text: "" };

const vitest = await createVitest(
  "test",
  {
    root: repositoryFolder,
    watch: false,
    bail: 1,
    maxWorkers: 1,
    fileParallelism: false,
    reporters: [{}],
    silent: true,
    fsModuleCache: false,
    testTimeout: 20_000,
    execArgv: ["--max-old-space-size=1500"],
    expect: { poll: { timeout: 5_000, interval: 50 } },
  },
  {
    plugins: [
      {
        name: "mutant",
        enforce: "pre",
        load: (id: string) => {
          if (task.file === null || id !== join(repositoryFolder, task.file)) return null;
          return task.text;
        },
      },
    ],
  },
);
const project = vitest.getRootProject();
const specifications = tests.map((test) => project.createSpecification(join(repositoryFolder, test)));

async function play(next: Task): Promise<Played> {
  if (task.file !== null) vitest.invalidateFile(join(repositoryFolder, task.file));
  task = next;
  if (task.file !== null) vitest.invalidateFile(join(repositoryFolder, task.file));
  const startedMs = performance.now();
  const { testModules, unhandledErrors } = await vitest.runTestSpecifications(specifications, true);
  const tookMs = performance.now() - startedMs;
  for (const module of testModules) {
    for (const failedTest of module.children.allTests("failed"))
      return { failed: `${failedTest.module.relativeModuleId}: ${failedTest.fullName}`, tookMs };
  }
  const brokenModule = testModules.find((module) => module.state() === "failed");
  const failureText =
    brokenModule?.relativeModuleId ?? (unhandledErrors.length > 0 ? String(unhandledErrors[0]) : null);
  return { failed: failureText, tookMs };
}

process.on("message", (next: Task) => {
  // A rejection ends this process, which counts as a detected mutant.
  void play(next).then((played) => process.send?.(played));
});
process.on("disconnect", () => process.exit());
