import { expect, test } from "vitest";
import type { HarnessOptions } from "./command-harness.ts";
import { allowed, faulty, openHarness, TAG as tag } from "./test-harness.ts";

const HOUR_MS = 3_600_000;
const back = [{ tag_id: tag, value: 20 }];
const restorable = (options: HarnessOptions = {}) =>
  openHarness({ ...options, config: { allow: [allowed(tag, { restore: true })], ...options.config } });
const forTwoHours = (id: string, value: number) => ({ id, tag, value, for_s: 7200 });

test("a timed write restores the old value once, also after restarts at any step", async () => {
  const harness = await restorable();
  await harness.execute(forTwoHours("a", 22), {}, HOUR_MS);
  await harness.restart();
  await harness.clock.advance(HOUR_MS - 30_000);
  for (let n = 0; n < 60 && harness.posts.length < 2; n += 1) await harness.clock.advance(1_000);
  for (let restarts = 0; restarts < 2; restarts += 1) {
    await harness.restart();
    await harness.clock.advance(2 * HOUR_MS);
  }
  expect(await harness.outcomes()).toEqual(["a confirmed", "a/restore confirmed"]);
  expect(harness.posts).toEqual([[{ tag_id: tag, value: 22 }], back]);
});

test("an unsent timed write expires at a restart without any request", async () => {
  const harness = await restorable({ config: { group_window: "400ms" } });
  await harness.execute(forTwoHours("a", 22), {}, 100);
  const reads = harness.requests("read");
  await harness.restart();
  await harness.clock.advance(3 * HOUR_MS);
  expect(await harness.outcomes()).toEqual(["a expired stopped"]);
  expect(harness.requests("read")).toBe(reads);
  expect(harness.posts).toEqual([]);
});

test.each([
  [HOUR_MS / 2, "confirmed"],
  [24 * HOUR_MS, "expired"],
])("a restore that is %i ms late at the next start ends as %s", async (lateMs, outcome) => {
  const harness = await restorable();
  await harness.execute(forTwoHours("a", 22), {}, HOUR_MS);
  harness.clock.stepWall(HOUR_MS + lateMs);
  await harness.restart();
  await harness.compareClocks();
  await harness.clock.advance(60_000);
  expect(await harness.outcomes()).toEqual(["a confirmed", `a/restore ${outcome}`]);
});

test("a later command replaces a pending restore, and a later timed write restores the first old value", async () => {
  const harness = await restorable();
  await harness.execute(forTwoHours("a", 22), {}, HOUR_MS);
  await harness.execute(forTwoHours("b", 23), {}, 3 * HOUR_MS);
  expect(await harness.outcomes()).toEqual([
    "a confirmed",
    "a/restore superseded",
    "b confirmed",
    "b/restore confirmed",
  ]);
  expect(harness.posts.at(-1)).toEqual(back);
  await harness.execute(forTwoHours("c", 22), {}, HOUR_MS);
  await harness.execute({ id: "d", tag, value: 24 }, {}, 3 * HOUR_MS);
  expect(harness.posts.at(-1)).toEqual([{ tag_id: tag, value: 24 }]);
});

test("a rejected timed write causes no restore", async () => {
  const harness = await restorable({ simulator: faulty({ kind: "error", status: 422 }, { endpoints: ["write"] }, {}) });
  await harness.execute(forTwoHours("a", 22), {}, 3 * HOUR_MS);
  expect(await harness.outcomes()).toEqual(["a rejected refused-by-service"]);
  expect(harness.posts).toHaveLength(1);
});

const laterWrites = { untimed: { id: "b", tag, value: 23 }, timed: forTwoHours("b", 23) };
test.each(
  (["untimed", "timed"] as const).flatMap((later) => [
    [later, "422", { kind: "error", status: 422 } as const, "rejected refused-by-service"] as const,
    [later, "429", { kind: "throttled", retry_after_s: 5 } as const, "rejected throttled"] as const,
    [later, "a reset connection", { kind: "reset" } as const, "mismatch"] as const,
  ]),
)("a pending restore remains when a later %s write fails (%s)", async (later, _name, fault, outcome) => {
  const harness = await restorable({ simulator: faulty(fault, { endpoints: ["write"] }, { skip: 1, count: 1 }) });
  await harness.execute(forTwoHours("a", 22), {}, HOUR_MS);
  await harness.execute(laterWrites[later], {}, 4 * HOUR_MS);
  expect(await harness.outcomes()).toEqual(["a confirmed", `b ${outcome}`, "a/restore confirmed"]);
  expect(harness.posts.at(-1)).toEqual(back);
  expect(harness.commands.notices()).toEqual([]);
});

test.each([
  ["applied", ["a/restore superseded", "b/restore confirmed"]],
  ["none", ["b/restore rejected unexpected-value", "a/restore confirmed"]],
] as const)(
  "after a second timed write with unknown result, the value before the first write is restored (effect: %s)",
  async (effect, ends) => {
    const harness = await restorable();
    await harness.execute(forTwoHours("a", 22), {}, HOUR_MS);
    const reset = { match: { endpoints: ["write"] }, when: { count: 1 }, fault: { kind: "reset", effect } };
    const silent = { match: { endpoints: ["read"] }, when: { skip: 1, for_s: 600 }, fault: { kind: "null_values" } };
    harness.simulator.control.setFaults([reset, silent]);
    await harness.execute(forTwoHours("b", 23), {}, 4 * HOUR_MS);
    expect(await harness.outcomes()).toEqual(["a confirmed", "b unknown in-doubt", ...ends]);
    expect(harness.posts.at(-1)).toEqual(back);
  },
);

test("a timed write that expires while the journal commits it causes no restore", async () => {
  const harness = await restorable();
  harness.slowDown("sending", 40_000);
  await harness.execute(forTwoHours("a", 22), {}, 120_000);
  harness.slowDown("none", 0);
  harness.simulator.control.setTag(tag, 22);
  await harness.clock.advance(3 * HOUR_MS);
  expect(await harness.outcomes()).toEqual(["a expired"]);
  expect(harness.posts).toEqual([]);
});

test("two timed writes restore the first old value although the device stores single precision", async () => {
  const harness = await restorable();
  await harness.execute(forTwoHours("a", 22.1), {}, HOUR_MS);
  harness.simulator.control.setTag(tag, Math.fround(22.1));
  await harness.execute(forTwoHours("b", 23), {}, 3 * HOUR_MS);
  expect(harness.posts.at(-1)).toEqual(back);
});

test("a repeated timed write extends the duration, an untimed write of the same value cancels the restore", async () => {
  const harness = await restorable();
  await harness.execute(forTwoHours("a", 22), {}, HOUR_MS);
  await harness.execute(forTwoHours("b", 22), {}, HOUR_MS + 60_000);
  expect(harness.posts).toHaveLength(1);
  await harness.clock.advance(HOUR_MS);
  expect(harness.posts.at(-1)).toEqual(back);
  await harness.clock.advance(HOUR_MS);
  await harness.execute(forTwoHours("c", 22), {}, HOUR_MS);
  await harness.execute({ id: "d", tag, value: 22, expect: 22 }, {}, 3 * HOUR_MS);
  expect(harness.posts).toHaveLength(3);
  expect(await harness.outcomes()).toEqual([
    "a confirmed",
    "a/restore superseded",
    "b confirmed already-set",
    "b/restore confirmed",
    "c confirmed",
    "c/restore superseded",
    "d confirmed already-set",
  ]);
});

test("a pending restore ends as unexpected-value when a person has set the tag after a second timed write", async () => {
  const harness = await restorable();
  await harness.execute(forTwoHours("a", 22), {}, HOUR_MS);
  harness.simulator.control.setTag(tag, 24);
  await harness.execute(forTwoHours("b", 24), {}, 4 * HOUR_MS);
  expect(await harness.outcomes()).toEqual([
    "a confirmed",
    "b confirmed already-set",
    "a/restore rejected unexpected-value",
  ]);
  expect(harness.posts).toHaveLength(1);
});
