import type { Config, SourceConfigEntry } from "../../app/config/config.ts";
import type { LocateOption } from "../../app/config/yaml-variables-and-errors.ts";
import { formatDuration } from "../../core/values/duration.ts";
import { formatCount } from "../../core/values/plural.ts";
import type { AllowedTag } from "../../engine/commands/config.ts";
import type { PlanReport } from "../../engine/sync/plan/report.ts";
import {
  compareTagClasses,
  describeVisibleSites,
  findSelectionMismatches,
  findSiteMismatches,
  findWritableMismatches,
  joinWords,
  type Mismatch,
  type TagClassComparison,
  type VisibleBuilding,
} from "../../engine/sync/selectors-without-match.ts";
import { DEFINED_ALARM_PRIORITIES } from "../shell/refuse-unknown-ids.ts";
import { type CheckResult, passedCheck, warnedCheck, wrongCheck } from "./check-result-line.ts";

export interface BuildingCheck {
  readonly name: string;
  readonly entry: SourceConfigEntry;
  readonly config: Config;
  readonly building: VisibleBuilding;
  readonly places: LocateOption;
}

type CheckResults = readonly CheckResult[];
type KeyPath = readonly (string | number)[];

export function compareSourceWithBuilding(compared: BuildingCheck): CheckResults {
  const { read, history, schedules } = compared.entry;
  const checkName = `${compared.name}: values`;
  const isReadingTags = read.length + history.length > 0;
  const noTagListText = "Without the list of tags the worker learns of no tag, and reads none: let schedules.tags be.";
  return [
    ...checkSiteOptions(compared),
    ...checkReadClasses(compared),
    ...checkHistoryClasses(compared),
    ...checkSilentSensorOptions(compared),
    ...checkWritableTags(compared),
    ...(isReadingTags ? [] : [passedCheck(checkName, "none are read: `read` and `history` are empty")]),
    ...(isReadingTags && schedules.tags === false
      ? [warnedCheck(checkName, noTagListText, compared.places(["sources", compared.name, "schedules", "tags"]))]
      : []),
  ];
}

export function checkQuota(name: string, { alarms, fits, load, changes, classes, history }: PlanReport): CheckResults {
  const requestLimitAdvice = "If the service allows more, raise quota.list_requests_per_minute.";
  const alarmWarnings = alarms === undefined ? [] : [warnedCheck(`${name}: alarms`, `${alarms} ${requestLimitAdvice}`)];
  if (classes.length + history.length === 0) return alarmWarnings;
  const checkName = `${name}: quota`;
  const loadText = `the intervals need ${(load * 100).toFixed(0)} % of the plannable quota`;
  if (fits) return [...alarmWarnings, passedCheck(checkName, loadText)];
  const [cheapest] = changes;
  const changeAdvice = cheapest === undefined ? "" : ` The cheapest change: ${cheapest.text} ${cheapest.yaml}`;
  return [
    ...alarmWarnings,
    warnedCheck(checkName, `${loadText}, so values become older than configured.${changeAdvice}`),
  ];
}

/** Warns if a sink's filter names an unknown priority. It is no error, because the service may add priorities. */
export function checkSinkPriorities({ sinks }: Config, places: LocateOption): CheckResults {
  return sinkFilterWarnings(sinks, places, "priorities", ({ priorities }) =>
    priorities.map((priority) =>
      DEFINED_ALARM_PRIORITIES.includes(priority)
        ? null
        : `The service knows no priority ${priority}; its alarms have ${DEFINED_ALARM_PRIORITIES.join(", ")}.`,
    ),
  );
}

export function checkSinkSites(
  { sinks }: Config,
  buildings: ReadonlyMap<string, Pick<VisibleBuilding, "sites">>,
  places: LocateOption,
): CheckResults {
  return sinkFilterWarnings(sinks, places, "sites", (filter) => {
    const filterSources = filter.sources.length === 0 ? [...buildings.keys()] : filter.sources;
    const knownBuildings = filterSources.map((source) => buildings.get(source));
    if (filter.sources.length > 0 && knownBuildings.includes(undefined)) return [];
    const sites = knownBuildings.flatMap((building) => building?.sites ?? []);
    const siteIds = new Set(sites.map(({ id }) => String(id)));
    return filter.sites.map((id) =>
      siteIds.has(id) ? null : `No event can be of a site ${id}; ${describeVisibleSites({ sites })}.`,
    );
  });
}

function sinkFilterWarnings(
  sinks: Config["sinks"],
  places: LocateOption,
  option: "priorities" | "sites",
  problems: (filter: Config["sinks"][string]["filter"]) => readonly (string | null)[],
): CheckResults {
  return Object.entries(sinks).flatMap(([sink, { filter }]) =>
    problems(filter).flatMap((problem, index) =>
      problem === null ? [] : [warnedCheck(`sink ${sink}`, problem, places(["sinks", sink, "filter", option, index]))],
    ),
  );
}

function mismatchLines({ name, places }: BuildingCheck, what: string, base: KeyPath, mismatches: readonly Mismatch[]) {
  return mismatches.map(({ path, message }) =>
    warnedCheck(`${name}: ${what}`, message, places(["sources", name, ...base, ...path])),
  );
}

function checkSiteOptions(compared: BuildingCheck): CheckResults {
  const { entry, building } = compared;
  return (["alarms", "inventory"] as const).flatMap((section) => {
    const mismatches = findSiteMismatches(entry[section].sites ?? [], { ...building, followed: null });
    return mismatchLines(compared, `${section} of sites`, [section, "sites"], mismatches);
  });
}

function checkReadClasses(compared: BuildingCheck): CheckResults {
  const { read } = compared.entry;
  return compareTagClasses(read, compared.building).flatMap((found, index) => {
    const readIntervalText = formatDuration(read[index]?.every ?? 0);
    return checkTagClass(compared, `read ${found.name}`, ["read", index], found, `, at most ${readIntervalText} old`);
  });
}

/** Compares the classes of history with the building, separately for each resolution and for totals. */
function checkHistoryClasses(compared: BuildingCheck): CheckResults {
  const classes = compared.entry.history.map((each, index) => ({ ...each, index }));
  const classesBySeries = Map.groupBy(classes, ({ resolution, total }) => `${resolution}${total ? " totals" : ""}`);
  return [...classesBySeries].flatMap(([series, list]) =>
    compareTagClasses(list, compared.building).flatMap((found, n) => {
      const { index = 0, backfill = 0 } = list[n] ?? {};
      const pastText = backfill === 0 ? "" : `, and the past ${formatDuration(backfill)}`;
      return checkTagClass(compared, `history ${found.name}`, ["history", index], found, ` at ${series}${pastText}`);
    }),
  );
}

function checkTagClass(
  compared: BuildingCheck,
  what: string,
  base: KeyPath,
  { tags, mismatches }: TagClassComparison,
  details: string,
): CheckResults {
  const lines = mismatchLines(compared, what, base, mismatches);
  if (tags > 0) return [passedCheck(`${compared.name}: ${what}`, `${formatCount(tags, "tag")}${details}`), ...lines];
  return lines.map((line, n) =>
    n === 0 ? { ...line, detail: `${line.detail} Nothing is read of this class.` } : line,
  );
}

/** One matching field of `silent_sensors` selects a tag, so each field is compared with the building separately. */
function checkSilentSensorOptions(compared: BuildingCheck): CheckResults {
  const { silent_sensors: sensors } = compared.entry;
  if (sensors === false) return [];
  // The default units and names of may_rest are left out, because a building may have none of them.
  const { sites, systems, ids } = sensors.may_rest;
  const sensorSelections = { exclude: { ...sensors.exclude, classes: undefined }, may_rest: { sites, systems, ids } };
  return Object.entries(sensorSelections).flatMap(([list, fields]) =>
    Object.entries(fields).flatMap(([field, value]) => {
      const mismatches = value === undefined ? [] : findSelectionMismatches({ [field]: value }, compared.building);
      return mismatchLines(compared, "silent_sensors", ["silent_sensors", list], mismatches);
    }),
  );
}

/** An allowed tag that the building lacks is an error: the operator expects to write it. */
function checkWritableTags(compared: BuildingCheck): CheckResults {
  const { name, config, building, places } = compared;
  const { enabled, allow } = config.commands;
  const checkName = `${name}: commands`;
  const tagMismatches = allow.flatMap((entry, index) =>
    (entry.source ?? name) !== name
      ? []
      : findWritableMismatches(entry, building).map(({ path, message }) =>
          (enabled ? wrongCheck : warnedCheck)(checkName, message, places(["commands", "allow", index, ...path])),
        ),
  );
  const foundTags = findWritableTags(compared);
  const ids = joinWords(foundTags.map((entry) => entry.tag_id));
  const foundTagsText = `${formatCount(foundTags.length, "tag")} of commands.allow found in the building: ${ids}`;
  return [...(foundTags.length === 0 ? [] : [passedCheck(checkName, foundTagsText)]), ...tagMismatches];
}

export function findWritableTags({ name, config, building }: Pick<BuildingCheck, "name" | "config" | "building">) {
  return config.commands.allow.filter(
    (entry: AllowedTag) => (entry.source ?? name) === name && findWritableMismatches(entry, building).length === 0,
  );
}
