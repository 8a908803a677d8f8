import type { PollParts } from "../poll-parts.ts";
import { type StoredTagSeen, syncSet } from "../snapshot.ts";

/** By site, when its tags, or those of its systems, were last shown whole. */
export async function commitSeen(
  { syncState: holding, source, commit }: PollParts,
  job: string,
  what: keyof StoredTagSeen,
  sites: ReadonlyMap<number, string | null>,
): Promise<void> {
  const set = syncSet("tag-seen", source.name);
  const known = holding.get<StoredTagSeen>(set);
  const put = [...sites].map(([siteId, at]) => {
    const before = known.get(String(siteId)) ?? { tags: null, systems: null };
    return [String(siteId), { ...before, [what]: at }] as const;
  });
  await commit(job, { documents: [{ set, put }] });
}
