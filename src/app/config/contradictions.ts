import { suggestion } from "../../core/values/suggest.ts";
import type { Contradiction } from "./problems.ts";
import { sharedFolders } from "./shared-folders.ts";
import { sharedTokens } from "./shared-tokens.ts";

interface BySystem {
  readonly systems?: readonly string[] | undefined;
}

interface SelectsTags {
  readonly name: string;
  readonly select: BySystem & { readonly exclude?: BySystem | undefined };
}

interface SensorList extends BySystem {
  readonly classes?: readonly string[] | undefined;
}

interface SinkSection {
  readonly enabled: boolean;
  readonly filter: { readonly sources: readonly string[] };
  readonly file?: unknown;
  readonly stdout?: unknown;
  readonly parquet?: { readonly folder?: string | undefined; readonly table_format: "plain" | "delta" } | undefined;
}

/** The parts of the configuration that name each other. */
interface Sections {
  readonly sources: Readonly<
    Record<
      string,
      {
        readonly read: readonly SelectsTags[];
        readonly history: readonly SelectsTags[];
        readonly inventory: { readonly tags_of_systems: boolean };
        readonly silent_sensors: false | { readonly exclude: SensorList; readonly may_rest: SensorList };
      }
    >
  >;
  readonly state: { readonly postgres?: unknown };
  readonly sinks: Readonly<Record<string, SinkSection>>;
  readonly commands: {
    readonly allow: readonly {
      readonly source?: string | undefined;
      readonly from?: readonly string[] | undefined;
    }[];
  };
}

export function contradictions(config: Sections): readonly Contradiction[] {
  return [
    ...classesOfSensors(config),
    ...systemsUnknown(config),
    ...writable(config),
    ...filters(config),
    ...boundToOneMachine(config),
    ...sharedFolders(config.sinks),
    ...sharedTokens(config),
  ];
}

const SENSOR_LISTS = ["exclude", "may_rest"] as const;

function classesOfSensors({ sources }: Sections): readonly Contradiction[] {
  return Object.entries(sources).flatMap(([name, { read, silent_sensors: sensors }]) => {
    if (sensors === false) return [];
    const classes = read.map((each) => each.name);
    return SENSOR_LISTS.flatMap((list) =>
      unknownNames(sensors[list].classes, classes, "There is no class of this name under read.", [
        "sources",
        name,
        "silent_sensors",
        list,
        "classes",
      ]),
    );
  });
}

/** Without this option the systems of tags are unknown, and a selection by system silently selects nothing. */
function systemsUnknown({ sources }: Sections): readonly Contradiction[] {
  const message = "To select by system, set inventory.tags_of_systems: true for this source.";
  return Object.entries(sources).flatMap(([name, { read, history, inventory, silent_sensors: sensors }]) => {
    if (inventory.tags_of_systems) return [];
    const classes = Object.entries({ read, history }).flatMap(([list, entries]) =>
      entries.flatMap(({ select }, n) => [
        { select, path: [list, n, "select"] },
        { select: select.exclude ?? {}, path: [list, n, "select", "exclude"] },
      ]),
    );
    const lists =
      sensors === false ? [] : SENSOR_LISTS.map((list) => ({ select: sensors[list], path: ["silent_sensors", list] }));
    return [...classes, ...lists]
      .filter(({ select }) => select.systems !== undefined)
      .map(({ path }) => ({ path: ["sources", name, ...path, "systems"], message }));
  });
}

function writable({ sources, sinks, commands }: Sections): readonly Contradiction[] {
  const known = Object.keys(sources);
  const origins = [...Object.keys(sinks), "operator"];
  return commands.allow.flatMap(({ source, from }, index) => {
    const path = ["commands", "allow", index];
    const isKnown = source === undefined ? known.length === 1 : known.includes(source);
    return [
      ...(isKnown ? [] : [{ path: [...path, "source"], message: `Name the source of this tag: ${known.join(", ")}.` }]),
      ...unknownNames(from, origins, "There is no sink of this name.", [...path, "from"]),
    ];
  });
}

function filters({ sources, sinks }: Sections): readonly Contradiction[] {
  const known = Object.keys(sources);
  return Object.entries(sinks).flatMap(([name, { filter }]) =>
    unknownNames(filter.sources, known, "There is no source of this name.", ["sinks", name, "filter", "sources"]),
  );
}

/** In a fleet a source is now at one machine and then at another, and its sinks with it. */
function boundToOneMachine({ sinks, state }: Sections): readonly Contradiction[] {
  if (state.postgres === undefined) return [];
  return Object.entries(sinks).flatMap(([name, { enabled, file, parquet, stdout }]) => {
    if (!enabled) return [];
    const at = (message: string, ...path: readonly string[]) => [{ path: ["sinks", name, ...path], message }];
    const moves =
      "belongs to one machine, and with state.postgres each source may be at any member: send the events over a network, such as by mqtt, kafka, webhook or postgres";
    if (file !== undefined) return at(`A file ${moves}.`, "file");
    if (stdout !== undefined) return at(`Standard output ${moves}.`, "stdout");
    if (parquet?.folder !== undefined)
      return at(`A folder ${moves}, or to s3 with table_format: delta.`, "parquet", "folder");
    if (parquet?.table_format === "plain")
      return at(
        "With state.postgres several members write the tables at once, which only a Delta table can bear: set table_format: delta.",
        "parquet",
        "table_format",
      );
    return [];
  });
}

function unknownNames(
  named: readonly string[] | undefined,
  known: readonly string[],
  complaint: string,
  path: readonly (string | number)[],
): readonly Contradiction[] {
  return (named ?? []).flatMap((name, n) =>
    known.includes(name) ? [] : [{ path: [...path, n], message: `${complaint}${suggestion(name, known)}` }],
  );
}
