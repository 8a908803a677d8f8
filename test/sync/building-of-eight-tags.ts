import type { VisibleBuilding } from "#src/engine/sync/selectors-without-match.ts";

const tag = (id: string, displayName: string, unit: string | null, siteId = 1, systemIds: string[] = []) => ({
  tag: { id, displayName, description: null, unit },
  siteId,
  systemIds,
});

/** Eight tags at two of three sites, for what a configuration means in a building. */
export const BUILDING: VisibleBuilding = {
  sites: [
    { id: 1, displayName: "School" },
    { id: 6, displayName: "Town hall" },
    { id: 7, displayName: "Bath" },
  ],
  followed: [1, 6],
  tags: [
    tag("101", "360.001-RT401", "°C", 1, ["12"]),
    tag("102", "360.001-RT402", "°C", 1, ["12"]),
    tag("103", "360.001-RT501", "°C", 6),
    tag("104", "360.001-MR401", "%"),
    tag("105", "360.001-LR401", "m³"),
    tag("106", "OE001_Energi", "kWh", 6),
    tag("107", "OE002_Energi", "kWh", 6),
    tag("108", "JV401_State", null),
  ],
  systems: [
    { id: "12", name: "360.001 Ventilation" },
    { id: "13", name: "320.002 Heating" },
  ],
  gateways: [{ id: "3", name: "GW-1", siteId: 1 }],
  valueTypes: new Map([
    ["101", "number"],
    ["108", "boolean"],
  ]),
};
