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
    ...findUnavailableSystems(config),
    ...findUnknownCommandOrigins(config),
    ...findUnknownFilterSources(config),
    ...findLocalSinksInFleet(config),
    ...findSharedSinkDestinations(config),
    ...findTopicsSharedBySources(config),
    ...findSharedTokens(config),
  ];
}

type Contradictions = Generator<ConfigContradiction>;

/** Finds options that select tags by system although `inventory.tags_of_systems` is off. */
function* findUnavailableSystems({ sources }: ConfigSections): Contradictions {
  const message = "To select by system, set inventory.tags_of_systems: true for this source.";
  for (const [name, { read, history, inventory }] of Object.entries(sources)) {
    if (inventory.tags_of_systems) continue;
    for (const [listName, classes] of Object.entries({ read, history }))
      for (const [n, { select }] of classes.entries()) {
        const path = ["sources", name, listName, n, "select"];
        if (select.systems !== undefined) yield { path: [...path, "systems"], message };
        if (select.exclude?.systems !== undefined) yield { path: [...path, "exclude", "systems"], message };
      }
  }
}

function* findUnknownCommandOrigins({ sources, sinks, commands }: ConfigSections): Contradictions {
  const names = Object.keys(sources);
  const commandOrigins = [...Object.keys(sinks), "operator"];
  for (const [index, { source, from }] of commands.allow.entries()) {
    const path = ["commands", "allow", index];
    const isKnown = source === undefined ? names.length === 1 : names.includes(source);
    if (!isKnown) yield { path: [...path, "source"], message: `Name the source of this tag: ${names.join(", ")}.` };
    yield* findUnknownNames(from, commandOrigins, "There is no sink of this name.", [...path, "from"]);
  }
}

function* findUnknownFilterSources({ sources, sinks }: ConfigSections): Contradictions {
  for (const [name, { filter }] of Object.entries(sinks)) {
    const path = ["sinks", name, "filter", "sources"];
    yield* findUnknownNames(filter.sources, Object.keys(sources), "There is no source of this name.", path);
  }
}

/** Finds sinks that write to the local machine although a fleet can move the sink to another machine. */
function* findLocalSinksInFleet({ sinks, state }: ConfigSections): Contradictions {
  if (state.postgres === undefined) return;
  const singleMachineWarning =
    "belongs to one machine, and with state.postgres each source may be at any member: send the events over a network, such as by mqtt, kafka, webhook or postgres";
  for (const [name, { enabled, file, parquet, stdout }] of Object.entries(sinks)) {
    if (!enabled) continue;
    const path = ["sinks", name];
    if (file !== undefined) yield { path: [...path, "file"], message: `A file ${singleMachineWarning}.` };
    else if (stdout !== undefined)
      yield { path: [...path, "stdout"], message: `Standard output ${singleMachineWarning}.` };
    else if (parquet?.folder !== undefined) {
      const message = `A folder ${singleMachineWarning}, or to s3 with table_format: delta.`;
      yield { path: [...path, "parquet", "folder"], message };
    } else if (parquet?.table_format === "plain") {
      const message =
        "With state.postgres several members write the tables at once, which only a Delta table can bear: set table_format: delta.";
      yield { path: [...path, "parquet", "table_format"], message };
    }
  }
}

/** Finds MQTT topics that tags of two sources could share: a fleet member does not see the topics of other sources. */
function* findTopicsSharedBySources({ sources, sinks, state }: ConfigSections): Contradictions {
  const message = "Tags of two sources could have the same topic: add {source}, or use one sink and prefix per source.";
  for (const [name, { enabled, filter, mqtt }] of Object.entries(sinks)) {
    const levels = mqtt?.topic.split("/") ?? ["{source}"];
    const hasOneSource = (filter.sources ?? Object.keys(sources)).length === 1;
    const mayAppendId = state.postgres === undefined && !(levels.includes("{kind}") && levels.includes("{id}"));
    if (!enabled || hasOneSource || mayAppendId || levels.includes("{source}")) continue;
    yield { path: ["sinks", name, "mqtt", "topic"], message };
  }
}

function* findUnknownNames(
  usedNames: readonly string[] | undefined,
  knownNames: readonly string[],
  messageStart: string,
  path: ConfigContradiction["path"],
): Contradictions {
  for (const [n, name] of (usedNames ?? []).entries())
    if (!knownNames.includes(name))
      yield { path: [...path, n], message: `${messageStart}${formatWordSuggestion(name, knownNames)}` };
}

/** Finds sinks that write to the same destination. Reports at most one conflict of each sink. */
function* findSharedSinkDestinations({ sinks }: ConfigSections): Contradictions {
  for (const connector of CONNECTOR_NAMES) {
    const { findSharedStore } = getConnector(connector);
    if (findSharedStore === undefined) continue;
    const sinksOfConnector = Object.entries(sinks).filter(([, sink]) => sink.enabled && sink[connector] !== undefined);
    for (const [n, [name, sink]] of sinksOfConnector.entries())
      for (const [otherName, otherSink] of sinksOfConnector.slice(0, n)) {
        const sharedTarget = findSharedStore(otherSink[connector], sink[connector]);
        if (sharedTarget === null) continue;
        if (sharedTarget.allowsDistinctFilters === true && !isDeepStrictEqual(otherSink.filter, sink.filter)) continue;
        const message = `The sinks ${otherName} and ${name} would ${sharedTarget.consequence}.`;
        yield { path: ["sinks", name, connector, ...sharedTarget.path], message };
        break;
      }
  }
}

type ConfigOptionPath = readonly (string | number)[];

interface FoundSecretReference {
  readonly path: ConfigOptionPath;
  readonly secretRef: SecretRef;
  readonly source: string | null;
}

/** Finds options that would send the token of a source to another server. */
export function* findSharedTokens(config: object): Contradictions {
  const sourceByTokenIdentity = new Map<string, string>();
  const sortedSecrets = findSecrets(config, []).toSorted((a, b) => Number(isSourceToken(b)) - Number(isSourceToken(a)));
  for (const { path, secretRef, source } of sortedSecrets) {
    const identities = listSecretIdentities(secretRef);
    const owningSource = identities
      .map((identity) => sourceByTokenIdentity.get(identity))
      .find((name) => name !== undefined);
    if (owningSource !== undefined) yield { path, message: sharedTokenMessage(secretRef, owningSource, source) };
    else if (source !== null) for (const identity of identities) sourceByTokenIdentity.set(identity, source);
  }
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

function findSecrets(value: unknown, path: ConfigOptionPath): readonly FoundSecretReference[] {
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

/** Lists identities of a secret. References that share an identity mean the same secret, e.g. two links to a file. */
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
