import { jsonReply, type SimReply } from "../exchange.ts";
import type { SimulatorOptions } from "../options.ts";
import { siteRecord, utc } from "../records.ts";
import { maySeeSite } from "../tokens.ts";
import type { Endpoint } from "./endpoint.ts";

export const me: Endpoint = {
  name: "me",
  method: "GET",
  path: "/api/v1/me",
  scoped: false,
  limited: false,
  answer({ scene, token }) {
    const sites = [...scene.world.sites.values()]
      .filter((site) => scene.inventory.exists("sites", site.id) && maySeeSite(token, site.id))
      .map((site) => siteRecord(scene, site));
    const { name, abilities, expiresAtMs } = token;
    return jsonReply(200, {
      data: { user: token.user, token: { name, abilities, expires_at: utc(expiresAtMs), sites } },
    });
  },
};

export const HEALTH_PATH = "/api/v1/healthcheck";

const HEALTH_HEADERS = {
  "x-ratelimit-limit": "60",
  "x-ratelimit-remaining": "59",
  "x-content-type-options": "nosniff",
  "x-frame-options": "DENY",
  "strict-transport-security": "max-age=31536000; includeSubDomains",
};

const HEALTH_STATUS = { healthy: 200, failing_500: 500, failing_503: 503, unhealthy_200: 200 } as const;

/** Needs no token, counts against no limit of the tag endpoints. */
export function healthReply(health: SimulatorOptions["health"], nowMs: number): SimReply {
  const status = health === "healthy" ? "healthy" : "unhealthy";
  return jsonReply(HEALTH_STATUS[health], { status, timestamp: utc(nowMs) }, HEALTH_HEADERS);
}
