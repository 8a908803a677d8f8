import type { Config } from "../../app/config/config.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import type { Tag } from "../../core/model/building.ts";
import { documentSet, type Store } from "../../engine/store/store.ts";
import type { StoredAlarm, StoredJob, StoredObject } from "../../engine/sync/stored-documents.ts";
import { type CliContext, chooseSource } from "./command-context.ts";
import { readStateIfAny } from "./open-worker-state.ts";

// Checks of ids in command-line options: an unknown id is an error, because an empty result would look like "none".

const LIST_COMMAND_TEXTS = {
  site: "`plenum sites` lists the sites.",
  tag: "`plenum tags` lists the tags.",
  alarm: "`plenum alarms` lists the alarms.",
} as const;

export const DEFINED_ALARM_PRIORITIES: readonly string[] = ["A", "B", "C"];

export async function refuseUnknownIds(
  store: Store,
  sources: readonly string[],
  objectKind: keyof typeof LIST_COMMAND_TEXTS,
  ids: Iterable<string>,
): Promise<void> {
  const unknownIds: string[] = [];
  for (const id of ids) {
    const documents = await Promise.all(sources.map((source) => store.document(documentSet(objectKind, source), id)));
    if (documents.every((document) => document === undefined)) unknownIds.push(id);
  }
  if (unknownIds.length === 0) return;
  const objectKindText = unknownIds.length === 1 ? objectKind : `${objectKind}s`;
  const [onlySource] = sources;
  const sourceSuffix = sources.length === 1 && onlySource !== undefined ? ` of ${onlySource}` : "";
  throw new ConfigError(`The state knows no ${objectKindText} ${unknownIds.join(", ")}${sourceSuffix}.`, {
    hint: LIST_COMMAND_TEXTS[objectKind],
  });
}

export function refuseUnknownSources({ sources }: Pick<Config, "sources">, sourceNames: readonly string[]): void {
  for (const name of sourceNames) {
    if (sources[name] !== undefined) continue;
    throw new ConfigError(`There is no source ${name}; known are: ${Object.keys(sources).join(", ")}.`);
  }
}

/** Throws ConfigError for a priority that is not defined and that no stored alarm has. */
export async function refuseUnknownPriorities(
  store: Store,
  sources: readonly string[],
  priorities: readonly string[],
): Promise<void> {
  const knownPriorities = new Set<string>(DEFINED_ALARM_PRIORITIES);
  if (priorities.every((priority) => knownPriorities.has(priority))) return;
  for (const source of sources)
    for (const { alarm } of (await store.documents<StoredAlarm>(documentSet("alarm", source))).values())
      knownPriorities.add(alarm.trigger.priority);
  const unknownPriority = priorities.find((priority) => !knownPriorities.has(priority));
  if (unknownPriority !== undefined)
    throw new ConfigError(
      `No alarm has a priority ${unknownPriority}; known are ${[...knownPriorities].toSorted().join(", ")}.`,
    );
}

/** Throws ConfigError for tags that the worker has not listed, because a request with an unknown tag wastes quota. */
export async function refuseUnlistedTags(
  context: CliContext,
  wantedSource: string | undefined,
  tagIds: readonly string[],
): Promise<void> {
  const config = context.config();
  const [source] = chooseSource(config, wantedSource);
  await readStateIfAny({ config, source }, async (store) => {
    const [tags, poll] = await Promise.all([
      store.documents<StoredObject<Tag>>(documentSet("tag", source)),
      store.document<StoredJob>(documentSet("poll", source), "tags"),
    ]);
    // A tag that has vanished from the listings is unknown to the service too.
    const unknownIds = tagIds.filter((id) => tags.get(id)?.missingSince !== null);
    const listedAt = poll?.lastSuccess ?? null;
    if (unknownIds.length === 0 || listedAt === null) return;
    const unknownTagsText = unknownIds.length === 1 ? `Tag ${unknownIds[0]} is` : `Tags ${unknownIds.join(", ")} are`;
    throw new ConfigError(
      `${unknownTagsText} not among the ${tags.size} tags of ${source}, listed at ${listedAt}; nothing was asked.`,
      { hint: "If the list is too old, add --ask." },
    );
  });
}
