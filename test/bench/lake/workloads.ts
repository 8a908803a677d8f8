import { historyEvent } from "#src/core/codec/history-event.ts";
import { Points } from "#src/core/codec/points.ts";
import type { Tag } from "#src/core/model/building.ts";
import { type Event, makeEvent, sourceUri, subjectOf } from "#src/core/model/event.ts";
import { isoUtc } from "#src/core/values/iso-utc.ts";
import { type Readings, readReadings } from "./readings.ts";

/** Events of a workload in the order of a log, with the values that they hold. */
export type Workload = Generator<{ readonly event: Event; readonly values: number }>;

const SOURCE = sourceUri("main");
const DAY_MS = 86_400_000;
const BUCKET_MS = 300_000;
const START_MS = Date.UTC(2026, 0, 5);
/** As much of a series as the worker tells in one event. */
const EVENT_MS = { "5m": DAY_MS, "1h": 14 * DAY_MS } as const;

/** What was recorded, as a backfill tells it: building by building, the newest two weeks first. */
export function* recorded(): Workload {
  const sites = Map.groupBy(readReadings(), ({ siteId }) => siteId);
  for (const all of sites.values()) {
    const times = all.flatMap(({ points }) => [points.timeMs(0), points.timeMs(points.length - 1)]);
    const first = Math.min(...times);
    for (let end = ceil(Math.max(...times) + 1); end > first; end -= 14 * DAY_MS) {
      for (const readings of all) {
        const lengthMs = readings.resolution === "1h" ? EVENT_MS["1h"] : EVENT_MS["5m"];
        for (let from = end - 14 * DAY_MS; from < end; from += lengthMs) {
          const points = readings.points.between(from, from + lengthMs);
          if (points.length > 0) yield history(readings, readings.tag, points);
        }
      }
    }
  }
}

/**
 * Five-minute buckets of so many tags, day by day: the recorded values one after the other, whatever time lay between
 * them, and of each building as many tags as it takes.
 */
export function* plant(tags: number, values: number): Workload {
  const all = readReadings();
  let made = 0;
  for (let day = 0; made < values; day++) {
    for (let n = 0; n < tags && made < values; n++) {
      const readings = all[n % all.length] as Readings;
      const copy = Math.floor(n / all.length);
      const points = new Points();
      for (let at = 0; at < DAY_MS / BUCKET_MS; at++) {
        const place = (day * (DAY_MS / BUCKET_MS) + at + copy * 997) % readings.points.length;
        points.push(START_MS + day * DAY_MS + at * BUCKET_MS, readings.points.code(place));
      }
      yield history({ ...readings, resolution: "5m" }, tagCopy(readings.tag, copy), points);
      made += points.length;
    }
  }
}

/**
 * Live values at the complete quota, of all sites or of one: 20 tags every three seconds, each time with the next value
 * that was recorded.
 */
export function* live(values: number, onlySite?: number): Workload {
  const readings = readReadings().filter(({ siteId }) => onlySite === undefined || siteId === onlySite);
  const groups = [...Map.groupBy(readings, ({ siteId }) => siteId).values()].flatMap(inTwenties);
  let made = 0;
  for (let request = 0; made < values; request++) {
    const round = Math.floor(request / groups.length);
    // Replies take 80 to 280 ms, by no rule that a compressor could see.
    const latencyMs = 80 + ((Math.imul(request + 1, 2_654_435_761) >>> 8) % 200);
    const time = isoUtc(START_MS + request * 3_000 + latencyMs);
    for (const { tag, siteId, points } of groups[request % groups.length] ?? []) {
      const value = points.value(round % points.length);
      const subject = subjectOf("tag", siteId, tag.id);
      const quality = value === null ? "bad" : "good";
      const lastGood = value === null ? null : { value, time };
      const data = { tag, value, quality, time, latencyMs, lastGood, behindGateway: null } as const;
      const event = makeEvent({
        type: "tag-value",
        source: SOURCE,
        subject,
        time,
        siteId,
        data,
        facts: [],
      });
      yield { event, values: 1 };
      made += 1;
    }
  }
}

function history({ siteId, resolution, timeZone }: Omit<Readings, "tag" | "points">, tag: Tag, points: Points) {
  const subject = `${subjectOf("tag", siteId, tag.id)}/history/${resolution}`;
  const time = isoUtc(points.timeMs(points.length - 1) + DAY_MS);
  const event = historyEvent({
    ...{ source: SOURCE, subject, time, siteId, tag, resolution, timeZone, points },
    ...{ origin: "backfill", revisedAt: null },
  });
  return { event, values: points.length };
}

function tagCopy(tag: Tag, copy: number): Tag {
  return copy === 0 ? tag : { ...tag, id: `${tag.id}${copy}`, displayName: `${tag.displayName} ${copy}` };
}

function inTwenties(all: readonly Readings[]): (readonly Readings[])[] {
  return Array.from({ length: Math.ceil(all.length / 20) }, (_, n) => all.slice(20 * n, 20 * n + 20));
}

function ceil(timeMs: number): number {
  return Math.ceil(timeMs / DAY_MS) * DAY_MS;
}
