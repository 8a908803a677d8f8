import { expect, test } from "vitest";
import { SITE } from "./rig.ts";
import { TAG, testRig } from "./test-rig.ts";

const tag = TAG;

test("a command requests a new reading when the live value is from before a clock step", async () => {
  const rig = await testRig();
  await rig.restart({ allow: [{ site_id: SITE, tag_id: tag, type: "number", min: 15, max: 25, max_step: 3 }] });
  const time = new Date(rig.clock.now()).toISOString();
  const old = { value: 24, quality: "good", time, lastGood: null, nulls: 0 };
  await rig.store.commit({ documents: [{ set: "value/main", put: [[tag, old]] }] });
  rig.clock.stepWall(-3_600_000);
  await rig.compareClocks();
  rig.simulator.control.setTag(tag, 20);
  await rig.send({ id: "a", tag, value: 22 });
  await rig.clock.advance(10_000);
  expect(await rig.result("a")).toMatchObject({ outcome: "confirmed", before: 20 });
});
