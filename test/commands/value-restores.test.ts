import { describe, expect, test } from "vitest";
import type { Event } from "#src/core/model/event.ts";
import { type Harness, SITE } from "./command-harness.ts";
import { allowed, openHarness, TAG as tag } from "./test-harness.ts";

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const back = { tag_id: tag, value: 20 };

/** Writes 22 for two minutes, creates an obstacle and waits until the restore is overdue. */
async function overdueRestore(obstacle: (harness: Harness) => unknown, entry: object = {}) {
  const harness = await openHarness({ config: { allow: [allowed(tag, { restore: true, ...entry })] } });
  await harness.execute({ id: "a", tag, value: 22, for_s: 120 }, {}, MINUTE_MS);
  expect(await harness.outcomes()).toEqual(["a confirmed"]);
  await obstacle(harness);
  await harness.clock.advance(2 * MINUTE_MS);
  return harness;
}

async function unrestored({ store }: Harness) {
  const latest = await store.outbox.latest(100, ["command-not-restored"]);
  return latest.map(({ event }) => event as Event<"command-not-restored">);
}

async function setGateways(harness: Harness, online: boolean): Promise<void> {
  harness.simulator.control.setGateway(harness.simulator.world.tags.get(tag)?.gatewayId ?? 0, online);
  await harness.storeGateways(online);
}

const gatewayOffline = (harness: Harness) => setGateways(harness, false);

describe("the restore of a timed write", () => {
  test("waits while the gateway is offline, also over restarts, and writes the old value once the gateway is online", async () => {
    const harness = await overdueRestore(gatewayOffline);
    expect(harness.commands.notices()).toEqual([
      expect.stringMatching(`Tag ${tag} still holds 22, written by a: 20 should hold again since .*It is tried until`),
    ]);
    await harness.clock.advance(2 * HOUR_MS);
    await harness.restart();
    await harness.clock.advance(HOUR_MS);
    expect(harness.posts).toHaveLength(1);
    expect(await harness.outcomes()).toHaveLength(1);
    await setGateways(harness, true);
    await harness.clock.advance(6 * MINUTE_MS);
    await harness.restart();
    await harness.clock.advance(HOUR_MS);
    expect(harness.posts.slice(1)).toEqual([[back]]);
    expect(await harness.outcomes()).toEqual(["a confirmed", "a/restore confirmed"]);
    expect(await harness.store.outbox.latest(100, ["command-accepted"])).toHaveLength(2);
    expect(await unrestored(harness)).toEqual([]);
    expect(harness.commands.notices()).toEqual([]);
  });

  test("emits command-not-restored, an audit record and a lasting warning after it has failed for a day", async () => {
    const harness = await overdueRestore(gatewayOffline);
    harness.clock.stepWall(24 * HOUR_MS);
    await harness.compareClocks();
    await harness.clock.advance(2 * MINUTE_MS);
    expect((await harness.outcomes()).slice(1)).toEqual(["a/restore expired"]);
    const events = await unrestored(harness);
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
    expect((await harness.audit()).map(({ step }) => step)).toContain("not-restored");
    await setGateways(harness, true);
    await harness.restart();
    const notice = expect.stringMatching(`Tag ${tag} still holds 22, written by a at .*Set it right by hand`);
    expect(harness.commands.notices()).toEqual([notice]);
    await harness.storeLiveValue(tag, 22);
    await harness.clock.advance(MINUTE_MS);
    expect(harness.commands.notices()).toEqual([notice]);
    await harness.storeLiveValue(tag, 20);
    await harness.clock.advance(MINUTE_MS);
    expect(harness.commands.notices()).toEqual([]);
    expect(harness.posts).toHaveLength(1);
    expect(await unrestored(harness)).toHaveLength(1);
  });

  test("reports the first obstacle, not the latest, when the restore is still queued after a day", async () => {
    const harness = await overdueRestore(gatewayOffline);
    harness.simulator.control.setFaults([
      { match: { endpoints: ["read"] }, fault: { kind: "slow", delay_ms: 50_000 } },
    ]);
    const reads = harness.requests("read");
    while (harness.requests("read") === reads) await harness.clock.advance(1_000);
    harness.clock.stepWall(24 * HOUR_MS);
    await harness.compareClocks();
    await harness.clock.advance(2 * MINUTE_MS);
    expect((await harness.outcomes()).slice(1)).toEqual(["a/restore expired"]);
    expect((await unrestored(harness))[0]?.data.message).toMatch(/too late to put 20 back.*could not be read|offline/);
  });

  test("waits while the kill switch is thrown, while writing is disabled, and during a rehearsal", async () => {
    const allow = [allowed(tag, { restore: true })];
    const harness = await overdueRestore((harness) => harness.killSwitch.turnOn("a test", "now"));
    expect(await harness.outcomes()).toHaveLength(1);
    harness.killSwitch.turnOff();
    for (const closed of [{ enabled: false }, { rehearsal: true }]) {
      await harness.restart({ allow, ...closed });
      await harness.clock.advance(10 * MINUTE_MS);
    }
    expect(harness.posts).toHaveLength(1);
    await harness.restart();
    await harness.clock.advance(MINUTE_MS);
    expect(harness.posts.slice(1)).toEqual([[back]]);
    expect((await harness.outcomes()).at(-1)).toBe("a/restore confirmed");
  });

  test("respects min_interval and max_per_day of its tag", async () => {
    const harness = await overdueRestore(() => undefined, { min_interval: "2m", max_per_day: 2 });
    expect(harness.posts.slice(1)).toEqual([[back]]);
    await harness.clock.advance(MINUTE_MS);
    expect((await harness.outcomes()).at(-1)).toBe("a/restore confirmed");
  });

  test("is superseded by a written command, and not by a rejected command", async () => {
    const harness = await overdueRestore(gatewayOffline);
    await harness.execute({ id: "b", tag, value: 23 }, {}, MINUTE_MS);
    await setGateways(harness, true);
    await harness.execute({ id: "c", tag, value: 23 }, {}, 10 * MINUTE_MS);
    expect((await harness.outcomes()).slice(1)).toEqual([
      "b rejected gateway-offline",
      "a/restore superseded",
      "c confirmed",
    ]);
    expect(harness.posts.flat().map(({ value }) => value)).toEqual([22, 23]);
    expect(await unrestored(harness)).toEqual([]);
  });

  test.each([
    ["throttled", { kind: "throttled" }],
    ["refused-by-service", { kind: "error", status: 422 }],
  ])("is never sent again after %s, and emits command-not-restored", async (reason, fault) => {
    const harness = await overdueRestore(({ simulator }) =>
      simulator.control.setFaults([{ match: { endpoints: ["write"] }, fault }]),
    );
    await harness.clock.advance(HOUR_MS);
    expect((await harness.outcomes()).slice(1)).toEqual([`a/restore rejected ${reason}`]);
    expect(harness.posts).toHaveLength(2);
    expect((await unrestored(harness)).map(({ data }) => [data.inForce, data.reason])).toEqual([[22, reason]]);
  });

  test("ends without a warning when a person has set another value", async () => {
    const harness = await overdueRestore(({ simulator }) => simulator.control.setTag(tag, 19));
    expect((await harness.outcomes()).slice(1)).toEqual(["a/restore rejected unexpected-value"]);
    expect(harness.posts).toHaveLength(1);
    expect(await unrestored(harness)).toEqual([]);
    expect(harness.commands.notices()).toEqual([]);
  });

  test("fails at once when the allow-list entry does not permit the old value any more", async () => {
    const harness = await overdueRestore((harness) =>
      harness.restart({ allow: [allowed(tag, { min: 21, restore: true })] }),
    );
    expect((await unrestored(harness)).map(({ data }) => data.reason)).toEqual(["not-restorable"]);
    expect(harness.posts).toHaveLength(1);
  });

  test("has a command id that no sender may use", async () => {
    const harness = await openHarness();
    expect(await harness.outcomeOf({ id: "a/restore", tag, value: 21 })).toBe("rejected invalid");
  });
});
