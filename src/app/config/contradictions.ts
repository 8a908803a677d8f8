import { statSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import { CONNECTOR_NAMES, getConnector } from "../../../connectors/catalog.ts";
import { realFolder } from "../../core/errors/folder-problem.ts";
import type { SecretRef } from "../../core/runtime/secret.ts";
import { suggestion } from "../../core/values/suggest.ts";
import type { ConfigSections } from "./config-sections.ts";
import type { Contradiction } from "./problems.ts";

export function contradictions(config: ConfigSections): readonly Contradiction[] {
  return [
    ...unknownClasses(config),
    ...unknownSystems(config),
    ...unknownOrigins(config),
    ...unknownSources(config),
    ...sinksOfOneMachine(config),
    ...sharedFolders(config),
    ...sharedTokens(config),
  ];
}

const SENSOR_LISTS = ["exclude", "may_rest"] as const;

function unknownClasses({ sources }: ConfigSections): readonly Contradiction[] {
  return Object.entries(sources).flatMap(([name, { read, silent_sensors: sensors }]) => {
    if (sensors === false) return [];
    const classes = read.map((each) => each.name);
    return SENSOR_LISTS.flatMap((list) =>
      unknownNames(sensors[list].classes, classes, "There is no class of this name under read.", [
        ...["sources", name, "silent_sensors", list, "classes"],
      ]),
    );
  });
}

/** Without this option the systems of tags are unknown, and a selection by system silently selects nothing. */
function unknownSystems({ sources }: ConfigSections): readonly Contradiction[] {
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

function unknownOrigins({ sources, sinks, commands }: ConfigSections): readonly Contradiction[] {
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

function unknownSources({ sources, sinks }: ConfigSections): readonly Contradiction[] {
  const known = Object.keys(sources);
  return Object.entries(sinks).flatMap(([name, { filter }]) =>
    unknownNames(filter.sources, known, "There is no source of this name.", ["sinks", name, "filter", "sources"]),
  );
}

/** In a fleet a source and its sinks move between machines, so no sink may write to one machine. */
function sinksOfOneMachine({ sinks, state }: ConfigSections): readonly Contradiction[] {
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

function sharedFolders({ sinks }: ConfigSections): readonly Contradiction[] {
  return CONNECTOR_NAMES.flatMap((connector) => {
    const { shared } = getConnector(connector);
    if (shared === undefined) return [];
    const all = Object.entries(sinks).filter(([, sink]) => sink.enabled && sink[connector] !== undefined);
    return all.flatMap(([name, sink], n): readonly Contradiction[] => {
      for (const [first, other] of all.slice(0, n)) {
        const found = shared(other[connector], sink[connector]);
        if (found === null) continue;
        if (found.allowsDistinctFilters === true && !isDeepStrictEqual(other.filter, sink.filter)) continue;
        const message = `The sinks ${first} and ${name} would ${found.consequence}.`;
        return [{ path: ["sinks", name, connector, ...found.path], message }];
      }
      return [];
    });
  });
}

type Path = readonly (string | number)[];

interface FoundSecret {
  readonly path: Path;
  readonly ref: SecretRef;
  /** Source of a token; null for any other secret. */
  readonly source: string | null;
}

/** Finds sections that would send a source's token to another server. Files are compared by identity (links count). */
export function sharedTokens(config: object): readonly Contradiction[] {
  const owners = new Map<string, string>();
  const tokensFirst = secretsIn(config, []).toSorted((a, b) => Number(isToken(b)) - Number(isToken(a)));
  return tokensFirst.flatMap(({ path, ref, source }): readonly Contradiction[] => {
    const identities = identitiesOf(ref);
    const owner = identities.map((identity) => owners.get(identity)).find((name) => name !== undefined);
    if (owner !== undefined) return [{ path, message: messageOf(ref, owner, source) }];
    if (source !== null) for (const identity of identities) owners.set(identity, source);
    return [];
  });
}

function messageOf(ref: SecretRef, owner: string, other: string | null): string {
  const place = "file" in ref ? "file" : "variable";
  const what = `This ${place} holds the token of the source ${owner}, and only that source may name it`;
  return other === null
    ? `${what}: put this secret into a ${place} of its own.`
    : `${what}: give the source ${other} a token in a ${place} of its own.`;
}

/** Sources by the environment variable that holds their token, in an unchecked configuration. */
export function tokenVariables(content: unknown): ReadonlyMap<string, string> {
  const tokens = secretsIn(content, []).filter(isToken);
  return new Map(tokens.flatMap(({ ref, source }) => ("env" in ref ? [[ref.env, source ?? ""]] : [])));
}

function isToken({ source }: FoundSecret): boolean {
  return source !== null;
}

function secretsIn(value: unknown, path: Path): readonly FoundSecret[] {
  if (typeof value !== "object" || value === null) return [];
  const ref = refIn(value);
  if (ref !== null) return [{ path, ref, source: sourceOf(path) }];
  const entries = Array.isArray(value) ? value.map((each, n) => [n, each] as const) : Object.entries(value);
  return entries.flatMap(([key, each]) => secretsIn(each, [...path, key]));
}

function refIn(value: object): SecretRef | null {
  const [[key, text] = [], ...more] = Object.entries(value);
  if (more.length > 0 || typeof text !== "string") return null;
  if (key === "file") return { file: text };
  return key === "env" ? { env: text } : null;
}

function sourceOf([section, name, option, ...more]: Path): string | null {
  return section === "sources" && option === "token" && more.length === 0 ? String(name) : null;
}

/** Secrets with a common identity are the same. */
function identitiesOf(ref: SecretRef): readonly string[] {
  // Windows does not tell upper and lower case of variables apart.
  if ("env" in ref) return [`variable ${process.platform === "win32" ? ref.env.toUpperCase() : ref.env}`];
  const path = `path ${realFolder(ref.file)}`;
  try {
    const stats = statSync(ref.file, { bigint: true, throwIfNoEntry: false });
    return stats === undefined ? [path] : [path, `file ${stats.dev} ${stats.ino}`];
  } catch {
    return [path];
  }
}
