import { runCampaign } from "../campaign/run-campaign.ts";

await runCampaign({
  campaign: new URL("campaign.ts", import.meta.url),
  script: "world",
  failedSeeds: new URL("failed-seeds.json", import.meta.url),
  ratio: { of: "messages", to: "causes of messages", most: 1.05 },
});
