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
