import { describeCampaign } from "../campaign/suite.ts";
import failedSeeds from "./failed-seeds.json" with { type: "json" };

describeCampaign("random losses of permissions, tags and endpoints", {
  campaign: new URL("campaign.ts", import.meta.url),
  script: "history:long",
  failedSeeds,
  seeds: 3,
  seedsInCi: 20,
  leastRequests: 200,
});
