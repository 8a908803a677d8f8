import { formatWordSuggestion } from "./spelling-suggestion.ts";
import { valueOr } from "./value-or-fallback.ts";

/** Returns a sentence about an invalid time zone; null for a valid one. */
export function describeTimeZoneProblem(zone: string): string | null {
  const ianaZone = resolveTimeZoneName(zone);
  // Offsets such as +01:00 are rejected, because they have no daylight saving time.
  if (ianaZone === null || !/^[A-Za-z]/.test(zone))
    return `\`${zone}\` is not a time zone; write an IANA name such as Europe/Stockholm.${suggestTimeZone(zone)}`;
  // Node.js ignores upper and lower case in zone names, but some services do not.
  if (ianaZone !== zone && ianaZone.toLowerCase() === zone.toLowerCase()) return `Write the time zone as ${ianaZone}.`;
  return null;
}

const resolveTimeZoneName = (zone: string): string | null =>
  valueOr(() => new Intl.DateTimeFormat("en", { timeZone: zone }).resolvedOptions().timeZone, null);

function suggestTimeZone(zone: string): string {
  const zoneNames = Intl.supportedValuesOf("timeZone");
  const cityZone = zoneNames.find((zoneName) =>
    zoneName.toLowerCase().endsWith(`/${zone.toLowerCase().replaceAll(" ", "_")}`),
  );
  if (cityZone !== undefined) return ` Did you mean ${cityZone}?`;
  const similarZone = zone.includes("/") ? formatWordSuggestion(zone, zoneNames) : "";
  return similarZone.startsWith(" Did") ? similarZone : "";
}
