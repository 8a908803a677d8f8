import { describe, expect, test } from "vitest";
import type { Event } from "#src/core/model/event.ts";
import { allowed, TAG, TAGS, testRig } from "./test-harness.ts";

function coalescingRig(entry: object = {}) {
  return testRig({ config: { allow: [allowed(TAG, { coalesce: true, ...entry }), allowed(TAGS[1] ?? "")] } });
}

const command = (id: string, value: number, ttl_s = 300) => ({ id, tag: TAG, value, ttl_s });

describe("a command within min_interval after a write, with coalesce: true", () => {
  test("waits for the end of the interval; the last command is written and the earlier ones are superseded", async () => {
    const rig = await coalescingRig();
    await rig.sendAndWait(command("a", 21), {}, 10_000);
    for (const [id, value] of [
      ["b", 22],
      ["c", 23],
      ["d", 24],
    ] as const)
      await rig.sendAndWait(command(id, value), {}, 2_000);
    expect(await rig.outcomes()).toEqual(["a confirmed", "b superseded", "c superseded"]);
    await rig.clock.advance(43_000);
    expect(rig.posts).toHaveLength(1);
    await rig.clock.advance(10_000);
    expect(rig.posts.flat().map(({ value }) => value)).toEqual([21, 24]);
    expect(await rig.result("d")).toMatchObject({ outcome: "confirmed", readBack: 24 });
  });

  test("causes a command-accepted event that states the wait until the end of the interval", async () => {
    const rig = await coalescingRig();
    await rig.sendAndWait(command("a", 21), {}, 10_000);
    await rig.send(command("b", 22));
    const [accepted] = await rig.store.outbox.latest(1, ["command-accepted"]);
    const data = accepted?.event.data as Event<"command-accepted">["data"] | undefined;
    expect(data?.waitMs).toBeGreaterThan(45_000);
    expect(data?.waitMs).toBeLessThan(55_000);
  });

  test("expires if its time to live ends before the interval", async () => {
    const rig = await coalescingRig();
    await rig.sendAndWait(command("a", 21), {}, 10_000);
    await rig.sendAndWait(command("b", 22, 20), {}, 21_000);
    expect(await rig.outcomes()).toEqual(["a confirmed", "b expired"]);
    await rig.clock.advance(120_000);
    expect(rig.posts).toHaveLength(1);
  });

  test("does not delay a command for another tag, and is rejected if coalesce is not set", async () => {
    const rig = await coalescingRig();
    await rig.sendAndWait(command("a", 21), {}, 10_000);
    await rig.send(command("b", 22));
    expect(await rig.outcomeOf({ id: "c", tag: TAGS[1], value: 22 })).toBe("confirmed");
    expect(await rig.outcomeOf({ id: "d", tag: TAGS[1], value: 23 })).toBe("rejected too-soon");
  });

  test("respects max_per_day, and the restore of a timed write waits for the interval too", async () => {
    const rig = await coalescingRig({ max_per_day: 2, restore: true });
    await rig.sendAndWait({ ...command("a", 21), for_s: 60 }, {}, 120_000);
    expect(rig.posts.flat().map(({ value }) => value)).toEqual([21, 20]);
    expect(await rig.outcomeOf(command("b", 22))).toBe("rejected too-many");
  });
});
