import { describe, expect, test } from "vitest";
import { allowed, openHarness, TAG } from "./test-harness.ts";

const topic = { topic: `plenum/cmd/main/${TAG}/set`, tagId: TAG };

describe("a command that is a bare value", () => {
  test("is written when the allow-list entry of its tag has plain: true, once however often the broker delivers it", async () => {
    const harness = await openHarness({ config: { allow: [allowed(TAG, { plain: true, min_interval: "1s" })] } });
    await harness.execute("22", topic);
    await harness.execute("22", { ...topic, duplicate: true });
    expect((await harness.results()).map(({ outcome }) => outcome)).toEqual(["confirmed", "duplicate"]);
    await harness.restart();
    await harness.execute("22", { ...topic, duplicate: true });
    await harness.storeLiveValue(TAG, 20);
    await harness.execute("22", topic);
    expect((await harness.results()).map(({ outcome }) => outcome).slice(2)).toEqual(["duplicate", "confirmed"]);
    expect(harness.posts).toHaveLength(2);
  });

  test("is rejected as not-allowed without plain: true, unlike the same command as JSON", async () => {
    const harness = await openHarness({ config: { allow: [allowed(TAG)] } });
    await harness.send("22", topic);
    expect(await harness.results()).toMatchObject([
      { reason: "not-allowed", message: expect.stringMatching(/plain: true/) },
    ]);
    expect(await harness.outcomeOf({ id: "a", value: 22 }, topic)).toBe("confirmed");
  });
});
