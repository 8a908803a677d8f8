import { type Mismatch, type SeenBuilding, siteMismatches, some } from "./building.ts";

/** What an entry of `commands.allow` says of its tag. */
export interface WritableTag {
  readonly type: "number" | "boolean";
  readonly site_id: number;
  readonly tag_id: string;
  readonly unit?: string | undefined;
  readonly gateway_id?: string | undefined;
}

/** Why nothing could ever be written by an entry of `commands.allow`; empty where the building has such a tag. */
export function writableMismatches(entry: WritableTag, building: SeenBuilding): readonly Mismatch[] {
  const { site_id: siteId, tag_id: id } = entry;
  const found = building.tags.find(({ tag }) => tag.id === id);
  if (found === undefined) {
    const [unseen] = siteMismatches([siteId], building);
    if (unseen !== undefined) return [{ path: ["site_id"], message: unseen.message }];
    return [{ path: ["tag_id"], message: `There is no tag ${id} at any site that is followed.` }];
  }
  return [...wrongPlace(entry, found.siteId, building), ...wrongKind(entry, found.tag.unit, building)];
}

function wrongPlace(
  { site_id: siteId, tag_id: id, gateway_id: gatewayId }: WritableTag,
  realId: number | null,
  { sites, gateways }: SeenBuilding,
): readonly Mismatch[] {
  if (realId !== siteId) {
    const name = sites.find((site) => site.id === realId)?.displayName;
    const message = `Tag ${id} is at site ${realId}${name === undefined ? "" : ` (${name})`}, not ${siteId}: write site_id: ${realId}.`;
    return [{ path: ["site_id"], message }];
  }
  const there = gateways?.filter((gateway) => gateway.siteId === siteId) ?? null;
  if (gatewayId === undefined || there === null || there.some((gateway) => gateway.id === gatewayId))
    return [];
  const known =
    there.length === 0
      ? "it has none"
      : `there are ${some(there.map((each) => `${each.id} (${each.name})`))}`;
  return [{ path: ["gateway_id"], message: `Site ${siteId} has no gateway ${gatewayId}; ${known}.` }];
}

function wrongKind(
  { tag_id: id, unit, type }: WritableTag,
  realUnit: string | null,
  { types }: SeenBuilding,
): readonly Mismatch[] {
  const read = types.get(id);
  return [
    ...(unit === undefined || unit === realUnit
      ? []
      : [
          {
            path: ["unit"],
            message: `Tag ${id} has ${realUnit === null ? "no unit" : `the unit "${realUnit}"`}, not "${unit}".`,
          },
        ]),
    ...(read === undefined || read === type
      ? []
      : [{ path: ["type"], message: `Tag ${id} was read as a ${read}: write type: ${read}.` }]),
  ];
}
