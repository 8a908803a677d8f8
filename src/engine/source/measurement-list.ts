import { Points } from "../../core/codec/points.ts";
import type { Measurement } from "../../core/model/building.ts";
import { wireTime } from "./iso-time.ts";
import { isRecord } from "./reply.ts";
import { kindOf, tagValueIn } from "./values.ts";

/** A list of measurements, read. */
export class LoggedSeries {
  readonly points: Points;
  /** Times of the measurements whose value is unreadable, milliseconds since 1970. */
  readonly unreadableMs: number[] = [];
  /** A sentence about the first unreadable measurement, with the service's own words; null where there is none. */
  said: string | null = null;
  /** True where a measurement has no readable time: it may be of any bucket, so the complete log is unreadable. */
  isBroken = false;
  /** Measurements whose number is written as a text. */
  texts = 0;

  /** `room`: how many measurements it will have, as far as one can guess. */
  constructor(room: number) {
    this.points = Points.withRoom(room);
  }

  static of(entries: readonly unknown[]): LoggedSeries {
    const series = new LoggedSeries(entries.length);
    for (const entry of entries) series.add(entry);
    return series;
  }

  add(entry: unknown): void {
    if (this.isBroken) return;
    const stamp = isRecord(entry) ? entry.timestamp : undefined;
    const time = typeof stamp === "string" ? wireTime(stamp) : null;
    if (!isRecord(entry) || time === null || !time.known) {
      this.isBroken = true;
      this.said = isRecord(entry)
        ? `The time of a measurement is ${kindOf(stamp)}, and no time.`
        : `A measurement is ${kindOf(entry)}, and no object.`;
      return;
    }
    const value = tagValueIn(entry.value);
    if (value !== undefined) {
      if (typeof entry.value === "string") this.texts++;
      this.points.add({ time: time.text, value } satisfies Measurement);
      return;
    }
    const timeMs = Date.parse(time.text);
    this.said ??= `The value at ${time.text} is ${kindOf(entry.value)}, and no number, boolean or null.`;
    // A time such as 2026-W23-1 is in no bucket: which one is unreadable is not known.
    if (Number.isNaN(timeMs)) this.isBroken = true;
    else this.unreadableMs.push(timeMs);
  }

  /** Whether another list says the same. */
  isSameAs({ points, unreadableMs, isBroken }: LoggedSeries): boolean {
    if (this.isBroken || isBroken || points.length !== this.points.length) return false;
    for (let at = 0; at < points.length; at++) {
      const isSameTime = points.text(at) === this.points.text(at);
      if (!isSameTime || !Object.is(points.code(at), this.points.code(at))) return false;
    }
    return unreadableMs.length === this.unreadableMs.length;
  }
}
