import { describe, expect, test } from "vitest";
import type { AnyEvent, EventData, EventKind } from "#src/core/model/event.ts";
import { summarizeEvent } from "#src/ui/status/event-summary.ts";
import { sampleEvent, sampleOfEveryForm } from "../sample-events.ts";

/** Where more is said than the name of the thing. */
const SUMMARIES: Partial<Record<EventKind, readonly string[]>> = {
  "tag-systems-changed": ["VS1-GT11: Heating 1"],
  "series-break": ["VS1-GT11: other unit than before"],
  "tag-value": ["VS1-GT11: 21.5 °C", "VS1-GT11: no value (stale: out-of-scope)"],
  "history-complete": ["VS1-GT11: 1h of 2026-11-01 to 2026-11-01", "Kvarnholmen 4: 1h until 2026-11-01"],
  "day-sealed": ["Kvarnholmen 4: 2026-11-01, revision 1"],
  "command-accepted": ["tag 10042 to 21.5"],
  "command-result": ["tag 10042 confirmed: The tag holds the value."],
  "command-not-restored": [
    "tag 10042 holds 22, not 20: It was too late to put 20 back; nothing was written. The gateway is offline.",
  ],
  "audit-head": ["12 records, abababababab…"],
  "silence-started": ["until 2026-11-02T10:00:00.000Z: The pump is exchanged."],
  "silence-ended": ["until 2026-11-02T10:00:00.000Z: The pump is exchanged."],
  "token-expiring": ["in 28 days"],
  "site-status-changed": ["Kvarnholmen 4: offline. The only gateway (GW-1) is offline."],
  "source-unavailable": ["maintenance (503)", "The token does not see site 1 any more."],
  "source-available": ["away since 2026-11-02T06:20:00.000Z"],
  "worker-alive": ["alarms polled at 2026-11-02T06:19:30.000Z"],
  "configuration-changed": ["sources.main.read.rooms.every"],
  "delivery-gap": ["influx: 12 events lost by size"],
};

const OBJECT_NAMES: readonly (readonly [start: string, name: string])[] = [
  ["site-", "Kvarnholmen 4"],
  ["gateway-", "Basement gateway"],
  ["host-", "DUC 1"],
  ["system-", "Heating 1"],
  ["tag-", "VS1-GT11"],
  ["alarm-", "Supply temperature low · Kvarnholmen 4"],
];

describe("the summary of an event", () => {
  test.each(sampleOfEveryForm().map((event) => [event.type, event] as const))(
    "describes the content of an event of kind %s",
    (kind, event) => {
      const name = OBJECT_NAMES.find(([start]) => kind.startsWith(start))?.[1] ?? "";
      expect(SUMMARIES[kind] ?? [name]).toContain(summarizeEvent(event as AnyEvent));
    },
  );
  const summaryWith = <K extends EventKind>(kind: K, data: Partial<EventData[K]>) => {
    const event = sampleEvent(kind);
    return summarizeEvent({ ...event, data: { ...event.data, ...data } } as unknown as AnyEvent);
  };

  test("states that a value is missing or uncertain, and omits a missing unit", () => {
    const { tag } = sampleEvent("tag-value").data;
    expect(summaryWith("tag-value", { value: null, quality: "bad" })).toBe("VS1-GT11: no value (bad)");
    expect(summaryWith("tag-value", { value: true, tag: { ...tag, unit: null } })).toBe("VS1-GT11: true");
    expect(summaryWith("tag-value", { quality: "uncertain" })).toBe("VS1-GT11: 21.5 °C (uncertain)");
  });

  test("omits missing fields or replaces them by a placeholder", () => {
    expect(summaryWith("command-result", { tagId: null })).toBe("confirmed: The tag holds the value.");
    expect(summaryWith("command-not-restored", { inForce: null })).toContain("tag 10042 holds ?, not 20: ");
    expect(summaryWith("tag-systems-changed", { systems: [] })).toBe("VS1-GT11: no system");
    const { data } = sampleEvent("configuration-changed");
    expect(summaryWith("configuration-changed", { changes: [], pending: data.changes })).toBe(
      "nothing yet; 1 wait for a restart",
    );
  });
});
