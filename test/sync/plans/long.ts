import { seed } from "../../seed.ts";
import { judgePlan } from "./random-plan.ts";

/**
 * Judges a million random plans in seven minutes: `node test/sync/plans/long.ts [plans] [first seed]`. Exits with 1 and
 * prints the seeds of failed plans.
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
