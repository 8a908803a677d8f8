import { runCampaign } from "./campaign.ts";

/**
 * The long run: `node test/commands/long.ts [commands] [seed]`, 1,000,000 unless told otherwise, in campaigns of
 * 20,000 with a seed each. Ends with 1 and the seed when anything happened that must not.
 */
const [total = "1000000", first = `${Date.now() % 1_000_000}`] = process.argv.slice(2);
const EACH = 20_000;
let commands = 0;
let writes = 0;
for (let seed = Number(first); commands < Number(total); seed += 1) {
  const report = await runCampaign({ seed, commands: Math.min(EACH, Number(total) - commands) });
  commands += report.commands;
  writes += report.writes;
  process.stdout.write(
    `seed ${seed}: ${commands} commands so far, ${writes} writes, ${report.restarts} restarts in this one\n`,
  );
  if (report.violations.length > 0) {
    process.stdout.write(`${report.violations.slice(0, 20).join("\n")}\n`);
    process.exit(1);
  }
}
