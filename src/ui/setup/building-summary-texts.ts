import { DateTime } from "luxon";
import { formatCount } from "../../core/values/plural.ts";
import type { BuildingSummary } from "./building-inspection.ts";

/** English text with placeholders such as `{tags}`, and their values. The text is the key of its translation. */
export interface PageMessage {
  readonly text: string;
  readonly values: Readonly<Record<string, string | number>>;
}

export const message = (text: string, values: PageMessage["values"] = {}): PageMessage => ({ text, values });

export function englishText({ text, values }: PageMessage): string {
  return text.replaceAll(/\{(\w+)\}/g, (placeholder, name: string) => String(values[name] ?? placeholder));
}

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
    `${englishText(tokenMessage(building, nowMs))}; abilities: ${token.abilities.join(", ")}.`,
    `${formatCount(sites.length, "site")}:`,
    ...sites.slice(0, MAX_SITES_SHOWN).map(({ id, displayName, tags }) => `  ${id}  ${displayName}${tagSuffix(tags)}`),
    ...(MAX_SITES_SHOWN < sites.length ? [`  and ${sites.length - MAX_SITES_SHOWN} more`] : []),
    `${tagCountText(building)}${alarms === null ? "" : `, ${formatCount(alarms, "active alarm")}`}.`,
    ...(systemTexts.length === 0 ? [] : [`Largest systems: ${systemTexts.join(", ")}.`]),
    ...buildingWarnings(building).map(englishText),
    "",
  ];
}

export function buildingWarnings({ isEstimate, listed, tags, token, sites }: BuildingSummary): readonly PageMessage[] {
  const hasAbility = (ability: string) => token.abilities.includes(ability);
  const noTagMessage =
    sites.length === 1
      ? message(
          "There is no tag in this site: a user who has permission for components only sees tags through the views.",
        )
      : message(
          "There is no tag in these {count} sites: a user who has permission for components only sees tags through the views.",
          { count: sites.length },
        );
  return [
    isEstimate &&
      message("{listed} tags were looked at; units and numbers of the others are assumed to be alike.", { listed }),
    !hasAbility("read:tags") &&
      message("The token may not read tags (read:tags): alarms are followed, and no value is read."),
    !hasAbility("read:alarms") &&
      message("The token may not read alarms (read:alarms): values are read, and no alarm is followed."),
    hasAbility("read:tags") && tags === 0 && noTagMessage,
    hasAbility("write:tags") &&
      message("The token may write tags. Writing stays off; a token without write:tags is safer."),
  ].filter((warning) => warning !== false);
}

/** Returns a text such as `Token "Plenum" of Kari Nordmann, valid until 2027-11-02`. */
export function tokenMessage({ token }: Pick<BuildingSummary, "token">, nowMs: number): PageMessage {
  const values = { token: token.name, user: token.user.name };
  if (token.expiresAt === null) return message('Token "{token}" of {user}, which never expires', values);
  const days = Math.floor((Date.parse(token.expiresAt) - nowMs) / DAY_MS);
  const date = token.expiresAt.slice(0, 10);
  if (days >= EXPIRY_WARNING_DAYS) return message('Token "{token}" of {user}, valid until {date}', { ...values, date });
  return days === 1
    ? message('Token "{token}" of {user}, which expires in 1 day ({date})', { ...values, date })
    : message('Token "{token}" of {user}, which expires in {days} days ({date})', { ...values, days, date });
}

/** Returns a text such as `about 312 tags (°C 73, % 51, no unit 17)`. */
export function tagCountText(building: BuildingSummary): string {
  const unitTexts = building.units.map(({ unit, tags }) => `${unit === "" ? "no unit" : unit} ${tags}`);
  const countText = englishText(tagCountMessage(building));
  if (unitTexts.length === 0) return countText;
  return `${countText} (${unitTexts.slice(0, 5).join(", ")}${unitTexts.length > 5 ? " …" : ""})`;
}

export function tagCountMessage({ tags, isEstimate }: Pick<BuildingSummary, "tags" | "isEstimate">): PageMessage {
  if (tags === 1) return isEstimate ? message("about 1 tag") : message("1 tag");
  return isEstimate ? message("about {tags} tags", { tags }) : message("{tags} tags", { tags });
}

/** Proposes the time zone of this machine; null if times of alarms have another UTC offset. */
export function guessTimeZone({ offsets }: Pick<BuildingSummary, "offsets">, zone: string) {
  const isRegionZone = zone.includes("/") && !zone.startsWith("Etc/");
  if (offsets.length === 0) return { proposed: isRegionZone ? zone : null, note: null };
  const mismatchedOffset = offsets.find(({ time, minutes }) => DateTime.fromISO(time, { zone }).offset !== minutes);
  if (mismatchedOffset === undefined)
    return { proposed: zone, note: message("The times of the alarms fit {zone}, as this machine.", { zone }) };
  const twoDigits = (number: number) => String(number).padStart(2, "0");
  const offsetMinutes = Math.abs(mismatchedOffset.minutes);
  const offsetText = `${mismatchedOffset.minutes < 0 ? "-" : "+"}${twoDigits(Math.floor(offsetMinutes / 60))}:${twoDigits(offsetMinutes % 60)}`;
  const day = mismatchedOffset.time.slice(0, 10);
  const zoneNote = isRegionZone
    ? message("An alarm of {day} has a time at {offset}, which {zone}, this machine's zone, does not have then.", {
        ...{ day, offset: offsetText, zone },
      })
    : message("An alarm of {day} has a time at {offset}.", { day, offset: offsetText });
  return { proposed: null, note: zoneNote };
}
