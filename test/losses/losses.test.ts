import { describeCampaign } from "../campaign/suite.ts";
import kept from "./kept-seeds.json" with { type: "json" };

/**
 * Random losses against the whole worker: scope, abilities, permissions, views, tokens, gateways, tags and endpoints
 * are taken away and given back, during live reads and backfills, across restarts. Whatever happens, every point that
 * could be had is had once, every other span is named, nobody else is late, nobody healthy is set aside, the service
 * is not flooded and no age is flattered (test/losses/README.md).
 */
describeCampaign("random losses", {
  campaign: new URL("campaign.ts", import.meta.url),
  script: "history:long",
  kept,
  seeds: 3,
  seedsInCi: 20,
  leastRequests: 200,
});
