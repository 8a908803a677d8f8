import { seed } from "../../seed.ts";
import { cutPower } from "./campaign.ts";
import { canRecord } from "./record.ts";

/** Power cuts without a test runner: `node test/store/power-cut/long.ts [states, default 20000]`. */
const wanted = Number(process.argv[2] ?? 20_000);
if (!canRecord()) {
  process.stderr.write("strace is needed, and may not be forbidden to trace: install it (Debian: strace).\n");
  process.exit(1);
}
let failed = 0;
for (const subject of ["store", "file sink"] as const) {
  const from = performance.now();
  const { steps, states, broken } = await cutPower(subject, wanted, seed);
  for (const message of broken) process.stdout.write(`${subject}: ${message}\n`);
  failed += broken.length;
  process.stdout.write(
    `${subject}: ${states} power cuts at ${steps} writes and syncs in ${((performance.now() - from) / 1_000).toFixed(0)} s: ${broken.length} not as promised (PLENUM_SEED=${seed})\n`,
  );
}
process.exitCode = failed === 0 ? 0 : 1;
