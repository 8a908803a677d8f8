import { describe, expect, test } from "vitest";
import type { Kind } from "#src/core/model/event.ts";
import { DeliveryConfig } from "#src/engine/delivery/config.ts";
import { Filter, matches } from "#src/engine/delivery/filter.ts";
import { sampleEvent, sampleOfEveryKind } from "../sample-events.ts";

const passing = (filter: unknown): readonly Kind[] => {
  const parsed = Filter.parse(filter);
  return sampleOfEveryKind()
    .filter((event) => matches(parsed, event))
    .map(({ type }) => type);
};

describe("which events pass a filter", () => {
  test("an empty one lets everything through", () => {
    expect(passing({})).toHaveLength(sampleOfEveryKind().length);
    expect(passing({ kinds: [], sites: [] })).toHaveLength(sampleOfEveryKind().length);
  });

  test("kinds by name and by pattern, whole words only", () => {
    expect(passing({ kinds: ["tag-value", "gateway-o*"] })).toEqual(["gateway-online", "gateway-offline", "tag-value"]);
    expect(passing({ kinds: ["*-resolved"] })).toEqual(["alarm-resolved"]);
    expect(passing({ kinds: ["*"] })).toHaveLength(sampleOfEveryKind().length);
  });

  test("sites by number or text; what belongs to no site stays out", () => {
    expect(passing({ sites: [1] })).toEqual(passing({ sites: ["1"] }));
    expect(passing({ sites: [1] })).not.toContain("token-expiring");
    expect(passing({ sites: [2] })).toEqual([]);
  });

  test("priorities, which only alarms have", () => {
    expect(new Set(passing({ priorities: ["A", "C"] }))).toEqual(new Set(passing({ kinds: ["alarm-*"] })));
    expect(passing({ priorities: ["B"] })).toEqual([]);
  });

  test("sources by name; the worker's own events stay out", () => {
    expect(passing({ sources: ["main"] })).not.toContain("delivery-gap");
    expect(passing({ sources: ["main"] })).toContain("tag-value");
    expect(passing({ sources: ["other"] })).toEqual([]);
  });

  test("every list has to let an event through", () => {
    expect(passing({ kinds: ["alarm-raised", "tag-value"], priorities: ["A"] })).toEqual(["alarm-raised"]);
  });

  test("a pattern also matches a kind that a later version adds", () => {
    const filter = Filter.parse({ kinds: ["alarm-*"] });
    expect(matches(filter, { ...sampleEvent("alarm-raised"), type: "alarm-x9" as Kind })).toBe(true);
  });
});

describe("the configuration of a delivery", () => {
  test.each([
    [{ filter: { kinds: ["alarm-rised"] } }, "No event kind is called alarm-rised. Did you mean alarm-raised?"],
    [{ filter: { kinds: ["alarms-*"] } }, "No event kind is called alarms-*. Write alarm-* for all of them."],
    [{ filter: { kinds: ["Alarm_Raised"] } }, "Did you mean alarm-raised?"],
    [{ filter: { kinds: ["everything"] } }, "Write a kind or a pattern such as alarm-*; the kinds are site-added,"],
    [{ filter: { sites: ["School"] } }, "`plenum sites` lists them"],
    [{ filter: { priorities: ["a"] } }, "one capital letter"],
    [{ filter: { kind: ["alarm-raised"] } }, "kind"],
    [{ from: "yesterday" }, "beginning"],
    [{ retry: { first: "soon" } }, "500ms"],
  ])("%j is refused: %s", (config, reason) => {
    expect(() => DeliveryConfig.parse(config)).toThrow(reason);
  });

  test("has defaults for everything", () => {
    expect(DeliveryConfig.parse({})).toEqual({
      filter: { kinds: [], sites: [], priorities: [], sources: [] },
      from: "now",
      batch: 100,
      retry: { first: 1_000, max: 300_000 },
      replay_after_restart: 900_000,
      sequence: false,
      deadline: 30_000,
    });
  });
});
