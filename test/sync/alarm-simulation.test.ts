import { describeCampaign } from "../campaign/suite.ts";
import failedSeeds from "./failed-seeds.json" with { type: "json" };

describeCampaign("random schedules of alarm polls", {
  campaign: new URL("alarm-simulation.ts", import.meta.url),
  script: "simulate:long",
  failedSeeds,
  seeds: 20,
  seedsInCi: 60,
  leastRequests: 50,
});
