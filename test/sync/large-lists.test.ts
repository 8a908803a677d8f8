import { describe, expect, test } from "vitest";
import type { Tag } from "#src/core/model/building.ts";
import type { AlarmFact } from "#src/core/model/event.ts";
import { documentSet } from "#src/engine/store/store.ts";
import type { StoredAlarm, StoredObject } from "#src/engine/sync/stored-documents.ts";
import { harness, MINUTE, openHarness } from "./alarm-harness.ts";
import { ALARMS_ONLY, RARE_SCHEDULES, type WireList } from "./sync-harness.ts";

const TAGS = 1_234;
const LISTS = { ...RARE_SCHEDULES, sites: "*/5 * * * *", gateways: false, tags: "*/5 * * * *" } as const;

function manyTags(count: number, name = (n: number) => `Tag ${n}`) {
  return (list: WireList, path: string): void => {
    if (!path.endsWith("/tags")) return;
    list.data = Array.from({ length: count }, (_, n) => ({
      ...{ type: "tags", id: String(10_000 + n) },
      attributes: { display_name: name(n), description: null, unit: "°C" },
    }));
    list.links = { first: null, last: null, prev: null, next: null };
    list.meta = { ...{ current_page: 1, last_page: 1, per_page: count, from: 1, to: count }, total: count };
  };
}

async function started() {
  openHarness({ simulator: { sites: [2] }, sync: { schedules: LISTS, spread: "0s" } });
  harness.rewriteLists(manyTags(TAGS));
  await harness.start();
}

const sent = (kind: "tag-added" | "tag-changed" | "tag-removed") => harness.events(kind).map(({ subject }) => subject);

describe("a long list of tags", () => {
  test("is committed in several transactions, each tag once with its document, in the order of the list", async () => {
    await started();
    await harness.clock.advance(MINUTE);
    expect(sent("tag-added")).toEqual(Array.from({ length: TAGS }, (_, n) => `site/2/tag/${10_000 + n}`));
    expect(new Set(harness.events("tag-added").map(({ time }) => time)).size).toBe(1);
    const stored = await harness.store.documents<StoredObject<Tag>>(documentSet("tag", "main"));
    expect(stored.size).toBe(TAGS);
    const commits = harness.store.commits();
    await harness.clock.advance(30 * MINUTE);
    expect(sent("tag-added")).toHaveLength(TAGS);
    expect(harness.store.commits() - commits).toBeLessThan(20);
    harness.rewriteLists(manyTags(TAGS, (n) => (n % 2 === 0 ? `Tag ${n}` : `New ${n}`)));
    await harness.clock.advance(6 * MINUTE);
    expect(sent("tag-changed")).toHaveLength(TAGS / 2);
    await harness.restart();
    await harness.clock.advance(30 * MINUTE);
    expect([sent("tag-added").length, sent("tag-changed").length]).toEqual([TAGS, TAGS / 2]);
  });

  test("after failed commits, the next list emits the missing tags without duplicates", async () => {
    await started();
    const { commit } = harness.store;
    let withTags = 0;
    harness.store.commit = (change) => {
      const isFailing = (change.events ?? []).some(({ type }) => type === "tag-added") && ++withTags % 2 === 0;
      return isFailing ? Promise.reject(new Error("The disk is full.")) : commit(change);
    };
    await harness.clock.advance(2_000);
    const first = sent("tag-added").length;
    expect(first).toBeGreaterThan(0);
    expect(first).toBeLessThan(TAGS);
    await harness.clock.advance(30 * MINUTE);
    expect(sent("tag-added")).toHaveLength(TAGS);
    expect(new Set(sent("tag-added")).size).toBe(TAGS);
    const stored = await harness.store.documents<StoredObject<Tag>>(documentSet("tag", "main"));
    expect([...stored.keys()].every((id) => sent("tag-added").includes(`site/2/tag/${id}`))).toBe(true);
  });
});

/** Lets every nth commit with a raised alarm fail; returns the number of those commits. */
function failEvery(nth: number): () => number {
  const { commit } = harness.store;
  let parts = 0;
  harness.store.commit = (change) => {
    const sent = (change.events ?? []).filter(({ type }) => type === "alarm-raised").length;
    const stored = (change.documents ?? []).filter(({ set }) => set === documentSet("alarm", "main"));
    expect(stored.flatMap(({ put = [] }) => [...put])).toHaveLength(sent);
    if (sent > 0) parts += 1;
    return sent > 0 && parts % nth === 0 ? Promise.reject(new Error("The disk is full.")) : commit(change);
  };
  return () => parts;
}

describe("an alarm storm", () => {
  test("is committed in several transactions, each alarm once with its document, despite failed commits", async () => {
    openHarness({ sync: ALARMS_ONLY });
    await harness.start();
    await harness.clock.advance(MINUTE);
    const ids = Array.from({ length: 1_300 }, () => harness.simulator.control.raiseAlarm({ siteId: 2 }));
    const parts = failEvery(3);
    await harness.clock.advance(10 * MINUTE);
    expect(parts()).toBeGreaterThan(5);
    const raised = harness.events("alarm-raised").map(({ data }) => (data as AlarmFact).alarm.id);
    expect(raised).toHaveLength(ids.length);
    expect(new Set(raised)).toEqual(new Set(ids));
    const stored = await harness.store.documents<StoredAlarm>(documentSet("alarm", "main"));
    expect([...stored.values()].filter(({ state }) => state === "active")).toHaveLength(ids.length);
    expect(harness.store.repeated).toEqual([]);
  });

  test("in the first poll, is marked initial completely, also when a commit fails between two transactions", async () => {
    openHarness({ sync: ALARMS_ONLY });
    for (let n = 0; n < 600; n += 1) harness.simulator.control.raiseAlarm({ siteId: 2 });
    const parts = failEvery(2);
    await harness.start();
    await harness.clock.advance(10 * MINUTE);
    expect(parts()).toBeGreaterThan(3);
    const initial = harness.events("alarm-raised").map(({ data }) => (data as { initial?: boolean }).initial);
    expect(initial).toEqual(Array.from({ length: 600 }, () => true));
  });
});
