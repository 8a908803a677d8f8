import { runCampaign } from "../campaign/run-campaign.ts";

await runCampaign({
  campaign: new URL("campaign.ts", import.meta.url),
  script: "history:long",
  kept: new URL("kept-seeds.json", import.meta.url),
});
