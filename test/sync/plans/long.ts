import { seed } from "../../seed.ts";
import { judgePlan } from "./random-plan.ts";

/**
 * A million random plans, in some seven minutes (`npm run plans:long`).
 *
 *     node test/sync/plans/long.ts [plans] [first seed]
 *
 * Each has a seed of its own, counted up from the first. Ends with exit code 1 and the seeds when one breaks the
 * planner's contract.
 */
const plans = Number(process.argv[2] ?? 1_000_000);
const first = Number(process.argv[3] ?? seed);
const EVERY = 100_000;
const startedMs = performance.now();
let failed = 0;
for (let n = 0; n < plans; n += 1) {
  const complaints = judgePlan(first + n);
  if (complaints.length > 0) failed += 1;
  for (const complaint of complaints) console.log(complaint);
  if ((n + 1) % EVERY === 0) console.log(`${n + 1} plans, ${failed} failed`);
}
const seconds = Math.round((performance.now() - startedMs) / 1_000);
console.log(`${plans} plans from seed ${first}: ${failed} failed, ${seconds} s`);
process.exitCode = failed > 0 ? 1 : 0;
