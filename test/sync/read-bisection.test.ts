import { beforeEach, describe, expect, test, vi } from "vitest";
import type { TagReading, TagValue } from "#src/core/model/building.ts";
import type { Event } from "#src/core/model/event.ts";
import type { UnreadTag } from "#src/engine/source/source.ts";
import { documentSet, type Store } from "#src/engine/store/store.ts";
import { describeLiveTag } from "#src/engine/sync/live-tag-state.ts";
import {
  type StoredLeftOut,
  type StoredTagQuarantine,
  type StoredValue,
  syncSet,
} from "#src/engine/sync/stored-documents.ts";
import type { VirtualClock } from "../virtual-clock.ts";
import {
  inventory,
  openClockAndStore,
  readingSource,
  runFollower,
  tagNamed,
  testQuota,
  testReads,
} from "./live-reads-harness.ts";

let clock: VirtualClock;
let store: Store;

beforeEach(async () => {
  ({ clock, store } = await openClockAndStore(Date.parse("2026-11-02T06:00:00Z")));
});

const UNREADABLE = Symbol("unreadable");
type ServedValue = TagValue | typeof UNREADABLE;

async function start(count: number, unit: string | null, serve: (id: string, group: readonly string[]) => ServedValue) {
  const ids = Array.from({ length: count }, (_, n) => String(101 + n));
  const tags = ids.map((id) => tagNamed(id, { unit }));
  await inventory(store, "trial", tags);
  const requests: (readonly string[])[] = [];
  const quota = testQuota(clock);
  const source = readingSource(quota, async (group, signal) => {
    requests.push([...group]);
    await clock.sleep(50, signal);
    const servedValues = group.map((id) => [id, serve(id, group)] as const);
    const readings = servedValues.flatMap(([id, value]): TagReading[] =>
      value === UNREADABLE ? [] : [{ ...tagNamed(id, { unit }), value }],
    );
    const unreadTags = servedValues.flatMap(([id, value]): UnreadTag[] =>
      value === UNREADABLE ? [{ id, kind: "unreadable", reason: 'Its value is the text "--".' }] : [],
    );
    return { readings, unreadTags, receivedAtMs: clock.now(), latencyMs: 50 };
  });
  await quota.started;
  const log = { info: vi.fn(), warn: vi.fn(), error: vi.fn() };
  const onSuddenNulls = vi.fn();
  const classes = [{ name: "all", every: "30s" }];
  const reads = testReads(classes, { source, store, clock, log, onSuddenNulls });
  return {
    ...{ ids, requests, log, onSuddenNulls, reads },
    run: (ms: number) => runFollower(clock, reads, ms),
    warned: (text: RegExp) => log.warn.mock.calls.filter(([, message]) => text.test(message)).length,
  };
}

async function events(id: string): Promise<readonly Event<"tag-value">[]> {
  const { events } = await store.outbox.next("all", 10_000);
  return events.map(({ event }) => event as Event<"tag-value">).filter(({ subject }) => subject.endsWith(`/${id}`));
}

const qualities = async (id: string) => (await events(id)).map(({ data }) => `${data.value} ${data.quality}`);
const leftOut = () => store.documents<StoredLeftOut>(syncSet("left-out", "trial"));

describe("an unreadable value", () => {
  test("causes its reason to be stored, and does not replace the last good value", async () => {
    let isReadable = true;
    const { run, reads } = await start(3, "°C", (id) => (id === "101" && !isReadable ? UNREADABLE : 20));
    await run(5_000);
    isReadable = false;
    await run(100_000);
    const reason = 'Its value is the text "--".';
    expect([...(await leftOut())]).toEqual([["101", { since: expect.any(String), kind: "unreadable", reason }]]);
    for (const each of await qualities("101")) expect(each).toBe("20 good");
    const storedValue = await store.document<StoredValue>(documentSet("value", "trial"), "101");
    expect(storedValue).toMatchObject({ value: 20, quality: "good" });
    expect(storedValue?.nulls).toBeUndefined();
    expect(describeLiveTag(reads, "101", clock)?.reasons).toContainEqual(
      expect.stringMatching(/^The replies have had no usable value of it since .*Z\. Its value is the text "--"\.$/),
    );
    isReadable = true;
    await run(400_000);
    expect((await leftOut()).size).toBe(0);
  });

  test("makes the worker request its tag singly, also for some time after the value is readable again", async () => {
    const { run, requests } = await start(20, "°C", (id, group) =>
      id === "105" && group.length > 1 ? UNREADABLE : 20,
    );
    await run(300_000);
    const tagRequests = requests.filter((group) => group.includes("105"));
    expect(tagRequests[0]).toHaveLength(20);
    expect(tagRequests.length).toBeGreaterThan(2);
    for (const group of tagRequests.slice(1)) expect(group).toEqual(["105"]);
    expect((await qualities("105")).length).toBeGreaterThan(1);
    expect((await leftOut()).size).toBe(0);
    await run(1_500_000);
    const inCompany = requests.filter((group) => group.length > 1 && group.includes("105"));
    expect(inCompany).toHaveLength(2);
  });

  test("makes the worker request its tag with other tags again, but less often, when a single request does not help", async () => {
    const { run, requests, reads } = await start(20, "°C", (id) => (id === "105" ? UNREADABLE : 20));
    await run(600_000);
    const tagRequests = requests.filter((group) => group.includes("105"));
    expect(tagRequests.filter((group) => group.length === 1)).toHaveLength(1);
    expect(tagRequests.at(-1)).toHaveLength(20);
    expect(reads.known("105")?.intervalMs).toBe(300_000);
    expect(reads.known("104")?.intervalMs).toBe(30_000);
  });

  test("causes no single requests when most values of the reply are unreadable", async () => {
    const { run, requests } = await start(20, "°C", (id) => (id < "115" ? UNREADABLE : 20));
    await run(120_000);
    expect(requests.filter((group) => group.length === 1)).toEqual([]);
    expect((await leftOut()).size).toBe(14);
  });

  test("ends the quarantine of its tag, which is then not requested in every free slot", async () => {
    const { run, requests } = await start(3, "°C", (id) => (id === "101" ? UNREADABLE : 20));
    const aside: StoredTagQuarantine = { until: "2026-11-02T06:00:10.000Z", reason: "403", at: "", times: 1 };
    await store.commit({ documents: [{ set: syncSet("quarantine", "trial"), put: [["101", aside]] }] });
    await run(180_000);
    expect(requests.filter((group) => group.length === 1).length).toBeLessThan(3);
    expect((await store.documents(syncSet("quarantine", "trial"))).size).toBe(0);
  });
});

async function alternating(isTrue: (id: string, reply: number) => boolean) {
  let reply = 0;
  const built = await start(20, null, (id, [first]) => {
    if (id === first) reply++;
    return isTrue(id, reply) ? true : 20;
  });
  const runToReply = async (number: number) => {
    while (reply < number) await built.run(1_000);
    await built.run(1_000);
  };
  return { ...built, runToReply };
}

describe("a reply in which more than a third of the values change their type", () => {
  const isChanged = (id: string) => id <= "107";

  test("has all values marked as uncertain, and is reported until a further reading confirms the types", async () => {
    const { run, reads, runToReply, warned } = await alternating((id, reply) => reply > 1 && isChanged(id));
    await run(1_000);
    expect(reads.suddenChanges()).toEqual([]);
    await runToReply(2);
    expect(reads.suddenChanges()).toEqual([{ what: "types", siteIds: [1], since: expect.any(String), tags: 7 }]);
    expect(warned(/more than a third/)).toBe(1);
    await runToReply(4);
    const expectedValues = ["20 good", "true uncertain", "true good", "true good"];
    expect((await qualities("101")).slice(0, 4)).toEqual(expectedValues);
    expect((await qualities("120")).slice(0, 4)).toEqual(expectedValues.map((text) => text.replace("true", "20")));
    expect(reads.suddenChanges()).toEqual([]);
    expect(warned(/more than a third/)).toBe(1);
  });

  test("has its other values kept good when a third or less of the types change", async () => {
    const { reads, runToReply } = await alternating((id, reply) => reply > 1 && id <= "106");
    await runToReply(2);
    expect([(await qualities("101"))[1], (await qualities("120"))[1]]).toEqual(["true uncertain", "20 good"]);
    expect(reads.suddenChanges()).toEqual([]);
  });
});

describe("values of a site that turn null at once", () => {
  test("publishes the nulls as bad, reports them in the status, and rechecks the gateways", async () => {
    let isGone = false;
    const { run, reads, onSuddenNulls, warned } = await start(20, "°C", (id) => (isGone && id <= "105" ? null : 20));
    await run(60_000);
    expect(onSuddenNulls).not.toHaveBeenCalled();
    isGone = true;
    await run(35_000);
    expect(onSuddenNulls).toHaveBeenCalledWith(1);
    expect((await events("101")).at(-1)?.data).toMatchObject({ value: null, quality: "bad" });
    expect(reads.suddenChanges()).toEqual([{ what: "nulls", siteIds: [1], since: expect.any(String), tags: 5 }]);
    const callCount = onSuddenNulls.mock.calls.length;
    await run(120_000);
    expect(onSuddenNulls).toHaveBeenCalledTimes(callCount);
    isGone = false;
    await run(300_000);
    expect(reads.suddenChanges()).toEqual([]);
    expect(warned(/turned null at once/)).toBe(1);
  });

  test.each([
    [20, 4, false],
    [3, 3, true],
    [3, 2, false],
  ])("at a site with %i tags, %i nulls at once cause a recheck of the gateways: %s", async (count, gone, isNoticed) => {
    let isGone = false;
    const { run, ids, onSuddenNulls } = await start(count, "°C", (id) =>
      isGone && ids.indexOf(id) < gone ? null : 20,
    );
    await run(60_000);
    isGone = true;
    await run(60_000);
    expect(onSuddenNulls.mock.calls.length > 0).toBe(isNoticed);
  });
});
