import { expect, test } from "vitest";
import type { Gateway } from "#src/core/model/building.ts";
import type { ListPage } from "#src/engine/source/source.ts";
import { cronMatcher } from "#src/engine/sync/cron-schedule.ts";
import { createOfflineGateways } from "#src/engine/sync/inventory/gateways.ts";
import type { StoredObject } from "#src/engine/sync/stored-documents.ts";
import { createVirtualClock } from "../virtual-clock.ts";

const SITE = 3;
const MINUTE = 60_000;

/** Site 3 with one gateway, which was offline when it was listed last; lists are due every five minutes. */
function createHarness(schedule: string | null = "*/5 * * * *") {
  const clock = createVirtualClock(Date.parse("2026-11-22T12:00:00Z"));
  const gateway = { id: "g1", displayName: "Roof", online: false };
  const stored = new Map([["g1", { value: gateway, siteId: SITE, missingSince: null }]]);
  const gateways = createOfflineGateways(
    () => stored as unknown as ReadonlyMap<string, StoredObject<Gateway>>,
    () => (schedule === null ? null : cronMatcher(schedule)),
    clock,
  );
  async function list(pages: AsyncIterable<ListPage<Gateway>>): Promise<void> {
    for await (const _page of gateways.watchPages(SITE, pages));
  }
  return { clock, gateways, list };
}

async function* pages(fails = false): AsyncIterable<ListPage<Gateway>> {
  yield { hasMore: fails } as ListPage<Gateway>;
  if (fails) throw new Error("403");
}

test("an offline gateway counts as the cause of null values until two lists of gateways are overdue", async () => {
  const { clock, gateways, list } = createHarness();
  await clock.advance(2 * MINUTE);
  await list(pages());
  // Due at 12:05 and 12:10; a minute of grace.
  await clock.advance(9 * MINUTE);
  expect(gateways.offlineGatewayOf(SITE)).toBe("g1");
  await clock.advance(1_000);
  expect(gateways.offlineGatewayOf(SITE)).toBeNull();
  await list(pages());
  expect(gateways.offlineGatewayOf(SITE)).toBe("g1");
});

test("a failed list does not confirm an offline gateway, and gateways stored at the start count as listed at the start", async () => {
  const { clock, gateways, list } = createHarness();
  expect(gateways.offlineGatewayOf(SITE)).toBe("g1");
  await clock.advance(10 * MINUTE);
  await expect(list(pages(true))).rejects.toThrow("403");
  await clock.advance(MINUTE + 1_000);
  expect(gateways.offlineGatewayOf(SITE)).toBeNull();
});

test("returns no offline gateway when gateways are not polled", () => {
  expect(createHarness(null).gateways.offlineGatewayOf(SITE)).toBeNull();
});
