import type { Config, SourceEntry } from "../../app/config/config.ts";
import type { TokenInfo } from "../../core/model/building.ts";
import { some } from "../../engine/sync/compare.ts";
import type { CheckLine } from "./check-line.ts";

const DAY_MS = 86_400_000;
/** A new token takes people some days. */
const SOON_DAYS = 14;

/** What the token may do, until when, and what of the configuration it may not. */
export function checkToken(
  what: string,
  source: string,
  entry: SourceEntry,
  config: Config,
  me: TokenInfo,
  nowMs: number,
): readonly CheckLine[] {
  const needs = neededAbilities(entry, config, source);
  const lacking = needs.filter(({ ability }) => !me.abilities.includes(ability));
  const sites = some(me.sites.map(({ id, displayName }) => `${id} (${displayName})`));
  return [
    expiry(what, me, nowMs),
    {
      what,
      result: me.sites.length === 0 ? "wrong" : "ok",
      detail:
        me.sites.length === 0
          ? "the token sees 0 sites; have it scoped to at least one"
          : `the token sees ${me.sites.length} sites: ${sites}`,
    },
    { what, result: "ok", detail: `the token may ${some(me.abilities) || "nothing"}` },
    ...lacking.map(
      ({ ability, purpose, without }): CheckLine => ({
        what,
        result: "wrong",
        detail: `the token lacks ${ability}, which ${purpose} need; have it added, or do without: ${without}`,
      }),
    ),
    ...(!config.commands.enabled && me.abilities.includes("write:tags")
      ? [
          {
            what,
            result: "warning",
            detail: "the token may write tags, and writing is off: a smaller one is safer",
          } as const,
        ]
      : []),
  ];
}

function expiry(what: string, { name, user, expiresAt }: TokenInfo, nowMs: number): CheckLine {
  const token = `token "${name}" of ${user.name}`;
  const days = expiresAt === null ? Number.NaN : Math.floor((Date.parse(expiresAt) - nowMs) / DAY_MS);
  if (Number.isNaN(days)) return { what, result: "ok", detail: `${token}, expires ${expiresAt ?? "never"}` };
  const detail = `${token}, expires ${expiresAt}, in ${days} days`;
  if (days >= SOON_DAYS) return { what, result: "ok", detail };
  return {
    what,
    result: "warning",
    detail: `${detail}: have a new one made, and put it where \`token\` says`,
  };
}

interface Need {
  readonly ability: string;
  /** Who needs it, in the plural. */
  readonly purpose: string;
  /** The lines of the configuration that do without it. */
  readonly without: string;
}

function neededAbilities(entry: SourceEntry, config: Config, source: string): readonly Need[] {
  const { schedules, read, history } = entry;
  const writes =
    config.commands.enabled && config.commands.allow.some((tag) => (tag.source ?? source) === source);
  const below = `sources.${source}.`;
  const needs: readonly (readonly [needed: boolean, need: Need])[] = [
    [
      schedules.alarms !== false || schedules.resolved_sweep !== false,
      {
        ability: "read:alarms",
        purpose: "the lists of alarms",
        without: `${below}schedules: { alarms: false, resolved_sweep: false }`,
      },
    ],
    [
      schedules.tags !== false || read.length > 0 || history.length > 0,
      {
        ability: "read:tags",
        purpose: "values, history and the list of tags",
        without: `${below}schedules: { tags: false }, and neither read nor history`,
      },
    ],
    ...(["gateways", "hosts", "systems"] as const).map((list): readonly [boolean, Need] => [
      schedules[list] !== false,
      {
        ability: `read:${list}`,
        purpose: `the lists of ${list}`,
        without: `${below}schedules: { ${list}: false }`,
      },
    ]),
    [writes, { ability: "write:tags", purpose: "writes", without: "commands.enabled: false" }],
  ];
  return needs.filter(([needed]) => needed).map(([, need]) => need);
}
