import type { TagScalar, TagValue } from "../../../core/model/building.ts";
import type { TagValueFact, ValueType } from "../../../core/model/tag-facts.ts";
import { lastGoodOf, type StoredValue, type UnverifiedType } from "../snapshot.ts";

/** How far the type of one reading is believed. */
export interface TypeJudgement {
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
export function judgeType(
  unit: string | null,
  before: StoredValue | undefined,
  value: TagValue,
): TypeJudgement {
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
  ...[
    "start/stop",
    "stop/start",
    "drift/stopp",
    "drift",
    "run/stop",
    "normal/alarm",
    "alarm",
    "feil",
    "fault",
  ],
  ...["active/inactive", "inactive/active", "auto/manual", "auto/man", "high/low", "low/high"],
]);

/** Whether values of this unit are numbers: any unit that is not known as one of booleans. */
export function isUnitOfNumbers(unit: string | null): boolean {
  return unit !== null && !UNITS_OF_BOOLEANS.has(unit.toLowerCase().replace(/\s/g, ""));
}
