import { afterEach, describe, expect, test } from "vitest";
import type { AlarmFact } from "#src/core/model/event.ts";
import type { StoredAlarm, StoredPoll } from "#src/engine/sync/snapshot.ts";
import { createTrial, type TrialSync } from "./trial-sync.ts";

/** Alarms whose end is known and that the list of active alarms shows: a restored backup, or an old answer. */

const MINUTE = 60_000;
let trial: TrialSync;

afterEach(async () => {
  await trial.stop();
});

// biome-ignore lint/suspicious/noExplicitAny: records of the wire
type Records = any[];
const isAlarms = (path: string) => path.endsWith("/alarms");
const listOf = (data: Records) => ({
  data,
  links: { next: null },
  meta: { total: data.length, current_page: 1, last_page: 1 },
});
const told = (id: string) =>
  trial.store.events
    .filter(({ type, data }) => type.startsWith("alarm-") && (data as AlarmFact).alarm.id === id)
    .map(({ type }) => type.replace("alarm-", ""));
const problem = async () => (await trial.store.documents<StoredPoll>("poll/main")).get("alarms")?.problem ?? null;
const stateOf = async (id: string) => (await trial.store.document<StoredAlarm>("alarm/main", id))?.state;
const resolvedReads = (from: number) =>
  trial.requests
    .slice(from)
    .filter(
      ({ path, query }) =>
        isAlarms(path) && query.get("status") === "resolved" && query.has("site_id") && !query.has("search"),
    ).length;

/** Alarms that were active when the backup was made, and ended since; half of them began again in between. */
async function ended(alarms: number): Promise<{ ids: readonly string[]; backup: Records }> {
  trial = createTrial();
  const { control } = trial.simulator;
  await trial.start();
  const ids = Array.from({ length: alarms }, () => control.raiseAlarm({ siteId: 3 }));
  let backup: Records = [];
  trial.rewriteLists((list, path, query) => {
    if (isAlarms(path) && query.get("status") === "active") backup = list.data;
  });
  await trial.clock.advance(MINUTE);
  trial.rewriteLists(null);
  for (const id of ids) control.resolveAlarm(id);
  await trial.clock.advance(2 * MINUTE);
  for (const id of ids.slice(0, alarms / 2)) control.retriggerAlarm(id);
  await trial.clock.advance(2 * MINUTE);
  for (const id of ids.slice(0, alarms / 2)) control.resolveAlarm(id);
  await trial.clock.advance(3 * MINUTE);
  expect(backup).toHaveLength(alarms);
  for (const id of ids) expect(await stateOf(id)).toBe("resolved");
  return { ids, backup: structuredClone(backup) };
}

describe("after the service restored a backup", () => {
  test.each([2, 12])("the first poll reopens %i alarms whose end the service no longer lists", async (n) => {
    const { ids, backup } = await ended(n);
    const before = ids.map((id) => told(id).length);
    trial.rewriteLists((_list, path, query) => {
      if (isAlarms(path)) return listOf(query.get("status") === "resolved" ? [] : structuredClone(backup));
    });
    await trial.clock.advance(30_000);
    for (const [index, id] of ids.entries()) {
      expect(told(id).slice(before[index])[0]).toBe("retriggered");
      expect(await stateOf(id)).toBe("active");
    }
    expect(await problem()).toMatch(/^Alarms that are active again, because the service does not know their end/);
    expect(trial.warnings.filter((line) => line.includes("does not know their end"))).toHaveLength(1);
    const after = trial.store.events.length;
    await trial.clock.advance(20 * MINUTE);
    expect(trial.store.events.length).toBe(after);
    expect(await problem()).toBeNull();
  });

  test("emits an end that the restored service states later", async () => {
    const { ids, backup } = await ended(2);
    let over = false;
    const end = () => {
      const records = structuredClone(backup);
      for (const { attributes } of records)
        Object.assign(attributes, { status: "resolved", resolved_at: new Date(endMs).toISOString() });
      return records;
    };
    let endMs = 0;
    trial.rewriteLists((_list, path, query) => {
      if (isAlarms(path))
        return listOf((query.get("status") === "active") === over ? [] : over ? end() : structuredClone(backup));
    });
    await trial.clock.advance(5 * MINUTE);
    endMs = trial.clock.now();
    over = true;
    await trial.clock.advance(5 * MINUTE);
    for (const id of ids) {
      expect(told(id).at(-1)).toBe("resolved");
      expect(await stateOf(id)).toBe("resolved");
    }
  });
});

describe("an outdated list of active alarms", () => {
  test("reopens no alarm while the resolved list shows the end, with few requests", async () => {
    const { ids, backup } = await ended(12);
    const events = trial.store.events.length;
    const from = trial.requests.length;
    trial.rewriteLists((_list, path, query) => {
      if (isAlarms(path) && query.get("status") === "active") return listOf(structuredClone(backup));
    });
    await trial.clock.advance(60 * MINUTE);
    expect(trial.store.events.length).toBe(events);
    expect(await problem()).toMatch(
      /^Alarms that are in the list of active alarms and in the list of resolved ones: 12 .* They stay resolved\.$/,
    );
    expect(await stateOf(ids[0] ?? "")).toBe("resolved");
    // Polls 1, 2, 4, 8 … 64 of 120 read it.
    expect(resolvedReads(from)).toBe(7);
  });

  test("counts after ten polls when the resolved list is incomplete", async () => {
    const { ids, backup } = await ended(2);
    const [id = ""] = ids;
    const before = told(id).length;
    trial.rewriteLists((list, path, query) => {
      if (!isAlarms(path)) return;
      if (query.get("status") === "active") return listOf(structuredClone(backup));
      return { ...list, data: [], meta: { ...list.meta, total: 3 } };
    });
    await trial.clock.advance(4 * MINUTE);
    expect(told(id).length).toBe(before);
    await trial.clock.advance(90_000);
    expect(told(id).slice(before)[0]).toBe("retriggered");
  });
});
