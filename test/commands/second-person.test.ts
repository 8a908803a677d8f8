import { describe, expect, test } from "vitest";
import type { CommandMessage } from "#src/core/connector.ts";
import { toOperatorApproval, toOperatorCommand } from "#src/engine/commands/operator-command-message.ts";
import { allowed, openHarness, TAGS } from "./test-harness.ts";

const SECOND: Partial<CommandMessage> = { purpose: "second", topic: "plenum/cmd/main/second" };
const [tag = "", free = ""] = TAGS;
const LIFE_S = 120;

async function secondPerson(entry: object = {}) {
  const limit = { min_interval: "1s" };
  const allow = [allowed(tag, { ...limit, second_person: true, ...entry }), allowed(free, limit)];
  const harness = await openHarness({ config: { allow } });
  const command = (id: string, more: object = {}) => harness.send({ id, tag, value: 22, ttl_s: LIFE_S, ...more });
  const agree = (id: string, value: unknown = 22, changes: Partial<CommandMessage> = {}) =>
    harness.execute({ second: id, value }, { ...SECOND, ...changes });
  return { harness, command, agree };
}

describe("a command that needs a second person", () => {
  test("is sent after the agreement, with the second person's name in the audit log", async () => {
    const { harness, command, agree } = await secondPerson();
    await command("a");
    await harness.clock.advance(60_000);
    expect(await harness.outcomes()).toEqual([]);
    expect(harness.posts).toEqual([]);
    await agree("a", 22, { properties: { user: "Bo\nris" } });
    expect(await harness.outcomes()).toEqual(["a confirmed"]);
    expect(harness.posts).toHaveLength(1);
    const audit = await harness.audit();
    expect(audit.map(({ step }) => step)).toEqual(["accepted", "seconded", "sending", "confirmed"]);
    expect(audit[1]).toMatchObject({ commandId: "a", detail: { by: "broker plenum/cmd/main/second, says Bo ris" } });
  });

  test("expires without an agreement, and a late agreement is ignored", async () => {
    const { harness, command, agree } = await secondPerson();
    await command("a");
    await harness.clock.advance(LIFE_S * 1_000 + 1_000);
    await agree("a");
    await harness.clock.advance(60_000);
    expect(await harness.outcomes()).toEqual(["a expired not-seconded", "a/second rejected wrong-second"]);
    expect(harness.posts).toEqual([]);
  });

  test("is announced with needsSecond: true in its event, and needs only one agreement", async () => {
    const { harness, command, agree } = await secondPerson();
    await command("a");
    const [accepted] = await harness.store.outbox.latest(1, ["command-accepted"]);
    expect(accepted?.event.data).toMatchObject({ commandId: "a", requested: 22, needsSecond: true });
    await Promise.all([agree("a"), agree("a")]);
    expect(await harness.outcomes()).toEqual(["a/second rejected wrong-second", "a confirmed"]);
    expect(harness.posts).toHaveLength(1);
  });

  test("is superseded by a later command for its tag, which needs its own agreement", async () => {
    const { harness, command, agree } = await secondPerson();
    await command("a");
    await command("b", { value: 23 });
    await agree("a");
    await agree("b", 23);
    expect(await harness.outcomes()).toEqual(["a superseded", "a/second rejected wrong-second", "b confirmed"]);
    expect(harness.posts.flat().map(({ value }) => value)).toEqual([23]);
  });

  test("is checked against the limits again after the agreement", async () => {
    const { harness, command, agree } = await secondPerson({ max_step: 3 });
    await command("a");
    await harness.clock.advance(30_000);
    harness.simulator.control.setTag(tag, 17);
    await agree("a");
    expect(await harness.outcomes()).toEqual(["a rejected step-too-large"]);
    expect(harness.posts).toEqual([]);
  });

  test("needs a separate agreement for each tag of a message that writes several tags", async () => {
    const { harness, agree } = await secondPerson();
    const writes = [tag, free].map((each) => ({ tag: each, value: 22 }));
    await harness.execute({ id: "g", writes, ttl_s: LIFE_S });
    expect(await harness.outcomes()).toEqual([`g/${free} confirmed`]);
    await agree(`g/${tag}`);
    expect((await harness.outcomes())[1]).toBe(`g/${tag} confirmed`);
  });

  test("needs one agreement for a timed write and its restore", async () => {
    const { harness, command, agree } = await secondPerson({ restore: true });
    await command("a", { for_s: 600 });
    await agree("a");
    await harness.clock.advance(700_000);
    expect(await harness.outcomes()).toEqual(["a confirmed", "a/restore confirmed"]);
    expect(harness.posts.flat().map(({ value }) => value)).toEqual([22, 20]);
  });
});

describe("an agreement of a second person", () => {
  const good = { second: "a", value: 22 };
  const ownEvent = { ...SECOND, properties: { "plenum-event-id": "x" } };
  test.each<[string, unknown, Partial<CommandMessage>, string]>([
    ["another value", { ...good, value: 22.000000000000004 }, SECOND, "wrong-second"],
    ["another command", { ...good, second: "b" }, SECOND, "wrong-second"],
    ["another source", good, { ...SECOND, source: "other" }, "wrong-second"],
    ["a retain flag", good, { ...SECOND, retained: true }, "retained"],
    ["no value", { second: "a" }, SECOND, "invalid"],
    ["a command on the topic for agreements", { id: "c", tag, value: 22 }, SECOND, "invalid"],
    ["a topic for commands", good, {}, "invalid"],
    ["the id of Plenum's own event", good, ownEvent, "loop"],
  ])("is rejected when the message has %s: %j", async (_what, payload, changes, reason) => {
    const { harness, command } = await secondPerson();
    await command("a");
    await harness.execute(payload, changes, 10_000);
    expect((await harness.results()).map((result) => result.reason)).toEqual([reason]);
    expect(harness.posts).toEqual([]);
  });

  test("is rejected after writing was stopped by the kill switch", async () => {
    const { harness, command, agree } = await secondPerson();
    await command("a");
    harness.killSwitch.turnOn("a test", "now");
    await agree("a");
    harness.killSwitch.turnOff();
    await harness.clock.advance(300_000);
    expect((await harness.results()).map(({ reason }) => reason)).toEqual(["killed", "killed"]);
    expect(harness.posts).toEqual([]);
  });
});

test("an agreement on the command line is valid for a command from MQTT, not from the command line", async () => {
  const { harness, command, agree } = await secondPerson();
  const from = () => ({ source: null, value: 22, user: "ann", receivedAtMs: harness.clock.now() });
  await command("a");
  await harness.commands.accept(toOperatorApproval({ ...from(), id: "a" }));
  await harness.clock.advance(5_000);
  const own = { ...from(), id: "b", tagId: tag, forSeconds: null, ttlSeconds: LIFE_S };
  await harness.commands.accept(toOperatorCommand({ ...own, value: 23 }));
  await harness.commands.accept(toOperatorApproval({ ...from(), id: "b", value: 23, user: "bob" }));
  await harness.clock.advance(60_000);
  expect(await harness.outcomes()).toEqual(["a confirmed", "b/second rejected wrong-second"]);
  await agree("b", 23);
  expect((await harness.outcomes())[2]).toBe("b confirmed");
  const by = (await harness.audit()).filter(({ step }) => step === "accepted").map(({ detail }) => detail.by);
  expect(by).toEqual(["broker plenum/cmd/main/set", "operator command line, says ann"]);
});

describe("a kill of the worker before or after a second person's agreement", () => {
  const second = { second: "a", value: 22 };

  test.each(["before the agreement", "after the agreement"])(
    "ends a command without a write when the kill is %s",
    async (when) => {
      const { harness, command, agree } = await secondPerson();
      await command("a");
      if (when === "after the agreement") await harness.send(second, SECOND);
      await harness.restart();
      await agree("a");
      await harness.clock.advance(60_000);
      expect((await harness.outcomes()).toSorted()).toEqual(["a expired stopped", "a/second rejected wrong-second"]);
      expect(harness.posts).toEqual([]);
    },
  );
});
