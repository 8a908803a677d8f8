import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { neverShow } from "#src/core/values/masking.ts";
import { sameRecord } from "#src/engine/source/pages.ts";
import { parseAlarmFast } from "#src/engine/source/parse-alarm.ts";
import { recordSchemas } from "#src/engine/source/schema.ts";
import { alarmRecord } from "./trial-source.ts";

/** Compares the fast path for alarms with the schema: the same alarm, and no field that the schema would count. */
const SECRET = "parse-alarm-secret-0123456789";
neverShow(SECRET);

const TIMES = [
  "2026-06-01T12:00:00+02:00",
  "2026-06-01T12:00:00Z",
  "2026-02-28T23:59:59-11:30",
  "2026-02-30T00:00:00+01:00",
  "2026-02-29T00:00:00Z",
  "2024-02-29T10:00:00.250+05:45",
  "2016-12-31T23:59:60Z",
  "2026-06-01T12:00:00",
  "2026-06-01 12:00:00 +02:00",
  "2026-13-01T00:00:00Z",
  "yes",
  "",
  `2026-06-01T12:00:00+02:00 ${SECRET}`,
];
const TEXTS = [
  "",
  "°C",
  "Too hot",
  "a\ud800b",
  "x".repeat(10_001),
  `echo ${SECRET} end`,
  "__proto__",
  "A",
  "active",
  "resolved",
];
const NUMBERS = [0, -0, 1, -1, 4711, 0.5, 1e308, Number.POSITIVE_INFINITY, Number.NaN, 2 ** 53, 2 ** 53 - 1];

const Anything = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(...TEXTS) },
  { weight: 3, arbitrary: fc.constantFrom(...TIMES) },
  { weight: 3, arbitrary: fc.constantFrom(...NUMBERS) },
  {
    weight: 2,
    arbitrary: fc.constantFrom(
      null,
      undefined,
      true,
      false,
      [],
      {},
      [null],
      [{ id: 3 }],
      { id: 3 },
      "7",
      "1234567890123456",
      "B",
    ),
  },
  { weight: 1, arbitrary: fc.jsonValue() },
  { weight: 1, arbitrary: fc.string({ unit: "binary" }) },
);

type Path = readonly string[];

function placesOf(value: unknown, path: Path = []): Path[] {
  if (typeof value !== "object" || value === null) return [path];
  return [path, ...Object.entries(value).flatMap(([key, inner]) => placesOf(inner, [...path, key]))];
}

function put(record: unknown, [key, ...rest]: Path, to: unknown): unknown {
  if (key === undefined) return to;
  const copy: Record<string, unknown> = { ...(record as object) };
  if (to === undefined && rest.length === 0) delete copy[key];
  else copy[key] = put(copy[key], rest, to);
  return copy;
}

/** A record with up to five changed fields. */
function bent(record: unknown): fc.Arbitrary<unknown> {
  const place = fc.constantFrom(...placesOf(record).filter((path) => path.length > 0));
  return fc
    .array(fc.tuple(place, Anything), { maxLength: 5 })
    .map((changes) => changes.reduce((made, [path, to]) => put(made, path, to), record));
}

/** Records with up to three unknown fields. */
const withMore = (records: fc.Arbitrary<unknown>) =>
  fc
    .tuple(records, fc.dictionary(fc.string(), Anything, { maxKeys: 3 }))
    .map(([record, more]) => (typeof record === "object" && record !== null ? { ...more, ...record } : record));

function compare<T>(
  fast: T | null,
  schema: { safeParse(record: unknown): { data?: T } },
  record: unknown,
  noted: string[],
) {
  if (fast === null) return;
  noted.length = 0;
  const read = schema.safeParse(record);
  expect({ read: fast, noted: [] }).toStrictEqual({ read: read.data, noted });
}

describe("parseAlarmFast", () => {
  const noted: string[] = [];
  const schemas = recordSchemas((field) => void noted.push(field));

  it.each([undefined, 7])("returns what the schema returns, for the list of site %s", (siteId) => {
    const whole = put(alarmRecord("a1"), ["attributes", "resolved_at"], TIMES[0]);
    const records = fc.oneof(withMore(bent(alarmRecord("a1"))), withMore(bent(whole)), Anything);
    fc.assert(
      fc.property(records, (record) => compare(parseAlarmFast(record, siteId), schemas.alarm(siteId), record, noted)),
      { numRuns: 5_000 },
    );
  });

  it("accepts each form of alarm that the interface describes", () => {
    const at = TIMES[0];
    const alarm = alarmRecord("a1");
    for (const change of [
      {},
      { last_active_event: null },
      { status: "resolved", resolved_at: at },
      { acknowledged: true, acknowledged_by: "Kari", acknowledged_message: "", acknowledged_at: at },
      { recovering_until: "2026-06-01T12:00:00Z" },
    ])
      expect(parseAlarmFast({ ...alarm, attributes: { ...alarm.attributes, ...change } }, undefined)).not.toBeNull();
  });

  it("masks secrets in texts", () => {
    const record = put(alarmRecord("a1"), ["attributes", "description"], SECRET);
    expect(parseAlarmFast(record, undefined)?.description).toBe("[redacted]");
  });
});

describe("sameRecord", () => {
  it("agrees with isDeepStrictEqual on plain values", () => {
    const Value = fc.oneof(fc.jsonValue(), fc.constantFrom(...NUMBERS, undefined, { a: undefined }, {}));
    const Pair = fc.oneof(
      fc.tuple(Value, Value),
      Value.map((value) => [value, structuredClone(value)] as const),
      fc.tuple(bent(alarmRecord("a1")), bent(alarmRecord("a1"))),
    );
    fc.assert(
      fc.property(Pair, ([one, other]) => {
        // Of a record there are no lists; a list and an object with its numbers as names are told apart elsewhere.
        fc.pre(!JSON.stringify([one, other]).slice(1, -1).includes("["));
        expect(sameRecord(one, other)).toBe(isDeepStrictEqual(one, other));
      }),
      { numRuns: 5_000 },
    );
  });
});
