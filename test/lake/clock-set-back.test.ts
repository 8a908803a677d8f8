import { expect, onTestFinished, test } from "vitest";
import { emitRows } from "#connectors/shared/lake/rows.ts";
import { applyUpdates, columnIndexOf, type Row } from "#connectors/shared/lake/table.ts";
import { ALARM_EPISODE_TABLE, TAG_TABLE } from "#connectors/shared/lake/tables.ts";
import type { Event } from "#src/core/model/event.ts";
import { openWorkshop } from "../delivery/workshop.ts";
import { alarm } from "../receiver/trial.ts";
import { sampleEvent } from "../sample-events.ts";

const HOUR_MS = 3_600_000;

/** A log into which things are committed by a clock that is set back, and tables that are made of it. */
async function logAndTables() {
  const { clock, dispose, store } = await openWorkshop();
  onTestFinished(dispose);
  await store.outbox.register("lake", "beginning");
  const rowsOf = async (table: typeof TAG_TABLE): Promise<readonly Row[]> => {
    const rows: Row[] = [];
    const { events } = await store.outbox.next("lake", 100);
    for (const logged of events)
      emitRows(logged, (of, row) => {
        if (of === table) rows.push([...row]);
      });
    return rows;
  };
  return {
    clock,
    commit: (event: Event) => store.commit({ events: [event] }),
    /** One after the other as a sink takes them, then all of them once more as after a crash. */
    async table(table: typeof TAG_TABLE): Promise<readonly Row[]> {
      const told = await rowsOf(table);
      let rows: readonly Row[] = [];
      for (const row of told) rows = applyUpdates(table, rows, [row]);
      expect(applyUpdates(table, rows, told)).toBe(rows);
      expect(applyUpdates(table, [], told)).toEqual(rows);
      return rows;
    },
  };
}

test("an alarm that ended after the clock was set back is over in its table", async () => {
  const { clock, commit, table } = await logAndTables();
  clock.stepWall(HOUR_MS);
  await commit(alarm(1).raised());
  clock.stepWall(-HOUR_MS);
  await clock.advance(60_000);
  await commit(alarm(1).resolved(10));
  const rows = await table(ALARM_EPISODE_TABLE);
  expect(rows.map((row) => row[columnIndexOf(ALARM_EPISODE_TABLE, "state")])).toEqual(["resolved"]);
});

test("a tag that was renamed after the clock was set back has its new name", async () => {
  const { clock, commit, table } = await logAndTables();
  const added = sampleEvent("tag-added");
  clock.stepWall(HOUR_MS);
  await commit(added);
  clock.stepWall(-HOUR_MS);
  const renamed = sampleEvent("tag-changed");
  const tag = { ...added.data.tag, displayName: "Renamed" };
  await commit({
    ...renamed,
    subject: added.subject,
    siteid: added.siteid,
    data: { ...renamed.data, tag },
  } as Event);
  const rows = await table(TAG_TABLE);
  const shown = rows.map((row) => ["name", "is_current"].map((name) => row[columnIndexOf(TAG_TABLE, name)]));
  expect(shown.at(-1)).toEqual(["Renamed", true]);
  expect(shown.filter(([, isCurrent]) => isCurrent)).toHaveLength(1);
});
