import type { Tag } from "../../../src/core/model/building.ts";
import type { EventData } from "../../../src/core/model/event.ts";
import type { RowCells } from "./table-model.ts";

export function tagCells({ id, displayName, description, unit, alias, path, unitCode }: Tag): RowCells {
  return {
    ...{ tag_id: id, name: displayName, description, unit, unit_ucum: toUcumCode(unit) },
    ...{ alias: alias ?? null, path: path ?? null, unit_code: unitCode ?? null },
  };
}

export function siteCells({ site }: EventData["site-added"]): RowCells {
  return { site_id: String(site.id), name: site.displayName };
}

export function systemCells({ system }: EventData["system-added"]): RowCells {
  return {
    system_id: system.id,
    code: system.code,
    name: system.displayName,
    discipline: system.discipline,
    description: system.description,
    location: system.location,
    manufacturer: system.manufacturer,
    installed_year: system.installedYear,
    maintenance_notes: system.maintenanceNotes,
    datapoints_count: system.datapointsCount,
  };
}

/** Returns a row for each current system of the tag and for each system that the tag left. */
export function tagSystemCells({ systems, before }: EventData["tag-systems-changed"]): readonly RowCells[] {
  const now = new Set(systems.map(({ id }) => id));
  const formerSystemIds = before.filter((id) => !now.has(id));
  return [
    ...[...now].map((id) => ({ system_id: id, is_current: true })),
    ...formerSystemIds.map((id) => ({ system_id: id, is_current: false })),
  ];
}

export function gatewayCells({ gateway }: EventData["gateway-added"]): RowCells {
  return {
    gateway_id: gateway.id,
    name: gateway.displayName,
    version: gateway.version,
    hardware: gateway.hardware,
    ip_address: gateway.ipAddress,
    location: gateway.location,
  };
}

export function hostCells({ host }: EventData["host-added"]): RowCells {
  return {
    host_id: host.id,
    name: host.displayName,
    description: host.description,
    type: host.type,
    model_name: host.modelName,
    ip: host.ip,
    mac_address: host.macAddress,
    gateway_id: host.gateway === null ? null : String(host.gateway.id),
  };
}

const UNITS_SAME_IN_UCUM = new Set(
  [
    "K % Pa hPa kPa MPa bar mbar W kW MW kJ MJ GJ V mV kV mA Hz",
    "m mm cm km m2 m3 L m/s km/h m3/h m3/s L/s L/min L/h mm/h W/m2",
    "kg g/kg ug/m3 kJ/kg lx dB s ms min h",
  ].flatMap((line) => line.split(" ")),
);

/**
 * Codes in the Unified Code for Units of Measure (https://ucum.org/ucum) of units as people write them. Ambiguous
 * units are missing: `C` may mean coulombs.
 */
const UCUM_CODE_BY_UNIT = new Map([
  ["°C", "Cel"],
  ["ºC", "Cel"],
  ["degC", "Cel"],
  ["°F", "[degF]"],
  ["%RH", "%"],
  ["% RH", "%"],
  ["ppm", "[ppm]"],
  ["ppb", "[ppb]"],
  ["Wh", "W.h"],
  ["kWh", "kW.h"],
  ["MWh", "MW.h"],
  ["GWh", "GW.h"],
  ["VA", "V.A"],
  ["kVA", "kV.A"],
  ["m²", "m2"],
  ["m³", "m3"],
  ["l", "L"],
  ["m³/h", "m3/h"],
  ["m³/s", "m3/s"],
  ["l/s", "L/s"],
  ["l/min", "L/min"],
  ["l/h", "L/h"],
  ["W/m²", "W/m2"],
  ["kWh/m²", "kW.h/m2"],
  ["kWh/m2", "kW.h/m2"],
  ["g/m³", "g/m3"],
  ["µg/m³", "ug/m3"],
  ["μg/m³", "ug/m3"],
  ["lux", "lx"],
  ["°", "deg"],
  ["pH", "[pH]"],
]);

/** Converts a unit to its UCUM code; null for an ambiguous unit. */
export function toUcumCode(unit: string | null): string | null {
  const trimmedUnit = unit?.trim() ?? "";
  return UNITS_SAME_IN_UCUM.has(trimmedUnit) ? trimmedUnit : (UCUM_CODE_BY_UNIT.get(trimmedUnit) ?? null);
}
