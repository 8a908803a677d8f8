import { expect, test } from "vitest";
import type { HarnessOptions } from "./command-harness.ts";
import { allowed, faulty, openHarness, TAGS, TAG as tag } from "./test-harness.ts";

const tags = TAGS.slice(0, 3);
const readingHarness = (simulator: HarnessOptions["simulator"] = {}, entry: object = {}) =>
  openHarness({ simulator, config: { allow: tags.map((each) => allowed(each, { min_interval: "1s", ...entry })) } });

test("a write that the service rejected is confirmed when a later reading has the requested value", async () => {
  const { faults } = faulty({ kind: "error", status: 422, effect: "applied" });
  const harness = await readingHarness({ writes: { settle_ms: 4_000 }, faults });
  await harness.execute({ id: "g", writes: tags.map((each) => ({ tag: each, value: 22 })) }, {}, 60_000);
  expect(await harness.outcomes()).toEqual(tags.map((each) => `g/${each} confirmed`));
  expect(harness.posts).toHaveLength(1);
});

test.each([false, true])(
  "the previous value can be written again after an unverified write (worker restarted: %s)",
  async (isRestarted) => {
    const harness = await readingHarness({ writes: { settle_ms: 20_000 } });
    await harness.execute({ id: "a", tag, value: 22 }, {}, 10_000);
    if (isRestarted) await harness.restart();
    for (const id of ["b", "c"]) await harness.execute({ id, tag, value: 20, expect: 20 }, {}, 60_000);
    expect(await harness.outcomes()).toEqual(["a mismatch", "b confirmed", "c confirmed already-set"]);
    expect(harness.posts.map(([write]) => write?.value)).toEqual([22, 20]);
  },
);

test("a write is reported as unknown when the response has another value and the tag cannot be read", async () => {
  const { faults } = faulty({ kind: "null_values" }, { endpoints: ["read"] }, {});
  const harness = await readingHarness({ writes: { clamp: { [tag]: [0, 21] }, answer: "held" }, faults });
  await harness.execute({ id: "a", tag, value: 22 }, {}, 120_000);
  expect(await harness.outcomes()).toEqual(["a unknown in-doubt"]);
  expect(harness.posts).toHaveLength(1);
});

test.each([
  ["is restored when a late reading shows the value", 22, "confirmed", [22, 20]],
  ["is not restored when the tag never has the value", 20, "rejected unexpected-value", [22]],
])("the previous value after an unverified timed write %s", async (_what, later, end, values) => {
  const harness = await readingHarness(faulty({ kind: "reset" }), { restore: true });
  await harness.execute({ id: "a", tag, value: 22, for_s: 7200 }, {}, 60_000);
  expect(await harness.outcomes()).toEqual(["a mismatch"]);
  harness.simulator.control.setTag(tag, later);
  await harness.clock.advance(3 * 3_600_000);
  expect(await harness.outcomes()).toEqual(["a mismatch", `a/restore ${end}`]);
  expect(harness.posts.map(([write]) => write?.value)).toEqual(values);
  expect(harness.commands.notices()).toEqual([]);
});

test("a command requests a new reading when the stored live value was read before a clock step", async () => {
  const harness = await readingHarness({}, { max_step: 3 });
  await harness.storeLiveValue(tag, 24);
  harness.clock.stepWall(-3_600_000);
  await harness.compareClocks();
  harness.simulator.control.setTag(tag, 20);
  await harness.execute({ id: "a", tag, value: 22 }, {}, 10_000);
  expect(await harness.result("a")).toMatchObject({ outcome: "confirmed", before: 20 });
});
