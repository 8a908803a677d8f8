import { readFileSync } from "node:fs";
import { describe, expect, onTestFinished, test } from "vitest";
import { largeBuilding } from "../sync/large-building.ts";
import { startVirtualWorker } from "../virtual-worker.ts";

/** Compares the table of first starts in docs/sizing.md with a worker in virtual time. */

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const UNITS: Readonly<Record<string, number>> = { s: SECOND, min: MINUTE, h: 60 * MINUTE };
/** Larger simulations take too long; reading 50,000 tags once is calculated. */
const SIMULATED_TAGS_MAX = 6_000;
const TAGS_PER_REQUEST = 20;
const READS_PER_MINUTE = 20;
const rows = [
  ...readFileSync("docs/sizing.md", "utf8").matchAll(
    /^\| ([\d,]+) sites?, ([\d,]+) tags \| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$/gm,
  ),
].map(([, sites = "", tags = "", first = "", gateways = "", named = "", read = ""]) => ({
  name: `${sites} sites, ${tags} tags`,
  sites: Number(sites.replaceAll(",", "")),
  tags: Number(tags.replaceAll(",", "")),
  firstValueMs: parseDurationMs(first),
  gatewaysMs: parseDurationMs(gateways),
  namedMs: parseDurationMs(named),
  readMs: parseDurationMs(read),
}));

function parseDurationMs(text: string): number {
  const [, count = "", unit = ""] = /^(?:about )?([\d.]+) (s|min|h)$/.exec(text) ?? [];
  return Number(count) * (UNITS[unit] ?? Number.NaN);
}

describe("the documented duration of a first start", () => {
  test("has rows for 1,000 to 50,000 tags, each with a first value within 5 s", () => {
    expect(rows.map(({ tags }) => tags)).toEqual([1_000, 3_000, 6_000, 6_000, 50_000]);
    for (const { firstValueMs } of rows) expect(firstValueMs).toBeLessThanOrEqual(5 * SECOND);
  });

  test.each(rows)("matches a simulated start with $name", async (row) => {
    const { sites, tags } = row;
    const building = largeBuilding({ sites, tags: tags / sites });
    const virtual = await startVirtualWorker({
      simulator: { sites: [1], alarms: { recorded: false } },
      source: { read: [{ name: "all", every: "3h" }] },
      eventsFolder: null,
      around: building.transport,
    });
    onTestFinished(() => virtual.clear());
    const isSimulated = tags <= SIMULATED_TAGS_MAX;
    await virtual.clock.advance((isSimulated ? row.readMs : row.namedMs) * 1.15);
    const startMs = virtual.clock.now() - virtual.clock.monotonic();
    const events = await virtual.events();
    const eventTimes = (type: string) =>
      events.filter((event) => event.type === type).map(({ time }) => Date.parse(time) - startMs);
    const lastTime = (times: readonly number[]) => Math.max(...times);
    const tagAddedTimes = eventTimes("tag-added");
    expect(tagAddedTimes).toHaveLength(tags);
    const gateways = eventTimes("gateway-added");
    expect(gateways).toHaveLength(sites);
    expectAbout(eventTimes("tag-value")[0] ?? Number.NaN, row.firstValueMs);
    expectAbout(lastTime(gateways), row.gatewaysMs);
    expectAbout(lastTime(tagAddedTimes), row.namedMs);
    if (isSimulated) {
      const readTimes = new Map<string, number>();
      for (const { type, subject, time } of events)
        if (type === "tag-value" && !readTimes.has(subject)) readTimes.set(subject, Date.parse(time) - startMs);
      expect(readTimes.size).toBe(tags);
      expectAbout(lastTime([...readTimes.values()]), row.readMs);
    } else expectAbout((tags / TAGS_PER_REQUEST / READS_PER_MINUTE) * MINUTE, row.readMs);
  });
});

/** Expects 85 to 110 % of the documented time, or up to a second less. */
function expectAbout(ms: number, statedMs: number): void {
  expect(ms).toBeLessThanOrEqual(statedMs * 1.1);
  expect(ms).toBeGreaterThanOrEqual(Math.min(statedMs * 0.85, statedMs - SECOND));
}
