import { describe, expect, test } from "vitest";
import { addSilence, endSilence } from "#src/engine/silence/alarm-silences.ts";
import { GATEWAY } from "../sample-events.ts";
import { createHarness, gatewayOffline, gatewayOnline, START, sampleAlarm } from "./receiver-harness.ts";
import { createStub } from "./receiver-stub.ts";

const MINUTE = 60_000;
const listTitles = (harness: ReturnType<typeof createHarness>) =>
  harness.stub.incidents.map(({ isOpen, message }) => `${isOpen ? "open" : "closed"}: ${message.text.title}`);

describe("alarms attributed to an offline gateway", () => {
  const behindGateway = (n: number) => sampleAlarm(n, { behind: GATEWAY.id });

  test("are one incident whose list of alarms is updated at most every 30 s", async () => {
    const harness = createHarness();
    await harness.gatewayIs(false);
    await harness.offer(behindGateway(1).raised(), behindGateway(2).raised());
    expect(listTitles(harness)).toEqual(["open: Gateway Basement gateway is offline: 2 of 2 alarms active"]);
    expect(harness.stub.incidents[0]?.message.text.list).toEqual([
      "B Alarm 1 (Active, 2026-11-02 13:00:00 +01:00)",
      "B Alarm 2 (Active, 2026-11-02 13:00:00 +01:00)",
    ]);
    await harness.offer(behindGateway(3).raised());
    expect(harness.stub.calls).toHaveLength(1);
    await harness.passTime(MINUTE);
    expect(harness.stub.calls).toHaveLength(2);
    expect(listTitles(harness)[0]).toContain("3 of 3");
    await harness.offer(behindGateway(1).resolved(2));
    await harness.passTime(MINUTE);
    expect(listTitles(harness)[0]).toContain("2 of 3");
  });

  test("are opened singly when the gateway is back online and the alarms are still active", async () => {
    const harness = createHarness();
    await harness.gatewayIs(false);
    await harness.offer(behindGateway(1).raised(), behindGateway(2).raised());
    await harness.offerEach(behindGateway(1).resolved(3), gatewayOnline(5));
    await harness.passTime(2 * MINUTE);
    expect(listTitles(harness), "most end with the next polls").toEqual([
      expect.stringMatching(/^open: Gateway Basement gateway/),
    ]);
    await harness.passTime(MINUTE);
    expect(listTitles(harness)).toEqual([
      expect.stringMatching(/^closed: Gateway Basement gateway/),
      "open: Alarm 2, Building 1",
    ]);
    await harness.offer(behindGateway(2).resolved(8));
    expect(listTitles(harness)[1]).toMatch(/^closed/);
  });

  test("join the incident of the site's only gateway while their hold period lasts", async () => {
    const harness = createHarness(createStub("findable"), { hold: "2m" });
    await harness.gatewayIs(false);
    await harness.offer(sampleAlarm(1).raised(), sampleAlarm(2).raised());
    await harness.offer(gatewayOffline());
    await harness.passTime(5 * MINUTE);
    expect(listTitles(harness)).toEqual(["open: Gateway Basement gateway is offline: 2 of 2 alarms active"]);
  });

  test("wait at most 125 s while a request for the state of the site's gateway is pending", async () => {
    const harness = createHarness();
    await harness.gatewayIs(true);
    await harness.gatewayCheckIsPending(1);
    await harness.offer(sampleAlarm(1).raised(), sampleAlarm(2, { site: 2 }).raised());
    expect(listTitles(harness), "the check of site 1 is pending").toEqual(["open: Alarm 2, Building 2"]);
    await harness.passTime(20_000, 1_000);
    expect(listTitles(harness)).toHaveLength(1);
    harness.restart();
    await harness.passTime(10_000, 1_000);
    expect(listTitles(harness)).toHaveLength(1);
    await harness.gatewayCheckIsPending(null);
    await harness.passTime(1_000);
    expect(listTitles(harness), "the event gateway-offline may still be on its way").toHaveLength(1);
    await harness.passTime(2_000, 1_000);
    expect(listTitles(harness)[1]).toBe("open: Alarm 1, Building 1");
    await harness.gatewayCheckIsPending(1);
    await harness.offer(sampleAlarm(3).raised());
    await harness.passTime(123_000, 1_000);
    expect(listTitles(harness)).toHaveLength(2);
    await harness.passTime(3_000, 1_000);
    expect(listTitles(harness)[2]).toBe("open: Alarm 3, Building 1");
    await harness.offer(sampleAlarm(4).raised());
    expect(listTitles(harness), "a check that is pending for 125 s delays no alarm").toHaveLength(4);
  });

  test("do not wait for the state of the site's gateway with fold.gateway: false", async () => {
    const harness = createHarness(createStub("same"), { fold: { gateway: false } });
    await harness.gatewayCheckIsPending(1);
    await harness.offer(sampleAlarm(1).raised());
    expect(listTitles(harness)).toHaveLength(1);
  });

  test("stay in the incident of their gateway for at most 10 minutes after its return, while alarms of other gateways end", async () => {
    const harness = createHarness();
    await harness.gatewayIs(false);
    const anotherGateway = { value: { ...GATEWAY, id: "another", online: false }, siteId: 2, missingSince: null };
    const elsewhere = Array.from({ length: 9 }, (_, n) => sampleAlarm(10 + n, { site: 2, behind: "another" }));
    await harness.store.commit({ documents: [{ set: "gateway/main", put: [["another", anotherGateway]] }] });
    await harness.offer(behindGateway(1).raised(), ...elsewhere.map((alarm) => alarm.raised()));
    await harness.offer(gatewayOnline(1));
    for (const [index, alarm] of elsewhere.entries()) {
      expect(listTitles(harness)).toHaveLength(index < 5 ? 2 : 3);
      await harness.offer(alarm.resolved(2 + 2 * index));
      await harness.passTime(2 * MINUTE);
    }
  });

  test("are opened singly when only the stored state shows that the gateway is back", async () => {
    const harness = createHarness();
    await harness.gatewayIs(false);
    await harness.offer(behindGateway(1).raised());
    await harness.passTime(5 * MINUTE);
    expect(listTitles(harness)).toHaveLength(1);
    await harness.gatewayIs(true);
    await harness.passTime(5 * MINUTE);
    expect(listTitles(harness)).toEqual([expect.stringMatching(/^closed/), "open: Alarm 1, Building 1"]);
  });

  test("are opened and closed singly when they are raised after the gateway is back online", async () => {
    const harness = createHarness();
    await harness.gatewayIs(false);
    await harness.offerEach(behindGateway(1).raised(), behindGateway(1).resolved(3), gatewayOnline(5));
    await harness.gatewayIs(true);
    await harness.offer(sampleAlarm(1).retriggered(10));
    expect(listTitles(harness)).toEqual([expect.stringMatching(/^closed/), "open: Alarm 1, Building 1"]);
    await harness.offer(sampleAlarm(1).resolved(12));
    expect(listTitles(harness)[1]).toMatch(/^closed/);
  });

  test("open another incident at the next outage, even with the same first alarm", async () => {
    const harness = createHarness();
    await harness.gatewayIs(false);
    const alarm = behindGateway(1);
    await harness.offerEach(alarm.raised(), alarm.resolved(3), gatewayOnline(5), alarm.retriggered(10));
    expect(harness.stub.incidents.map(({ isOpen }) => isOpen)).toEqual([false, true]);
    expect(new Set(harness.stub.incidents.map(({ key }) => key)).size).toBe(2);
    await harness.offer(gatewayOnline(12), alarm.resolved(14));
    await harness.passTime(MINUTE);
    expect(harness.stub.incidents.filter(({ isOpen }) => isOpen)).toEqual([]);
  });

  test("are opened singly with fold.gateway: false, and stay single if opened before the outage", async () => {
    const apart = createHarness(createStub("same"), { fold: { gateway: false } });
    await apart.offer(behindGateway(1).raised(), behindGateway(2).raised());
    expect(apart.stub.incidents).toHaveLength(2);
    const harness = createHarness();
    await harness.offer(sampleAlarm(1).raised());
    await harness.offer(behindGateway(2).raised(), sampleAlarm(1).acknowledged());
    expect(listTitles(harness)[0]).toBe("open: Alarm 1, Building 1");
    expect(harness.stub.incidents).toHaveLength(2);
  });
});

describe("a storm of alarms", () => {
  const storm = { fold: { storm: { openings: 5, within: "5m" } } } as const;

  test("is one incident from the sixth alarm on and closes with its last alarm", async () => {
    const harness = createHarness(createStub("findable"), storm);
    const all = Array.from({ length: 30 }, (_, n) => sampleAlarm(n));
    await harness.offer(...all.map((alarm) => alarm.raised()));
    expect(harness.stub.incidents).toHaveLength(6);
    expect(listTitles(harness).at(-1)).toBe("open: 25 alarms at Building 1, 25 active");
    await harness.offer(...all.map((alarm) => alarm.resolved(3)));
    await harness.passTime(MINUTE);
    expect(harness.stub.incidents.filter(({ isOpen }) => isOpen)).toEqual([]);
    expect(harness.stub.incidents[5]?.message.text.list).toHaveLength(21);
    expect(harness.stub.incidents[5]?.message.text.list.at(-1)).toBe("and 5 more");
  });

  test("does not include an alarm that is raised again after the alarm ended", async () => {
    const harness = createHarness(createStub("findable"), storm);
    const all = Array.from({ length: 8 }, (_, n) => sampleAlarm(n));
    await harness.offer(...all.map((alarm) => alarm.raised()));
    await harness.offer(...all.map((alarm) => alarm.resolved(3)));
    await harness.passTime(10 * MINUTE);
    expect(harness.stub.incidents.filter(({ isOpen }) => isOpen)).toEqual([]);
    await harness.offer(all[7]?.retriggered(20) ?? sampleAlarm(7).retriggered(20));
    expect(listTitles(harness).filter((title) => title.startsWith("open"))).toEqual(["open: Alarm 7, Building 1"]);
  });

  test("does not include an alarm that begins long after the other alarms of the storm", async () => {
    const harness = createHarness(createStub("findable"), storm);
    await harness.offer(...Array.from({ length: 8 }, (_, n) => sampleAlarm(n).raised()));
    await harness.passTime(3 * MINUTE);
    await harness.offer(sampleAlarm(20, { at: 3 }).raised());
    await harness.passTime(MINUTE);
    expect(listTitles(harness).at(-1)).toBe("open: 4 alarms at Building 1, 4 active");
    await harness.passTime(20 * MINUTE);
    await harness.offer(sampleAlarm(21, { at: 24 }).raised());
    expect(listTitles(harness).at(-1)).toBe("open: Alarm 21, Building 1");
  });

  test("counts alarms per site, or of all sites together with over: all", async () => {
    const bySite = createHarness(createStub("same"), storm);
    const spread = Array.from({ length: 12 }, (_, n) => sampleAlarm(n, { site: n % 3 }));
    await bySite.offer(...spread.map((alarm) => alarm.raised()));
    expect(bySite.stub.incidents).toHaveLength(12);
    const overAll = createHarness(createStub("same"), { fold: { storm: { openings: 5, over: "all" } } });
    await overAll.offer(...spread.map((alarm) => alarm.raised()));
    expect(listTitles(overAll).at(-1)).toBe("open: 7 alarms at several sites, 7 active");
  });

  test("does not include alarms behind an offline gateway before the gateway is online again", async () => {
    const harness = createHarness(createStub("findable"), storm);
    await harness.gatewayIs(false);
    const behindGateway = Array.from({ length: 9 }, (_, n) => sampleAlarm(n, { behind: GATEWAY.id }));
    await harness.offer(...behindGateway.map((alarm) => alarm.raised()));
    await harness.offer(sampleAlarm(20).raised());
    expect(listTitles(harness)).toEqual([
      "open: Gateway Basement gateway is offline: 9 of 9 alarms active",
      "open: Alarm 20, Building 1",
    ]);
    await harness.passTime(10 * MINUTE);
    await harness.offer(gatewayOnline(10));
    await harness.passTime(3 * MINUTE);
    expect(listTitles(harness).at(-1)).toBe("open: 4 alarms at Building 1, 4 active");
  });
});

describe("a short alarm", () => {
  test("is not sent if it ends within the hold period, unlike a longer alarm", async () => {
    const harness = createHarness(createStub("findable"), { hold: "2m" });
    const [short, long] = [sampleAlarm(1), sampleAlarm(2)];
    await harness.offer(short.raised(), long.raised());
    expect(harness.stub.calls).toEqual([]);
    await harness.passTime(MINUTE);
    await harness.offer(short.resolved(1));
    await harness.passTime(90_000);
    expect(listTitles(harness)).toEqual(["open: Alarm 2, Building 1"]);
    await harness.offer(long.resolved(3));
    expect(listTitles(harness)).toEqual(["closed: Alarm 2, Building 1"]);
    expect((await harness.sinkState.all()).size).toBe(1);
  });

  test("is not sent when the sink receives its beginning and end together", async () => {
    const harness = createHarness(createStub("findable"), { hold: "2m" });
    const [short, long] = [sampleAlarm(1), sampleAlarm(2)];
    await harness.clock.advance(60 * MINUTE);
    await harness.offer(short.raised(), short.resolved(1), long.raised(), long.resolved(30));
    expect(harness.stub.calls.map((line) => line.split(",")[0])).toEqual([
      "open resolved Alarm 2",
      "close resolved Alarm 2",
    ]);
  });
});

describe("quiet hours of a receiver", () => {
  // 12:00 UTC is 13:00 in Oslo.
  const quiet = { quiet: [{ priorities: ["C"], from: "13:30", to: "07:00" }] };

  test("delay the listed priorities in the site's time zone until they end", async () => {
    const harness = createHarness(createStub("findable"), quiet);
    await harness.passTime(40 * MINUTE, MINUTE);
    const [urgent, rest, over] = [
      sampleAlarm(1, { priority: "A", at: 40 }),
      sampleAlarm(2, { priority: "C", at: 40 }),
      sampleAlarm(3, { priority: "C", at: 40 }),
    ];
    await harness.offer(urgent.raised(), rest.raised(), over.raised());
    expect(listTitles(harness)).toEqual(["open: Alarm 1, Building 1"]);
    await harness.offer(over.resolved(90));
    await harness.passTime(17 * 60 * MINUTE, MINUTE);
    expect(listTitles(harness)).toHaveLength(1);
    // 07:00 in Oslo is 06:00 UTC, 18 hours after the start.
    await harness.passTime(30 * MINUTE, MINUTE);
    expect(listTitles(harness)).toEqual(["open: Alarm 1, Building 1", "open: Alarm 2, Building 1"]);
    expect(harness.clock.now()).toBeGreaterThan(START + 18 * 60 * MINUTE);
  });

  test("do not delay the end of an open incident", async () => {
    const harness = createHarness(createStub("findable"), quiet);
    const alarm = sampleAlarm(1, { priority: "C" });
    await harness.offer(alarm.raised());
    await harness.passTime(60 * MINUTE, MINUTE);
    await harness.offer(alarm.resolved(60));
    expect(listTitles(harness)).toEqual(["closed: Alarm 1, Building 1"]);
  });
});

describe("a silence of alarms", () => {
  const time = (minutes: number) => new Date(START + minutes * MINUTE).toISOString();
  async function silenced(minutes: number, more = {}) {
    const harness = createHarness();
    await addSilence(harness.store, {
      ...{ id: "s1", source: null, site: 1, priorities: null, name: null, alarm: null, isTold: true },
      ...{ from: time(0), to: time(minutes), reason: "Repair", madeBy: "cli", ...more },
    });
    return harness;
  }

  test("delays alarms until its end and then sends only those still active", async () => {
    const harness = await silenced(60);
    const [rest, over, elsewhere] = [sampleAlarm(1), sampleAlarm(2), sampleAlarm(3, { site: 2 })];
    await harness.offer(rest.raised(), over.raised(), elsewhere.raised());
    expect(listTitles(harness)).toEqual(["open: Alarm 3, Building 2"]);
    await harness.offer(over.resolved(10));
    await harness.passTime(59 * MINUTE);
    expect(listTitles(harness)).toHaveLength(1);
    await harness.passTime(2 * MINUTE);
    expect(listTitles(harness)).toEqual(["open: Alarm 3, Building 2", "open: Alarm 1, Building 1"]);
  });

  test.each([
    ["its beginning", 0, 5, 1],
    ["its end", 8, 20, 1],
    ["its beginning and its end", 0, 20, 0],
  ])("that covers %s of an ended alarm (minute %i to %i) causes %i messages", async (_, from, to, things) => {
    const harness = await silenced(to, { from: time(from) });
    await harness.clock.advance(15 * MINUTE);
    await harness.offer(sampleAlarm(1).raised(), sampleAlarm(1).resolved(10));
    expect(listTitles(harness)).toHaveLength(things);
  });

  test("releases active alarms at once when it is ended early", async () => {
    const harness = await silenced(600);
    await harness.offer(sampleAlarm(1).raised());
    await harness.passTime(5 * MINUTE);
    expect(listTitles(harness)).toEqual([]);
    await endSilence(harness.store, "s1", time(5), "cli");
    await harness.passTime(10_000);
    expect(listTitles(harness)).toEqual(["open: Alarm 1, Building 1"]);
  });
});

test("500 alarms in one batch are applied in ten steps, between which other work runs", async () => {
  const harness = createHarness(createStub("findable"), { hold: "1h" });
  await harness.offer(sampleAlarm(0).raised());
  let ticks = 0;
  let timer = setImmediate(function countTick() {
    ticks += 1;
    timer = setImmediate(countTick);
  });
  await harness.offer(...Array.from({ length: 500 }, (_, n) => sampleAlarm(n + 1).raised()));
  clearImmediate(timer);
  expect(ticks).toBeGreaterThanOrEqual(9);
});
