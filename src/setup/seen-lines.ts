import { tagsText } from "./plenum-yaml.ts";
import type { SeenBuilding } from "./seen.ts";

const DAY_MS = 86_400_000;
const SOON_DAYS = 30;
const SITES_SHOWN = 8;
const SYSTEMS_SHOWN = 5;

/** What was seen of a building, for a person. */
export function seenLines(seen: SeenBuilding, nowMs: number): readonly string[] {
  const { alarms, sites, systems, token } = seen;
  const shown = sites.slice(0, SITES_SHOWN);
  return [
    "",
    `${tokenText(seen, nowMs)}; abilities: ${token.abilities.join(", ")}.`,
    `${counted(sites.length, "site")}:`,
    ...shown.map(({ id, displayName, tags }) =>
      tags === null ? `  ${id}  ${displayName}` : `  ${id}  ${displayName}, ${counted(tags, "tag")}`,
    ),
    ...(shown.length < sites.length ? [`  and ${sites.length - shown.length} more`] : []),
    `${tagsText(seen)}${alarms === null ? "" : `, ${counted(alarms, "active alarm")}`}.`,
    ...systemLines(systems),
    ...doubts(seen),
    "",
  ];
}

function systemLines(systems: SeenBuilding["systems"]): readonly string[] {
  const most = systems.filter(({ tags }) => tags > 0).slice(0, SYSTEMS_SHOWN);
  if (most.length === 0) return [];
  return [
    `Largest systems: ${most.map(({ code, displayName, tags }) => `${code} ${displayName} (${tags})`).join(", ")}.`,
  ];
}

/** What somebody should know before relying on it, as sentences. */
export function doubts({ isEstimate, listed, tags, token, sites }: SeenBuilding): readonly string[] {
  const may = (ability: string) => token.abilities.includes(ability);
  return [
    ...(isEstimate
      ? [`${listed} tags were looked at; units and numbers of the others are assumed to be alike.`]
      : []),
    ...(may("read:tags")
      ? []
      : ["The token may not read tags (read:tags): alarms are followed, and no value is read."]),
    ...(may("read:alarms")
      ? []
      : ["The token may not read alarms (read:alarms): values are read, and no alarm is followed."]),
    ...(may("read:tags") && tags === 0
      ? [
          `There is no tag in ${sites.length === 1 ? "this site" : `these ${sites.length} sites`}: a user who has permission for components only sees tags through the views.`,
        ]
      : []),
    ...(may("write:tags")
      ? ["The token may write tags. Writing stays off; a token without write:tags is safer."]
      : []),
  ];
}

/** `Token "Plenum" of Kari Nordmann, valid until 2027-11-02` */
export function tokenText({ token }: Pick<SeenBuilding, "token">, nowMs: number): string {
  return `Token "${token.name}" of ${token.user.name}, ${expiry(token.expiresAt, nowMs)}`;
}

function expiry(expiresAt: string | null, nowMs: number): string {
  if (expiresAt === null) return "which never expires";
  const days = Math.floor((Date.parse(expiresAt) - nowMs) / DAY_MS);
  const date = expiresAt.slice(0, 10);
  return days < SOON_DAYS ? `which expires in ${counted(days, "day")} (${date})` : `valid until ${date}`;
}

function counted(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? "" : "s"}`;
}
