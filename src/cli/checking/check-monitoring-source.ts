import { buildPlanSettings } from "../../app/build-sync.ts";
import type { Config, SourceConfigEntry } from "../../app/config/config.ts";
import type { TokenInfo } from "../../core/model/building.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import type { AllowedTag } from "../../engine/commands/config.ts";
import { checkClocksForWriting } from "../../engine/commands/gate.ts";
import type { Source } from "../../engine/source/source.ts";
import { reportPlan } from "../../engine/sync/plan/report.ts";
import { countActiveAlarms, loadPlanFacts, planFactsFromTags } from "../../engine/sync/quota-plan-inputs.ts";
import { joinWords } from "../../engine/sync/selectors-without-match.ts";
import {
  describeListProgress,
  loadVisibleBuilding,
  readVisibleBuilding,
  type WantedBuildingParts,
} from "../../engine/sync/visible-building.ts";
import { readStateIfAny } from "../shell/open-worker-state.ts";
import { useStandaloneSource } from "../shell/source-and-sinks-without-worker.ts";
import { type BuildingCheck, checkQuota, compareSourceWithBuilding, findWritableTags } from "./check-building.ts";
import { type CheckTopic, withTimeLimit } from "./check-report.ts";

export interface SourceToCheck extends Omit<BuildingCheck, "building"> {
  readonly lists: boolean;
  readonly ask: boolean;
  readonly signal: AbortSignal;
  readonly update: (progressText: string) => void;
}

/** Checks token, clock and building of a source. Sends no tag request. */
export async function checkMonitoringSource(check: SourceToCheck) {
  const { name, sourceConfig, config, report, signal } = check;
  const topic = report.about(`source ${name}`);
  /** Sites that the token may read; null if the service did not respond. */
  let sites: TokenInfo["sites"] | null = null;
  /** Entries of `commands.allow` whose tags exist in the building; null if the building was not compared. */
  let writableTags: readonly AllowedTag[] | null = null;
  try {
    await useStandaloneSource(name, sourceConfig, process.env, async (source) => {
      const token = await withTimeLimit(signal, (limitedSignal) => source.me(limitedSignal));
      sites = token.sites;
      checkAccessToken(topic, name, sourceConfig, config, token);
      // The worker rejects all commands while the clocks of this machine and the service differ too much.
      const clockRefusal = config.commands.enabled ? checkClocksForWriting(source.clockSkewMs(), null) : null;
      if (clockRefusal !== null) topic.wrong(clockRefusal.message);
      if (check.lists && token.sites.length > 0) writableTags = await compareBuilding(check, source, token);
    });
  } catch (error) {
    signal.throwIfAborted();
    topic.fail(error);
  }
  return { sites, writableTags };
}

/** Returns the entries of `commands.allow` whose tags exist; null if the token may not read all lists to compare. */
async function compareBuilding(check: SourceToCheck, source: Source, token: TokenInfo) {
  const { name, sourceConfig, config, report } = check;
  const topic = report.about(`${name}: building`);
  const neededBuildingParts = listNeededBuildingParts(name, sourceConfig, config);
  const missingAbilities = [
    "read:tags",
    ...(neededBuildingParts.systems.length > 0 ? ["read:systems"] : []),
    ...(neededBuildingParts.gateways ? ["read:gateways"] : []),
  ].filter((ability) => !token.abilities.includes(ability));
  if (missingAbilities.length > 0) {
    topic.warn(`not compared with the configuration: that needs ${missingAbilities.join(" and ")}`);
    return null;
  }
  const settings = buildPlanSettings(name, sourceConfig, config.state);
  const storedBuildingPlan = check.ask
    ? null
    : await readStateIfAny({ config, source: name }, async (store) => {
        const building = await loadVisibleBuilding(store, name, token.sites, neededBuildingParts);
        if (building === null) return null;
        return { building, plan: reportPlan(await loadPlanFacts(store, settings, systemClock, null)) };
      });
  const building =
    storedBuildingPlan?.building ??
    (await readVisibleBuilding(source, token.sites, neededBuildingParts, check.signal, (progress) =>
      check.update(`${describeListProgress(progress, sourceConfig.quota)} (--no-lists does without)`),
    ));
  const activeAlarmCount = storedBuildingPlan === null ? await countActiveAlarms(source, settings, check.signal) : 0;
  const buildingCounts = { sites: building.sites.length, tags: building.tags, active: activeAlarmCount };
  const plan = storedBuildingPlan?.plan ?? reportPlan(planFactsFromTags(settings, buildingCounts, systemClock.now()));
  const tagListOrigin = storedBuildingPlan === null ? "as the service lists them" : "from the worker's state";
  if (building.tags.length > 0) topic.ok(`${building.tags.length} tags, ${tagListOrigin}`);
  else topic.warn("no tags: the token's user sees none at these sites, so no value can be read");
  compareSourceWithBuilding({ ...check, building });
  checkQuota(name, plan, report);
  return findWritableTags({ ...check, building });
}

function listNeededBuildingParts(
  name: string,
  sourceConfig: SourceConfigEntry,
  { commands }: Config,
): WantedBuildingParts {
  const tagSelections = [...sourceConfig.read, ...sourceConfig.history].flatMap(({ select }) => [
    select,
    select.exclude ?? {},
  ]);
  return {
    followedSiteIds: sourceConfig.inventory.sites ?? null,
    systems: [...new Set(tagSelections.flatMap(({ systems = [] }) => systems))],
    gateways: commands.allow.some(({ source = name, gateway_id: id }) => source === name && id !== undefined),
  };
}

const DAY_MS = 86_400_000;
/** Days before a token's expiry from which the check warns, because a new token takes days. */
const TOKEN_EXPIRY_WARNING_DAYS = 14;

function checkAccessToken(
  topic: CheckTopic,
  source: string,
  sourceConfig: SourceConfigEntry,
  config: Config,
  token: TokenInfo,
): void {
  checkTokenExpiry(topic, token);
  const siteTexts = joinWords(token.sites.map(({ id, displayName }) => `${id} (${displayName})`));
  if (token.sites.length > 0) topic.ok(`the token sees ${token.sites.length} sites: ${siteTexts}`);
  else topic.wrong("the token sees 0 sites; have it scoped to at least one");
  topic.ok(`the token may ${joinWords(token.abilities) || "nothing"}`);
  checkNeededAbilities(topic, source, sourceConfig, config, token);
  if (!config.commands.enabled && token.abilities.includes("write:tags"))
    topic.warn("the token may write tags, and writing is off: a smaller one is safer");
}

function checkTokenExpiry(topic: CheckTopic, { name, user, expiresAt }: TokenInfo): void {
  const tokenText = `token "${name}" of ${user.name}`;
  const daysUntilExpiry =
    expiresAt === null ? Number.NaN : Math.floor((Date.parse(expiresAt) - systemClock.now()) / DAY_MS);
  const detail = `${tokenText}, expires ${expiresAt}, in ${daysUntilExpiry} days`;
  if (Number.isNaN(daysUntilExpiry)) topic.ok(`${tokenText}, expires ${expiresAt ?? "never"}`);
  else if (daysUntilExpiry >= TOKEN_EXPIRY_WARNING_DAYS) topic.ok(detail);
  else topic.warn(`${detail}: have a new one made, and put it where \`token\` says`);
}

function checkNeededAbilities(
  topic: CheckTopic,
  source: string,
  { schedules, read, history }: SourceConfigEntry,
  { commands }: Config,
  { abilities }: TokenInfo,
): void {
  const requireAbility = (ability: string, purpose: string, disablingOptions: string) => {
    if (abilities.includes(ability)) return;
    topic.wrong(`the token lacks ${ability}, which ${purpose} need; have it added, or do without: ${disablingOptions}`);
  };
  const option = `sources.${source}.schedules`;
  if (schedules.alarms !== false || schedules.resolved_sweep !== false)
    requireAbility("read:alarms", "the lists of alarms", `${option}: { alarms: false, resolved_sweep: false }`);
  if (schedules.tags !== false || read.length > 0 || history.length > 0) {
    const disablingOptions = `${option}: { tags: false }, and neither read nor history`;
    requireAbility("read:tags", "values, history and the list of tags", disablingOptions);
  }
  for (const list of ["gateways", "hosts", "systems"] as const)
    if (schedules[list] !== false)
      requireAbility(`read:${list}`, `the lists of ${list}`, `${option}: { ${list}: false }`);
  if (commands.enabled && commands.allow.some((tag) => (tag.source ?? source) === source))
    requireAbility("write:tags", "writes", "commands.enabled: false");
}
