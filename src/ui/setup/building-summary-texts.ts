import { DateTime } from "luxon";
import { formatCount } from "../../core/values/plural.ts";
import type { BuildingSummary } from "./building-inspection.ts";

const DAY_MS = 86_400_000;
const EXPIRY_WARNING_DAYS = 30;
const MAX_SITES_SHOWN = 8;
const MAX_SYSTEMS_SHOWN = 5;

export function buildingSummaryLines(building: BuildingSummary, nowMs: number): readonly string[] {
  const { alarms, sites, token } = building;
  const tagSuffix = (tags: number | null) => (tags === null ? "" : `, ${formatCount(tags, "tag")}`);
  const systemTexts = building.systems
    .filter(({ tags }) => tags > 0)
    .slice(0, MAX_SYSTEMS_SHOWN)
    .map(({ code, displayName, tags }) => `${code} ${displayName} (${tags})`);
  return [
    "",
    `${tokenText(building, nowMs)}; abilities: ${token.abilities.join(", ")}.`,
    `${formatCount(sites.length, "site")}:`,
    ...sites.slice(0, MAX_SITES_SHOWN).map(({ id, displayName, tags }) => `  ${id}  ${displayName}${tagSuffix(tags)}`),
    ...(MAX_SITES_SHOWN < sites.length ? [`  and ${sites.length - MAX_SITES_SHOWN} more`] : []),
    `${tagUnitsText(building)}${alarms === null ? "" : `, ${formatCount(alarms, "active alarm")}`}.`,
    ...(systemTexts.length === 0 ? [] : [`Largest systems: ${systemTexts.join(", ")}.`]),
    ...buildingWarnings(building),
    "",
  ];
}

export function buildingWarnings({ isEstimate, listed, tags, token, sites }: BuildingSummary): readonly string[] {
  const hasAbility = (ability: string) => token.abilities.includes(ability);
  const siteText = sites.length === 1 ? "this site" : `these ${sites.length} sites`;
  return [
    isEstimate && `${listed} tags were looked at; units and numbers of the others are assumed to be alike.`,
    !hasAbility("read:tags") && "The token may not read tags (read:tags): alarms are followed, and no value is read.",
    !hasAbility("read:alarms") &&
      "The token may not read alarms (read:alarms): values are read, and no alarm is followed.",
    hasAbility("read:tags") &&
      tags === 0 &&
      `There is no tag in ${siteText}: a user who has permission for components only sees tags through the views.`,
    hasAbility("write:tags") && "The token may write tags. Writing stays off; a token without write:tags is safer.",
  ].filter((warning) => warning !== false);
}

/** Returns a text such as `Token "Plenum" of Kari Nordmann, valid until 2027-11-02`. */
export function tokenText({ token }: Pick<BuildingSummary, "token">, nowMs: number): string {
  const ownerText = `Token "${token.name}" of ${token.user.name}`;
  if (token.expiresAt === null) return `${ownerText}, which never expires`;
  const days = Math.floor((Date.parse(token.expiresAt) - nowMs) / DAY_MS);
  const date = token.expiresAt.slice(0, 10);
  return days >= EXPIRY_WARNING_DAYS
    ? `${ownerText}, valid until ${date}`
    : `${ownerText}, which expires in ${formatCount(days, "day")} (${date})`;
}

/** Returns a text such as `about 312 tags (°C 73, % 51, no unit 17)`. */
export function tagUnitsText(building: BuildingSummary): string {
  const unitTexts = building.units.map(({ unit, tags }) => `${unit === "" ? "no unit" : unit} ${tags}`);
  const countText = tagCountText(building);
  if (unitTexts.length === 0) return countText;
  return `${countText} (${unitTexts.slice(0, 5).join(", ")}${unitTexts.length > 5 ? " …" : ""})`;
}

export const tagCountText = ({ tags, isEstimate }: Pick<BuildingSummary, "tags" | "isEstimate">): string =>
  `${isEstimate ? "about " : ""}${formatCount(tags, "tag")}`;

/** Proposes the time zone of this machine; null if times of alarms have another UTC offset. */
export function guessTimeZone({ offsets }: Pick<BuildingSummary, "offsets">, zone: string) {
  const isRegionZone = zone.includes("/") && !zone.startsWith("Etc/");
  if (offsets.length === 0) return { proposed: isRegionZone ? zone : null, note: null };
  const mismatchedOffset = offsets.find(({ time, minutes }) => DateTime.fromISO(time, { zone }).offset !== minutes);
  if (mismatchedOffset === undefined)
    return { proposed: zone, note: `The times of the alarms fit ${zone}, as this machine.` };
  const twoDigits = (number: number) => String(number).padStart(2, "0");
  const offsetMinutes = Math.abs(mismatchedOffset.minutes);
  const offsetText = `${mismatchedOffset.minutes < 0 ? "-" : "+"}${twoDigits(Math.floor(offsetMinutes / 60))}:${twoDigits(offsetMinutes % 60)}`;
  const day = mismatchedOffset.time.slice(0, 10);
  const zoneText = isRegionZone ? `, which ${zone}, this machine's zone, does not have then` : "";
  return { proposed: null, note: `An alarm of ${day} has a time at ${offsetText}${zoneText}.` };
}
