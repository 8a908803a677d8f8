import { describe, expect, test } from "vitest";
import { addSilence, endSilence } from "#src/engine/silence/silence.ts";
import { GATEWAY } from "../sample-events.ts";
import { noticeBoard } from "./notice-board.ts";
import { alarm, gatewayOffline, gatewayOnline, receiving, START } from "./trial.ts";

const MINUTE = 60_000;
const titles = (trial: ReturnType<typeof receiving>) =>
  trial.board.notes.map(({ isOpen, told }) => `${isOpen ? "open" : "closed"}: ${told.text.title}`);

describe("alarms behind a gateway that is offline", () => {
  const behind = (n: number) => alarm(n, { behind: GATEWAY.id });

  test("are one incident whose list is updated at most every 30 s", async () => {
    const trial = receiving();
    await trial.gatewayIs(false);
    await trial.offer(behind(1).raised(), behind(2).raised());
    expect(titles(trial)).toEqual(["open: Gateway Basement gateway is offline: 2 of 2 alarms active"]);
    expect(trial.board.notes[0]?.told.text.list).toEqual([
      "B Alarm 1 (Active, 2026-11-02 13:00:00 +01:00)",
      "B Alarm 2 (Active, 2026-11-02 13:00:00 +01:00)",
    ]);
    await trial.offer(behind(3).raised());
    expect(trial.board.said).toHaveLength(1);
    await trial.pass(MINUTE);
    expect(trial.board.said).toHaveLength(2);
    expect(titles(trial)[0]).toContain("3 of 3");
    await trial.offer(behind(1).resolved(2));
    await trial.pass(MINUTE);
    expect(titles(trial)[0]).toContain("2 of 3");
  });

  test("are opened singly when the gateway is back online and the alarms are still active", async () => {
    const trial = receiving();
    await trial.gatewayIs(false);
    await trial.offer(behind(1).raised(), behind(2).raised());
    await trial.offerEach(behind(1).resolved(3), gatewayOnline(5));
    await trial.pass(2 * MINUTE);
    expect(titles(trial), "most end with the next polls").toEqual([
      expect.stringMatching(/^open: Gateway Basement gateway/),
    ]);
    await trial.pass(MINUTE);
    expect(titles(trial)).toEqual([
      expect.stringMatching(/^closed: Gateway Basement gateway/),
      "open: Alarm 2, Building 1",
    ]);
    await trial.offer(behind(2).resolved(8));
    expect(titles(trial)[1]).toMatch(/^closed/);
  });

  test("join the incident of the site's only gateway while they wait for the option hold", async () => {
    const trial = receiving(noticeBoard("findable"), { hold: "2m" });
    await trial.gatewayIs(false);
    await trial.offer(alarm(1).raised(), alarm(2).raised());
    await trial.offer(gatewayOffline());
    await trial.pass(5 * MINUTE);
    expect(titles(trial)).toEqual(["open: Gateway Basement gateway is offline: 2 of 2 alarms active"]);
  });

  test("are opened singly when only the stored state shows that the gateway is back", async () => {
    const trial = receiving();
    await trial.gatewayIs(false);
    await trial.offer(behind(1).raised());
    await trial.pass(5 * MINUTE);
    expect(titles(trial)).toHaveLength(1);
    await trial.gatewayIs(true);
    await trial.pass(5 * MINUTE);
    expect(titles(trial)).toEqual([expect.stringMatching(/^closed/), "open: Alarm 1, Building 1"]);
  });

  test("are opened and closed singly when they return after the outage of the gateway", async () => {
    const trial = receiving();
    await trial.gatewayIs(false);
    await trial.offerEach(behind(1).raised(), behind(1).resolved(3), gatewayOnline(5));
    await trial.gatewayIs(true);
    await trial.offer(alarm(1).retriggered(10));
    expect(titles(trial)).toEqual([expect.stringMatching(/^closed/), "open: Alarm 1, Building 1"]);
    await trial.offer(alarm(1).resolved(12));
    expect(titles(trial)[1]).toMatch(/^closed/);
  });

  test("open another incident at the next outage, even with the same first alarm", async () => {
    const trial = receiving();
    await trial.gatewayIs(false);
    const one = behind(1);
    await trial.offerEach(one.raised(), one.resolved(3), gatewayOnline(5), one.retriggered(10));
    expect(trial.board.notes.map(({ isOpen }) => isOpen)).toEqual([false, true]);
    expect(new Set(trial.board.notes.map(({ key }) => key)).size).toBe(2);
    await trial.offer(gatewayOnline(12), one.resolved(14));
    await trial.pass(MINUTE);
    expect(trial.board.notes.filter(({ isOpen }) => isOpen)).toEqual([]);
  });

  test("are opened when they return after an outage shorter than the option hold", async () => {
    const trial = receiving(noticeBoard("findable"), { hold: "2m" });
    await trial.gatewayIs(false);
    const one = behind(1);
    await trial.offer(one.raised());
    await trial.offer(one.resolved(0.5), gatewayOnline(1));
    await trial.pass(5 * MINUTE);
    expect(titles(trial)).toEqual([]);
    await trial.gatewayIs(true);
    await trial.offer(alarm(1).retriggered(6));
    expect(titles(trial)).toEqual(["open: Alarm 1, Building 1"]);
  });

  test("are opened singly with fold.gateway: false, and stay single if opened before the outage", async () => {
    const apart = receiving(noticeBoard("same"), { fold: { gateway: false } });
    await apart.offer(behind(1).raised(), behind(2).raised());
    expect(apart.board.notes).toHaveLength(2);
    const trial = receiving();
    await trial.offer(alarm(1).raised());
    await trial.offer(behind(2).raised(), alarm(1).acknowledged());
    expect(titles(trial)[0]).toBe("open: Alarm 1, Building 1");
    expect(trial.board.notes).toHaveLength(2);
  });
});

describe("a storm of alarms", () => {
  const storm = { fold: { storm: { openings: 5, within: "5m" } } } as const;

  test("is one incident from the sixth alarm on and closes with its last alarm", async () => {
    const trial = receiving(noticeBoard("findable"), storm);
    const all = Array.from({ length: 30 }, (_, n) => alarm(n));
    await trial.offer(...all.map((one) => one.raised()));
    expect(trial.board.notes).toHaveLength(6);
    expect(titles(trial).at(-1)).toBe("open: 25 alarms at Building 1, 25 active");
    await trial.offer(...all.map((one) => one.resolved(3)));
    await trial.pass(MINUTE);
    expect(trial.board.notes.filter(({ isOpen }) => isOpen)).toEqual([]);
    expect(trial.board.notes[5]?.told.text.list).toHaveLength(21);
    expect(trial.board.notes[5]?.told.text.list.at(-1)).toBe("and 5 more");
  });

  test("does not include an alarm that returns after its end", async () => {
    const trial = receiving(noticeBoard("findable"), storm);
    const all = Array.from({ length: 8 }, (_, n) => alarm(n));
    await trial.offer(...all.map((one) => one.raised()));
    await trial.offer(...all.map((one) => one.resolved(3)));
    await trial.pass(10 * MINUTE);
    expect(trial.board.notes.filter(({ isOpen }) => isOpen)).toEqual([]);
    await trial.offer(all[7]?.retriggered(20) ?? alarm(7).retriggered(20));
    expect(titles(trial).filter((title) => title.startsWith("open"))).toEqual(["open: Alarm 7, Building 1"]);
  });

  test("does not include an alarm that begins long after the others", async () => {
    const trial = receiving(noticeBoard("findable"), storm);
    await trial.offer(...Array.from({ length: 8 }, (_, n) => alarm(n).raised()));
    await trial.pass(3 * MINUTE);
    await trial.offer(alarm(20, { at: 3 }).raised());
    await trial.pass(MINUTE);
    expect(titles(trial).at(-1)).toBe("open: 4 alarms at Building 1, 4 active");
    await trial.pass(20 * MINUTE);
    await trial.offer(alarm(21, { at: 24 }).raised());
    expect(titles(trial).at(-1)).toBe("open: Alarm 21, Building 1");
  });

  test("counts alarms per site, or of all sites together", async () => {
    const bySite = receiving(noticeBoard("same"), storm);
    const spread = Array.from({ length: 12 }, (_, n) => alarm(n, { site: n % 3 }));
    await bySite.offer(...spread.map((one) => one.raised()));
    expect(bySite.board.notes).toHaveLength(12);
    const overAll = receiving(noticeBoard("same"), { fold: { storm: { openings: 5, over: "all" } } });
    await overAll.offer(...spread.map((one) => one.raised()));
    expect(titles(overAll).at(-1)).toBe("open: 7 alarms at several sites, 7 active");
  });

  test("does not count alarms behind an offline gateway, and can begin when the gateway comes back", async () => {
    const trial = receiving(noticeBoard("findable"), storm);
    await trial.gatewayIs(false);
    const behind = Array.from({ length: 9 }, (_, n) => alarm(n, { behind: GATEWAY.id }));
    await trial.offer(...behind.map((one) => one.raised()));
    await trial.offer(alarm(20).raised());
    expect(titles(trial)).toEqual([
      "open: Gateway Basement gateway is offline: 9 of 9 alarms active",
      "open: Alarm 20, Building 1",
    ]);
    await trial.pass(10 * MINUTE);
    await trial.offer(gatewayOnline(10));
    await trial.pass(3 * MINUTE);
    expect(titles(trial).at(-1)).toBe("open: 4 alarms at Building 1, 4 active");
  });
});

describe("a short alarm", () => {
  test("is not sent if it ends within the option hold, unlike a longer alarm", async () => {
    const trial = receiving(noticeBoard("findable"), { hold: "2m" });
    const [short, long] = [alarm(1), alarm(2)];
    await trial.offer(short.raised(), long.raised());
    expect(trial.board.said).toEqual([]);
    await trial.pass(MINUTE);
    await trial.offer(short.resolved(1));
    await trial.pass(90_000);
    expect(titles(trial)).toEqual(["open: Alarm 2, Building 1"]);
    await trial.offer(long.resolved(3));
    expect(titles(trial)).toEqual(["closed: Alarm 2, Building 1"]);
    expect((await trial.memory.all()).size).toBe(1);
  });

  test("is not sent when the sink receives its beginning and end together", async () => {
    const trial = receiving(noticeBoard("findable"), { hold: "2m" });
    const [short, long] = [alarm(1), alarm(2)];
    await trial.clock.advance(60 * MINUTE);
    await trial.offer(short.raised(), short.resolved(1), long.raised(), long.resolved(30));
    expect(trial.board.said.map((line) => line.split(",")[0])).toEqual([
      "open resolved Alarm 2",
      "close resolved Alarm 2",
    ]);
  });
});

describe("quiet hours of a receiver", () => {
  // 12:00 UTC is 13:00 in Oslo.
  const quiet = { quiet: [{ priorities: ["C"], from: "13:30", to: "07:00" }] };

  test("delay the listed priorities in the site's time zone until they end", async () => {
    const trial = receiving(noticeBoard("findable"), quiet);
    await trial.pass(40 * MINUTE, MINUTE);
    const [urgent, rest, over] = [
      alarm(1, { priority: "A", at: 40 }),
      alarm(2, { priority: "C", at: 40 }),
      alarm(3, { priority: "C", at: 40 }),
    ];
    await trial.offer(urgent.raised(), rest.raised(), over.raised());
    expect(titles(trial)).toEqual(["open: Alarm 1, Building 1"]);
    await trial.offer(over.resolved(90));
    await trial.pass(17 * 60 * MINUTE, MINUTE);
    expect(titles(trial)).toHaveLength(1);
    // 07:00 in Oslo is 06:00 UTC, 18 hours after the start.
    await trial.pass(30 * MINUTE, MINUTE);
    expect(titles(trial)).toEqual(["open: Alarm 1, Building 1", "open: Alarm 2, Building 1"]);
    expect(trial.clock.now()).toBeGreaterThan(START + 18 * 60 * MINUTE);
  });

  test("do not delay the end of an open incident", async () => {
    const trial = receiving(noticeBoard("findable"), quiet);
    const one = alarm(1, { priority: "C" });
    await trial.offer(one.raised());
    await trial.pass(60 * MINUTE, MINUTE);
    await trial.offer(one.resolved(60));
    expect(titles(trial)).toEqual(["closed: Alarm 1, Building 1"]);
  });
});

describe("a silence of alarms", () => {
  const time = (minutes: number) => new Date(START + minutes * MINUTE).toISOString();
  async function silenced(minutes: number, more = {}) {
    const trial = receiving();
    await addSilence(trial.store, {
      ...{ id: "s1", source: null, site: 1, priorities: null, name: null, alarm: null, isTold: true },
      ...{ from: time(0), to: time(minutes), reason: "Repair", madeBy: "cli", ...more },
    });
    return trial;
  }

  test("delays alarms until its end and then sends only those still active", async () => {
    const trial = await silenced(60);
    const [rest, over, elsewhere] = [alarm(1), alarm(2), alarm(3, { site: 2 })];
    await trial.offer(rest.raised(), over.raised(), elsewhere.raised());
    expect(titles(trial)).toEqual(["open: Alarm 3, Building 2"]);
    await trial.offer(over.resolved(10));
    await trial.pass(59 * MINUTE);
    expect(titles(trial)).toHaveLength(1);
    await trial.pass(2 * MINUTE);
    expect(titles(trial)).toEqual(["open: Alarm 3, Building 2", "open: Alarm 1, Building 1"]);
  });

  test.each([
    ["its beginning", 0, 5, 1],
    ["its end", 8, 20, 1],
    ["its beginning and its end", 0, 20, 0],
  ])("covering %s of an alarm: a late sink receives the ended alarm", async (_, from, to, things) => {
    const trial = await silenced(to, { from: time(from) });
    await trial.clock.advance(15 * MINUTE);
    await trial.offer(alarm(1).raised(), alarm(1).resolved(10));
    expect(titles(trial)).toHaveLength(things);
  });

  test("releases active alarms at once when it is ended early", async () => {
    const trial = await silenced(600);
    await trial.offer(alarm(1).raised());
    await trial.pass(5 * MINUTE);
    expect(titles(trial)).toEqual([]);
    await endSilence(trial.store, "s1", time(5), "cli");
    await trial.pass(10_000);
    expect(titles(trial)).toEqual(["open: Alarm 1, Building 1"]);
  });
});
