import { planSettings } from "../../app/build-sync.ts";
import type { Config, SourceConfigEntry } from "../../app/config/config.ts";
import type { LocateOption } from "../../app/config/yaml-variables-and-errors.ts";
import type { TokenInfo } from "../../core/model/building.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import type { AllowedTag } from "../../engine/commands/config.ts";
import { checkClocksForWriting } from "../../engine/commands/gate.ts";
import type { Source } from "../../engine/source/source.ts";
import { countActiveAlarms, factsFromState, planFactsFromTags } from "../../engine/sync/facts-for-plan.ts";
import { reportPlan } from "../../engine/sync/plan/report.ts";
import { joinFirst } from "../../engine/sync/selection-mismatches.ts";
import {
  describeListProgress,
  loadVisibleBuilding,
  readVisibleBuilding,
  type WantedBuildingParts,
} from "../../engine/sync/visible-building.ts";
import { readStateIfAny } from "../shell/open-worker-state.ts";
import { withStandaloneSource } from "../shell/source-without-worker.ts";
import { compareSource, planLines, writableTags } from "./check-building.ts";
import {
  type CheckLine,
  failedCheck,
  passedCheck,
  warningLine,
  withTimeLimit,
  wrongLine,
} from "./check-result-line.ts";

export interface SourceToCheck {
  readonly name: string;
  readonly entry: SourceConfigEntry;
  readonly config: Config;
  readonly places: LocateOption;
  readonly lists: boolean;
  readonly ask: boolean;
  readonly signal: AbortSignal;
  readonly update: (text: string) => void;
}

/** Checks token, clock and building of a source. Sends no tag request. */
export async function checkSource(check: SourceToCheck) {
  const { name, entry, config, signal } = check;
  const checkName = `source ${name}`;
  const lines: CheckLine[] = [];
  /** Null if the service did not respond. */
  let sites: TokenInfo["sites"] | null = null;
  /** Entries of `commands.allow` whose tags exist; null without a comparison. */
  let writable: readonly AllowedTag[] | null = null;
  try {
    await withStandaloneSource(name, entry, process.env, async (source) => {
      const token = await withTimeLimit(signal, (limited) => source.me(limited));
      sites = token.sites;
      lines.push(...checkToken(checkName, name, entry, config, token, systemClock.now()));
      // The worker refuses every command while the clocks differ too much.
      const refusal = config.commands.enabled ? checkClocksForWriting(source.clockSkewMs(), null) : null;
      if (refusal !== null) lines.push(wrongLine(checkName, refusal.message));
      if (!check.lists || token.sites.length === 0) return;
      const comparison = await compareBuilding(check, source, token);
      lines.push(...comparison.lines);
      writable = comparison.writable;
    });
  } catch (error) {
    signal.throwIfAborted();
    lines.push(failedCheck(checkName, error));
  }
  return { lines, sites, writable };
}

async function compareBuilding(check: SourceToCheck, source: Source, token: TokenInfo) {
  const { name, entry, config } = check;
  const checkName = `${name}: building`;
  const selection = buildSelection(name, entry, config);
  const unmetNeeds = [
    "read:tags",
    ...(selection.systems.length > 0 ? ["read:systems"] : []),
    ...(selection.gateways ? ["read:gateways"] : []),
  ].filter((ability) => !token.abilities.includes(ability));
  if (unmetNeeds.length > 0) {
    const detail = `not compared with the configuration: that needs ${unmetNeeds.join(" and ")}`;
    return { lines: [warningLine(checkName, detail)], writable: null };
  }
  const settings = planSettings(name, entry, config.state);
  const workerFindings = check.ask
    ? null
    : await readStateIfAny({ config, source: name }, async (store) => {
        const building = await loadVisibleBuilding(store, name, token.sites, selection);
        if (building === null) return null;
        return { building, plan: reportPlan(await factsFromState(store, settings, systemClock, null)) };
      });
  const building =
    workerFindings?.building ??
    (await readVisibleBuilding(source, token.sites, selection, check.signal, (progress) =>
      check.update(`${describeListProgress(progress, entry.quota)} (--no-lists does without)`),
    ));
  const activeAlarms = workerFindings === null ? await countActiveAlarms(source, settings, check.signal) : 0;
  const buildingFacts = { sites: building.sites.length, tags: building.tags, active: activeAlarms };
  const plan = workerFindings?.plan ?? reportPlan(planFactsFromTags(settings, buildingFacts, systemClock.now()));
  const origin = workerFindings === null ? "as the service lists them" : "from the worker's state";
  const tagsLine =
    building.tags.length === 0
      ? warningLine(checkName, "no tags: the token's user sees none at these sites, so no value can be read")
      : passedCheck(checkName, `${building.tags.length} tags, ${origin}`);
  return {
    lines: [tagsLine, ...compareSource({ ...check, building }), ...planLines(name, plan)],
    writable: writableTags({ ...check, building }),
  };
}

function buildSelection(name: string, entry: SourceConfigEntry, { commands }: Config): WantedBuildingParts {
  const { silent_sensors: sensors } = entry;
  const selections = [
    ...[...entry.read, ...entry.history].flatMap(({ select }) => [select, select.exclude ?? {}]),
    ...(sensors === false ? [] : [sensors.exclude, sensors.may_rest]),
  ];
  return {
    followed: entry.inventory.sites ?? null,
    systems: [...new Set(selections.flatMap(({ systems = [] }) => systems))],
    gateways: commands.allow.some(({ source = name, gateway_id: id }) => source === name && id !== undefined),
  };
}

const DAY_MS = 86_400_000;
/** Days before a token's expiry from which the check warns, because a new token takes days. */
const EXPIRY_WARNING_DAYS = 14;

function checkToken(
  what: string,
  source: string,
  entry: SourceConfigEntry,
  config: Config,
  token: TokenInfo,
  nowMs: number,
): readonly CheckLine[] {
  const unmetNeeds = neededAbilities(entry, config, source).filter(({ ability }) => !token.abilities.includes(ability));
  const sites = joinFirst(token.sites.map(({ id, displayName }) => `${id} (${displayName})`));
  const isTooStrong = !config.commands.enabled && token.abilities.includes("write:tags");
  return [
    checkExpiry(what, token, nowMs),
    token.sites.length === 0
      ? wrongLine(what, "the token sees 0 sites; have it scoped to at least one")
      : passedCheck(what, `the token sees ${token.sites.length} sites: ${sites}`),
    passedCheck(what, `the token may ${joinFirst(token.abilities) || "nothing"}`),
    ...unmetNeeds.map(({ ability, purpose, without }) =>
      wrongLine(what, `the token lacks ${ability}, which ${purpose} need; have it added, or do without: ${without}`),
    ),
    ...(isTooStrong ? [warningLine(what, "the token may write tags, and writing is off: a smaller one is safer")] : []),
  ];
}

function checkExpiry(what: string, { name, user, expiresAt }: TokenInfo, nowMs: number): CheckLine {
  const token = `token "${name}" of ${user.name}`;
  const days = expiresAt === null ? Number.NaN : Math.floor((Date.parse(expiresAt) - nowMs) / DAY_MS);
  if (Number.isNaN(days)) return passedCheck(what, `${token}, expires ${expiresAt ?? "never"}`);
  const detail = `${token}, expires ${expiresAt}, in ${days} days`;
  if (days >= EXPIRY_WARNING_DAYS) return passedCheck(what, detail);
  return warningLine(what, `${detail}: have a new one made, and put it where \`token\` says`);
}

/** Lists the abilities that the token needs, with the part of the configuration that needs each ability. */
function neededAbilities({ schedules, read, history }: SourceConfigEntry, { commands }: Config, source: string) {
  const lists = ["gateways", "hosts", "systems"] as const;
  const rules: readonly (readonly [isNeeded: boolean, ability: string, purpose: string, without: string])[] = [
    [
      schedules.alarms !== false || schedules.resolved_sweep !== false,
      "read:alarms",
      "the lists of alarms",
      `sources.${source}.schedules: { alarms: false, resolved_sweep: false }`,
    ],
    [
      schedules.tags !== false || read.length > 0 || history.length > 0,
      "read:tags",
      "values, history and the list of tags",
      `sources.${source}.schedules: { tags: false }, and neither read nor history`,
    ],
    ...lists.map(
      (list) =>
        [
          schedules[list] !== false,
          `read:${list}`,
          `the lists of ${list}`,
          `sources.${source}.schedules: { ${list}: false }`,
        ] as const,
    ),
    [
      commands.enabled && commands.allow.some((tag) => (tag.source ?? source) === source),
      "write:tags",
      "writes",
      "commands.enabled: false",
    ],
  ];
  return rules.flatMap(([isNeeded, ability, purpose, without]) => (isNeeded ? [{ ability, purpose, without }] : []));
}
