import pino from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import { statusReportLines } from "#src/cli/watching/status-command.ts";
import type { AnyEvent } from "#src/core/model/event.ts";
import type { StatusReport } from "#src/ui/status/status-report.ts";
import { startVirtualWorker, type VirtualWorker } from "../virtual-worker.ts";
import { type LargeBuilding, type LargeBuildingOptions, largeBuilding } from "./large-building.ts";

const SECOND = 1_000;
const MINUTE = 60 * SECOND;

async function started(options: LargeBuildingOptions, source: object = {}) {
  const building = largeBuilding(options);
  const warnings: string[] = [];
  const log = pino({ level: "warn" }, { write: (line: string) => void warnings.push(line) });
  const virtual = await startVirtualWorker({
    simulator: { sites: [1], alarms: { recorded: false } },
    source: { read: [{ name: "all", every: "10m" }], ...source },
    eventsFolder: null,
    around: building.transport,
    log,
  });
  onTestFinished(() => virtual.clear());
  return { building, virtual, warnings };
}

async function statusOf({ worker }: VirtualWorker): Promise<StatusReport> {
  return (await (await fetch(`${worker.statusUrl()}/api/status`)).json()) as StatusReport;
}

async function sourceOf(virtual: VirtualWorker) {
  const report = await statusOf(virtual);
  const [source] = report.sources;
  if (source === undefined) throw new Error("The status has no source.");
  return { ...source, notices: report.notices };
}

const countOf = (events: readonly AnyEvent[], type: string) => events.filter((event) => event.type === type).length;
const tagIn = (data: object) => (data as { tag: { id: string } }).tag.id;
const requestsOf = ({ requests }: LargeBuilding, endpoint: string) =>
  requests.filter((asked) => asked.endpoint === endpoint);

describe("a first start", () => {
  test.each([1_000, 3_000, 50_000])("reads the first value of %d tags within 5 s", async (tags) => {
    const { virtual } = await started({ sites: 1, tags });
    await virtual.clock.advance(5 * SECOND);
    const events = await virtual.events();
    expect(countOf(events, "tag-value")).toBeGreaterThan(0);
    const named = new Set<string>();
    for (const event of events) {
      if (event.type === "tag-added") named.add(event.subject);
      if (event.type === "tag-value") expect(named.has(event.subject)).toBe(true);
    }
  });

  test("reads tags of later pages while the list is still loading, and reads each tag once before it repeats any", async () => {
    const { building, virtual } = await started({ sites: 1, tags: 50_000 });
    await virtual.clock.advance(10 * MINUTE);
    const ids = requestsOf(building, "tags/read").flatMap(({ query }) => (query.get("tags") ?? "").split(","));
    expect(requestsOf(building, "tags").length).toBeLessThan(300);
    expect(ids.length).toBeGreaterThan(3_000);
    expect(new Set(ids).size).toBe(ids.length);
  });

  test("with 6,000 tags, lists gateways and hosts and requests history within the first minute", async () => {
    const { building, virtual } = await started(
      { sites: 3, tags: 2_000 },
      { history: [{ name: "past", resolution: "5m", every: "1h" }] },
    );
    await virtual.clock.advance(MINUTE);
    const source = await sourceOf(virtual);
    expect(source.readings.gateways).toMatchObject({ state: "whole", storedCount: 3 });
    expect(countOf(await virtual.events(), "host-added")).toBe(60);
    expect(requestsOf(building, "tags/history").length).toBeGreaterThan(0);
    await virtual.clock.advance(9 * MINUTE);
    expect(requestsOf(building, "tags/history").length).toBeGreaterThan(20);
    expect((await sourceOf(virtual)).historyStarvesSince).toBeNull();
  });
});

describe("the first list of tags while it is loading", () => {
  test("causes no removal of tags, no warning about classes and no total number of tags", async () => {
    const { virtual, warnings } = await started(
      { sites: 2, tags: 3_000 },
      {
        read: [
          { name: "late", every: "1h", select: { ids: ["2002999"] } },
          { name: "none", every: "1h", select: { ids: ["77"] } },
          { name: "all", every: "1m" },
        ],
      },
    );
    await virtual.clock.advance(100 * SECOND);
    const source = await sourceOf(virtual);
    expect(source.sites.map(({ tags }) => tags)).toEqual([3_000, null]);
    expect(source.counts.tags).toBeNull();
    expect(warnings).toEqual([]);
    await virtual.clock.advance(2 * MINUTE);
    expect(countOf(await virtual.events(), "tag-added")).toBe(6_000);
    expect(countOf(await virtual.events(), "tag-removed")).toBe(0);
    expect((await sourceOf(virtual)).sites.map(({ tags }) => tags)).toEqual([3_000, 3_000]);
    expect(warnings.filter((line) => line.includes("a class selects no tag"))).toHaveLength(1);
    expect(warnings.some((line) => line.includes('"none"'))).toBe(true);
    await virtual.clock.advance(2 * MINUTE);
    expect(warnings.filter((line) => line.includes("the live reads need more"))).toHaveLength(1);
  });

  test.each(["stop", "crash"] as const)(
    "continues with the stored tags after a %s during the first list",
    async (how) => {
      const { building, virtual, warnings } = await started({ sites: 1, tags: 6_000 });
      await virtual.clock.advance(90 * SECOND);
      const before = await virtual.events();
      expect(countOf(before, "tag-added")).toBeGreaterThan(1_000);
      expect(countOf(before, "tag-added")).toBeLessThan(6_000);
      const requests = building.requests.length;
      await virtual.restart(how);
      await virtual.clock.advance(70 * SECOND);
      const after = building.requests.slice(requests);
      expect(after.some(({ endpoint }) => endpoint === "tags/read")).toBe(true);
      await virtual.clock.advance(5 * MINUTE);
      const events = await virtual.events();
      const added = events.filter(({ type }) => type === "tag-added").map(({ subject }) => subject);
      expect(added).toHaveLength(6_000);
      expect(new Set(added).size).toBe(6_000);
      expect(countOf(events, "tag-removed") + countOf(events, "tag-changed")).toBe(0);
      expect(warnings.filter((line) => line.includes("gone at once"))).toEqual([]);
    },
  );

  test("keeps the tags of the pages before a failed page, and emits the other tags once at the next attempt", async () => {
    const { building, virtual } = await started({ sites: 1, tags: 1_000 });
    let failures = 0;
    building.fail = ({ endpoint, query }) => {
      const isFailing = endpoint === "tags" && query.get("page") === "6" && ++failures === 1;
      return isFailing ? { status: 500, body: { errors: [{ status: 500, message: "Try later." }] } } : undefined;
    };
    await virtual.clock.advance(5 * SECOND);
    expect(countOf(await virtual.events(), "tag-added")).toBe(500);
    await virtual.clock.advance(5 * MINUTE);
    const events = await virtual.events();
    expect(countOf(events, "tag-added")).toBe(1_000);
    expect(countOf(events, "tag-removed")).toBe(0);
  });

  test("finalizes no day and completes no history of a site before the last tag of the site is listed", async () => {
    const ids = [...Array.from({ length: 20 }, (_, n) => String(1_000_000 + n)), "1004999"];
    const past = { name: "past", resolution: "1d", every: "1h", backfill: "10d", look_back: "1h" };
    const { building, virtual } = await started(
      { sites: 1, tags: 5_000 },
      { time_zone: "UTC", history: [{ ...past, select: { ids } }] },
    );
    await virtual.clock.advance(2 * MINUTE);
    const early = await virtual.events();
    expect(countOf(early, "tag-added")).toBeLessThan(5_000);
    expect(countOf(early, "tag-history")).toBe(20);
    expect(requestsOf(building, "tags/history").length).toBeGreaterThan(1);
    const ofSite = (events: readonly AnyEvent[]) => events.filter(({ subject }) => subject === "site/1");
    expect(countOf(early, "history-complete")).toBe(20);
    expect(countOf(ofSite(early), "history-complete") + countOf(early, "day-sealed")).toBe(0);
    await virtual.clock.advance(18 * MINUTE);
    const late = await virtual.events();
    const fetched = late.filter(({ type }) => type === "tag-history").map(({ data }) => tagIn(data));
    expect(new Set(fetched).size).toBe(21);
    expect(countOf(ofSite(late), "history-complete")).toBe(1);
  });
});

describe("the progress of the first inventory", () => {
  test("states the number of read pages and the remaining time, and has no message once the inventory is read", async () => {
    const { virtual } = await started({ sites: 1, tags: 6_000 });
    await virtual.clock.advance(65 * SECOND);
    const { firstInventory, notices } = await sourceOf(virtual);
    expect(firstInventory).toMatchObject({ pagesTotal: 60, done: false });
    const { pagesRead = 0, message } = firstInventory ?? {};
    expect(pagesRead).toBeGreaterThan(20);
    expect(message).toBe(`Reading the building: ${pagesRead} of 60 pages of tags, about 1 minute left.`);
    expect(notices).toEqual([]);
    const lines = statusReportLines(await statusOf(virtual), false);
    expect(lines).toContain(`  ${message}`);
    expect(lines.find((line) => line.startsWith("source main:"))).toContain(`, ${pagesRead * 100} tags so far,`);
    await virtual.clock.advance(150 * SECOND);
    expect((await sourceOf(virtual)).firstInventory).toEqual({
      ...{ pagesRead: 60, pagesTotal: 60 },
      ...{ done: true, message: null },
    });
  });

  test("counts as done although one list is rejected and another list is switched off", async () => {
    const { building, virtual } = await started({ sites: 1, tags: 200 }, { schedules: { systems: false } });
    building.fail = ({ endpoint }) =>
      endpoint === "hosts" ? { status: 200, body: { errors: [{ status: 403, message: "Forbidden." }] } } : undefined;
    await virtual.clock.advance(MINUTE);
    expect((await sourceOf(virtual)).firstInventory?.done).toBe(true);
  });

  test("names the lists of gateways, hosts and systems once all pages of tags are read", async () => {
    const { virtual } = await started({ sites: 60, tags: 1 });
    await virtual.clock.advance(8 * MINUTE);
    expect((await sourceOf(virtual)).firstInventory?.message).toMatch(
      /^Reading the building: \d+ of \d+ pages of gateways, hosts and systems, about \d+ minutes? left\.$/,
    );
  });
});
