import { existsSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { booleanTags, type RigOptions } from "./rig.ts";
import { allowed, TAG, TAGS, testRig } from "./test-rig.ts";

const firstTag = TAG;
const rigWith = testRig;
const allow = (tag: string, more: object = {}) => [allowed(tag, more)];

const fault = (kind: object, match: object = { endpoints: ["write"] }, when: object = { count: 1 }) => ({
  simulator: { faults: [{ match, when, fault: kind }] as never },
});

describe("a valid command", () => {
  test("is journaled, written once, read back and reported, with every step in the audit log", async () => {
    const rig = await rigWith();
    const tag = TAG;
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
    expect((await rig.audit()).map((record) => [record.commandId, record.step])).toEqual([
      ["a", "accepted"],
      ["a", "sending"],
      ["a", "confirmed"],
    ]);
    const [accepted, sending, end] = (await rig.audit()).map((record) => record.detail);
    expect(accepted).toMatchObject({ by: "broker plenum/cmd/main/set", value: 21.5, limits: { min: 15 } });
    expect(sending).toEqual({ before: null, group: ["a"] });
    expect(end).toMatchObject({ outcome: "confirmed", answer: "answered", readBack: 21.5 });
  });

  test("is written in one request with the other commands of its message, and each of the 20 tags gets a result", async () => {
    const rig = await rigWith();
    const writes = TAGS.slice(0, 20).map((tag, n) => ({ tag, value: 21 + n / 100 }));
    await rig.sendAndWait({ id: "g", writes });
    expect(rig.posts).toHaveLength(1);
    expect(rig.posts[0]).toHaveLength(20);
    const results = await rig.results();
    expect(results.map(({ outcome }) => outcome)).toEqual(Array(20).fill("confirmed"));
    expect(new Set(results.map((result) => result.commandId)).size).toBe(20);
    expect(rig.requests("read")).toBe(1);
  });

  test("is grouped with other commands within group_window, and sent singly with group_window 0s", async () => {
    const together = await rigWith();
    const alone = await rigWith({ config: { allow: TAGS.map((tag) => allowed(tag)), group_window: "0s" } });
    for (const rig of [together, alone]) {
      for (const [n, tag] of TAGS.slice(0, 3).entries()) await rig.send({ id: `${n}`, tag, value: 22 });
      await rig.clock.advance(5_000);
      expect((await rig.results()).map(({ outcome }) => outcome)).toEqual(Array(3).fill("confirmed"));
    }
    expect(together.posts).toHaveLength(1);
    expect(alone.posts).toHaveLength(3);
  });

  test("is written to a boolean tag for the value true, and 1 is rejected", async () => {
    const rig = await rigWith();
    const [tag = ""] = booleanTags(rig.simulator);
    rig.simulator.control.setTag(tag, false);
    await rig.send({ id: "one", tag, value: 1 });
    await rig.sendAndWait({ id: "true", tag, value: true });
    expect((await rig.result("one"))?.reason).toBe("wrong-type");
    expect((await rig.result("true"))?.outcome).toBe("confirmed");
  });

  test("is confirmed without a write when the tag already has the value", async () => {
    const rig = await rigWith({ config: { allow: allow(firstTag, { max_step: 3 }) } });
    await rig.sendAndWait({ id: "a", tag: firstTag, value: 20 });
    expect(await rig.result("a")).toMatchObject({ outcome: "confirmed", reason: "already-set", before: 20 });
    expect(rig.posts).toEqual([]);
  });
});

describe("the result of one write request", () => {
  const cases: readonly [string, RigOptions, string, string | null][] = [
    ["the connection is cut after the write was applied", fault({ kind: "cut", after_bytes: 10 }), "confirmed", null],
    ["the connection is reset before the write is applied", fault({ kind: "reset" }), "mismatch", "mismatch"],
    [
      "the connection is reset after the write was applied",
      fault({ kind: "reset", effect: "applied" }),
      "confirmed",
      null,
    ],
    ["no response arrives", fault({ kind: "slow", delay_ms: 120_000 }), "confirmed", null],
    ["429", fault({ kind: "throttled", retry_after_s: 5 }), "rejected", "throttled"],
    ["503", fault({ kind: "maintenance", retry_after: 5 }), "rejected", "throttled"],
    ["503 with an HTML page", fault({ kind: "maintenance", body: "html", retry_after: 5 }), "mismatch", "mismatch"],
    [
      "503 of a proxy after the write was applied",
      fault({ kind: "html", status: 503, effect: "applied" }),
      "confirmed",
      null,
    ],
    ["401", fault({ kind: "error", status: 401 }), "rejected", "refused-by-service"],
    ["403", fault({ kind: "error", status: 403 }), "rejected", "refused-by-service"],
    ["404", fault({ kind: "error", status: 404 }), "rejected", "refused-by-service"],
    ["422", fault({ kind: "error", status: 422 }), "rejected", "refused-by-service"],
    [
      "422 as the HTTP status",
      fault({ kind: "error", status: 422, real_status: true }),
      "rejected",
      "refused-by-service",
    ],
    ["500 before the write is applied", fault({ kind: "error", status: 500 }), "mismatch", "mismatch"],
    ["500 after the write was applied", fault({ kind: "error", status: 500, effect: "applied" }), "confirmed", null],
    ["a log-in page", fault({ kind: "html" }), "mismatch", "mismatch"],
    [
      "a redirect",
      fault({ kind: "redirect", status: 307, location: "https://elsewhere.invalid/" }),
      "mismatch",
      "mismatch",
    ],
    ["a response with errors and data", fault({ kind: "errors_and_data" }), "confirmed", null],
    ["broken JSON", fault({ kind: "malformed" }), "confirmed", null],
    ["the device ignores the value", { simulator: { writes: { ignored_tags: ["FIRST"] } } }, "mismatch", "mismatch"],
    ["the device clamps the value", { simulator: { writes: { clamp: { FIRST: [0, 21] } } } }, "mismatch", "mismatch"],
    ["the device needs 4 s to apply the value", { simulator: { writes: { settle_ms: 4_000 } } }, "confirmed", null],
    [
      "the response does not list the tag",
      { simulator: { writes: { ignored_tags: ["FIRST"], answer: "accepted_only" } } },
      "mismatch",
      "mismatch",
    ],
    [
      "the value cannot be read back",
      fault({ kind: "null_values" }, { endpoints: ["read"] }, {}),
      "accepted-unverified",
      "unreadable-device",
    ],
    [
      "the read-back request fails",
      fault({ kind: "reset" }, { endpoints: ["read"] }, {}),
      "accepted-unverified",
      "unreadable-device",
    ],
    ["all later requests fail", fault({ kind: "reset" }, {}, {}), "unknown", "in-doubt"],
  ];

  test.each(cases)("is reported after the failure: %s", async (_name, options, outcome, reason) => {
    const rig = await rigWith(withTag(options));
    await rig.send({ id: "a", tag: firstTag, value: 22 });
    await rig.clock.advance(300_000);
    expect(await rig.results()).toMatchObject([{ commandId: "a", outcome, reason }]);
    expect(rig.posts).toHaveLength(1);
    expect((await rig.audit()).map((record) => record.step)).toEqual(["accepted", "sending", outcome]);
  });

  test("is accepted-unverified or unknown when the gateway is offline", async () => {
    for (const when_offline of ["drop", "apply_later", "refuse"] as const) {
      const rig = await rigWith({ simulator: { writes: { when_offline } } });
      const gateway = rig.simulator.world.tags.get(firstTag)?.gatewayId ?? 0;
      rig.simulator.control.setGateway(gateway, false);
      await rig.send({ id: "a", tag: firstTag, value: 22 });
      await rig.clock.advance(300_000);
      const [result] = await rig.results();
      expect(["accepted-unverified", "unknown"], when_offline).toContain(result?.outcome);
      expect(rig.posts).toHaveLength(1);
    }
  });

  test.each(["none", "apply_good"] as const)(
    "is reported per tag when one device of a group rejects its value (partial: %s)",
    async (partial) => {
      const rig = await rigWith({ simulator: { writes: { partial, rejected_tags: [firstTag] } } });
      await rig.send({ id: "g", writes: TAGS.slice(0, 5).map((tag) => ({ tag, value: 22 })) });
      await rig.clock.advance(60_000);
      const outcomes = (await rig.results()).map((result) => [result.tagId === firstTag, result.outcome]);
      expect(outcomes).toHaveLength(5);
      for (const [isBad, outcome] of outcomes) {
        expect(outcome).toBe(isBad || partial === "none" ? "mismatch" : "confirmed");
      }
      expect(rig.posts).toHaveLength(1);
    },
  );

  test("is read back for each tag of a rejected group, and the tags are written singly the next time", async () => {
    const rig = await rigWith({
      ...fault({ kind: "error", status: 422 }),
      config: { allow: TAGS.flatMap((tag) => allow(tag, { min_interval: "1s" })) },
    });
    const writes = TAGS.slice(0, 3).map((tag) => ({ tag, value: 22 }));
    await rig.send({ id: "g", writes });
    await rig.clock.advance(20_000);
    expect((await rig.results()).map((result) => [result.outcome, result.reason])).toEqual(
      Array(3).fill(["rejected", "refused-by-service"]),
    );
    await rig.send({ id: "h", writes });
    await rig.clock.advance(20_000);
    expect((await rig.results()).slice(3).map(({ outcome }) => outcome)).toEqual(Array(3).fill("confirmed"));
    expect(rig.posts.map((post) => post.length)).toEqual([3, 1, 1, 1]);
  });
});

test("a group with a deleted tag gets a result for each tag, and the other tags are written the next time", async () => {
  const rig = await rigWith({ config: { allow: TAGS.flatMap((tag) => allow(tag, { min_interval: "1s" })) } });
  rig.simulator.control.changeInventory("tags", firstTag, { removed: true });
  const writes = TAGS.slice(0, 3).map((tag) => ({ tag, value: 22 }));
  await rig.send({ id: "g", writes });
  await rig.clock.advance(120_000);
  const outcomes = async () =>
    Object.fromEntries((await rig.results()).map((result) => [result.commandId, result.outcome]));
  const [gone, second, third] = TAGS;
  expect(await outcomes()).toEqual({
    [`g/${gone}`]: "unknown",
    [`g/${second}`]: "rejected",
    [`g/${third}`]: "rejected",
  });
  await rig.send({ id: "h", writes });
  await rig.clock.advance(120_000);
  expect(await outcomes()).toMatchObject({
    [`h/${gone}`]: "rejected",
    [`h/${second}`]: "confirmed",
    [`h/${third}`]: "confirmed",
  });
});

describe("slow requests", () => {
  test("delay no other command when a reading before a write or a write itself takes 50 s", async () => {
    const rig = await rigWith({
      config: { allow: TAGS.flatMap((tag, n) => allow(tag, n === 0 ? { max_step: 3 } : {})) },
      simulator: {
        faults: [
          { match: { endpoints: ["read"] }, when: { count: 1 }, fault: { kind: "slow", delay_ms: 50_000 } },
          { match: { endpoints: ["write"] }, when: { count: 1 }, fault: { kind: "slow", delay_ms: 50_000 } },
        ] as never,
      },
    });
    await rig.send({ id: "slow reading", tag: TAGS[0], value: 22, ttl_s: 120 });
    await rig.sendAndWait({ id: "slow write", tag: TAGS[1], value: 22 });
    await rig.send({ id: "third", tag: TAGS[2], value: 22 });
    await rig.clock.advance(10_000);
    expect((await rig.results()).map((result) => result.commandId)).toEqual(["third"]);
    await rig.clock.advance(120_000);
    expect((await rig.results()).map(({ outcome }) => outcome)).toEqual(Array(3).fill("confirmed"));
  });
});

describe("a command that waits for the quota", () => {
  async function held(options: RigOptions = {}) {
    const rig = await rigWith(options);
    rig.simulator.control.setFaults([{ when: { count: 1 }, fault: { kind: "maintenance", retry_after: 100 } }]);
    const refused = expect(rig.source.read([firstTag], "on-demand", new AbortController().signal)).rejects.toThrow();
    await rig.clock.advance(1_000);
    await refused;
    return rig;
  }

  test("expires at the end of its time to live without a request", async () => {
    const rig = await held();
    const before = rig.requests("write") + rig.requests("read");
    await rig.send({ id: "a", tag: firstTag, value: 22, ttl_s: 10 });
    await rig.clock.advance(10_100);
    expect(await rig.result("a")).toMatchObject({ outcome: "expired", reason: "expired" });
    expect(rig.commands.status().waiting).toBe(0);
    await rig.clock.advance(20_000);
    expect(rig.requests("write") + rig.requests("read")).toBe(before);
    await rig.clock.advance(300_000);
    expect(rig.posts).toEqual([]);
  });

  test("expires in time when the wall clock is set back by 1.9 s or by one hour", async () => {
    const rig = await held();
    await rig.send({ id: "a", tag: firstTag, value: 22, ttl_s: 10 });
    rig.clock.stepWall(-1_900);
    await rig.clock.advance(11_000);
    expect((await rig.result("a"))?.outcome).toBe("expired");
    await rig.send({ id: "b", tag: firstTag, value: 22, ttl_s: 10 });
    rig.clock.stepWall(-3_600_000);
    await rig.clock.advance(11_000);
    expect(await rig.result("b")).toMatchObject({ outcome: "rejected", reason: "clock-skew" });
  });

  test("is rejected within 1 s after the kill switch is thrown", async () => {
    const rig = await held();
    await rig.send({ id: "a", tag: firstTag, value: 22, ttl_s: 200 });
    await rig.clock.advance(1_000);
    rig.killSwitch.throwIt("a test", "now");
    await rig.clock.advance(1_000);
    expect(await rig.result("a")).toMatchObject({ outcome: "rejected", reason: "killed" });
    await rig.clock.advance(300_000);
    expect(rig.posts).toEqual([]);
  });

  test("is superseded by a newer command for the same tag", async () => {
    const rig = await held();
    for (const [id, value] of Object.entries({ a: 21, b: 22, c: 23 })) {
      await rig.send({ id, tag: firstTag, value, ttl_s: 200 });
      await rig.clock.advance(1_000);
    }
    expect((await rig.results()).map((result) => [result.commandId, result.outcome])).toEqual([
      ["a", "superseded"],
      ["b", "superseded"],
    ]);
    expect(rig.commands.expectedWaitMs(null)).toBeGreaterThan(50_000);
    await rig.clock.advance(200_000);
    expect((await rig.result("c"))?.outcome).toBe("confirmed");
    expect(rig.posts).toEqual([[{ tag_id: firstTag, value: 23 }]]);
  });

  test("gets a fresh value for its step limit when the command arrives while another command waits", async () => {
    const rig = await held({ config: { allow: TAGS.flatMap((tag) => allow(tag, { max_step: 3 })) } });
    const [first = "", second = ""] = TAGS;
    await rig.send({ id: "a", tag: first, value: 22, ttl_s: 300 });
    await rig.clock.advance(60_000);
    await rig.send({ id: "b", tag: second, value: 22, ttl_s: 300 });
    await rig.send({ id: "far", tag: TAGS[2], value: 24, ttl_s: 300 });
    await rig.clock.advance(240_000);
    expect((await rig.result("a"))?.outcome).toBe("confirmed");
    expect((await rig.result("b"))?.outcome).toBe("confirmed");
    expect(await rig.result("far")).toMatchObject({ reason: "step-too-large", before: 20 });
  });

  test("gets a result when the worker stops", async () => {
    const rig = await held();
    await rig.send({ id: "a", tag: firstTag, value: 22, ttl_s: 200 });
    const stopped = rig.commands.stop(1_000);
    await rig.clock.advance(1_000);
    await stopped;
    expect(await rig.result("a")).toMatchObject({ outcome: "expired", reason: "stopped" });
    await rig.clock.advance(300_000);
    expect(rig.posts).toEqual([]);
  });
});

describe("closed writing", () => {
  test("sends no request in a rehearsal, and applies the same rejections and limits", async () => {
    const rig = await rigWith({ config: { rehearsal: true, allow: allow(firstTag, { max_step: 3 }) } });
    await rig.sendAndWait({ id: "far", tag: firstTag, value: 24 });
    await rig.sendAndWait({ id: "a", tag: firstTag, value: 22 });
    await rig.sendAndWait({ id: "b", tag: firstTag, value: 23 });
    expect((await rig.results()).map((result) => [result.outcome, result.reason, result.rehearsal])).toEqual([
      ["rejected", "step-too-large", false],
      ["accepted-unverified", "rehearsal", true],
      ["rejected", "too-soon", false],
    ]);
    expect(rig.posts).toEqual([]);
  });

  test("rejects commands while commands.enabled is false", async () => {
    const rig = await rigWith({ config: { enabled: false } });
    await rig.sendAndWait({ id: "a", tag: firstTag, value: 22 });
    expect(await rig.result("a")).toMatchObject({ outcome: "rejected", reason: "disabled" });
    expect(rig.posts).toEqual([]);
  });

  test("lasts over restarts after a message threw the kill switch, until the switch file is removed", async () => {
    const rig = await rigWith();
    await rig.send({ id: "stop-1", stop: true }, { retained: true });
    expect(existsSync(rig.killSwitch.file)).toBe(true);
    expect(await rig.result("stop-1")).toMatchObject({ outcome: "confirmed", reason: "stop" });
    await rig.restart();
    await rig.sendAndWait({ id: "a", tag: firstTag, value: 22 });
    expect((await rig.result("a"))?.reason).toBe("killed");
    rig.killSwitch.release();
    await rig.sendAndWait({ id: "b", tag: firstTag, value: 22 });
    expect((await rig.result("b"))?.outcome).toBe("confirmed");
    const steps = (await rig.audit()).map((record) => record.step);
    expect(steps).toContain("writing-stopped");
    expect(steps).toContain("writing-released");
    expect(rig.posts).toHaveLength(1);
  });

  test("rejects a repeated id as duplicate while the kill switch is thrown", async () => {
    const rig = await rigWith();
    await rig.sendAndWait({ id: "a", tag: firstTag, value: 22 });
    await rig.send({ id: "stop-1", stop: true });
    await rig.send({ id: "a", tag: firstTag, value: 22 });
    await rig.sendAndWait({ id: "b", tag: firstTag, value: 23 });
    expect(await rig.outcomes()).toEqual([
      ["a", "confirmed", null],
      ["stop-1", "confirmed", "stop"],
      ["a", "duplicate", "duplicate"],
      ["b", "rejected", "killed"],
    ]);
    expect(rig.posts).toHaveLength(1);
  });

  test.each([-40, 40])(
    "rejects commands when the clocks of worker and service differ by %i s",
    async (clock_skew_s) => {
      const rig = await rigWith({ simulator: { clock_skew_s } });
      await rig.send({ id: "a", tag: firstTag, value: 22 });
      const read = rig.source.read([firstTag], "on-demand", new AbortController().signal);
      await rig.clock.advance(100);
      await read;
      await rig.sendAndWait({ id: "b", tag: TAGS[1], value: 22 });
      expect((await rig.results()).map((result) => [result.commandId, result.reason])).toEqual([
        ["b", "clock-skew"],
        ["a", "clock-skew"],
      ]);
      expect(rig.posts).toEqual([]);
    },
  );

  test("applies while the store cannot record commands, and the commands get results once the store works again", async () => {
    const rig = await rigWith();
    rig.breakStore(true);
    await expect(rig.send({ id: "a", tag: firstTag, value: 22 })).rejects.toThrow("disk is full");
    await expect(rig.send({ id: "bad", tag: "?", value: 22 })).rejects.toThrow("disk is full");
    await rig.clock.advance(10_000);
    expect(rig.posts).toEqual([]);

    rig.breakStore(false);
    await rig.send({ id: "b", tag: firstTag, value: 22 });
    rig.breakStore(true);
    await rig.clock.advance(20_000);
    expect(rig.posts).toEqual([]);
    rig.breakStore(false);
    await rig.clock.advance(500);
    for (let n = 0; n < 50 && rig.posts.length === 0; n += 1) await rig.clock.advance(100);
    expect(rig.posts).toHaveLength(1);
    rig.breakStore(true);
    await rig.clock.advance(20_000);
    expect(await rig.result("b")).toBeUndefined();
    rig.breakStore(false);
    await rig.clock.advance(5_000);
    expect((await rig.result("b"))?.outcome).toBe("confirmed");
  });
});

test("a command that expired or was stopped during a slow journal commit is not sent", async () => {
  for (const end of ["expired", "killed"] as const) {
    const rig = await rigWith();
    rig.slowDown("sending", 5_000);
    await rig.send({ id: "a", tag: firstTag, value: 22, ttl_s: end === "expired" ? 3 : 60 });
    await rig.clock.advance(1_000);
    if (end === "killed") rig.killSwitch.throwIt("a test", "now");
    await rig.clock.advance(20_000);
    expect((await rig.result("a"))?.reason).toBe(end);
    expect(rig.posts).toEqual([]);
  }
});

describe("a command with a repeated id", () => {
  test("is rejected as duplicate, also over restarts", async () => {
    const rig = await rigWith();
    await rig.send({ id: "a", tag: firstTag, value: 22 });
    await rig.sendAndWait({ id: "a", tag: firstTag, value: 23 });
    await rig.send({ id: "a", tag: TAGS[1], value: 23 });
    await rig.restart();
    await rig.sendAndWait({ id: "a", tag: TAGS[1], value: 23 });
    expect((await rig.results()).map(({ outcome }) => outcome)).toEqual([
      "duplicate",
      "confirmed",
      "duplicate",
      "duplicate",
    ]);
    expect(rig.posts).toHaveLength(1);
  });

  test("is written once when three messages with the id arrive at the same time", async () => {
    const rig = await rigWith();
    await Promise.all([1, 2, 3].map(() => rig.send({ id: "a", tag: firstTag, value: 22 })));
    await rig.clock.advance(5_000);
    expect((await rig.results()).map(({ outcome }) => outcome)).toEqual(["duplicate", "duplicate", "confirmed"]);
  });

  test("is rejected as expired after a week", async () => {
    const rig = await rigWith();
    const issued_at = new Date(rig.clock.now()).toISOString();
    await rig.sendAndWait({ id: "a", tag: firstTag, value: 22, issued_at });
    rig.clock.stepWall(8 * 86_400_000);
    await rig.compareClocks();
    await rig.clock.advance(3_700_000);
    await rig.sendAndWait({ id: "a", tag: firstTag, value: 23, issued_at });
    expect((await rig.results()).at(-1)).toMatchObject({ commandId: "a", outcome: "expired" });
  });

  test("max_per_hour applies inside a group, and over restarts for one hour", async () => {
    const rig = await rigWith({ config: { max_per_hour: 3 } });
    await rig.sendAndWait({ id: "g", writes: TAGS.slice(0, 5).map((tag) => ({ tag, value: 22 })) });
    await rig.restart();
    await rig.sendAndWait({ id: "a", tag: TAGS[6], value: 22 });
    expect(rig.posts.flat()).toHaveLength(3);
    const reasons = (await rig.results()).map((result) => result.reason ?? result.outcome);
    expect(reasons.toSorted()).toEqual(["confirmed", "confirmed", "confirmed", "too-many", "too-many", "too-many"]);
    rig.clock.stepWall(3_600_000);
    await rig.compareClocks();
    await rig.sendAndWait({ id: "b", tag: TAGS[7], value: 22 });
    expect((await rig.result("b"))?.outcome).toBe("confirmed");
  });

  test("max_per_day applies over restarts", async () => {
    const rig = await rigWith({ config: { allow: allow(firstTag, { max_per_day: 3 }) } });
    for (let n = 0; n < 5; n += 1) {
      await rig.send({ id: `${n}`, tag: firstTag, value: 21 + (n % 2) });
      await rig.clock.advance(70_000);
      await rig.restart();
    }
    expect(rig.posts).toHaveLength(3);
    expect((await rig.results()).map((result) => result.reason)).toEqual([null, null, null, "too-many", "too-many"]);
    await rig.clock.advance(86_400_000);
    await rig.sendAndWait({ id: "next day", tag: firstTag, value: 23 });
    expect((await rig.result("next day"))?.outcome).toBe("confirmed");
  });
});

describe("a restart of the worker", () => {
  test("expires queued commands without a write", async () => {
    const rig = await rigWith({ config: { ...sentLater } });
    await rig.send({ id: "a", tag: firstTag, value: 22 });
    await rig.restart();
    await rig.clock.advance(60_000);
    expect(await rig.results()).toMatchObject([{ commandId: "a", outcome: "expired", reason: "stopped" }]);
    expect(rig.posts).toEqual([]);
  });

  test.each([
    ["the write had arrived", fault({ kind: "slow", delay_ms: 30_000 }), "confirmed"],
    ["the write had not arrived", fault({ kind: "error", status: 500 }), "mismatch"],
  ])("reads back a sent command and never sends the command again: %s", async (_name, options, outcome) => {
    const rig = await rigWith(options);
    await rig.send({ id: "a", tag: firstTag, value: 22 });
    await rig.clock.advance(1_000);
    expect(rig.posts).toHaveLength(1);
    await rig.restart();
    await rig.clock.advance(120_000);
    expect(await rig.results()).toMatchObject([{ commandId: "a", outcome }]);
    expect(rig.posts).toHaveLength(1);
    await rig.restart();
    await rig.clock.advance(120_000);
    expect(await rig.results()).toHaveLength(1);
  });
});

describe("verification of a write by live reads", () => {
  test("confirms the value without an additional request", async () => {
    const rig = await rigWith();
    await rig.send({ id: "a", tag: firstTag, value: 22 });
    await rig.clock.advance(1_500);
    const time = new Date(rig.clock.now()).toISOString();
    await rig.store.commit({
      documents: [
        { set: "value/main", put: [[firstTag, { value: 22, quality: "good", time, lastGood: null, nulls: 0 }]] },
      ],
    });
    await rig.clock.advance(5_000);
    expect((await rig.result("a"))?.outcome).toBe("confirmed");
    expect(rig.requests("read")).toBe(0);
  });

  test("ignores a live read from before the write", async () => {
    const rig = await rigWith(fault({ kind: "error", status: 500 }));
    const time = new Date(rig.clock.now() - 100_000).toISOString();
    const old = { value: 22, quality: "good", time, lastGood: null, nulls: 0 };
    await rig.store.commit({ documents: [{ set: "value/main", put: [[firstTag, old]] }] });
    await rig.send({ id: "a", tag: firstTag, value: 22 });
    await rig.clock.advance(60_000);
    expect((await rig.result("a"))?.outcome).toBe("mismatch");
  });
});

const sentLater = { group_window: "1m", default_ttl: "5m" };

function withTag(options: RigOptions): RigOptions {
  return JSON.parse(JSON.stringify(options).replaceAll("FIRST", firstTag)) as RigOptions;
}
