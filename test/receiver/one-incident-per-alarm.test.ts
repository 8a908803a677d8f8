import { describe, expect, test } from "vitest";
import type { AlarmReceiver } from "#connectors/shared/receiver/receiver-interface.ts";
import { ConfigError, Rejected, Retryable, Throttled } from "#src/core/errors/errors.ts";
import { createHarness, START, sampleAlarm } from "./receiver-harness.ts";
import { createReceiverStub } from "./receiver-stub.ts";

const KINDS: readonly AlarmReceiver["repeatedOpenEffect"][] = ["same", "findable", "another"];

describe("one incident per alarm", () => {
  test("sends one message for several events of the same alarm", async () => {
    const sinkTest = createHarness();
    const alarm = sampleAlarm(1);
    await sinkTest.offer(alarm.raised(), alarm.acknowledged(), alarm.changed("Colder still"));
    expect(sinkTest.stub.calls).toEqual(["open active Alarm 1, Building 1"]);
  });

  test("sends nothing for the end of an alarm whose beginning was not sent", async () => {
    const sinkTest = createHarness();
    await sinkTest.offer(sampleAlarm(1).resolved(3), sampleAlarm(2).acknowledged(), sampleAlarm(3).vanished(4));
    expect(sinkTest.stub.calls).toEqual([]);
  });

  test("updates the incident of a vanished alarm to the status unknown and keeps the incident open", async () => {
    const sinkTest = createHarness();
    const alarm = sampleAlarm(1);
    await sinkTest.offerEach(alarm.raised(), alarm.vanished(4));
    expect(sinkTest.stub.incidents[0]).toMatchObject({ isOpen: true });
    expect(sinkTest.stub.calls.at(-1)).toBe("update unknown Alarm 1, Building 1");
  });

  test("does not reopen the incident of an ended alarm when the alarm is acknowledged later", async () => {
    const sinkTest = createHarness();
    const alarm = sampleAlarm(1);
    await sinkTest.offerEach(alarm.raised(), alarm.resolved(3), alarm.acknowledged(4));
    expect(sinkTest.stub.calls).toHaveLength(2);
  });

  test("sends alarms that were active at the first poll only with the option initial", async () => {
    for (const initial of [false, true]) {
      const sinkTest = createHarness(createReceiverStub("same"), { initial });
      const alarm = sampleAlarm(1);
      await sinkTest.offerEach(alarm.raised(true), alarm.resolved(3));
      expect(sinkTest.stub.incidents).toHaveLength(initial ? 1 : 0);
    }
  });

  test("ignores events that concern no alarm", async () => {
    const { sampleOfEveryKind } = await import("../sample-events.ts");
    const sinkTest = createHarness();
    const otherEvents = sampleOfEveryKind().filter(({ type }) => !type.startsWith("alarm-"));
    expect(await sinkTest.offer(...otherEvents)).toEqual({ rejected: [] });
    expect(sinkTest.stub.calls).toEqual([]);
    expect(await sinkTest.sinkState.all()).toEqual(new Map());
  });

  test("opens an incident again that the receiver deleted, but not after the end of its alarm", async () => {
    const sinkTest = createHarness();
    const alarm = sampleAlarm(1);
    await sinkTest.offer(alarm.raised());
    sinkTest.stub.incidents.length = 0;
    await sinkTest.offer(alarm.acknowledged());
    expect(sinkTest.stub.incidents).toHaveLength(1);
    sinkTest.stub.incidents.length = 0;
    await sinkTest.offer(alarm.resolved(5));
    expect(sinkTest.stub.incidents).toHaveLength(0);
  });

  test("deletes the stored state of an ended incident after 30 days", async () => {
    const sinkTest = createHarness();
    await sinkTest.offerEach(sampleAlarm(1).raised(), sampleAlarm(1).resolved(3));
    await sinkTest.passTime(29 * 86_400_000, 3_600_000);
    expect((await sinkTest.sinkState.all()).size).toBe(1);
    await sinkTest.passTime(2 * 86_400_000, 3_600_000);
    expect((await sinkTest.sinkState.all()).size).toBe(0);
  });
});

describe("a crash between a request to the receiver and the commit of the sink", () => {
  class Crash extends Error {}

  test.each(
    KINDS.flatMap((kind) => [1, 2, 3, 4, 5].flatMap((n) => [true, false].map((done) => [kind, n, done] as const))),
  )("leaves one incident (repeated opening: %s incident, crash at call %i, executed: %s)", async (sort, n, isDone) => {
    const sinkTest = createHarness(createReceiverStub(sort));
    const alarm = sampleAlarm(1);
    let callCount = 0;
    sinkTest.stub.failCall = (done) => {
      if (done === isDone) callCount += 1;
      if (done === isDone && callCount === n) throw new Crash();
    };
    const isOpen = () => sinkTest.stub.incidents.some((note) => note.isOpen);
    const ends = [alarm.resolved(3), alarm.retriggered(4), alarm.resolved(5)];
    for (const event of [alarm.raised(), alarm.acknowledged(), ...ends]) {
      const crashed = await sinkTest.offer(event).then(
        () => false,
        () => true,
      );
      if (crashed) sinkTest.restart();
      if (crashed) await sinkTest.reoffer([event]);
      if (sort !== "another") expect(isOpen()).toBe(event.type !== "alarm-resolved");
    }
    expect(callCount).toBeGreaterThanOrEqual(n);
    expect(sinkTest.stub.incidents.length).toBeLessThanOrEqual(sort === "another" ? 3 : 1);
    expect(sinkTest.stub.calls.at(-1)).toBe("close resolved Alarm 1, Building 1");
  });

  test("does not open an incident twice while the search for an unverified opening fails", async () => {
    const sinkTest = createHarness();
    const alarm = sampleAlarm(1);
    await sinkTest.offerUnanswered(alarm.raised());
    sinkTest.stub.isSearchable = false;
    await expect(sinkTest.reoffer([alarm.raised()])).rejects.toThrow("search");
    sinkTest.stub.isSearchable = true;
    await sinkTest.reoffer([alarm.raised()]);
    expect(sinkTest.stub.incidents).toHaveLength(1);
  });

  test.each([
    ["throttled", new Throttled("Wait.", 1_000)],
    ["refused", new Rejected("No.")],
    ["not accepted", new ConfigError("No.")],
  ])("needs no search before the second opening when the response to the first was %s", async (_, failure) => {
    const sinkTest = createHarness();
    const alarm = sampleAlarm(1);
    sinkTest.stub.failCall = (isDone) => {
      if (!isDone) throw failure;
    };
    await sinkTest.offer(alarm.raised()).catch(() => undefined);
    sinkTest.stub.failCall = () => undefined;
    await sinkTest.reoffer([alarm.raised()]);
    expect(sinkTest.stub.incidents).toHaveLength(1);
    expect(sinkTest.stub.findCount()).toBe(0);
  });

  test("searches for the incident after a proxy's 503, because the server may have opened it", async () => {
    const sinkTest = createHarness();
    const alarm = sampleAlarm(1);
    await sinkTest.offerUnanswered(alarm.raised(), new Throttled("Away.", 1_000, { scope: "everything" }));
    await sinkTest.reoffer([alarm.raised()]);
    expect(sinkTest.stub.findCount()).toBe(1);
    expect(sinkTest.stub.incidents).toHaveLength(1);
  });

  test("delays only the incident whose search has no clear result yet, and sends the other incidents", async () => {
    const sinkTest = createHarness();
    const [alarm, two] = [sampleAlarm(1), sampleAlarm(2)];
    const passedValues: number[] = [];
    const { find } = sinkTest.stub;
    sinkTest.stub.find = (message, sinceMs, signal) => {
      passedValues.push((sinceMs - START) / 1_000);
      const leftMs = sinceMs + 60_000 - sinkTest.clock.now();
      if (leftMs > 0) return Promise.resolve({ retryInMs: leftMs });
      return find?.(message, sinceMs, signal) ?? Promise.resolve(null);
    };
    for (const isDone of [false, true]) {
      sinkTest.stub.failCall = (done) => {
        if (done === isDone) throw new Retryable("The response was lost.");
      };
      await sinkTest.clock.advance(70_000);
      await (isDone ? sinkTest.reoffer([alarm.raised()]) : sinkTest.offer(alarm.raised())).catch(() => undefined);
    }
    sinkTest.stub.failCall = () => undefined;
    await sinkTest.reoffer([alarm.raised()]);
    await sinkTest.offer(two.raised());
    expect(sinkTest.stub.calls.at(-1)).toBe("open active Alarm 2, Building 1");
    await sinkTest.passTime(50_000);
    expect(passedValues).toEqual([70, 140]);
    await sinkTest.passTime(20_000);
    expect(passedValues).toEqual([70, 140, 140]);
    await sinkTest.offer(alarm.resolved(5));
    expect(sinkTest.stub.incidents.map(({ isOpen }) => isOpen)).toEqual([false, true]);
  });

  test("repeats a failed opening with the incident key of the first attempt", async () => {
    const passedValues: unknown[] = [];
    const identify: AlarmReceiver["identify"] = ({ text }) => ({ label: text.fields[1]?.text });
    const sinkTest = createHarness(createReceiverStub("same", { identify }));
    const { open } = sinkTest.stub;
    sinkTest.stub.open = async (message, signal, identity) => {
      passedValues.push(identity);
      return { ...(await open(message, signal)), ref: identity };
    };
    const alarm = sampleAlarm(1, { priority: "B" });
    const urgent = sampleAlarm(1, { priority: "A" });
    await sinkTest.offerUnanswered(alarm.raised(), new Crash());
    sinkTest.restart();
    await sinkTest.offerEach(urgent.changed("More urgent now"), urgent.resolved(3), urgent.retriggered(4));
    expect(passedValues).toEqual(Array(3).fill({ label: "B" }));
  });
});

describe("failures of the receiver or the store", () => {
  test("do not stop other alarms from being sent when the receiver rejects one alarm", async () => {
    const sinkTest = createHarness();
    sinkTest.stub.failCall = (isDone, _, message) => {
      if (!isDone && message.text.title.startsWith("Alarm 2")) throw new Rejected("A field is missing.");
    };
    const all = [1, 2, 3].map((n) => sampleAlarm(n));
    const receipt = await sinkTest.offer(...all.map((alarm) => alarm.raised()));
    expect(receipt).toEqual({ rejected: [{ index: 1, reason: "A field is missing." }] });
    expect(sinkTest.stub.incidents).toHaveLength(2);
    await sinkTest.passTime(60_000);
    expect(sinkTest.stub.calls).toHaveLength(2);
    sinkTest.stub.failCall = () => undefined;
    await sinkTest.offer(all[1]?.acknowledged() ?? sampleAlarm(2).acknowledged());
    expect(sinkTest.stub.incidents).toHaveLength(3);
  });

  test("send nothing to the receiver until the state of the incident can be stored", async () => {
    const sinkTest = createHarness();
    const { commit } = sinkTest.store;
    sinkTest.store.commit = () => Promise.reject(new Error("The disk is full."));
    await expect(sinkTest.offer(sampleAlarm(1).raised())).rejects.toThrow("disk");
    expect(sinkTest.stub.calls).toEqual([]);
    sinkTest.store.commit = commit;
    await sinkTest.reoffer([sampleAlarm(1).raised()]);
    expect(sinkTest.stub.calls).toHaveLength(1);
  });
});

test("applies an alarm-retriggered event that is delivered twice only once", async () => {
  const sinkTest = createHarness();
  const alarm = sampleAlarm(1);
  await sinkTest.offerEach(alarm.raised(), alarm.resolved(3), alarm.retriggered(4));
  await sinkTest.reoffer([alarm.retriggered(4)]);
  const changes: string[] = [];
  sinkTest.stub.failCall = (isDone, _, message) => {
    if (!isDone) changes.push(message.change);
  };
  await sinkTest.offer(alarm.acknowledged(5));
  expect(changes).toEqual(["acknowledged"]);
});

describe("a receiver that forgets incidents", () => {
  test("is sent an open incident again every minute, and a closed incident again for five minutes", async () => {
    const sinkTest = createHarness(
      createReceiverStub("same", { resendIntervalMs: 60_000, resendAfterCloseMs: 300_000 }),
    );
    const alarm = sampleAlarm(1);
    await sinkTest.offer(alarm.raised());
    await sinkTest.passTime(10 * 60_000);
    expect(sinkTest.stub.calls.filter((line) => line.startsWith("update"))).toHaveLength(10);
    await sinkTest.offer(alarm.resolved(10));
    await sinkTest.passTime(20 * 60_000);
    expect(sinkTest.stub.calls.filter((line) => line.startsWith("close"))).toHaveLength(5);
  });
});

test("opens, changes and closes a test incident and stores nothing", async () => {
  const sinkTest = createHarness();
  const lines: string[] = [];
  const keys = new Set<string>();
  sinkTest.stub.failCall = (isDone, _, message) => {
    keys.add(message.key);
    if (isDone) void sinkTest.clock.advance(1_000);
  };
  await sinkTest.test((line) => lines.push(line));
  expect(lines).toEqual(["opened N-1", "changed N-1", "closed N-1"]);
  expect(sinkTest.stub.calls.map((line) => line.split(" ")[0])).toEqual(["open", "update", "close"]);
  expect(sinkTest.stub.calls[0]).toContain("Test alarm from Plenum");
  expect(keys.size).toBe(1);
  expect((await sinkTest.sinkState.all()).size).toBe(0);
});
