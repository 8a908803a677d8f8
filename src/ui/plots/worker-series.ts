import { type Event, eventSourceName } from "../../core/model/event.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Store } from "../../engine/store/store.ts";
import { ByteReader, ByteWriter, readColumn, writeColumn } from "./number-encoding.ts";

export interface PackedMinutes {
  readonly last: number;
  readonly columns: Readonly<Record<string, string>>;
}

export const DAY_MINUTES = 1_440;

/** One number per minute for a day, by name; null when unknown. */
export function createMinutes() {
  const columns = new Map<string, Map<number, number | null>>();

  /** `minute`: minutes since 1970. */
  function set(name: string, minute: number, value: number | null): void {
    const column = columns.get(name) ?? new Map<number, number | null>();
    columns.set(name, column);
    column.set(minute, value);
    // Limits the column to one day even when the clock jumps.
    const [oldest] = column.keys();
    if (column.size > DAY_MINUTES && oldest !== undefined) column.delete(oldest);
  }

  /** Values of the day that ends with the minute `last`, oldest first. */
  function of(name: string, last: number): readonly (number | null)[] {
    const column = columns.get(name);
    return Array.from({ length: DAY_MINUTES }, (_, n) => column?.get(last - DAY_MINUTES + 1 + n) ?? null);
  }
  return {
    set,
    of,
    pack: (last: number): PackedMinutes => ({
      last,
      columns: Object.fromEntries([...columns.keys()].map((name) => [name, packColumn(of(name, last))])),
    }),
    load({ columns: packed, last }: PackedMinutes): void {
      for (const [name, text] of Object.entries(packed))
        for (const [n, value] of unpackColumn(text).entries())
          if (value !== null) set(name, last - DAY_MINUTES + 1 + n, value);
    },
  };
}

function packColumn(values: readonly (number | null)[]): string {
  const writer = new ByteWriter();
  const writeValue = writeColumn(writer, values);
  for (const value of values) writeValue(value);
  return writer.text();
}

function unpackColumn(text: string): readonly (number | null)[] {
  try {
    const readValue = readColumn(new ByteReader(text));
    return Array.from({ length: DAY_MINUTES }, readValue);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return [];
  }
}

export interface RaisedAlarm {
  readonly source: string;
  readonly site: number;
  readonly day: string;
  readonly priority: string;
  readonly count: number;
}

interface StoredAlarms {
  /** Position in the log of the last counted event. */
  readonly through: number;
  readonly alarms: readonly RaisedAlarm[];
}

const RAISED_ALARMS_KEY = "raised";
const RETENTION_MS = 31 * 86_400_000;
/** Numbers of latest events that are read until one of them is already counted. */
const EVENT_READ_LIMITS = [50, 1_000, 50_000];

/** Counts raised alarms by UTC day. The log deletes its events earlier than the month that is plotted. */
export function createRaisedAlarms(
  set: string,
  store: Pick<Store, "commit" | "document"> & { readonly outbox: Pick<Store["outbox"], "latest"> },
) {
  let storedAlarms: StoredAlarms = { through: 0, alarms: [] };

  /** Returns `stored` itself if there is no new event. */
  async function currentAlarms(): Promise<StoredAlarms> {
    const { alarms, through } = storedAlarms;
    for (const limit of EVENT_READ_LIMITS) {
      const latestEvents = await store.outbox.latest(limit, ["alarm-raised"]);
      const isComplete = latestEvents.length < limit || (latestEvents.at(-1)?.position ?? 0) <= through;
      if (!isComplete && limit !== EVENT_READ_LIMITS.at(-1)) continue;
      const events = latestEvents.filter(({ position }) => position > through);
      if (events.length === 0) return storedAlarms;
      const added = events.map(({ event }) => toRaisedAlarm(event as Event<"alarm-raised">));
      return { through: events[0]?.position ?? through, alarms: sumByDay([...alarms, ...added]) };
    }
    return storedAlarms;
  }
  return {
    async load(): Promise<void> {
      storedAlarms = (await store.document<StoredAlarms>(set, RAISED_ALARMS_KEY)) ?? storedAlarms;
    },
    all: async () => (await currentAlarms()).alarms,
    async write(nowMs: number): Promise<void> {
      const nextAlarms = await currentAlarms();
      if (nextAlarms === storedAlarms) return;
      const firstDay = isoUtc(nowMs - RETENTION_MS).slice(0, 10);
      const retainedAlarms = { ...nextAlarms, alarms: nextAlarms.alarms.filter(({ day }) => day >= firstDay) };
      await store.commit({ documents: [{ set, put: [[RAISED_ALARMS_KEY, retainedAlarms]] }] });
      storedAlarms = retainedAlarms;
    },
  };
}

function toRaisedAlarm(event: Event<"alarm-raised">): RaisedAlarm {
  const { site, trigger } = event.data.alarm;
  const day = event.time.slice(0, 10);
  return { source: eventSourceName(event) ?? "", site: site.id, day, priority: trigger.priority, count: 1 };
}

function sumByDay(alarms: readonly RaisedAlarm[]): readonly RaisedAlarm[] {
  const alarmsByKey = new Map<string, RaisedAlarm>();
  for (const alarm of alarms) {
    const key = JSON.stringify([alarm.source, alarm.site, alarm.day, alarm.priority]);
    alarmsByKey.set(key, { ...alarm, count: (alarmsByKey.get(key)?.count ?? 0) + alarm.count });
  }
  return [...alarmsByKey.values()];
}

export type Refusals = ReturnType<typeof createRefusals>;

export interface RefusedRequest {
  readonly at: string;
  readonly what: string;
  readonly words: string;
}

const REFUSALS_KEY = "refused";
const MOST_REFUSALS = 50;
/** An equal refusal is noted once in this time, so that an outage does not displace all others. */
const REPEATED_REFUSAL_MS = 3_600_000;

/** Recent rejections and failures of the service, by source. */
export function createRefusals(set: string, store: Pick<Store, "commit" | "document">) {
  let bySource: Readonly<Record<string, readonly RefusedRequest[]>> = {};
  let isChanged = false;
  return {
    async load(): Promise<void> {
      bySource = (await store.document<typeof bySource>(set, REFUSALS_KEY)) ?? {};
    },
    note(source: string, refused: RefusedRequest): void {
      const previousRefusals = bySource[source] ?? [];
      const isRepeated = previousRefusals.some(
        ({ at, what, words }) =>
          what === refused.what &&
          words === refused.words &&
          Math.abs(Date.parse(refused.at) - Date.parse(at)) < REPEATED_REFUSAL_MS,
      );
      if (isRepeated) return;
      bySource = { ...bySource, [source]: [refused, ...previousRefusals].slice(0, MOST_REFUSALS) };
      isChanged = true;
    },
    /** Newest first, at most 50. */
    of: (source: string) => bySource[source] ?? [],
    async write(): Promise<void> {
      if (!isChanged) return;
      await store.commit({ documents: [{ set, put: [[REFUSALS_KEY, bySource]] }] });
      isChanged = false;
    },
  };
}
