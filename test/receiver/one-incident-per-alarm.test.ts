import { describe, expect, test } from "vitest";
import type { AlarmReceiver } from "#connectors/shared/receiver/receiver-interface.ts";
import { ConfigError, Rejected, Retryable, Throttled } from "#src/core/errors/errors.ts";
import { createSinkTest, START, sampleAlarm } from "./receiver-harness.ts";
import { createNoticeBoard } from "./receiver-stub.ts";

const KINDS: readonly AlarmReceiver["repeatedOpenEffect"][] = ["same", "findable", "another"];

describe("one incident per alarm", () => {
  test("sends one message for several events of the same alarm", async () => {
    const sinkTest = createSinkTest();
    const alarm = sampleAlarm(1);
    await sinkTest.offer(alarm.raised(), alarm.acknowledged(), alarm.changed("Colder still"));
    expect(sinkTest.board.said).toEqual(["open active Alarm 1, Building 1"]);
  });

  test("sends nothing for the end of an alarm whose beginning was not sent", async () => {
    const sinkTest = createSinkTest();
    await sinkTest.offer(sampleAlarm(1).resolved(3), sampleAlarm(2).acknowledged(), sampleAlarm(3).vanished(4));
    expect(sinkTest.board.said).toEqual([]);
  });

  test("updates the incident of a vanished alarm to the status unknown and keeps the incident open", async () => {
    const sinkTest = createSinkTest();
    const alarm = sampleAlarm(1);
    await sinkTest.offerEach(alarm.raised(), alarm.vanished(4));
    expect(sinkTest.board.notes[0]).toMatchObject({ isOpen: true });
    expect(sinkTest.board.said.at(-1)).toBe("update unknown Alarm 1, Building 1");
  });

  test("does not reopen the incident of an ended alarm when the alarm is acknowledged later", async () => {
    const sinkTest = createSinkTest();
    const alarm = sampleAlarm(1);
    await sinkTest.offerEach(alarm.raised(), alarm.resolved(3), alarm.acknowledged(4));
    expect(sinkTest.board.said).toHaveLength(2);
  });

  test("sends alarms that were active at the first poll only with the option initial", async () => {
    for (const initial of [false, true]) {
      const sinkTest = createSinkTest(createNoticeBoard("same"), { initial });
      const alarm = sampleAlarm(1);
      await sinkTest.offerEach(alarm.raised(true), alarm.resolved(3));
      expect(sinkTest.board.notes).toHaveLength(initial ? 1 : 0);
    }
  });

  test("ignores events that concern no alarm", async () => {
    const { sampleOfEveryKind } = await import("../sample-events.ts");
    const sinkTest = createSinkTest();
    const otherEvents = sampleOfEveryKind().filter(({ type }) => !type.startsWith("alarm-"));
    expect(await sinkTest.offer(...otherEvents)).toEqual({ rejected: [] });
    expect(sinkTest.board.said).toEqual([]);
    expect(await sinkTest.memory.all()).toEqual(new Map());
  });

  test("opens an incident again that the receiver deleted, but not after the end of its alarm", async () => {
    const sinkTest = createSinkTest();
    const alarm = sampleAlarm(1);
    await sinkTest.offer(alarm.raised());
    sinkTest.board.notes.length = 0;
    await sinkTest.offer(alarm.acknowledged());
    expect(sinkTest.board.notes).toHaveLength(1);
    sinkTest.board.notes.length = 0;
    await sinkTest.offer(alarm.resolved(5));
    expect(sinkTest.board.notes).toHaveLength(0);
  });

  test("deletes the stored state of an ended incident after 30 days", async () => {
    const sinkTest = createSinkTest();
    await sinkTest.offerEach(sampleAlarm(1).raised(), sampleAlarm(1).resolved(3));
    await sinkTest.passTime(29 * 86_400_000, 3_600_000);
    expect((await sinkTest.memory.all()).size).toBe(1);
    await sinkTest.passTime(2 * 86_400_000, 3_600_000);
    expect((await sinkTest.memory.all()).size).toBe(0);
  });
});

describe("a crash between a request to the receiver and the commit of the sink", () => {
  class Crash extends Error {}

  test.each(
    KINDS.flatMap((kind) => [1, 2, 3, 4, 5].flatMap((n) => [true, false].map((done) => [kind, n, done] as const))),
  )("leaves one incident (repeated opening: %s incident, crash at call %i, executed: %s)", async (sort, n, isDone) => {
    const sinkTest = createSinkTest(createNoticeBoard(sort));
    const alarm = sampleAlarm(1);
    let callCount = 0;
    sinkTest.board.failCall = (done) => {
      if (done === isDone) callCount += 1;
      if (done === isDone && callCount === n) throw new Crash();
    };
    const isOpen = () => sinkTest.board.notes.some((note) => note.isOpen);
    const ends = [alarm.resolved(3), alarm.retriggered(4), alarm.resolved(5)];
    for (const event of [alarm.raised(), alarm.acknowledged(), ...ends]) {
      const crashed = await sinkTest.offer(event).then(
        () => false,
        () => true,
      );
      if (crashed) sinkTest.restart();
      if (crashed) await sinkTest.offerAgain([event]);
      if (sort !== "another") expect(isOpen()).toBe(event.type !== "alarm-resolved");
    }
    expect(callCount).toBeGreaterThanOrEqual(n);
    expect(sinkTest.board.notes.length).toBeLessThanOrEqual(sort === "another" ? 3 : 1);
    expect(sinkTest.board.said.at(-1)).toBe("close resolved Alarm 1, Building 1");
  });

  test("does not open an incident twice while the search for an unverified opening fails", async () => {
    const sinkTest = createSinkTest();
    const alarm = sampleAlarm(1);
    await sinkTest.offerWithLostAnswer(alarm.raised());
    sinkTest.board.isSearchable = false;
    await expect(sinkTest.offerAgain([alarm.raised()])).rejects.toThrow("search");
    sinkTest.board.isSearchable = true;
    await sinkTest.offerAgain([alarm.raised()]);
    expect(sinkTest.board.notes).toHaveLength(1);
  });

  test.each([
    ["throttled", new Throttled("Wait.", 1_000)],
    ["refused", new Rejected("No.")],
    ["not accepted", new ConfigError("No.")],
  ])("needs no search before the second opening when the response to the first was %s", async (_, failure) => {
    const sinkTest = createSinkTest();
    const alarm = sampleAlarm(1);
    sinkTest.board.failCall = (isDone) => {
      if (!isDone) throw failure;
    };
    await sinkTest.offer(alarm.raised()).catch(() => undefined);
    sinkTest.board.failCall = () => undefined;
    await sinkTest.offerAgain([alarm.raised()]);
    expect(sinkTest.board.notes).toHaveLength(1);
    expect(sinkTest.board.finds()).toBe(0);
  });

  test("searches for the incident after a proxy's 503, because the server may have opened it", async () => {
    const sinkTest = createSinkTest();
    const alarm = sampleAlarm(1);
    await sinkTest.offerWithLostAnswer(alarm.raised(), new Throttled("Away.", 1_000, { scope: "everything" }));
    await sinkTest.offerAgain([alarm.raised()]);
    expect(sinkTest.board.finds()).toBe(1);
    expect(sinkTest.board.notes).toHaveLength(1);
  });

  test("delays only the incident whose search has no clear result yet, and sends the other incidents", async () => {
    const sinkTest = createSinkTest();
    const [alarm, two] = [sampleAlarm(1), sampleAlarm(2)];
    const passedValues: number[] = [];
    const { find } = sinkTest.board;
    sinkTest.board.find = (told, sinceMs, signal) => {
      passedValues.push((sinceMs - START) / 1_000);
      const leftMs = sinceMs + 60_000 - sinkTest.clock.now();
      if (leftMs > 0) return Promise.resolve({ retryInMs: leftMs });
      return find?.(told, sinceMs, signal) ?? Promise.resolve(null);
    };
    for (const isDone of [false, true]) {
      sinkTest.board.failCall = (done) => {
        if (done === isDone) throw new Retryable("The answer was lost.");
      };
      await sinkTest.clock.advance(70_000);
      await (isDone ? sinkTest.offerAgain([alarm.raised()]) : sinkTest.offer(alarm.raised())).catch(() => undefined);
    }
    sinkTest.board.failCall = () => undefined;
    await sinkTest.offerAgain([alarm.raised()]);
    await sinkTest.offer(two.raised());
    expect(sinkTest.board.said.at(-1)).toBe("open active Alarm 2, Building 1");
    await sinkTest.passTime(50_000);
    expect(passedValues).toEqual([70, 140]);
    await sinkTest.passTime(20_000);
    expect(passedValues).toEqual([70, 140, 140]);
    await sinkTest.offer(alarm.resolved(5));
    expect(sinkTest.board.notes.map(({ isOpen }) => isOpen)).toEqual([false, true]);
  });

  test("repeats a failed opening with the incident key of the first attempt", async () => {
    const passedValues: unknown[] = [];
    const identify: AlarmReceiver["identify"] = ({ text }) => ({ label: text.fields[1]?.text });
    const sinkTest = createSinkTest(createNoticeBoard("same", { identify }));
    const { open } = sinkTest.board;
    sinkTest.board.open = async (told, signal, identity) => {
      passedValues.push(identity);
      return { ...(await open(told, signal)), ref: identity };
    };
    const alarm = sampleAlarm(1, { priority: "B" });
    const urgent = sampleAlarm(1, { priority: "A" });
    await sinkTest.offerWithLostAnswer(alarm.raised(), new Crash());
    sinkTest.restart();
    await sinkTest.offerEach(urgent.changed("More urgent now"), urgent.resolved(3), urgent.retriggered(4));
    expect(passedValues).toEqual(Array(3).fill({ label: "B" }));
  });
});

describe("failures of the receiver or the store", () => {
  test("do not stop other alarms from being sent when the receiver rejects one alarm", async () => {
    const sinkTest = createSinkTest();
    sinkTest.board.failCall = (isDone, _, told) => {
      if (!isDone && told.text.title.startsWith("Alarm 2")) throw new Rejected("A field is missing.");
    };
    const all = [1, 2, 3].map((n) => sampleAlarm(n));
    const receipt = await sinkTest.offer(...all.map((alarm) => alarm.raised()));
    expect(receipt).toEqual({ rejected: [{ index: 1, reason: "A field is missing." }] });
    expect(sinkTest.board.notes).toHaveLength(2);
    await sinkTest.passTime(60_000);
    expect(sinkTest.board.said).toHaveLength(2);
    sinkTest.board.failCall = () => undefined;
    await sinkTest.offer(all[1]?.acknowledged() ?? sampleAlarm(2).acknowledged());
    expect(sinkTest.board.notes).toHaveLength(3);
  });

  test("send nothing to the receiver until the state of the incident can be stored", async () => {
    const sinkTest = createSinkTest();
    const { commit } = sinkTest.store;
    sinkTest.store.commit = () => Promise.reject(new Error("The disk is full."));
    await expect(sinkTest.offer(sampleAlarm(1).raised())).rejects.toThrow("disk");
    expect(sinkTest.board.said).toEqual([]);
    sinkTest.store.commit = commit;
    await sinkTest.offerAgain([sampleAlarm(1).raised()]);
    expect(sinkTest.board.said).toHaveLength(1);
  });
});

test("applies an alarm-retriggered event that is delivered twice only once", async () => {
  const sinkTest = createSinkTest();
  const alarm = sampleAlarm(1);
  await sinkTest.offerEach(alarm.raised(), alarm.resolved(3), alarm.retriggered(4));
  await sinkTest.offerAgain([alarm.retriggered(4)]);
  const changes: string[] = [];
  sinkTest.board.failCall = (isDone, _, told) => {
    if (!isDone) changes.push(told.change);
  };
  await sinkTest.offer(alarm.acknowledged(5));
  expect(changes).toEqual(["acknowledged"]);
});

describe("a receiver that forgets incidents", () => {
  test("is sent an open incident again every minute, and a closed incident again for five minutes", async () => {
    const sinkTest = createSinkTest(
      createNoticeBoard("same", { resendIntervalMs: 60_000, resendAfterCloseMs: 300_000 }),
    );
    const alarm = sampleAlarm(1);
    await sinkTest.offer(alarm.raised());
    await sinkTest.passTime(10 * 60_000);
    expect(sinkTest.board.said.filter((line) => line.startsWith("update"))).toHaveLength(10);
    await sinkTest.offer(alarm.resolved(10));
    await sinkTest.passTime(20 * 60_000);
    expect(sinkTest.board.said.filter((line) => line.startsWith("close"))).toHaveLength(5);
  });
});

test("opens, changes and closes a test incident and stores nothing", async () => {
  const sinkTest = createSinkTest();
  const lines: string[] = [];
  const keys = new Set<string>();
  sinkTest.board.failCall = (isDone, _, told) => {
    keys.add(told.key);
    if (isDone) void sinkTest.clock.advance(1_000);
  };
  await sinkTest.test((line) => lines.push(line));
  expect(lines).toEqual(["opened N-1", "changed N-1", "closed N-1"]);
  expect(sinkTest.board.said.map((line) => line.split(" ")[0])).toEqual(["open", "update", "close"]);
  expect(sinkTest.board.said[0]).toContain("Test alarm from Plenum");
  expect(keys.size).toBe(1);
  expect((await sinkTest.memory.all()).size).toBe(0);
});
