import { Malformed } from "../../../core/errors/errors.ts";
import type { TagReading, TagScalar, TagValue } from "../../../core/model/building.ts";
import { type Event, eventSubject, makeEvent, sourceUri } from "../../../core/model/event.ts";
import type { TagValueFact, TagValueQuality, TagValueType } from "../../../core/model/tag-event-data.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { ReadReply } from "../../source/source.ts";
import type { SiteTag } from "../inventory/requestable-tags.ts";
import { type EmittedReading, lastEmittedOf, lastGoodOf, type StoredValue, type UnverifiedType } from "../snapshot.ts";
import type { ReadClass } from "./config.ts";

export interface WatchedTag extends SiteTag {
  readonly readClass: ReadClass;
}

/** Null is `bad`, with the last good value in the event; an unverified type or a reply `inDoubt` is `uncertain`. */
export function buildValueEvent(
  { tag, siteId, readClass }: WatchedTag,
  value: TagValue,
  before: StoredValue | undefined,
  reply: Pick<ReadReply, "receivedAtMs" | "latencyMs">,
  type: Pick<TypeJudgement, "doubt" | "fact">,
  { source, inDoubt, behindGateway }: { source: string; inDoubt: boolean; behindGateway: string | null },
): { readonly stored: StoredValue; readonly event: Event<"tag-value"> | null } {
  const time = isoUtc(reply.receivedAtMs);
  const goodBefore = before === undefined ? null : lastGoodOf(before);
  const quality: TagValueQuality = value === null ? "bad" : inDoubt || type.fact !== null ? "uncertain" : "good";
  const lastGood = value === null ? goodBefore : { value, time };
  const reading = {
    ...{ value, quality, time },
    ...(value === null && { lastGood, nulls: (before?.nulls ?? 0) + 1 }),
    ...(type.doubt !== null && { typeDoubt: type.doubt }),
    ...(value === null && behindGateway !== null && { behindGateway }),
  };
  const lastEmitted = before === undefined ? undefined : lastEmittedOf(before);
  if (lastEmitted !== undefined && !isWorthEmitting(readClass, reading, lastEmitted))
    return { stored: { ...reading, told: lastEmitted }, event: null };
  const latencyMs = Math.round(reply.latencyMs);
  const data: TagValueFact = {
    ...{ tag, value, quality, time, latencyMs, lastGood, behindGateway },
    ...(type.fact === null ? {} : { type: type.fact }),
  };
  const eventFields = { source: sourceUri(source), subject: eventSubject("tag", siteId, tag.id), time, siteId };
  const event = makeEvent({ type: "tag-value", ...eventFields, data, facts: [] });
  return { stored: { ...reading, told: "this" }, event };
}

/** True for every sample by default, for data lakes; with `on_change`, for changes and reminders only. */
function isWorthEmitting(
  readClass: ReadClass,
  reading: Pick<StoredValue, "value" | "quality" | "time" | "behindGateway">,
  emitted: EmittedReading,
): boolean {
  if (!readClass.on_change || reading.quality !== emitted.quality) return true;
  if (reading.behindGateway !== emitted.behindGateway) return true;
  const silentMs = Date.parse(reading.time) - Date.parse(emitted.time);
  if (silentMs < 0 || silentMs >= readClass.max_silence) return true;
  if (typeof reading.value === "number" && typeof emitted.value === "number")
    return Math.abs(reading.value - emitted.value) > readClass.deadband;
  return reading.value !== emitted.value;
}

export function valuesById(requested: readonly string[], readings: readonly TagReading[]): Map<string, TagValue> {
  const requestedIds = new Set(requested);
  const values = new Map<string, TagValue>();
  for (const { id, value } of readings) {
    if (!requestedIds.has(id)) continue;
    if (values.has(id) && values.get(id) !== value)
      throw new Malformed(`The reply gives two values for tag ${id}.`, JSON.stringify([values.get(id) ?? null, value]));
    values.set(id, value === 0 ? 0 : value);
  }
  return values;
}

interface TypeJudgement {
  readonly doubt: UnverifiedType | null;
  readonly fact: Required<TagValueFact>["type"] | null;
  readonly wasKnown: boolean;
  readonly isNew: boolean;
}

/** A boolean in °C is unverified; otherwise a new type is for one reading: 20, true, true is good, uncertain, good. */
export function judgeType(unit: string | null, before: StoredValue | undefined, value: TagValue): TypeJudgement {
  const lastGood = before === undefined ? null : (lastGoodOf(before)?.value ?? null);
  const doubtBefore = before?.typeDoubt ?? null;
  const verified = { doubt: null, fact: null, wasKnown: lastGood !== null, isNew: false };
  if (value === null) return { ...verified, doubt: doubtBefore };
  const now = valueTypeOf(value);
  if (isNumericUnit(unit)) {
    if (now === "number") return verified;
    const fact = { before: "number", now } as const;
    return { ...verified, doubt: "unit", fact, isNew: lastGood !== null && doubtBefore !== "unit" };
  }
  const typeBefore = verifiedType(lastGood, doubtBefore);
  if (typeBefore === null || typeBefore === now || doubtBefore === "changed") return verified;
  return { ...verified, doubt: "changed", fact: { before: typeBefore, now }, isNew: true };
}

/** Type of the last good value; null without such a value, or if the unit contradicts the type. */
function verifiedType(last: TagValue, doubt: UnverifiedType | null): TagValueType | null {
  if (last === null || doubt === "unit") return null;
  const lastType = valueTypeOf(last);
  return doubt === "changed" ? ({ number: "boolean", boolean: "number" } as const)[lastType] : lastType;
}

const valueTypeOf = (value: TagScalar): TagValueType => (typeof value === "number" ? "number" : "boolean");

const BOOLEAN_UNITS: ReadonlySet<string> = new Set([
  ...["", "-", "--", "–", "none", "nounit", "nounits", "no-units", "n/a", "ingen", "enum"],
  ...["bool", "boolean", "binary", "binær", "digital", "bit", "logic", "state", "status", "tilstand"],
  ...["on/off", "off/on", "on-off", "onoff", "av/på", "på/av", "0/1", "1/0", "true/false", "false/true"],
  ...["yes/no", "no/yes", "ja/nei", "nei/ja", "open/closed", "closed/open", "open/close", "åpen/lukket"],
  ...["start/stop", "stop/start", "drift/stopp", "drift", "run/stop", "normal/alarm", "alarm", "feil", "fault"],
  ...["active/inactive", "inactive/active", "auto/manual", "auto/man", "high/low", "low/high"],
]);

export function isNumericUnit(unit: string | null): boolean {
  return unit !== null && !BOOLEAN_UNITS.has(unit.toLowerCase().replace(/\s/g, ""));
}
