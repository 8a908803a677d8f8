import { Malformed } from "../../../core/errors/errors.ts";
import type { TagReading, TagValue } from "../../../core/model/building.ts";
import { type Event, makeEvent, sourceUri, subjectOf } from "../../../core/model/event.ts";
import type { Quality, TagValueFact } from "../../../core/model/tag-facts.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { ReadReply } from "../../source/source.ts";
import type { LocatedTag } from "../inventory/held.ts";
import { type EmittedReading, lastEmittedOf, lastGoodOf, type StoredValue } from "../snapshot.ts";
import type { ReadClass } from "./config.ts";
import type { TypeJudgement } from "./value-type.ts";

/** A tag that is read, and the class that says how. */
export interface WatchedTag extends LocatedTag {
  readonly readClass: ReadClass;
}

/** What one reading turns into: the document to hold, and the event to tell, if any. */
export interface ValueOutcome {
  readonly held: StoredValue;
  readonly event: Event<"tag-value"> | null;
}

/**
 * Turns one reading into what we believe and what we tell. Pure.
 *
 * Null says that the gateway could not read the device: quality `bad`, the last good value kept apart, never 0.
 * A value of a type that is in doubt is `uncertain`, and so is every value of a reply that is `inDoubt`.
 * `time` is the receipt of the reply, because the service states none.
 */
export function valueEvent(
  watched: WatchedTag,
  value: TagValue,
  before: StoredValue | undefined,
  reply: Pick<ReadReply, "receivedAtMs" | "latencyMs">,
  type: Pick<TypeJudgement, "doubt" | "fact">,
  context: { readonly source: string; readonly inDoubt: boolean; readonly behindGateway: string | null },
): ValueOutcome {
  const time = isoUtc(reply.receivedAtMs);
  const goodBefore = before === undefined ? null : lastGoodOf(before);
  const inDoubt = context.inDoubt || type.fact !== null;
  const quality: Quality = value === null ? "bad" : inDoubt ? "uncertain" : "good";
  const lastGood = value === null ? goodBefore : { value, time };
  const doubt = type.doubt === null ? {} : { typeDoubt: type.doubt };
  const behind = context.behindGateway === null ? {} : { behindGateway: context.behindGateway };
  const reading =
    value === null
      ? { value, quality, time, lastGood, nulls: (before?.nulls ?? 0) + 1, ...doubt, ...behind }
      : { value, quality, time, ...doubt };
  const told = before === undefined ? undefined : lastEmittedOf(before);
  if (told !== undefined && !isWorthTelling(watched.readClass, reading, told)) {
    return { held: { ...reading, told }, event: null };
  }
  const { tag, siteId } = watched;
  const data: TagValueFact = {
    tag,
    value,
    quality,
    time,
    latencyMs: Math.round(reply.latencyMs),
    lastGood,
    behindGateway: context.behindGateway,
    ...(type.fact === null ? {} : { type: type.fact }),
  };
  const event = makeEvent({
    type: "tag-value",
    source: sourceUri(context.source),
    subject: subjectOf("tag", siteId, tag.id),
    time,
    siteId,
    data,
    facts: [],
  });
  return { held: { ...reading, told: "this" }, event };
}

/** Every sample by default, because a data lake wants the samples; changes and heartbeats where the class says so. */
function isWorthTelling(
  readClass: ReadClass,
  reading: Pick<StoredValue, "value" | "quality" | "time" | "behindGateway">,
  told: EmittedReading,
): boolean {
  if (!readClass.on_change || reading.quality !== told.quality) return true;
  // A null that a gateway explains is other news than one that nothing explains.
  if (reading.behindGateway !== told.behindGateway) return true;
  const silentMs = Date.parse(reading.time) - Date.parse(told.time);
  if (silentMs < 0 || silentMs >= readClass.max_silence) return true;
  if (typeof reading.value === "number" && typeof told.value === "number") {
    return Math.abs(reading.value - told.value) > readClass.deadband;
  }
  return reading.value !== told.value;
}

/**
 * The values of a reply by tag id; order is not trusted, tags that were not asked for are left out, and a tag that
 * the reply does not list is missing here: its value is unknown, which is not the same as bad.
 * Throws `Malformed` when the reply gives two values for one tag.
 */
export function valuesById(asked: readonly string[], readings: readonly TagReading[]): Map<string, TagValue> {
  const wanted = new Set(asked);
  const values = new Map<string, TagValue>();
  for (const { id, value } of readings) {
    if (!wanted.has(id)) continue;
    if (values.has(id) && values.get(id) !== value) {
      throw new Malformed(
        `The reply gives two values for tag ${id}.`,
        JSON.stringify([values.get(id) ?? null, value]),
      );
    }
    // Minus zero is no other value, and JSON has no word for it.
    values.set(id, value === 0 ? 0 : value);
  }
  return values;
}
