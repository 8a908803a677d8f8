import { Malformed } from "../../../core/errors/errors.ts";
import type { TagReading, TagScalar, TagValue } from "../../../core/model/building.ts";
import { type Event, eventSubject, makeEvent, sourceUri } from "../../../core/model/event.ts";
import type { TagValueFact, TagValueQuality, TagValueType } from "../../../core/model/tag-event-data.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { TagReadReply } from "../../source/source.ts";
import type { SiteTag } from "../inventory/requestable-tags.ts";
import {
  type EmittedReading,
  lastEmittedOf,
  lastGoodOf,
  type StoredValue,
  type UnverifiedType,
} from "../stored-documents.ts";
import type { ReadClass } from "./config.ts";

export interface WatchedTag extends SiteTag {
  readonly readClass: ReadClass;
}

interface ValueEventContext {
  readonly source: string;
  readonly isReplyUnverified: boolean;
  readonly behindGateway: string | null;
  /** False if the tag was read more often than planned and a value was already emitted for this interval. */
  isNewInterval(emittedAt: string): boolean;
}

/**
 * Builds the stored value of a reading, and its event unless the read class suppresses it. Quality: a null is `bad`; a
 * value is `uncertain` if its type is unverified, the clock is wrong or many values of the reply changed their type.
 */
export function buildValueEvent(
  { tag, siteId, readClass }: WatchedTag,
  value: TagValue,
  before: StoredValue | undefined,
  reply: Pick<TagReadReply, "receivedAtMs" | "latencyMs">,
  type: Pick<ValueTypeJudgement, "unverifiedType" | "typeChangeFact">,
  { source, isReplyUnverified, behindGateway, isNewInterval }: ValueEventContext,
): { readonly stored: StoredValue; readonly event: Event<"tag-value"> | null } {
  const readAt = isoUtc(reply.receivedAtMs);
  const lastGoodBefore = before === undefined ? null : lastGoodOf(before);
  const quality: TagValueQuality =
    value === null ? "bad" : isReplyUnverified || type.typeChangeFact !== null ? "uncertain" : "good";
  const lastGood = value === null ? lastGoodBefore : { value, time: readAt };
  const valueReading = {
    ...{ value, quality, time: readAt },
    ...(value === null && { lastGood, nulls: (before?.nulls ?? 0) + 1 }),
    ...(type.unverifiedType !== null && { typeDoubt: type.unverifiedType }),
    ...(value === null && behindGateway !== null && { behindGateway }),
  };
  const lastEmitted = before === undefined ? undefined : lastEmittedOf(before);
  if (lastEmitted !== undefined && !isValueWorthEmitting(readClass, valueReading, lastEmitted, isNewInterval))
    return { stored: { ...valueReading, told: lastEmitted }, event: null };
  const valueFact: TagValueFact = {
    ...{ tag, value, quality, time: readAt, latencyMs: Math.round(reply.latencyMs), lastGood, behindGateway },
    ...(type.typeChangeFact === null ? {} : { type: type.typeChangeFact }),
  };
  const eventFields = { source: sourceUri(source), subject: eventSubject("tag", siteId, tag.id), time: readAt, siteId };
  const event = makeEvent({ type: "tag-value", ...eventFields, data: valueFact, facts: [] });
  return { stored: { ...valueReading, told: "this" }, event };
}

/** True for the first value of each interval; with `on_change`, only for changed values and after `max_silence`. */
function isValueWorthEmitting(
  readClass: ReadClass,
  reading: Pick<StoredValue, "value" | "quality" | "time" | "behindGateway">,
  emitted: EmittedReading,
  isNewInterval: ValueEventContext["isNewInterval"],
): boolean {
  if (reading.quality !== emitted.quality || reading.behindGateway !== emitted.behindGateway) return true;
  if (!readClass.on_change) return isNewInterval(emitted.time);
  const silentMs = Date.parse(reading.time) - Date.parse(emitted.time);
  if (silentMs < 0 || silentMs >= readClass.max_silence) return true;
  if (typeof reading.value === "number" && typeof emitted.value === "number")
    return Math.abs(reading.value - emitted.value) > readClass.deadband;
  return reading.value !== emitted.value;
}

export function tagValuesById(ids: readonly string[], readings: readonly TagReading[]): Map<string, TagValue> {
  const requestedIds = new Set(ids);
  const values = new Map<string, TagValue>();
  for (const { id, value } of readings) {
    if (!requestedIds.has(id)) continue;
    if (values.has(id) && values.get(id) !== value)
      throw new Malformed(`The reply gives two values for tag ${id}.`, JSON.stringify([values.get(id) ?? null, value]));
    values.set(id, value === 0 ? 0 : value);
  }
  return values;
}

interface ValueTypeJudgement {
  readonly unverifiedType: UnverifiedType | null;
  readonly typeChangeFact: Required<TagValueFact>["type"] | null;
  readonly wasTypeKnown: boolean;
  readonly hasTypeChanged: boolean;
}

/** Judges the type of a value: a boolean in °C is unverified; a type that changed is unverified for one reading. */
export function judgeType(unit: string | null, before: StoredValue | undefined, value: TagValue): ValueTypeJudgement {
  const lastGood = before === undefined ? null : (lastGoodOf(before)?.value ?? null);
  const typeDoubtBefore = before?.typeDoubt ?? null;
  const wasTypeKnown = lastGood !== null;
  const verified = { unverifiedType: null, typeChangeFact: null, wasTypeKnown, hasTypeChanged: false };
  if (value === null) return { ...verified, unverifiedType: typeDoubtBefore };
  const now = valueTypeOf(value);
  if (isNumericUnit(unit)) {
    if (now === "number") return verified;
    const hasTypeChanged = wasTypeKnown && typeDoubtBefore !== "unit";
    return { unverifiedType: "unit", typeChangeFact: { before: "number", now }, wasTypeKnown, hasTypeChanged };
  }
  const verifiedTypeBefore = lastVerifiedType(lastGood, typeDoubtBefore);
  if (verifiedTypeBefore === null || verifiedTypeBefore === now || typeDoubtBefore === "changed") return verified;
  const typeChangeFact = { before: verifiedTypeBefore, now };
  return { unverifiedType: "changed", typeChangeFact, wasTypeKnown, hasTypeChanged: true };
}

/** Type of the last good value; null if there is none or its type contradicts the unit. */
function lastVerifiedType(lastValue: TagValue, reason: UnverifiedType | null): TagValueType | null {
  if (lastValue === null || reason === "unit") return null;
  const lastValueType = valueTypeOf(lastValue);
  return reason === "changed" ? ({ number: "boolean", boolean: "number" } as const)[lastValueType] : lastValueType;
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
