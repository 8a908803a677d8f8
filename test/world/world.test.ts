import { describeCampaign } from "../campaign/suite.ts";
import kept from "./kept-seeds.json" with { type: "json" };

/**
 * Everything at once, from one seed (test/world/README.md): what the service, the far ends, people, the clock, the disk
 * and the process do to the whole worker, and docs/promise.md judged at the far ends.
 */
describeCampaign("the world simulation", {
  campaign: new URL("campaign.ts", import.meta.url),
  script: "world",
  kept,
  seeds: 10,
  seedsInCi: 40,
  leastRequests: 200,
});
