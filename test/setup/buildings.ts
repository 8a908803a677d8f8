import { buildConfigurationValues } from "#src/cli/running/write-first-configuration.ts";
import { errorText } from "#src/core/errors/errors.ts";
import type { Alarm, Tag, TokenInfo } from "#src/core/model/building.ts";
import { type BuildingSummary, summarizeBuilding } from "#src/ui/setup/building-inspection.ts";

export const NOW = Date.parse("2026-11-02T12:00:00Z");
export const TOKEN: TokenInfo = {
  user: { id: 1, name: "Kari Nordmann", email: "kari@example.com" },
  name: "Plenum",
  abilities: ["read:alarms", "read:tags", "read:gateways", "read:hosts", "read:systems"],
  expiresAt: "2027-11-02T12:00:00Z",
  sites: [{ id: 1, displayName: "Kvarnholmen 4" }],
};

export const CONFIGURATION_VALUES = buildConfigurationValues("plenum.yaml", 9850, {
  ...{ name: "campus", baseUrl: "https://monitoring.example.com", allowPlainHttp: false, caFile: null },
  ...{ tokenFile: "secrets/token", timeZone: "Europe/Oslo", mqttUrl: null },
});

export const HISTORY = { resolution: "1h", backfillDays: 7 } as const;

/** The given number of tags of each unit. */
export const tagsOf = (units: Readonly<Record<string, number>>): readonly Tag[] =>
  Object.entries(units).flatMap(([unit, count]) =>
    Array.from({ length: count }, (_, n) => ({
      ...{ id: `${unit}${n}`, displayName: "t", description: null, unit: unit === "" ? null : unit },
    })),
  );

export const sitesNamed = (...names: readonly string[]) =>
  names.map((displayName, index) => ({ id: index + 1, displayName }));

/** A building whose first site has the given number of tags of each unit. */
export function buildingWith(
  units: Readonly<Record<string, number>>,
  token: Partial<TokenInfo> = {},
  alarms: readonly Alarm[] = [],
): BuildingSummary {
  const listed = tagsOf(units);
  return summarizeBuilding({
    token: { ...TOKEN, ...token },
    tagsBySite: new Map([[1, { total: listed.length, items: listed }]]),
    systems: [],
    alarms: { total: alarms.length, items: alarms },
  });
}

/** Text of the error that the work throws; empty if it throws none. */
export function thrownText(work: () => void): string {
  try {
    work();
  } catch (error) {
    return errorText(error);
  }
  return "";
}
