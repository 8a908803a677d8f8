import { describe, expect, test } from "vitest";
import {
  activeRecords,
  emitted,
  harness,
  isActiveList,
  isAlarmList,
  jobProblem,
  listOf,
  MINUTE,
  openHarness,
  storedAlarm,
  warned,
} from "./alarm-harness.ts";
import type { WireList } from "./sync-harness.ts";

async function ended(alarms: number): Promise<{ ids: readonly string[]; backup: WireList["data"] }> {
  const { control } = openHarness();
  await harness.start();
  const ids = Array.from({ length: alarms }, () => control.raiseAlarm({ siteId: 3 }));
  const backup = await activeRecords();
  harness.rewriteLists(null);
  for (const id of ids) control.resolveAlarm(id);
  await harness.clock.advance(2 * MINUTE);
  for (const id of ids.slice(0, alarms / 2)) control.retriggerAlarm(id);
  await harness.clock.advance(2 * MINUTE);
  for (const id of ids.slice(0, alarms / 2)) control.resolveAlarm(id);
  await harness.clock.advance(3 * MINUTE);
  expect(backup).toHaveLength(alarms);
  for (const id of ids) expect((await storedAlarm(id))?.state).toBe("resolved");
  return { ids, backup };
}

describe("alarms after the service was restored from a backup", () => {
  test.each([2, 12])(
    "are reopened by the first poll when the list of resolved alarms no longer contains them (%i alarms)",
    async (n) => {
      const { ids, backup } = await ended(n);
      const before = ids.map((id) => emitted(id).length);
      harness.rewriteLists((_list, path, query) => {
        if (isAlarmList(path)) return listOf(query.get("status") === "resolved" ? [] : structuredClone(backup));
      });
      await harness.clock.advance(30_000);
      for (const [index, id] of ids.entries()) {
        expect(emitted(id).slice(before[index])[0]).toBe("retriggered");
        expect((await storedAlarm(id))?.state).toBe("active");
      }
      expect(await jobProblem()).toMatch(/^Alarms that are active again, because the service does not know their end/);
      expect(warned("no longer lists their end")).toBe(1);
      const after = harness.store.events.length;
      await harness.clock.advance(20 * MINUTE);
      expect(harness.store.events.length).toBe(after);
      expect(await jobProblem()).toBeNull();
    },
  );
});

describe("an outdated list of active alarms", () => {
  test("reopens no alarm whose end is in the list of resolved alarms; the worker requests that list 11 times an hour", async () => {
    const { ids, backup } = await ended(12);
    const events = harness.store.events.length;
    const from = harness.requests.length;
    harness.rewriteLists((_list, path, query) => {
      if (isActiveList(path, query)) return listOf(structuredClone(backup));
    });
    await harness.clock.advance(60 * MINUTE);
    expect(harness.store.events.length).toBe(events);
    expect(await jobProblem()).toMatch(
      /^Alarms that are in the list of active alarms and in the list of resolved ones: 12 .* They stay resolved\.$/,
    );
    expect((await storedAlarm(ids[0]))?.state).toBe("resolved");
    const reads = harness.requests
      .slice(from)
      .filter(({ path, query }) => isAlarmList(path) && query.get("status") === "resolved" && query.has("site_id"));
    // Polls 1, 2, 4, 8, 16, 32, 48 … 112 of 120 read it.
    expect(reads.filter(({ query }) => !query.has("search"))).toHaveLength(11);
  });

  test("reopens its alarms after ten polls when the list of resolved alarms is incomplete", async () => {
    const { ids, backup } = await ended(2);
    const [id = ""] = ids;
    const before = emitted(id).length;
    harness.rewriteLists((list, path, query) => {
      if (!isAlarmList(path)) return;
      if (query.get("status") === "active") return listOf(structuredClone(backup));
      return { ...list, data: [], meta: { ...list.meta, total: 3 } };
    });
    await harness.clock.advance(4 * MINUTE);
    expect(emitted(id).length).toBe(before);
    await harness.clock.advance(90_000);
    expect(emitted(id).slice(before)[0]).toBe("retriggered");
  });
});
