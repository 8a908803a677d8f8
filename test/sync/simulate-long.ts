import { runCampaign } from "../campaign/run-campaign.ts";

/** Ten thousand random schedules of the alarm feed on every core (`npm run simulate:long`). */
await runCampaign({
  campaign: new URL("alarm-simulation.ts", import.meta.url),
  script: "simulate:long",
  failedSeeds: new URL("failed-seeds.json", import.meta.url),
});
