import "./alone.ts";
import type { Campaign } from "./campaign.ts";
import type { Report, Wanted } from "./players.ts";

/**
 * Child process that plays seeds of one campaign for `playAll`: `player.ts <module>`. A rejection ends it and the run.
 */
const { campaign } = (await import(process.argv[2] ?? "")) as { readonly campaign: Campaign };

process.on("message", (wanted: Wanted) => {
  void play(wanted).then((report) => process.send?.(report));
});
process.on("disconnect", () => process.exit());

async function play({ seed, twice }: Wanted): Promise<Report> {
  const before = process.cpuUsage();
  const result = await campaign(seed);
  const { user, system } = process.cpuUsage(before);
  const same = !twice || (await campaign(seed)).digest === result.digest;
  return { seed, same, tookMs: (user + system) / 1_000, ...result };
}
