import { runCampaign } from "../campaign/run-campaign.ts";

await runCampaign({
  campaign: new URL("campaign.ts", import.meta.url),
  script: "history:long",
  failedSeeds: new URL("failed-seeds.json", import.meta.url),
});
