import { beforeEach, describe, expect, test } from "vitest";
import type { BatchInfo } from "#src/core/connector.ts";
import { Rejected, Retryable } from "#src/core/errors/errors.ts";
import type { Event } from "#src/core/model/event.ts";
import { buildSnapshotRequest } from "#src/engine/delivery/send-state-snapshot.ts";
import { ALARM, GATEWAY, SITE, SYSTEM, TAG, valueEvent } from "../sample-events.ts";
import { type ScriptedSink, scriptedSink } from "./dispatcher-harness.ts";
import { commit, harness, ids, stop, useHarness, written } from "./dispatcher-steps.ts";

useHarness();

const AT = "2026-11-01T00:00:00.000Z";
const POLLED = { lastSuccess: AT, lastAttempt: AT, problem: null };
beforeEach(async () => {
  const held = (value: unknown, siteId: number | null = SITE.id, missingSince: string | null = null) => ({
    ...{ value, siteId, missingSince },
    since: AT,
  });
  const alarm = (state: string) => ({
    alarm: ALARM,
    episode: `${ALARM.id} e`,
    state,
    since: AT,
    misses: 0,
    returns: 0,
  });
  const tags = Array.from({ length: 250 }, (_, n) => ({ ...TAG, id: String(20_000 + n) }));
  const value = { value: 21.5, quality: "good", time: AT, lastGood: { value: 21.5, time: AT }, nulls: 0 };
  const withSystem = { systemIds: [SYSTEM.id], toldAt: AT };
  const withoutSystem = { systemIds: [], toldAt: AT };
  await harness.store.commit({
    documents: [
      { set: "site/main", put: Object.entries({ 1: held(SITE, null), 9: held({ ...SITE, id: 9 }, null, AT) }) },
      { set: "system/main", put: [[SYSTEM.id, held(SYSTEM)]] },
      { set: "tag-system/main", put: Object.entries({ 20007: withSystem, 20008: withoutSystem, 99999: withSystem }) },
      { set: "gateway/main", put: [[GATEWAY.id, held(GATEWAY)]] },
      { set: "tag/main", put: tags.map((tag) => [tag.id, held(tag)] as const) },
      { set: "alarm/main", put: Object.entries({ 500001: alarm("active"), 500002: alarm("resolved") }) },
      { set: "value/main", put: Object.entries({ 20007: value, 99999: value }) },
      { set: "poll/main", put: ["alarms", "tags"].map((job) => [job, POLLED] as const) },
    ],
  });
});

async function started(sink: ScriptedSink, delivery: Record<string, unknown> = { from: "state" }) {
  const dispatcher = harness.dispatcher({ a: sink }, { batch: 100, retry: { first: "1s", max: "1s" }, ...delivery });
  await dispatcher.start(new AbortController().signal);
  await harness.clock.advance(3_000);
  return dispatcher;
}

const counts = (events: readonly Event[]): Record<string, number> =>
  Object.fromEntries([...Map.groupBy(events, ({ type }) => type)].map(([type, { length }]) => [type, length]));
const ALL = {
  "site-added": 1,
  "gateway-added": 1,
  "system-added": 1,
  "tag-added": 250,
  "tag-systems-changed": 1,
  "alarm-raised": 1,
  "tag-value": 1,
};

describe("a snapshot of the current state", () => {
  test("is sent first to a new sink: each object once, marked as snapshot, sites before tags and values", async () => {
    await harness.store.commit({ events: [valueEvent(1)] });
    const sink = scriptedSink();
    await started(sink);
    const events = sink.writes.flat();
    expect(counts(events)).toEqual(ALL);
    expect(events.every(({ snapshot }) => snapshot === true)).toBe(true);
    expect([...new Set(events.map(({ type }) => type))]).toEqual(Object.keys(ALL));
    expect(new Set(ids(events)).size).toBe(events.length);
    expect(events.find(({ type }) => type === "alarm-raised")?.data).toMatchObject({ initial: true });
    expect(events.find(({ type }) => type === "tag-systems-changed")).toMatchObject({
      subject: "site/1/tag/20007",
      siteid: "1",
      data: {
        tag: { id: "20007" },
        systems: [{ id: SYSTEM.id, code: SYSTEM.code, displayName: SYSTEM.displayName }],
        before: [],
      },
    });
    expect(events.find(({ type }) => type === "tag-value")).toMatchObject({
      time: AT,
      siteid: "1",
      subject: "site/1/tag/20007",
    });
    await commit([valueEvent(2)]);
    expect(ids(sink.writes.at(-1) ?? [])).toEqual([valueEvent(2).id]);
  });

  test("is sent once, not at every start, and contains only events that pass the filter", async () => {
    const sink = scriptedSink();
    const dispatcher = await started(sink, { from: "state", filter: { kinds: ["alarm-*", "site-*"] } });
    expect(counts(sink.writes.flat())).toEqual({ "site-added": 1, "alarm-raised": 1 });
    await stop(dispatcher, 100);
    const again = scriptedSink();
    await started(again);
    expect(again.writes).toEqual([]);
  });

  test("is sent for each request, with new event ids every time", async () => {
    const sink = scriptedSink();
    await started(sink, { from: "beginning" });
    expect(sink.writes).toEqual([]);
    for (const askedAt of ["2026-11-02T06:00:01.000Z", "2026-11-02T06:00:02.000Z"]) {
      await harness.store.commit({ documents: [buildSnapshotRequest("a", askedAt)] });
      await harness.clock.advance(3_000);
    }
    const events = sink.writes.flat();
    expect(counts(events)["tag-added"]).toBe(500);
    expect(new Set(ids(events)).size).toBe(events.length);
  });

  test("continues after a stop with the same event ids, and repeats at most one batch", async () => {
    const seen: string[] = [];
    let left = 2;
    const sink = scriptedSink((batch) => {
      if (left === 0) throw new Retryable("away");
      left -= 1;
      seen.push(...ids(batch));
      return { rejected: [] };
    });
    const dispatcher = await started(sink);
    await stop(dispatcher, 100);
    const next = scriptedSink();
    await started(next);
    seen.push(...written(next));
    expect(seen).toHaveLength(256);
    expect(new Set(seen).size).toBe(256);
  });

  test("continues after an event that the server rejects at each retry of the schedule", async () => {
    const sink = scriptedSink((batch) => {
      const bad = batch.findIndex(({ subject }) => subject === "site/1/tag/20003");
      if (bad < 0) return { rejected: [] };
      return { rejected: [], retry: { from: bad, error: new Rejected("No.") } };
    });
    await started(sink, { from: "state", schedule: ["1s"] });
    await harness.clock.advance(10_000);
    const last = sink.writes.flat().filter(({ type }) => type === "tag-value");
    expect(last).toHaveLength(1);
    expect(await harness.store.outbox.deadLetters("a")).toEqual([]);
  });

  test("waits at most ten minutes for the first poll of alarms and tags", async () => {
    await harness.store.commit({ documents: [{ set: "poll/main", remove: ["alarms"] }] });
    const [early, late] = [scriptedSink(), scriptedSink()];
    const dispatcher = await started(early);
    await commit([valueEvent(1)], 60_000);
    expect(written(early)).toEqual([valueEvent(1).id]);
    await harness.store.commit({ documents: [{ set: "poll/main", put: [["alarms", POLLED]] }] });
    await harness.clock.advance(3_000);
    expect(counts(early.writes.flat().slice(1))).toEqual(ALL);
    await stop(dispatcher, 100);
    await harness.store.commit({ documents: [{ set: "poll/main", remove: ["alarms"] }] });
    await harness.store.commit({ documents: [buildSnapshotRequest("a", new Date(harness.clock.now()).toISOString())] });
    await started(late);
    await harness.clock.advance(9 * 60_000);
    expect(late.writes).toEqual([]);
    await harness.clock.advance(2 * 60_000);
    expect(counts(late.writes.flat())).toEqual(ALL);
  });

  test("offers its events at position 0, and stores the state that the sink returns", async () => {
    const offers: (BatchInfo | undefined)[] = [];
    const sink = scriptedSink((_batch, _signal, _accepted, offer) => {
      offers.push(offer);
      return { rejected: [], stateChanges: new Map([["pages", offers.length]]) };
    });
    await started(sink);
    expect(offers[0]).toMatchObject({ isRedelivery: false });
    expect(new Set(offers[0]?.positions)).toEqual(new Set([0]));
    expect(await harness.store.document("memory/a", "pages")).toBe(offers.length);
  });
});
