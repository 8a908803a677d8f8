import { formatSuggestion } from "./spelling-suggestion.ts";

/** One sentence on an invalid time zone for the `tz` of a history request; null when it is valid. */
export function describeZoneProblem(zone: string): string | null {
  const zoneName = resolveZoneName(zone);
  // An offset has no daylight saving time.
  if (zoneName === null || !/^[A-Za-z]/.test(zone))
    return `\`${zone}\` is not a time zone; write an IANA name such as Europe/Stockholm.${suggestZone(zone)}`;
  // Node.js ignores upper and lower case in zone names, but some services do not.
  if (zoneName !== zone && zoneName.toLowerCase() === zone.toLowerCase()) return `Write the time zone as ${zoneName}.`;
  return null;
}

function resolveZoneName(zone: string): string | null {
  try {
    return new Intl.DateTimeFormat("en", { timeZone: zone }).resolvedOptions().timeZone;
  } catch {
    return null;
  }
}

function suggestZone(zone: string): string {
  const zones = Intl.supportedValuesOf("timeZone");
  const cityZone = zones.find((each) => each.toLowerCase().endsWith(`/${zone.toLowerCase().replaceAll(" ", "_")}`));
  if (cityZone !== undefined) return ` Did you mean ${cityZone}?`;
  const similarZone = zone.includes("/") ? formatSuggestion(zone, zones) : "";
  return similarZone.startsWith(" Did") ? similarZone : "";
}
