import { describe, expect, test } from "vitest";
import type { Event } from "#src/core/model/event.ts";
import { allowed, openHarness, TAG, TAGS } from "./test-harness.ts";

function coalescingHarness(entry: object = {}) {
  return openHarness({ config: { allow: [allowed(TAG, { coalesce: true, ...entry }), allowed(TAGS[1] ?? "")] } });
}

const command = (id: string, value: number, ttl_s = 300) => ({ id, tag: TAG, value, ttl_s });

describe("a command within min_interval after a write, with coalesce: true", () => {
  test("waits for the end of the interval; the last command is written and the earlier ones are superseded", async () => {
    const harness = await coalescingHarness();
    await harness.execute(command("a", 21), {}, 10_000);
    for (const [id, value] of [
      ["b", 22],
      ["c", 23],
      ["d", 24],
    ] as const)
      await harness.execute(command(id, value), {}, 2_000);
    expect(await harness.outcomes()).toEqual(["a confirmed", "b superseded", "c superseded"]);
    await harness.clock.advance(43_000);
    expect(harness.posts).toHaveLength(1);
    await harness.clock.advance(10_000);
    expect(harness.posts.flat().map(({ value }) => value)).toEqual([21, 24]);
    expect(await harness.result("d")).toMatchObject({ outcome: "confirmed", readBack: 24 });
  });

  test("causes a command-accepted event that states the wait until the end of the interval", async () => {
    const harness = await coalescingHarness();
    await harness.execute(command("a", 21), {}, 10_000);
    await harness.send(command("b", 22));
    const [accepted] = await harness.store.outbox.latest(1, ["command-accepted"]);
    const data = accepted?.event.data as Event<"command-accepted">["data"] | undefined;
    expect(data?.waitMs).toBeGreaterThan(45_000);
    expect(data?.waitMs).toBeLessThan(55_000);
  });

  test("expires if its time to live ends before the interval", async () => {
    const harness = await coalescingHarness();
    await harness.execute(command("a", 21), {}, 10_000);
    await harness.execute(command("b", 22, 20), {}, 21_000);
    expect(await harness.outcomes()).toEqual(["a confirmed", "b expired"]);
    await harness.clock.advance(120_000);
    expect(harness.posts).toHaveLength(1);
  });

  test("does not delay a command for another tag, and is rejected if coalesce is not set", async () => {
    const harness = await coalescingHarness();
    await harness.execute(command("a", 21), {}, 10_000);
    await harness.send(command("b", 22));
    expect(await harness.outcomeOf({ id: "c", tag: TAGS[1], value: 22 })).toBe("confirmed");
    expect(await harness.outcomeOf({ id: "d", tag: TAGS[1], value: 23 })).toBe("rejected too-soon");
  });

  test("respects max_per_day, and the restore of a timed write waits for the interval too", async () => {
    const harness = await coalescingHarness({ max_per_day: 2, restore: true });
    await harness.execute({ ...command("a", 21), for_s: 60 }, {}, 120_000);
    expect(harness.posts.flat().map(({ value }) => value)).toEqual([21, 20]);
    expect(await harness.outcomeOf(command("b", 22))).toBe("rejected too-many");
  });
});
