import { existsSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { booleanTags, type HarnessOptions } from "./command-harness.ts";
import { allowed, faulty, openHarness, TAGS, TAG as tag } from "./test-harness.ts";

const threeWrites = TAGS.slice(0, 3).map((each) => ({ tag: each, value: 22 }));
const threeTimes = (outcome: string) => Array(3).fill(outcome);
const allowAll = (entry: object = {}) => TAGS.map((each) => allowed(each, entry));

describe("a valid command", () => {
  test("is journaled, written once, read back and reported, with every step in the audit log", async () => {
    const harness = await openHarness();
    await harness.execute({ id: "a", tag, value: 21.5 }, { replyTo: "reply/x", correlation: "Y29y" });
    expect(await harness.results()).toEqual([
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
    expect(harness.posts).toEqual([[{ tag_id: tag, value: 21.5 }]]);
    expect(await harness.audit()).toMatchObject([
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
    const harness = await openHarness();
    const writes = TAGS.slice(0, 20).map((each, n) => ({ tag: each, value: 21 + n / 100 }));
    await harness.execute({ id: "g", writes });
    expect(harness.posts.map((post) => post.length)).toEqual([20]);
    expect((await harness.outcomes()).toSorted()).toEqual(writes.map((each) => `g/${each.tag} confirmed`));
    expect(harness.requests("read")).toBe(1);
  });

  test.each([
    ["200ms", [3]],
    ["0s", [1, 1, 1]],
  ])("shares a write request only with commands that arrive within group_window (%s)", async (group_window, sizes) => {
    const harness = await openHarness({ config: { allow: allowAll(), group_window } });
    for (const [n, each] of TAGS.slice(0, 3).entries()) await harness.send({ id: `${n}`, tag: each, value: 22 });
    await harness.clock.advance(5_000);
    expect((await harness.outcomes()).toSorted()).toEqual(["0 confirmed", "1 confirmed", "2 confirmed"]);
    expect(harness.posts.map((post) => post.length)).toEqual(sizes);
  });

  test("with the value true is written to a boolean tag, and the value 1 is rejected", async () => {
    const harness = await openHarness();
    const [onOff = ""] = booleanTags(harness.simulator);
    harness.simulator.control.setTag(onOff, false);
    await harness.send({ id: "one", tag: onOff, value: 1 });
    await harness.execute({ id: "true", tag: onOff, value: true });
    expect(await harness.outcomes()).toEqual(["one rejected wrong-type", "true confirmed"]);
  });

  test("is confirmed without a write when the tag already has the requested value", async () => {
    const harness = await openHarness({ config: { allow: [allowed(tag, { max_step: 3 })] } });
    await harness.execute({ id: "a", tag, value: 20 });
    expect(await harness.result("a")).toMatchObject({ outcome: "confirmed", reason: "already-set", before: 20 });
    expect(harness.posts).toEqual([]);
  });
});

const writes = (options: object) => ({ writes: options });
const unreadable = { endpoints: ["read" as const] };

describe("the result of one write request", () => {
  test.each<[string, HarnessOptions["simulator"], string]>([
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
    const harness = await openHarness({ simulator });
    await harness.execute({ id: "a", tag, value: 22 }, {}, 300_000);
    expect(await harness.outcomes()).toEqual([`a ${outcome}`]);
    expect(harness.posts).toHaveLength(1);
    const steps = (await harness.audit()).map(({ step }) => step);
    expect(steps).toEqual(["accepted", "sending", outcome.split(" ")[0]]);
  });

  test.each(["drop", "apply_later", "refuse"] as const)(
    "is accepted-unverified or unknown when the gateway is offline (write handling: %s)",
    async (when_offline) => {
      const harness = await openHarness({ simulator: { writes: { when_offline } } });
      harness.simulator.control.setGateway(harness.simulator.world.tags.get(tag)?.gatewayId ?? 0, false);
      const outcome = await harness.outcomeOf({ id: "a", tag, value: 22 }, {}, 300_000);
      expect(outcome).toMatch(/^(accepted-unverified|unknown)/);
      expect(harness.posts).toHaveLength(1);
    },
  );

  test.each(["none", "apply_good"] as const)(
    "is reported per tag when one of several devices rejects its value (partial write: %s)",
    async (partial) => {
      const harness = await openHarness({ simulator: { writes: { partial, rejected_tags: [tag] } } });
      await harness.execute({ id: "g", writes: threeWrites }, {}, 60_000);
      const others = partial === "none" ? "mismatch" : "confirmed";
      const ends = Object.fromEntries((await harness.results()).map(({ tagId, outcome }) => [tagId, outcome]));
      expect(ends).toEqual({ [tag]: "mismatch", 10251: others, 10252: others });
      expect(harness.posts).toHaveLength(1);
    },
  );

  test("is refused-by-service for each tag of a rejected request, whose tags are later written singly", async () => {
    const simulator = faulty({ kind: "error", status: 422 });
    const harness = await openHarness({ simulator, config: { allow: allowAll({ min_interval: "1s" }) } });
    await harness.execute({ id: "g", writes: threeWrites }, {}, 20_000);
    await harness.execute({ id: "h", writes: threeWrites }, {}, 20_000);
    expect((await harness.results()).map(({ reason, outcome }) => reason ?? outcome)).toEqual([
      ...threeTimes("refused-by-service"),
      ...threeTimes("confirmed"),
    ]);
    expect(harness.posts.map((post) => post.length)).toEqual([3, 1, 1, 1]);
  });
});

test("a message with a deleted tag gets a result per tag, and the next message writes the other tags", async () => {
  const harness = await openHarness({ config: { allow: allowAll({ min_interval: "1s" }) } });
  harness.simulator.control.changeInventory("tags", tag, { removed: true });
  await harness.execute({ id: "g", writes: threeWrites }, {}, 120_000);
  await harness.execute({ id: "h", writes: threeWrites }, {}, 120_000);
  const ends = Object.fromEntries((await harness.results()).map(({ commandId, outcome }) => [commandId, outcome]));
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
  const harness = await openHarness({ config: { allow }, simulator: { faults } });
  await harness.send({ id: "slow reading", tag, value: 22, ttl_s: 120 });
  await harness.execute({ id: "slow write", tag: TAGS[1], value: 22 });
  await harness.execute({ id: "third", tag: TAGS[2], value: 22 }, {}, 10_000);
  expect(await harness.outcomes()).toEqual(["third confirmed"]);
  await harness.clock.advance(120_000);
  expect((await harness.results()).map(({ outcome }) => outcome)).toEqual(threeTimes("confirmed"));
});

describe("a command that waits for the quota", () => {
  async function waitingHarness(options: HarnessOptions = {}) {
    const harness = await openHarness(options);
    await harness.pauseService(100);
    return harness;
  }

  test("expires at the end of its time to live without a request", async () => {
    const harness = await waitingHarness();
    const requests = () => harness.requests("write") + harness.requests("read");
    const before = requests();
    expect(await harness.outcomeOf({ id: "a", tag, value: 22, ttl_s: 10 }, {}, 10_100)).toBe("expired");
    expect(harness.commands.status().waiting).toBe(0);
    await harness.clock.advance(20_000);
    expect(requests()).toBe(before);
    await harness.clock.advance(300_000);
    expect(harness.posts).toEqual([]);
  });

  test("expires in time when the wall clock is set back by 1.9 s, and is rejected when it is set back by one hour", async () => {
    const harness = await waitingHarness();
    for (const [id, stepMs] of Object.entries({ a: -1_900, b: -3_600_000 })) {
      await harness.send({ id, tag, value: 22, ttl_s: 10 });
      harness.clock.stepWall(stepMs);
      await harness.clock.advance(11_000);
    }
    expect(await harness.outcomes()).toEqual(["a expired", "b rejected clock-skew"]);
  });

  test("is rejected within 1 s after the kill switch is thrown", async () => {
    const harness = await waitingHarness();
    await harness.execute({ id: "a", tag, value: 22, ttl_s: 200 }, {}, 1_000);
    harness.killSwitch.turnOn("a test", "now");
    await harness.clock.advance(1_000);
    expect(await harness.outcomes()).toEqual(["a rejected killed"]);
    await harness.clock.advance(300_000);
    expect(harness.posts).toEqual([]);
  });

  test("is superseded by a newer command for the same tag", async () => {
    const harness = await waitingHarness();
    for (const [id, value] of Object.entries({ a: 21, b: 22, c: 23 }))
      await harness.execute({ id, tag, value, ttl_s: 200 }, {}, 1_000);
    expect(await harness.outcomes()).toEqual(["a superseded", "b superseded"]);
    expect(harness.commands.expectedWaitMs(null)).toBeGreaterThan(50_000);
    await harness.clock.advance(200_000);
    expect((await harness.outcomes()).slice(2)).toEqual(["c confirmed"]);
    expect(harness.posts).toEqual([[{ tag_id: tag, value: 23 }]]);
  });

  test("is rejected if the step from a value read after the wait exceeds max_step", async () => {
    const harness = await waitingHarness({ config: { allow: allowAll({ max_step: 3 }) } });
    await harness.execute({ id: "a", tag, value: 22, ttl_s: 300 }, {}, 60_000);
    await harness.send({ id: "b", tag: TAGS[1], value: 22, ttl_s: 300 });
    await harness.execute({ id: "far", tag: TAGS[2], value: 24, ttl_s: 300 }, {}, 240_000);
    expect((await harness.outcomes()).toSorted()).toEqual([
      "a confirmed",
      "b confirmed",
      "far rejected step-too-large",
    ]);
    expect((await harness.result("far"))?.before).toBe(20);
  });

  test("is reported with a result when the worker stops", async () => {
    const harness = await waitingHarness();
    await harness.send({ id: "a", tag, value: 22, ttl_s: 200 });
    await harness.stop(1_000);
    expect(await harness.outcomes()).toEqual(["a expired stopped"]);
    await harness.clock.advance(300_000);
    expect(harness.posts).toEqual([]);
  });
});

describe("a worker that must not write", () => {
  test("sends no write request during a rehearsal, and applies the same rejections and limits", async () => {
    const harness = await openHarness({ config: { rehearsal: true, allow: [allowed(tag, { max_step: 3 })] } });
    for (const [id, value] of Object.entries({ far: 24, a: 22, b: 23 })) await harness.execute({ id, tag, value });
    expect(await harness.outcomes()).toEqual([
      "far rejected step-too-large",
      "a accepted-unverified rehearsal",
      "b rejected too-soon",
    ]);
    expect((await harness.results()).map(({ rehearsal }) => rehearsal)).toEqual([false, true, false]);
    expect(harness.posts).toEqual([]);
  });

  test("rejects commands after a message threw the kill switch, also after restarts, until it is released", async () => {
    const harness = await openHarness();
    await harness.send({ id: "stop-1", stop: true }, { retained: true });
    expect(existsSync(harness.killSwitch.file)).toBe(true);
    await harness.restart();
    await harness.execute({ id: "a", tag, value: 22 });
    harness.killSwitch.turnOff();
    await harness.execute({ id: "b", tag, value: 22 });
    expect(await harness.outcomes()).toEqual(["stop-1 confirmed stop", "a rejected killed", "b confirmed"]);
    const steps = (await harness.audit()).map((record) => record.step);
    expect(steps).toEqual(expect.arrayContaining(["writing-stopped", "writing-released"]));
    expect(harness.posts).toHaveLength(1);
  });

  test("rejects a repeated command id as duplicate while the kill switch is thrown", async () => {
    const harness = await openHarness();
    await harness.execute({ id: "a", tag, value: 22 });
    await harness.send({ id: "stop-1", stop: true });
    await harness.send({ id: "a", tag, value: 22 });
    await harness.execute({ id: "b", tag, value: 23 });
    expect(await harness.outcomes()).toEqual([
      "a confirmed",
      "stop-1 confirmed stop",
      "a duplicate",
      "b rejected killed",
    ]);
    expect(harness.posts).toHaveLength(1);
  });

  test.each([-40, 40])("rejects commands when its clock differs from the service's by %i s", async (clock_skew_s) => {
    const harness = await openHarness({ simulator: { clock_skew_s } });
    await harness.send({ id: "a", tag, value: 22 });
    const read = harness.source.read([tag], "on-demand", new AbortController().signal);
    await harness.clock.advance(100);
    await read;
    await harness.execute({ id: "b", tag: TAGS[1], value: 22 });
    expect(await harness.outcomes()).toEqual(["b rejected clock-skew", "a rejected clock-skew"]);
    expect(harness.posts).toEqual([]);
  });

  test("sends no write while the store cannot record commands, and emits the results afterwards", async () => {
    const harness = await openHarness();
    harness.breakStore(true);
    await expect(harness.send({ id: "a", tag, value: 22 })).rejects.toThrow("disk is full");
    await expect(harness.send({ id: "bad", tag: "?", value: 22 })).rejects.toThrow("disk is full");
    await harness.clock.advance(10_000);
    harness.breakStore(false);
    await harness.send({ id: "b", tag, value: 22 });
    harness.breakStore(true);
    await harness.clock.advance(20_000);
    expect(harness.posts).toEqual([]);
    harness.breakStore(false);
    await harness.clock.advance(500);
    for (let n = 0; n < 50 && harness.posts.length === 0; n += 1) await harness.clock.advance(100);
    expect(harness.posts).toHaveLength(1);
    harness.breakStore(true);
    await harness.clock.advance(20_000);
    expect(await harness.outcomes()).toEqual([]);
    harness.breakStore(false);
    await harness.clock.advance(5_000);
    expect(await harness.outcomes()).toEqual(["b confirmed"]);
  });
});

test.each(["expired", "rejected killed"])(
  "a command is not sent when it becomes %s during a slow journal commit",
  async (end) => {
    const harness = await openHarness();
    harness.slowDown("sending", 5_000);
    await harness.execute({ id: "a", tag, value: 22, ttl_s: end === "expired" ? 3 : 60 }, {}, 1_000);
    if (end !== "expired") harness.killSwitch.turnOn("a test", "now");
    await harness.clock.advance(20_000);
    expect(await harness.outcomes()).toEqual([`a ${end}`]);
    expect(harness.posts).toEqual([]);
  },
);

describe("a command with a repeated id", () => {
  test("is rejected as duplicate, also over restarts", async () => {
    const harness = await openHarness();
    await harness.send({ id: "a", tag, value: 22 });
    await harness.execute({ id: "a", tag, value: 23 });
    await harness.send({ id: "a", tag: TAGS[1], value: 23 });
    await harness.restart();
    await harness.execute({ id: "a", tag: TAGS[1], value: 23 });
    expect(await harness.outcomes()).toEqual(["a duplicate", "a confirmed", "a duplicate", "a duplicate"]);
    expect(harness.posts).toHaveLength(1);
  });

  test("is written once when three messages with the id arrive at the same time", async () => {
    const harness = await openHarness();
    await Promise.all([1, 2, 3].map(() => harness.send({ id: "a", tag, value: 22 })));
    await harness.clock.advance(5_000);
    expect(await harness.outcomes()).toEqual(["a duplicate", "a duplicate", "a confirmed"]);
  });

  test("is rejected as expired after a week", async () => {
    const harness = await openHarness();
    const issued_at = new Date(harness.clock.now()).toISOString();
    await harness.execute({ id: "a", tag, value: 22, issued_at });
    harness.clock.stepWall(8 * 86_400_000);
    await harness.compareClocks();
    await harness.clock.advance(3_700_000);
    await harness.execute({ id: "a", tag, value: 23, issued_at });
    expect(await harness.outcomes()).toEqual(["a confirmed", "a expired"]);
  });
});

test("max_per_hour counts each write of a message with several writes, and applies over restarts", async () => {
  const harness = await openHarness({ config: { max_per_hour: 3 } });
  await harness.execute({ id: "g", writes: TAGS.slice(0, 5).map((each) => ({ tag: each, value: 22 })) });
  await harness.restart();
  await harness.execute({ id: "a", tag: TAGS[6], value: 22 });
  expect(harness.posts.flat()).toHaveLength(3);
  const reasons = (await harness.results()).map((result) => result.reason ?? result.outcome);
  expect(reasons.toSorted()).toEqual([...threeTimes("confirmed"), ...threeTimes("too-many")]);
  harness.clock.stepWall(3_600_000);
  await harness.compareClocks();
  await harness.execute({ id: "b", tag: TAGS[7], value: 22 });
  expect((await harness.outcomes()).at(-1)).toBe("b confirmed");
});

test("max_per_day counts writes before a restart of the worker too", async () => {
  const harness = await openHarness({ config: { allow: [allowed(tag, { max_per_day: 3 })] } });
  for (let n = 0; n < 5; n += 1) {
    await harness.execute({ id: `${n}`, tag, value: 21 + (n % 2) }, {}, 70_000);
    await harness.restart();
  }
  expect(harness.posts).toHaveLength(3);
  expect((await harness.results()).map((result) => result.reason)).toEqual([null, null, null, "too-many", "too-many"]);
  await harness.clock.advance(86_400_000);
  await harness.execute({ id: "next day", tag, value: 23 });
  expect((await harness.outcomes()).at(-1)).toBe("next day confirmed");
});

describe("a restart of the worker", () => {
  test.each([
    ["the write had arrived", faulty({ kind: "slow", delay_ms: 30_000 }), "confirmed"],
    ["the write had not arrived", faulty({ kind: "error", status: 500 }), "mismatch"],
  ])("reads back a sent command and never sends the command again: %s", async (_name, simulator, outcome) => {
    const harness = await openHarness({ simulator });
    await harness.execute({ id: "a", tag, value: 22 }, {}, 1_000);
    expect(harness.posts).toHaveLength(1);
    for (let restarts = 0; restarts < 2; restarts += 1) {
      await harness.restart();
      await harness.clock.advance(120_000);
      expect(await harness.outcomes()).toEqual([`a ${outcome}`]);
    }
    expect(harness.posts).toHaveLength(1);
  });
});

describe("the verification of a write by the next live read of its tag", () => {
  test("confirms the value without an additional request", async () => {
    const harness = await openHarness();
    await harness.execute({ id: "a", tag, value: 22 }, {}, 1_500);
    await harness.storeLiveValue(tag, 22);
    await harness.clock.advance(5_000);
    expect(await harness.outcomes()).toEqual(["a confirmed"]);
    expect(harness.requests("read")).toBe(0);
  });

  test("ignores a live read from before the write", async () => {
    const harness = await openHarness({ simulator: faulty({ kind: "error", status: 500 }) });
    await harness.storeLiveValue(tag, 22, 100_000);
    await harness.execute({ id: "a", tag, value: 22 }, {}, 60_000);
    expect(await harness.outcomes()).toEqual(["a mismatch"]);
  });
});
