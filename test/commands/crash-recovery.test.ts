import { expect, test } from "vitest";
import { openHarness, TAGS } from "./test-harness.ts";

const STEPS = ["accepted", "sending", "post", "read", "confirmed"].flatMap((step) => [
  `${step} before`,
  `${step} after`,
]);
const ENDS = ["confirmed", "expired", "mismatch"];

test(`a kill at each of ${STEPS.length} steps of a command causes at most one write request for each id`, async () => {
  let killAt = "";
  const harness = await openHarness({
    onStep(step) {
      if (step !== killAt) return;
      killAt = "";
      void harness.kill();
    },
  });
  const acknowledged = new Set<string>();
  for (const [index, step] of STEPS.entries()) {
    killAt = step;
    void harness.send({ id: step, tag: TAGS[index], value: 21 }).then(() => acknowledged.add(step));
    await harness.clock.advance(20_000);
    expect(killAt, `killed ${step}`).toBe("");
    await harness.restart();
    await harness.clock.advance(120_000);
  }
  const audit = await harness.audit();
  for (const [index, step] of STEPS.entries()) {
    const posts = harness.posts.flat().filter(({ tag_id }) => tag_id === TAGS[index]);
    const outcomes = (await harness.results()).flatMap((result) => (result.commandId === step ? [result.outcome] : []));
    const steps = audit.filter(({ commandId }) => commandId === step).map((record) => record.step);
    expect(posts.length, step).toBeLessThanOrEqual(1);
    expect(outcomes.length, step).toBe(step === "accepted before" ? 0 : 1);
    if (posts.length > 0) expect(steps, step).toContain("sending");
    expect(outcomes, step).toEqual(steps.filter((each) => ENDS.includes(each)));
    if (outcomes[0] === "confirmed" || outcomes[0] === "expired")
      expect(posts, step).toHaveLength(outcomes[0] === "confirmed" ? 1 : 0);
  }
  expect(acknowledged).toEqual(new Set(STEPS.slice(2)));
  expect(new Set((await harness.results()).map(({ outcome }) => outcome))).toEqual(new Set(ENDS));
});
