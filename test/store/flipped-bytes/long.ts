import { seed } from "../../seed.ts";
import { flipBytes } from "./campaign.ts";

/** Flipped bytes without a test runner: `node test/store/flipped-bytes/long.ts [flips, default 5000]`. */
const from = performance.now();
const { flips, broken, replaced, reindexed, quarantined } = await flipBytes(Number(process.argv[2] ?? 5_000), seed);
for (const message of broken) process.stdout.write(`${message}\n`);
process.stdout.write(
  `${flips} flipped bytes in ${((performance.now() - from) / 1_000).toFixed(0)} s: ${replaced} files replaced, ${reindexed} reindexed, ${quarantined} rows taken out; ${broken.length} not as promised (PLENUM_SEED=${seed})\n`,
);
process.exitCode = broken.length === 0 ? 0 : 1;
