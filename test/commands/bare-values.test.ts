import { describe, expect, test } from "vitest";
import { allowed, TAG, testRig } from "./test-harness.ts";

const topic = { topic: `plenum/cmd/main/${TAG}/set`, tagId: TAG };

describe("a command that is a bare value", () => {
  test("is written when the allow-list entry of its tag has plain: true, once however often the broker delivers it", async () => {
    const rig = await testRig({ config: { allow: [allowed(TAG, { plain: true, min_interval: "1s" })] } });
    await rig.sendAndWait("22", topic);
    await rig.sendAndWait("22", { ...topic, duplicate: true });
    expect((await rig.results()).map(({ outcome }) => outcome)).toEqual(["confirmed", "duplicate"]);
    await rig.restart();
    await rig.sendAndWait("22", { ...topic, duplicate: true });
    await rig.storeLiveValue(TAG, 20);
    await rig.sendAndWait("22", topic);
    expect((await rig.results()).map(({ outcome }) => outcome).slice(2)).toEqual(["duplicate", "confirmed"]);
    expect(rig.posts).toHaveLength(2);
  });

  test("is rejected as not-allowed without plain: true, unlike the same command as JSON", async () => {
    const rig = await testRig({ config: { allow: [allowed(TAG)] } });
    await rig.send("22", topic);
    expect(await rig.results()).toMatchObject([
      { reason: "not-allowed", message: expect.stringMatching(/plain: true/) },
    ]);
    expect(await rig.outcomeOf({ id: "a", value: 22 }, topic)).toBe("confirmed");
  });
});
