import { sinkStateSet } from "../../engine/store/store.ts";

export interface StoredDocument {
  readonly key: string;
  readonly value: unknown;
}

type Share = (document: StoredDocument, source: string, home: Home) => unknown;
type Home = (source: string | null | undefined) => string;

const each: Share = ({ value }) => value;
const none: Share = () => undefined;
const byTag: Share = ({ key, value }, source, home) =>
  home(key.slice(0, key.indexOf("/"))) === source ? value : undefined;

/**
 * Sources that get the documents of each set of the worker. Entries of a source that is not configured go to the first
 * source, so that its commands get a result. A set such as `tag/north` goes to the source `north`.
 */
const OWN: Readonly<Record<string, Share>> = {
  // Ids of finished commands are never used again, so every source gets the ids.
  command: ({ value }, source, home) => {
    const { command } = value as { readonly command?: { readonly source: string } };
    return command === undefined || home(command.source) === source ? value : undefined;
  },
  "command-wear": byTag,
  "command-wear-rehearsal": byTag,
  "command-restore": byTag,
  "command-not-restored": byTag,
  "command-armed": each,
  "command-audit": each,
  silence: ({ value }, source) => {
    const named = (value as { readonly source: string | null }).source;
    return named === null || named === source ? value : undefined;
  },
  "sink-ended-at": each,
  "sink-life": each,
  snapshot: each,
  "plot-own": ownPlot,
  "state-file": none,
};

function ownPlot({ key, value }: StoredDocument, source: string): unknown {
  if (key === "raised") {
    const held = value as { readonly alarms: readonly { readonly source: string }[] };
    return { ...held, alarms: held.alarms.filter((alarm) => alarm.source === source) };
  }
  if (key === "refused") {
    const own = (value as Readonly<Record<string, unknown>>)[source];
    return own === undefined ? undefined : { [source]: own };
  }
  return value;
}

const MEMORY = sinkStateSet("");

export function sourceOfSet(set: string): string | null {
  if (set.startsWith(MEMORY)) return null;
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
  const home: Home = (source) => (source != null && known.has(source) ? source : first);
  const part = set.startsWith(MEMORY) ? memoryPart(documents, home) : OWN[set];
  if (part === undefined) return null;
  return documents.flatMap((document) =>
    sources.flatMap((source) => {
      const value = part(document, source, home);
      return value === undefined ? [] : [{ source, key: document.key, value }];
    }),
  );
}

/** A storm over several sources goes to each source that has alarms in it; otherwise those would stay open for ever. */
function memoryPart(documents: readonly StoredDocument[], home: Home): Share {
  const homes = new Map<string, Set<string>>();
  const add = (key: string, source: string) => {
    const all = homes.get(key) ?? new Set();
    homes.set(key, all.add(source));
  };
  for (const { key, value } of documents) {
    const { into, kind, source } = (value ?? {}) as Incident;
    const own = home(typeof kind === "string" && typeof source === "string" ? source : null);
    add(key, own);
    if (typeof into === "string") add(into, own);
  }
  return ({ key, value }, source) => (homes.get(key)?.has(source) === true ? value : undefined);
}
