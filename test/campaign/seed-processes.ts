import { fork } from "node:child_process";
import { rmSync } from "node:fs";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { createRunFolder } from "../run-folders.ts";
import { chooseTemporaryRoot } from "../temporary-root.ts";
import type { CampaignResult } from "./campaign.ts";

export interface Report extends CampaignResult {
  readonly seed: number;
  /** True if a second run gave the same digest or there was none. */
  readonly same: boolean;
  readonly durationMs: number;
}

export interface SeedJob {
  readonly seed: number;
  readonly twice: boolean;
}

export async function playAll(
  campaign: URL,
  jobs: readonly SeedJob[],
  onReport: (report: Report) => void,
): Promise<void> {
  const folder = createRunFolder(chooseTemporaryRoot());
  const pendingSeeds = [...jobs];
  try {
    await Promise.all(
      Array.from({ length: Math.min(availableParallelism(), jobs.length) }, async () => {
        const childProcess = fork(fileURLToPath(new URL("seed-process.ts", import.meta.url)), [campaign.href], {
          env: { ...process.env, TMPDIR: folder },
          execArgv: [],
        });
        for (let nextSeed = pendingSeeds.shift(); nextSeed !== undefined; nextSeed = pendingSeeds.shift()) {
          const { seed } = nextSeed;
          const seedReport = await new Promise<Report>((resolve, reject) => {
            childProcess.once("message", (message) => resolve(message as Report));
            childProcess.once("exit", (code) => reject(new Error(`seed ${seed}: the process ended with ${code}`)));
            childProcess.send(nextSeed);
          });
          childProcess.removeAllListeners("exit");
          onReport(seedReport);
        }
        childProcess.disconnect();
      }),
    );
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
