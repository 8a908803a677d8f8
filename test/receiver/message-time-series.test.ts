import { describe, expect, test } from "vitest";
import { computeMessageDigest } from "#connectors/shared/receiver/notifier.ts";
import type { StoredIncident } from "#connectors/shared/receiver/stored-incident.ts";
import { SPARKLINE_TEXT, storeTagValues, tagReading } from "../receivers/stored-tag-values.ts";
import { TAG } from "../sample-events.ts";
import { createHarness, START, sampleAlarm } from "./receiver-harness.ts";
import { createStub } from "./receiver-stub.ts";

const SERIES_LINES = ["Values until 2026-11-02 13:00:00 +01:00", `VS1-GT11 ${SPARKLINE_TEXT}`];

async function withValues(...how: Parameters<typeof createHarness>) {
  const harness = createHarness(...how);
  await storeTagValues(harness.store, START);
  return harness;
}

const listSeries = (harness: Awaited<ReturnType<typeof withValues>>) =>
  harness.stub.incidents.map(({ message }) => message.text.timeSeriesLines);

describe("the time series in an alarm message", () => {
  test("is sent with the first message of alarms of priority A and B only", async () => {
    const harness = await withValues();
    for (const [n, priority] of ["A", "B", "C"].entries()) await harness.offer(sampleAlarm(n, { priority }).raised());
    expect(listSeries(harness)).toEqual([SERIES_LINES, SERIES_LINES, []]);
  });

  test("is sent for the configured priorities, with the configured hours and language", async () => {
    const c = await withValues(createStub("same"), { dossier: { priorities: ["C"], hours: 1 }, language: "no" });
    await c.offer(sampleAlarm(1, { priority: "C" }).raised(), sampleAlarm(2, { priority: "A" }).raised());
    expect(listSeries(c)).toEqual([
      [],
      ["Verdier til 2026-11-02 13:00:00 +01:00", "VS1-GT11 ▄▁ 18.2–18.6 °C, sist 18.2, 1 h"],
    ]);
    const off = await withValues(createStub("same"), { dossier: false });
    await off.offer(sampleAlarm(1).raised());
    expect(listSeries(off)).toEqual([[]]);
  });

  test("does not change after updates of the alarm, a restart of the worker and new values", async () => {
    const harness = await withValues();
    const alarm = sampleAlarm(1);
    await harness.offer(alarm.raised());
    await harness.clock.advance(600_000);
    await harness.store.commit({ events: [tagReading(TAG, START + 300_000, 99)] });
    await harness.offer(alarm.acknowledged());
    expect(listSeries(harness)).toEqual([SERIES_LINES]);
    harness.restart();
    await harness.offer(alarm.changed("Colder still"));
    expect(listSeries(harness)).toEqual([SERIES_LINES]);
    await harness.offer(alarm.resolved(9));
    expect(listSeries(harness)).toEqual([SERIES_LINES]);
    expect(harness.stub.incidents[0]?.changeLog).toHaveLength(4);
  });

  test("is not part of the message digest, so an upgrade of Plenum edits no sent message", async () => {
    const harness = await withValues(createStub("findable"), { dossier: false });
    await harness.offer(sampleAlarm(1).raised());
    const [stored] = (await harness.sinkState.all<StoredIncident>()).values();
    const message = harness.stub.incidents[0]?.message;
    if (message === undefined) throw new Error("No message was sent.");
    expect(computeMessageDigest({ ...message, text: { ...message.text, timeSeriesLines: ["a"] } })).toBe(
      stored?.told?.digest,
    );
  });

  test.each(["same", "findable", "another"] as const)(
    "is read again when the alarm returns, in the %s incident",
    async (sort) => {
      const harness = await withValues(createStub(sort));
      const alarm = sampleAlarm(1);
      await harness.offerEach(alarm.raised(), alarm.resolved(3));
      await harness.clock.advance(600_000);
      await harness.store.commit({ events: [tagReading(TAG, START + 600_000, 16)] });
      await harness.offer(alarm.retriggered(10));
      const now = harness.stub.incidents.at(-1)?.message.text.timeSeriesLines ?? [];
      expect(now[0]).toBe("Values until 2026-11-02 13:10:00 +01:00");
      expect(now[1]).toMatch(/ 16–21.4 °C, last 16, 3 h$/);
      await harness.offer(alarm.acknowledged(11));
      expect(harness.stub.incidents.at(-1)?.message.text.timeSeriesLines).toEqual(now);
    },
  );

  test("is omitted when the alarm ended before the message was sent", async () => {
    const harness = await withValues(createStub("findable"));
    const alarm = sampleAlarm(1);
    await harness.offer(alarm.raised(), alarm.resolved(5));
    expect(harness.stub.calls).toHaveLength(2);
    expect(listSeries(harness)).toEqual([[]]);
  });

  test("is omitted when the store cannot read it", async () => {
    const harness = await withValues();
    const { documents } = harness.store;
    harness.store.documents = (set) =>
      set === "tag/main" ? Promise.reject(new Error("The disk is gone.")) : documents(set);
    expect(await harness.offer(sampleAlarm(1).raised())).toEqual({ rejected: [] });
    expect(harness.stub.calls).toHaveLength(1);
    expect(listSeries(harness)).toEqual([[]]);
  });

  test("is omitted when no values are stored, and from the message of a gateway", async () => {
    const emptyTest = createHarness();
    await emptyTest.offer(sampleAlarm(1).raised());
    expect(emptyTest.stub.incidents[0]?.message.text.timeSeriesLines).toEqual([]);
    const harness = await withValues(createStub("same"));
    await harness.offer(sampleAlarm(1, { behind: "7" }).raised(), sampleAlarm(2, { behind: "7" }).raised());
    expect(harness.stub.incidents.map(({ message }) => [message.kind, message.text.timeSeriesLines])).toEqual([
      ["gateway", []],
    ]);
  });
});
