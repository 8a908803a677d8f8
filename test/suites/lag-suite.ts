import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Event } from "#src/core/model/event.ts";
import { lagFiltersBySink, SinkEventFilter } from "#src/engine/delivery/filter.ts";
import { type DispatcherHarness, type Location, openDispatcher } from "../delivery/dispatcher-harness.ts";
import { sampleEvent, valueEvent } from "../sample-events.ts";

/** 300 values with an alarm after every hundredth, all of site 1. */
export const MIXED: readonly Event[] = Array.from({ length: 300 }, (_, n) =>
  n % 100 === 99 ? [valueEvent(n), sampleEvent("alarm-raised", {}, n)] : [valueEvent(n)],
).flat();

export function describeLag(name: string, location?: () => Location): void {
  let harness: DispatcherHarness;
  beforeEach(async () => {
    harness = await openDispatcher(location?.());
  });
  afterEach(() => harness.dispose());

  const lagFor = (filter: object) => harness.store.outbox.lag(lagFiltersBySink([["a", SinkEventFilter.parse(filter)]]));

  async function measureLag(filter: object, events: readonly Event[] = MIXED) {
    await harness.store.outbox.register("a", "beginning");
    await harness.store.commit({ events });
    const [lag] = await lagFor(filter);
    if (lag === undefined) throw new Error("a is unknown");
    return lag;
  }

  describe(`${name}: the lag of a sink`, () => {
    test.each([
      ["no condition", {}, 303],
      ["alarm kinds", { kinds: ["alarm-*"] }, 3],
      ["all kinds of an event class", { kinds: ["tag-value", "tag-history", "tag-total"] }, 300],
      ["one kind", { kinds: ["tag-value"] }, 300],
      ["a priority", { priorities: ["A"] }, 3],
      ["another priority", { priorities: ["C"] }, 0],
      ["the site of all events", { sites: [1] }, 303],
      ["another site", { sites: [2] }, 0],
      ["alarms of another source", { kinds: ["alarm-*"], sources: ["elsewhere"] }, 0],
      ["kinds without events", { kinds: ["site-*"] }, 0],
    ])("counts the events exactly for a filter on %s", async (_, filter, depth) => {
      expect(await measureLag(filter)).toMatchObject({ depth, exact: true });
    });

    test("is an upper bound per event class when more than 2,000 events would have to be filtered singly", async () => {
      const many = Array.from({ length: 2_500 }, (_, n) => valueEvent(n));
      expect(await measureLag({ sites: [2] }, [...many, sampleEvent("alarm-raised", {}, 1)])).toMatchObject({
        depth: 2_501,
        exact: false,
      });
      expect(await lagFor({ kinds: ["alarm-*"], sites: [2] })).toMatchObject([{ depth: 0, exact: true }]);
    });

    test("is an upper bound when the events are too large to be filtered singly", async () => {
      const largeEvents = Array.from({ length: 20 }, (_, n) => ({ ...valueEvent(n), subject: "x".repeat(60_000) }));
      expect(await measureLag({ sites: [2] }, largeEvents)).toMatchObject({ depth: 20, exact: false });
      expect(await lagFor({ kinds: ["tag-value"] })).toMatchObject([{ depth: 20, exact: true }]);
    });

    test("has the commit time of the oldest event that passes the filter, or null", async () => {
      await harness.store.outbox.register("a", "beginning");
      await harness.store.commit({ events: [valueEvent(1)] });
      await harness.clock.advance(60_000);
      await harness.store.commit({ events: [sampleEvent("alarm-raised", {}, 1)] });
      const findOldest = async (filter: object) => (await lagFor(filter))[0]?.oldest;
      const all = Date.parse((await findOldest({})) ?? "");
      expect(Date.parse((await findOldest({ kinds: ["alarm-*"] })) ?? "") - all).toBe(60_000);
      expect(await findOldest({ kinds: ["site-*"] })).toBeNull();
    });

    test("counts only replayed events that pass the filter", async () => {
      const { outbox } = harness.store;
      await outbox.register("a", "beginning");
      const { lastPosition } = await harness.store.commit({ events: MIXED });
      await outbox.settle("a", { isRepeat: false, through: lastPosition, rejected: [] });
      await outbox.replay("a", "2020-01-01T00:00:00Z");
      expect(await outbox.lag()).toMatchObject([{ depth: 0, again: 303 }]);
      expect(await lagFor({ kinds: ["alarm-*"] })).toMatchObject([{ depth: 0, again: 3, exact: true }]);
    });
  });
}
