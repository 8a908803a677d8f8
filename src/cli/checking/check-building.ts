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
import { type CheckResult, passedResult, warningResult, wrongResult } from "./check-result-line.ts";

export interface BuildingCheck {
  readonly name: string;
  readonly entry: SourceConfigEntry;
  readonly config: Config;
  readonly building: VisibleBuilding;
  readonly locateOption: LocateOption;
}

type CheckResults = readonly CheckResult[];
type KeyPath = readonly (string | number)[];

export function compareSourceWithBuilding(buildingCheck: BuildingCheck): CheckResults {
  const { read, history, schedules } = buildingCheck.entry;
  const checkName = `${buildingCheck.name}: values`;
  const isReadingTags = read.length + history.length > 0;
  const noTagListText = "Without the list of tags the worker learns of no tag, and reads none: let schedules.tags be.";
  return [
    ...checkSiteOptions(buildingCheck),
    ...checkReadClasses(buildingCheck),
    ...checkHistoryClasses(buildingCheck),
    ...checkSilentSensorOptions(buildingCheck),
    ...checkWritableTags(buildingCheck),
    ...(isReadingTags ? [] : [passedResult(checkName, "none are read: `read` and `history` are empty")]),
    ...(isReadingTags && schedules.tags === false
      ? [
          warningResult(
            checkName,
            noTagListText,
            buildingCheck.locateOption(["sources", buildingCheck.name, "schedules", "tags"]),
          ),
        ]
      : []),
  ];
}

export function checkQuota(name: string, { alarms, fits, load, changes, classes, history }: PlanReport): CheckResults {
  const requestLimitAdvice = "If the service allows more, raise quota.list_requests_per_minute.";
  const alarmWarnings =
    alarms === undefined ? [] : [warningResult(`${name}: alarms`, `${alarms} ${requestLimitAdvice}`)];
  if (classes.length + history.length === 0) return alarmWarnings;
  const checkName = `${name}: quota`;
  const loadText = `the intervals need ${(load * 100).toFixed(0)} % of the plannable quota`;
  if (fits) return [...alarmWarnings, passedResult(checkName, loadText)];
  const [cheapest] = changes;
  const changeAdvice = cheapest === undefined ? "" : ` The cheapest change: ${cheapest.text} ${cheapest.yaml}`;
  return [
    ...alarmWarnings,
    warningResult(checkName, `${loadText}, so values become older than configured.${changeAdvice}`),
  ];
}

/** Warns if a sink's filter names an unknown priority. It is no error, because the service may add priorities. */
export function checkSinkPriorities({ sinks }: Config, locateOption: LocateOption): CheckResults {
  return sinkFilterWarnings(sinks, locateOption, "priorities", ({ priorities }) =>
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
  locateOption: LocateOption,
): CheckResults {
  return sinkFilterWarnings(sinks, locateOption, "sites", (filter) => {
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
  locateOption: LocateOption,
  option: "priorities" | "sites",
  findFilterProblems: (filter: Config["sinks"][string]["filter"]) => readonly (string | null)[],
): CheckResults {
  return Object.entries(sinks).flatMap(([sink, { filter }]) =>
    findFilterProblems(filter).flatMap((problem, index) =>
      problem === null
        ? []
        : [warningResult(`sink ${sink}`, problem, locateOption(["sinks", sink, "filter", option, index]))],
    ),
  );
}

function mismatchLines(
  { name, locateOption }: BuildingCheck,
  checkedOption: string,
  basePath: KeyPath,
  mismatches: readonly Mismatch[],
) {
  return mismatches.map(({ path, message }) =>
    warningResult(`${name}: ${checkedOption}`, message, locateOption(["sources", name, ...basePath, ...path])),
  );
}

function checkSiteOptions(buildingCheck: BuildingCheck): CheckResults {
  const { entry, building } = buildingCheck;
  return (["alarms", "inventory"] as const).flatMap((section) => {
    const mismatches = findSiteMismatches(entry[section].sites ?? [], { ...building, followed: null });
    return mismatchLines(buildingCheck, `${section} of sites`, [section, "sites"], mismatches);
  });
}

function checkReadClasses(buildingCheck: BuildingCheck): CheckResults {
  const { read } = buildingCheck.entry;
  return compareTagClasses(read, buildingCheck.building).flatMap((comparison, index) => {
    const readIntervalText = formatDuration(read[index]?.every ?? 0);
    return checkTagClass(
      buildingCheck,
      `read ${comparison.name}`,
      ["read", index],
      comparison,
      `, at most ${readIntervalText} old`,
    );
  });
}

/** Checks that the configured history classes select series of the building, for each resolution and for totals. */
function checkHistoryClasses(buildingCheck: BuildingCheck): CheckResults {
  const classes = buildingCheck.entry.history.map((historyClass, index) => ({ ...historyClass, index }));
  const classesBySeries = Map.groupBy(classes, ({ resolution, total }) => `${resolution}${total ? " totals" : ""}`);
  return [...classesBySeries].flatMap(([series, seriesClasses]) =>
    compareTagClasses(seriesClasses, buildingCheck.building).flatMap((comparison, classIndex) => {
      const { index = 0, backfill = 0 } = seriesClasses[classIndex] ?? {};
      const backfillText = backfill === 0 ? "" : `, and the past ${formatDuration(backfill)}`;
      return checkTagClass(
        buildingCheck,
        `history ${comparison.name}`,
        ["history", index],
        comparison,
        ` at ${series}${backfillText}`,
      );
    }),
  );
}

function checkTagClass(
  buildingCheck: BuildingCheck,
  checkedOption: string,
  basePath: KeyPath,
  { tags, mismatches }: TagClassComparison,
  detailSuffix: string,
): CheckResults {
  const mismatchResults = mismatchLines(buildingCheck, checkedOption, basePath, mismatches);
  if (tags > 0)
    return [
      passedResult(`${buildingCheck.name}: ${checkedOption}`, `${formatCount(tags, "tag")}${detailSuffix}`),
      ...mismatchResults,
    ];
  return mismatchResults.map((line, n) =>
    n === 0 ? { ...line, detail: `${line.detail} Nothing is read of this class.` } : line,
  );
}

/** Compares each field of `silent_sensors` with the building separately, because one matching field selects a tag. */
function checkSilentSensorOptions(buildingCheck: BuildingCheck): CheckResults {
  const { silent_sensors: silentSensorOptions } = buildingCheck.entry;
  if (silentSensorOptions === false) return [];
  // Ignore units and names of `may_rest`: a building may have none of the default ones.
  const { sites, systems, ids } = silentSensorOptions.may_rest;
  const sensorSelections = {
    exclude: { ...silentSensorOptions.exclude, classes: undefined },
    may_rest: { sites, systems, ids },
  };
  return Object.entries(sensorSelections).flatMap(([listName, fields]) =>
    Object.entries(fields).flatMap(([field, value]) => {
      const mismatches = value === undefined ? [] : findSelectionMismatches({ [field]: value }, buildingCheck.building);
      return mismatchLines(buildingCheck, "silent_sensors", ["silent_sensors", listName], mismatches);
    }),
  );
}

/** Reports an entry of `commands.allow` without a matching tag as an error: the operator expects to write the tag. */
function checkWritableTags(buildingCheck: BuildingCheck): CheckResults {
  const { name, config, building, locateOption } = buildingCheck;
  const { enabled, allow } = config.commands;
  const checkName = `${name}: commands`;
  const tagMismatches = allow.flatMap((allowedTag, index) =>
    (allowedTag.source ?? name) !== name
      ? []
      : findWritableMismatches(allowedTag, building).map(({ path, message }) =>
          (enabled ? wrongResult : warningResult)(
            checkName,
            message,
            locateOption(["commands", "allow", index, ...path]),
          ),
        ),
  );
  const foundTags = findWritableTags(buildingCheck);
  const ids = joinWords(foundTags.map((allowedTag) => allowedTag.tag_id));
  const foundTagsText = `${formatCount(foundTags.length, "tag")} of commands.allow found in the building: ${ids}`;
  return [...(foundTags.length === 0 ? [] : [passedResult(checkName, foundTagsText)]), ...tagMismatches];
}

export function findWritableTags({ name, config, building }: Pick<BuildingCheck, "name" | "config" | "building">) {
  return config.commands.allow.filter(
    (allowedTag: AllowedTag) =>
      (allowedTag.source ?? name) === name && findWritableMismatches(allowedTag, building).length === 0,
  );
}
