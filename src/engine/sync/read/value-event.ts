import { Malformed } from "../../../core/errors/errors.ts";
import type { TagReading, TagScalar, TagValue } from "../../../core/model/building.ts";
import { type Event, makeEvent, sourceUri, subjectOf } from "../../../core/model/event.ts";
import type { Quality, TagValueFact, ValueType } from "../../../core/model/tag-facts.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { ReadReply } from "../../source/source.ts";
import type { LocatedTag } from "../inventory/held.ts";
import { type EmittedReading, lastEmittedOf, lastGoodOf, type StoredValue, type UnverifiedType } from "../snapshot.ts";
import type { ReadClass } from "./config.ts";

/** A tag that is read, and the class that says how. */
export interface WatchedTag extends LocatedTag {
  readonly readClass: ReadClass;
}

/** Result of one reading: the document to store and the event to emit, if any. */
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
  if (told !== undefined && !isWorthEmitting(watched.readClass, reading, told)) {
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
function isWorthEmitting(
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
      throw new Malformed(`The reply gives two values for tag ${id}.`, JSON.stringify([values.get(id) ?? null, value]));
    }
    // Minus zero is no other value, and JSON has no word for it.
    values.set(id, value === 0 ? 0 : value);
  }
  return values;
}

/** How far the type of one reading is believed. */
interface TypeJudgement {
  /** Stored with the reading; null while the type is believed. */
  readonly doubt: UnverifiedType | null;
  /** Published with the reading; null while the type is believed. */
  readonly fact: Required<TagValueFact>["type"] | null;
  /** True where the tag has had a value before. */
  readonly wasKnown: boolean;
  /** True where this reading is the first, after others, of a type that is not believed. */
  readonly isNew: boolean;
}

/**
 * Compares the type of a reading with the type that the tag is known to have. Pure.
 *
 * The unit decides where it can: a boolean with the unit °C is in doubt for as long as it lasts, and a number is believed at
 * once. Without such a unit a new type is in doubt for one reading and believed with the second: 20, true, true is believed,
 * uncertain, believed; so is 20, true, 21 but for the middle one.
 */
export function judgeType(unit: string | null, before: StoredValue | undefined, value: TagValue): TypeJudgement {
  const last = before === undefined ? null : (lastGoodOf(before)?.value ?? null);
  const doubtBefore = before?.typeDoubt ?? null;
  const believed = { doubt: null, fact: null, wasKnown: last !== null, isNew: false };
  // Null has no type: it neither confirms the doubt nor ends it.
  if (value === null) return { ...believed, doubt: doubtBefore };
  const now = typeOf(value);
  if (isUnitOfNumbers(unit)) {
    if (now === "number") return believed;
    const fact = { before: "number", now } as const;
    return { ...believed, doubt: "unit", fact, isNew: last !== null && doubtBefore !== "unit" };
  }
  const known = knownType(last, doubtBefore);
  const isConfirmed = doubtBefore === "changed" && known !== now;
  if (known === null || known === now || isConfirmed) return believed;
  return { ...believed, doubt: "changed", fact: { before: known, now }, isNew: true };
}

/** The type that is believed of a tag with this last value; null while none is known. */
function knownType(last: TagValue, doubt: UnverifiedType | null): ValueType | null {
  // A type that the unit ruled out says nothing about the type to expect.
  if (last === null || doubt === "unit") return null;
  const type = typeOf(last);
  return doubt === "changed" ? OTHER[type] : type;
}

const OTHER = { number: "boolean", boolean: "number" } as const;

function typeOf(value: TagScalar): ValueType {
  return typeof value === "number" ? "number" : "boolean";
}

/**
 * Texts in the field "unit" that a boolean can have, in lower case and without spaces. Of the 15 binary points and 9
 * boolean series that we have seen none has a unit; the list is what people write into the field nevertheless.
 */
const UNITS_OF_BOOLEANS: ReadonlySet<string> = new Set([
  ...["", "-", "--", "–", "none", "nounit", "nounits", "no-units", "n/a", "ingen", "enum"],
  ...["bool", "boolean", "binary", "binær", "digital", "bit", "logic", "state", "status", "tilstand"],
  ...["on/off", "off/on", "on-off", "onoff", "av/på", "på/av", "0/1", "1/0", "true/false", "false/true"],
  ...["yes/no", "no/yes", "ja/nei", "nei/ja", "open/closed", "closed/open", "open/close", "åpen/lukket"],
  ...["start/stop", "stop/start", "drift/stopp", "drift", "run/stop", "normal/alarm", "alarm", "feil", "fault"],
  ...["active/inactive", "inactive/active", "auto/manual", "auto/man", "high/low", "low/high"],
]);

/** Whether values of this unit are numbers: any unit that is not known as one of booleans. */
export function isUnitOfNumbers(unit: string | null): boolean {
  return unit !== null && !UNITS_OF_BOOLEANS.has(unit.toLowerCase().replace(/\s/g, ""));
}

/**
 * Notices that much of what is known of live values changes at once: a fault of the service or of a gateway is then likelier
 * than that many devices changed. Values are published all the same, because a reading is never invented and never
 * suppressed: nulls as `bad`, a reply with changed types as `uncertain`.
 */
interface SuddenChanges {
  /**
   * Takes the committed readings of one reply. Returns the sites of which many values have turned null: a reason to read
   * their lists of gateways now.
   */
  committed(readings: readonly JudgedReading[]): ReadonlySet<number>;
  /** Changes that neither a further reading nor the end of the nulls has settled yet. */
  current(): readonly SuddenChange[];
}

export interface JudgedReading {
  readonly id: string;
  readonly siteId: number;
  readonly isNull: boolean;
  /** True where the reading before was a value and this one is null. */
  readonly turnedNull: boolean;
  /** True where the tag has had a value before, and so has a known type. */
  readonly wasKnown: boolean;
  /** True for the first reading of a type that is not believed. */
  readonly isNewType: boolean;
  /** True while the type of its last value is not believed. */
  readonly isTypeInDoubt: boolean;
}

export interface SuddenChange {
  readonly what: "types" | "nulls";
  readonly siteIds: readonly number[];
  /** UTC. */
  readonly since: string;
  /** Tags that changed and are not settled yet. */
  readonly tags: number;
}

/** From so many tags on a change is sudden; fewer change together every day, with one device. */
const LEAST = 5;
/** Readings of a site that are compared: as many as one reply has. */
const LATEST = 20;

/** Whether more than a third of the known types in a reply, and 5 at least, change with it: 7 of 20, 5 of 14. */
export function isTypeUpset(readings: readonly Pick<JudgedReading, "wasKnown" | "isNewType">[]): boolean {
  const known = readings.filter(({ wasKnown }) => wasKnown).length;
  const changed = readings.filter(({ isNewType }) => isNewType).length;
  return changed >= LEAST && 3 * changed > known;
}

interface Open {
  readonly sinceMs: number;
  readonly siteIds: Set<number>;
  readonly ids: Set<string>;
  most: number;
}

export function createSuddenChanges(
  clock: Pick<Clock, "now">,
  log: Pick<Log, "info" | "warn">,
  isWatched: (id: string) => boolean,
): SuddenChanges {
  /** By site, its tags that were read last, the latest at the end, and whether each turned null just then. */
  const latest = new Map<number, Map<string, boolean>>();
  const nulls = new Map<number, Open>();
  let types: Open | null = null;

  const opened = (): Open => ({ sinceMs: clock.now(), siteIds: new Set(), ids: new Set(), most: 0 });

  function add(open: Open, siteId: number, id: string): void {
    open.siteIds.add(siteId);
    open.ids.add(id);
    open.most = Math.max(open.most, open.ids.size);
  }

  /** Removes the tags that are settled, and those that are not read any more. */
  function settle(open: Open | null, settled: readonly JudgedReading[]): void {
    for (const { id } of settled) open?.ids.delete(id);
    for (const id of open?.ids ?? []) if (!isWatched(id)) open?.ids.delete(id);
  }

  function noteTypes(readings: readonly JudgedReading[]): void {
    settle(
      types,
      readings.filter(({ isNull, isTypeInDoubt }) => !isNull && !isTypeInDoubt),
    );
    if (isTypeUpset(readings)) {
      const changed = readings.filter(({ isNewType }) => isNewType);
      types ??= opened();
      for (const { id, siteId } of changed) add(types, siteId, id);
      log.warn(
        { tags: changed.map(({ id }) => id), read: readings.length },
        "more than a third of the values of a reply changed between number and boolean: they are uncertain until a further reading confirms them",
      );
    } else if (types?.ids.size === 0) {
      types = null;
      log.info({}, "the values that changed their type at once are confirmed, or have their former type again");
    }
  }

  /** Whether many of the tags of a site that were read last turned null: 5 of the last 20, or all where they are fewer. */
  function isNullUpset(siteId: number): boolean {
    const tags = [...(latest.get(siteId)?.values() ?? [])];
    return tags.filter(Boolean).length >= Math.max(2, Math.min(LEAST, tags.length));
  }

  function noteNulls(siteId: number, readings: readonly JudgedReading[]): boolean {
    const tags = latest.get(siteId) ?? new Map<string, boolean>();
    latest.set(siteId, tags);
    for (const { id, turnedNull } of readings) {
      tags.delete(id);
      tags.set(id, turnedNull);
    }
    for (const id of tags.keys()) if (tags.size > LATEST) tags.delete(id);
    const turned = readings.filter(({ turnedNull }) => turnedNull).map(({ id }) => id);
    const isUpset = turned.length > 0 && isNullUpset(siteId);
    const known = nulls.get(siteId);
    if (known !== undefined) {
      settle(
        known,
        readings.filter(({ isNull }) => !isNull),
      );
      for (const id of turned) add(known, siteId, id);
      if (2 * known.ids.size >= known.most) return isUpset;
      nulls.delete(siteId);
      log.info({ site: siteId }, "most of the values that turned null at once can be read again");
    } else if (isUpset) {
      const begun = opened();
      for (const [id, isTurned] of tags) if (isTurned) add(begun, siteId, id);
      nulls.set(siteId, begun);
      log.warn(
        { site: siteId, tags: [...begun.ids], read: tags.size },
        "many values of a site turned null at once: they are published as bad",
      );
    }
    return isUpset;
  }

  return {
    committed(readings) {
      noteTypes(readings);
      const bySite = Map.groupBy(readings, ({ siteId }) => siteId);
      return new Set([...bySite].flatMap(([siteId, own]) => (noteNulls(siteId, own) ? [siteId] : [])));
    },
    current() {
      const all = [
        ...(types === null ? [] : [["types", types] as const]),
        ...[...nulls.values()].map((open) => ["nulls", open] as const),
      ];
      return all.flatMap(([what, { sinceMs, siteIds, ids }]) => {
        const tags = [...ids].filter(isWatched).length;
        return tags === 0 ? [] : [{ what, siteIds: [...siteIds], since: isoUtc(sinceMs), tags }];
      });
    },
  };
}
