import { describe, expect, test } from "vitest";
import type { TagValue } from "#src/core/model/building.ts";
import { ReadClass } from "#src/engine/sync/read/config.ts";
import { isUnitOfNumbers, judgeType, valueEvent } from "#src/engine/sync/read/value-event.ts";
import { lastGoodOf, type StoredValue } from "#src/engine/sync/snapshot.ts";

const AT = Date.parse("2026-11-24T12:00:00Z");
const readClass = ReadClass.parse({ name: "all", every: "3s" });

/** Value, quality and published type doubt of each of these readings of one tag. */
function published(unit: string | null, values: readonly TagValue[]) {
  const tag = { id: "7", displayName: "Supply", description: null, unit };
  const watched = { tag, siteId: 1, systemIds: [], readClass };
  let before: StoredValue | undefined;
  return values.map((value, n) => {
    const reply = { receivedAtMs: AT + n * 1_000, latencyMs: 80 };
    const type = judgeType(unit, before, value);
    const context = { source: "main", inDoubt: false, behindGateway: null };
    const { stored, event } = valueEvent(watched, value, before, reply, type, context);
    // Round trip through JSON, as the state stores it.
    before = JSON.parse(JSON.stringify(stored)) as StoredValue;
    return [value, event?.data.quality, event?.data.type?.now];
  });
}

describe("the type of a value", () => {
  test("a boolean with a unit of numbers is uncertain as long as it lasts, and a number is good at once", () => {
    const booleans = Array.from({ length: 10 }, () => true);
    expect(published("°C", [20.5, ...booleans, null, false, 20.6, true])).toEqual([
      [20.5, "good", undefined],
      ...booleans.map(() => [true, "uncertain", "boolean"]),
      [null, "bad", undefined],
      [false, "uncertain", "boolean"],
      [20.6, "good", undefined],
      [true, "uncertain", "boolean"],
    ]);
  });

  test("a boolean with a unit of numbers is uncertain as the first value of the tag", () => {
    expect(published("kWh", [true])).toEqual([[true, "uncertain", "boolean"]]);
  });

  test("without a unit the first value of a new type is uncertain, and the second confirms it", () => {
    expect(published(null, [20, null, true, null, true, false, 3, 4])).toEqual([
      [20, "good", undefined],
      [null, "bad", undefined],
      [true, "uncertain", "boolean"],
      [null, "bad", undefined],
      [true, "good", undefined],
      [false, "good", undefined],
      [3, "uncertain", "number"],
      [4, "good", undefined],
    ]);
  });

  test("without a unit a value of the former type ends the doubt", () => {
    expect(published(null, [20, true, 21, true])).toEqual([
      [20, "good", undefined],
      [true, "uncertain", "boolean"],
      [21, "good", undefined],
      [true, "uncertain", "boolean"],
    ]);
  });

  test("the type of a boolean that an older unit ruled out is believed once the unit is gone", () => {
    const reading = { value: true, quality: "uncertain", time: "2026-11-24T12:00:00.000Z" } as const;
    const before: StoredValue = { ...reading, typeDoubt: "unit", told: "this" };
    expect(judgeType(null, before, true)).toMatchObject({ doubt: null, fact: null });
    expect(lastGoodOf(before)?.value).toBe(true);
  });
});

test.each([
  ["°C", true],
  ["%", true],
  ["kWh", true],
  ["Pa", true],
  ["l/s", true],
  ["W/m2", true],
  ["oktas", true],
  [null, false],
  ["", false],
  [" ", false],
  ["On / Off", false],
  ["BOOL", false],
  ["av/på", false],
  ["no units", false],
])("values with the unit %j are numbers: %s", (unit, isOfNumbers) => {
  expect(isUnitOfNumbers(unit)).toBe(isOfNumbers);
});
