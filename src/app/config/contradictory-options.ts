import { statSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import { CONNECTOR_NAMES, getConnector } from "../../../connectors/catalog.ts";
import { resolveFolderLinks } from "../../core/errors/folder-access.ts";
import type { SecretRef } from "../../core/runtime/secret.ts";
import { formatWordSuggestion } from "../../core/values/spelling-suggestion.ts";
import type { ConfigContradiction } from "./config-problems.ts";
import type { ConfigSections } from "./config-sections.ts";

export function findContradictions(config: ConfigSections): readonly ConfigContradiction[] {
  return [
    ...findUnknownReadClasses(config),
    ...findUnavailableSystems(config),
    ...findUnknownCommandOrigins(config),
    ...findUnknownFilterSources(config),
    ...findLocalSinksInFleet(config),
    ...findSharedSinkDestinations(config),
    ...findTopicsSharedBySources(config),
    ...findSharedTokens(config),
  ];
}

const SENSOR_TAG_LISTS = ["exclude", "may_rest"] as const;

function findUnknownReadClasses({ sources }: ConfigSections): readonly ConfigContradiction[] {
  return Object.entries(sources).flatMap(([name, { read, silent_sensors: sensors }]) => {
    if (sensors === false) return [];
    const classNames = read.map((readClass) => readClass.name);
    return SENSOR_TAG_LISTS.flatMap((listName) =>
      findUnknownNames(sensors[listName].classes, classNames, "There is no class of this name under read.", [
        ...["sources", name, "silent_sensors", listName, "classes"],
      ]),
    );
  });
}

/** Finds selections by system although the option `inventory.tags_of_systems` is off. */
function findUnavailableSystems({ sources }: ConfigSections): readonly ConfigContradiction[] {
  const message = "To select by system, set inventory.tags_of_systems: true for this source.";
  return Object.entries(sources).flatMap(([name, { read, history, inventory, silent_sensors: sensors }]) => {
    if (inventory.tags_of_systems) return [];
    const classSelections = Object.entries({ read, history }).flatMap(([listName, entries]) =>
      entries.flatMap(({ select }, n) => [
        { select, path: [listName, n, "select"] },
        { select: select.exclude ?? {}, path: [listName, n, "select", "exclude"] },
      ]),
    );
    const sensorListSelections =
      sensors === false
        ? []
        : SENSOR_TAG_LISTS.map((listName) => ({ select: sensors[listName], path: ["silent_sensors", listName] }));
    return [...classSelections, ...sensorListSelections]
      .filter(({ select }) => select.systems !== undefined)
      .map(({ path }) => ({ path: ["sources", name, ...path, "systems"], message }));
  });
}

function findUnknownCommandOrigins({ sources, sinks, commands }: ConfigSections): readonly ConfigContradiction[] {
  const names = Object.keys(sources);
  const commandOrigins = [...Object.keys(sinks), "operator"];
  return commands.allow.flatMap(({ source, from }, index) => {
    const path = ["commands", "allow", index];
    const isKnown = source === undefined ? names.length === 1 : names.includes(source);
    return [
      ...(isKnown ? [] : [{ path: [...path, "source"], message: `Name the source of this tag: ${names.join(", ")}.` }]),
      ...findUnknownNames(from, commandOrigins, "There is no sink of this name.", [...path, "from"]),
    ];
  });
}

function findUnknownFilterSources({ sources, sinks }: ConfigSections): readonly ConfigContradiction[] {
  const sourceNames = Object.keys(sources);
  return Object.entries(sinks).flatMap(([name, { filter }]) =>
    findUnknownNames(filter.sources, sourceNames, "There is no source of this name.", [
      "sinks",
      name,
      "filter",
      "sources",
    ]),
  );
}

/** Finds sinks that write to the local machine although a fleet can move the sink to another machine. */
function findLocalSinksInFleet({ sinks, state }: ConfigSections): readonly ConfigContradiction[] {
  if (state.postgres === undefined) return [];
  return Object.entries(sinks).flatMap(([name, { enabled, file, parquet, stdout }]) => {
    if (!enabled) return [];
    const sinkProblem = (message: string, ...path: readonly string[]) => [{ path: ["sinks", name, ...path], message }];
    const singleMachineWarning =
      "belongs to one machine, and with state.postgres each source may be at any member: send the events over a network, such as by mqtt, kafka, webhook or postgres";
    if (file !== undefined) return sinkProblem(`A file ${singleMachineWarning}.`, "file");
    if (stdout !== undefined) return sinkProblem(`Standard output ${singleMachineWarning}.`, "stdout");
    if (parquet?.folder !== undefined)
      return sinkProblem(`A folder ${singleMachineWarning}, or to s3 with table_format: delta.`, "parquet", "folder");
    if (parquet?.table_format === "plain")
      return sinkProblem(
        "With state.postgres several members write the tables at once, which only a Delta table can bear: set table_format: delta.",
        "parquet",
        "table_format",
      );
    return [];
  });
}

/** Finds topics that tags of two sources could share: a fleet member does not see the topics of other sources. */
function findTopicsSharedBySources({ sources, sinks, state }: ConfigSections): readonly ConfigContradiction[] {
  return Object.entries(sinks).flatMap(([name, { enabled, filter, mqtt }]) => {
    const levels = mqtt?.topic.split("/") ?? ["{source}"];
    const hasOneSource = (filter.sources ?? Object.keys(sources)).length === 1;
    const mayAppendId = state.postgres === undefined && !(levels.includes("{kind}") && levels.includes("{id}"));
    if (!enabled || hasOneSource || mayAppendId || levels.includes("{source}")) return [];
    const message =
      "Tags of two sources could have the same topic: add {source}, or use one sink and prefix per source.";
    return [{ path: ["sinks", name, "mqtt", "topic"], message }];
  });
}

function findUnknownNames(
  usedNames: readonly string[] | undefined,
  knownNames: readonly string[],
  messageStart: string,
  path: readonly (string | number)[],
): readonly ConfigContradiction[] {
  return (usedNames ?? []).flatMap((name, n) =>
    knownNames.includes(name)
      ? []
      : [{ path: [...path, n], message: `${messageStart}${formatWordSuggestion(name, knownNames)}` }],
  );
}

function findSharedSinkDestinations({ sinks }: ConfigSections): readonly ConfigContradiction[] {
  return CONNECTOR_NAMES.flatMap((connector) => {
    const { findSharedStore } = getConnector(connector);
    if (findSharedStore === undefined) return [];
    const sinksOfConnector = Object.entries(sinks).filter(([, sink]) => sink.enabled && sink[connector] !== undefined);
    return sinksOfConnector.flatMap(([name, sink], n): readonly ConfigContradiction[] => {
      for (const [otherName, otherSink] of sinksOfConnector.slice(0, n)) {
        const sharedTarget = findSharedStore(otherSink[connector], sink[connector]);
        if (sharedTarget === null) continue;
        if (sharedTarget.allowsDistinctFilters === true && !isDeepStrictEqual(otherSink.filter, sink.filter)) continue;
        const message = `The sinks ${otherName} and ${name} would ${sharedTarget.consequence}.`;
        return [{ path: ["sinks", name, connector, ...sharedTarget.path], message }];
      }
      return [];
    });
  });
}

type ConfigOptionPath = readonly (string | number)[];

interface FoundSecretReference {
  readonly path: ConfigOptionPath;
  readonly secretRef: SecretRef;
  readonly source: string | null;
}

/** Finds options that would send the token of a source to another server. */
export function findSharedTokens(config: object): readonly ConfigContradiction[] {
  const sourceByTokenIdentity = new Map<string, string>();
  const sortedSecrets = findSecrets(config, []).toSorted((a, b) => Number(isSourceToken(b)) - Number(isSourceToken(a)));
  return sortedSecrets.flatMap(({ path, secretRef, source }): readonly ConfigContradiction[] => {
    const identities = listSecretIdentities(secretRef);
    const owningSource = identities
      .map((identity) => sourceByTokenIdentity.get(identity))
      .find((name) => name !== undefined);
    if (owningSource !== undefined) return [{ path, message: sharedTokenMessage(secretRef, owningSource, source) }];
    if (source !== null) for (const identity of identities) sourceByTokenIdentity.set(identity, source);
    return [];
  });
}

function sharedTokenMessage(ref: SecretRef, owner: string, otherSource: string | null): string {
  const tokenLocation = "file" in ref ? "file" : "variable";
  const conflictText = `This ${tokenLocation} holds the token of the source ${owner}, and only that source may name it`;
  return otherSource === null
    ? `${conflictText}: put this secret into a ${tokenLocation} of its own.`
    : `${conflictText}: give the source ${otherSource} a token in a ${tokenLocation} of its own.`;
}

/** Returns the source of each environment variable that contains a token. */
export function findTokenVariables(content: unknown): ReadonlyMap<string, string> {
  const sourceTokens = findSecrets(content, []).filter(isSourceToken);
  return new Map(
    sourceTokens.flatMap(({ secretRef, source }) => ("env" in secretRef ? [[secretRef.env, source ?? ""]] : [])),
  );
}

const isSourceToken = ({ source }: FoundSecretReference): boolean => source !== null;

export function findSecrets(value: unknown, path: ConfigOptionPath): readonly FoundSecretReference[] {
  if (typeof value !== "object" || value === null) return [];
  const ref = parseSecretReference(value);
  if (ref !== null) return [{ path, secretRef: ref, source: findTokenSource(path) }];
  const childOptions = Array.isArray(value) ? value.map((child, n) => [n, child] as const) : Object.entries(value);
  return childOptions.flatMap(([key, child]) => findSecrets(child, [...path, key]));
}

/** Returns null unless the value is `{file: path}` or `{env: NAME}`. */
export function parseSecretReference(value: object): SecretRef | null {
  const [[key, entryValue] = [], ...furtherEntries] = Object.entries(value);
  if (furtherEntries.length > 0 || typeof entryValue !== "string") return null;
  if (key === "file") return { file: entryValue };
  return key === "env" ? { env: entryValue } : null;
}

function findTokenSource([section, name, option, ...furtherPathSteps]: ConfigOptionPath): string | null {
  return section === "sources" && option === "token" && furtherPathSteps.length === 0 ? String(name) : null;
}

/** Two references with a common identity mean the same secret, e.g. two links to one file. */
function listSecretIdentities(ref: SecretRef): readonly string[] {
  // Windows ignores the case of environment variables.
  if ("env" in ref) return [`variable ${process.platform === "win32" ? ref.env.toUpperCase() : ref.env}`];
  const pathId = `path ${resolveFolderLinks(ref.file)}`;
  try {
    const secretFileStats = statSync(ref.file, { bigint: true, throwIfNoEntry: false });
    return secretFileStats === undefined ? [pathId] : [pathId, `file ${secretFileStats.dev} ${secretFileStats.ino}`];
  } catch {
    return [pathId];
  }
}
