import { describe, expect, test } from "vitest";
import type { EventKind } from "#src/core/model/event.ts";
import { DeliveryConfig } from "#src/engine/delivery/config.ts";
import { matchesFilter, SinkEventFilter } from "#src/engine/delivery/filter.ts";
import { sampleEvent, sampleOfEveryKind } from "../sample-events.ts";

const passing = (filter: unknown): readonly EventKind[] => {
  const parsed = SinkEventFilter.parse(filter);
  return sampleOfEveryKind()
    .filter((event) => matchesFilter(parsed, event))
    .map(({ type }) => type);
};

describe("the events that pass a filter", () => {
  test("include every event when the filter is empty", () => {
    expect(passing({})).toHaveLength(sampleOfEveryKind().length);
    expect(passing({ kinds: [], sites: [] })).toHaveLength(sampleOfEveryKind().length);
  });

  test("match `kinds` by full name or by pattern", () => {
    expect(passing({ kinds: ["tag-value", "gateway-o*"] })).toEqual(["gateway-online", "gateway-offline", "tag-value"]);
    expect(passing({ kinds: ["*-resolved"] })).toEqual(["alarm-resolved"]);
    expect(passing({ kinds: ["*"] })).toHaveLength(sampleOfEveryKind().length);
  });

  test("match `sites` given as number or text, and exclude events without a site", () => {
    expect(passing({ sites: [1] })).toEqual(passing({ sites: ["1"] }));
    expect(passing({ sites: [1] })).not.toContain("token-expiring");
    expect(passing({ sites: [2] })).toEqual([]);
  });

  test("match `priorities`, and exclude events other than alarms", () => {
    expect(new Set(passing({ priorities: ["A", "C"] }))).toEqual(new Set(passing({ kinds: ["alarm-*"] })));
    expect(passing({ priorities: ["B"] })).toEqual([]);
  });

  test("match `sources` by name, and exclude the worker's own events", () => {
    expect(passing({ sources: ["main"] })).not.toContain("delivery-gap");
    expect(passing({ sources: ["main"] })).toContain("tag-value");
    expect(passing({ sources: ["other"] })).toEqual([]);
  });

  test("match all lists of the filter", () => {
    expect(passing({ kinds: ["alarm-raised", "tag-value"], priorities: ["A"] })).toEqual(["alarm-raised"]);
  });

  test("include a kind of a later version that matches a pattern", () => {
    const filter = SinkEventFilter.parse({ kinds: ["alarm-*"] });
    expect(matchesFilter(filter, { ...sampleEvent("alarm-raised"), type: "alarm-x9" as EventKind })).toBe(true);
  });
});

describe("the configuration of a sink's delivery", () => {
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
  ])("rejects %j with the message: %s", (config, reason) => {
    expect(() => DeliveryConfig.parse(config)).toThrow(reason);
  });

  test("has a default for every option", () => {
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
