import { describe, expect, test } from "vitest";
import type { AlarmReceiver } from "#connectors/shared/receiver/receiver-interface.ts";
import { ConfigError, Rejected, Retryable, Throttled } from "#src/core/errors/errors.ts";
import { createHarness, START, sampleAlarm } from "./receiver-harness.ts";
import { createStub } from "./receiver-stub.ts";

const KINDS: readonly AlarmReceiver["repeatedOpenEffect"][] = ["same", "findable", "another"];

describe("one incident per alarm", () => {
  test("sends one message for several events of the same alarm", async () => {
    const harness = createHarness();
    const alarm = sampleAlarm(1);
    await harness.offer(alarm.raised(), alarm.acknowledged(), alarm.changed("Colder still"));
    expect(harness.stub.calls).toEqual(["open active Alarm 1, Building 1"]);
  });

  test("sends nothing for the end of an alarm whose beginning was not sent", async () => {
    const harness = createHarness();
    await harness.offer(sampleAlarm(1).resolved(3), sampleAlarm(2).acknowledged(), sampleAlarm(3).vanished(4));
    expect(harness.stub.calls).toEqual([]);
  });

  test("updates the incident of a vanished alarm to the status unknown and keeps the incident open", async () => {
    const harness = createHarness();
    const alarm = sampleAlarm(1);
    await harness.offerEach(alarm.raised(), alarm.vanished(4));
    expect(harness.stub.incidents[0]).toMatchObject({ isOpen: true });
    expect(harness.stub.calls.at(-1)).toBe("update unknown Alarm 1, Building 1");
  });

  test("does not reopen the incident of an ended alarm when the alarm is acknowledged later", async () => {
    const harness = createHarness();
    const alarm = sampleAlarm(1);
    await harness.offerEach(alarm.raised(), alarm.resolved(3), alarm.acknowledged(4));
    expect(harness.stub.calls).toHaveLength(2);
  });

  test("sends alarms that were active at the first poll only with the option initial", async () => {
    for (const initial of [false, true]) {
      const harness = createHarness(createStub("same"), { initial });
      const alarm = sampleAlarm(1);
      await harness.offerEach(alarm.raised(true), alarm.resolved(3));
      expect(harness.stub.incidents).toHaveLength(initial ? 1 : 0);
    }
  });

  test("ignores events that concern no alarm", async () => {
    const { sampleOfEveryKind } = await import("../sample-events.ts");
    const harness = createHarness();
    const otherEvents = sampleOfEveryKind().filter(({ type }) => !type.startsWith("alarm-"));
    expect(await harness.offer(...otherEvents)).toEqual({ rejected: [] });
    expect(harness.stub.calls).toEqual([]);
    expect(await harness.sinkState.all()).toEqual(new Map());
  });

  test("opens an incident again that the receiver deleted, but not after the end of its alarm", async () => {
    const harness = createHarness();
    const alarm = sampleAlarm(1);
    await harness.offer(alarm.raised());
    harness.stub.incidents.length = 0;
    await harness.offer(alarm.acknowledged());
    expect(harness.stub.incidents).toHaveLength(1);
    harness.stub.incidents.length = 0;
    await harness.offer(alarm.resolved(5));
    expect(harness.stub.incidents).toHaveLength(0);
  });

  test("deletes the stored state of an ended incident after 30 days", async () => {
    const harness = createHarness();
    await harness.offerEach(sampleAlarm(1).raised(), sampleAlarm(1).resolved(3));
    await harness.passTime(29 * 86_400_000, 3_600_000);
    expect((await harness.sinkState.all()).size).toBe(1);
    await harness.passTime(2 * 86_400_000, 3_600_000);
    expect((await harness.sinkState.all()).size).toBe(0);
  });
});

describe("a crash between a request to the receiver and the commit of the sink", () => {
  class Crash extends Error {}

  test.each(
    KINDS.flatMap((kind) => [1, 2, 3, 4, 5].flatMap((n) => [true, false].map((done) => [kind, n, done] as const))),
  )("leaves one incident (repeated opening: %s incident, crash at call %i, executed: %s)", async (sort, n, isDone) => {
    const harness = createHarness(createStub(sort));
    const alarm = sampleAlarm(1);
    let callCount = 0;
    harness.stub.failCall = (done) => {
      if (done === isDone) callCount += 1;
      if (done === isDone && callCount === n) throw new Crash();
    };
    const isOpen = () => harness.stub.incidents.some((note) => note.isOpen);
    const ends = [alarm.resolved(3), alarm.retriggered(4), alarm.resolved(5)];
    for (const event of [alarm.raised(), alarm.acknowledged(), ...ends]) {
      const crashed = await harness.offer(event).then(
        () => false,
        () => true,
      );
      if (crashed) harness.restart();
      if (crashed) await harness.reoffer([event]);
      if (sort !== "another") expect(isOpen()).toBe(event.type !== "alarm-resolved");
    }
    expect(callCount).toBeGreaterThanOrEqual(n);
    expect(harness.stub.incidents.length).toBeLessThanOrEqual(sort === "another" ? 3 : 1);
    expect(harness.stub.calls.at(-1)).toBe("close resolved Alarm 1, Building 1");
  });

  test("does not open an incident twice while the search for an unverified opening fails", async () => {
    const harness = createHarness();
    const alarm = sampleAlarm(1);
    await harness.offerUnanswered(alarm.raised());
    harness.stub.isSearchable = false;
    await expect(harness.reoffer([alarm.raised()])).rejects.toThrow("search");
    harness.stub.isSearchable = true;
    await harness.reoffer([alarm.raised()]);
    expect(harness.stub.incidents).toHaveLength(1);
  });

  test.each([
    ["throttled", new Throttled("Wait.", 1_000)],
    ["refused", new Rejected("No.")],
    ["not accepted", new ConfigError("No.")],
  ])("needs no search before the second opening when the response to the first was %s", async (_, failure) => {
    const harness = createHarness();
    const alarm = sampleAlarm(1);
    harness.stub.failCall = (isDone) => {
      if (!isDone) throw failure;
    };
    await harness.offer(alarm.raised()).catch(() => undefined);
    harness.stub.failCall = () => undefined;
    await harness.reoffer([alarm.raised()]);
    expect(harness.stub.incidents).toHaveLength(1);
    expect(harness.stub.findCount()).toBe(0);
  });

  test("searches for the incident after a proxy's 503, because the server may have opened it", async () => {
    const harness = createHarness();
    const alarm = sampleAlarm(1);
    await harness.offerUnanswered(alarm.raised(), new Throttled("Away.", 1_000, { scope: "everything" }));
    await harness.reoffer([alarm.raised()]);
    expect(harness.stub.findCount()).toBe(1);
    expect(harness.stub.incidents).toHaveLength(1);
  });

  test("delays only the incident whose search has no clear result yet, and sends the other incidents", async () => {
    const harness = createHarness();
    const [alarm, two] = [sampleAlarm(1), sampleAlarm(2)];
    const passedValues: number[] = [];
    const { find } = harness.stub;
    harness.stub.find = (message, sinceMs, signal) => {
      passedValues.push((sinceMs - START) / 1_000);
      const leftMs = sinceMs + 60_000 - harness.clock.now();
      if (leftMs > 0) return Promise.resolve({ retryInMs: leftMs });
      return find?.(message, sinceMs, signal) ?? Promise.resolve(null);
    };
    for (const isDone of [false, true]) {
      harness.stub.failCall = (done) => {
        if (done === isDone) throw new Retryable("The response was lost.");
      };
      await harness.clock.advance(70_000);
      await (isDone ? harness.reoffer([alarm.raised()]) : harness.offer(alarm.raised())).catch(() => undefined);
    }
    harness.stub.failCall = () => undefined;
    await harness.reoffer([alarm.raised()]);
    await harness.offer(two.raised());
    expect(harness.stub.calls.at(-1)).toBe("open active Alarm 2, Building 1");
    await harness.passTime(50_000);
    expect(passedValues).toEqual([70, 140]);
    await harness.passTime(20_000);
    expect(passedValues).toEqual([70, 140, 140]);
    await harness.offer(alarm.resolved(5));
    expect(harness.stub.incidents.map(({ isOpen }) => isOpen)).toEqual([false, true]);
  });

  test("repeats a failed opening with the incident key of the first attempt", async () => {
    const passedValues: unknown[] = [];
    const identify: AlarmReceiver["identify"] = ({ text }) => ({ label: text.fields[1]?.text });
    const harness = createHarness(createStub("same", { identify }));
    const { open } = harness.stub;
    harness.stub.open = async (message, signal, identity) => {
      passedValues.push(identity);
      return { ...(await open(message, signal)), ref: identity };
    };
    const alarm = sampleAlarm(1, { priority: "B" });
    const urgent = sampleAlarm(1, { priority: "A" });
    await harness.offerUnanswered(alarm.raised(), new Crash());
    harness.restart();
    await harness.offerEach(urgent.changed("More urgent now"), urgent.resolved(3), urgent.retriggered(4));
    expect(passedValues).toEqual(Array(3).fill({ label: "B" }));
  });
});

describe("failures of the receiver or the store", () => {
  test("do not stop other alarms from being sent when the receiver rejects one alarm", async () => {
    const harness = createHarness();
    harness.stub.failCall = (isDone, _, message) => {
      if (!isDone && message.text.title.startsWith("Alarm 2")) throw new Rejected("A field is missing.");
    };
    const all = [1, 2, 3].map((n) => sampleAlarm(n));
    const receipt = await harness.offer(...all.map((alarm) => alarm.raised()));
    expect(receipt).toEqual({ rejected: [{ index: 1, reason: "A field is missing." }] });
    expect(harness.stub.incidents).toHaveLength(2);
    await harness.passTime(60_000);
    expect(harness.stub.calls).toHaveLength(2);
    harness.stub.failCall = () => undefined;
    await harness.offer(all[1]?.acknowledged() ?? sampleAlarm(2).acknowledged());
    expect(harness.stub.incidents).toHaveLength(3);
  });

  test("send nothing to the receiver until the state of the incident can be stored", async () => {
    const harness = createHarness();
    const { commit } = harness.store;
    harness.store.commit = () => Promise.reject(new Error("The disk is full."));
    await expect(harness.offer(sampleAlarm(1).raised())).rejects.toThrow("disk");
    expect(harness.stub.calls).toEqual([]);
    harness.store.commit = commit;
    await harness.reoffer([sampleAlarm(1).raised()]);
    expect(harness.stub.calls).toHaveLength(1);
  });
});

test("applies an alarm-retriggered event that is delivered twice only once", async () => {
  const harness = createHarness();
  const alarm = sampleAlarm(1);
  await harness.offerEach(alarm.raised(), alarm.resolved(3), alarm.retriggered(4));
  await harness.reoffer([alarm.retriggered(4)]);
  const changes: string[] = [];
  harness.stub.failCall = (isDone, _, message) => {
    if (!isDone) changes.push(message.change);
  };
  await harness.offer(alarm.acknowledged(5));
  expect(changes).toEqual(["acknowledged"]);
});

describe("a receiver that forgets incidents", () => {
  test("is sent an open incident again every minute, and a closed incident again for five minutes", async () => {
    const harness = createHarness(createStub("same", { resendIntervalMs: 60_000, resendAfterCloseMs: 300_000 }));
    const alarm = sampleAlarm(1);
    await harness.offer(alarm.raised());
    await harness.passTime(10 * 60_000);
    expect(harness.stub.calls.filter((line) => line.startsWith("update"))).toHaveLength(10);
    await harness.offer(alarm.resolved(10));
    await harness.passTime(20 * 60_000);
    expect(harness.stub.calls.filter((line) => line.startsWith("close"))).toHaveLength(5);
  });
});

test("opens, changes and closes a test incident and stores nothing", async () => {
  const harness = createHarness();
  const lines: string[] = [];
  const keys = new Set<string>();
  harness.stub.failCall = (isDone, _, message) => {
    keys.add(message.key);
    if (isDone) void harness.clock.advance(1_000);
  };
  await harness.test((line) => lines.push(line));
  expect(lines).toEqual(["opened N-1", "changed N-1", "closed N-1"]);
  expect(harness.stub.calls.map((line) => line.split(" ")[0])).toEqual(["open", "update", "close"]);
  expect(harness.stub.calls[0]).toContain("Test alarm from Plenum");
  expect(keys.size).toBe(1);
  expect((await harness.sinkState.all()).size).toBe(0);
});
