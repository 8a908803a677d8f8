import { runCampaign } from "../campaign/run-campaign.ts";

/** A thousand random wall clocks on every core (`npm run clock:long`). */
await runCampaign({
  campaign: new URL("campaign.ts", import.meta.url),
  script: "clock:long",
  failedSeeds: new URL("failed-seeds.json", import.meta.url),
});
