import { describe, expect, test } from "vitest";
import type { TagValue } from "#src/core/model/building.ts";
import { ReadClass } from "#src/engine/sync/read/config.ts";
import { judgeType, valueEvent } from "#src/engine/sync/read/value-event.ts";
import { lastEmittedOf, lastGoodOf, type StoredValue } from "#src/engine/sync/snapshot.ts";

const AT = Date.parse("2026-11-24T12:00:00Z");
const iso = (second: number) => new Date(AT + second * 1_000).toISOString();
const context = { source: "main", inDoubt: false, behindGateway: null };
const tag = { id: "7", displayName: "Supply", description: null, unit: "°C" };

/** What is held after each of these readings, one a second, as it is read back from the state. */
function heldAfter(values: readonly TagValue[], onChange: boolean): readonly StoredValue[] {
  const readClass = ReadClass.parse({ name: "all", every: "3s", on_change: onChange });
  const watched = { tag, siteId: 1, systemIds: [], readClass };
  const all: StoredValue[] = [];
  for (const [n, value] of values.entries()) {
    const reply = { receivedAtMs: AT + n * 1_000, latencyMs: 80 };
    const type = judgeType(tag.unit, all.at(-1), value);
    const { stored: held } = valueEvent(watched, value, all.at(-1), reply, type, context);
    all.push(JSON.parse(JSON.stringify(held)) as StoredValue);
  }
  return all;
}

describe("what is held of a reading", () => {
  test("says nothing twice", () => {
    expect(heldAfter([21.5], false)).toEqual([{ value: 21.5, quality: "good", time: iso(0), told: "this" }]);
  });

  test("has the last good value while there are nulls, and knows of none before there was one", () => {
    const held = heldAfter([null, 20, null, null, 21], false);
    expect(held.map(lastGoodOf)).toEqual([
      null,
      { value: 20, time: iso(1) },
      { value: 20, time: iso(1) },
      { value: 20, time: iso(1) },
      { value: 21, time: iso(4) },
    ]);
    expect(held.map(({ nulls }) => nulls)).toEqual([1, undefined, 1, 2, undefined]);
  });

  test("a null that a gateway comes to explain, or explains no more, is told although only changes are", () => {
    const readClass = ReadClass.parse({ name: "all", every: "3s", on_change: true });
    const watched = { tag, siteId: 1, systemIds: [], readClass };
    let held: StoredValue | undefined;
    const told = [null, null, "7", "7", null].map((behindGateway, n) => {
      const reply = { receivedAtMs: AT + n * 1_000, latencyMs: 80 };
      const type = judgeType(tag.unit, held, null);
      const next = valueEvent(watched, null, held, reply, type, { ...context, behindGateway });
      held = JSON.parse(JSON.stringify(next.stored)) as StoredValue;
      return next.event?.data.behindGateway;
    });
    expect(told).toEqual([null, undefined, "7", undefined, null]);
  });

  test("says what was told last where only changes are told", () => {
    const told = heldAfter([20, 20, 21], true).map(lastEmittedOf);
    expect(told).toEqual([
      { value: 20, quality: "good", time: iso(0) },
      { value: 20, quality: "good", time: iso(0) },
      { value: 21, quality: "good", time: iso(2) },
    ]);
  });

  test("an older state, which says all of it, means the same", () => {
    const reading = { value: 20, time: iso(0) };
    const old: StoredValue = {
      ...reading,
      quality: "good",
      lastGood: reading,
      nulls: 0,
      told: { ...reading, quality: "good" },
    };
    expect([lastGoodOf(old), lastEmittedOf(old)]).toEqual([reading, { ...reading, quality: "good" }]);
  });
});
