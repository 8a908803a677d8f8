import type { Alarm, Gateway, Host } from "../building.ts";
import type { Held } from "./snapshot.ts";

/**
 * Which offline gateway explains an alarm. The interface links no alarm to a gateway, so there is evidence only
 * where the alarm's source, or that of its last active event, is word for word the display name of a gateway or of
 * hosts of the same site, and all of them hang on one gateway that is known to be offline. Otherwise nobody guesses.
 */
export function behindGateway(
  gateways: ReadonlyMap<string, Held<Gateway>>,
  hosts: ReadonlyMap<string, Held<Host>>,
): (alarm: Alarm) => string | null {
  const offline = new Set(
    [...gateways.values()]
      .filter((held) => held.value.online === false && held.missingSince === null)
      .map((held) => held.value.id),
  );
  if (offline.size === 0) return () => null;

  const gatewaysByName = new Map<string, Set<string>>();
  const note = (siteId: number | null, name: string, gatewayId: string) => {
    const key = `${siteId} ${name}`;
    const ids = gatewaysByName.get(key) ?? new Set();
    gatewaysByName.set(key, ids.add(gatewayId));
  };
  for (const held of gateways.values()) note(held.siteId, held.value.displayName, held.value.id);
  for (const held of hosts.values()) {
    if (held.value.gateway !== null && held.missingSince === null) {
      note(held.siteId, held.value.displayName, String(held.value.gateway.id));
    }
  }

  return (alarm) => {
    for (const name of [alarm.source, alarm.lastActiveEvent?.source]) {
      const [only, ...others] = gatewaysByName.get(`${alarm.site.id} ${name}`) ?? [];
      if (only !== undefined && others.length === 0 && offline.has(only)) return only;
    }
    return null;
  };
}
