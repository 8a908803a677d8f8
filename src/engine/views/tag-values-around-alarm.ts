import type { BuildingView, TimeRange, TimeSeries, TimeSeriesPoint } from "../../core/connector.ts";
import { type Alarm, BUCKET_MS, type Resolution, type Tag, type TagValue } from "../../core/model/building.ts";
import { type AnyEvent, eventSubject, sourceUri } from "../../core/model/event.ts";
import { documentSet, type LoggedEvent, type Store } from "../store/store.ts";
import { type StoredObject, type StoredTagSystems, type StoredValue, syncSet } from "../sync/stored-documents.ts";

const MAX_TAGS_PER_ALARM = 20;
/** Maximum number of events to read: enough for three hours with 400 tag values per minute. */
const MAX_SEARCHED_EVENTS = 75_000;
/** Maximum number of values to return: enough for three hours of 20 tags that are read every minute. */
const MAX_RETURNED_EVENTS = 5_000;
/** Tag names are cached, because reading 20,000 of them takes 0.4 s. */
const TAG_NAME_CACHE_MS = 60_000;
const HISTORY_RESOLUTIONS = ["5m", "1h"] as const satisfies readonly Resolution[];

export interface AlarmTimeSeriesStore extends Pick<Store, "document" | "documents"> {
  readonly outbox: Pick<Store["outbox"], "recent">;
}

interface TagWithSystems {
  readonly id: string;
  readonly siteId: number | null;
  readonly name: string;
  readonly systemIds: readonly string[];
}

export function createAlarmTimeSeriesReader(store: AlarmTimeSeriesStore): BuildingView["timeSeries"] {
  const cachedTagsBySource = new Map<string, { readonly readAtMs: number; readonly tags: readonly TagWithSystems[] }>();

  async function readCachedTags(source: string, nowMs: number): Promise<readonly TagWithSystems[]> {
    const cachedTags = cachedTagsBySource.get(source);
    if (cachedTags !== undefined && Math.abs(nowMs - cachedTags.readAtMs) < TAG_NAME_CACHE_MS) return cachedTags.tags;
    const storedTags = await store.documents<StoredObject<Tag>>(documentSet("tag", source));
    const storedSystemsByTagId = await store.documents<StoredTagSystems>(syncSet("tag-system", source));
    const tags = [...storedTags]
      .filter(([, { missingSince }]) => missingSince === null)
      .map(([id, { siteId, value }]) => {
        return { id, siteId, name: value.displayName, systemIds: storedSystemsByTagId.get(id)?.systemIds ?? [] };
      });
    cachedTagsBySource.set(source, { readAtMs: nowMs, tags });
    return tags;
  }

  async function readLatestTagPoint(source: string, id: string): Promise<readonly TimeSeriesPoint[]> {
    const storedValue = await store.document<StoredValue>(documentSet("value", source), id);
    return storedValue === undefined ? [] : [{ atMs: Date.parse(storedValue.time), value: storedValue.value }];
  }

  return async (source, alarm, timeRange) => {
    const tags = await readCachedTags(source, timeRange.toMs);
    const alarmTag = findTag(alarm, tags);
    if (alarmTag === null) return [];
    const alarmAndRelatedTags = [alarmTag, ...findRelatedTags(alarmTag, tags)];
    const tagEvents = await store.outbox.recent(
      { source: sourceUri(source), subjects: alarmAndRelatedTags.flatMap(listTagEventSubjects) },
      ["tag-value", "tag-history"],
      { sinceMs: timeRange.fromMs, maxSearched: MAX_SEARCHED_EVENTS, limit: MAX_RETURNED_EVENTS },
    );
    const eventsByTagId = Map.groupBy(tagEvents, ({ event }) => (event as TagValueEvent).data.tag.id);
    const timeSeries: TimeSeries[] = [];
    for (const { id } of alarmAndRelatedTags) {
      const storedTag = await store.document<StoredObject<Tag>>(documentSet("tag", source), id);
      if (storedTag === undefined) continue;
      const tagPoints = mergeTagPoints(eventsByTagId.get(id) ?? [], await readLatestTagPoint(source, id), timeRange);
      if (tagPoints.some(({ value }) => value !== null)) timeSeries.push({ tag: storedTag.value, points: tagPoints });
    }
    return timeSeries;
  };
}

/** Returns the tag whose name is in the alarm, from the alarm's site; null if no or several tags have the name. */
export function findTag<T extends Pick<TagWithSystems, "siteId" | "name">>(
  { lastActiveEvent, site, source }: Alarm,
  tags: readonly T[],
): T | null {
  for (const name of [lastActiveEvent?.triggeredOn, source]) {
    const [firstMatch, ...otherMatches] = tags.filter((tag) => tag.siteId === site.id && tag.name === name);
    if (firstMatch !== undefined) return otherMatches.length === 0 ? firstMatch : null;
  }
  return null;
}

function findRelatedTags(alarmTag: TagWithSystems, tags: readonly TagWithSystems[]): readonly TagWithSystems[] {
  return tags
    .filter(({ id, systemIds }) => id !== alarmTag.id && systemIds.some((each) => alarmTag.systemIds.includes(each)))
    .sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }) || a.id.localeCompare(b.id))
    .slice(0, MAX_TAGS_PER_ALARM - 1);
}

function listTagEventSubjects({ id, siteId }: TagWithSystems): readonly string[] {
  const tagSubject = eventSubject("tag", siteId, id);
  return [tagSubject, ...HISTORY_RESOLUTIONS.map((resolution) => `${tagSubject}/history/${resolution}`)];
}

type TagValueEvent = Extract<AnyEvent, { readonly type: "tag-value" | "tag-history" }>;

/** Combines live values, and history buckets for times without live values. */
function mergeTagPoints(
  eventsNewestFirst: readonly LoggedEvent[],
  newestPoints: readonly TimeSeriesPoint[],
  { fromMs, toMs }: TimeRange,
): readonly TimeSeriesPoint[] {
  const valuesByTime = new Map<number, TagValue>();
  const addPoint = (atMs: number, value: TagValue) => {
    if (atMs >= fromMs && atMs <= toMs && !valuesByTime.has(atMs)) valuesByTime.set(atMs, value);
  };
  const tagEvents = eventsNewestFirst.map(({ event }) => event as TagValueEvent);
  for (const { atMs, value } of newestPoints) addPoint(atMs, value);
  for (const { data, type } of tagEvents) if (type === "tag-value") addPoint(Date.parse(data.time), data.value);
  for (const resolution of HISTORY_RESOLUTIONS) {
    const liveValueTimes = [...valuesByTime.keys()];
    for (const { data, type } of tagEvents) {
      if (type !== "tag-history" || data.resolution !== resolution) continue;
      for (const { time, value } of data.points) {
        const atMs = Date.parse(time);
        if (!liveValueTimes.some((each) => each >= atMs && each < atMs + BUCKET_MS[resolution])) addPoint(atMs, value);
      }
    }
  }
  return [...valuesByTime].map(([atMs, value]) => ({ atMs, value })).sort((a, b) => a.atMs - b.atMs);
}
