import { describe, expect, test } from "vitest";
import type { TagValue } from "#src/core/model/building.ts";
import { ReadClass } from "#src/engine/sync/read/config.ts";
import { buildValueEvent, isNumericUnit, judgeType } from "#src/engine/sync/read/value-event.ts";
import { lastEmittedOf, lastGoodOf, type StoredValue } from "#src/engine/sync/stored-documents.ts";

const AT = Date.parse("2026-11-24T12:00:00Z");
const iso = (second: number) => new Date(AT + second * 1_000).toISOString();

interface Reading {
  readonly value: TagValue;
  readonly behindGateway?: string | null;
}

interface OutcomeOptions {
  readonly unit?: string | null;
  readonly onChange?: boolean;
  readonly isNewInterval?: (emittedAt: string) => boolean;
}

/** Documents pass through JSON, as in the store. */
function outcomes(
  readings: readonly Reading[],
  { unit = "°C", onChange = false, isNewInterval = () => true }: OutcomeOptions,
) {
  const readClass = ReadClass.parse({ name: "all", every: "3s", on_change: onChange });
  const tag = { id: "7", displayName: "Supply", description: null, unit };
  let before: StoredValue | undefined;
  return readings.map(({ value, behindGateway = null }, n) => {
    const reply = { receivedAtMs: AT + n * 1_000, latencyMs: 80 };
    const context = { source: "main", isReplyUnverified: false, behindGateway, isNewInterval };
    const watched = { tag, siteId: 1, systemIds: [], readClass };
    const { stored, event } = buildValueEvent(watched, value, before, reply, judgeType(unit, before, value), context);
    before = JSON.parse(JSON.stringify(stored)) as StoredValue;
    return { stored: before, event };
  });
}

describe("a second reading of a tag within its interval", () => {
  const emitted = (values: readonly TagValue[], onChange = false) =>
    outcomes(
      values.map((value) => ({ value })),
      { onChange, isNewInterval: (emittedAt) => emittedAt < iso(0) },
    ).map(({ event }) => event?.data.value);

  test("is stored and not emitted, unless its quality differs", () => {
    expect(emitted([20, 21, 22])).toEqual([20, undefined, undefined]);
    expect(emitted([20, null, null, 21])).toEqual([20, null, undefined, 21]);
    const options = { isNewInterval: (emittedAt: string) => emittedAt !== iso(0) };
    const [, stored] = outcomes([{ value: 20 }, { value: 21 }], options).map((each) => each.stored);
    expect(stored).toMatchObject({ value: 21, time: iso(1), told: { value: 20, time: iso(0) } });
  });

  test("is emitted with on_change if the value changed", () => {
    expect(emitted([20, 21, 21], true)).toEqual([20, 21, undefined]);
  });
});

describe("the stored document of a live value", () => {
  const storedAfter = (values: readonly TagValue[], onChange = false) =>
    outcomes(
      values.map((value) => ({ value })),
      { onChange },
    ).map(({ stored }) => stored);

  test("contains the last good value while readings are null, and null before the first good value", () => {
    const storedValues = storedAfter([null, 20, null, null, 21]);
    const lastGood = { value: 20, time: iso(1) };
    expect(storedValues.map(lastGoodOf)).toEqual([null, lastGood, lastGood, lastGood, { value: 21, time: iso(4) }]);
    expect(storedValues.map(({ nulls }) => nulls)).toEqual([1, undefined, 1, 2, undefined]);
  });

  test("contains the last emitted reading with on_change", () => {
    const emittedReading = (value: number, second: number) => ({ value, quality: "good", time: iso(second) });
    const expectedReadings = [emittedReading(20, 0), emittedReading(20, 0), emittedReading(21, 2)];
    expect(storedAfter([20, 20, 21], true).map(lastEmittedOf)).toEqual(expectedReadings);
  });

  test("a document of an older version with all fields gives the same last good and last emitted reading", () => {
    const reading = { value: 20, time: iso(0) };
    const emittedReading = { ...reading, quality: "good" as const };
    const old: StoredValue = { ...emittedReading, lastGood: reading, nulls: 0, told: emittedReading };
    expect([lastGoodOf(old), lastEmittedOf(old)]).toEqual([reading, emittedReading]);
  });
});

test("with on_change, emits a null when an offline gateway begins or ceases to explain the null", () => {
  const readings = [null, null, "7", "7", null].map((behindGateway) => ({ value: null, behindGateway }));
  const emittedGateways = outcomes(readings, { onChange: true }).map(({ event }) => event?.data.behindGateway);
  expect(emittedGateways).toEqual([null, undefined, "7", undefined, null]);
});

describe("the type of a value", () => {
  const published = (unit: string | null, values: readonly TagValue[]) => {
    const readings = values.map((value) => ({ value }));
    return outcomes(readings, { unit }).map(({ event }) => {
      const { value, quality, type } = event?.data ?? {};
      return `${value} ${quality}${type === undefined ? "" : ` ${type.now}`}`;
    });
  };

  test("with a numeric unit, every boolean is uncertain, also the first value, and a number is good at once", () => {
    const booleans = Array.from({ length: 10 }, () => true);
    const doubtedBoolean = "true uncertain boolean";
    const last = ["null bad", "false uncertain boolean", "20.6 good", doubtedBoolean];
    const expectedTexts = ["20.5 good", ...booleans.map(() => doubtedBoolean), ...last];
    expect(published("°C", [20.5, ...booleans, null, false, 20.6, true])).toEqual(expectedTexts);
    expect(published("kWh", [true])).toEqual([doubtedBoolean]);
  });

  test("without a unit, the first value of a new type is uncertain, and the second value of that type is good", () => {
    expect(published(null, [20, null, true, null, true, false, 3, 4])).toEqual([
      ...["20 good", "null bad", "true uncertain boolean", "null bad"],
      ...["true good", "false good", "3 uncertain number", "4 good"],
    ]);
  });

  test("a boolean stored as uncertain because of a numeric unit is good when the unit was removed", () => {
    const before: StoredValue = { value: true, quality: "uncertain", time: iso(0), typeDoubt: "unit", told: "this" };
    expect(judgeType(null, before, true)).toMatchObject({ unverifiedType: null, typeChangeFact: null });
    expect(lastGoodOf(before)?.value).toBe(true);
  });

  test.each([
    ...["°C", "%", "kWh", "Pa", "l/s", "W/m2", "oktas"].map((unit) => [unit, true] as const),
    ...[null, "", " ", "On / Off", "BOOL", "av/på", "no units"].map((unit) => [unit, false] as const),
  ])("the unit %j implies numeric values: %s", (unit, isOfNumbers) => {
    expect(isNumericUnit(unit)).toBe(isOfNumbers);
  });
});
