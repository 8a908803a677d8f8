import { describe, expect, test } from "vitest";
import type { Arrival } from "#src/core/connector.ts";
import { operatorArrival, operatorSecond } from "#src/engine/commands/operator-arrival.ts";
import { allowed, TAGS, testRig } from "./test-rig.ts";

const SECOND: Partial<Arrival> = { purpose: "second", topic: "plenum/cmd/main/second" };
const [tag = "", free = ""] = TAGS;
const LIFE_S = 120;

async function start(entry: object = {}, onPost?: () => Promise<void>) {
  const rig = await testRig(onPost === undefined ? {} : { onPost });
  const limit = { min_interval: "1s" };
  const config = { allow: [allowed(tag, { ...limit, second_person: true, ...entry }), allowed(free, limit)] };
  await rig.restart(config);
  const command = (id: string, more: object = {}) => rig.send({ id, tag, value: 22, ttl_s: LIFE_S, ...more });
  const second = (id: string, value: unknown = 22, changes: Partial<Arrival> = {}) =>
    rig.send({ second: id, value }, { ...SECOND, ...changes });
  const { outcomes } = rig;
  return { rig, config, command, second, outcomes };
}

describe("a command that needs a second person", () => {
  test("is sent after the agreement, with the second person's name in the audit log", async () => {
    const { rig, command, second, outcomes } = await start();
    await command("a");
    await rig.clock.advance(60_000);
    expect(await outcomes()).toEqual([]);
    expect(rig.posts).toEqual([]);
    await second("a", 22, { properties: { user: "Bo\nris" } });
    await rig.clock.advance(5_000);
    expect(await outcomes()).toEqual([["a", "confirmed", null]]);
    expect(rig.posts).toHaveLength(1);
    const audit = await rig.audit();
    expect(audit.map(({ step }) => step)).toEqual(["accepted", "seconded", "sending", "confirmed"]);
    expect(audit[1]).toMatchObject({ commandId: "a", detail: { by: "broker plenum/cmd/main/second, says Bo ris" } });
  });

  test("expires without an agreement, and a late agreement is ignored", async () => {
    const { rig, command, second, outcomes } = await start();
    await command("a");
    await rig.clock.advance(LIFE_S * 1_000 + 1_000);
    await second("a");
    await rig.clock.advance(60_000);
    expect(await outcomes()).toEqual([
      ["a", "expired", "not-seconded"],
      ["a/second", "rejected", "wrong-second"],
    ]);
    expect(rig.posts).toEqual([]);
  });

  test("does not delay a command for another tag", async () => {
    const { rig, command, outcomes } = await start();
    await command("a");
    await rig.sendAndWait({ id: "b", tag: free, value: 22 });
    expect(await outcomes()).toEqual([["b", "confirmed", null]]);
  });

  test("is announced with needsSecond: true and needs only one agreement", async () => {
    const { rig, command, second, outcomes } = await start();
    await command("a");
    const [told] = await rig.store.outbox.latest(1, ["command-accepted"]);
    expect(told?.event.data).toMatchObject({ commandId: "a", requested: 22, needsSecond: true });
    await Promise.all([second("a"), second("a")]);
    await rig.clock.advance(5_000);
    expect(await outcomes()).toEqual([
      ["a/second", "rejected", "wrong-second"],
      ["a", "confirmed", null],
    ]);
    expect(rig.posts).toHaveLength(1);
  });

  test("is superseded by a later command for its tag, and the later command needs its own agreement", async () => {
    const { rig, command, second, outcomes } = await start();
    await command("a");
    await command("b", { value: 23 });
    await second("a");
    await second("b", 23);
    await rig.clock.advance(5_000);
    expect(await outcomes()).toEqual([
      ["a", "superseded", "superseded"],
      ["a/second", "rejected", "wrong-second"],
      ["b", "confirmed", null],
    ]);
    expect(rig.posts.flat().map(({ value }) => value)).toEqual([23]);
  });

  test("is checked against the limits again after the agreement", async () => {
    const { rig, command, second, outcomes } = await start({ max_step: 3 });
    await command("a");
    await rig.clock.advance(30_000);
    rig.simulator.control.setTag(tag, 17);
    await second("a");
    await rig.clock.advance(5_000);
    expect(await outcomes()).toEqual([["a", "rejected", "step-too-large"]]);
    expect(rig.posts).toEqual([]);
  });

  test("needs an agreement for each tag of a group", async () => {
    const { rig, second, outcomes } = await start();
    const writes = [tag, free].map((each) => ({ tag: each, value: 22 }));
    await rig.sendAndWait({ id: "g", writes, ttl_s: LIFE_S });
    expect(await outcomes()).toEqual([[`g/${free}`, "confirmed", null]]);
    await second(`g/${tag}`);
    await rig.clock.advance(5_000);
    expect((await outcomes())[1]).toEqual([`g/${tag}`, "confirmed", null]);
  });

  test("needs one agreement for a timed write and its restore", async () => {
    const { rig, command, second, outcomes } = await start({ restore: true });
    await command("a", { for_s: 600 });
    await second("a");
    await rig.clock.advance(700_000);
    expect(await outcomes()).toEqual([
      ["a", "confirmed", null],
      ["a/restore", "confirmed", null],
    ]);
    expect(rig.posts.flat().map(({ value }) => value)).toEqual([22, 20]);
  });
});

describe("an agreement of a second person", () => {
  const cases: readonly [string, unknown, Partial<Arrival>, string][] = [
    ["another value", { second: "a", value: 22.000000000000004 }, SECOND, "wrong-second"],
    ["a value of another type", { second: "a", value: true }, SECOND, "wrong-second"],
    ["another command", { second: "b", value: 22 }, SECOND, "wrong-second"],
    ["another source", { second: "a", value: 22 }, { ...SECOND, source: "other" }, "wrong-second"],
    ["a retain flag", { second: "a", value: 22 }, { ...SECOND, retained: true }, "retained"],
    ["no value", { second: "a" }, SECOND, "invalid"],
    ["an additional key", { second: "a", value: 22, ttl_s: 300 }, SECOND, "invalid"],
    ["a command on the topic for agreements", { id: "c", tag: "10250", value: 22 }, SECOND, "invalid"],
    ["a bare value on the topic for agreements", 22, SECOND, "invalid"],
    ["a topic for commands", { second: "a", value: 22 }, {}, "invalid"],
    [
      "the id of Plenum's own event",
      { second: "a", value: 22 },
      { ...SECOND, properties: { "plenum-event-id": "x" } },
      "loop",
    ],
  ];
  test.each(cases)("is rejected when the message has %s: %j", async (_what, payload, changes, reason) => {
    const { rig, command, outcomes } = await start();
    await command("a");
    await rig.send(payload, changes);
    await rig.clock.advance(10_000);
    expect((await outcomes()).map(([, , why]) => why)).toEqual([reason]);
    expect(rig.posts).toEqual([]);
  });

  test("is rejected after writing was stopped by the kill switch", async () => {
    const { rig, command, second, outcomes } = await start();
    await command("a");
    rig.killSwitch.throwIt("a test", "now");
    await second("a");
    await rig.clock.advance(5_000);
    rig.killSwitch.release();
    await rig.clock.advance(300_000);
    expect((await outcomes()).map(([, , reason]) => reason)).toEqual(["killed", "killed"]);
    expect(rig.posts).toEqual([]);
  });
});

describe("a second person on the command line", () => {
  const from = { source: null, value: 22, user: "ann" };

  test("may agree to a command from MQTT, and not to a command from the command line", async () => {
    const { rig, command, second, outcomes } = await start();
    const now = () => ({ receivedAtMs: rig.clock.now() });
    await command("a");
    await rig.commands.accept(operatorSecond({ ...from, ...now(), id: "a" }));
    await rig.clock.advance(5_000);
    const own = { ...from, ...now(), id: "b", tagId: tag, forSeconds: null, ttlSeconds: LIFE_S };
    await rig.commands.accept(operatorArrival({ ...own, value: 23 }));
    await rig.commands.accept(operatorSecond({ ...from, ...now(), id: "b", value: 23, user: "bob" }));
    await rig.clock.advance(60_000);
    expect(await outcomes()).toEqual([
      ["a", "confirmed", null],
      ["b/second", "rejected", "wrong-second"],
    ]);
    await second("b", 23);
    await rig.clock.advance(5_000);
    expect((await outcomes())[2]).toEqual(["b", "confirmed", null]);
    const by = (await rig.audit()).filter(({ step }) => step === "accepted").map(({ detail }) => detail.by);
    expect(by).toEqual(["broker plenum/cmd/main/set", "operator command line, says ann"]);
  });
});

describe("a kill of the worker", () => {
  test.each(["before the agreement", "after the agreement"])(
    "ends a command without a write when the kill is %s",
    async (when) => {
      const { rig, config, command, second, outcomes } = await start();
      await command("a");
      if (when === "after the agreement") await second("a");
      await rig.restart(config);
      await second("a");
      await rig.clock.advance(60_000);
      expect((await outcomes()).toSorted()).toEqual([
        ["a", "expired", "stopped"],
        ["a/second", "rejected", "wrong-second"],
      ]);
      expect(rig.posts).toEqual([]);
    },
  );

  test("does not send a command again when the kill is after the write request", async () => {
    const { rig, config, command, second, outcomes } = await start();
    await command("a");
    await second("a");
    while (rig.posts.length === 0) await rig.clock.advance(50);
    await rig.restart(config);
    await second("a");
    await rig.clock.advance(120_000);
    expect((await outcomes()).filter(([id]) => id === "a")).toHaveLength(1);
    expect(rig.posts).toHaveLength(1);
  });
});
