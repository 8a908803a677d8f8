import type { BuildingView, TimeRange, TimeSeries, TimeSeriesPoint } from "../../core/connector.ts";
import { type Alarm, BUCKET_MS, type Resolution, type Tag, type TagValue } from "../../core/model/building.ts";
import { type AnyEvent, eventSubject, sourceUri } from "../../core/model/event.ts";
import { documentSet, type LoggedEvent, type Store } from "../store/store.ts";
import { type StoredObject, type StoredTagSystems, type StoredValue, syncSet } from "../sync/snapshot.ts";

const MAX_TAGS_PER_ALARM = 20;
/** Most events to search: three hours at 400 values a minute are 72,000. */
const MAX_SEARCHED_EVENTS = 75_000;
/** Most events to return: 20 tags that are read every minute have 3,600 in three hours. */
const MAX_RETURNED_EVENTS = 5_000;
/** Names of tags and systems are cached for this time: reading 20,000 takes 0.4 s. */
const NAME_CACHE_MS = 60_000;
const RESOLUTIONS = ["5m", "1h"] as const satisfies readonly Resolution[];

export interface TimeSeriesStore extends Pick<Store, "document" | "documents"> {
  readonly outbox: Pick<Store["outbox"], "recent">;
}

interface NamedTag {
  readonly id: string;
  readonly siteId: number | null;
  readonly name: string;
  readonly systemIds: readonly string[];
}

export function createTimeSeriesReader(store: TimeSeriesStore): BuildingView["timeSeries"] {
  const tagsBySource = new Map<string, { readonly readMs: number; readonly tags: readonly NamedTag[] }>();

  async function readTags(source: string, nowMs: number): Promise<readonly NamedTag[]> {
    const cachedTags = tagsBySource.get(source);
    if (cachedTags !== undefined && Math.abs(nowMs - cachedTags.readMs) < NAME_CACHE_MS) return cachedTags.tags;
    const storedTags = await store.documents<StoredObject<Tag>>(documentSet("tag", source));
    const tagSystems = await store.documents<StoredTagSystems>(syncSet("tag-system", source));
    const tags = [...storedTags]
      .filter(([, { missingSince }]) => missingSince === null)
      .map(([id, { siteId, value }]) => {
        return { id, siteId, name: value.displayName, systemIds: tagSystems.get(id)?.systemIds ?? [] };
      });
    tagsBySource.set(source, { readMs: nowMs, tags });
    return tags;
  }

  async function readLatestPoint(source: string, id: string): Promise<readonly TimeSeriesPoint[]> {
    const storedValue = await store.document<StoredValue>(documentSet("value", source), id);
    return storedValue === undefined ? [] : [{ atMs: Date.parse(storedValue.time), value: storedValue.value }];
  }

  return async (source, alarm, span) => {
    const tags = await readTags(source, span.toMs);
    const alarmTag = findTag(alarm, tags);
    if (alarmTag === null) return [];
    const shownTags = [alarmTag, ...findRelatedTags(alarmTag, tags)];
    const events = await store.outbox.recent(
      { source: sourceUri(source), subjects: shownTags.flatMap(listSubjects) },
      ["tag-value", "tag-history"],
      { sinceMs: span.fromMs, maxSearched: MAX_SEARCHED_EVENTS, limit: MAX_RETURNED_EVENTS },
    );
    const eventsByTagId = Map.groupBy(events, ({ event }) => (event as TagEvent).data.tag.id);
    const timeSeries: TimeSeries[] = [];
    for (const { id } of shownTags) {
      const storedTag = await store.document<StoredObject<Tag>>(documentSet("tag", source), id);
      if (storedTag === undefined) continue;
      const points = mergePoints(eventsByTagId.get(id) ?? [], await readLatestPoint(source, id), span);
      if (points.some(({ value }) => value !== null)) timeSeries.push({ tag: storedTag.value, points });
    }
    return timeSeries;
  };
}

/** Returns the tag of the site that the alarm names; null if none or several have the name. */
export function findTag<T extends Pick<NamedTag, "siteId" | "name">>(
  { lastActiveEvent, site, source }: Alarm,
  tags: readonly T[],
): T | null {
  for (const name of [lastActiveEvent?.triggeredOn, source]) {
    const [first, ...others] = tags.filter((tag) => tag.siteId === site.id && tag.name === name);
    if (first !== undefined) return others.length === 0 ? first : null;
  }
  return null;
}

function findRelatedTags(own: NamedTag, tags: readonly NamedTag[]): readonly NamedTag[] {
  return tags
    .filter(({ id, systemIds }) => id !== own.id && systemIds.some((each) => own.systemIds.includes(each)))
    .sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }) || a.id.localeCompare(b.id))
    .slice(0, MAX_TAGS_PER_ALARM - 1);
}

function listSubjects({ id, siteId }: NamedTag): readonly string[] {
  const subject = eventSubject("tag", siteId, id);
  return [subject, ...RESOLUTIONS.map((resolution) => `${subject}/history/${resolution}`)];
}

type TagEvent = Extract<AnyEvent, { readonly type: "tag-value" | "tag-history" }>;

/** Live values, and history buckets for times without live values; the later one wins for equal times. */
function mergePoints(
  newestFirst: readonly LoggedEvent[],
  newest: readonly TimeSeriesPoint[],
  { fromMs, toMs }: TimeRange,
): readonly TimeSeriesPoint[] {
  const valuesByTime = new Map<number, TagValue>();
  const add = (atMs: number, value: TagValue) => {
    if (atMs >= fromMs && atMs <= toMs && !valuesByTime.has(atMs)) valuesByTime.set(atMs, value);
  };
  const events = newestFirst.map(({ event }) => event as TagEvent);
  for (const { atMs, value } of newest) add(atMs, value);
  for (const { data, type } of events) if (type === "tag-value") add(Date.parse(data.time), data.value);
  for (const resolution of RESOLUTIONS) {
    const valueTimes = [...valuesByTime.keys()];
    for (const { data, type } of events) {
      if (type !== "tag-history" || data.resolution !== resolution) continue;
      for (const { time, value } of data.points) {
        const atMs = Date.parse(time);
        const isKnown = valueTimes.some((each) => each >= atMs && each < atMs + BUCKET_MS[resolution]);
        if (!isKnown) add(atMs, value);
      }
    }
  }
  return [...valuesByTime].map(([atMs, value]) => ({ atMs, value })).sort((a, b) => a.atMs - b.atMs);
}
