import { expect, test } from "vitest";
import type { RigOptions } from "./rig.ts";
import { allowed, TAG, testRig } from "./test-rig.ts";

const tag = TAG;
const HOUR_MS = 3_600_000;

async function rigWith(entry: object = {}, options: RigOptions = {}) {
  const rig = await testRig(options);
  const restart = () => rig.restart({ allow: [allowed(tag, { restore: true, ...entry })], ...options.config });
  await restart();
  const { outcomes } = rig;
  return { rig, restart, outcomes };
}

test("a timed write restores the old value after its time, and both writes are reported", async () => {
  const { rig, outcomes } = await rigWith();
  await rig.send({ id: "a", tag, value: 22, for_s: 7200 });
  await rig.clock.advance(2 * HOUR_MS - 60_000);
  expect(await outcomes()).toEqual([["a", "confirmed", null]]);
  await rig.clock.advance(120_000);
  expect(await outcomes()).toEqual([
    ["a", "confirmed", null],
    ["a/restore", "confirmed", null],
  ]);
  await rig.clock.advance(48 * HOUR_MS);
  expect(rig.posts).toEqual([[{ tag_id: tag, value: 22 }], [{ tag_id: tag, value: 20 }]]);
});

test("a timed write does not restore the old value when a person has changed the value meanwhile", async () => {
  const { rig, outcomes } = await rigWith();
  await rig.send({ id: "a", tag, value: 22, for_s: 7200 });
  await rig.clock.advance(HOUR_MS);
  rig.simulator.control.setTag(tag, 19);
  await rig.clock.advance(2 * HOUR_MS);
  expect((await outcomes())[1]).toEqual(["a/restore", "rejected", "unexpected-value"]);
  expect(rig.posts).toHaveLength(1);
});

test("a timed write restores the old value once, also after restarts at any step", async () => {
  const { rig, restart, outcomes } = await rigWith();
  await rig.send({ id: "a", tag, value: 22, for_s: 7200 });
  await rig.clock.advance(HOUR_MS);
  await restart();
  await rig.clock.advance(HOUR_MS - 30_000);
  for (let n = 0; n < 60 && rig.posts.length < 2; n += 1) await rig.clock.advance(1_000);
  await restart();
  await rig.clock.advance(2 * HOUR_MS);
  await restart();
  await rig.clock.advance(2 * HOUR_MS);
  expect(await outcomes()).toEqual([
    ["a", "confirmed", null],
    ["a/restore", "confirmed", null],
  ]);
  expect(rig.posts).toHaveLength(2);
});

test("an unsent timed write expires at a restart without any request", async () => {
  const { rig, restart, outcomes } = await rigWith({}, { config: { group_window: "400ms" } });
  await rig.send({ id: "a", tag, value: 22, for_s: 7200 });
  await rig.clock.advance(100);
  const reads = rig.requests("read");
  await restart();
  await rig.clock.advance(1_000);
  expect(await outcomes()).toEqual([["a", "expired", "stopped"]]);
  await rig.clock.advance(3 * HOUR_MS);
  expect(await outcomes()).toHaveLength(1);
  expect(rig.requests("read")).toBe(reads);
  expect(rig.posts).toEqual([]);
});

test("a timed write restores the old value at the next start, unless the start is a day late", async () => {
  for (const [lateMs, outcome] of [
    [HOUR_MS / 2, "confirmed"],
    [24 * HOUR_MS, "expired"],
  ] as const) {
    const { rig, restart, outcomes } = await rigWith();
    await rig.send({ id: "a", tag, value: 22, for_s: 7200 });
    await rig.clock.advance(HOUR_MS);
    rig.clock.stepWall(HOUR_MS + lateMs);
    await restart();
    await rig.compareClocks();
    await rig.clock.advance(60_000);
    expect((await outcomes())[1]?.slice(0, 2)).toEqual(["a/restore", outcome]);
  }
});

test("a later command replaces a pending restore, and a later timed write restores the first old value", async () => {
  const { rig, outcomes } = await rigWith();
  await rig.send({ id: "a", tag, value: 22, for_s: 7200 });
  await rig.clock.advance(HOUR_MS);
  await rig.send({ id: "b", tag, value: 23, for_s: 7200 });
  await rig.clock.advance(3 * HOUR_MS);
  expect(await outcomes()).toEqual([
    ["a", "confirmed", null],
    ["a/restore", "superseded", "superseded"],
    ["b", "confirmed", null],
    ["b/restore", "confirmed", null],
  ]);
  expect(rig.posts.at(-1)).toEqual([{ tag_id: tag, value: 20 }]);

  await rig.send({ id: "c", tag, value: 22, for_s: 7200 });
  await rig.clock.advance(HOUR_MS);
  await rig.send({ id: "d", tag, value: 24 });
  await rig.clock.advance(3 * HOUR_MS);
  expect(rig.posts.at(-1)).toEqual([{ tag_id: tag, value: 24 }]);
});

test("a rejected timed write causes no restore", async () => {
  const { rig, outcomes } = await rigWith(
    {},
    {
      simulator: { faults: [{ match: { endpoints: ["write"] }, fault: { kind: "error", status: 422 } }] as never },
    },
  );
  await rig.send({ id: "a", tag, value: 22, for_s: 7200 });
  await rig.clock.advance(3 * HOUR_MS);
  expect(await outcomes()).toEqual([["a", "rejected", "refused-by-service"]]);
  expect(rig.posts).toHaveLength(1);
});

test("for_s is rejected unless the allow-list entry has restore: true", async () => {
  const { rig, outcomes } = await rigWith({ restore: false });
  await rig.send({ id: "a", tag, value: 22, for_s: 7200 });
  await rig.clock.advance(10_000);
  expect(await outcomes()).toEqual([["a", "rejected", "not-restorable"]]);
});

async function secondMeets(fault: object, forS: number | null) {
  const trial = await rigWith(
    {},
    { simulator: { faults: [{ match: { endpoints: ["write"] }, when: { skip: 1, count: 1 }, fault }] as never } },
  );
  const { rig } = trial;
  await rig.send({ id: "a", tag, value: 22, for_s: 7200 });
  await rig.clock.advance(HOUR_MS);
  await rig.send({ id: "b", tag, value: 23, ...(forS === null ? {} : { for_s: forS }) });
  await rig.clock.advance(4 * HOUR_MS);
  return { ...trial, back: { tag_id: tag, value: 20 } };
}

test.each([
  ["422", { kind: "error", status: 422 }, "rejected"],
  ["429", { kind: "throttled", retry_after_s: 5 }, "rejected"],
  ["a reset connection", { kind: "reset" }, "mismatch"],
])("a pending restore remains when a later write fails (%s)", async (_name, fault, outcome) => {
  for (const forS of [null, 7200]) {
    const { rig, outcomes, back } = await secondMeets(fault, forS);
    expect((await outcomes()).map(([id, how]) => [id, how])).toEqual([
      ["a", "confirmed"],
      ["b", outcome],
      ["a/restore", "confirmed"],
    ]);
    expect(rig.posts.at(-1)).toEqual([back]);
    expect(rig.commands.notices()).toEqual([]);
  }
});

test("after a second write with unknown result, the restore writes the first old value", async () => {
  for (const wasWritten of [false, true]) {
    const trial = await rigWith();
    const { rig, outcomes } = trial;
    await rig.send({ id: "a", tag, value: 22, for_s: 7200 });
    await rig.clock.advance(HOUR_MS);
    const effect = wasWritten ? "applied" : "none";
    rig.simulator.control.setFaults([
      { match: { endpoints: ["write"] }, when: { count: 1 }, fault: { kind: "reset", effect } },
      { match: { endpoints: ["read"] }, when: { skip: 1, for_s: 600 }, fault: { kind: "null_values" } },
    ] as never);
    await rig.send({ id: "b", tag, value: 23, for_s: 7200 });
    await rig.clock.advance(4 * HOUR_MS);
    expect((await outcomes()).map(([id, how]) => [id, how])).toEqual([
      ["a", "confirmed"],
      ["b", "unknown"],
      ...(wasWritten
        ? [
            ["a/restore", "superseded"],
            ["b/restore", "confirmed"],
          ]
        : [
            ["b/restore", "rejected"],
            ["a/restore", "confirmed"],
          ]),
    ]);
    expect(rig.posts.at(-1)).toEqual([{ tag_id: tag, value: 20 }]);
  }
});

test("a timed write that expires during its journal commit causes no restore", async () => {
  const { rig, outcomes } = await rigWith();
  rig.slowDown("sending", 40_000);
  await rig.send({ id: "a", tag, value: 22, for_s: 7200 });
  await rig.clock.advance(120_000);
  rig.slowDown("none", 0);
  rig.simulator.control.setTag(tag, 22);
  await rig.clock.advance(3 * HOUR_MS);
  expect(await outcomes()).toEqual([["a", "expired", "expired"]]);
  expect(rig.posts).toEqual([]);
});

test("two timed writes restore the first old value although the device stores single precision", async () => {
  const { rig } = await rigWith();
  await rig.send({ id: "a", tag, value: 22.1, for_s: 7200 });
  await rig.clock.advance(HOUR_MS);
  rig.simulator.control.setTag(tag, Math.fround(22.1));
  await rig.send({ id: "b", tag, value: 23, for_s: 7200 });
  await rig.clock.advance(3 * HOUR_MS);
  expect(rig.posts.at(-1)).toEqual([{ tag_id: tag, value: 20 }]);
});

test("a repeated timed write of the same value prolongs the time, and an untimed write of the same value cancels the restore, both without a request", async () => {
  const { rig, outcomes } = await rigWith();
  await rig.send({ id: "a", tag, value: 22, for_s: 7200 });
  await rig.clock.advance(HOUR_MS);
  await rig.send({ id: "b", tag, value: 22, for_s: 7200 });
  await rig.clock.advance(HOUR_MS + 60_000);
  expect(rig.posts).toEqual([[{ tag_id: tag, value: 22 }]]);
  await rig.clock.advance(HOUR_MS);
  expect(rig.posts.at(-1)).toEqual([{ tag_id: tag, value: 20 }]);

  await rig.clock.advance(HOUR_MS);
  await rig.send({ id: "c", tag, value: 22, for_s: 7200 });
  await rig.clock.advance(HOUR_MS);
  await rig.send({ id: "d", tag, value: 22, expect: 22 });
  await rig.clock.advance(3 * HOUR_MS);
  expect(rig.posts).toHaveLength(3);
  expect(await outcomes()).toEqual([
    ["a", "confirmed", null],
    ["a/restore", "superseded", "superseded"],
    ["b", "confirmed", "already-set"],
    ["b/restore", "confirmed", null],
    ["c", "confirmed", null],
    ["c/restore", "superseded", "superseded"],
    ["d", "confirmed", "already-set"],
  ]);
});

test("a pending restore ends as unexpected-value when a person has already set the value of a second timed write", async () => {
  const { rig, outcomes } = await rigWith();
  await rig.send({ id: "a", tag, value: 22, for_s: 7200 });
  await rig.clock.advance(HOUR_MS);
  rig.simulator.control.setTag(tag, 24);
  await rig.send({ id: "b", tag, value: 24, for_s: 7200 });
  await rig.clock.advance(4 * HOUR_MS);
  expect(await outcomes()).toEqual([
    ["a", "confirmed", null],
    ["b", "confirmed", "already-set"],
    ["a/restore", "rejected", "unexpected-value"],
  ]);
  expect(rig.posts).toHaveLength(1);
});
