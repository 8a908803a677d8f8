import { sinkStateSet } from "../../engine/store/store.ts";

export interface StoredDocument {
  readonly key: string;
  readonly value: unknown;
}

type AssignDocumentToSource = (document: StoredDocument, source: string, findOwner: FindOwnerSource) => unknown;
type FindOwnerSource = (source: string | null | undefined) => string;

const assignToEverySource: AssignDocumentToSource = ({ value }) => value;
const assignToNoSource: AssignDocumentToSource = () => undefined;
const assignToOwnerOfTag: AssignDocumentToSource = ({ key, value }, source, findOwner) =>
  findOwner(key.slice(0, key.indexOf("/"))) === source ? value : undefined;

/**
 * Rules that assign a worker's documents to sources, by document set. Documents of a source that is not configured go to
 * the first source, so that open commands get a result. A set such as `tag/north` goes to the source `north`.
 */
const SOURCE_RULE_BY_SET: Readonly<Record<string, AssignDocumentToSource>> = {
  // Every source gets the ids of finished commands, so that no source accepts a new command with such an id.
  command: ({ value }, source, findOwner) => {
    const { command } = value as { readonly command?: { readonly source: string } };
    return command === undefined || findOwner(command.source) === source ? value : undefined;
  },
  "command-wear": assignToOwnerOfTag,
  "command-wear-rehearsal": assignToOwnerOfTag,
  "command-restore": assignToOwnerOfTag,
  "command-not-restored": assignToOwnerOfTag,
  "command-lock": assignToOwnerOfTag,
  "command-armed": assignToEverySource,
  "command-audit": assignToEverySource,
  silence: ({ value }, source) => {
    const silencedSource = (value as { readonly source: string | null }).source;
    return silencedSource === null || silencedSource === source ? value : undefined;
  },
  "sink-ended-at": assignToEverySource,
  "sink-life": assignToEverySource,
  snapshot: assignToEverySource,
  "plot-own": assignPlotDocument,
  "state-file": assignToNoSource,
};

function assignPlotDocument({ key, value }: StoredDocument, source: string): unknown {
  if (key === "raised") {
    const raisedAlarmPlot = value as { readonly alarms: readonly { readonly source: string }[] };
    return { ...raisedAlarmPlot, alarms: raisedAlarmPlot.alarms.filter((alarm) => alarm.source === source) };
  }
  if (key === "refused") {
    const refusalsOfSource = (value as Readonly<Record<string, unknown>>)[source];
    return refusalsOfSource === undefined ? undefined : { [source]: refusalsOfSource };
  }
  return value;
}

const SINK_STATE_SET_PREFIX = sinkStateSet("");

export function sourceInSetName(setName: string): string | null {
  if (setName.startsWith(SINK_STATE_SET_PREFIX)) return null;
  const slashIndex = setName.indexOf("/");
  return slashIndex < 0 ? null : setName.slice(slashIndex + 1);
}

/** Divides a document set among the sources; null for an unknown set. The first source gets those without a source. */
export function assignDocuments(set: string, documents: readonly StoredDocument[], sources: readonly string[]) {
  const [firstSource = ""] = sources;
  const configuredNames = new Set(sources);
  const findOwnerSource: FindOwnerSource = (source) =>
    source != null && configuredNames.has(source) ? source : firstSource;
  const isSinkStateSet = set.startsWith(SINK_STATE_SET_PREFIX);
  const assignDocumentToSource = isSinkStateSet ? assignSinkState(documents, findOwnerSource) : SOURCE_RULE_BY_SET[set];
  if (assignDocumentToSource === undefined) return null;
  return documents.flatMap((document) =>
    sources.flatMap((source) => {
      const value = assignDocumentToSource(document, source, findOwnerSource);
      return value === undefined ? [] : [{ source, key: document.key, value }];
    }),
  );
}

/** Assigns sink state to sources. Each source gets all incidents of its alarms, so that it can close them. */
function assignSinkState(documents: readonly StoredDocument[], findOwner: FindOwnerSource): AssignDocumentToSource {
  const ownerSourcesByKey = new Map<string, Set<string>>();
  const addOwner = (key: string, source: string) => {
    ownerSourcesByKey.set(key, (ownerSourcesByKey.get(key) ?? new Set()).add(source));
  };
  for (const { key, value } of documents) {
    const { into, kind, source } = (value ?? {}) as Readonly<Record<string, unknown>>;
    const owner = findOwner(typeof kind === "string" && typeof source === "string" ? source : null);
    addOwner(key, owner);
    if (typeof into === "string") addOwner(into, owner);
  }
  return ({ key, value }, source) => (ownerSourcesByKey.get(key)?.has(source) === true ? value : undefined);
}
