import { DateTime } from "luxon";
import { formatCount } from "../../core/values/plural.ts";
import type { BuildingSummary } from "./building-inspection.ts";

/** English text with placeholders such as `{tags}` for `values.tags`. The text is the key of the page's translation. */
export interface Message {
  readonly text: string;
  readonly values: Readonly<Record<string, string | number>>;
}

export function message(text: string, values: Message["values"] = {}): Message {
  return { text, values };
}

export function englishText({ text, values }: Message): string {
  return text.replaceAll(/\{(\w+)\}/g, (placeholder, name: string) => String(values[name] ?? placeholder));
}

const DAY_MS = 86_400_000;
const SOON_DAYS = 30;
const SITES_SHOWN = 8;
const SYSTEMS_SHOWN = 5;

export function buildingLines(building: BuildingSummary, nowMs: number): readonly string[] {
  const { alarms, sites, token } = building;
  const tagSuffix = (tags: number | null) => (tags === null ? "" : `, ${formatCount(tags, "tag")}`);
  const systems = building.systems
    .filter(({ tags }) => tags > 0)
    .slice(0, SYSTEMS_SHOWN)
    .map(({ code, displayName, tags }) => `${code} ${displayName} (${tags})`);
  return [
    "",
    `${englishText(tokenMessage(building, nowMs))}; abilities: ${token.abilities.join(", ")}.`,
    `${formatCount(sites.length, "site")}:`,
    ...sites.slice(0, SITES_SHOWN).map(({ id, displayName, tags }) => `  ${id}  ${displayName}${tagSuffix(tags)}`),
    ...(SITES_SHOWN < sites.length ? [`  and ${sites.length - SITES_SHOWN} more`] : []),
    `${tagsText(building)}${alarms === null ? "" : `, ${formatCount(alarms, "active alarm")}`}.`,
    ...(systems.length === 0 ? [] : [`Largest systems: ${systems.join(", ")}.`]),
    ...buildingWarnings(building).map(englishText),
    "",
  ];
}

export function buildingWarnings({ isEstimate, listed, tags, token, sites }: BuildingSummary): readonly Message[] {
  const may = (ability: string) => token.abilities.includes(ability);
  const count = sites.length;
  const warnings: readonly (readonly [applies: boolean, Message])[] = [
    [
      isEstimate,
      message("{listed} tags were looked at; units and numbers of the others are assumed to be alike.", { listed }),
    ],
    [!may("read:tags"), message("The token may not read tags (read:tags): alarms are followed, and no value is read.")],
    [
      !may("read:alarms"),
      message("The token may not read alarms (read:alarms): values are read, and no alarm is followed."),
    ],
    [
      may("read:tags") && tags === 0,
      count === 1
        ? message(
            "There is no tag in this site: a user who has permission for components only sees tags through the views.",
          )
        : message(
            "There is no tag in these {count} sites: a user who has permission for components only sees tags through the views.",
            { count },
          ),
    ],
    [may("write:tags"), message("The token may write tags. Writing stays off; a token without write:tags is safer.")],
  ];
  return warnings.filter(([applies]) => applies).map(([, warning]) => warning);
}

/** `Token "Plenum" of Kari Nordmann, valid until 2027-11-02` */
export function tokenMessage({ token }: Pick<BuildingSummary, "token">, nowMs: number): Message {
  const values = { token: token.name, user: token.user.name };
  if (token.expiresAt === null) return message('Token "{token}" of {user}, which never expires', values);
  const days = Math.floor((Date.parse(token.expiresAt) - nowMs) / DAY_MS);
  const date = token.expiresAt.slice(0, 10);
  if (days >= SOON_DAYS) return message('Token "{token}" of {user}, valid until {date}', { ...values, date });
  return days === 1
    ? message('Token "{token}" of {user}, which expires in 1 day ({date})', { ...values, date })
    : message('Token "{token}" of {user}, which expires in {days} days ({date})', { ...values, days, date });
}

/** `about 312 tags (°C 73, % 51, no unit 17)` */
export function tagsText(building: BuildingSummary): string {
  const unitTexts = building.units.map(({ unit, tags }) => `${unit === "" ? "no unit" : unit} ${tags}`);
  const count = englishText(tagCountMessage(building));
  if (unitTexts.length === 0) return count;
  return `${count} (${unitTexts.slice(0, 5).join(", ")}${unitTexts.length > 5 ? " …" : ""})`;
}

export function tagCountMessage({ tags, isEstimate }: Pick<BuildingSummary, "tags" | "isEstimate">): Message {
  if (tags === 1) return isEstimate ? message("about 1 tag") : message("1 tag");
  return isEstimate ? message("about {tags} tags", { tags }) : message("{tags} tags", { tags });
}

/** Proposes the zone of this machine as the zone of the buildings; null if the offsets of alarm times contradict the zone. */
export function guessZone({ offsets }: Pick<BuildingSummary, "offsets">, zone: string) {
  const isRegion = zone.includes("/") && !zone.startsWith("Etc/");
  if (offsets.length === 0) return { proposed: isRegion ? zone : null, note: null };
  const mismatch = offsets.find(({ time, minutes }) => DateTime.fromISO(time, { zone }).offset !== minutes);
  if (mismatch === undefined)
    return { proposed: zone, note: message("The times of the alarms fit {zone}, as this machine.", { zone }) };
  const twoDigits = (number: number) => String(number).padStart(2, "0");
  const size = Math.abs(mismatch.minutes);
  const offset = `${mismatch.minutes < 0 ? "-" : "+"}${twoDigits(Math.floor(size / 60))}:${twoDigits(size % 60)}`;
  const day = mismatch.time.slice(0, 10);
  const note = isRegion
    ? message("An alarm of {day} has a time at {offset}, which {zone}, this machine's zone, does not have then.", {
        ...{ day, offset, zone },
      })
    : message("An alarm of {day} has a time at {offset}.", { day, offset });
  return { proposed: null, note };
}
