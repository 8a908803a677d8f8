import { describe, expect, test } from "vitest";
import type { CommandAccepted } from "#src/core/model/command-facts.ts";
import type { Event } from "#src/core/model/event.ts";
import type { RigOptions } from "./rig.ts";
import { allowed, TAG, TAGS, testRig } from "./test-rig.ts";

const tag = TAG;

async function rigWith(options: RigOptions = {}) {
  const rig = await testRig(options);
  const accepted = async (): Promise<readonly CommandAccepted[]> =>
    (await rig.store.outbox.latest(1_000, ["command-accepted"]))
      .map(({ event }) => (event as Event<"command-accepted">).data)
      .toReversed();
  return Object.assign(rig, { accepted });
}

describe("the event command-accepted", () => {
  test("is emitted once, before the result, with expiry and correlation", async () => {
    const rig = await rigWith();
    await rig.send({ id: "a", tag, value: 21.5 }, { replyTo: "reply/x", correlation: "Y29y" });
    await rig.send({ id: "bad", tag, value: 99 });
    await rig.send({ id: "a", tag, value: 21.5 });
    await rig.clock.advance(10_000);
    expect(await rig.accepted()).toEqual([
      {
        commandId: "a",
        tagId: tag,
        requested: 21.5,
        waitMs: 200,
        expiresAt: "2026-11-20T12:00:30.000Z",
        forMs: null,
        needsSecond: false,
        correlation: "Y29y",
        replyTo: "reply/x",
      },
    ]);
    const kinds = (await rig.store.outbox.latest(10)).toReversed().map(({ event }) => event.type);
    expect(kinds.filter((kind) => kind !== "audit-head")).toEqual([
      "command-accepted",
      "command-result",
      "command-result",
      "command-result",
    ]);
  });

  test("states an upper bound of the wait when the service asks for a pause of 50 s", async () => {
    const rig = await rigWith();
    rig.simulator.control.setFaults([{ when: { count: 1 }, fault: { kind: "maintenance", retry_after: 50 } }]);
    const refused = expect(rig.source.read([tag], "on-demand", new AbortController().signal)).rejects.toThrow();
    await rig.clock.advance(1_000);
    await refused;
    const sentAtMs = rig.clock.now();
    await rig.send({ id: "a", tag, value: 22, ttl_s: 200 });
    const [told] = await rig.accepted();
    expect(told?.waitMs).toBeGreaterThan(40_000);
    expect(told?.waitMs).toBeLessThan(60_000);
    while (rig.posts.length === 0) await rig.clock.advance(100);
    expect(rig.clock.now() - sentAtMs).toBeLessThanOrEqual((told?.waitMs ?? 0) + 1_000);
  });

  test("states a longer wait when the quota is used up and when other commands are ahead in the queue", async () => {
    const rig = await rigWith({ config: { allow: TAGS.map((each) => allowed(each)) } });
    const signal = new AbortController().signal;
    const reads = Array.from({ length: 20 }, () => rig.source.read([tag], "on-demand", signal));
    const used = () => rig.source.quota().buckets[0]?.used ?? 0;
    while (used() < 20) await rig.clock.advance(1_000);
    await Promise.all(reads);
    expect(used()).toBe(20);
    for (const [n, tag] of TAGS.slice(0, 21).entries()) {
      await rig.send({ id: `${n}`, tag, value: 22, ttl_s: 300 });
    }
    const waits = (await rig.accepted()).map(({ waitMs }) => waitMs);
    expect(waits[0]).toBeGreaterThan(200);
    expect((waits[20] ?? 0) - (waits[0] ?? 0)).toBeGreaterThanOrEqual(3_000);
  });

  test("is emitted for the restore of a timed write too", async () => {
    const rig = await rigWith({ config: { allow: [allowed(tag, { restore: true })] } });
    await rig.send({ id: "a", tag: tag, value: 22, for_s: 600 });
    await rig.clock.advance(700_000);
    expect((await rig.accepted()).map(({ commandId, forMs }) => [commandId, forMs])).toEqual([
      ["a", 600_000],
      ["a/restore", null],
    ]);
  });
});
