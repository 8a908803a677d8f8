import { type Event, eventSourceName } from "../../core/model/event.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { LoggedEvent, Store } from "../../engine/store/store.ts";
import { ByteReader, ByteWriter, numberReader, numberWriter } from "./number-encoding.ts";

export interface PackedMinuteSeries {
  readonly last: number;
  readonly columns: Readonly<Record<string, string>>;
}

export const DAY_MINUTES = 1_440;

/** Holds named time series with one number per minute of a day; null for an unknown number. */
export function createMinuteSeries() {
  const seriesByName = new Map<string, Map<number, number | null>>();

  function set(seriesName: string, minute: number, value: number | null): void {
    const valuesByMinute = seriesByName.get(seriesName) ?? new Map<number, number | null>();
    seriesByName.set(seriesName, valuesByMinute);
    valuesByMinute.set(minute, value);
    // Limits a series to one day even when the clock jumps.
    const [oldestMinute] = valuesByMinute.keys();
    if (valuesByMinute.size > DAY_MINUTES && oldestMinute !== undefined) valuesByMinute.delete(oldestMinute);
  }

  /** Returns the values of the day that ends with `lastMinute`, oldest first. */
  function valuesOfDay(name: string, lastMinute: number): readonly (number | null)[] {
    const valuesByMinute = seriesByName.get(name);
    return Array.from({ length: DAY_MINUTES }, (_, n) => valuesByMinute?.get(lastMinute - DAY_MINUTES + 1 + n) ?? null);
  }
  return {
    set,
    valuesOfDay,
    pack: (lastMinute: number): PackedMinuteSeries => ({
      last: lastMinute,
      columns: Object.fromEntries(
        [...seriesByName.keys()].map((name) => [name, packMinuteValues(valuesOfDay(name, lastMinute))]),
      ),
    }),
    load({ columns: packedColumns, last }: PackedMinuteSeries): void {
      for (const [name, text] of Object.entries(packedColumns))
        for (const [n, value] of unpackMinuteValues(text).entries())
          if (value !== null) set(name, last - DAY_MINUTES + 1 + n, value);
    },
  };
}

function packMinuteValues(values: readonly (number | null)[]): string {
  const writer = new ByteWriter();
  const writeNextValue = numberWriter(writer, values);
  for (const value of values) writeNextValue(value);
  return writer.toBase64();
}

function unpackMinuteValues(text: string): readonly (number | null)[] {
  try {
    return Array.from({ length: DAY_MINUTES }, numberReader(new ByteReader(text)));
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return [];
  }
}

export interface RaisedAlarmCount {
  readonly source: string;
  readonly site: number;
  readonly day: string;
  readonly priority: string;
  readonly count: number;
}

interface StoredAlarmCounts {
  /** Position of the last counted event in the event log. */
  readonly through: number;
  readonly alarms: readonly RaisedAlarmCount[];
}

const RAISED_ALARMS_KEY = "raised";
const ALARM_COUNT_RETENTION_MS = 31 * 86_400_000;
/** Numbers of latest alarm events to read: first 50, then more, until they include an already counted event. */
const ALARM_EVENT_READ_LIMITS = [50, 1_000, 50_000];

/** Stores the number of raised alarms of each UTC day, because the event log may be shorter than the plotted month. */
export function createRaisedAlarmCounts(
  set: string,
  store: Pick<Store, "commit" | "document"> & { readonly outbox: Pick<Store["outbox"], "latest"> },
) {
  let storedAlarmCounts: StoredAlarmCounts = { through: 0, alarms: [] };

  async function currentAlarmCounts(): Promise<StoredAlarmCounts> {
    const { alarms, through } = storedAlarmCounts;
    let latestEvents: readonly LoggedEvent[] = [];
    for (const limit of ALARM_EVENT_READ_LIMITS) {
      latestEvents = await store.outbox.latest(limit, ["alarm-raised"]);
      if (latestEvents.length < limit || (latestEvents.at(-1)?.position ?? 0) <= through) break;
    }
    const newEvents = latestEvents.filter(({ position }) => position > through);
    if (newEvents.length === 0) return storedAlarmCounts;
    const newCounts = newEvents.map(({ event }) => toRaisedAlarmCount(event as Event<"alarm-raised">));
    return { through: newEvents[0]?.position ?? through, alarms: sumAlarmCountsByDay([...alarms, ...newCounts]) };
  }
  return {
    async loadCounts(): Promise<void> {
      storedAlarmCounts = (await store.document<StoredAlarmCounts>(set, RAISED_ALARMS_KEY)) ?? storedAlarmCounts;
    },
    allCounts: async () => (await currentAlarmCounts()).alarms,
    async writeCounts(nowMs: number): Promise<void> {
      const counts = await currentAlarmCounts();
      if (counts === storedAlarmCounts) return;
      const firstRetainedDay = isoUtc(nowMs - ALARM_COUNT_RETENTION_MS).slice(0, 10);
      const retainedCounts = { ...counts, alarms: counts.alarms.filter(({ day }) => day >= firstRetainedDay) };
      await store.commit({ documents: [{ set, put: [[RAISED_ALARMS_KEY, retainedCounts]] }] });
      storedAlarmCounts = retainedCounts;
    },
  };
}

function toRaisedAlarmCount(event: Event<"alarm-raised">): RaisedAlarmCount {
  const { site, trigger } = event.data.alarm;
  const day = event.time.slice(0, 10);
  return { source: eventSourceName(event) ?? "", site: site.id, day, priority: trigger.priority, count: 1 };
}

function sumAlarmCountsByDay(alarms: readonly RaisedAlarmCount[]): readonly RaisedAlarmCount[] {
  const countsByAlarmKey = new Map<string, RaisedAlarmCount>();
  for (const alarm of alarms) {
    const key = JSON.stringify([alarm.source, alarm.site, alarm.day, alarm.priority]);
    countsByAlarmKey.set(key, { ...alarm, count: (countsByAlarmKey.get(key)?.count ?? 0) + alarm.count });
  }
  return [...countsByAlarmKey.values()];
}

export type RefusedRequests = ReturnType<typeof createRefusedRequests>;

export interface RefusedRequest {
  readonly at: string;
  readonly what: string;
  readonly words: string;
}

const REFUSED_REQUESTS_KEY = "refused";
const MAX_REFUSALS = 50;
/** The same refusal is not stored again within this time, so that an outage does not displace all other refusals. */
const REPEATED_REFUSAL_MS = 3_600_000;

/** Holds the latest requests of each source that the service refused or that failed. */
export function createRefusedRequests(set: string, store: Pick<Store, "commit" | "document">) {
  let refusalsBySource: Readonly<Record<string, readonly RefusedRequest[]>> = {};
  let isChanged = false;
  return {
    async loadRefusals(): Promise<void> {
      refusalsBySource = (await store.document<typeof refusalsBySource>(set, REFUSED_REQUESTS_KEY)) ?? {};
    },
    addRefusal(source: string, refusal: RefusedRequest): void {
      const previousRefusals = refusalsBySource[source] ?? [];
      const isRepeatedRefusal = previousRefusals.some(
        ({ at, what, words }) =>
          what === refusal.what &&
          words === refusal.words &&
          Math.abs(Date.parse(refusal.at) - Date.parse(at)) < REPEATED_REFUSAL_MS,
      );
      if (isRepeatedRefusal) return;
      refusalsBySource = { ...refusalsBySource, [source]: [refusal, ...previousRefusals].slice(0, MAX_REFUSALS) };
      isChanged = true;
    },
    refusalsOf: (source: string) => refusalsBySource[source] ?? [],
    async writeRefusals(): Promise<void> {
      if (!isChanged) return;
      await store.commit({ documents: [{ set, put: [[REFUSED_REQUESTS_KEY, refusalsBySource]] }] });
      isChanged = false;
    },
  };
}
