import type { BuildingView } from "../../core/connector.ts";
import type { Event } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { DocumentChange, Store } from "../store/store.ts";
import { STATE_PARTS, type StateEvent, type StatePart, stateEvents } from "./state-events.ts";

interface StoredSnapshot {
  readonly askedAt: string;
  readonly part: StatePart;
  readonly after: string;
  readonly sent: number;
}

const SET = "snapshot";
const WAIT_MS = 10 * 60_000;

/** Requests a snapshot, by `from: state` or by a person; a running one starts again. */
export function snapshotRequest(sink: string, askedAt: string): DocumentChange {
  const held: StoredSnapshot = { askedAt, part: "site", after: "", sent: 0 };
  return { set: SET, put: [[sink, held]] };
}

/** Sends the stored state to one sink, in its order and through its filter; continues after a restart. */
export function createSnapshot(options: {
  readonly sink: string;
  readonly store: Pick<Store, "document" | "changes" | "commit">;
  readonly picture: BuildingView;
  readonly passes: (event: Event) => boolean;
  readonly clock: Pick<Clock, "now">;
  readonly log: Log;
}) {
  const { sink, store, picture, passes, clock, log } = options;
  /** Remaining events of a part, read once: a page of 100 tags must not read 50,000. */
  let rest: { readonly of: string; readonly events: readonly StateEvent[] } | null = null;
  let waits = false;
  /** Version of the state in which no snapshot was requested; a busy sink checks before each batch. */
  let unwantedAt: number | null = null;
  let offered: { readonly held: StoredSnapshot; readonly page: readonly StateEvent[] } | null = null;

  async function restOf(held: StoredSnapshot): Promise<readonly StateEvent[]> {
    const of = `${held.askedAt} ${held.part}`;
    if (rest?.of !== of) {
      const events = await stateEvents(picture, held.part, held.askedAt);
      rest = { of, events: events.filter(({ event }) => passes(event)) };
    }
    return rest.events.filter(({ key }) => key > held.after);
  }

  /** At the first start no list was fetched yet, so the beginning of a snapshot waits for complete lists. */
  async function mayBegin({ after, askedAt, part }: StoredSnapshot): Promise<boolean> {
    if (part !== STATE_PARTS[0] || after !== "") return true;
    return clock.now() - Date.parse(askedAt) > WAIT_MS || (await picture.isWhole());
  }

  const remember = (held: StoredSnapshot): DocumentChange => ({ set: SET, put: [[sink, held]] });

  return {
    /** The next events; empty without a snapshot, at its end, and while it waits for complete lists. */
    async next(limit: number): Promise<readonly Event[]> {
      offered = null;
      waits = false;
      const changes = await store.changes();
      if (changes === unwantedAt) return [];
      for (;;) {
        const held = await store.document<StoredSnapshot>(SET, sink);
        if (held === undefined) {
          unwantedAt = changes;
          rest = null;
          return [];
        }
        waits = !(await mayBegin(held));
        if (waits) return [];
        const page = (await restOf(held)).slice(0, limit);
        if (page.length > 0) {
          offered = { held, page };
          return page.map(({ event }) => event);
        }
        const following = STATE_PARTS[STATE_PARTS.indexOf(held.part) + 1];
        if (following === undefined) {
          log.info({ sink, events: held.sent }, "the sink has what is believed now");
          await store.commit({ documents: [{ set: SET, remove: [sink] }] });
        } else await store.commit({ documents: [remember({ ...held, part: following, after: "" })] });
      }
    },
    waits: () => waits,
    letsUrgentPass: () => ["tag", "tag-systems", "value"].includes(offered?.held.part ?? ""),
    /** Records that the sink has the first `count` events of the last `next`, and its own state changes. */
    async settle(count: number, documents: readonly DocumentChange[]): Promise<void> {
      const last = offered?.page[count - 1];
      // Without a settlement the sink's state is written separately (`sink-loop`).
      if (offered === null || last === undefined) return;
      const { held } = offered;
      const now = await store.document<StoredSnapshot>(SET, sink);
      // A new snapshot that was requested meanwhile starts at its beginning.
      const isSame = now?.askedAt === held.askedAt;
      const progress = isSame ? [remember({ ...held, after: last.key, sent: held.sent + count })] : [];
      await store.commit({ documents: [...progress, ...documents] });
    },
  };
}
