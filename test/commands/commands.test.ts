import { existsSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { booleanTags, type RigOptions } from "./rig.ts";
import { allowed, TAG, TAGS, testRig } from "./test-rig.ts";

/** Commands from their arrival to their result, over the real store, quota and client, against the simulated service. */

const firstTag = TAG;
const rigWith = testRig;
const allow = (tag: string, more: object = {}) => [allowed(tag, more)];

const fault = (kind: object, match: object = { endpoints: ["write"] }, when: object = { count: 1 }) => ({
  simulator: { faults: [{ match, when, fault: kind }] as never },
});

describe("a command that goes well", () => {
  test("is journaled, written once, read back and told, with every step in the audit log", async () => {
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

  test("20 tags of one message travel in one request; each has a result of its own", async () => {
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

  test("what is bound for the window waits for it; 0s sends each alone", async () => {
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

  test("a boolean tag takes true, and not 1", async () => {
    const rig = await rigWith();
    const [tag = ""] = booleanTags(rig.simulator);
    rig.simulator.control.setTag(tag, false);
    await rig.send({ id: "one", tag, value: 1 });
    await rig.sendAndWait({ id: "true", tag, value: true });
    expect((await rig.result("one"))?.reason).toBe("wrong-type");
    expect((await rig.result("true"))?.outcome).toBe("confirmed");
  });

  test("a value that the tag holds already is not written", async () => {
    const rig = await rigWith({ config: { allow: allow(firstTag, { max_step: 3 }) } });
    await rig.sendAndWait({ id: "a", tag: firstTag, value: 20 });
    expect(await rig.result("a")).toMatchObject({ outcome: "confirmed", reason: "already-set", before: 20 });
    expect(rig.posts).toEqual([]);
  });
});

describe("what became of the write decides the result; it is never sent again", () => {
  const cases: readonly [string, RigOptions, string, string | null][] = [
    ["the connection is cut after it was carried out", fault({ kind: "cut", after_bytes: 10 }), "confirmed", null],
    ["the connection is reset before", fault({ kind: "reset" }), "mismatch", "mismatch"],
    ["the connection is reset after", fault({ kind: "reset", effect: "applied" }), "confirmed", null],
    ["the answer never comes", fault({ kind: "slow", delay_ms: 120_000 }), "confirmed", null],
    ["429", fault({ kind: "throttled", retry_after_s: 5 }), "rejected", "throttled"],
    ["503", fault({ kind: "maintenance", retry_after: 5 }), "rejected", "throttled"],
    ["503 as a page", fault({ kind: "maintenance", body: "html", retry_after: 5 }), "mismatch", "mismatch"],
    ["503 of a proxy that lost the answer", fault({ kind: "html", status: 503, effect: "applied" }), "confirmed", null],
    ["401", fault({ kind: "error", status: 401 }), "rejected", "refused-by-service"],
    ["403", fault({ kind: "error", status: 403 }), "rejected", "refused-by-service"],
    ["404", fault({ kind: "error", status: 404 }), "rejected", "refused-by-service"],
    ["422", fault({ kind: "error", status: 422 }), "rejected", "refused-by-service"],
    [
      "422 with its own status",
      fault({ kind: "error", status: 422, real_status: true }),
      "rejected",
      "refused-by-service",
    ],
    ["500 before", fault({ kind: "error", status: 500 }), "mismatch", "mismatch"],
    ["500 after", fault({ kind: "error", status: 500, effect: "applied" }), "confirmed", null],
    ["a log-in page", fault({ kind: "html" }), "mismatch", "mismatch"],
    [
      "a redirect",
      fault({ kind: "redirect", status: 307, location: "https://elsewhere.invalid/" }),
      "mismatch",
      "mismatch",
    ],
    ["errors beside data", fault({ kind: "errors_and_data" }), "confirmed", null],
    ["broken JSON", fault({ kind: "malformed" }), "confirmed", null],
    ["the device ignores it", { simulator: { writes: { ignored_tags: ["FIRST"] } } }, "mismatch", "mismatch"],
    ["the device clamps it", { simulator: { writes: { clamp: { FIRST: [0, 21] } } } }, "mismatch", "mismatch"],
    ["the device takes its time", { simulator: { writes: { settle_ms: 4_000 } } }, "confirmed", null],
    [
      "the answer does not list the tag",
      { simulator: { writes: { ignored_tags: ["FIRST"], answer: "accepted_only" } } },
      "mismatch",
      "mismatch",
    ],
    [
      "it cannot be read back",
      fault({ kind: "null_values" }, { endpoints: ["read"] }, {}),
      "accepted-unverified",
      "unreadable-device",
    ],
    [
      "reading back fails",
      fault({ kind: "reset" }, { endpoints: ["read"] }, {}),
      "accepted-unverified",
      "unreadable-device",
    ],
    ["nothing is answered any more", fault({ kind: "reset" }, {}, {}), "unknown", "in-doubt"],
  ];

  test.each(cases)("%s", async (_name, options, outcome, reason) => {
    const rig = await rigWith(withTag(options));
    await rig.send({ id: "a", tag: firstTag, value: 22 });
    await rig.clock.advance(300_000);
    expect(await rig.results()).toMatchObject([{ commandId: "a", outcome, reason }]);
    expect(rig.posts).toHaveLength(1);
    expect((await rig.audit()).map((record) => record.step)).toEqual(["accepted", "sending", outcome]);
  });

  test("the device behind an offline gateway: lost in silence is a mismatch, applied later is told as it is seen", async () => {
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
    "one device of a group refuses (partial: %s): every tag gets the result that its device shows",
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

  test("a group that is refused as a whole is read back, and its tags travel alone the next time", async () => {
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

test("a tag that is gone at the service spoils neither the results of its group nor a later write", async () => {
  const rig = await rigWith({
    config: { allow: TAGS.flatMap((tag) => allow(tag, { min_interval: "1s" })) },
  });
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

describe("slow things hold up nobody else", () => {
  test("neither a reading before a write nor a write that is not answered", async () => {
    const rig = await rigWith({
      config: {
        allow: TAGS.flatMap((tag, n) => allow(tag, n === 0 ? { max_step: 3 } : {})),
      },
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

describe("waiting for the quota", () => {
  /** The service asks for 100 s of patience, so every lane waits. */
  async function held(options: RigOptions = {}) {
    const rig = await rigWith(options);
    rig.simulator.control.setFaults([{ when: { count: 1 }, fault: { kind: "maintenance", retry_after: 100 } }]);
    const refused = expect(rig.source.read([firstTag], "on-demand", new AbortController().signal)).rejects.toThrow();
    await rig.clock.advance(1_000);
    await refused;
    return rig;
  }

  test("the time to live is told when it passes, not when a slot comes, and no request is spent", async () => {
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

  test("a wall clock that is set back prolongs no life: by too little for a step, and by an hour", async () => {
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

  test("the kill switch ends what waits within a second", async () => {
    const rig = await held();
    await rig.send({ id: "a", tag: firstTag, value: 22, ttl_s: 200 });
    await rig.clock.advance(1_000);
    rig.killSwitch.throwIt("a test", "now");
    await rig.clock.advance(1_000);
    expect(await rig.result("a")).toMatchObject({ outcome: "rejected", reason: "killed" });
    await rig.clock.advance(300_000);
    expect(rig.posts).toEqual([]);
  });

  test("a later command for the tag supersedes, and the older one is told", async () => {
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

  test("a step-limited command that came while another waited gets its own fresh value", async () => {
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

  test("a stop of the worker tells what waited", async () => {
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

describe("closed doors", () => {
  test("rehearsal sends nothing, gives the same refusals, and keeps to the same limits", async () => {
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

  test("nothing is written while commands are switched off, and the sender learns it", async () => {
    const rig = await rigWith({ config: { enabled: false } });
    await rig.sendAndWait({ id: "a", tag: firstTag, value: 22 });
    expect(await rig.result("a")).toMatchObject({ outcome: "rejected", reason: "disabled" });
    expect(rig.posts).toEqual([]);
  });

  test("the kill switch can be thrown by message, holds over restarts, and only its file's removal releases it", async () => {
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

  test("a repetition that comes while writing is stopped is a repetition still", async () => {
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

  test.each([-40, 40])("a clock that differs from the service's by %i s closes writing", async (clock_skew_s) => {
    const rig = await rigWith({ simulator: { clock_skew_s } });
    // Accepted while nothing is known of the service's clock, judged again before it leaves.
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
  });

  test("what cannot be recorded is not written: at arrival, before sending, and a result is told once it can be", async () => {
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

test("a journal that takes its time lets nothing out that expired or was stopped meanwhile", async () => {
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

describe("the same again", () => {
  test("an id is used once, also after its command was refused by the gate before sending, and over restarts", async () => {
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

  test("two messages with one id at the same time give one write", async () => {
    const rig = await rigWith();
    await Promise.all([1, 2, 3].map(() => rig.send({ id: "a", tag: firstTag, value: 22 })));
    await rig.clock.advance(5_000);
    expect((await rig.results()).map(({ outcome }) => outcome)).toEqual(["duplicate", "duplicate", "confirmed"]);
  });

  test("a week later an id is forgotten, and its command is too old by then", async () => {
    const rig = await rigWith();
    const issued_at = new Date(rig.clock.now()).toISOString();
    await rig.sendAndWait({ id: "a", tag: firstTag, value: 22, issued_at });
    rig.clock.stepWall(8 * 86_400_000);
    await rig.compareClocks();
    await rig.clock.advance(3_700_000);
    await rig.sendAndWait({ id: "a", tag: firstTag, value: 23, issued_at });
    expect((await rig.results()).at(-1)).toMatchObject({ commandId: "a", outcome: "expired" });
  });

  test("the limit of all tags together holds inside a group and over restarts, and ends with the hour", async () => {
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

  test("the limits on wear hold over restarts", async () => {
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

describe("a restart", () => {
  test("ends what had not left as expired, without writing", async () => {
    const rig = await rigWith({ config: { ...sentLater } });
    await rig.send({ id: "a", tag: firstTag, value: 22 });
    await rig.restart();
    await rig.clock.advance(60_000);
    expect(await rig.results()).toMatchObject([{ commandId: "a", outcome: "expired", reason: "stopped" }]);
    expect(rig.posts).toEqual([]);
  });

  test.each([
    ["it had arrived", fault({ kind: "slow", delay_ms: 30_000 }), "confirmed"],
    ["it had not arrived", fault({ kind: "error", status: 500 }), "mismatch"],
  ])("reads back what may have left, and never sends it again: %s", async (_name, options, outcome) => {
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

describe("proof", () => {
  test("a live read that shows the value spares the request", async () => {
    const rig = await rigWith();
    await rig.send({ id: "a", tag: firstTag, value: 22 });
    await rig.clock.advance(1_500);
    const time = new Date(rig.clock.now()).toISOString();
    await rig.store.commit({
      documents: [
        {
          set: "value/main",
          put: [[firstTag, { value: 22, quality: "good", time, lastGood: null, nulls: 0 }]],
        },
      ],
    });
    await rig.clock.advance(5_000);
    expect((await rig.result("a"))?.outcome).toBe("confirmed");
    expect(rig.requests("read")).toBe(0);
  });

  test("a reading from before the write proves nothing", async () => {
    const rig = await rigWith(fault({ kind: "error", status: 500 }));
    const time = new Date(rig.clock.now() - 100_000).toISOString();
    const old = { value: 22, quality: "good", time, lastGood: null, nulls: 0 };
    await rig.store.commit({ documents: [{ set: "value/main", put: [[firstTag, old]] }] });
    await rig.send({ id: "a", tag: firstTag, value: 22 });
    await rig.clock.advance(60_000);
    expect((await rig.result("a"))?.outcome).toBe("mismatch");
  });
});

/** Commands wait for a minute before they leave. */
const sentLater = { group_window: "1m", default_ttl: "5m" };

/** Puts the id of the first tag where the options say FIRST. */
function withTag(options: RigOptions): RigOptions {
  return JSON.parse(JSON.stringify(options).replaceAll("FIRST", firstTag)) as RigOptions;
}
