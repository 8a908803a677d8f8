import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { LeftOut, ReadReply } from "../../source/source.ts";
import type { DocumentChange, Store } from "../../store/store.ts";
import { type StoredLeftOut, syncSet } from "../snapshot.ts";
import { quarantineMs } from "../tag-group/refusal.ts";

/**
 * Requested tags without a usable value in a reply: the reply does not list them, or has an unreadable value of them. They
 * have no event, because unknown is not bad: what is stored of them stays as it was. `status` and `explain` name them, the
 * log says when it begins and ends, and they are requested less and less often, as tags that answer null.
 *
 * A tag that is unreadable in a reply of several tags is requested singly next, because the company may be the cause: a reply
 * that has a tag twice, say. Where it is readable then, it stays single for 10 minutes, then 1, 6 and 24 hours. Where it is
 * not, the company is not the cause, and it shares requests with others again.
 */
export interface LeftOutTags {
  /** Prepares what one reply changes, to be committed with its values; `settled` is called after that. */
  change(
    asked: readonly string[],
    values: ReadonlyMap<string, unknown>,
    reply: Pick<ReadReply, "leftOut" | "receivedAtMs">,
  ): Promise<{ readonly documents: DocumentChange; settled(): void }>;
  /** Since when, and why, a tag has no usable value; undefined for any other. */
  of(id: string): StoredLeftOut | undefined;
  /** All of them; null before the first reply. */
  all(): ReadonlyMap<string, StoredLeftOut> | null;
  /** Whether any tag is requested singly. */
  any(): boolean;
  /** Tags with a label of their own are requested singly; null for all others. */
  labelOf(id: string): string | null;
}

/** Tags that one line of the log names. */
const NAMED = 20;
/** Where so many tags of a reply, and more than a third, are unreadable, the form of the values is the cause. */
const MANY = 5;

/** A tag that is requested singly; monotonic milliseconds. */
interface Single {
  /** Times in a row that it was unreadable in company and readable singly. */
  times: number;
  /** Infinite until the first single reply has come. */
  untilMs: number;
}

export function createLeftOutTags(options: {
  readonly store: Pick<Store, "documents">;
  readonly source: string;
  readonly log: Pick<Log, "info" | "warn">;
  readonly clock: Pick<Clock, "monotonic">;
}): LeftOutTags {
  const { store, log, clock } = options;
  const set = syncSet("left-out", options.source);
  let known: Map<string, StoredLeftOut> | null = null;
  const singles = new Map<string, Single>();

  const isSingle = (id: string) => clock.monotonic() < (singles.get(id)?.untilMs ?? 0);

  function noteSingles(asked: readonly string[], unreadable: readonly string[], before: ReadonlySet<string>) {
    const [only] = asked;
    if (asked.length === 1 && only !== undefined) {
      const single = singles.get(only);
      if (unreadable.length > 0) singles.delete(only);
      else if (single?.untilMs === Number.POSITIVE_INFINITY) {
        single.times += 1;
        single.untilMs = clock.monotonic() + quarantineMs(single.times);
      }
      return;
    }
    for (const id of asked) if (!unreadable.includes(id)) singles.delete(id);
    if (unreadable.length >= MANY && 3 * unreadable.length > asked.length) return;
    for (const id of unreadable) {
      if (before.has(id)) continue;
      const single = singles.get(id) ?? { times: 0, untilMs: 0 };
      single.untilMs = Number.POSITIVE_INFINITY;
      singles.set(id, single);
    }
  }

  return {
    async change(asked, values, reply) {
      known ??= new Map(await store.documents<StoredLeftOut>(set));
      const held = known;
      const reasons = new Map((reply.leftOut ?? []).map((one) => [one.id, one]));
      const at = isoUtc(reply.receivedAtMs);
      const missing = asked.filter((id) => !values.has(id));
      const put = missing.flatMap((id): [string, StoredLeftOut][] => {
        const { kind, reason } = reasons.get(id) ?? unanswered(id);
        const before = held.get(id);
        if (before?.kind === kind && before.reason === reason) return [];
        return [[id, { since: before?.since ?? at, kind, reason }]];
      });
      const remove = asked.filter((id) => values.has(id) && held.has(id));
      return {
        documents: { set, put, remove },
        settled() {
          const unreadable = missing.filter((id) => reasons.get(id)?.kind === "unreadable");
          noteSingles(asked, unreadable, new Set(held.keys()));
          const begun = put.filter(([id, { kind }]) => held.get(id)?.kind !== kind);
          for (const [id, one] of put) held.set(id, one);
          for (const id of remove) held.delete(id);
          if (begun.length > 0) {
            const tags = Object.fromEntries(begun.slice(0, NAMED).map(([id, { reason }]) => [id, reason]));
            log.warn({ tags, count: begun.length }, "tags that were asked for have no value in the reply");
          }
          if (remove.length > 0)
            log.info({ tags: remove }, "tags that had no value in the replies have one again");
        },
      };
    },
    of: (id) => known?.get(id),
    all: () => known,
    any: () => singles.size > 0,
    labelOf: (id) => (isSingle(id) ? `single ${id}` : null),
  };
}

function unanswered(id: string): LeftOut {
  return { id, kind: "unanswered", reason: "The reply does not list it." };
}
