import { planSettings } from "../../app/build-sync.ts";
import type { Config, SourceEntry } from "../../app/config/config.ts";
import type { Places } from "../../app/config/places.ts";
import type { TokenInfo } from "../../core/model/building.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import type { AllowedTag } from "../../engine/commands/config.ts";
import { checkClock } from "../../engine/commands/gate.ts";
import type { Source } from "../../engine/source/source.ts";
import { activeFromList, factsFromState, factsFromTags } from "../../engine/sync/facts-for-plan.ts";
import { planReport } from "../../engine/sync/plan/report.ts";
import {
  type BuildingSelection,
  buildingFromLists,
  buildingFromState,
  type ListedBuilding,
  listingText,
} from "../../engine/sync/seen-building.ts";
import { withLoneSource } from "../shell/lone-source.ts";
import { lookAtStateIfAny } from "../shell/look-at-state.ts";
import { compareSource, planLine, writableTags } from "./check-building.ts";
import { type CheckLine, trouble, within } from "./check-line.ts";
import { checkToken } from "./check-token.ts";

export interface SourceToCheck {
  readonly name: string;
  readonly entry: SourceEntry;
  readonly config: Config;
  readonly places: Places;
  /** Whether to compare with the building, and whether to list it anew where the state knows it. */
  readonly lists: boolean;
  readonly ask: boolean;
  readonly signal: AbortSignal;
  readonly update: (text: string) => void;
}

export interface CheckedSource {
  readonly lines: readonly CheckLine[];
  /** Sites that the token sees; null where the service could not be asked. */
  readonly sites: ListedBuilding["sites"] | null;
  /** Entries of `commands.allow` whose tags were found; null where the building was not compared. */
  readonly writable: readonly AllowedTag[] | null;
}

/** The token of a source, and what its configuration means in the building. No tag request is sent. */
export async function checkSource(check: SourceToCheck): Promise<CheckedSource> {
  const { name, entry, config, signal } = check;
  const what = `source ${name}`;
  const lines: CheckLine[] = [];
  let sites: TokenInfo["sites"] | null = null;
  let writable: CheckedSource["writable"] = null;
  try {
    await withLoneSource(name, entry, process.env, async (source) => {
      const me = await within(signal, (limited) => source.me(limited));
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
    lines.push(trouble(what, error));
  }
  return { lines, sites, writable };
}

/** The worker refuses every command while the clocks differ. */
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
    : await lookAtStateIfAny({ config, source: name }, async (store) => {
        const building = await buildingFromState(store, name, me.sites, wish);
        if (building === null) return null;
        return { building, plan: planReport(await factsFromState(store, settings, systemClock, null)) };
      });
  const building = known?.building ?? (await listed(check, source, me.sites, wish));
  const active = known === null ? await activeFromList(source, settings, check.signal) : 0;
  const facts = { sites: building.sites.length, tags: building.tags, active };
  const plan = known?.plan ?? planReport(factsFromTags(settings, facts, systemClock.now()));
  const whose = known === null ? "as the service lists them" : "as the worker's state knows them";
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

/** The service's lists; a large building takes minutes, and whoever waits is told of the way without them. */
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
