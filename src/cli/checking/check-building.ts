import type { Config, SourceConfigEntry } from "../../app/config/config.ts";
import { formatDuration } from "../../core/values/duration.ts";
import { formatCount } from "../../core/values/plural.ts";
import type { PlanReport } from "../../engine/sync/plan/report.ts";
import {
  compareTagClasses,
  describeVisibleSites,
  findSiteMismatches,
  findWritableMismatches,
  joinWords,
  type Mismatch,
  type TagClassComparison,
  type VisibleBuilding,
} from "../../engine/sync/selectors-without-match.ts";
import { DEFINED_ALARM_PRIORITIES } from "../shell/refuse-unknown-ids.ts";
import type { CheckReport } from "./check-report.ts";

export interface BuildingCheck {
  readonly name: string;
  readonly sourceConfig: SourceConfigEntry;
  readonly config: Config;
  readonly building: VisibleBuilding;
  readonly report: CheckReport;
}

export function compareSourceWithBuilding(buildingCheck: BuildingCheck): void {
  checkSiteOptions(buildingCheck);
  checkReadClasses(buildingCheck);
  checkHistoryClasses(buildingCheck);
  checkWritableTags(buildingCheck);
  const { name, sourceConfig, report } = buildingCheck;
  const values = report.about(`${name}: values`);
  const noTagListText = "Without the list of tags the worker learns of no tag, and reads none: let schedules.tags be.";
  if (sourceConfig.read.length + sourceConfig.history.length === 0)
    values.ok("none are read: `read` and `history` are empty");
  else if (sourceConfig.schedules.tags === false) values.warn(noTagListText, ["sources", name, "schedules", "tags"]);
}

export function checkQuota(name: string, plan: PlanReport, report: CheckReport): void {
  const { alarms, fits, load, changes, classes, history } = plan;
  if (alarms !== undefined)
    report.about(`${name}: alarms`).warn(`${alarms} If the service allows more, raise quota.list_requests_per_minute.`);
  if (classes.length + history.length === 0) return;
  const quota = report.about(`${name}: quota`);
  const loadText = `the intervals need ${(load * 100).toFixed(0)} % of the plannable quota`;
  const [cheapest] = changes;
  const changeAdvice = cheapest === undefined ? "" : ` The cheapest change: ${cheapest.text} ${cheapest.yaml}`;
  if (fits) quota.ok(loadText);
  else quota.warn(`${loadText}, so values become older than configured.${changeAdvice}`);
}

/** Warns if a sink's filter names an unknown priority. It is no error, because the service may add priorities. */
export function checkSinkPriorities({ sinks }: Config, report: CheckReport): void {
  for (const [sink, { filter }] of Object.entries(sinks))
    for (const [n, priority] of filter.priorities.entries()) {
      if (DEFINED_ALARM_PRIORITIES.includes(priority)) continue;
      const detail = `The service knows no priority ${priority}; its alarms have ${DEFINED_ALARM_PRIORITIES.join(", ")}.`;
      report.about(`sink ${sink}`).warn(detail, ["sinks", sink, "filter", "priorities", n]);
    }
}

export function checkSinkSites(
  { sinks }: Config,
  buildings: ReadonlyMap<string, Pick<VisibleBuilding, "sites">>,
  report: CheckReport,
): void {
  for (const [sink, { filter }] of Object.entries(sinks)) {
    const filterSources = filter.sources.length === 0 ? [...buildings.keys()] : filter.sources;
    const knownBuildings = filterSources.map((source) => buildings.get(source));
    if (knownBuildings.includes(undefined)) continue;
    const sites = knownBuildings.flatMap((building) => building?.sites ?? []);
    const siteIds = new Set(sites.map(({ id }) => String(id)));
    for (const [n, id] of filter.sites.entries()) {
      if (siteIds.has(id)) continue;
      const detail = `No event can be of a site ${id}; ${describeVisibleSites({ sites })}.`;
      report.about(`sink ${sink}`).warn(detail, ["sinks", sink, "filter", "sites", n]);
    }
  }
}

function warnOfMismatches(
  { name, report }: BuildingCheck,
  checkedOption: string,
  basePath: Mismatch["path"],
  mismatches: readonly Mismatch[],
): void {
  for (const { path, message } of mismatches)
    report.about(`${name}: ${checkedOption}`).warn(message, ["sources", name, ...basePath, ...path]);
}

function checkSiteOptions(buildingCheck: BuildingCheck): void {
  const { sourceConfig, building } = buildingCheck;
  for (const section of ["alarms", "inventory"] as const) {
    const mismatches = findSiteMismatches(sourceConfig[section].sites ?? [], { ...building, followed: null });
    warnOfMismatches(buildingCheck, `${section} of sites`, [section, "sites"], mismatches);
  }
}

function checkReadClasses(buildingCheck: BuildingCheck): void {
  const { read } = buildingCheck.sourceConfig;
  for (const [index, comparison] of compareTagClasses(read, buildingCheck.building).entries())
    checkTagClass(
      buildingCheck,
      ["read", index],
      comparison,
      `, at most ${formatDuration(read[index]?.every ?? 0)} old`,
    );
}

/** Checks that each history class selects tags of the building, for each resolution and separately for totals. */
function checkHistoryClasses(buildingCheck: BuildingCheck): void {
  const classes = buildingCheck.sourceConfig.history.map((historyClass, index) => ({ ...historyClass, index }));
  const classesBySeries = Map.groupBy(classes, ({ resolution, total }) => `${resolution}${total ? " totals" : ""}`);
  for (const [series, seriesClasses] of classesBySeries)
    for (const [n, comparison] of compareTagClasses(seriesClasses, buildingCheck.building).entries()) {
      const { index = 0, backfill = 0 } = seriesClasses[n] ?? {};
      const backfillText = backfill === 0 ? "" : `, and the past ${formatDuration(backfill)}`;
      checkTagClass(buildingCheck, ["history", index], comparison, ` at ${series}${backfillText}`);
    }
}

function checkTagClass(
  buildingCheck: BuildingCheck,
  path: readonly ["read" | "history", number],
  { name: className, tags, mismatches }: TagClassComparison,
  detailSuffix: string,
): void {
  const { name, report } = buildingCheck;
  const checkedOption = `${path[0]} ${className}`;
  if (tags > 0) report.about(`${name}: ${checkedOption}`).ok(`${formatCount(tags, "tag")}${detailSuffix}`);
  const explainedMismatches = mismatches.map((mismatch, n) =>
    tags === 0 && n === 0 ? { ...mismatch, message: `${mismatch.message} Nothing is read of this class.` } : mismatch,
  );
  warnOfMismatches(buildingCheck, checkedOption, path, explainedMismatches);
}

/** Reports an entry of `commands.allow` without a matching tag as an error: the operator expects to write the tag. */
function checkWritableTags(buildingCheck: BuildingCheck): void {
  const { name, config, building, report } = buildingCheck;
  const { enabled, allow } = config.commands;
  const commands = report.about(`${name}: commands`);
  const foundTags = findWritableTags(buildingCheck);
  const ids = joinWords(foundTags.map((allowedTag) => allowedTag.tag_id));
  if (foundTags.length > 0)
    commands.ok(`${formatCount(foundTags.length, "tag")} of commands.allow found in the building: ${ids}`);
  for (const [index, allowedTag] of allow.entries()) {
    if ((allowedTag.source ?? name) !== name) continue;
    for (const { path, message } of findWritableMismatches(allowedTag, building))
      commands.add(enabled ? "wrong" : "warning", message, ["commands", "allow", index, ...path]);
  }
}

export function findWritableTags({ name, config, building }: BuildingCheck) {
  return config.commands.allow.filter(
    (allowedTag) => (allowedTag.source ?? name) === name && findWritableMismatches(allowedTag, building).length === 0,
  );
}
