import { describeCampaign } from "../campaign/suite.ts";
import kept from "./kept-seeds.json" with { type: "json" };

/**
 * Simulations of the complete worker with faults of service, sinks, people, clock, disk and process, judged by
 * docs/promise.md; see test/world/README.md.
 */
describeCampaign("the world simulation", {
  campaign: new URL("campaign.ts", import.meta.url),
  script: "world",
  kept,
  seeds: 10,
  seedsInCi: 40,
  leastRequests: 200,
});
