import { describe, expect, test } from "vitest";
import { describeLiveTag, findTagReadClass } from "#src/engine/sync/live-tag-state.ts";
import { ReadClass } from "#src/engine/sync/read/config.ts";
import type { LiveReads } from "#src/engine/sync/read/live-reads.ts";
import { TAG } from "../sample-events.ts";
import { createVirtualClock } from "../virtual-clock.ts";

const readClass = ReadClass.parse({ name: "rooms", every: "60s" });
const KNOWN = {
  watched: { tag: TAG, siteId: 1, systemIds: [], readClass },
  ...{ lastMs: 0, countedMs: null, configuredMs: 60_000, stretchedMs: 60_000, intervalMs: 60_000, nulls: 0 },
  ...{ underWay: false, quarantinedUntilMs: null, isVisible: true, gatewayOffline: false, isolation: null },
};
async function shown(known: Partial<typeof KNOWN> | { readonly quarantinedUntilMs: number } = {}) {
  const clock = createVirtualClock(Date.parse("2026-11-02T06:00:00Z"));
  await clock.advance(60_000);
  const live = { known: (id: string) => (id === TAG.id ? { ...KNOWN, ...known } : undefined) } as LiveReads;
  return { tag: describeLiveTag(live, TAG.id, clock), live, clock };
}

const WISH = "Class rooms has the interval 1m.";

describe("the report of a tag's state in the live reads", () => {
  test("is null for a tag that no read class selects", async () => {
    const { live, clock } = await shown();
    expect(describeLiveTag(live, "1", clock)).toBeNull();
    expect(findTagReadClass(live, "1")).toBeNull();
    expect(findTagReadClass(live, TAG.id)).toEqual({ className: "rooms", promisedMs: 60_000 });
  });

  test("has the target interval and one reason for a tag read on time", async () => {
    expect((await shown()).tag).toEqual({
      className: "rooms",
      targetSeconds: 60,
      everySeconds: 60,
      lastAt: "2026-11-02T06:00:00.000Z",
      dueAt: "2026-11-02T06:01:00.000Z",
      reasons: [WISH],
    });
  });

  test.each([
    [{ stretchedMs: 90_000, intervalMs: 90_000 }, "06:01:30", "exceed the quota, so the class is stretched by 1.50."],
    [
      { gatewayOffline: true, intervalMs: 600_000, nulls: 4 },
      "06:10:00",
      "gateway is offline: it is read a tenth as often.",
    ],
    [{ intervalMs: 120_000, nulls: 4 }, "06:02:00", "It answered nothing 4 times in a row, so it is read less often."],
    [{ isVisible: false }, null, "The token does not see its site, so it is not read."],
    [{ quarantinedUntilMs: 660_000, lastMs: null }, "06:11:00", "so it is left out and asked alone at that time."],
    [{ isolation: "site 1" }, "06:01:00", "so it travels apart from the others until that is cleared up."],
    [{ lastMs: null }, "06:01:00", "It was not read since it is known; it takes the next place."],
    [{ lastMs: null, countedMs: 30_000 }, "06:01:30", "The clock was set back after it was read"],
    [{ underWay: true }, null, "It is on its way now."],
  ])("states the reasons and the next read time: for %o it is %s", async (known, dueAt, reason) => {
    const { tag } = await shown(known as Partial<typeof KNOWN>);
    expect(tag?.dueAt).toBe(dueAt && `2026-11-02T${dueAt}.000Z`);
    expect(tag?.reasons).toEqual([WISH, expect.stringContaining(reason)]);
  });
});
