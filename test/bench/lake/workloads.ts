import { readFileSync } from "node:fs";
import { join } from "node:path";
import { makeHistoryEvent } from "#src/core/codec/history-event.ts";
import { FALSE_VALUE_CODE, NULL_VALUE_CODE, TagPoints, TRUE_VALUE_CODE } from "#src/core/codec/points.ts";
import type { Resolution, Tag } from "#src/core/model/building.ts";
import { type Event, eventSubject, makeEvent, sourceUri } from "#src/core/model/event.ts";
import { isoUtc } from "#src/core/values/iso-utc.ts";
import metadata from "#src/simulator/data/metadata.json" with { type: "json" };

export type Workload = Generator<{ readonly event: Event; readonly values: number }>;

const SOURCE = sourceUri("main");
const DAY_MS = 86_400_000;
const BUCKET_MS = 300_000;
const START_MS = Date.UTC(2026, 0, 5);
const EVENT_MS = { "5m": DAY_MS, "1h": 14 * DAY_MS } as const;

/** The recorded readings as a backfill emits them: by building, the newest two weeks first. */
export function* recorded(): Workload {
  const sites = Map.groupBy(readReadings(), ({ siteId }) => siteId);
  for (const all of sites.values()) {
    const boundaryTimes = all.flatMap(({ points }) => [points.timeMs(0), points.timeMs(points.length - 1)]);
    const firstMs = Math.min(...boundaryTimes);
    for (let end = ceil(Math.max(...boundaryTimes) + 1); end > firstMs; end -= 14 * DAY_MS) {
      for (const readings of all) {
        const lengthMs = readings.resolution === "1h" ? EVENT_MS["1h"] : EVENT_MS["5m"];
        for (let fromMs = end - 14 * DAY_MS; fromMs < end; fromMs += lengthMs) {
          const points = readings.points.sliceByTime(fromMs, fromMs + lengthMs);
          if (points.length > 0) yield history(readings, readings.tag, points);
        }
      }
    }
  }
}

/** Five-minute buckets of so many tags by day. Copies the recorded tags, and uses the recorded values without their times. */
export function* plant(tags: number, values: number): Workload {
  const all = readReadings();
  let madeValues = 0;
  for (let day = 0; madeValues < values; day++) {
    for (let n = 0; n < tags && madeValues < values; n++) {
      const readings = all[n % all.length] as Readings;
      const copy = Math.floor(n / all.length);
      const points = new TagPoints();
      for (let at = 0; at < DAY_MS / BUCKET_MS; at++) {
        const pointIndex = (day * (DAY_MS / BUCKET_MS) + at + copy * 997) % readings.points.length;
        points.push(START_MS + day * DAY_MS + at * BUCKET_MS, readings.points.valueCode(pointIndex));
      }
      yield history({ ...readings, resolution: "5m" }, tagCopy(readings.tag, copy), points);
      madeValues += points.length;
    }
  }
}

/** Live values at the complete quota, of all sites or of one: 20 tags every three seconds with the next recorded value. */
export function* live(values: number, onlySite?: number): Workload {
  const readings = readReadings().filter(({ siteId }) => onlySite === undefined || siteId === onlySite);
  const groups = [...Map.groupBy(readings, ({ siteId }) => siteId).values()].flatMap(inTwenties);
  let madeValues = 0;
  for (let request = 0; madeValues < values; request++) {
    const round = Math.floor(request / groups.length);
    // Latencies of 80 to 280 ms without a pattern that compresses.
    const latencyMs = 80 + ((Math.imul(request + 1, 2_654_435_761) >>> 8) % 200);
    const time = isoUtc(START_MS + request * 3_000 + latencyMs);
    for (const { tag, siteId, points } of groups[request % groups.length] ?? []) {
      const value = points.value(round % points.length);
      const subject = eventSubject("tag", siteId, tag.id);
      const quality = value === null ? "bad" : "good";
      const lastGood = value === null ? null : { value, time };
      const data = { tag, value, quality: quality, time, latencyMs, lastGood, behindGateway: null } as const;
      const event = makeEvent({ type: "tag-value", source: SOURCE, subject: subject, time, siteId, data, facts: [] });
      yield { event, values: 1 };
      madeValues += 1;
    }
  }
}

function history({ siteId, resolution, timeZone }: Omit<Readings, "tag" | "points">, tag: Tag, points: TagPoints) {
  const historySubject = `${eventSubject("tag", siteId, tag.id)}/history/${resolution}`;
  const time = isoUtc(points.timeMs(points.length - 1) + DAY_MS);
  const event = makeHistoryEvent({
    ...{ source: SOURCE, subject: historySubject, time, siteId, tag, resolution, timeZone, points },
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

interface Readings {
  readonly siteId: number;
  readonly timeZone: string;
  readonly tag: Tag;
  /** Coarsest resolution that has each reading in its own bucket. */
  readonly resolution: Resolution;
  readonly points: TagPoints;
}

const DATA = join(import.meta.dirname, "../../../src/simulator/data");
const HOUR_SECONDS = 3_600;

function readReadings(): readonly Readings[] {
  const files = new Set(metadata.tags.map(({ file }) => file));
  const columns = new Map([...files].map((file) => [file, readColumns(file)]));
  return metadata.tags.map((tag): Readings => {
    const points = columns.get(tag.file)?.get(tag.column);
    if (points === undefined) throw new Error(`The file ${tag.file} has no column ${tag.column}.`);
    return {
      siteId: tag.site_id,
      timeZone: metadata.sites.find(({ id }) => id === tag.site_id)?.timezone ?? "UTC",
      tag: { id: tag.id, displayName: tag.display_name, description: tag.description, unit: tag.unit },
      resolution: tag.resolution_seconds >= HOUR_SECONDS ? "1h" : "5m",
      points,
    };
  });
}

const BOOLEANS = new Set(metadata.tags.filter(({ kind }) => kind === "boolean").map(({ column }) => column));

/** Parses line by line to keep the heap small before the measurement. */
function readColumns(file: string): ReadonlyMap<string, TagPoints> {
  const [head = "", ...lines] = readFileSync(join(DATA, file), "utf8").trim().split("\n");
  const columns = head
    .split(",")
    .slice(1)
    .map((name) => ({ points: new TagPoints(), isBoolean: BOOLEANS.has(name), name }));
  for (const line of lines) {
    const [time = "", ...cells] = line.split(",");
    const timeMs = Date.parse(time);
    for (const [n, { points, isBoolean }] of columns.entries()) {
      const cell = cells[n] ?? "";
      const code = isBoolean ? (cell === "1" ? TRUE_VALUE_CODE : FALSE_VALUE_CODE) : Number(cell);
      points.push(timeMs, cell === "" ? NULL_VALUE_CODE : code);
    }
  }
  return new Map(columns.map(({ name, points }) => [name, points]));
}
