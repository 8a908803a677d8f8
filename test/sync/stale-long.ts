import { runCampaign } from "../campaign/run-campaign.ts";

/** A seed plays 10.75 hours. */
const SEEDS = "931";
process.argv[2] ??= SEEDS;

/** Judges stale values for 10,000 simulated hours on every core (`npm run stale:long`). */
await runCampaign({
  campaign: new URL("stale-campaign.ts", import.meta.url),
  script: "stale:long",
  failedSeeds: new URL("stale-failed-seeds.json", import.meta.url),
});
