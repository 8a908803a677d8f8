import { planSettings } from "../../app/build-sync.ts";
import type { Config, SourceEntry } from "../../app/config/config.ts";
import type { Places } from "../../app/config/places.ts";
import type { TokenInfo } from "../../core/model/building.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import type { AllowedTag } from "../../engine/commands/config.ts";
import { checkClock } from "../../engine/commands/gate.ts";
import type { Source } from "../../engine/source/source.ts";
import { some } from "../../engine/sync/compare.ts";
import { activeFromList, factsFromState, factsFromTags } from "../../engine/sync/facts-for-plan.ts";
import { planReport } from "../../engine/sync/plan/report.ts";
import {
  type BuildingSelection,
  buildingFromLists,
  buildingFromState,
  type ListedBuilding,
  listingText,
} from "../../engine/sync/seen-building.ts";
import { withStandaloneSource } from "../shell/standalone.ts";
import { readStateIfAny } from "../shell/state-access.ts";
import { compareSource, planLine, writableTags } from "./check-building.ts";
import { type CheckLine, failedCheck, withTimeLimit } from "./check-line.ts";

export interface SourceToCheck {
  readonly name: string;
  readonly entry: SourceEntry;
  readonly config: Config;
  readonly places: Places;
  /** False skips the comparison with the building. */
  readonly lists: boolean;
  /** Lists the building at the service even if the state knows it. */
  readonly ask: boolean;
  readonly signal: AbortSignal;
  readonly update: (text: string) => void;
}

export interface CheckedSource {
  readonly lines: readonly CheckLine[];
  /** Sites that the token sees; null if the service did not respond. */
  readonly sites: ListedBuilding["sites"] | null;
  /** Entries of `commands.allow` whose tags exist; null without a comparison. */
  readonly writable: readonly AllowedTag[] | null;
}

/** Checks the token and clock of a source and compares its configuration with the building. Sends no tag request. */
export async function checkSource(check: SourceToCheck): Promise<CheckedSource> {
  const { name, entry, config, signal } = check;
  const what = `source ${name}`;
  const lines: CheckLine[] = [];
  let sites: TokenInfo["sites"] | null = null;
  let writable: CheckedSource["writable"] = null;
  try {
    await withStandaloneSource(name, entry, process.env, async (source) => {
      const me = await withTimeLimit(signal, (limited) => source.me(limited));
      sites = me.sites;
      lines.push(...checkToken(what, name, entry, config, me, systemClock.now()));
      lines.push(...checkClocks(what, source, config));
      if (!check.lists || me.sites.length === 0) return;
      const found = await compared(check, source, me);
      lines.push(...found.lines);
      writable = found.writable;
    });
  } catch (error) {
    signal.throwIfAborted();
    lines.push(failedCheck(what, error));
  }
  return { lines, sites, writable };
}

/** Checks the clock difference: the worker refuses every command while it is too large. */
function checkClocks(what: string, source: Source, { commands }: Config): readonly CheckLine[] {
  const refusing = commands.enabled ? checkClock(source.clockSkewMs(), null) : null;
  return refusing === null ? [] : [{ what, result: "wrong", detail: refusing.message }];
}

async function compared(
  check: SourceToCheck,
  source: Source,
  me: TokenInfo,
): Promise<Pick<CheckedSource, "lines" | "writable">> {
  const { name, entry, config } = check;
  const what = `${name}: building`;
  const wish = wishOf(name, entry, config);
  const needs = [
    "read:tags",
    ...(wish.systems.length > 0 ? ["read:systems"] : []),
    ...(wish.gateways ? ["read:gateways"] : []),
  ].filter((ability) => !me.abilities.includes(ability));
  if (needs.length > 0) {
    const detail = `not compared with the configuration: that needs ${needs.join(" and ")}`;
    return { lines: [{ what, result: "warning", detail }], writable: null };
  }
  const settings = planSettings(name, entry, config.state);
  const known = check.ask
    ? null
    : await readStateIfAny({ config, source: name }, async (store) => {
        const building = await buildingFromState(store, name, me.sites, wish);
        if (building === null) return null;
        return { building, plan: planReport(await factsFromState(store, settings, systemClock, null)) };
      });
  const building = known?.building ?? (await listed(check, source, me.sites, wish));
  const active = known === null ? await activeFromList(source, settings, check.signal) : 0;
  const facts = { sites: building.sites.length, tags: building.tags, active };
  const plan = known?.plan ?? planReport(factsFromTags(settings, facts, systemClock.now()));
  const whose = known === null ? "as the service lists them" : "from the worker's state";
  const detail =
    building.tags.length === 0
      ? "no tags: the token's user sees none at these sites, so no value can be read"
      : `${building.tags.length} tags, ${whose}`;
  return {
    lines: [
      { what, result: building.tags.length === 0 ? "warning" : "ok", detail },
      ...compareSource({ ...check, building }),
      ...planLine(name, plan),
    ],
    writable: writableTags({ ...check, building }),
  };
}

/** Lists the building at the service, which takes minutes for a large one; the progress text names --no-lists. */
function listed(
  { entry, signal, update }: SourceToCheck,
  source: Source,
  sites: TokenInfo["sites"],
  wish: BuildingSelection,
) {
  return buildingFromLists(source, sites, wish, signal, (progress) =>
    update(`${listingText(progress, entry.quota)} (--no-lists does without)`),
  );
}

function wishOf(name: string, entry: SourceEntry, { commands }: Config): BuildingSelection {
  const { silent_sensors: sensors } = entry;
  const selections = [
    ...[...entry.read, ...entry.history].flatMap(({ select }) => [select, select.exclude ?? {}]),
    ...(sensors === false ? [] : [sensors.exclude, sensors.may_rest]),
  ];
  const gateways = commands.allow.some(
    ({ source = name, gateway_id: gatewayId }) => source === name && gatewayId !== undefined,
  );
  return {
    followed: entry.inventory.sites ?? null,
    systems: [...new Set(selections.flatMap(({ systems = [] }) => systems))],
    gateways,
  };
}

const DAY_MS = 86_400_000;
/** Warn this many days before the token expires, because a new one takes days. */
const SOON_DAYS = 14;

/** Checks the expiry, sites and abilities of a token against the configuration. */
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
  /** Parts that need the ability, in the plural. */
  readonly purpose: string;
  /** Configuration that works without the ability. */
  readonly without: string;
}

function neededAbilities(entry: SourceEntry, config: Config, source: string): readonly Need[] {
  const { schedules, read, history } = entry;
  const writes = config.commands.enabled && config.commands.allow.some((tag) => (tag.source ?? source) === source);
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
