import { describe, expect, test } from "vitest";
import type { Gateway, Tag } from "#src/building.ts";
import { diffInventory, type InventoryObservation } from "#src/sync/inventory/diff.ts";
import type { Held } from "#src/sync/snapshot.ts";

const DAY = 86_400_000;
const START = Date.UTC(2026, 0, 1);
const tag = (id: string, displayName = `T${id}`): Tag => ({ id, displayName, description: null, unit: null });
const gateway = (online: boolean | null, version = "1"): Gateway => ({
  id: "7",
  displayName: "Basement",
  online,
  version,
  hardware: null,
  ipAddress: null,
  location: null,
});

/** Holds what the diffs make of one observation after the other. */
function inventory<N extends "tag" | "gateway">(noun: N) {
  type T = { tag: Tag; gateway: Gateway }[N];
  let held = new Map<string, Held<T>>();
  let day = 0;
  return {
    see(observations: readonly InventoryObservation<T>[], days = 0): string[] {
      day += days;
      const diff = diffInventory<"tag" | "gateway">(noun, held as never, observations as never, {
        source: "/sources/main",
        at: new Date(START + day * DAY).toISOString(),
        removeAfterMs: 7 * DAY,
      });
      held = new Map([...held, ...(diff.put as never as Map<string, Held<T>>)]);
      for (const id of diff.remove) held.delete(id);
      return diff.events.map((event) => `${event.type} ${event.subject}`);
    },
    before(observations: readonly InventoryObservation<T>[]) {
      const diff = diffInventory<"tag" | "gateway">(noun, held as never, observations as never, {
        source: "/sources/main",
        at: new Date(START + day * DAY).toISOString(),
        removeAfterMs: 7 * DAY,
      });
      return diff.events.map((event) => (event.data as unknown as { before?: unknown }).before);
    },
  };
}

const whole = <T>(siteId: number, ...items: T[]) => ({ siteId, items, complete: true });
const partly = <T>(siteId: number, ...items: T[]) => ({ siteId, items, complete: false });

describe("inventories tell the truth", () => {
  test("what is new is told once, a rename with the name before", () => {
    const tags = inventory("tag");
    expect(tags.see([whole(1, tag("1"), tag("2"))])).toEqual([
      "tag-added site/1/tag/1",
      "tag-added site/1/tag/2",
    ]);
    expect(tags.see([whole(1, tag("1"), tag("2"))])).toEqual([]);
    expect(tags.before([whole(1, tag("1", "New"), tag("2"))])).toEqual([{ displayName: "T1" }]);
    expect(tags.see([whole(1, tag("1", "New"), tag("2"))])).toEqual(["tag-changed site/1/tag/1"]);
  });

  test("a record whose attributes came empty changes nothing of what is known", () => {
    const tags = inventory("tag");
    tags.see([whole(1, tag("1"))]);
    expect(tags.see([whole(1, tag("1", ""))])).toEqual([]);
    const gateways = inventory("gateway");
    gateways.see([whole(1, gateway(true))]);
    expect(gateways.see([whole(1, { ...gateway(null), displayName: "", version: null })])).toEqual([]);
    expect(gateways.see([whole(1, gateway(false))])).toEqual(["gateway-offline site/1/gateway/7"]);
  });

  test("trap 25: what complete lists do not show is removed after seven days, not before", () => {
    const tags = inventory("tag");
    tags.see([whole(1, tag("1"), tag("2"))]);
    for (let day = 1; day <= 7; day += 1) expect(tags.see([whole(1, tag("1"))], 1)).toEqual([]);
    expect(tags.see([whole(1, tag("1"))], 1)).toEqual(["tag-removed site/1/tag/2"]);
    expect(tags.see([whole(1, tag("1"))], 1)).toEqual([]);
  });

  test("trap 25: views that shrink and grow again remove nothing, and the return is silent", () => {
    const tags = inventory("tag");
    tags.see([whole(1, tag("1"), tag("2"))]);
    for (let day = 0; day < 60; day += 1) {
      const shown = day % 6 === 5 ? [tag("1"), tag("2")] : [tag("1")];
      expect(tags.see([whole(1, ...shown)], 1)).toEqual([]);
    }
  });

  test("a list that is not complete, or of a site out of scope, lets nothing go missing", () => {
    const tags = inventory("tag");
    tags.see([whole(1, tag("1"), tag("2")), whole(2, tag("3"))]);
    for (let day = 0; day < 30; day += 1) expect(tags.see([partly<Tag>(1)], 1)).toEqual([]);
    expect(tags.see([partly(1, tag("4"))], 1)).toEqual(["tag-added site/1/tag/4"]);
    for (let day = 0; day < 30; day += 1)
      expect(tags.see([whole(1, tag("1"), tag("2"), tag("4"))], 1)).toEqual([]);
  });

  test("a move to another site is a change; a thing in two lists stays where it was", () => {
    const tags = inventory("tag");
    tags.see([whole(1, tag("1")), whole(2)]);
    expect(tags.see([whole(1, tag("1")), whole(2, tag("1"))])).toEqual([]);
    expect(tags.see([partly(1), whole(2, tag("1"))])).toEqual([]);
    expect(tags.before([whole(1), whole(2, tag("1"))])).toEqual([{ siteId: 1 }]);
    expect(tags.see([whole(1), whole(2, tag("1"))])).toEqual(["tag-changed site/2/tag/1"]);
  });

  test("a gateway that goes offline is one event, and none while it stays so", () => {
    const gateways = inventory("gateway");
    gateways.see([whole(1, gateway(true))]);
    expect(gateways.see([whole(1, gateway(false))])).toEqual(["gateway-offline site/1/gateway/7"]);
    expect(gateways.see([whole(1, gateway(false))])).toEqual([]);
    expect(gateways.see([whole(1, gateway(true, "2"))])).toEqual([
      "gateway-changed site/1/gateway/7",
      "gateway-online site/1/gateway/7",
    ]);
  });

  test("a gateway whose record does not say whether it is online is as it was, and the next word is told", () => {
    const gateways = inventory("gateway");
    gateways.see([whole(1, gateway(true))]);
    expect(gateways.see([whole(1, gateway(null))])).toEqual([]);
    expect(gateways.see([whole(1, gateway(false))])).toEqual(["gateway-offline site/1/gateway/7"]);
    expect(gateways.see([whole(1, gateway(null))])).toEqual([]);
    expect(gateways.see([whole(1, gateway(false))])).toEqual([]);
    expect(gateways.see([whole(1, gateway(true))])).toEqual(["gateway-online site/1/gateway/7"]);
  });

  test("a gateway of which nothing was ever said is offline only when the service says so", () => {
    const gateways = inventory("gateway");
    expect(gateways.see([whole(1, gateway(null))])).toEqual(["gateway-added site/1/gateway/7"]);
    expect(gateways.see([whole(1, gateway(null))])).toEqual([]);
    expect(gateways.see([whole(1, gateway(false))])).toEqual(["gateway-offline site/1/gateway/7"]);
  });
});
