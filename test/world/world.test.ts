import { describeCampaign } from "../campaign/suite.ts";
import failedSeeds from "./failed-seeds.json" with { type: "json" };

describeCampaign("the simulation of the complete system", {
  campaign: new URL("campaign.ts", import.meta.url),
  script: "world",
  failedSeeds,
  seeds: 10,
  seedsInCi: 40,
  leastRequests: 200,
});
