import { describe, expect, test } from "vitest";
import type { GatewayFact } from "#src/core/model/event.ts";
import { findOfflineGatewayBySite } from "#src/engine/sync/inventory/gateways.ts";
import { loadRequestableTags } from "#src/engine/sync/inventory/requestable-tags.ts";
import { findDueExpiryWarning } from "#src/engine/sync/sync.ts";
import { GATEWAY } from "../sample-events.ts";
import { harness, MINUTE, openHarness, TOKEN } from "./alarm-harness.ts";
import { type HarnessOptions, RARE_SCHEDULES, START_MS, type SyncHarness } from "./sync-harness.ts";

async function started(options: HarnessOptions = {}): Promise<SyncHarness> {
  openHarness({ sync: { spread: "0s" }, ...options });
  await harness.start();
  await harness.clock.advance(5 * MINUTE);
  return harness;
}

const counts = () => {
  const kinds = Object.entries(Object.groupBy(harness.store.events, (event) => event.type));
  return Object.fromEntries(kinds.map(([kind, events]) => [kind, events?.length ?? 0]));
};

async function inSight(...from: Parameters<typeof loadRequestableTags>) {
  return (await loadRequestableTags(...from)).filter(({ missing }) => missing === undefined);
}

const gatewayOfSite = (siteId: number) =>
  [...harness.simulator.world.gateways.values()].find(({ site_id }) => site_id === siteId)?.id ?? 0;

describe("inventories of the building", () => {
  test("emits every object once at the first start, and nothing more during a day without changes", async () => {
    const { simulator, clock, store } = await started();
    const { world } = simulator;
    const first = counts();
    expect(first).toMatchObject({
      "site-added": 3,
      "tag-added": world.tags.size,
      "gateway-added": world.gateways.size,
    });
    await clock.advance(24 * 60 * MINUTE);
    await harness.restart();
    await clock.advance(60 * MINUTE);
    expect(counts()).toEqual(first);
    expect(await inSight(store, "main")).toHaveLength(world.tags.size);
  });

  test("requests the scope when objects are newly missing, and not for objects that stay missing", async () => {
    const { simulator, clock } = await started({ sync: { spread: "0s", schedules: RARE_SCHEDULES } });
    const requests = () => simulator.truth.requests().filter(({ endpoint }) => endpoint === "me").length;
    const inADay = async () => {
      const before = requests();
      await clock.advance(24 * 60 * MINUTE);
      return requests() - before;
    };
    const usual = await inADay();
    const ids = [...simulator.world.tags.keys()];
    simulator.control.changeToken(TOKEN, { visible_tags: ids.slice(0, 5) });
    expect(await inADay()).toBeGreaterThan(usual);
    expect(await inADay()).toBe(usual);
  });

  test("removes no object while the local clock differs from the clock of the service", async () => {
    const { simulator, clock } = await started({
      simulator: { clock_skew_s: -40 },
      sync: { spread: "0s", schedules: RARE_SCHEDULES, inventory: { remove_after: "1d" } },
    });
    const ids = [...simulator.world.tags.keys()];
    simulator.control.changeToken(TOKEN, { visible_tags: ids.slice(0, 5) });
    await clock.advance(3 * 24 * 60 * MINUTE);
    expect(counts()).not.toHaveProperty("tag-removed");
  });

  test("a rejected site does not affect the other sites", async () => {
    const { simulator, clock } = await started();
    simulator.control.setFaults([{ match: { site_id: 3 }, fault: { kind: "error", status: 422 } }]);
    const gatewayId = gatewayOfSite(4);
    simulator.control.setGateway(gatewayId, false);
    await clock.advance(12 * MINUTE);
    expect(harness.events("gateway-offline").map((event) => event.subject)).toEqual([`site/4/gateway/${gatewayId}`]);
    expect(harness.events("source-unavailable")).toEqual([]);
  });

  test("emit the changes of one site before the lists of the other sites arrive", async () => {
    const { simulator, clock } = await started();
    const gatewayId = gatewayOfSite(2);
    simulator.control.setFaults([
      { match: { endpoints: ["gateways"], site_id: 4 }, fault: { kind: "slow", delay_ms: 3_600_000 } },
    ]);
    simulator.control.setGateway(gatewayId, false);
    await clock.advance(12 * MINUTE);
    expect(harness.polls.filter(({ job }) => job === "gateways").at(-1)?.outcome).toBe("overlap");
    expect(harness.events("gateway-offline").map((event) => event.subject)).toEqual([`site/2/gateway/${gatewayId}`]);
  });

  test("gateway events contain the hosts behind the gateway, and whether the gateway serves the whole site", async () => {
    const { simulator, clock } = await started({ simulator: { sites: [1, 4] } });
    const gateways = [...simulator.world.gateways.values()];
    for (const { id } of gateways) simulator.control.setGateway(id, false);
    await clock.advance(12 * MINUTE);
    for (const { id } of gateways) simulator.control.setGateway(id, true);
    await clock.advance(12 * MINUTE);
    const emitted = new Map(
      harness
        .events("gateway-offline", "gateway-online")
        .map((event) => [`${event.type} ${event.subject}`, event.data]),
    );
    expect(emitted.size).toBe(2 * gateways.length);
    const hosts = [...simulator.world.hosts.values()];
    for (const [key, data] of emitted) {
      const { gateway, hosts: behind, wholeSite } = data as GatewayFact;
      const there = hosts.filter((host) => String(host.gateway_id) === gateway.id);
      expect(new Set(behind.map((host) => host.id)), key).toEqual(new Set(there.map(({ id }) => String(id))));
      expect(there.length, key).toBeGreaterThan(0);
      expect(wholeSite, key).toBe(key.includes("site/4/"));
    }
  });
});

describe("offline gateways", () => {
  const stored = (id: string, siteId: number, online: boolean | null, missingSince: string | null = null) =>
    [id, { value: { ...GATEWAY, id, online }, siteId, since: "", missingSince }] as const;

  test("finds an offline gateway only if it is the only gateway of its site", () => {
    const gateways = new Map([
      stored("1", 1, false),
      stored("2", 2, false),
      stored("3", 2, true),
      stored("4", 3, null),
      stored("5", 4, false),
      stored("6", 4, true, "2026-01-01T00:00:00.000Z"),
      stored("7", 5, true),
    ]);
    expect(findOfflineGatewayBySite(gateways)).toEqual(
      new Map([
        [1, "1"],
        [4, "5"],
      ]),
    );
  });
});

describe("the expiry of the token", () => {
  test("emits token-expiring once each at 30, 14, 7 and 1 days before the expiry, despite restarts", async () => {
    const expires = new Date(START_MS + 40 * 86_400_000).toISOString();
    const { clock } = await started({
      simulator: { tokens: [{ token: TOKEN, expires_at: expires }] },
      sync: { spread: "0s", schedules: { ...RARE_SCHEDULES, token: "0 * * * *", gateways: false, tags: false } },
    });
    for (let day = 0; day < 39.5; day += 1) {
      await clock.advance(86_400_000);
      if (day % 10 === 5) await harness.restart();
    }
    expect(harness.events("token-expiring").map((event) => event.data)).toEqual(
      [29, 13, 6, 0].map((daysLeft) => ({ expiresAt: expect.stringContaining("2026-07-11"), daysLeft })),
    );
  });

  test("warns once when the first poll is five days before the expiry", () => {
    const now = Date.UTC(2026, 0, 1);
    expect(findDueExpiryWarning("2026-01-06T00:00:00Z", now)).toEqual({ threshold: 7, daysLeft: 5 });
    expect(findDueExpiryWarning("2026-03-06T00:00:00Z", now)).toBeNull();
    expect(findDueExpiryWarning(null, now)).toBeNull();
  });
});
