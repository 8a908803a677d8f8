import { describe, expect, test } from "vitest";
import type { Receiver } from "#connectors/shared/receiver/receiver.ts";
import { ConfigError, Rejected, Retryable, Throttled } from "#src/core/errors/errors.ts";
import { failAfter, noticeBoard } from "./notice-board.ts";
import { alarm, receiving, START } from "./trial.ts";

const SORTS: readonly Receiver["opensAgain"][] = ["same", "findable", "another"];

describe("one incident per alarm", () => {
  test("sends one message for several events of an alarm", async () => {
    const trial = receiving();
    const one = alarm(1);
    await trial.offer(one.raised(), one.acknowledged(), one.changed("Colder still"));
    expect(trial.board.said).toEqual(["open active Alarm 1, Building 1"]);
  });

  test("sends nothing for the end of an alarm that was never opened", async () => {
    const trial = receiving();
    await trial.offer(alarm(1).resolved(3), alarm(2).acknowledged(), alarm(3).vanished(4));
    expect(trial.board.said).toEqual([]);
  });

  test("marks a vanished alarm as unknown and keeps it open", async () => {
    const trial = receiving();
    const one = alarm(1);
    await trial.offerEach(one.raised(), one.vanished(4));
    expect(trial.board.notes[0]).toMatchObject({ isOpen: true });
    expect(trial.board.said.at(-1)).toBe("update unknown Alarm 1, Building 1");
  });

  test("does not reopen an ended alarm after a later change", async () => {
    const trial = receiving();
    const one = alarm(1);
    await trial.offerEach(one.raised(), one.resolved(3), one.acknowledged(4));
    expect(trial.board.said).toHaveLength(2);
  });

  test("opens alarms that were active at the first poll only with the option initial", async () => {
    for (const initial of [false, true]) {
      const trial = receiving(noticeBoard("same"), { initial });
      const one = alarm(1);
      await trial.offerEach(one.raised(true), one.resolved(3));
      expect(trial.board.notes).toHaveLength(initial ? 1 : 0);
    }
  });

  test("ignores events that concern no alarm", async () => {
    const { sampleOfEveryKind } = await import("../sample-events.ts");
    const trial = receiving();
    const others = sampleOfEveryKind().filter(({ type }) => !type.startsWith("alarm-"));
    expect(await trial.offer(...others)).toEqual({ rejected: [] });
    expect(trial.board.said).toEqual([]);
    expect(await trial.memory.all()).toEqual(new Map());
  });

  test("opens a removed incident again while its alarm is active, and not after its end", async () => {
    const trial = receiving();
    const one = alarm(1);
    await trial.offer(one.raised());
    trial.board.notes.length = 0;
    await trial.offer(one.acknowledged());
    expect(trial.board.notes).toHaveLength(1);
    trial.board.notes.length = 0;
    await trial.offer(one.resolved(5));
    expect(trial.board.notes).toHaveLength(0);
  });

  test("forgets an ended incident after 30 days", async () => {
    const trial = receiving();
    await trial.offerEach(alarm(1).raised(), alarm(1).resolved(3));
    await trial.pass(29 * 86_400_000, 3_600_000);
    expect((await trial.memory.all()).size).toBe(1);
    await trial.pass(2 * 86_400_000, 3_600_000);
    expect((await trial.memory.all()).size).toBe(0);
  });
});

describe("a crash between request and commit", () => {
  class Crash extends Error {}

  test.each(
    SORTS.flatMap((sort) => [1, 2, 3, 4, 5].flatMap((n) => [true, false].map((done) => [sort, n, done] as const))),
  )(
    "of a receiver where a second opening is %s leaves one incident after a crash at call %i (carried out: %s)",
    async (sort, n, isDone) => {
      const trial = receiving(noticeBoard(sort));
      const one = alarm(1);
      let calls = 0;
      trial.board.trouble = (done) => {
        if (done === isDone) calls += 1;
        if (done === isDone && calls === n) throw new Crash();
      };
      const isOpen = () => trial.board.notes.some((note) => note.isOpen);
      for (const event of [one.raised(), one.acknowledged(), one.resolved(3), one.retriggered(4), one.resolved(5)]) {
        const crashed = await trial.offer(event).then(
          () => false,
          () => true,
        );
        if (crashed) trial.restart();
        if (crashed) await trial.offerAgain([event]);
        if (sort !== "another") expect(isOpen()).toBe(event.type !== "alarm-resolved");
      }
      expect(calls).toBeGreaterThanOrEqual(n);
      expect(trial.board.notes.length).toBeLessThanOrEqual(sort === "another" ? 3 : 1);
      expect(trial.board.said.at(-1)).toBe("close resolved Alarm 1, Building 1");
    },
  );

  test("does not repeat an unverified opening while the search fails", async () => {
    const trial = receiving();
    const one = alarm(1);
    trial.board.trouble = failAfter(new Retryable("The answer was lost."));
    await expect(trial.offer(one.raised())).rejects.toThrow("lost");
    trial.board.trouble = () => undefined;
    trial.board.isSearchable = false;
    await expect(trial.offerAgain([one.raised()])).rejects.toThrow("search");
    trial.board.isSearchable = true;
    await trial.offerAgain([one.raised()]);
    expect(trial.board.notes).toHaveLength(1);
  });

  test.each([
    ["throttled", new Throttled("Wait.", 1_000)],
    ["refused", new Rejected("No.")],
    ["not accepted", new ConfigError("No.")],
  ])("opens an incident again without a search when the first attempt was %s", async (_, failure) => {
    const trial = receiving();
    const one = alarm(1);
    trial.board.trouble = (isDone) => {
      if (!isDone) throw failure;
    };
    await trial.offer(one.raised()).catch(() => undefined);
    trial.board.trouble = () => undefined;
    await trial.offerAgain([one.raised()]);
    expect(trial.board.notes).toHaveLength(1);
    expect(trial.board.finds()).toBe(0);
  });

  test("searches for an opening after a proxy's 503, because the opening may have succeeded", async () => {
    const trial = receiving();
    const one = alarm(1);
    trial.board.trouble = failAfter(new Throttled("Away.", 1_000, { scope: "everything" }));
    await expect(trial.offer(one.raised())).rejects.toThrow("Away");
    trial.board.trouble = () => undefined;
    await trial.offerAgain([one.raised()]);
    expect(trial.board.finds()).toBe(1);
    expect(trial.board.notes).toHaveLength(1);
  });

  test("delays only the incident whose search has no conclusive result yet", async () => {
    const trial = receiving();
    const [one, two] = [alarm(1), alarm(2)];
    const asked: number[] = [];
    const { find } = trial.board;
    trial.board.find = (told, sinceMs, signal) => {
      asked.push((sinceMs - START) / 1_000);
      const leftMs = sinceMs + 60_000 - trial.clock.now();
      if (leftMs > 0) return Promise.resolve({ againInMs: leftMs });
      return find?.(told, sinceMs, signal) ?? Promise.resolve(null);
    };
    for (const isDone of [false, true]) {
      trial.board.trouble = (done) => {
        if (done === isDone) throw new Retryable("The answer was lost.");
      };
      await trial.clock.advance(70_000);
      await (isDone ? trial.offerAgain([one.raised()]) : trial.offer(one.raised())).catch(() => undefined);
    }
    trial.board.trouble = () => undefined;
    await trial.offerAgain([one.raised()]);
    await trial.offer(two.raised());
    expect(trial.board.said.at(-1)).toBe("open active Alarm 2, Building 1");
    await trial.pass(50_000);
    expect(asked).toEqual([70, 140]);
    await trial.pass(20_000);
    expect(asked).toEqual([70, 140, 140]);
    await trial.offer(one.resolved(5));
    expect(trial.board.notes.map(({ isOpen }) => isOpen)).toEqual([false, true]);
  });

  test("opens an incident again with its first identity", async () => {
    const asked: unknown[] = [];
    const identify: Receiver["identify"] = ({ text }) => ({ label: text.fields[1]?.text });
    const trial = receiving(noticeBoard("same", { identify }));
    const { open } = trial.board;
    trial.board.open = async (told, signal, identity) => {
      asked.push(identity);
      return { ...(await open(told, signal)), ref: identity };
    };
    const one = alarm(1, { priority: "B" });
    const urgent = alarm(1, { priority: "A" });
    trial.board.trouble = failAfter(new Crash());
    await expect(trial.offer(one.raised())).rejects.toThrow(Crash);
    trial.board.trouble = () => undefined;
    trial.restart();
    await trial.offerEach(urgent.changed("More urgent now"), urgent.resolved(3), urgent.retriggered(4));
    expect(asked).toEqual(Array(3).fill({ label: "B" }));
  });
});

describe("failures of the receiver or the store", () => {
  test("reject one alarm and open the others", async () => {
    const trial = receiving();
    trial.board.trouble = (isDone, _, told) => {
      if (!isDone && told.text.title.startsWith("Alarm 2")) throw new Rejected("A field is missing.");
    };
    const all = [1, 2, 3].map((n) => alarm(n));
    const receipt = await trial.offer(...all.map((one) => one.raised()));
    expect(receipt).toEqual({ rejected: [{ index: 1, reason: "A field is missing." }] });
    expect(trial.board.notes).toHaveLength(2);
    await trial.pass(60_000);
    expect(trial.board.said).toHaveLength(2);
    trial.board.trouble = () => undefined;
    await trial.offer(all[1]?.acknowledged() ?? alarm(2).acknowledged());
    expect(trial.board.notes).toHaveLength(3);
  });

  test("send nothing when the state cannot be stored", async () => {
    const trial = receiving();
    const { commit } = trial.store;
    trial.store.commit = () => Promise.reject(new Error("The disk is full."));
    await expect(trial.offer(alarm(1).raised())).rejects.toThrow("disk");
    expect(trial.board.said).toEqual([]);
    trial.store.commit = commit;
    await trial.offerAgain([alarm(1).raised()]);
    expect(trial.board.said).toHaveLength(1);
  });
});

test("counts a redelivered return of an alarm only once", async () => {
  const trial = receiving();
  const one = alarm(1);
  await trial.offerEach(one.raised(), one.resolved(3), one.retriggered(4));
  await trial.offerAgain([one.retriggered(4)]);
  const changes: string[] = [];
  trial.board.trouble = (isDone, _, told) => {
    if (!isDone) changes.push(told.change);
  };
  await trial.offer(one.acknowledged(5));
  expect(changes).toEqual(["acknowledged"]);
});

describe("a receiver that forgets incidents", () => {
  test("gets open incidents repeatedly, and closed incidents for a while", async () => {
    const trial = receiving(noticeBoard("same", { repeatMs: 60_000, repeatClosedMs: 300_000 }));
    const one = alarm(1);
    await trial.offer(one.raised());
    await trial.pass(10 * 60_000);
    expect(trial.board.said.filter((line) => line.startsWith("update"))).toHaveLength(10);
    await trial.offer(one.resolved(10));
    await trial.pass(20 * 60_000);
    expect(trial.board.said.filter((line) => line.startsWith("close"))).toHaveLength(5);
  });
});

test("opens, changes and closes a test incident and stores nothing", async () => {
  const trial = receiving();
  const lines: string[] = [];
  const keys = new Set<string>();
  trial.board.trouble = (isDone, _, told) => {
    keys.add(told.key);
    if (isDone) void trial.clock.advance(1_000);
  };
  await trial.test((line) => lines.push(line));
  expect(lines).toEqual(["opened N-1", "changed N-1", "closed N-1"]);
  expect(trial.board.said.map((line) => line.split(" ")[0])).toEqual(["open", "update", "close"]);
  expect(trial.board.said[0]).toContain("Test alarm from Plenum");
  expect(keys.size).toBe(1);
  expect((await trial.memory.all()).size).toBe(0);
});
