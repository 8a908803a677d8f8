import { availableParallelism, totalmem } from "node:os";
import { absent } from "../real-servers.ts";
import { runTakeovers } from "./campaign.ts";

/** `npm run fleet:long`, or `node test/takeovers/long.ts [takeovers] [seed]`: 500 takeovers in 40 minutes. */
const takeovers = Number(process.argv[2] ?? 500);
const seed = Number(process.argv[3] ?? Math.floor(Math.random() * 1e6));
const SOURCES = 30;
const POLLED_AGAIN_WITHIN_MS = 15_000;
const COMMAND_EVERY_MS = 700;
const REST_MS = 30_000;
const OUTPUT_TAIL_CHARACTERS = 6_000;

if (["postgres", "mosquitto", "faketime"].some((program) => absent(program as "postgres"))) process.exit(1);
const ending = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => ending.abort());
const beginMs = performance.now();
const minutes = () => ((performance.now() - beginMs) / 60_000).toFixed(1);
console.log(
  `seed ${seed}, ${takeovers} takeovers with ${SOURCES} sources; ${availableParallelism()} cores, ${Math.round(totalmem() / 2 ** 30)} GiB, Node ${process.version}`,
);
const report = await runTakeovers({
  seed,
  sources: SOURCES,
  takeovers,
  graceMs: POLLED_AGAIN_WITHIN_MS,
  commandEveryMs: COMMAND_EVERY_MS,
  commandTtlS: 30,
  sweep: "*/20 * * * * *",
  pauseMs: REST_MS,
  print: (line) => console.log(`${minutes().padStart(5)} min  ${line}`),
  signal: ending.signal,
});
console.log("");
for (const [name, figure] of [
  ["faults", String(report.faults)] as const,
  ...report.figures,
  ["minutes", minutes()] as const,
])
  console.log(`  ${name.padEnd(52)} ${figure}`);
if (report.problems.length > 0) {
  process.exitCode = 1;
  console.log(`\n${report.story.join("\n")}`);
  for (const [name, output] of report.output) console.log(`\n--- ${name}\n${output.slice(-OUTPUT_TAIL_CHARACTERS)}`);
  console.log("");
  for (const problem of report.problems) console.log(`! ${problem}`);
  console.log(`\nreplay: npm run fleet:long ${takeovers} ${seed}`);
} else console.log("\nAll of it holds.");
