import { sinkStateSet } from "../../engine/store/store.ts";

export interface StoredDocument {
  readonly key: string;
  readonly value: unknown;
}

type Assignment = (document: StoredDocument, source: string, ownerOf: OwnerOf) => unknown;
type OwnerOf = (source: string | null | undefined) => string;

const everySource: Assignment = ({ value }) => value;
const noSource: Assignment = () => undefined;
const ownerOfTag: Assignment = ({ key, value }, source, ownerOf) =>
  ownerOf(key.slice(0, key.indexOf("/"))) === source ? value : undefined;

/**
 * Sources that get the documents of each set of the worker. Entries of a source that is not configured go to the first
 * source, so that its commands get a result. A set such as `tag/north` goes to the source `north`.
 */
const ASSIGNMENTS: Readonly<Record<string, Assignment>> = {
  // Ids of finished commands are never used again, so every source gets the ids.
  command: ({ value }, source, ownerOf) => {
    const { command } = value as { readonly command?: { readonly source: string } };
    return command === undefined || ownerOf(command.source) === source ? value : undefined;
  },
  "command-wear": ownerOfTag,
  "command-wear-rehearsal": ownerOfTag,
  "command-restore": ownerOfTag,
  "command-not-restored": ownerOfTag,
  "command-armed": everySource,
  "command-audit": everySource,
  silence: ({ value }, source) => {
    const named = (value as { readonly source: string | null }).source;
    return named === null || named === source ? value : undefined;
  },
  "sink-ended-at": everySource,
  "sink-life": everySource,
  snapshot: everySource,
  "plot-own": ownPlot,
  "state-file": noSource,
};

function ownPlot({ key, value }: StoredDocument, source: string): unknown {
  if (key === "raised") {
    const held = value as { readonly alarms: readonly { readonly source: string }[] };
    return { ...held, alarms: held.alarms.filter((alarm) => alarm.source === source) };
  }
  if (key === "refused") {
    const owner = (value as Readonly<Record<string, unknown>>)[source];
    return owner === undefined ? undefined : { [source]: owner };
  }
  return value;
}

const SINK_STATE_PREFIX = sinkStateSet("");

export function sourceOfSet(set: string): string | null {
  if (set.startsWith(SINK_STATE_PREFIX)) return null;
  const slash = set.indexOf("/");
  // No source's name has a slash in it.
  return slash < 0 ? null : set.slice(slash + 1);
}

interface Incident {
  readonly kind?: unknown;
  readonly source?: unknown;
  readonly into?: unknown;
}

/** Divides the documents of a set of the worker; entries without an owner go to the first source. Null: unknown set. */
export function assignDocuments(
  set: string,
  documents: readonly StoredDocument[],
  sources: readonly string[],
): readonly { readonly source: string; readonly key: string; readonly value: unknown }[] | null {
  const [first = ""] = sources;
  const known = new Set(sources);
  const ownerOf: OwnerOf = (source) => (source != null && known.has(source) ? source : first);
  const part = set.startsWith(SINK_STATE_PREFIX) ? assignSinkState(documents, ownerOf) : ASSIGNMENTS[set];
  if (part === undefined) return null;
  return documents.flatMap((document) =>
    sources.flatMap((source) => {
      const value = part(document, source, ownerOf);
      return value === undefined ? [] : [{ source, key: document.key, value }];
    }),
  );
}

/** A storm over several sources goes to each source that has alarms in it; otherwise those would stay open for ever. */
function assignSinkState(documents: readonly StoredDocument[], ownerOf: OwnerOf): Assignment {
  const ownersByKey = new Map<string, Set<string>>();
  const add = (key: string, source: string) => {
    const all = ownersByKey.get(key) ?? new Set();
    ownersByKey.set(key, all.add(source));
  };
  for (const { key, value } of documents) {
    const { into, kind, source } = (value ?? {}) as Incident;
    const owner = ownerOf(typeof kind === "string" && typeof source === "string" ? source : null);
    add(key, owner);
    if (typeof into === "string") add(into, owner);
  }
  return ({ key, value }, source) => (ownersByKey.get(key)?.has(source) === true ? value : undefined);
}
