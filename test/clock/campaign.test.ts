import { describeCampaign } from "../campaign/suite.ts";
import kept from "./kept-seeds.json" with { type: "json" };

/**
 * Whatever happens to the wall clock: alarms are polled and values read within two intervals, no event is dropped, no
 * command is written after its life or in doubt, the quota is kept, and nothing spins.
 */
describeCampaign("a wall clock that is set at random", {
  campaign: new URL("campaign.ts", import.meta.url),
  script: "clock:long",
  kept,
  seeds: 2,
  seedsInCi: 10,
  leastRequests: 100,
});
