import { seed } from "../../../seed.ts";
import { killDuringCommits } from "./campaign.ts";

/** `node …/long.ts [kills of each, default 200] [plain or delta] [folder or s3]`. */
const kills = Number(process.argv[2] ?? 200);
const words = process.argv.slice(3);
const chosen = <T extends string>(all: readonly T[]) =>
  all.some((each) => words.includes(each)) ? all.filter((each) => words.includes(each)) : all;
const lakes = chosen(["plain", "delta"]).flatMap((format) =>
  chosen(["folder", "s3"]).map((where) => [where, format] as const),
);
let failed = 0;
for (const [where, format] of lakes) {
  const from = performance.now();
  const { compacting, doubled, events, interrupted, lost } = await killDuringCommits(where, format, kills, seed);
  failed += lost + doubled;
  process.stdout.write(
    `${where}, ${format}: ${kills} kills (${interrupted} in the middle of a landing, ${compacting} of a compaction) while ${events} events landed, in ${((performance.now() - from) / 1_000).toFixed(0)} s: ${lost} lost, ${doubled} doubled (PLENUM_SEED=${seed})\n`,
  );
}
process.exitCode = failed === 0 ? 0 : 1;
