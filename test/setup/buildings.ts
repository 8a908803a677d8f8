import type { Alarm, Tag, TokenInfo } from "#src/core/model/building.ts";
import { type SeenBuilding, seenBuilding } from "#src/ui/setup/seen.ts";

export const ABILITIES = ["read:alarms", "read:tags", "read:gateways", "read:hosts", "read:systems"];

export const TOKEN: TokenInfo = {
  user: { id: 1, name: "Kari Nordmann", email: "kari@example.com" },
  name: "Plenum",
  abilities: ABILITIES,
  expiresAt: "2027-11-02T12:00:00Z",
  sites: [{ id: 1, displayName: "Kvarnholmen 4" }],
};

export const tagsOf = (units: Readonly<Record<string, number>>): readonly Tag[] =>
  Object.entries(units).flatMap(([unit, count]) =>
    Array.from({ length: count }, (_, n) => ({
      id: `${unit}${n}`,
      displayName: "t",
      description: null,
      unit: unit === "" ? null : unit,
    })),
  );

/** A building with one site, and so many tags of each unit. */
export function seenWith(
  units: Readonly<Record<string, number>>,
  token: Partial<TokenInfo> = {},
  alarms: readonly Alarm[] = [],
): SeenBuilding {
  const listed = tagsOf(units);
  return seenBuilding({
    token: { ...TOKEN, ...token },
    tagsOf: new Map([[1, { total: listed.length, listed }]]),
    systems: [],
    alarms: { total: alarms.length, listed: alarms },
  });
}
