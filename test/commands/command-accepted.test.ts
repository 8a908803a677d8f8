import { describe, expect, test } from "vitest";
import type { CommandAccepted } from "#src/core/model/command-event-data.ts";
import type { Event } from "#src/core/model/event.ts";
import type { Harness } from "./command-harness.ts";
import { allowed, openHarness, TAGS, TAG as tag } from "./test-harness.ts";

async function acceptedEvents({ store }: Harness): Promise<readonly CommandAccepted[]> {
  const latest = await store.outbox.latest(1_000, ["command-accepted"]);
  return latest.map(({ event }) => (event as Event<"command-accepted">).data).toReversed();
}

describe("the event command-accepted", () => {
  test("is emitted once, before the result, with expiry and correlation", async () => {
    const harness = await openHarness();
    await harness.send({ id: "a", tag, value: 21.5 }, { replyTo: "reply/x", correlation: "Y29y" });
    await harness.send({ id: "bad", tag, value: 99 });
    await harness.send({ id: "a", tag, value: 21.5 });
    await harness.clock.advance(10_000);
    expect(await acceptedEvents(harness)).toEqual([
      {
        commandId: "a",
        tagId: tag,
        requested: 21.5,
        waitMs: 200,
        messageRequests: 2,
        messageSeconds: 3,
        expiresAt: "2026-11-20T12:00:30.000Z",
        forMs: null,
        needsSecond: false,
        correlation: "Y29y",
        replyTo: "reply/x",
      },
    ]);
    const kinds = (await harness.store.outbox.latest(10)).toReversed().map(({ event }) => event.type);
    const results = Array(3).fill("command-result");
    expect(kinds.filter((kind) => kind !== "audit-head")).toEqual(["command-accepted", ...results]);
  });

  test("states an upper bound of the wait before the write when the service asks for a pause of 50 s", async () => {
    const harness = await openHarness();
    await harness.pauseService(50);
    const sentAtMs = harness.clock.now();
    await harness.send({ id: "a", tag, value: 22, ttl_s: 200 });
    const [accepted] = await acceptedEvents(harness);
    expect(accepted?.waitMs).toBeGreaterThan(40_000);
    expect(accepted?.waitMs).toBeLessThan(60_000);
    while (harness.posts.length === 0) await harness.clock.advance(100);
    expect(harness.clock.now() - sentAtMs).toBeLessThanOrEqual((accepted?.waitMs ?? 0) + 1_000);
  });

  test("states a longer wait before the write when the quota is used up or other commands are queued", async () => {
    const harness = await openHarness({ config: { allow: TAGS.map((each) => allowed(each)) } });
    const signal = new AbortController().signal;
    const reads = Array.from({ length: 20 }, () => harness.source.read([tag], "on-demand", signal));
    const used = () => harness.source.quota().buckets[0]?.used ?? 0;
    while (used() < 20) await harness.clock.advance(1_000);
    await Promise.all(reads);
    expect(used()).toBe(20);
    for (const each of TAGS.slice(0, 21)) await harness.send({ id: each, tag: each, value: 22, ttl_s: 300 });
    const waits = (await acceptedEvents(harness)).map(({ waitMs }) => waitMs);
    expect(waits[0]).toBeGreaterThan(200);
    expect((waits[20] ?? 0) - (waits[0] ?? 0)).toBeGreaterThanOrEqual(3_000);
  });

  test("is emitted for the automatic restore of a timed write too", async () => {
    const harness = await openHarness({ config: { allow: [allowed(tag, { restore: true })] } });
    await harness.execute({ id: "a", tag, value: 22, for_s: 600 }, {}, 700_000);
    expect((await acceptedEvents(harness)).map(({ commandId, forMs }) => [commandId, forMs])).toEqual([
      ["a", 600_000],
      ["a/restore", null],
    ]);
  });
});
