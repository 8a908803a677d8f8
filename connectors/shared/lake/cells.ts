import type { Tag } from "../../../src/core/model/building.ts";
import type { EventData } from "../../../src/core/model/event.ts";
import type { Cells } from "./table.ts";

export function tagCells({ id, displayName, description, unit }: Tag): Cells {
  return { tag_id: id, name: displayName, description, unit, unit_ucum: ucumOf(unit) };
}

export function siteCells({ site }: EventData["site-added"]): Cells {
  return { site_id: String(site.id), name: site.displayName };
}

export function systemCells({ system }: EventData["system-added"]): Cells {
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

/** Returns a row for each current system of the tag, and one for each system that it left. */
export function systemsCells({ systems, before }: EventData["tag-systems-changed"]): readonly Cells[] {
  const now = new Set(systems.map(({ id }) => id));
  const left = before.filter((id) => !now.has(id));
  return [
    ...[...now].map((id) => ({ system_id: id, is_current: true })),
    ...left.map((id) => ({ system_id: id, is_current: false })),
  ];
}

export function gatewayCells({ gateway }: EventData["gateway-added"]): Cells {
  return {
    gateway_id: gateway.id,
    name: gateway.displayName,
    version: gateway.version,
    hardware: gateway.hardware,
    ip_address: gateway.ipAddress,
    location: gateway.location,
  };
}

export function hostCells({ host }: EventData["host-added"]): Cells {
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

/**
 * Units as people write them, and their codes in the Unified Code for Units of Measure (case sensitive,
 * https://ucum.org/ucum). Only unambiguous units: `C` may mean coulombs, `M3` anything.
 */
const CODES: Readonly<Record<string, string>> = {
  "°C": "Cel",
  ºC: "Cel",
  degC: "Cel",
  "°F": "[degF]",
  K: "K",
  "%": "%",
  "%RH": "%",
  "% RH": "%",
  ppm: "[ppm]",
  ppb: "[ppb]",
  Pa: "Pa",
  hPa: "hPa",
  kPa: "kPa",
  MPa: "MPa",
  bar: "bar",
  mbar: "mbar",
  W: "W",
  kW: "kW",
  MW: "MW",
  Wh: "W.h",
  kWh: "kW.h",
  MWh: "MW.h",
  GWh: "GW.h",
  kJ: "kJ",
  MJ: "MJ",
  GJ: "GJ",
  VA: "V.A",
  kVA: "kV.A",
  V: "V",
  mV: "mV",
  kV: "kV",
  mA: "mA",
  Hz: "Hz",
  m: "m",
  mm: "mm",
  cm: "cm",
  km: "km",
  "m²": "m2",
  m2: "m2",
  "m³": "m3",
  m3: "m3",
  l: "L",
  L: "L",
  "m/s": "m/s",
  "km/h": "km/h",
  "m³/h": "m3/h",
  "m3/h": "m3/h",
  "m³/s": "m3/s",
  "m3/s": "m3/s",
  "l/s": "L/s",
  "L/s": "L/s",
  "l/min": "L/min",
  "L/min": "L/min",
  "l/h": "L/h",
  "L/h": "L/h",
  "mm/h": "mm/h",
  "W/m²": "W/m2",
  "W/m2": "W/m2",
  "kWh/m²": "kW.h/m2",
  "kWh/m2": "kW.h/m2",
  kg: "kg",
  "g/kg": "g/kg",
  "g/m³": "g/m3",
  "µg/m³": "ug/m3",
  "μg/m³": "ug/m3",
  "ug/m3": "ug/m3",
  "kJ/kg": "kJ/kg",
  lx: "lx",
  lux: "lx",
  dB: "dB",
  s: "s",
  ms: "ms",
  min: "min",
  h: "h",
  "°": "deg",
  pH: "[pH]",
};

/** UCUM code of a unit; null where it is ambiguous. */
export function ucumOf(unit: string | null): string | null {
  if (unit === null) return null;
  const known = unit.trim();
  return Object.hasOwn(CODES, known) ? (CODES[known] ?? null) : null;
}
