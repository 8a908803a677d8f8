import type { Config, SourceEntry } from "../../app/config/config.ts";
import type { Places } from "../../app/config/places.ts";
import { formatDuration } from "../../core/values/duration.ts";
import { counted } from "../../core/values/plural.ts";
import type { AllowedTag } from "../../engine/commands/config.ts";
import {
  type Mismatch,
  type SeenBuilding,
  siteMismatches,
  sitesThere,
  some,
} from "../../engine/sync/compare/building.ts";
import { type ClassComparison, compareClasses } from "../../engine/sync/compare/classes.ts";
import { selectionMismatches } from "../../engine/sync/compare/selections.ts";
import { writableMismatches } from "../../engine/sync/compare/writable.ts";
import type { PlanReport } from "../../engine/sync/plan/report.ts";
import { PRIORITIES } from "../shell/known-ids.ts";
import type { CheckLine } from "./check-line.ts";

export interface ComparedSource {
  readonly name: string;
  readonly entry: SourceEntry;
  readonly config: Config;
  readonly building: SeenBuilding;
  readonly places: Places;
}

/** What the configuration of a source means in the building that its token shows, a line for each thing. */
export function compareSource(compared: ComparedSource): readonly CheckLine[] {
  const { entry } = compared;
  return [
    ...siteLists(compared),
    ...classLines(compared),
    ...historyLines(compared),
    ...sensorLines(compared),
    ...writableLines(compared),
    ...(entry.read.length + entry.history.length === 0
      ? [ok(compared, "values", "none are read: `read` and `history` are empty")]
      : []),
    ...(entry.schedules.tags === false && entry.read.length + entry.history.length > 0
      ? lines(
          compared,
          "values",
          ["schedules", "tags"],
          [
            {
              path: [],
              message:
                "Without the list of tags the worker learns of no tag, and reads none: let schedules.tags be.",
            },
          ],
        )
      : []),
  ];
}

/** Whether the wishes fit into the quota, and the cheapest change where they do not. */
export function planLine(name: string, plan: PlanReport): readonly CheckLine[] {
  const { alarms } = plan;
  const slow: readonly CheckLine[] =
    alarms === undefined
      ? []
      : [{ what: `${name}: alarms`, result: "warning", detail: `${alarms} ${FASTER}` }];
  return [...slow, ...quotaLine(name, plan)];
}

const FASTER = "If the service allows more, raise quota.list_requests_per_minute.";

function quotaLine(
  name: string,
  { fits, load, changes, classes, history }: PlanReport,
): readonly CheckLine[] {
  if (classes.length + history.length === 0) return [];
  const what = `${name}: quota`;
  const needs = `the wishes need ${(load * 100).toFixed(0)} % of what can be planned with`;
  if (fits) return [{ what, result: "ok", detail: needs }];
  const [cheapest] = changes;
  const help = cheapest === undefined ? "" : ` The cheapest change: ${cheapest.text} ${cheapest.yaml}`;
  return [{ what, result: "warning", detail: `${needs}, so values become older than wished.${help}` }];
}

/** Priorities in the filters of sinks that the interface does not know; one of its own an alarm may have all the same. */
export function priorityLines({ sinks }: Config, places: Places): readonly CheckLine[] {
  return Object.entries(sinks).flatMap(([sink, { filter }]) =>
    filter.priorities.flatMap((priority, index): readonly CheckLine[] =>
      PRIORITIES.includes(priority)
        ? []
        : [
            {
              what: `sink ${sink}`,
              result: "warning",
              detail: `The service knows no priority ${priority}; its alarms have ${PRIORITIES.join(", ")}.`,
              place: places(["sinks", sink, "filter", "priorities", index]),
            },
          ],
    ),
  );
}

/** Site ids in the filters of sinks: those of every source count that the filter lets through. */
export function filterLines(
  { sinks }: Config,
  buildings: ReadonlyMap<string, Pick<SeenBuilding, "sites">>,
  places: Places,
): readonly CheckLine[] {
  return Object.entries(sinks).flatMap(([sink, { filter }]) => {
    const sources = filter.sources.length === 0 ? [...buildings.keys()] : filter.sources;
    const seen = sources.map((source) => buildings.get(source));
    // Whether it is at a source that was not to be had, nobody knows.
    if (filter.sites.length === 0 || (filter.sources.length > 0 && seen.includes(undefined))) return [];
    const sites = seen.flatMap((building) => building?.sites ?? []);
    const ids = new Set(sites.map(({ id }) => String(id)));
    return filter.sites.flatMap((id, index): readonly CheckLine[] =>
      ids.has(id)
        ? []
        : [
            {
              what: `sink ${sink}`,
              result: "warning",
              detail: `No event can be of a site ${id}; ${sitesThere({ sites })}.`,
              place: places(["sinks", sink, "filter", "sites", index]),
            },
          ],
    );
  });
}

type Path = readonly (string | number)[];

function ok({ name }: ComparedSource, what: string, detail: string): CheckLine {
  return { what: `${name}: ${what}`, result: "ok", detail };
}

function lines(
  { name, places }: ComparedSource,
  what: string,
  base: Path,
  mismatches: readonly Mismatch[],
  result: "warning" | "wrong" = "warning",
): readonly CheckLine[] {
  return mismatches.map(({ path, message }) => ({
    what: `${name}: ${what}`,
    result,
    detail: message,
    place: places(["sources", name, ...base, ...path]),
  }));
}

function siteLists(compared: ComparedSource): readonly CheckLine[] {
  const { entry, building } = compared;
  return (["alarms", "inventory"] as const).flatMap((section) =>
    lines(
      compared,
      `${section} of sites`,
      [section, "sites"],
      siteMismatches(entry[section].sites ?? [], { ...building, followed: null }),
    ),
  );
}

function classLines(compared: ComparedSource): readonly CheckLine[] {
  const { read } = compared.entry;
  return compareClasses(read, compared.building).flatMap((found, index) => {
    const every = formatDuration(read[index]?.every ?? 0);
    return ofClass(compared, `read ${found.name}`, ["read", index], found, `, at most ${every} old`);
  });
}

/** Each resolution, and totals, are a list of their own. */
function historyLines(compared: ComparedSource): readonly CheckLine[] {
  const { history } = compared.entry;
  const indexed = history.map((each, index) => ({ ...each, index }));
  const lists = Map.groupBy(indexed, ({ resolution, total }) => `${resolution}${total ? " totals" : ""}`);
  return [...lists].flatMap(([series, list]) =>
    compareClasses(list, compared.building).flatMap((found, n) => {
      const { index = 0, backfill = 0 } = list[n] ?? {};
      const past = backfill === 0 ? "" : `, and the past ${formatDuration(backfill)}`;
      return ofClass(compared, `history ${found.name}`, ["history", index], found, ` at ${series}${past}`);
    }),
  );
}

function ofClass(
  compared: ComparedSource,
  what: string,
  base: Path,
  { tags, mismatches }: ClassComparison,
  rest: string,
): readonly CheckLine[] {
  const wrong = lines(compared, what, base, mismatches);
  if (tags > 0) return [ok(compared, what, `${counted(tags, "tag")}${rest}`), ...wrong];
  return wrong.map((line, n) =>
    n === 0 ? { ...line, detail: `${line.detail} Nothing is read of this class.` } : line,
  );
}

/** A tag is on such a list when any of its entries fits, so each field stands for itself. */
function sensorLines(compared: ComparedSource): readonly CheckLine[] {
  const { silent_sensors: sensors } = compared.entry;
  if (sensors === false) return [];
  // What is left out of the configuration stands here as well: units and names by which a tag may rest.
  const { sites, systems, ids } = sensors.may_rest;
  const written = { exclude: { ...sensors.exclude, classes: undefined }, may_rest: { sites, systems, ids } };
  return Object.entries(written).flatMap(([list, fields]) =>
    Object.entries(fields).flatMap(([field, value]) =>
      value === undefined
        ? []
        : lines(
            compared,
            "silent_sensors",
            ["silent_sensors", list],
            selectionMismatches({ [field]: value }, compared.building),
          ),
    ),
  );
}

/** An entry that can never hold is wrong: somebody counts on being able to write. */
function writableLines(compared: ComparedSource): readonly CheckLine[] {
  const { name, config, building, places } = compared;
  const { enabled, allow } = config.commands;
  const what = "commands";
  const bad = allow.flatMap((entry, index) =>
    (entry.source ?? name) !== name
      ? []
      : writableMismatches(entry, building).map(
          ({ path, message }): CheckLine => ({
            what: `${name}: ${what}`,
            result: enabled ? "wrong" : "warning",
            detail: message,
            place: places(["commands", "allow", index, ...path]),
          }),
        ),
  );
  const good = writableTags(compared);
  const ids = some(good.map((entry) => entry.tag_id));
  const found = `${counted(good.length, "tag")} of commands.allow found in the building: ${ids}`;
  return [...(good.length === 0 ? [] : [ok(compared, what, found)]), ...bad];
}

/** The entries of `commands.allow` whose tags the building has as they say. */
export function writableTags({
  name,
  config,
  building,
}: Omit<ComparedSource, "entry" | "places">): readonly AllowedTag[] {
  return config.commands.allow.filter(
    (entry) => (entry.source ?? name) === name && writableMismatches(entry, building).length === 0,
  );
}
