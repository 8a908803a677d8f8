import { DateTime, IANAZone } from "luxon";
import { DAY_MS } from "./timeline.ts";

export const RESOLUTIONS = ["5m", "1h", "1d", "1w", "1mo"] as const;
export type Resolution = (typeof RESOLUTIONS)[number];

export interface Bucket {
  readonly startMs: number;
  readonly endMs: number;
}

export interface Buckets {
  /** The bucket that holds a time, aligned to the local time of an IANA zone. Weeks begin on Monday. */
  at(resolution: Resolution, zone: string, atMs: number): Bucket;
  /** What a wall clock in the zone is ahead of UTC. */
  offsetMs(zone: string, atMs: number): number;
}

const SHORT_MS = { "5m": 300_000, "1h": 3_600_000 } as const;
const UNIT = { "1d": "day", "1w": "week", "1mo": "month" } as const;

/** Zone rules come from luxon and are remembered per zone and day, since asking costs microseconds. */
export function createBuckets(): Buckets {
  const zones = new Map<string, { readonly zone: IANAZone; readonly offsetsOfDays: Map<number, number> }>();
  const longBuckets = new Map<string, Bucket>();

  function offsetMs(name: string, atMs: number): number {
    let known = zones.get(name);
    if (known === undefined) {
      known = { zone: IANAZone.create(name), offsetsOfDays: new Map() };
      zones.set(name, known);
    }
    const day = Math.floor(atMs / DAY_MS);
    let minutes = known.offsetsOfDays.get(day);
    if (minutes === undefined) {
      const atStart = known.zone.offset(day * DAY_MS);
      // NaN marks a day within which the clocks change.
      minutes = known.zone.offset((day + 1) * DAY_MS) === atStart ? atStart : Number.NaN;
      known.offsetsOfDays.set(day, minutes);
    }
    return (Number.isNaN(minutes) ? known.zone.offset(atMs) : minutes) * 60_000;
  }

  return {
    offsetMs,
    at(resolution, zone, atMs) {
      const shift = offsetMs(zone, atMs);
      if (resolution === "5m" || resolution === "1h") {
        const lengthMs = SHORT_MS[resolution];
        const startMs = Math.floor((atMs + shift) / lengthMs) * lengthMs - shift;
        return { startMs, endMs: startMs + lengthMs };
      }
      const key = `${resolution} ${zone} ${Math.floor((atMs + shift) / DAY_MS)}`;
      const known = longBuckets.get(key);
      if (known !== undefined) return known;
      const unit = UNIT[resolution];
      const start = DateTime.fromMillis(atMs, { zone }).startOf(unit);
      const bucket = {
        startMs: start.toMillis(),
        endMs: start
          .plus({ [unit]: 1 })
          .startOf(unit)
          .toMillis(),
      };
      longBuckets.set(key, bucket);
      return bucket;
    },
  };
}
