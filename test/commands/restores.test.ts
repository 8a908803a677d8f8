import { describe, expect, test } from "vitest";
import type { Event } from "#src/core/model/event.ts";
import { REFUSALS } from "#src/engine/commands/command.ts";
import { isLost, mayRetry } from "#src/engine/commands/timed.ts";
import { documentSet } from "#src/engine/store/store.ts";
import { SITE } from "./rig.ts";
import { allowed, TAG, testRig } from "./test-rig.ts";

const tag = TAG;

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;

async function rigWith(entry: object = {}) {
  const rig = await testRig();
  const restart = (config: object = {}) =>
    rig.restart({ allow: [allowed(tag, { restore: true, ...entry })], ...config });
  await restart();
  const gatewayId = rig.simulator.world.tags.get(tag)?.gatewayId ?? 0;
  const setGateways = async (online: boolean) => {
    rig.simulator.control.setGateway(gatewayId, online);
    const set = documentSet("gateway", "main");
    const held = await rig.store.documents<{ readonly value: object }>(set);
    const put = [...held].map(([id, each]) => [id, { ...each, value: { ...each.value, online } }] as const);
    await rig.store.commit({ documents: [{ set, put }] });
  };
  const see = (value: number) =>
    rig.store.commit({
      documents: [
        {
          set: documentSet("value", "main"),
          put: [[tag, { value, quality: "good", time: new Date(rig.clock.now()).toISOString() }]],
        },
      ],
    });
  const { outcomes } = rig;
  const lost = async () =>
    (await rig.store.outbox.latest(100, ["command-not-restored"])).map(
      ({ event }) => event as Event<"command-not-restored">,
    );
  const kinds = async () => (await rig.store.outbox.latest(100, ["command-accepted"])).length;
  const overdue = async (hinder: () => unknown) => {
    await rig.send({ id: "a", tag, value: 22, for_s: 120 });
    await rig.clock.advance(MINUTE_MS);
    expect(await outcomes()).toEqual([["a", "confirmed", null]]);
    await hinder();
    await rig.clock.advance(2 * MINUTE_MS);
  };
  const back = { tag_id: tag, value: 20 };
  return { rig, tag, restart, setGateways, see, outcomes, lost, kinds, overdue, back };
}

describe("the restore of a timed write", () => {
  test("waits while the gateway is offline, also over restarts, and writes the old value once the gateway is online", async () => {
    const { rig, tag, restart, setGateways, outcomes, lost, kinds, overdue, back } = await rigWith();
    await overdue(() => setGateways(false));
    expect(rig.commands.notices()).toEqual([
      expect.stringMatching(`Tag ${tag} still holds 22, written by a: 20 should hold again since .*It is tried until`),
    ]);
    await rig.clock.advance(2 * HOUR_MS);
    await restart();
    await rig.clock.advance(HOUR_MS);
    expect(rig.posts).toHaveLength(1);
    expect(await outcomes()).toHaveLength(1);
    await setGateways(true);
    await rig.clock.advance(6 * MINUTE_MS);
    expect(rig.posts.slice(1)).toEqual([[back]]);
    expect(await outcomes()).toEqual([
      ["a", "confirmed", null],
      ["a/restore", "confirmed", null],
    ]);
    await restart();
    await rig.clock.advance(HOUR_MS);
    expect(rig.posts).toHaveLength(2);
    expect(await kinds()).toBe(2);
    expect(await lost()).toEqual([]);
    expect(rig.commands.notices()).toEqual([]);
  });

  test("emits command-not-restored, an audit record and a lasting warning after it has failed for a day", async () => {
    const { rig, tag, restart, setGateways, see, outcomes, lost, overdue } = await rigWith();
    await overdue(() => setGateways(false));
    rig.clock.stepWall(24 * HOUR_MS);
    await rig.compareClocks();
    await rig.clock.advance(2 * MINUTE_MS);
    expect((await outcomes()).slice(1)).toEqual([["a/restore", "expired", "expired"]]);
    const [event, ...more] = await lost();
    expect(more).toEqual([]);
    expect(event).toMatchObject({
      source: "/sources/main",
      subject: `site/${SITE}/tag/${tag}`,
      data: { commandId: "a", tagId: tag, inForce: 22, wanted: 20, reason: "expired" },
    });
    expect(Date.parse(event?.data.dueAt ?? "") - Date.parse(event?.data.since ?? "")).toBe(120_000);
    expect(event?.data.message).toMatch(/too late to put 20 back.*could not be read|offline/);
    expect((await rig.audit()).map(({ step }) => step)).toContain("not-restored");
    await setGateways(true);
    await restart();
    const notice = expect.stringMatching(`Tag ${tag} still holds 22, written by a at .*Set it right by hand`);
    expect(rig.commands.notices()).toEqual([notice]);
    await see(22);
    await rig.clock.advance(MINUTE_MS);
    expect(rig.commands.notices()).toEqual([notice]);
    await see(20);
    await rig.clock.advance(MINUTE_MS);
    expect(rig.commands.notices()).toEqual([]);
    expect(rig.posts).toHaveLength(1);
    expect(await lost()).toHaveLength(1);
  });

  test("reports the earlier obstacle when the restore is still queued after a day", async () => {
    const { rig, setGateways, outcomes, lost, overdue } = await rigWith();
    await overdue(() => setGateways(false));
    rig.simulator.control.setFaults([
      { match: { endpoints: ["read"] }, fault: { kind: "slow", delay_ms: 50_000 } },
    ] as never);
    const reads = rig.requests("read");
    while (rig.requests("read") === reads) await rig.clock.advance(1_000);
    rig.clock.stepWall(24 * HOUR_MS);
    await rig.compareClocks();
    await rig.clock.advance(2 * MINUTE_MS);
    expect((await outcomes()).slice(1)).toEqual([["a/restore", "expired", "expired"]]);
    expect((await lost())[0]?.data.message).toMatch(/too late to put 20 back.*could not be read|offline/);
  });

  test("waits while the kill switch is thrown, while writing is disabled, and during a rehearsal", async () => {
    const { rig, restart, outcomes, overdue, back } = await rigWith();
    await overdue(() => rig.killSwitch.throwIt("a test", "now"));
    expect(await outcomes()).toHaveLength(1);
    rig.killSwitch.release();
    await restart({ enabled: false });
    await rig.clock.advance(10 * MINUTE_MS);
    await restart({ rehearsal: true });
    await rig.clock.advance(10 * MINUTE_MS);
    expect(rig.posts).toHaveLength(1);
    await restart();
    await rig.clock.advance(MINUTE_MS);
    expect(rig.posts.slice(1)).toEqual([[back]]);
    expect((await outcomes()).at(-1)).toEqual(["a/restore", "confirmed", null]);
  });

  test("waits for min_interval and max_per_day", async () => {
    const { rig, outcomes, overdue, back } = await rigWith({ min_interval: "2m", max_per_day: 2 });
    await overdue(() => undefined);
    expect(rig.posts.slice(1)).toEqual([[back]]);
    await rig.clock.advance(MINUTE_MS);
    expect((await outcomes()).at(-1)).toEqual(["a/restore", "confirmed", null]);
  });

  test("is superseded by a written command, and not by a rejected command", async () => {
    const { rig, tag, setGateways, outcomes, lost, overdue } = await rigWith();
    await overdue(() => setGateways(false));
    await rig.send({ id: "b", tag, value: 23 });
    await rig.clock.advance(MINUTE_MS);
    expect((await outcomes()).at(-1)?.slice(0, 2)).toEqual(["b", "rejected"]);
    await setGateways(true);
    await rig.send({ id: "c", tag, value: 23 });
    await rig.clock.advance(10 * MINUTE_MS);
    expect((await outcomes()).slice(2)).toEqual([
      ["a/restore", "superseded", "superseded"],
      ["c", "confirmed", null],
    ]);
    expect(rig.posts.flat().map(({ value }) => value)).toEqual([22, 23]);
    expect(await lost()).toEqual([]);
  });

  test.each([
    ["throttled", { kind: "throttled" }],
    ["refused-by-service", { kind: "error", status: 422 }],
  ])("is never sent again after %s, and emits command-not-restored", async (reason, fault) => {
    const { rig, outcomes, lost, overdue } = await rigWith();
    await overdue(() => rig.simulator.control.setFaults([{ match: { endpoints: ["write"] }, fault }] as never));
    await rig.clock.advance(HOUR_MS);
    expect((await outcomes()).slice(1)).toEqual([["a/restore", "rejected", reason]]);
    expect(rig.posts).toHaveLength(2);
    expect((await lost()).map(({ data }) => [data.inForce, data.reason])).toEqual([[22, reason]]);
  });

  test("ends without a warning when a person has set another value", async () => {
    const { rig, tag, outcomes, lost, overdue } = await rigWith();
    await overdue(() => rig.simulator.control.setTag(tag, 19));
    expect((await outcomes()).slice(1)).toEqual([["a/restore", "rejected", "unexpected-value"]]);
    expect(await lost()).toEqual([]);
    expect(rig.commands.notices()).toEqual([]);
  });

  test("fails at once when the allow-list entry does not permit the old value any more", async () => {
    const { rig, tag, lost, overdue } = await rigWith();
    await overdue(() =>
      rig.restart({ allow: [{ site_id: SITE, tag_id: tag, type: "number", min: 21, max: 25, restore: true }] }),
    );
    expect((await lost()).map(({ data }) => data.reason)).toEqual(["not-restorable"]);
    expect(rig.posts).toHaveLength(1);
  });

  test("has an id that a sender may not use", async () => {
    const { rig, tag, outcomes } = await rigWith();
    await rig.send({ id: "a/restore", tag, value: 21 });
    expect(await outcomes()).toEqual([["a/restore", "rejected", "invalid"]]);
  });

  test("is retried only after temporary rejections", () => {
    const finish = (reason: (typeof REFUSALS)[number]) => ({ outcome: "rejected", reason, message: "" }) as const;
    expect(REFUSALS.filter((reason) => mayRetry(finish(reason)))).toEqual([
      "disabled",
      "killed",
      "not-armed",
      "unapproved",
      "audit-full",
      "clock-skew",
      "expired",
      "no-ability",
      "value-unknown",
      "too-soon",
      "too-many",
      "outside-hours",
      "gateway-offline",
    ]);
    expect(REFUSALS.filter((reason) => !isLost(finish(reason)))).toEqual(["unexpected-value"]);
  });
});
