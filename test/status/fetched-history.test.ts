import { describe, expect, test } from "vitest";
import { NoLog } from "#src/core/errors/errors.ts";
import type { TagLog } from "#src/core/model/building.ts";
import { createFetchedHistory, type HistoryRange } from "#src/ui/status/history.ts";
import { createVirtualClock } from "../virtual-clock.ts";

const NOW_MS = Date.parse("2026-11-21T10:00:00.500Z");
const DAY_MS = 86_400_000;

function asked(id: string, more: Partial<HistoryRange> = {}): HistoryRange {
  return { source: "north", id, fromMs: NOW_MS - DAY_MS, toMs: NOW_MS, resolution: "5m", ...more };
}

function fetching() {
  const clock = createVirtualClock(NOW_MS);
  const calls: { query: object; signal: AbortSignal; reply: PromiseWithResolvers<readonly TagLog[]> }[] = [];
  const fetched = createFetchedHistory(clock, (source, query, signal) => {
    if (source !== "north") return null;
    const reply = Promise.withResolvers<readonly TagLog[]>();
    signal.addEventListener("abort", () => reply.reject(signal.reason), { once: true });
    calls.push({ query, signal, reply });
    return reply.promise;
  });
  return { clock, calls, fetched };
}

const log = (id: string): TagLog => ({
  ...{ id, displayName: id, description: null, unit: null },
  measurements: [
    { time: "2026-11-21T09:05:00.000Z", value: true },
    { time: "2026-11-21T09:00:00.000Z", value: 20 },
    { time: "yesterday", value: 1 },
    { time: "2026-11-21T09:10:00.000Z", value: null },
  ],
});

describe("history that a plot asks for", () => {
  test("is ordered once, and good for ten minutes", async () => {
    const { calls, clock, fetched } = fetching();
    expect(fetched.state(asked("1"))).toEqual({ state: "idle", why: null });
    for (let n = 0; n < 5; n++) expect(fetched.request(asked("1")).state).toBe("asked");
    expect(calls).toHaveLength(1);
    expect(calls[0]?.query).toEqual({
      ...{ tagIds: ["1"], resolution: "5m" },
      ...{ from: "2026-11-20T10:00:00Z", to: "2026-11-21T10:00:00Z" },
    });
    const before = fetched.version(asked("1"));
    calls[0]?.reply.resolve([log("1")]);
    await clock.advance(1);
    expect(fetched.request(asked("1"))).toEqual({ state: "idle", why: null });
    expect(fetched.version(asked("1"))).not.toBe(before);
    const at = Date.parse("2026-11-21T09:00:00Z") / 1_000;
    expect(fetched.samples(asked("1"))).toEqual({ times: [at, at + 300, at + 600], values: [20, 1, null] });
    await clock.advance(600_000);
    fetched.request(asked("1"));
    expect(calls).toHaveLength(2);
    // What was there before is shown until the new answer comes.
    expect(fetched.samples(asked("1")).times).toHaveLength(3);
  });

  test("a longer span is asked for anew, a shorter one not", async () => {
    const { calls, clock, fetched } = fetching();
    fetched.request(asked("1"));
    calls[0]?.reply.resolve([log("1")]);
    await clock.advance(1);
    expect(fetched.request(asked("1", { fromMs: NOW_MS - DAY_MS / 4 })).state).toBe("idle");
    expect(fetched.request(asked("1", { fromMs: NOW_MS - 7 * DAY_MS })).state).toBe("asked");
    expect(calls).toHaveLength(2);
  });

  test("one order for a tag and three in all are under way", () => {
    const { calls, fetched } = fetching();
    for (const id of ["1", "2", "3", "4"]) expect(fetched.request(asked(id)).state).toBe("asked");
    expect(fetched.request(asked("1", { resolution: "1h" })).state).toBe("asked");
    expect(calls).toHaveLength(3);
    expect(fetched.request(asked("1", { source: "west" })).state).toBe("asked");
  });

  test("a refusal is said and stands for a while; no free slot in five minutes is one", async () => {
    const { calls, clock, fetched } = fetching();
    fetched.request(asked("1"));
    calls[0]?.reply.reject(new NoLog("The tag has no log."));
    await clock.advance(1);
    for (let n = 0; n < 3; n++)
      expect(fetched.request(asked("1"))).toEqual({ state: "refused", why: "The tag has no log." });
    fetched.request(asked("2"));
    await clock.advance(300_000);
    expect(fetched.state(asked("2"))).toMatchObject({
      state: "refused",
      why: expect.stringMatching(/five minutes/),
    });
    expect(calls).toHaveLength(2);
    expect(fetched.request(asked("5", { source: "west" }))).toMatchObject({ state: "off" });
  });

  test("a stop gives up what is under way", async () => {
    const { calls, clock, fetched } = fetching();
    fetched.request(asked("1"));
    fetched.stop();
    await clock.advance(1);
    expect(calls[0]?.signal.aborted).toBe(true);
    expect(clock.sleepers()).toBe(0);
  });
});
