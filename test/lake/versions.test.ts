import { describe, expect, test } from "vitest";
import { applyUpdates, columnIndexOf, type Row, type Table } from "#connectors/shared/lake/table.ts";
import { ALARM_EPISODE_TABLE, TAG_TABLE, VALUE_TABLE } from "#connectors/shared/lake/tables.ts";
import { seededRandom } from "../commands/seeded-random.ts";
import { replay, seed } from "../seed.ts";

/** Tables whose rows change. Times are small numbers here. */

function rowIn(table: Table, cells: Readonly<Record<string, string | number | boolean | null>>): Row {
  return table.columns.map(({ name, type }) => cells[name] ?? (type === "text" && !cells[name] ? "" : null));
}

function tag(id: string, name: string, at: number, isCurrent = true, observedAt = at): Row {
  return rowIn(TAG_TABLE, {
    tag_id: id,
    name,
    valid_from: at,
    valid_to: isCurrent ? null : at,
    is_current: isCurrent,
    observed_at: observedAt,
    position: at,
  });
}

const shown = (rows: readonly Row[]) =>
  rows.map((row) =>
    ["tag_id", "name", "valid_from", "valid_to", "is_current"].map((name) => row[columnIndexOf(TAG_TABLE, name)]),
  );

describe("states one after the other", () => {
  const first = applyUpdates(TAG_TABLE, [], [tag("1", "Supply", 10)]);

  test("begin, end where the next begins, and end when the thing is gone", () => {
    const second = applyUpdates(TAG_TABLE, first, [tag("1", "Return", 20), tag("2", "Other", 21)]);
    expect(shown(second)).toEqual([
      ["1", "Supply", 10, 20, false],
      ["1", "Return", 20, null, true],
      ["2", "Other", 21, null, true],
    ]);
    const third = applyUpdates(TAG_TABLE, second, [tag("1", "Return", 30, false)]);
    expect(shown(third)[1]).toEqual(["1", "Return", 20, 30, false]);
    const fourth = applyUpdates(TAG_TABLE, third, [tag("1", "Return", 40)]);
    expect(shown(fourth).at(-1)).toEqual(["1", "Return", 40, null, true]);
  });

  test("keep the trace of their own event where another state follows, and get that of their end where none does", () => {
    const trace = (rows: readonly Row[]) =>
      rows.map((row) => ["observed_at", "position", "is_current"].map((name) => row[columnIndexOf(TAG_TABLE, name)]));
    const followed = applyUpdates(TAG_TABLE, first, [tag("1", "Return", 20)]);
    expect(trace(followed)).toEqual([
      [10, 10, false],
      [20, 20, true],
    ]);
    const over = applyUpdates(TAG_TABLE, followed, [tag("1", "Return", 30, false)]);
    expect(trace(over)).toEqual([
      [10, 10, false],
      [30, 30, false],
    ]);
    // The beginning comes once more after the end: it is older, and changes nothing.
    expect(applyUpdates(TAG_TABLE, over, [tag("1", "Return", 20)])).toBe(over);
  });

  test("that repeat an earlier state change nothing", () => {
    expect(applyUpdates(TAG_TABLE, first, [tag("1", "Supply", 10)])).toBe(first);
    expect(applyUpdates(TAG_TABLE, first, [tag("1", "Supply", 15)])).toBe(first);
    expect(applyUpdates(TAG_TABLE, first, [tag("1", "Older", 9)])).toBe(first);
    expect(applyUpdates(TAG_TABLE, first, [tag("9", "Unknown", 30, false)])).toBe(first);
  });

  test("begin a millisecond later where a clock was set back, and none is lost", () => {
    const rows = applyUpdates(TAG_TABLE, first, [tag("1", "Return", 5, true, 20)]);
    expect(shown(rows)).toEqual([
      ["1", "Supply", 10, 11, false],
      ["1", "Return", 11, null, true],
    ]);
  });

  test("give the same rows in any repetition and partition", () => {
    const random = seededRandom(seed);
    const news = Array.from({ length: 60 }, (_, n) =>
      tag(String(Math.floor(random() * 4)), `name ${Math.floor(random() * 3)}`, n + 1, random() < 0.8),
    );
    const whole = applyUpdates(TAG_TABLE, [], news);
    let rows: readonly Row[] = [];
    for (let from = 0; from < news.length; ) {
      const to = from + 1 + Math.floor(random() * 8);
      rows = applyUpdates(TAG_TABLE, rows, news.slice(from, to));
      // A crash before it was written down how far it came: some of it comes again.
      if (random() < 0.5) rows = applyUpdates(TAG_TABLE, rows, news.slice(from, to));
      if (random() < 0.2) rows = applyUpdates(TAG_TABLE, rows, news.slice(0, to));
      from = to;
    }
    expect(shown(rows), replay).toEqual(shown(whole));
    for (const id of ["0", "1", "2", "3"]) {
      const states = shown(rows).filter(([each]) => each === id);
      expect(states.filter(([, , , , isCurrent]) => isCurrent).length, replay).toBeLessThanOrEqual(1);
      states.forEach(([, , , to], n) => {
        const next = states[n + 1];
        if (next !== undefined) expect(Number(to), replay).toBeLessThanOrEqual(Number(next[2]));
      });
    }
  });
});

describe("things of which the last word counts", () => {
  const episode = (state: string, observedAt: number, position: number) =>
    rowIn(ALARM_EPISODE_TABLE, { episode: "a", state, observed_at: observedAt, position, raised_at: 1 });
  const states = (rows: readonly Row[]) => rows.map((row) => row[columnIndexOf(ALARM_EPISODE_TABLE, "state")]);

  test("are replaced by what was observed later, and of the same moment by what stands later in the log", () => {
    const held = applyUpdates(ALARM_EPISODE_TABLE, [], [episode("active", 10, 5), episode("resolved", 10, 6)]);
    expect(states(held)).toEqual(["resolved"]);
    expect(applyUpdates(ALARM_EPISODE_TABLE, held, [episode("active", 10, 5)])).toBe(held);
    expect(applyUpdates(ALARM_EPISODE_TABLE, held, [episode("resolved", 10, 6)])).toBe(held);
    // A worker that lost its state counts from 1 again.
    expect(states(applyUpdates(ALARM_EPISODE_TABLE, held, [episode("active", 20, 1)]))).toEqual(["active"]);
  });
});

test("rows that happened once do not change", () => {
  expect(() => applyUpdates(VALUE_TABLE, [], [])).toThrow("Rows of value do not change.");
});
