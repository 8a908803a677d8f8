import { createReport } from "./report.ts";
import { steadyLoad } from "./section-limiters.ts";
import { networks } from "./section-networks.ts";
import { kills, lostState } from "./section-restarts.ts";
import { rival, urgent } from "./section-sharing.ts";

/**
 * `npm run bench:quota`: the worker's own quota in virtual time against limiters that it does not know, with the
 * bound of theory and p-queue's plain `strict` mode beside it. Seeded: the same figures on every machine.
 * Ends with exit code 1 when a goal of goals.ts is missed.
 */
const began = performance.now();
const report = createReport((line) => process.stdout.write(`${line}\n`));
for (const section of [steadyLoad, networks, urgent, kills, lostState, rival]) await section(report);
const tookS = ((performance.now() - began) / 1000).toFixed(0);
report.title(
  report.missed() === 0 ? `All goals reached (${tookS} s).` : `${report.missed()} goals missed (${tookS} s).`,
);
process.exitCode = report.missed() === 0 ? 0 : 1;
