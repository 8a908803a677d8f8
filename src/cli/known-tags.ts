import type { Tag } from "../building.ts";
import { documentSet, type Store } from "../store/store.ts";
import type { Held, HeldPoll } from "../sync/snapshot.ts";

/** Which of some ids are no tags by the list that a worker keeps. */
export interface UnknownTags {
  readonly ids: readonly string[];
  /** Tags in the list, and when it was last read well; null while it never was, and then nobody can say. */
  readonly listed: number;
  readonly listedAt: string | null;
}

/** A tag that complete listings do not show any more counts as unknown: the service will not know it either. */
export async function unknownTags(
  store: Store,
  source: string,
  wanted: readonly string[],
): Promise<UnknownTags> {
  const [tags, poll] = await Promise.all([
    store.documents<Held<Tag>>(documentSet("tag", source)),
    store.document<HeldPoll>(documentSet("poll", source), "tags"),
  ]);
  return {
    ids: wanted.filter((id) => tags.get(id)?.missingSince !== null),
    listed: tags.size,
    listedAt: poll?.lastSuccess ?? null,
  };
}

export function areOrIs(ids: readonly string[]): string {
  return ids.length === 1 ? `Tag ${ids[0]} is` : `Tags ${ids.join(", ")} are`;
}
