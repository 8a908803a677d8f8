import { describe, expect, test, vi } from "vitest";
import { computeIncidentKey } from "#connectors/shared/receiver/receiver-interface.ts";
import { createReceiverSink } from "#connectors/shared/receiver/sink.ts";
import { Rejected } from "#src/core/errors/errors.ts";
import { type Event, sourceUri } from "#src/core/model/event.ts";
import { contextFor } from "../connectors/context.ts";
import { GATEWAY } from "../sample-events.ts";
import { createHarness, gatewayOnline, ReceiverOptions, sampleAlarm } from "./receiver-harness.ts";
import { createStub } from "./receiver-stub.ts";

const MINUTE = 60_000;
const behindGateway = (n: number, priority = "B") => sampleAlarm(n, { behind: GATEWAY.id, priority });

describe("the list of a gateway's alarms", () => {
  test("shows active alarms by priority and latest beginning, then ended alarms", async () => {
    const harness = createHarness(createStub("same"));
    await harness.gatewayIs(false);
    const at = (n: number, minutes: number, priority = "B") =>
      sampleAlarm(n, { behind: GATEWAY.id, at: minutes, priority });
    const all = [at(1, 0), at(2, 2), at(3, 1, "A"), at(4, 3, "C"), at(5, 4), at(6, 5), at(7, 5)];
    await harness.offer(...all.map((alarm) => alarm.raised()));
    await harness.offer(...[at(4, 3, "C"), at(5, 4), at(1, 0)].map((alarm) => alarm.resolved(8)));
    await harness.passTime(MINUTE);
    expect(harness.stub.incidents[0]?.message.members).toMatchObject({ total: 7, active: 4 });
    expect(harness.stub.incidents[0]?.message.members.shown.map(({ title }) => title)).toEqual(
      [3, 6, 7, 2, 5, 4, 1].map((n) => `Alarm ${n}`),
    );
  });

  test("is sent in quiet hours as soon as an urgent alarm is added to the list", async () => {
    const quiet = [{ priorities: ["B"], from: "10:00", to: "20:00" }];
    const harness = createHarness(createStub("same"), { quiet });
    await harness.gatewayIs(false);
    await harness.offer(behindGateway(1).raised());
    await harness.passTime(MINUTE);
    expect(harness.stub.calls).toEqual([]);
    await harness.offer(behindGateway(2, "A").raised());
    expect(harness.stub.incidents[0]?.message).toMatchObject({ priority: "A", members: { total: 2 } });
    expect(harness.stub.incidents[0]?.message.changeId).toBe(behindGateway(2, "A").raised().id);
  });

  test.each([
    [20, undefined],
    [21, "and 1 more"],
  ])("shows at most 20 of %i alarms, and then the number of further alarms: %s", async (count, last) => {
    const harness = createHarness(createStub("same"));
    await harness.gatewayIs(false);
    await harness.offer(...Array.from({ length: count }, (_, n) => behindGateway(n).raised()));
    const list = harness.stub.incidents[0]?.message.text.list ?? [];
    expect([list.slice(0, 20).every((line) => line.startsWith("B Alarm")), list[20]]).toEqual([true, last]);
  });

  test("contains alarms of one source only, even if two services use the same gateway id", async () => {
    const harness = createHarness(createStub("same"));
    await harness.gatewayIs(false);
    const fromOtherSource = (event: Event): Event => ({ ...event, source: sourceUri("other") });
    await harness.offer(behindGateway(1).raised(), fromOtherSource(behindGateway(2).raised()));
    expect(harness.stub.incidents.map(({ message }) => [message.source, message.members.total])).toEqual([
      ["main", 1],
      ["other", 1],
    ]);
    await harness.offer(gatewayOnline(5));
    await harness.passTime(3 * MINUTE);
    expect(harness.stub.incidents.map(({ message, isOpen }) => [message.source, message.kind, isOpen])).toEqual([
      ["main", "gateway", false],
      ["other", "gateway", true],
      ["main", "alarm", true],
    ]);
  });

  test("causes one read of the stored gateways a minute while its incident is open, and otherwise none", async () => {
    const harness = createHarness();
    await harness.gatewayIs(false);
    await harness.offer(sampleAlarm(9).raised());
    const readDocuments = vi.spyOn(harness.store, "documents");
    const reads = () => readDocuments.mock.calls.filter(([set]) => set === "gateway/main").length;
    await harness.passTime(10 * MINUTE);
    expect(reads()).toBe(0);
    await harness.offer(behindGateway(1).raised());
    const readsBefore = reads();
    await harness.passTime(10 * MINUTE);
    expect(reads() - readsBefore).toBe(10);
  });
});

describe("a failed incident", () => {
  test("is sent again after a rejection only when its message has changed", async () => {
    const harness = createHarness(undefined, { fold: { storm: { openings: 2, within: "5m" } } });
    let attemptCount = 0;
    harness.stub.failCall = (isDone, _, message) => {
      if (isDone || message.kind !== "storm") return;
      attemptCount += 1;
      throw new Rejected("Too long.");
    };
    await harness.offer(...[1, 2, 3].map((n) => sampleAlarm(n).raised()));
    expect(attemptCount).toBe(1);
    await harness.passTime(3 * MINUTE);
    expect(attemptCount).toBe(1);
    await harness.offer(sampleAlarm(4, { at: 3 }).raised());
    await harness.passTime(MINUTE);
    expect(attemptCount).toBe(2);
  });

  test("is searched for at the planned time, also after a restart, when its opening is unverified", async () => {
    const harness = createHarness();
    let findCount = 0;
    harness.stub.find = async () => {
      findCount += 1;
      return { retryInMs: 5 * MINUTE };
    };
    await harness.offerUnanswered(sampleAlarm(1).raised());
    await harness.reoffer([sampleAlarm(1).raised()]);
    expect(findCount).toBe(1);
    harness.restart();
    await harness.passTime(4 * MINUTE);
    expect(findCount).toBe(1);
    await harness.passTime(2 * MINUTE);
    expect(findCount).toBe(2);
  });
});

test("the key of an incident is the same as in earlier versions", () => {
  expect(computeIncidentKey("main", "alarm", "600001 2026")).toBe("158924e7c3fa90afdc37b44bec509c3a");
});

test("opens a returning alarm again when the preceding close request got no response", async () => {
  for (const sort of ["same", "another"] as const) {
    const harness = createHarness(createStub(sort));
    await harness.offer(sampleAlarm(1).raised());
    await harness.offerUnanswered(sampleAlarm(1).resolved(3));
    await harness.offer(sampleAlarm(1).retriggered(4));
    expect(harness.stub.calls.at(-1), sort).toBe("open active Alarm 1, Building 1");
  }
});

test("rejects opening a sink with an aborted signal and reads nothing", async () => {
  const sink = createReceiverSink(createStub("same"), ReceiverOptions.parse({}), contextFor("chat"));
  await expect(sink.open?.(AbortSignal.abort(new Error("ended")))).rejects.toThrow("ended");
});

test("accepts and rejects the options of a receiver at the limits that the reference documents", () => {
  const isTaken = (options: object) => ReceiverOptions.safeParse(options).success;
  const storm = (more: object) => ({ fold: { storm: { openings: 5, ...more } } });
  const quiet = (more: object) => ({ quiet: [{ priorities: ["C"], from: "22:00", to: "06:00", ...more }] });
  for (const options of [
    ...[storm({ within: "1m" }), storm({ within: "1d" }), storm({ openings: 2 }), storm({ openings: 1_000 })],
    ...[{ hold: "1d" }, { dossier: { hours: 1 } }, { dossier: { hours: 24 } }, { dossier: false }, quiet({})],
  ])
    expect(isTaken(options), JSON.stringify(options)).toBe(true);
  for (const options of [
    ...[storm({ within: "59s" }), storm({ within: "25h" }), storm({ openings: 1 }), storm({ openings: 1_001 })],
    ...[{ hold: "25h" }, { dossier: { hours: 0 } }, { dossier: { hours: 25 } }, { dossier: true }],
    ...[quiet({ to: "22:00" }), quiet({ from: "24:00" }), quiet({ priorities: [] }), quiet({ days: [] })],
  ])
    expect(isTaken(options), JSON.stringify(options)).toBe(false);
});
