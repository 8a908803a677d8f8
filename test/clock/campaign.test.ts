import { describeCampaign } from "../campaign/suite.ts";
import failedSeeds from "./failed-seeds.json" with { type: "json" };

describeCampaign("a wall clock that is set at random", {
  campaign: new URL("campaign.ts", import.meta.url),
  script: "clock:long",
  failedSeeds,
  seeds: 2,
  seedsInCi: 10,
  leastRequests: 100,
});
