import { type Event, sourceName } from "../../core/model/event.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { LoggedEvent, Store } from "../../engine/store/store.ts";

/** Alarms that were raised, by UTC day: each is counted once, though the log forgets it before the month is over. */
export interface RaisedAlarms {
  load(): Promise<void>;
  all(): Promise<readonly RaisedAlarm[]>;
  write(nowMs: number): Promise<void>;
}

export interface RaisedAlarm {
  readonly source: string;
  readonly site: number;
  /** Day of the beginning, YYYY-MM-DD. */
  readonly day: string;
  readonly priority: string;
  readonly count: number;
}

interface HeldRaised {
  /** Position in the log of the last event that is counted. */
  readonly through: number;
  readonly alarms: readonly RaisedAlarm[];
}

const KEY = "raised";
const KEPT_MS = 31 * 86_400_000;
/** So many events are asked for, and more where all of them are new. */
const ASKED = [50, 1_000, 50_000];

export function createRaisedAlarms(
  set: string,
  store: Pick<Store, "commit" | "document"> & { readonly outbox: Pick<Store["outbox"], "latest"> },
): RaisedAlarms {
  let held: HeldRaised = { through: 0, alarms: [] };

  async function now(): Promise<HeldRaised> {
    const { alarms, through } = held;
    for (const limit of ASKED) {
      const latest = await store.outbox.latest(limit, ["alarm-raised"]);
      const isAll = latest.length < limit || (latest.at(-1)?.position ?? 0) <= through;
      if (!isAll && limit !== ASKED.at(-1)) continue;
      const fresh = latest.filter(({ position }) => position > through);
      if (fresh.length === 0) return held;
      return { through: fresh[0]?.position ?? through, alarms: added(alarms, fresh) };
    }
    return held;
  }

  return {
    async load() {
      held = (await store.document<HeldRaised>(set, KEY)) ?? held;
    },
    all: async () => (await now()).alarms,
    async write(nowMs) {
      const next = await now();
      if (next === held) return;
      const first = isoUtc(nowMs - KEPT_MS).slice(0, 10);
      const kept = { ...next, alarms: next.alarms.filter(({ day }) => day >= first) };
      await store.commit({ documents: [{ set, put: [[KEY, kept]] }] });
      held = kept;
    },
  };
}

function added(before: readonly RaisedAlarm[], events: readonly LoggedEvent[]): readonly RaisedAlarm[] {
  const keyOf = ({ source, site, day, priority }: RaisedAlarm) => JSON.stringify([source, site, day, priority]);
  const counts = new Map(before.map((each) => [keyOf(each), each]));
  for (const { event } of events) {
    const { alarm } = (event as Event<"alarm-raised">).data;
    const one: RaisedAlarm = {
      source: sourceName(event) ?? "",
      site: alarm.site.id,
      day: event.time.slice(0, 10),
      priority: alarm.trigger.priority,
      count: 1,
    };
    const known = counts.get(keyOf(one));
    counts.set(keyOf(one), { ...one, count: (known?.count ?? 0) + 1 });
  }
  return [...counts.values()];
}
