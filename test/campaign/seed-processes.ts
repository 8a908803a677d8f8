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
  readonly tookMs: number;
}

export interface Wanted {
  readonly seed: number;
  readonly twice: boolean;
}

export async function playAll(campaign: URL, wanted: readonly Wanted[], take: (report: Report) => void): Promise<void> {
  const folder = createRunFolder(chooseTemporaryRoot());
  const left = [...wanted];
  try {
    await Promise.all(
      Array.from({ length: Math.min(availableParallelism(), wanted.length) }, async () => {
        const child = fork(fileURLToPath(new URL("seed-process.ts", import.meta.url)), [campaign.href], {
          env: { ...process.env, TMPDIR: folder },
          execArgv: [],
        });
        for (let next = left.shift(); next !== undefined; next = left.shift()) {
          const { seed } = next;
          const report = await new Promise<Report>((resolve, reject) => {
            child.once("message", (message) => resolve(message as Report));
            child.once("exit", (code) => reject(new Error(`seed ${seed}: the process ended with ${code}`)));
            child.send(next);
          });
          child.removeAllListeners("exit");
          take(report);
        }
        child.disconnect();
      }),
    );
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
