import { parseArgs } from "node:util";
import { seed } from "../seed.ts";
import { runBrokerCampaign } from "./broker/campaign.ts";
import { runCampaign } from "./campaign.ts";

/** `node test/commands/long.ts [commands] [seed] [--mosquitto]`; exit code 1 prints the seed of a violation. */
const { values, positionals } = parseArgs({
  options: { mosquitto: { type: "boolean", default: false } },
  allowPositionals: true,
});
const [total = "1000000", first = String(seed)] = positionals;
const print = (text: string) => void process.stdout.write(`${text}\n`);

function judge(violations: readonly string[]): void {
  if (violations.length === 0) return;
  print(violations.slice(0, 20).join("\n"));
  process.exit(1);
}

if (values.mosquitto) {
  print(`seed ${first}`);
  const report = await runBrokerCampaign({ seed: Number(first), messages: Number(total), print });
  print(JSON.stringify({ ...report, violations: report.violations.length }, null, 2));
  judge(report.violations);
} else {
  const EACH = 20_000;
  let commands = 0;
  let writes = 0;
  for (let next = Number(first); commands < Number(total); next += 1) {
    const report = await runCampaign({ seed: next, commands: Math.min(EACH, Number(total) - commands) });
    commands += report.commands;
    writes += report.writes;
    print(`seed ${next}: ${commands} commands so far, ${writes} writes, ${report.restarts} restarts in this one`);
    judge(report.violations);
  }
}
