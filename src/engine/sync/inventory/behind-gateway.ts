import type { Alarm, Gateway, Host } from "../../../core/model/building.ts";
import type { Listed } from "../snapshot.ts";

/**
 * Returns which offline gateway explains an alarm. The interface links no alarm to a gateway, so there are two kinds of
 * evidence: the alarm's source, or that of its last active event, is word for word the display name of a gateway or of
 * hosts of the same site, and all of them are behind one gateway that is offline; or the only gateway of the site is
 * offline (`onlyOffline`). Without either the answer is null.
 *
 * A host names its gateway itself. A tag names neither gateway nor host, and no list filters by either. The search of
 * tags "matches display name, description, host interface, unit": a text that a found tag has in none of the other
 * three must have matched its host interface. But the interface does not say what that text is (a name, an address, a
 * port), it matches parts of words, and it would take a request for every host each time; a wrong link would mark good
 * values as doubtful. So it is not asked, and values are marked by `offlineGateways` only.
 */
export function behindGateway(
  gateways: ReadonlyMap<string, Listed<Gateway>>,
  hosts: ReadonlyMap<string, Listed<Host>>,
  /** The gateway of a site that has only one, while it is known to be offline. */
  onlyOffline: (siteId: number) => string | null = () => null,
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
    return onlyOffline(alarm.site.id);
  };
}

/** The hosts that name this gateway as theirs, by name; those that were not in the last list are left out. */
export function hostsBehind(
  hosts: ReadonlyMap<string, Listed<Host>>,
  gatewayId: string,
): readonly { readonly id: string; readonly displayName: string }[] {
  return [...hosts.values()]
    .filter((held) => held.missingSince === null && String(held.value.gateway?.id) === gatewayId)
    .map(({ value: { id, displayName } }) => ({ id, displayName }))
    .sort((a, b) => (a.displayName < b.displayName ? -1 : 1));
}

/**
 * The gateway behind which every tag of a site is, where the site has only one, while that one is offline: values are
 * read "from devices through a gateway" (interface), so no other can have read them. Other sites are left out.
 */
export function offlineGateways(gateways: ReadonlyMap<string, Listed<Gateway>>): ReadonlyMap<number, string> {
  const present = [...gateways.values()].filter((held) => held.missingSince === null);
  const bySite = Map.groupBy(present, (held) => held.siteId);
  const offline = new Map<number, string>();
  for (const [siteId, [only, ...others]] of bySite) {
    if (siteId !== null && only?.value.online === false && others.length === 0) offline.set(siteId, only.value.id);
  }
  return offline;
}

/** Whether a site has exactly one gateway, and it is not known to be offline. */
export function hasOnlyOneOnline(gateways: ReadonlyMap<string, Listed<Gateway>>, siteId: number): boolean {
  const here = [...gateways.values()].filter((held) => held.siteId === siteId && held.missingSince === null);
  return here.length === 1 && here[0]?.value.online !== false;
}

/** Whether any gateway of a site is known to be offline. */
export function hasOffline(gateways: ReadonlyMap<string, Listed<Gateway>>, siteId: number): boolean {
  return gateways
    .values()
    .some((held) => held.siteId === siteId && held.value.online === false && held.missingSince === null);
}
