import { afterEach, describe, expect, test } from "vitest";
import type { AnyEvent, Event } from "#src/event.ts";
import { startVirtualWorker, type VirtualWorker } from "./virtual-worker.ts";

const MINUTE = 60_000;
let virtual: VirtualWorker;
afterEach(() => virtual.clear());

describe("a gateway explains the values behind it", () => {
  test("values of a site whose only gateway is offline say so, and recover", async () => {
    virtual = await startVirtualWorker({
      simulator: { sites: [3, 4], alarms: { recorded: false } },
      source: {
        schedules: { gateways: "0 * * * * *" },
        read: [{ name: "all", every: "1m" }],
      },
    });
    const { simulator, clock } = virtual;
    await clock.advance(10 * MINUTE);
    const [gateway] = [...simulator.world.gateways.values()].filter(({ site_id }) => site_id === 4);
    if (gateway === undefined) throw new Error("Site 4 has no gateway.");
    const before = await virtual.events();

    simulator.control.setGateway(gateway.id, false);
    await clock.advance(20 * MINUTE);
    const meanwhile = (await virtual.events()).slice(before.length);
    expect(kinds(meanwhile, "gateway-offline")).toBe(1);
    const silent = valuesOf(meanwhile, 4).filter(({ data }) => data.value === null);
    // The first nulls may be read before the list of gateways says why.
    expect(silent.filter(({ data }) => data.behindGateway === String(gateway.id)).length).toBeGreaterThan(0);
    expect(silent.every(({ data }) => data.quality === "bad")).toBe(true);
    expect(valuesOf(meanwhile, 3).every(({ data }) => data.behindGateway === null)).toBe(true);

    simulator.control.setGateway(gateway.id, true);
    await clock.advance(15 * MINUTE);
    const after = (await virtual.events()).slice(before.length + meanwhile.length);
    expect(kinds(after, "gateway-online")).toBe(1);
    const last = new Map(valuesOf(after, 4).map((event) => [event.data.tag.id, event]));
    expect(last.size).toBeGreaterThan(0);
    for (const { data } of last.values()) expect(data.behindGateway).toBeNull();
  });
});

function kinds(events: readonly AnyEvent[], type: AnyEvent["type"]): number {
  return events.filter((event) => event.type === type).length;
}

function valuesOf(events: readonly AnyEvent[], siteId: number): readonly Event<"tag-value">[] {
  return events
    .filter((event): event is Event<"tag-value"> & AnyEvent => event.type === "tag-value")
    .filter((event) => event.subject.startsWith(`site/${siteId}/`));
}
