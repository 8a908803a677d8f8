import { describe, expect, test } from "vitest";
import { digestMessage } from "#connectors/shared/receiver/notifier.ts";
import type { StoredIncident } from "#connectors/shared/receiver/stored-incident.ts";
import { DRAWN, reading, valuesInState } from "../receivers/stored-tag-values.ts";
import { TAG } from "../sample-events.ts";
import { failAfter, noticeBoard } from "./notice-board.ts";
import { alarm, receiving, START } from "./trial.ts";

const LINES = ["Values until 2026-11-02 13:00:00 +01:00", `VS1-GT11 ${DRAWN}`];

async function withValues(...how: Parameters<typeof receiving>) {
  const trial = receiving(...how);
  await valuesInState(trial.store, START);
  return trial;
}

const curvesOf = (trial: Awaited<ReturnType<typeof withValues>>) =>
  trial.board.notes.map(({ told }) => told.text.curves);

describe("the time series in an alarm message", () => {
  test("is sent with the opening of priorities A and B only", async () => {
    const trial = await withValues();
    for (const [n, priority] of ["A", "B", "C"].entries()) await trial.offer(alarm(n, { priority }).raised());
    expect(curvesOf(trial)).toEqual([LINES, LINES, []]);
  });

  test("follows the configured priorities, hours and language", async () => {
    const c = await withValues(noticeBoard("same"), { dossier: { priorities: ["C"], hours: 1 }, language: "no" });
    await c.offer(alarm(1, { priority: "C" }).raised(), alarm(2, { priority: "A" }).raised());
    expect(curvesOf(c)).toEqual([
      [],
      ["Verdier til 2026-11-02 13:00:00 +01:00", "VS1-GT11 ▄▁ 18.2–18.6 °C, sist 18.2, 1 h"],
    ]);
    const off = await withValues(noticeBoard("same"), { dossier: false });
    off.store.outbox.recent = () => Promise.reject(new Error("Nobody shall ask."));
    await off.offer(alarm(1).raised());
    expect(curvesOf(off)).toEqual([[]]);
  });

  test("stays the same after updates, a restart and new values", async () => {
    const trial = await withValues();
    const one = alarm(1);
    await trial.offer(one.raised());
    await trial.clock.advance(600_000);
    await trial.store.commit({ events: [reading(TAG, START + 300_000, 99)] });
    await trial.offer(one.acknowledged());
    expect(curvesOf(trial)).toEqual([LINES]);
    trial.restart();
    await trial.offer(one.changed("Colder still"));
    expect(curvesOf(trial)).toEqual([LINES]);
    await trial.offer(one.resolved(9));
    expect(curvesOf(trial)).toEqual([LINES]);
    expect(trial.board.notes[0]?.said).toHaveLength(4);
  });

  test("does not change the message digest, so an update of Plenum edits no message", async () => {
    const trial = await withValues(noticeBoard("findable"), { dossier: false });
    await trial.offer(alarm(1).raised());
    const [stored] = (await trial.memory.all<StoredIncident>()).values();
    const message = trial.board.notes[0]?.told;
    if (message === undefined) throw new Error("No message was sent.");
    expect(digestMessage({ ...message, text: { ...message.text, curves: ["a"] } })).toBe(stored?.told?.digest);
  });

  test.each(["same", "findable", "another"] as const)(
    "is read again when the alarm returns, where a second opening is %s",
    async (sort) => {
      const trial = await withValues(noticeBoard(sort));
      const one = alarm(1);
      await trial.offerEach(one.raised(), one.resolved(3));
      await trial.clock.advance(600_000);
      await trial.store.commit({ events: [reading(TAG, START + 600_000, 16)] });
      await trial.offer(one.retriggered(10));
      const now = trial.board.notes.at(-1)?.told.text.curves ?? [];
      expect(now[0]).toBe("Values until 2026-11-02 13:10:00 +01:00");
      expect(now[1]).toMatch(/ 16–21.4 °C, last 16, 3 h$/);
      await trial.offer(one.acknowledged(11));
      expect(trial.board.notes.at(-1)?.told.text.curves).toEqual(now);
    },
  );

  test("is omitted when the alarm ended before the message was sent", async () => {
    const trial = await withValues(noticeBoard("findable"));
    const one = alarm(1);
    await trial.offer(one.raised(), one.resolved(5));
    expect(trial.board.said).toHaveLength(2);
    expect(curvesOf(trial)).toEqual([[]]);
  });

  test("stays the same when an unverified opening is repeated", async () => {
    const trial = await withValues();
    const one = alarm(1);
    trial.board.trouble = failAfter(new Error("The answer was lost."));
    await trial.offer(one.raised()).catch(() => undefined);
    trial.board.trouble = () => undefined;
    await trial.store.commit({ events: [reading(TAG, START - 1_000, 99)] });
    trial.restart();
    await trial.offerAgain([one.raised()]);
    expect(curvesOf(trial)).toEqual([LINES]);
  });

  test("is omitted when the store cannot read it", async () => {
    const trial = await withValues();
    trial.store.outbox.recent = () => Promise.reject(new Error("The disk is gone."));
    const { documents } = trial.store;
    trial.store.documents = (set) =>
      set === "tag/main" ? Promise.reject(new Error("The disk is gone.")) : documents(set);
    expect(await trial.offer(alarm(1).raised())).toEqual({ rejected: [] });
    expect(trial.board.said).toHaveLength(1);
    expect(curvesOf(trial)).toEqual([[]]);
  });

  test("is omitted without values, and for a gateway", async () => {
    const bare = receiving();
    await bare.offer(alarm(1).raised());
    expect(bare.board.notes[0]?.told.text.curves).toEqual([]);
    const trial = await withValues(noticeBoard("same"));
    await trial.offer(alarm(1, { behind: "7" }).raised(), alarm(2, { behind: "7" }).raised());
    expect(trial.board.notes.map(({ told }) => [told.kind, told.text.curves])).toEqual([["gateway", []]]);
  });
});
