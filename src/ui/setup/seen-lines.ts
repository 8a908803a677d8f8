import { counted } from "../../core/values/plural.ts";
import { english, type Message, message } from "./messages.ts";
import { tagsText } from "./plenum-yaml.ts";
import type { SeenBuilding } from "./seen.ts";

const DAY_MS = 86_400_000;
const SOON_DAYS = 30;
const SITES_SHOWN = 8;
const SYSTEMS_SHOWN = 5;

/** Description of a building for a person. */
export function seenLines(seen: SeenBuilding, nowMs: number): readonly string[] {
  const { alarms, sites, systems, token } = seen;
  const shown = sites.slice(0, SITES_SHOWN);
  return [
    "",
    `${english(tokenSaid(seen, nowMs))}; abilities: ${token.abilities.join(", ")}.`,
    `${counted(sites.length, "site")}:`,
    ...shown.map(({ id, displayName, tags }) =>
      tags === null ? `  ${id}  ${displayName}` : `  ${id}  ${displayName}, ${counted(tags, "tag")}`,
    ),
    ...(shown.length < sites.length ? [`  and ${sites.length - shown.length} more`] : []),
    `${tagsText(seen)}${alarms === null ? "" : `, ${counted(alarms, "active alarm")}`}.`,
    ...systemLines(systems),
    ...doubts(seen).map(english),
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

/** Warnings about the data, as sentences. */
export function doubts({ isEstimate, listed, tags, token, sites }: SeenBuilding): readonly Message[] {
  const may = (ability: string) => token.abilities.includes(ability);
  return [
    ...(isEstimate
      ? [
          message("{listed} tags were looked at; units and numbers of the others are assumed to be alike.", {
            listed,
          }),
        ]
      : []),
    ...(may("read:tags")
      ? []
      : [message("The token may not read tags (read:tags): alarms are followed, and no value is read.")]),
    ...(may("read:alarms")
      ? []
      : [message("The token may not read alarms (read:alarms): values are read, and no alarm is followed.")]),
    ...(may("read:tags") && tags === 0
      ? [
          sites.length === 1
            ? message(
                "There is no tag in this site: a user who has permission for components only sees tags through the views.",
              )
            : message(
                "There is no tag in these {count} sites: a user who has permission for components only sees tags through the views.",
                { count: sites.length },
              ),
        ]
      : []),
    ...(may("write:tags")
      ? [message("The token may write tags. Writing stays off; a token without write:tags is safer.")]
      : []),
  ];
}

/** `Token "Plenum" of Kari Nordmann, valid until 2027-11-02` */
export function tokenSaid({ token }: Pick<SeenBuilding, "token">, nowMs: number): Message {
  const values = { token: token.name, user: token.user.name };
  if (token.expiresAt === null) return message('Token "{token}" of {user}, which never expires', values);
  const days = Math.floor((Date.parse(token.expiresAt) - nowMs) / DAY_MS);
  const date = token.expiresAt.slice(0, 10);
  if (days >= SOON_DAYS) return message('Token "{token}" of {user}, valid until {date}', { ...values, date });
  return days === 1
    ? message('Token "{token}" of {user}, which expires in 1 day ({date})', { ...values, date })
    : message('Token "{token}" of {user}, which expires in {days} days ({date})', { ...values, days, date });
}
