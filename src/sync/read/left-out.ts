import { isoUtc } from "../../clock.ts";
import type { Log } from "../../log.ts";
import type { ReadReply } from "../../source/source.ts";
import type { DocumentChange, Store } from "../../store/store.ts";
import { type HeldLeftOut, syncSet } from "../snapshot.ts";

/**
 * Tags of which a reply says nothing that is a value: not listed in it, or with a text. They have no event, because
 * unknown is not the same as bad; so they are remembered for `status`, and said in the log when it begins and ends.
 */
export interface LeftOutTags {
  /** What one reply changes, to be committed with its values; `settled` is called after that. */
  change(
    asked: readonly string[],
    values: ReadonlyMap<string, unknown>,
    reply: ReadReply,
  ): Promise<{ readonly documents: DocumentChange; settled(): void }>;
}

/** Tags that one line of the log names. */
const NAMED = 20;

export function createLeftOutTags(
  store: Store,
  source: string,
  log: Pick<Log, "info" | "warn">,
): LeftOutTags {
  const set = syncSet("left-out", source);
  let known: Map<string, HeldLeftOut> | null = null;

  return {
    async change(asked, values, reply) {
      known ??= new Map(await store.documents<HeldLeftOut>(set));
      const held = known;
      const reasons = new Map((reply.leftOut ?? []).map(({ id, reason }) => [id, reason]));
      const since = isoUtc(reply.receivedAtMs);
      const put = asked.flatMap((id): [string, HeldLeftOut][] => {
        if (values.has(id) || held.has(id)) return [];
        return [[id, { since, reason: reasons.get(id) ?? "The reply does not list it." }]];
      });
      const remove = asked.filter((id) => values.has(id) && held.has(id));
      return {
        documents: { set, put, remove },
        settled() {
          for (const [id, one] of put) held.set(id, one);
          for (const id of remove) held.delete(id);
          if (put.length > 0) {
            const tags = Object.fromEntries(put.slice(0, NAMED).map(([id, { reason }]) => [id, reason]));
            log.warn({ tags, count: put.length }, "tags that were asked for have no value in the reply");
          }
          if (remove.length > 0)
            log.info({ tags: remove }, "tags that had no value in the replies have one again");
        },
      };
    },
  };
}
