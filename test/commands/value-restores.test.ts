import { describe, expect, test } from "vitest";
import type { Event } from "#src/core/model/event.ts";
import { type Rig, SITE } from "./command-harness.ts";
import { allowed, TAG as tag, testRig } from "./test-harness.ts";

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const back = { tag_id: tag, value: 20 };

/** Writes 22 for two minutes, creates an obstacle and waits until the restore is overdue. */
async function overdueRestore(obstacle: (rig: Rig) => unknown, entry: object = {}) {
  const rig = await testRig({ config: { allow: [allowed(tag, { restore: true, ...entry })] } });
  await rig.sendAndWait({ id: "a", tag, value: 22, for_s: 120 }, {}, MINUTE_MS);
  expect(await rig.outcomes()).toEqual(["a confirmed"]);
  await obstacle(rig);
  await rig.clock.advance(2 * MINUTE_MS);
  return rig;
}

async function lostRestores({ store }: Rig) {
  const latest = await store.outbox.latest(100, ["command-not-restored"]);
  return latest.map(({ event }) => event as Event<"command-not-restored">);
}

async function setGateways(rig: Rig, online: boolean): Promise<void> {
  rig.simulator.control.setGateway(rig.simulator.world.tags.get(tag)?.gatewayId ?? 0, online);
  await rig.storeGateways(online);
}

const gatewayOffline = (rig: Rig) => setGateways(rig, false);

describe("the restore of a timed write", () => {
  test("waits while the gateway is offline, also over restarts, and writes the old value once the gateway is online", async () => {
    const rig = await overdueRestore(gatewayOffline);
    expect(rig.commands.notices()).toEqual([
      expect.stringMatching(`Tag ${tag} still holds 22, written by a: 20 should hold again since .*It is tried until`),
    ]);
    await rig.clock.advance(2 * HOUR_MS);
    await rig.restart();
    await rig.clock.advance(HOUR_MS);
    expect(rig.posts).toHaveLength(1);
    expect(await rig.outcomes()).toHaveLength(1);
    await setGateways(rig, true);
    await rig.clock.advance(6 * MINUTE_MS);
    await rig.restart();
    await rig.clock.advance(HOUR_MS);
    expect(rig.posts.slice(1)).toEqual([[back]]);
    expect(await rig.outcomes()).toEqual(["a confirmed", "a/restore confirmed"]);
    expect(await rig.store.outbox.latest(100, ["command-accepted"])).toHaveLength(2);
    expect(await lostRestores(rig)).toEqual([]);
    expect(rig.commands.notices()).toEqual([]);
  });

  test("emits command-not-restored, an audit record and a lasting warning after it has failed for a day", async () => {
    const rig = await overdueRestore(gatewayOffline);
    rig.clock.stepWall(24 * HOUR_MS);
    await rig.compareClocks();
    await rig.clock.advance(2 * MINUTE_MS);
    expect((await rig.outcomes()).slice(1)).toEqual(["a/restore expired"]);
    const events = await lostRestores(rig);
    expect(events).toMatchObject([
      {
        source: "/sources/main",
        subject: `site/${SITE}/tag/${tag}`,
        data: { commandId: "a", tagId: tag, inForce: 22, wanted: 20, reason: "expired" },
      },
    ]);
    const { dueAt = "", since = "", message } = events[0]?.data ?? {};
    expect(Date.parse(dueAt) - Date.parse(since)).toBe(120_000);
    expect(message).toMatch(/too late to put 20 back.*could not be read|offline/);
    expect((await rig.audit()).map(({ step }) => step)).toContain("not-restored");
    await setGateways(rig, true);
    await rig.restart();
    const notice = expect.stringMatching(`Tag ${tag} still holds 22, written by a at .*Set it right by hand`);
    expect(rig.commands.notices()).toEqual([notice]);
    await rig.storeLiveValue(tag, 22);
    await rig.clock.advance(MINUTE_MS);
    expect(rig.commands.notices()).toEqual([notice]);
    await rig.storeLiveValue(tag, 20);
    await rig.clock.advance(MINUTE_MS);
    expect(rig.commands.notices()).toEqual([]);
    expect(rig.posts).toHaveLength(1);
    expect(await lostRestores(rig)).toHaveLength(1);
  });

  test("reports the first obstacle, not the latest, when the restore is still queued after a day", async () => {
    const rig = await overdueRestore(gatewayOffline);
    rig.simulator.control.setFaults([{ match: { endpoints: ["read"] }, fault: { kind: "slow", delay_ms: 50_000 } }]);
    const reads = rig.requests("read");
    while (rig.requests("read") === reads) await rig.clock.advance(1_000);
    rig.clock.stepWall(24 * HOUR_MS);
    await rig.compareClocks();
    await rig.clock.advance(2 * MINUTE_MS);
    expect((await rig.outcomes()).slice(1)).toEqual(["a/restore expired"]);
    expect((await lostRestores(rig))[0]?.data.message).toMatch(/too late to put 20 back.*could not be read|offline/);
  });

  test("waits while the kill switch is thrown, while writing is disabled, and during a rehearsal", async () => {
    const allow = [allowed(tag, { restore: true })];
    const rig = await overdueRestore((rig) => rig.killSwitch.turnOn("a test", "now"));
    expect(await rig.outcomes()).toHaveLength(1);
    rig.killSwitch.turnOff();
    for (const closed of [{ enabled: false }, { rehearsal: true }]) {
      await rig.restart({ allow, ...closed });
      await rig.clock.advance(10 * MINUTE_MS);
    }
    expect(rig.posts).toHaveLength(1);
    await rig.restart();
    await rig.clock.advance(MINUTE_MS);
    expect(rig.posts.slice(1)).toEqual([[back]]);
    expect((await rig.outcomes()).at(-1)).toBe("a/restore confirmed");
  });

  test("respects min_interval and max_per_day of its tag", async () => {
    const rig = await overdueRestore(() => undefined, { min_interval: "2m", max_per_day: 2 });
    expect(rig.posts.slice(1)).toEqual([[back]]);
    await rig.clock.advance(MINUTE_MS);
    expect((await rig.outcomes()).at(-1)).toBe("a/restore confirmed");
  });

  test("is superseded by a written command, and not by a rejected command", async () => {
    const rig = await overdueRestore(gatewayOffline);
    await rig.sendAndWait({ id: "b", tag, value: 23 }, {}, MINUTE_MS);
    await setGateways(rig, true);
    await rig.sendAndWait({ id: "c", tag, value: 23 }, {}, 10 * MINUTE_MS);
    expect((await rig.outcomes()).slice(1)).toEqual([
      "b rejected gateway-offline",
      "a/restore superseded",
      "c confirmed",
    ]);
    expect(rig.posts.flat().map(({ value }) => value)).toEqual([22, 23]);
    expect(await lostRestores(rig)).toEqual([]);
  });

  test.each([
    ["throttled", { kind: "throttled" }],
    ["refused-by-service", { kind: "error", status: 422 }],
  ])("is never sent again after %s, and emits command-not-restored", async (reason, fault) => {
    const rig = await overdueRestore(({ simulator }) =>
      simulator.control.setFaults([{ match: { endpoints: ["write"] }, fault }]),
    );
    await rig.clock.advance(HOUR_MS);
    expect((await rig.outcomes()).slice(1)).toEqual([`a/restore rejected ${reason}`]);
    expect(rig.posts).toHaveLength(2);
    expect((await lostRestores(rig)).map(({ data }) => [data.inForce, data.reason])).toEqual([[22, reason]]);
  });

  test("ends without a warning when a person has set another value", async () => {
    const rig = await overdueRestore(({ simulator }) => simulator.control.setTag(tag, 19));
    expect((await rig.outcomes()).slice(1)).toEqual(["a/restore rejected unexpected-value"]);
    expect(rig.posts).toHaveLength(1);
    expect(await lostRestores(rig)).toEqual([]);
    expect(rig.commands.notices()).toEqual([]);
  });

  test("fails at once when the allow-list entry does not permit the old value any more", async () => {
    const rig = await overdueRestore((rig) => rig.restart({ allow: [allowed(tag, { min: 21, restore: true })] }));
    expect((await lostRestores(rig)).map(({ data }) => data.reason)).toEqual(["not-restorable"]);
    expect(rig.posts).toHaveLength(1);
  });

  test("has a command id that no sender may use", async () => {
    const rig = await testRig();
    expect(await rig.outcomeOf({ id: "a/restore", tag, value: 21 })).toBe("rejected invalid");
  });
});
