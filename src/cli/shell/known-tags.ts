import { ConfigError } from "../../core/errors/errors.ts";
import type { Tag } from "../../core/model/building.ts";
import { documentSet, type Store } from "../../engine/store/store.ts";
import type { Listed, StoredPoll } from "../../engine/sync/snapshot.ts";
import { type CliContext, choose } from "./context.ts";
import { lookAtStateIfAny } from "./look-at-state.ts";

/** Which of some ids are no tags by the list that a worker keeps. */
interface UnknownTags {
  readonly ids: readonly string[];
  /** Tags in the list, and when it was last read well; null while it never was, and then nobody can say. */
  readonly listed: number;
  readonly listedAt: string | null;
}

/** A tag that complete listings do not show any more counts as unknown: the service will not know it either. */
async function unknownTags(store: Store, source: string, wanted: readonly string[]): Promise<UnknownTags> {
  const [tags, poll] = await Promise.all([
    store.documents<Listed<Tag>>(documentSet("tag", source)),
    store.document<StoredPoll>(documentSet("poll", source), "tags"),
  ]);
  return {
    ids: wanted.filter((id) => tags.get(id)?.missingSince !== null),
    listed: tags.size,
    listedAt: poll?.lastSuccess ?? null,
  };
}

function areOrIs(ids: readonly string[]): string {
  return ids.length === 1 ? `Tag ${ids[0]} is` : `Tags ${ids.join(", ")} are`;
}

/**
 * The service refuses a group whole and need not say why, and the refusal costs a request. The list that a worker
 * keeps says before it which ids are no tags; where there is no list, the service is asked.
 */
export async function refuseUnlisted(
  context: CliContext,
  wantedSource: string | undefined,
  wanted: readonly string[],
): Promise<void> {
  const config = context.config();
  const [name] = choose(config, wantedSource);
  await lookAtStateIfAny({ config, source: name }, async (store) => {
    const { ids, listed, listedAt } = await unknownTags(store, name, wanted);
    if (ids.length === 0 || listedAt === null) return;
    throw new ConfigError(
      `${areOrIs(ids)} not among the ${listed} tags of ${name}, listed at ${listedAt}; nothing was asked.`,
      { hint: "If the list is too old, add --ask." },
    );
  });
}
