import type { Tag, TagLog, TagReading, TagTotal } from "../building.ts";
import { Malformed } from "../errors.ts";
import { isValue, LoggedSeries } from "./logged-series.ts";
import { type DecodedReply, isRecord } from "./reply.ts";
import type { Reader } from "./schema.ts";
import type { LeftOut } from "./source.ts";
import { listIn, type Note } from "./wire.ts";

/**
 * Values of tags out of read, write and history replies.
 *
 * A value is a number, a boolean or null (interface, Tag); null says that the gateway could not read the device, so
 * nothing else may become null. A value of another kind, also the text "21.5", says nothing that we could pass on:
 * the tag or bucket is left out, as if it had not been answered, and counted, as is a tag that was not answered. What
 * was not asked for is left out too, and of a tag that comes twice the first counts.
 */
export interface ValueReader {
  readings(answer: DecodedReply, askedIds: readonly string[]): Readings;
  logs(answer: DecodedReply, askedIds: readonly string[]): TagLog[];
  totals(answer: DecodedReply, askedIds: readonly string[]): TagTotal[];
}

export interface Readings {
  readonly readings: readonly TagReading[];
  readonly leftOut?: readonly LeftOut[];
}

export function valueReader(tagIn: Reader<Tag>, note: Note): ValueReader {
  function records(answer: DecodedReply, askedIds: readonly string[]) {
    const data = listIn(answer.envelope.data);
    if (data === null) throw new Malformed("The data of a tag reply are no list.", answer.sample);
    const asked = new Set(askedIds);
    const found: { tag: Tag; record: Readonly<Record<string, unknown>> }[] = [];
    for (const record of data) {
      const tag = tagIn(record);
      if (tag === null || !isRecord(record)) {
        throw new Malformed("A tag reply has a record without a usable id.", answer.sample);
      }
      if (asked.delete(tag.id)) found.push({ tag, record });
      else note("tag.id");
    }
    for (const _id of asked) note("tag.unanswered");
    return found;
  }

  return {
    readings(answer, askedIds) {
      const readings: TagReading[] = [];
      const unusable = new Map<string, string>();
      for (const { tag, record } of records(answer, askedIds)) {
        if (isValue(record.value)) {
          const { id, displayName, description, unit } = tag;
          readings.push({ id, displayName, description, unit, value: record.value });
        } else {
          note("tag.value");
          unusable.set(tag.id, `Its value is ${kindOf(record.value)}, and no number, boolean or null.`);
        }
      }
      if (readings.length === askedIds.length) return { readings };
      const had = new Set(readings.map(({ id }) => id));
      const leftOut = askedIds
        .filter((id) => !had.has(id))
        .map((id): LeftOut => {
          const reason = unusable.get(id);
          return reason === undefined
            ? { id, kind: "unanswered", reason: "The reply does not list it." }
            : { id, kind: "unreadable", reason };
        });
      return { readings, leftOut };
    },

    logs(answer, askedIds) {
      return records(answer, askedIds).map(({ tag, record }) => {
        // Strict: an empty log is booked as having no values, so it has to be said in the one way that says it.
        const series = seriesIn(record.measurements);
        if (series === null) {
          throw new Malformed(`The log of tag ${tag.id} has no list of measurements.`, answer.sample);
        }
        for (let n = 0; n < series.unusable; n++) note("measurement.value");
        if (series.isBroken) {
          throw new Malformed(`The log of tag ${tag.id} has a measurement without a time.`, answer.sample);
        }
        return { ...tag, measurements: series.points };
      });
    },

    totals(answer, askedIds) {
      return records(answer, askedIds).map(({ tag, record }) => {
        const total = totalIn(record);
        if (total === undefined) {
          throw new Malformed(`The total of tag ${tag.id} is not one number.`, answer.sample);
        }
        return { ...tag, total };
      });
    },
  };
}

function kindOf(value: unknown): string {
  if (value === undefined) return "missing";
  if (typeof value === "string") return "a text";
  return Array.isArray(value) ? "a list" : typeof value === "number" ? "no finite number" : "an object";
}

/** A list of measurements, whether it was read in parts already or not; null for what is no list. */
function seriesIn(measurements: unknown): LoggedSeries | null {
  if (measurements instanceof LoggedSeries) return measurements;
  return Array.isArray(measurements) ? LoggedSeries.of(measurements) : null;
}

/**
 * The one number of a scalar reply. The prose of the interface puts it under `value`, its sample into
 * `measurements`; seen are a number, a list of one number, an object with `value`, and a list of one such object.
 * Null when the service says that there is none; undefined when this is something else, such as a whole series.
 */
function totalIn(record: Readonly<Record<string, unknown>>): number | null | undefined {
  const places = [record.value, record.measurements].filter((place) => place !== undefined);
  const found = places.map(numberIn);
  if (found.length === 0 || found.includes(undefined)) return undefined;
  return found.find((total) => total !== null) ?? null;
}

function numberIn(told: unknown): number | null | undefined {
  if (told === null) return null;
  if (typeof told === "number") return Number.isFinite(told) ? told : undefined;
  if (Array.isArray(told)) {
    if (told.length === 0) return null;
    return told.length === 1 && !Array.isArray(told[0]) ? numberIn(told[0]) : undefined;
  }
  return isRecord(told) && !isRecord(told.value) && !Array.isArray(told.value)
    ? numberIn(told.value)
    : undefined;
}
