import pino from "pino";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { systemClock } from "#src/core/runtime/clock.ts";
import {
  addSilence,
  buildSilence,
  createSilenceKeeper,
  describeSilencedAlarms,
  endSilence,
  getSilences,
  isAlarmSilenced,
  type Silence,
  type SilenceRequest,
  shortenSilence,
} from "#src/engine/silence/alarm-silences.ts";
import { createBuildingView } from "#src/engine/views/building-view.ts";
import { ALARM } from "./sample-events.ts";
import { describeService } from "./suites/service-suite.ts";
import { createMemoryStore } from "./sync/memory-store.ts";
import { createVirtualClock } from "./virtual-clock.ts";

const START = Date.parse("2026-11-02T12:00:00Z");
const at = (minutes: number) => new Date(START + minutes * 60_000).toISOString();

function silence(more: Partial<Silence> = {}): Silence {
  return {
    ...{ id: "s1", source: null, site: null, priorities: null, name: null, alarm: null, isTold: false },
    ...{ from: at(0), to: at(60), reason: "Repair", madeBy: "cli" },
    ...more,
  };
}

describe("isAlarmSilenced", () => {
  const alarm = { ...ALARM, trigger: { ...ALARM.trigger, displayName: "VS1 (roof) low", priority: "B" } };

  test.each<[string, Partial<Silence>, boolean]>([
    ["no condition", {}, true],
    ["the alarm's source", { source: "main" }, true],
    ["another source", { source: "other" }, false],
    ["the alarm's site", { site: alarm.site.id }, true],
    ["another site", { site: 99 }, false],
    ["the alarm's priority", { priorities: ["B", "C"] }, true],
    ["another priority", { priorities: ["C"] }, false],
    ["the start of the alarm's name and a star, in lower case", { name: "vs1 (roof)*" }, true],
    ["a part of the alarm's name", { name: "VS1" }, false],
    ["a regular expression, which matches literally", { name: ".*" }, false],
    ["the alarm's id", { alarm: alarm.id }, true],
    ["two conditions of which one differs", { site: alarm.site.id, alarm: "1" }, false],
  ])("returns whether an alarm matches a silence with %s", (_, parts, is) => {
    expect(isAlarmSilenced(silence(parts), "main", alarm)).toBe(is);
  });
});

describe("a requested silence", () => {
  const wish = (more: Partial<SilenceRequest> = {}): SilenceRequest => ({
    ...{ source: null, site: 3, priorities: null, name: null, alarm: null, madeBy: "cli" },
    ...{ fromMs: START, toMs: START + 60_000, reason: " Repair ", ...more },
  });

  test("gets a new id", () => {
    const made = buildSilence(wish(), START);
    expect(made).toEqual({ ...silence({ site: 3, to: at(1) }), id: expect.stringMatching(/^[0-9a-f]{8}$/) });
    expect(buildSilence(wish(), START).id).not.toBe(made.id);
  });

  test("accepts any start, a year and a reason of 500 characters", () => {
    const year = 366 * 86_400_000;
    const reason = "x".repeat(500);
    const later = buildSilence(wish({ fromMs: START + 9, toMs: START + 9 + year, reason }), START);
    expect(later).toMatchObject({ from: "2026-11-02T12:00:00.009Z", reason });
    expect(buildSilence(wish({ fromMs: START - 9, toMs: START + 1 }), START)).toMatchObject({
      ...{ from: "2026-11-02T11:59:59.991Z", to: "2026-11-02T12:00:00.001Z" },
    });
    expect(() => buildSilence(wish({ fromMs: START + 9, toMs: START + 9 }), START)).toThrow("The end has to be");
  });

  test.each<[string, Partial<SilenceRequest>, string]>([
    ["ends when it begins", { toMs: START }, "The end has to be after the beginning, and after now."],
    ["has ended", { fromMs: START - 9, toMs: START }, "The end has to be after the beginning, and after now."],
    ["lasts too long", { toMs: START + 366 * 86_400_000 + 1 }, "A silence lasts a year at most."],
    ["has no reason", { reason: " " }, "Say why, in 500 characters at most."],
    ["has a reason of 501 characters", { reason: "x".repeat(501) }, "Say why, in 500 characters at most."],
  ])("throws when the silence %s", (_, more, message) => {
    expect(() => buildSilence(wish(more), START)).toThrow(expect.objectContaining({ kind: "config", message }));
  });
});

test("alarmText describes a silence by ids or names", () => {
  expect(describeSilencedAlarms(silence())).toBe("all alarms");
  expect(describeSilencedAlarms(silence({ alarm: "7" }))).toBe("alarm 7");
  const parts = { alarm: "7", name: "VS1*", priorities: ["B", "C"], site: 3, source: "main" };
  expect(describeSilencedAlarms(silence(parts))).toBe("alarm 7 named VS1* of priority B, C of site 3 of source main");
  expect(describeSilencedAlarms(silence({ site: 3 }))).toBe("alarms of site 3");
  expect(describeSilencedAlarms(silence({ alarm: "7", site: 3 }), { alarm: "Low", site: "A" })).toBe(
    "alarm Low of site A",
  );
});

describe("createSilenceKeeper", () => {
  async function keeping(...all: Silence[]) {
    const clock = createVirtualClock(START);
    const store = createMemoryStore(() => clock.now());
    for (const each of all) await addSilence(store, each);
    const keeper = createSilenceKeeper({ store, clock, log: pino({ level: "silent" }) });
    await keeper.start(new AbortController().signal);
    onTestFinished(() => keeper.stop(1_000));
    await clock.advance(0);
    return { clock, store, keeper };
  }
  const told = (store: ReturnType<typeof createMemoryStore>) =>
    store.events.map(({ type, subject, time }) => [type, subject, time]);

  test("emits the beginning of a silence at `from` and the end at `to`, each once, and removes it", async () => {
    const { clock, store } = await keeping(silence({ from: at(10), to: at(20) }));
    expect(told(store)).toEqual([]);
    await clock.advance(10 * 60_000);
    expect(told(store)).toEqual([["silence-started", "silence/s1", at(10)]]);
    await clock.advance(10 * 60_000 - 5_000);
    expect(await getSilences(store)).toHaveLength(1);
    await clock.advance(5_000);
    expect(told(store)).toHaveLength(2);
    await clock.advance(60 * 60_000);
    expect(told(store)).toEqual([
      ["silence-started", "silence/s1", at(10)],
      ["silence-ended", "silence/s1", at(20)],
    ]);
    expect(await getSilences(store)).toEqual([]);
  });

  test("names the person who ended a silence, and emits nothing for a silence that never began", async () => {
    const { clock, store } = await keeping(silence(), silence({ id: "s2", from: at(30) }));
    expect(await endSilence(store, "s1", at(1), "cli")).toBe(true);
    expect(await endSilence(store, "s2", at(1), "cli")).toBe(true);
    expect(await endSilence(store, "s3", at(1), "cli")).toBe(false);
    await clock.advance(120 * 60_000);
    expect(store.events.map(({ type, data }) => [type, (data as { by: unknown }).by])).toEqual([
      ["silence-started", "cli"],
      ["silence-ended", "cli"],
    ]);
  });

  test("detects a silence from the command line within five seconds", async () => {
    const { clock, store, keeper } = await keeping();
    await addSilence(store, silence());
    await clock.advance(4_999);
    expect(told(store)).toEqual([]);
    await clock.advance(1);
    expect(told(store)).toHaveLength(1);
    await keeper.stop(1_000);
    await addSilence(store, silence({ id: "s2" }));
    await clock.advance(60_000);
    expect([told(store).length, clock.sleepers()]).toEqual([1, 0]);
  });

  test("emits the end of a silence that another process ended early, with its author", async () => {
    const { clock, store } = await keeping(silence(), silence({ id: "s2", from: at(30) }));
    await clock.advance(60_000);
    expect(await shortenSilence(store, "s1", at(1), "ann")).toBe(true);
    expect(await shortenSilence(store, "s1", at(1), "ann")).toBe(false);
    expect(await shortenSilence(store, "s2", at(1), "ann")).toBe(true);
    expect((await getSilences(store)).map(({ id }) => id)).toEqual(["s1"]);
    expect(await shortenSilence(store, "s3", at(1), "ann")).toBe(false);
    expect(told(store)).toHaveLength(1);
    await clock.advance(5_000);
    const { endedBy: _, isTold: __, ...kept } = silence({ to: at(1) });
    expect(store.events[1]).toMatchObject({
      ...{ type: "silence-ended", time: at(1), subject: "silence/s1", source: "/plenum" },
    });
    expect(store.events[1]?.data).toEqual({ by: "ann", silence: kept });
    expect(await getSilences(store)).toEqual([]);
  });

  test("lists silences by their beginnings", async () => {
    const all = [silence({ id: "b" }), silence({ id: "a" }), silence({ id: "c", from: at(-1) })];
    const { store } = await keeping(...all);
    expect((await getSilences(store)).map(({ id }) => id)).toEqual(["c", "a", "b"]);
  });

  test("waits at a stop until the silence event in progress is committed", async () => {
    const { clock, store, keeper } = await keeping();
    await addSilence(store, silence());
    const slow = Promise.withResolvers<void>();
    const { commit } = store;
    vi.spyOn(store, "commit").mockImplementation((change) => slow.promise.then(() => commit(change)));
    await clock.advance(5_000);
    const stopped = keeper.stop(1_000);
    await clock.advance(500);
    slow.resolve();
    await stopped;
    expect(told(store)).toHaveLength(1);
  });

  test("reads the silences again after a failure", async () => {
    const { clock, store } = await keeping();
    await addSilence(store, silence());
    const reading = vi.spyOn(store, "documents").mockRejectedValue(new Error("away"));
    await clock.advance(60_000);
    expect(told(store)).toEqual([]);
    reading.mockRestore();
    await clock.advance(120_000);
    expect(told(store)).toHaveLength(1);
  });

  test("removes a silence that began and ended without a running worker, without events", async () => {
    const { store } = await keeping(silence({ from: at(-90), to: at(-30) }));
    expect(store.events).toEqual([]);
    expect(await createBuildingView(store, new Map()).silences()).toEqual([]);
  });
});

describeService("silences", async () => {
  const store = createMemoryStore();
  const service = createSilenceKeeper({ store, clock: systemClock, log: pino({ level: "silent" }) });
  return { service, dispose: async () => store.close() };
});
