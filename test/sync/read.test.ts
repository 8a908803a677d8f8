import { rmSync } from "node:fs";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { TagReading, TagValue } from "#src/building.ts";
import { ConfigError, Rejected, Retryable } from "#src/errors.ts";
import type { Event, TagValueFact } from "#src/event.ts";
import { createLog } from "#src/log.ts";
import { openStore } from "#src/store/open.ts";
import { documentSet, type Store } from "#src/store/store.ts";
import { ReadConfig } from "#src/sync/read/config.ts";
import { createLiveReads, type LiveReadOptions } from "#src/sync/read/live-reads.ts";
import { createSlowTags } from "#src/sync/read/slow.ts";
import { type HeldLeftOut, type HeldValue, syncSet } from "#src/sync/snapshot.ts";
import { temporaryFolder } from "../real-servers.ts";
import { createVirtualClock, type VirtualClock } from "../virtual-clock.ts";
import { createTrialQuota, inventory, tagNamed, trialMetrics, trialSource } from "./trial-building.ts";

const START = Date.parse("2026-11-02T06:00:00Z");
const log = createLog({ level: "silent" });

let folder: string;
let clock: VirtualClock;
let store: Store;

beforeEach(async () => {
  folder = temporaryFolder();
  clock = createVirtualClock(START, { turns: 2 });
  store = await openStore({ folder, clock });
  await store.outbox.register("all", "beginning");
});
afterEach(async () => {
  await store.close();
  rmSync(folder, { recursive: true });
});

const ids = (count: number) => Array.from({ length: count }, (_, i) => String(101 + i));

/** What the building answers, and what was asked of it. */
function building(
  answer: (group: readonly string[]) => Record<string, TagValue> | Promise<never>,
  latencyMs: (group: readonly string[]) => number = () => 50,
) {
  const asked: (readonly string[])[] = [];
  const quota = createTrialQuota(clock);
  const source = trialSource({
    quota: quota.status,
    async read(group, lane, signal) {
      await quota.turn(lane, signal);
      asked.push([...group]);
      const takesMs = latencyMs(group);
      await clock.sleep(takesMs, signal);
      const values = await answer(group);
      const readings: TagReading[] = Object.entries(values).map(([id, value]) => ({
        ...tagNamed(id),
        value,
      }));
      return { readings: readings.reverse(), receivedAtMs: clock.now(), latencyMs: takesMs };
    },
  });
  return { source, asked };
}

const all = (value: TagValue) => (group: readonly string[]) =>
  Object.fromEntries(group.map((id) => [id, value]));

async function live(
  source: LiveReadOptions["source"],
  tags: readonly string[],
  classes: unknown = [{ name: "all", every: "1m" }],
  more: Partial<LiveReadOptions> = {},
) {
  await inventory(
    store,
    "trial",
    tags.map((id) => tagNamed(id)),
  );
  const parts = { source, store, clock, log, metrics: trialMetrics(), classes: ReadConfig.parse(classes) };
  return createLiveReads({ ...parts, historyWants: () => true, ...more });
}

/** Drives a run of the loop in virtual time; what it threw, or null. */
async function runFor(reads: ReturnType<typeof createLiveReads>, ms: number): Promise<unknown> {
  const stop = new AbortController();
  let failure: unknown = null;
  const run = reads.run(stop.signal).then(
    () => {},
    (error: unknown) => {
      if (!stop.signal.aborted) failure = error;
    },
  );
  await clock.advance(ms);
  stop.abort(new Error("the test is over"));
  await clock.advance(0);
  await run;
  return failure;
}

async function told(): Promise<readonly Event<"tag-value">[]> {
  const { events } = await store.outbox.next("all", 10_000);
  return events.flatMap(({ event }) => (event.type === "tag-value" ? [event as Event<"tag-value">] : []));
}

const heldValues = () => store.documents<HeldValue>(documentSet("value", "trial"));

describe("a reading", () => {
  test("becomes a document and an event, stamped with the receipt of the reply", async () => {
    const { source } = building(all(21.5));
    await runFor(await live(source, ids(3)), 2_000);
    const [event] = await told();
    expect(event).toMatchObject({
      source: "/sources/trial",
      subject: "site/1/tag/101",
      siteid: "1",
      data: { value: 21.5, quality: "good", latencyMs: 50, time: event?.time },
    });
    expect((await heldValues()).get("101")).toMatchObject({
      value: 21.5,
      quality: "good",
      nulls: 0,
      time: event?.time,
    });
  });

  test("of another type than the last is uncertain and says so, once; the second of the new type is good", async () => {
    const values: TagValue[] = [20, null, true, true, false, 3, 4];
    let round = 0;
    const { source } = building((group) => all(values[Math.min(round++, 6)] as TagValue)(group));
    await runFor(await live(source, ids(1), [{ name: "all", every: "30s" }]), 240_000);
    const events = (await told()).slice(0, values.length);
    expect(events.map(({ data }) => [data.value, data.quality, data.type?.now])).toEqual([
      [20, "good", undefined],
      [null, "bad", undefined],
      [true, "uncertain", "boolean"],
      [true, "good", undefined],
      [false, "good", undefined],
      [3, "uncertain", "number"],
      [4, "good", undefined],
    ]);
    expect(events[2]?.data.type).toEqual({ before: "number", now: "boolean" });
  });

  test("that does not come is remembered with its reason until the tag has a value again", async () => {
    let answers = false;
    const { source } = building((group) => {
      const { "101": first, ...rest } = all(20)(group);
      return answers ? { "101": first ?? 20, ...rest } : rest;
    });
    const warn = vi.fn();
    const reads = await live(source, ids(3), undefined, { log: { info: () => {}, warn } });
    await runFor(reads, 130_000);
    const leftOut = () => store.documents<HeldLeftOut>(syncSet("left-out", "trial"));
    expect([...(await leftOut())].map(([id, { reason }]) => [id, reason])).toEqual([
      ["101", "The reply does not list it."],
    ]);
    expect(warn.mock.calls.filter(([, text]) => /no value in the reply/.test(text))).toHaveLength(1);
    answers = true;
    await runFor(reads, 130_000);
    expect((await leftOut()).size).toBe(0);
  });

  test("that is null is bad and never 0, and keeps the last good value", async () => {
    let round = 0;
    const { source } = building((group) => all(round++ === 0 ? 20 : null)(group));
    await runFor(await live(source, ids(2)), 130_000);
    const events = (await told()).filter((event) => event.subject.endsWith("/101"));
    expect(events.map((event) => [event.data.value, event.data.quality])).toEqual([
      [20, "good"],
      [null, "bad"],
      [null, "bad"],
    ]);
    expect(events.at(-1)?.data.lastGood).toEqual({ value: 20, time: events[0]?.time });
    expect((await heldValues()).get("101")).toMatchObject({
      quality: "bad",
      nulls: 2,
      lastGood: { value: 20 },
    });
  });

  test.each([0, 0.25, 0.5, 1])("with a share of %f nulls writes no zero", async (share) => {
    let count = 0;
    const { source } = building((group) =>
      Object.fromEntries(group.map((id) => [id, count++ % 20 < share * 20 ? null : 7])),
    );
    await runFor(await live(source, ids(20)), 100_000);
    const facts: readonly TagValueFact[] = (await told()).map((event) => event.data);
    expect(facts.length).toBeGreaterThan(20);
    for (const { value, quality } of facts)
      expect([value, quality]).toEqual(value === null ? [null, "bad"] : [7, "good"]);
  });

  test("that the reply leaves out stays unknown: no event, nothing overwritten", async () => {
    const { source } = building((group) => all(5)(group.filter((id) => id !== "102")));
    await runFor(await live(source, ids(3)), 2_000);
    expect((await told()).map((event) => event.subject)).toEqual(["site/1/tag/101", "site/1/tag/103"]);
    expect((await heldValues()).has("102")).toBe(false);
  });

  test("is uncertain while our clock is more than five minutes off", async () => {
    const { source } = building(all(5));
    await runFor(await live(source, ids(1), undefined, { clockSkewMs: () => -301_000 }), 2_000);
    expect((await told())[0]?.data.quality).toBe("uncertain");
  });

  test("is told by exception where the class says so, and at least once in the longest silence", async () => {
    const values = [20, 20.1, 20.6, 20.6, 20.6, 20.6, 20.6, 20.6];
    let round = 0;
    const { source } = building((group) => all(values[round++] ?? 20.6)(group));
    const classes = [{ name: "all", every: "30s", on_change: true, deadband: 0.5, max_silence: "2m" }];
    await runFor(await live(source, ids(1), classes), 245_000);
    const events = await told();
    expect(events.map((event) => event.data.value)).toEqual([20, 20.6, 20.6]);
    const [, changed, reminder] = events.map((event) => Date.parse(event.time));
    expect((reminder ?? 0) - (changed ?? 0)).toBeGreaterThanOrEqual(120_000);
    const held = (await heldValues()).get("101")?.time ?? "";
    expect(held > (events.at(-1)?.time ?? "")).toBe(true);
  });
});

describe("the loop", () => {
  test("keeps every interval while the wishes fit, with full requests", async () => {
    const { source, asked } = building(all(1));
    await runFor(await live(source, ids(100)), 240_000);
    const bySubject = Map.groupBy(await told(), (event) => event.subject);
    expect(bySubject.size).toBe(100);
    for (const events of bySubject.values()) {
      const times = events.map((event) => Date.parse(event.time));
      for (const [i, time] of times.entries()) {
        if (i > 0) expect(time - (times[i - 1] ?? 0)).toBeLessThanOrEqual(60_000);
      }
    }
    expect(asked.every((group) => group.length === 20)).toBe(true);
    expect(asked.length).toBeLessThanOrEqual(28);
  });

  test("continues after a restart where it was: nothing is read again before it is due", async () => {
    const { source, asked } = building(all(1));
    await runFor(await live(source, ids(40), [{ name: "all", every: "10m" }]), 10_000);
    expect(asked).toHaveLength(2);
    await runFor(await live(source, ids(40), [{ name: "all", every: "10m" }]), 120_000);
    expect(asked).toHaveLength(2);
  });

  test("gives the slots that nobody wants to fresher values", async () => {
    const { source, asked } = building(all(1));
    await runFor(await live(source, ids(40), undefined, { historyWants: () => false }), 60_000);
    expect(asked.length).toBeGreaterThanOrEqual(19);
  });

  test("says once that the wishes exceed the quota, and stretches them", async () => {
    const { source } = building(all(1));
    const warnings: string[] = [];
    const recording = { info: () => {}, warn: (_: unknown, text: string) => void warnings.push(text) };
    const reads = await live(source, ids(600), undefined, { log: recording as never });
    await runFor(reads, 290_000);
    expect(warnings.filter((text) => text.includes("stretched"))).toHaveLength(1);
    expect(reads.status().stretch?.factors.get("all")).toBeGreaterThan(1.5);
  });

  test("reads tags that stay null less often", async () => {
    const { source, asked } = building((group) =>
      Object.fromEntries(group.map((id) => [id, Number(id) < 121 ? null : 1])),
    );
    const reads = await live(source, ids(40), [{ name: "all", every: "10s" }]);
    await runFor(reads, 290_000);
    const readsOf = (id: string) => asked.filter((group) => group.includes(id)).length;
    expect(readsOf("130")).toBeGreaterThan(25);
    expect(readsOf("110")).toBeLessThan(16);
  });

  test("gives up on the service after three failures in a row, not on the first", async () => {
    let failing = 1;
    const { source, asked } = building((group) =>
      failing-- > 0 ? Promise.reject(new Retryable("reset")) : (all(1)(group) as never),
    );
    expect(await runFor(await live(source, ids(60)), 60_000)).toBeNull();
    expect((await heldValues()).size).toBe(60);
    failing = 99;
    const before = asked.length;
    expect(await runFor(await live(source, ids(60)), 290_000)).toBeInstanceOf(Retryable);
    expect(asked.length - before).toBeLessThanOrEqual(5);
  });

  test("stops at once for a token that is refused", async () => {
    const refused = new ConfigError("401", { reason: "unauthenticated" });
    const { source, asked } = building(() => Promise.reject(refused));
    expect(await runFor(await live(source, ids(60)), 60_000)).toBe(refused);
    expect(asked.length).toBeLessThanOrEqual(2);
  });
});

describe("a tag that makes its group fail", () => {
  const refusing = (bad: ReadonlySet<string>, error: () => Error) =>
    building((group) =>
      group.some((id) => bad.has(id)) ? Promise.reject(error()) : (all(1)(group) as never),
    );

  test.each([
    ["404", () => new Rejected("404")],
    ["403", () => new ConfigError("403", { reason: "forbidden" })],
    ["422", () => new ConfigError("422", { reason: "validation", field: "tags" })],
  ])("with %s is found with at most 9 extra requests, and the 19 others are delivered", async (_, error) => {
    const { source, asked } = refusing(new Set(["107"]), error);
    const reads = await live(source, ids(20), [{ name: "all", every: "1h" }]);
    expect(await runFor(reads, 120_000)).toBeNull();
    expect([...(await heldValues()).keys()].sort()).toEqual(ids(20).filter((id) => id !== "107"));
    expect(reads.status().quarantined).toEqual(["107"]);
    expect(asked.length).toBeLessThanOrEqual(10);
  });

  test("costs one extra request when the service names it", async () => {
    const { source, asked } = building((group) =>
      group.includes("107")
        ? Promise.reject(
            new ConfigError("422", { reason: "validation", field: `tags.${group.indexOf("107")}` }),
          )
        : (all(1)(group) as never),
    );
    const reads = await live(source, ids(20), [{ name: "all", every: "1h" }]);
    await runFor(reads, 60_000);
    expect(asked.map((group) => group.length)).toEqual([20, 19]);
    expect(reads.status().quarantined).toEqual(["107"]);
  });

  test.each([2, 5])("%i of 20: the healthy are all delivered", async (count) => {
    const bad = new Set(
      ids(20)
        .filter((_, i) => i % Math.floor(20 / count) === 1)
        .slice(0, count),
    );
    const { source } = refusing(bad, () => new Rejected("404"));
    await runFor(await live(source, ids(60), [{ name: "all", every: "1h" }]), 180_000);
    expect((await heldValues()).size).toBe(60 - count);
  });

  test("20 of 20 beside healthy ones are set aside, and the healthy are delivered", async () => {
    const { source } = refusing(new Set(ids(20)), () => new Rejected("404"));
    const reads = await live(source, ids(60), [{ name: "all", every: "30s" }], { historyWants: () => false });
    await runFor(reads, 280_000);
    expect((await heldValues()).size).toBe(40);
    expect(reads.status().quarantined).toHaveLength(20);
  });

  test("a refusal of everything blames no tag and costs few requests", async () => {
    const refusal = new ConfigError("403", { reason: "forbidden" });
    const { source, asked } = refusing(new Set(ids(60)), () => refusal);
    const reads = await live(source, ids(60));
    expect(await runFor(reads, 280_000)).toBe(refusal);
    expect(reads.status().quarantined).toEqual([]);
    expect(asked.length).toBeLessThanOrEqual(24);
  });

  test("is asked again alone after a day, and comes back", async () => {
    const bad = new Set(["107"]);
    const { source, asked } = refusing(bad, () => new Rejected("404"));
    await runFor(await live(source, ids(20), [{ name: "all", every: "6h" }]), 60_000);
    bad.clear();
    const before = asked.length;
    await runFor(await live(source, ids(20), [{ name: "all", every: "6h" }]), 200_000);
    expect(asked).toHaveLength(before);
    await clock.advance(24 * 3_600_000);
    const reads = await live(source, ids(20), [{ name: "all", every: "6h" }]);
    await runFor(reads, 60_000);
    expect(asked.slice(before)).toContainEqual(["107"]);
    expect(reads.status().quarantined).toEqual([]);
    expect((await heldValues()).has("107")).toBe(true);
  });
});

describe("a slow device", () => {
  test("is singled out, and the others are read as fast as before", () => {
    const slow = createSlowTags();
    const tags = ids(60);
    const latency = (group: readonly string[]) => (group.includes("107") ? 25_000 : 200);
    for (let round = 0; round < 12; round++) {
      const groups = new Map<string, string[]>();
      for (const id of tags) {
        const key = slow.labelOf(id) ?? `group ${Math.floor(tags.indexOf(id) / 20)}`;
        groups.set(key, [...(groups.get(key) ?? []), id]);
      }
      for (const group of groups.values()) slow.replied(group, latency(group));
    }
    expect(tags.filter((id) => slow.labelOf(id) !== null)).toEqual(["107"]);
    slow.replied(["107"], 200);
    expect(slow.labelOf("107")).toBeNull();
  });

  test("does not delay the groups without it", async () => {
    const { source } = building(all(1), (group) => (group.includes("107") ? 10_000 : 100));
    const reads = await live(source, ids(60), [{ name: "all", every: "20s" }]);
    await runFor(reads, 299_000);
    const lateOnes = (await told()).filter(
      (event) => Date.parse(event.time) > START + 200_000 && event.data.latencyMs > 1_000,
    );
    expect(new Set(lateOnes.map((event) => event.subject))).toEqual(new Set(["site/1/tag/107"]));
  });
});
