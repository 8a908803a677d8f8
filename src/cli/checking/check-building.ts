import type { Config, SourceEntry } from "../../app/config/config.ts";
import type { Places } from "../../app/config/places.ts";
import { formatDuration } from "../../core/values/duration.ts";
import { counted } from "../../core/values/plural.ts";
import type { AllowedTag } from "../../engine/commands/config.ts";
import {
  type ClassComparison,
  compareClasses,
  type Mismatch,
  type SeenBuilding,
  selectionMismatches,
  siteMismatches,
  sitesThere,
  some,
  writableMismatches,
} from "../../engine/sync/compare.ts";
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

/** Compares the configuration of a source with the building that its token shows. */
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
              message: "Without the list of tags the worker learns of no tag, and reads none: let schedules.tags be.",
            },
          ],
        )
      : []),
  ];
}

/** Compares the configured reads with the quota; adds the cheapest change if they do not fit. */
export function planLine(name: string, plan: PlanReport): readonly CheckLine[] {
  const { alarms } = plan;
  const slow: readonly CheckLine[] =
    alarms === undefined ? [] : [{ what: `${name}: alarms`, result: "warning", detail: `${alarms} ${FASTER}` }];
  return [...slow, ...quotaLine(name, plan)];
}

const FASTER = "If the service allows more, raise quota.list_requests_per_minute.";

function quotaLine(name: string, { fits, load, changes, classes, history }: PlanReport): readonly CheckLine[] {
  if (classes.length + history.length === 0) return [];
  const what = `${name}: quota`;
  const needs = `the wishes need ${(load * 100).toFixed(0)} % of what can be planned with`;
  if (fits) return [{ what, result: "ok", detail: needs }];
  const [cheapest] = changes;
  const help = cheapest === undefined ? "" : ` The cheapest change: ${cheapest.text} ${cheapest.yaml}`;
  return [{ what, result: "warning", detail: `${needs}, so values become older than wished.${help}` }];
}

/** Warns of filter priorities that the interface does not define. An alarm may have one anyway, so it is no error. */
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

/** Warns of site ids in sink filters that no source of the filter has. */
export function filterLines(
  { sinks }: Config,
  buildings: ReadonlyMap<string, Pick<SeenBuilding, "sites">>,
  places: Places,
): readonly CheckLine[] {
  return Object.entries(sinks).flatMap(([sink, { filter }]) => {
    const sources = filter.sources.length === 0 ? [...buildings.keys()] : filter.sources;
    const seen = sources.map((source) => buildings.get(source));
    // The site may belong to a source that did not respond.
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

/** Compares history classes; each resolution, and totals, is a separate list. */
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

/** Compares each field separately, because a tag is on the list as soon as one field matches. */
function sensorLines(compared: ComparedSource): readonly CheckLine[] {
  const { silent_sensors: sensors } = compared.entry;
  if (sensors === false) return [];
  // Skip the default units and names of may_rest: they need not exist in every building.
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

/** An allowed tag that the building does not have is an error, because the operator expects to write it. */
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

/** Returns the entries of `commands.allow` that match a tag of the building. */
export function writableTags({
  name,
  config,
  building,
}: Omit<ComparedSource, "entry" | "places">): readonly AllowedTag[] {
  return config.commands.allow.filter(
    (entry) => (entry.source ?? name) === name && writableMismatches(entry, building).length === 0,
  );
}
