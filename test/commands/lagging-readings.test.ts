import { expect, test } from "vitest";
import type { Rig } from "./rig.ts";
import { allowed, TAG, TAGS, testRig } from "./test-rig.ts";

const tags = TAGS.slice(0, 3);
const tag = TAG;

function rigWith(simulator: unknown, entry: object = {}): Promise<Rig> {
  const allow = tags.map((tag) => allowed(tag, { min_interval: "1s", ...entry }));
  return testRig({ simulator: simulator as never, config: { allow } });
}

const outcomes = async (rig: Rig) => (await rig.outcomes()).map(([, ...end]) => end);

test("a rejected but executed group is confirmed although the first reading has the old value", async () => {
  const rig = await rigWith({
    writes: { settle_ms: 4_000 },
    faults: [
      {
        match: { endpoints: ["write"] },
        when: { count: 1 },
        fault: { kind: "error", status: 422, effect: "applied" },
      },
    ],
  });
  await rig.send({ id: "g", writes: tags.map((tag) => ({ tag, value: 22 })) });
  await rig.clock.advance(60_000);
  expect(await outcomes(rig)).toEqual(tags.map(() => ["confirmed", null]));
  expect(rig.posts).toHaveLength(1);
});

test.each([false, true])(
  "the old value is written again after an unverified write (restart: %s)",
  async (isRestarted) => {
    const rig = await rigWith({ writes: { settle_ms: 20_000 } });
    await rig.send({ id: "a", tag, value: 22 });
    await rig.clock.advance(10_000);
    expect(await outcomes(rig)).toEqual([["mismatch", "mismatch"]]);
    if (isRestarted) await rig.restart();
    await rig.send({ id: "b", tag, value: 20, expect: 20 });
    await rig.clock.advance(60_000);
    expect((await outcomes(rig)).at(-1)).toEqual(["confirmed", null]);
    expect(rig.posts.map(([write]) => write?.value)).toEqual([22, 20]);

    await rig.send({ id: "c", tag, value: 20, expect: 20 });
    await rig.clock.advance(60_000);
    expect((await outcomes(rig)).at(-1)).toEqual(["confirmed", "already-set"]);
    expect(rig.posts).toHaveLength(2);
  },
);

test("a write is reported as unknown when the response has another value and the tag cannot be read", async () => {
  const rig = await rigWith({
    writes: { clamp: { [tag]: [0, 21] }, answer: "held" },
    faults: [{ match: { endpoints: ["read"] }, fault: { kind: "null_values" } }],
  });
  await rig.send({ id: "a", tag, value: 22 });
  await rig.clock.advance(120_000);
  expect(await outcomes(rig)).toEqual([["unknown", "in-doubt"]]);
  expect(rig.posts).toHaveLength(1);
});

test("a value is not written again after a late reading shows the value", async () => {
  const rig = await rigWith({ writes: { settle_ms: 20_000 } });
  await rig.send({ id: "a", tag, value: 22 });
  await rig.clock.advance(90_000);
  await rig.send({ id: "b", tag, value: 22, expect: 22 });
  await rig.clock.advance(10_000);
  expect(await outcomes(rig)).toEqual([
    ["mismatch", "mismatch"],
    ["confirmed", "already-set"],
  ]);
  expect(rig.posts).toHaveLength(1);
});

test.each([
  ["is restored when a late reading shows the value", 22, ["confirmed", null], [22, 20]],
  ["is not restored when the tag never has the value", 20, ["rejected", "unexpected-value"], [22]],
])("an unverified timed value %s", async (_what, later, end, values) => {
  const reset = { match: { endpoints: ["write"] }, when: { count: 1 }, fault: { kind: "reset" } };
  const rig = await rigWith({ faults: [reset] }, { restore: true });
  await rig.send({ id: "a", tag, value: 22, for_s: 7200 });
  await rig.clock.advance(60_000);
  expect(await outcomes(rig)).toEqual([["mismatch", "mismatch"]]);
  rig.simulator.control.setTag(tag, later);
  await rig.clock.advance(3 * 3_600_000);
  expect(await outcomes(rig)).toEqual([["mismatch", "mismatch"], end]);
  expect(rig.posts.map(([write]) => write?.value)).toEqual(values);
  expect(rig.commands.notices()).toEqual([]);
});
