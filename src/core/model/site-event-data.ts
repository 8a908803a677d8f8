import type { Site } from "./building.ts";

export type SiteStatus = "online" | "degraded" | "offline";

/** Whether values of a site can be read now. Emitted for each site at the first inventory, then at each change. */
export interface SiteStatusFact {
  readonly site: Site;
  /**
   * `offline`: the service is unavailable, the token does not see the site, or all gateways of the site are offline.
   * `degraded`: some gateways are offline. Else `online`.
   */
  readonly status: SiteStatus;
  /** Why, for a person; null while the site is online. */
  readonly reason: string | null;
  /** Time since when the site has this status, UTC. */
  readonly since: string;
}
