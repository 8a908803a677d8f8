import { describe, expect, onTestFinished, test } from "vitest";
import { emitEventRows } from "#connectors/shared/lake/event-rows.ts";
import { applyRowUpdates, findColumnIndex, type LakeRow, type LakeTable } from "#connectors/shared/lake/table-model.ts";
import { ALARM_EPISODE_TABLE, TAG_TABLE, TAG_VALUE_TABLE } from "#connectors/shared/lake/tables.ts";
import { seededRandom } from "../commands/seeded-random.ts";
import { openDispatcher } from "../delivery/dispatcher-harness.ts";
import { sampleAlarm } from "../receiver/receiver-harness.ts";
import { replay, seed } from "../seed.ts";

function rowIn(table: LakeTable, cells: Readonly<Record<string, string | number | boolean | null>>): LakeRow {
  return table.columns.map(({ name, type }) => cells[name] ?? (type === "text" && !cells[name] ? "" : null));
}

function tag(id: string, name: string, at: number, isCurrent = true, observedAt = at): LakeRow {
  const validity = { valid_from: at, valid_to: isCurrent ? null : at, is_current: isCurrent };
  return rowIn(TAG_TABLE, { tag_id: id, name, ...validity, observed_at: observedAt, position: at });
}

const cellsOf = (rows: readonly LakeRow[], columns: readonly string[], table = TAG_TABLE) =>
  rows.map((row) => columns.map((name) => row[findColumnIndex(table, name)]));
const statesOf = (rows: readonly LakeRow[]) =>
  cellsOf(rows, ["tag_id", "name", "valid_from", "valid_to", "is_current"]);

describe("lake tables with one row per state", () => {
  const first = applyRowUpdates(TAG_TABLE, [], [tag("1", "Supply", 10)]);

  test("lake tables with one row per state end a row when the next state starts or the object is removed", () => {
    const second = applyRowUpdates(TAG_TABLE, first, [tag("1", "Return", 20), tag("2", "Other", 21)]);
    expect(statesOf(second)).toEqual([
      ["1", "Supply", 10, 20, false],
      ["1", "Return", 20, null, true],
      ["2", "Other", 21, null, true],
    ]);
    const third = applyRowUpdates(TAG_TABLE, second, [tag("1", "Return", 30, false)]);
    expect(statesOf(third)[1]).toEqual(["1", "Return", 20, 30, false]);
    const fourth = applyRowUpdates(TAG_TABLE, third, [tag("1", "Return", 40)]);
    expect(statesOf(fourth).at(-1)).toEqual(["1", "Return", 40, null, true]);
  });

  test("an ended row keeps observed_at and position of its event; a removal sets both in the last row", () => {
    const trace = (rows: readonly LakeRow[]) => cellsOf(rows, ["observed_at", "position", "is_current"]);
    const followed = applyRowUpdates(TAG_TABLE, first, [tag("1", "Return", 20)]);
    expect(trace(followed)).toEqual([
      [10, 10, false],
      [20, 20, true],
    ]);
    const over = applyRowUpdates(TAG_TABLE, followed, [tag("1", "Return", 30, false)]);
    expect(trace(over)).toEqual([
      [10, 10, false],
      [30, 30, false],
    ]);
    expect(applyRowUpdates(TAG_TABLE, over, [tag("1", "Return", 20)])).toBe(over);
  });

  test("lake tables with one row per state do not change for a repeated or older state", () => {
    expect(applyRowUpdates(TAG_TABLE, first, [tag("1", "Supply", 10)])).toBe(first);
    expect(applyRowUpdates(TAG_TABLE, first, [tag("1", "Supply", 15)])).toBe(first);
    expect(applyRowUpdates(TAG_TABLE, first, [tag("1", "Older", 9)])).toBe(first);
    expect(applyRowUpdates(TAG_TABLE, first, [tag("9", "Unknown", 30, false)])).toBe(first);
  });

  test("lake tables with one row per state start a state 1 ms after the old one if the clock was set back", () => {
    const rows = applyRowUpdates(TAG_TABLE, first, [tag("1", "Return", 5, true, 20)]);
    expect(statesOf(rows)).toEqual([
      ["1", "Supply", 10, 11, false],
      ["1", "Return", 11, null, true],
    ]);
  });

  test("lake tables with one row per state have the same rows for any batch sizes and repetitions", () => {
    const random = seededRandom(seed);
    const updates = Array.from({ length: 60 }, (_, n) =>
      tag(String(Math.floor(random() * 4)), `name ${Math.floor(random() * 3)}`, n + 1, random() < 0.8),
    );
    const expected = applyRowUpdates(TAG_TABLE, [], updates);
    let rows: readonly LakeRow[] = [];
    for (let from = 0; from < updates.length; ) {
      const to = from + 1 + Math.floor(random() * 8);
      rows = applyRowUpdates(TAG_TABLE, rows, updates.slice(from, to));
      if (random() < 0.5) rows = applyRowUpdates(TAG_TABLE, rows, updates.slice(from, to));
      if (random() < 0.2) rows = applyRowUpdates(TAG_TABLE, rows, updates.slice(0, to));
      from = to;
    }
    expect(statesOf(rows), replay).toEqual(statesOf(expected));
    for (const id of ["0", "1", "2", "3"]) {
      const states = statesOf(rows).filter(([each]) => each === id);
      expect(states.filter(([, , , , isCurrent]) => isCurrent).length, replay).toBeLessThanOrEqual(1);
      states.forEach(([, , , to], n) => {
        const next = states[n + 1];
        if (next !== undefined) expect(Number(to), replay).toBeLessThanOrEqual(Number(next[2]));
      });
    }
  });
});

describe("lake tables with only the latest state", () => {
  const episode = (state: string, observedAt: number, position: number) =>
    rowIn(ALARM_EPISODE_TABLE, { episode: "a", state, observed_at: observedAt, position, raised_at: 1 });
  const states = (rows: readonly LakeRow[]) => cellsOf(rows, ["state"], ALARM_EPISODE_TABLE).flat();

  test("lake tables with only the latest state keep the row with the latest observed_at, then position", () => {
    const stored = applyRowUpdates(ALARM_EPISODE_TABLE, [], [episode("active", 10, 5), episode("resolved", 10, 6)]);
    expect(states(stored)).toEqual(["resolved"]);
    expect(applyRowUpdates(ALARM_EPISODE_TABLE, stored, [episode("active", 10, 5)])).toBe(stored);
    expect(applyRowUpdates(ALARM_EPISODE_TABLE, stored, [episode("resolved", 10, 6)])).toBe(stored);
    // A worker that lost its state counts from 1 again.
    expect(states(applyRowUpdates(ALARM_EPISODE_TABLE, stored, [episode("active", 20, 1)]))).toEqual(["active"]);
  });
});

test("applying updates to an append-only table throws an error", () => {
  expect(() => applyRowUpdates(TAG_VALUE_TABLE, [], [])).toThrow("Rows of value do not change.");
});

describe("lake rows of events committed before and after the clock was set back by an hour", () => {
  const HOUR_MS = 3_600_000;

  test("end the episode of an alarm that was resolved after the clock was set back", async () => {
    const { clock, dispose, store } = await openDispatcher();
    onTestFinished(dispose);
    await store.outbox.register("lake", "beginning");
    clock.stepWall(HOUR_MS);
    await store.commit({ events: [sampleAlarm(1).raised()] });
    clock.stepWall(-HOUR_MS);
    await clock.advance(60_000);
    await store.commit({ events: [sampleAlarm(1).resolved(10)] });
    const updates: LakeRow[] = [];
    for (const logged of (await store.outbox.next("lake", 100)).events) {
      emitEventRows(logged, (table, row) => table === ALARM_EPISODE_TABLE && updates.push([...row]));
    }
    let rows: readonly LakeRow[] = [];
    for (const row of updates) rows = applyRowUpdates(ALARM_EPISODE_TABLE, rows, [row]);
    expect(applyRowUpdates(ALARM_EPISODE_TABLE, rows, updates)).toBe(rows);
    expect(applyRowUpdates(ALARM_EPISODE_TABLE, [], updates)).toEqual(rows);
    expect(cellsOf(rows, ["state"], ALARM_EPISODE_TABLE)).toEqual([["resolved"]]);
  });
});
