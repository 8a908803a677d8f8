import { existsSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { booleanTags, type RigOptions } from "./command-harness.ts";
import { allowed, faulty, TAGS, TAG as tag, testRig } from "./test-harness.ts";

const threeWrites = TAGS.slice(0, 3).map((each) => ({ tag: each, value: 22 }));
const threeTimes = (outcome: string) => Array(3).fill(outcome);
const allowAll = (entry: object = {}) => TAGS.map((each) => allowed(each, entry));

describe("a valid command", () => {
  test("is journaled, written once, read back and reported, with every step in the audit log", async () => {
    const rig = await testRig();
    await rig.sendAndWait({ id: "a", tag, value: 21.5 }, { replyTo: "reply/x", correlation: "Y29y" });
    expect(await rig.results()).toEqual([
      {
        commandId: "a",
        tagId: tag,
        outcome: "confirmed",
        reason: null,
        message: "The tag holds 21.5.",
        requested: 21.5,
        before: null,
        readBack: 21.5,
        rehearsal: false,
        correlation: "Y29y",
        replyTo: "reply/x",
      },
    ]);
    expect(rig.posts).toEqual([[{ tag_id: tag, value: 21.5 }]]);
    expect(await rig.audit()).toMatchObject([
      {
        commandId: "a",
        step: "accepted",
        detail: { by: "broker plenum/cmd/main/set", value: 21.5, limits: { min: 15 } },
      },
      { commandId: "a", step: "sending", detail: { before: null, group: ["a"] } },
      { commandId: "a", step: "confirmed", detail: { outcome: "confirmed", answer: "answered", readBack: 21.5 } },
    ]);
  });

  test("is written in one request with the other commands of its message, and each of the 20 tags gets a result", async () => {
    const rig = await testRig();
    const writes = TAGS.slice(0, 20).map((each, n) => ({ tag: each, value: 21 + n / 100 }));
    await rig.sendAndWait({ id: "g", writes });
    expect(rig.posts.map((post) => post.length)).toEqual([20]);
    expect((await rig.outcomes()).toSorted()).toEqual(writes.map((each) => `g/${each.tag} confirmed`));
    expect(rig.requests("read")).toBe(1);
  });

  test.each([
    ["200ms", [3]],
    ["0s", [1, 1, 1]],
  ])("shares a write request only with commands that arrive within group_window (%s)", async (group_window, sizes) => {
    const rig = await testRig({ config: { allow: allowAll(), group_window } });
    for (const [n, each] of TAGS.slice(0, 3).entries()) await rig.send({ id: `${n}`, tag: each, value: 22 });
    await rig.clock.advance(5_000);
    expect((await rig.outcomes()).toSorted()).toEqual(["0 confirmed", "1 confirmed", "2 confirmed"]);
    expect(rig.posts.map((post) => post.length)).toEqual(sizes);
  });

  test("with the value true is written to a boolean tag, and the value 1 is rejected", async () => {
    const rig = await testRig();
    const [onOff = ""] = booleanTags(rig.simulator);
    rig.simulator.control.setTag(onOff, false);
    await rig.send({ id: "one", tag: onOff, value: 1 });
    await rig.sendAndWait({ id: "true", tag: onOff, value: true });
    expect(await rig.outcomes()).toEqual(["one rejected wrong-type", "true confirmed"]);
  });

  test("is confirmed without a write when the tag already has the requested value", async () => {
    const rig = await testRig({ config: { allow: [allowed(tag, { max_step: 3 })] } });
    await rig.sendAndWait({ id: "a", tag, value: 20 });
    expect(await rig.result("a")).toMatchObject({ outcome: "confirmed", reason: "already-set", before: 20 });
    expect(rig.posts).toEqual([]);
  });
});

const writes = (options: object) => ({ writes: options });
const unreadable = { endpoints: ["read" as const] };

describe("the result of one write request", () => {
  test.each<[string, RigOptions["simulator"], string]>([
    ["the connection is cut after the write was applied", faulty({ kind: "cut", after_bytes: 10 }), "confirmed"],
    ["the connection is reset before the write is applied", faulty({ kind: "reset" }), "mismatch"],
    ["no response arrives", faulty({ kind: "slow", delay_ms: 120_000 }), "confirmed"],
    ["status 429", faulty({ kind: "throttled", retry_after_s: 5 }), "rejected throttled"],
    ["status 503 with an HTML page", faulty({ kind: "maintenance", body: "html", retry_after: 5 }), "mismatch"],
    ["status 403", faulty({ kind: "error", status: 403 }), "rejected refused-by-service"],
    ["status 422", faulty({ kind: "error", status: 422 }), "rejected refused-by-service"],
    ["status 500 after the write was applied", faulty({ kind: "error", status: 500, effect: "applied" }), "confirmed"],
    ["a response with errors and data", faulty({ kind: "errors_and_data" }), "confirmed"],
    ["the device ignores the value", writes({ ignored_tags: [tag] }), "mismatch"],
    ["the device clamps the value", writes({ clamp: { [tag]: [0, 21] } }), "mismatch"],
    ["the device needs 4 s to apply the value", writes({ settle_ms: 4_000 }), "confirmed"],
    ["the response lacks the tag", writes({ ignored_tags: [tag], answer: "accepted_only" }), "mismatch"],
    ["the tag is unreadable", faulty({ kind: "null_values" }, unreadable, {}), "accepted-unverified unreadable-device"],
    ["all later requests fail", faulty({ kind: "reset" }, {}, {}), "unknown in-doubt"],
  ])("is reported as a command result after the failure: %s", async (_name, simulator = {}, outcome) => {
    const rig = await testRig({ simulator });
    await rig.sendAndWait({ id: "a", tag, value: 22 }, {}, 300_000);
    expect(await rig.outcomes()).toEqual([`a ${outcome}`]);
    expect(rig.posts).toHaveLength(1);
    const steps = (await rig.audit()).map(({ step }) => step);
    expect(steps).toEqual(["accepted", "sending", outcome.split(" ")[0]]);
  });

  test.each(["drop", "apply_later", "refuse"] as const)(
    "is accepted-unverified or unknown when the gateway is offline (write handling: %s)",
    async (when_offline) => {
      const rig = await testRig({ simulator: { writes: { when_offline } } });
      rig.simulator.control.setGateway(rig.simulator.world.tags.get(tag)?.gatewayId ?? 0, false);
      const outcome = await rig.outcomeOf({ id: "a", tag, value: 22 }, {}, 300_000);
      expect(outcome).toMatch(/^(accepted-unverified|unknown)/);
      expect(rig.posts).toHaveLength(1);
    },
  );

  test.each(["none", "apply_good"] as const)(
    "is reported per tag when one of several devices rejects its value (partial write: %s)",
    async (partial) => {
      const rig = await testRig({ simulator: { writes: { partial, rejected_tags: [tag] } } });
      await rig.sendAndWait({ id: "g", writes: threeWrites }, {}, 60_000);
      const others = partial === "none" ? "mismatch" : "confirmed";
      const ends = Object.fromEntries((await rig.results()).map(({ tagId, outcome }) => [tagId, outcome]));
      expect(ends).toEqual({ [tag]: "mismatch", 10251: others, 10252: others });
      expect(rig.posts).toHaveLength(1);
    },
  );

  test("is refused-by-service for each tag of a rejected request, whose tags are later written singly", async () => {
    const simulator = faulty({ kind: "error", status: 422 });
    const rig = await testRig({ simulator, config: { allow: allowAll({ min_interval: "1s" }) } });
    await rig.sendAndWait({ id: "g", writes: threeWrites }, {}, 20_000);
    await rig.sendAndWait({ id: "h", writes: threeWrites }, {}, 20_000);
    expect((await rig.results()).map(({ reason, outcome }) => reason ?? outcome)).toEqual([
      ...threeTimes("refused-by-service"),
      ...threeTimes("confirmed"),
    ]);
    expect(rig.posts.map((post) => post.length)).toEqual([3, 1, 1, 1]);
  });
});

test("a message with a deleted tag gets a result per tag, and the next message writes the other tags", async () => {
  const rig = await testRig({ config: { allow: allowAll({ min_interval: "1s" }) } });
  rig.simulator.control.changeInventory("tags", tag, { removed: true });
  await rig.sendAndWait({ id: "g", writes: threeWrites }, {}, 120_000);
  await rig.sendAndWait({ id: "h", writes: threeWrites }, {}, 120_000);
  const ends = Object.fromEntries((await rig.results()).map(({ commandId, outcome }) => [commandId, outcome]));
  const [removed, second, third] = TAGS;
  expect(ends).toEqual({
    [`g/${removed}`]: "unknown",
    [`g/${second}`]: "rejected",
    [`g/${third}`]: "rejected",
    [`h/${removed}`]: "rejected",
    [`h/${second}`]: "confirmed",
    [`h/${third}`]: "confirmed",
  });
});

test("a slow request for another tag (50 s to read or write) delays no command", async () => {
  const slow = { kind: "slow" as const, delay_ms: 50_000 };
  const faults = [...faulty(slow, unreadable).faults, ...faulty(slow).faults];
  const allow = TAGS.map((each) => allowed(each, each === tag ? { max_step: 3 } : {}));
  const rig = await testRig({ config: { allow }, simulator: { faults } });
  await rig.send({ id: "slow reading", tag, value: 22, ttl_s: 120 });
  await rig.sendAndWait({ id: "slow write", tag: TAGS[1], value: 22 });
  await rig.sendAndWait({ id: "third", tag: TAGS[2], value: 22 }, {}, 10_000);
  expect(await rig.outcomes()).toEqual(["third confirmed"]);
  await rig.clock.advance(120_000);
  expect((await rig.results()).map(({ outcome }) => outcome)).toEqual(threeTimes("confirmed"));
});

describe("a command that waits for the quota", () => {
  async function waitingRig(options: RigOptions = {}) {
    const rig = await testRig(options);
    await rig.pauseService(100);
    return rig;
  }

  test("expires at the end of its time to live without a request", async () => {
    const rig = await waitingRig();
    const requests = () => rig.requests("write") + rig.requests("read");
    const before = requests();
    expect(await rig.outcomeOf({ id: "a", tag, value: 22, ttl_s: 10 }, {}, 10_100)).toBe("expired");
    expect(rig.commands.status().waiting).toBe(0);
    await rig.clock.advance(20_000);
    expect(requests()).toBe(before);
    await rig.clock.advance(300_000);
    expect(rig.posts).toEqual([]);
  });

  test("expires in time when the wall clock is set back by 1.9 s, and is rejected when it is set back by one hour", async () => {
    const rig = await waitingRig();
    for (const [id, stepMs] of Object.entries({ a: -1_900, b: -3_600_000 })) {
      await rig.send({ id, tag, value: 22, ttl_s: 10 });
      rig.clock.stepWall(stepMs);
      await rig.clock.advance(11_000);
    }
    expect(await rig.outcomes()).toEqual(["a expired", "b rejected clock-skew"]);
  });

  test("is rejected within 1 s after the kill switch is thrown", async () => {
    const rig = await waitingRig();
    await rig.sendAndWait({ id: "a", tag, value: 22, ttl_s: 200 }, {}, 1_000);
    rig.killSwitch.turnOn("a test", "now");
    await rig.clock.advance(1_000);
    expect(await rig.outcomes()).toEqual(["a rejected killed"]);
    await rig.clock.advance(300_000);
    expect(rig.posts).toEqual([]);
  });

  test("is superseded by a newer command for the same tag", async () => {
    const rig = await waitingRig();
    for (const [id, value] of Object.entries({ a: 21, b: 22, c: 23 }))
      await rig.sendAndWait({ id, tag, value, ttl_s: 200 }, {}, 1_000);
    expect(await rig.outcomes()).toEqual(["a superseded", "b superseded"]);
    expect(rig.commands.expectedWaitMs(null)).toBeGreaterThan(50_000);
    await rig.clock.advance(200_000);
    expect((await rig.outcomes()).slice(2)).toEqual(["c confirmed"]);
    expect(rig.posts).toEqual([[{ tag_id: tag, value: 23 }]]);
  });

  test("is rejected if the step from a value read after the wait exceeds max_step", async () => {
    const rig = await waitingRig({ config: { allow: allowAll({ max_step: 3 }) } });
    await rig.sendAndWait({ id: "a", tag, value: 22, ttl_s: 300 }, {}, 60_000);
    await rig.send({ id: "b", tag: TAGS[1], value: 22, ttl_s: 300 });
    await rig.sendAndWait({ id: "far", tag: TAGS[2], value: 24, ttl_s: 300 }, {}, 240_000);
    expect((await rig.outcomes()).toSorted()).toEqual(["a confirmed", "b confirmed", "far rejected step-too-large"]);
    expect((await rig.result("far"))?.before).toBe(20);
  });

  test("is reported with a result when the worker stops", async () => {
    const rig = await waitingRig();
    await rig.send({ id: "a", tag, value: 22, ttl_s: 200 });
    await rig.stop(1_000);
    expect(await rig.outcomes()).toEqual(["a expired stopped"]);
    await rig.clock.advance(300_000);
    expect(rig.posts).toEqual([]);
  });
});

describe("a worker that must not write", () => {
  test("sends no write request during a rehearsal, and applies the same rejections and limits", async () => {
    const rig = await testRig({ config: { rehearsal: true, allow: [allowed(tag, { max_step: 3 })] } });
    for (const [id, value] of Object.entries({ far: 24, a: 22, b: 23 })) await rig.sendAndWait({ id, tag, value });
    expect(await rig.outcomes()).toEqual([
      "far rejected step-too-large",
      "a accepted-unverified rehearsal",
      "b rejected too-soon",
    ]);
    expect((await rig.results()).map(({ rehearsal }) => rehearsal)).toEqual([false, true, false]);
    expect(rig.posts).toEqual([]);
  });

  test("rejects commands after a message threw the kill switch, also after restarts, until it is released", async () => {
    const rig = await testRig();
    await rig.send({ id: "stop-1", stop: true }, { retained: true });
    expect(existsSync(rig.killSwitch.file)).toBe(true);
    await rig.restart();
    await rig.sendAndWait({ id: "a", tag, value: 22 });
    rig.killSwitch.turnOff();
    await rig.sendAndWait({ id: "b", tag, value: 22 });
    expect(await rig.outcomes()).toEqual(["stop-1 confirmed stop", "a rejected killed", "b confirmed"]);
    const steps = (await rig.audit()).map((record) => record.step);
    expect(steps).toEqual(expect.arrayContaining(["writing-stopped", "writing-released"]));
    expect(rig.posts).toHaveLength(1);
  });

  test("rejects a repeated command id as duplicate while the kill switch is thrown", async () => {
    const rig = await testRig();
    await rig.sendAndWait({ id: "a", tag, value: 22 });
    await rig.send({ id: "stop-1", stop: true });
    await rig.send({ id: "a", tag, value: 22 });
    await rig.sendAndWait({ id: "b", tag, value: 23 });
    expect(await rig.outcomes()).toEqual(["a confirmed", "stop-1 confirmed stop", "a duplicate", "b rejected killed"]);
    expect(rig.posts).toHaveLength(1);
  });

  test.each([-40, 40])("rejects commands when its clock differs from the service's by %i s", async (clock_skew_s) => {
    const rig = await testRig({ simulator: { clock_skew_s } });
    await rig.send({ id: "a", tag, value: 22 });
    const read = rig.source.read([tag], "on-demand", new AbortController().signal);
    await rig.clock.advance(100);
    await read;
    await rig.sendAndWait({ id: "b", tag: TAGS[1], value: 22 });
    expect(await rig.outcomes()).toEqual(["b rejected clock-skew", "a rejected clock-skew"]);
    expect(rig.posts).toEqual([]);
  });

  test("sends no write while the store cannot record commands, and emits the results afterwards", async () => {
    const rig = await testRig();
    rig.breakStore(true);
    await expect(rig.send({ id: "a", tag, value: 22 })).rejects.toThrow("disk is full");
    await expect(rig.send({ id: "bad", tag: "?", value: 22 })).rejects.toThrow("disk is full");
    await rig.clock.advance(10_000);
    rig.breakStore(false);
    await rig.send({ id: "b", tag, value: 22 });
    rig.breakStore(true);
    await rig.clock.advance(20_000);
    expect(rig.posts).toEqual([]);
    rig.breakStore(false);
    await rig.clock.advance(500);
    for (let n = 0; n < 50 && rig.posts.length === 0; n += 1) await rig.clock.advance(100);
    expect(rig.posts).toHaveLength(1);
    rig.breakStore(true);
    await rig.clock.advance(20_000);
    expect(await rig.outcomes()).toEqual([]);
    rig.breakStore(false);
    await rig.clock.advance(5_000);
    expect(await rig.outcomes()).toEqual(["b confirmed"]);
  });
});

test.each(["expired", "rejected killed"])(
  "a command is not sent when it becomes %s during a slow journal commit",
  async (end) => {
    const rig = await testRig();
    rig.slowDown("sending", 5_000);
    await rig.sendAndWait({ id: "a", tag, value: 22, ttl_s: end === "expired" ? 3 : 60 }, {}, 1_000);
    if (end !== "expired") rig.killSwitch.turnOn("a test", "now");
    await rig.clock.advance(20_000);
    expect(await rig.outcomes()).toEqual([`a ${end}`]);
    expect(rig.posts).toEqual([]);
  },
);

describe("a command with a repeated id", () => {
  test("is rejected as duplicate, also over restarts", async () => {
    const rig = await testRig();
    await rig.send({ id: "a", tag, value: 22 });
    await rig.sendAndWait({ id: "a", tag, value: 23 });
    await rig.send({ id: "a", tag: TAGS[1], value: 23 });
    await rig.restart();
    await rig.sendAndWait({ id: "a", tag: TAGS[1], value: 23 });
    expect(await rig.outcomes()).toEqual(["a duplicate", "a confirmed", "a duplicate", "a duplicate"]);
    expect(rig.posts).toHaveLength(1);
  });

  test("is written once when three messages with the id arrive at the same time", async () => {
    const rig = await testRig();
    await Promise.all([1, 2, 3].map(() => rig.send({ id: "a", tag, value: 22 })));
    await rig.clock.advance(5_000);
    expect(await rig.outcomes()).toEqual(["a duplicate", "a duplicate", "a confirmed"]);
  });

  test("is rejected as expired after a week", async () => {
    const rig = await testRig();
    const issued_at = new Date(rig.clock.now()).toISOString();
    await rig.sendAndWait({ id: "a", tag, value: 22, issued_at });
    rig.clock.stepWall(8 * 86_400_000);
    await rig.compareClocks();
    await rig.clock.advance(3_700_000);
    await rig.sendAndWait({ id: "a", tag, value: 23, issued_at });
    expect(await rig.outcomes()).toEqual(["a confirmed", "a expired"]);
  });
});

test("max_per_hour counts each write of a message with several writes, and applies over restarts", async () => {
  const rig = await testRig({ config: { max_per_hour: 3 } });
  await rig.sendAndWait({ id: "g", writes: TAGS.slice(0, 5).map((each) => ({ tag: each, value: 22 })) });
  await rig.restart();
  await rig.sendAndWait({ id: "a", tag: TAGS[6], value: 22 });
  expect(rig.posts.flat()).toHaveLength(3);
  const reasons = (await rig.results()).map((result) => result.reason ?? result.outcome);
  expect(reasons.toSorted()).toEqual([...threeTimes("confirmed"), ...threeTimes("too-many")]);
  rig.clock.stepWall(3_600_000);
  await rig.compareClocks();
  await rig.sendAndWait({ id: "b", tag: TAGS[7], value: 22 });
  expect((await rig.outcomes()).at(-1)).toBe("b confirmed");
});

test("max_per_day counts writes before a restart of the worker too", async () => {
  const rig = await testRig({ config: { allow: [allowed(tag, { max_per_day: 3 })] } });
  for (let n = 0; n < 5; n += 1) {
    await rig.sendAndWait({ id: `${n}`, tag, value: 21 + (n % 2) }, {}, 70_000);
    await rig.restart();
  }
  expect(rig.posts).toHaveLength(3);
  expect((await rig.results()).map((result) => result.reason)).toEqual([null, null, null, "too-many", "too-many"]);
  await rig.clock.advance(86_400_000);
  await rig.sendAndWait({ id: "next day", tag, value: 23 });
  expect((await rig.outcomes()).at(-1)).toBe("next day confirmed");
});

describe("a restart of the worker", () => {
  test.each([
    ["the write had arrived", faulty({ kind: "slow", delay_ms: 30_000 }), "confirmed"],
    ["the write had not arrived", faulty({ kind: "error", status: 500 }), "mismatch"],
  ])("reads back a sent command and never sends the command again: %s", async (_name, simulator, outcome) => {
    const rig = await testRig({ simulator });
    await rig.sendAndWait({ id: "a", tag, value: 22 }, {}, 1_000);
    expect(rig.posts).toHaveLength(1);
    for (let restarts = 0; restarts < 2; restarts += 1) {
      await rig.restart();
      await rig.clock.advance(120_000);
      expect(await rig.outcomes()).toEqual([`a ${outcome}`]);
    }
    expect(rig.posts).toHaveLength(1);
  });
});

describe("the verification of a write by the next live read of its tag", () => {
  test("confirms the value without an additional request", async () => {
    const rig = await testRig();
    await rig.sendAndWait({ id: "a", tag, value: 22 }, {}, 1_500);
    await rig.storeLiveValue(tag, 22);
    await rig.clock.advance(5_000);
    expect(await rig.outcomes()).toEqual(["a confirmed"]);
    expect(rig.requests("read")).toBe(0);
  });

  test("ignores a live read from before the write", async () => {
    const rig = await testRig({ simulator: faulty({ kind: "error", status: 500 }) });
    await rig.storeLiveValue(tag, 22, 100_000);
    await rig.sendAndWait({ id: "a", tag, value: 22 }, {}, 60_000);
    expect(await rig.outcomes()).toEqual(["a mismatch"]);
  });
});
