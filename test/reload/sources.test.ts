import { afterEach, describe, expect, test } from "vitest";
import type { AnyEvent, Event } from "#src/core/model/event.ts";
import type { TransportRequest } from "#src/engine/source/transport.ts";
import { startVirtualWorker, type VirtualWorker, type Written } from "../virtual-worker.ts";

const SECOND_MS = 1_000;
const MINUTE_MS = 60_000;
let virtual: VirtualWorker;
let requests: { readonly atMs: number; readonly what: string; readonly request: TransportRequest }[] = [];
afterEach(() => virtual.clear());

const RARE_SCHEDULES = {
  alarms: false,
  resolved_sweep: false,
  ...Object.fromEntries(["token", "sites", "gateways", "hosts", "systems", "tags"].map((job) => [job, "0 59 * * * *"])),
};

async function startSource(source: Written): Promise<void> {
  requests = [];
  virtual = await startVirtualWorker({
    simulator: { sites: [3, 4], alarms: { recorded: false }, loops_before: 20 },
    ...{ source, eventsFolder: null },
    around: (transport, clock) => (request, signal) => {
      const endpoint = request.path.replace(/\?.*$/, "").replace(/^.*\/api\/v1\//, "");
      requests.push({ atMs: clock.monotonic(), what: endpoint, request });
      return transport(request, signal);
    },
  });
}

function requestsSince(ms: number, what?: string) {
  return requests.filter((each) => each.atMs >= ms && (what === undefined || each.what === what));
}

const isTagRequest = ({ what }: { readonly what: string }) => what.startsWith("tags/");

function busiestMinute(): number {
  const times = requests.filter(isTagRequest).map(({ atMs }) => atMs);
  return Math.max(0, ...times.map((from) => times.filter((at) => at >= from && at < from + MINUTE_MS).length));
}

function tagValues(events: readonly AnyEvent[]): readonly Event<"tag-value">[] {
  return events.filter((event): event is Event<"tag-value"> & AnyEvent => event.type === "tag-value");
}

describe("read classes at a reload", () => {
  test("change with the next request, without repeated lists or values", async () => {
    await startSource({ schedules: RARE_SCHEDULES, read: [{ name: "all", every: "5m" }] });
    await virtual.clock.advance(12 * MINUTE_MS);
    const reloadedMs = virtual.clock.monotonic();
    await virtual.reload((file) => {
      file.sources.main.read = [
        { name: "three", select: { sites: [3] }, every: "30s" },
        { name: "rest", every: "10m" },
      ];
      file.sources.main.spread = "7s";
    });
    await virtual.clock.advance(10 * MINUTE_MS);
    expect(requestsSince(reloadedMs).every(isTagRequest)).toBe(true);
    const allValues = tagValues(await virtual.events());
    const now = virtual.clock.now();
    const laterValues = allValues.filter(({ time }) => Date.parse(time) > now - 8 * MINUTE_MS);
    const valuesByTag = Map.groupBy(
      laterValues.filter(({ siteid }) => siteid === "3"),
      ({ data }) => data.tag.id,
    );
    expect(valuesByTag.size).toBeGreaterThan(5);
    for (const valuesOfTag of valuesByTag.values()) expect(valuesOfTag.length).toBeGreaterThanOrEqual(15);
    expect(new Set(allValues.map(({ id }) => id)).size).toBe(allValues.length);
    expect(busiestMinute()).toBeLessThanOrEqual(20);
  });

  test("can be removed and added again, and no request is sent in between", async () => {
    await startSource({ schedules: RARE_SCHEDULES, read: [{ name: "all", every: "1m" }] });
    await virtual.clock.advance(5 * MINUTE_MS);
    await virtual.reload((file) => (file.sources.main.read = []));
    await virtual.clock.advance(10 * SECOND_MS);
    const quietSinceMs = virtual.clock.monotonic();
    await virtual.clock.advance(10 * MINUTE_MS);
    expect(requestsSince(quietSinceMs)).toEqual([]);
    await virtual.reload((file) => (file.sources.main.read = [{ name: "new", every: "1m" }]));
    await virtual.clock.advance(MINUTE_MS);
    expect(requestsSince(quietSinceMs, "tags/read").length).toBeGreaterThan(0);
    expect(requestsSince(quietSinceMs).every(isTagRequest)).toBe(true);
  });
});

describe("history classes at a reload", () => {
  test("can be added and renamed while the worker runs, and each interval is emitted once", async () => {
    await startSource({ schedules: RARE_SCHEDULES });
    await virtual.clock.advance(5 * MINUTE_MS);
    await virtual.reload((file) => {
      file.sources.main.history = [{ name: "hours", resolution: "1h", backfill: "3d" }];
    });
    await virtual.clock.advance(90 * MINUTE_MS);
    await virtual.reload((file) => {
      file.sources.main.history = [
        { name: "few", select: { sites: [4] }, resolution: "1h", backfill: "6d", every: "30m" },
        { name: "others", resolution: "1h", backfill: "3d" },
      ];
    });
    await virtual.clock.advance(150 * MINUTE_MS);
    const points = (await virtual.events()).flatMap((event) =>
      event.type === "tag-history" && event.data.origin !== ("revised" as string)
        ? event.data.points.map(({ time }) => ({ key: `${event.data.tag.id} ${time}`, site: event.siteid, time }))
        : [],
    );
    expect(points.length).toBeGreaterThan(500);
    expect(new Set(points.map(({ key }) => key)).size).toBe(points.length);
    const oldestPoint = (site: string) =>
      points
        .filter((point) => point.site === site)
        .map(({ time }) => time)
        .toSorted()[0] ?? "";
    expect(oldestPoint("4") < oldestPoint("3")).toBe(true);
    expect(busiestMinute()).toBeLessThanOrEqual(20);
  });
});

describe("the settings of a source at a reload", () => {
  test("schedules: the worker requests a list soon after the list is enabled, at a changed time, and not after it is disabled", async () => {
    await startSource({ schedules: { ...RARE_SCHEDULES, hosts: false, systems: "0 * * * * *" } });
    await virtual.clock.advance(5 * MINUTE_MS);
    expect(requestsSince(0, "hosts")).toEqual([]);
    const reloadedMs = virtual.clock.monotonic();
    await virtual.reload((file) => {
      Object.assign(file.sources.main.schedules, { hosts: "0 0 * * * *", gateways: "0 */20 * * * *", systems: false });
    });
    await virtual.clock.advance(5 * MINUTE_MS);
    const lists = requestsSince(reloadedMs).map(({ what }) => what);
    expect(lists.filter((what) => what === "hosts").length).toBeGreaterThan(0);
    expect(lists.every((what) => what === "hosts")).toBe(true);
    await virtual.clock.advance(16 * MINUTE_MS);
    expect(requestsSince(reloadedMs, "gateways").length).toBeGreaterThan(0);
  });

  test("inventory: the worker lists the sites of a changed selection at once", async () => {
    await startSource({ schedules: RARE_SCHEDULES, inventory: { sites: [3] }, read: [{ name: "all", every: "1m" }] });
    await virtual.clock.advance(5 * MINUTE_MS);
    const sites = async () => new Set(tagValues(await virtual.events()).map(({ siteid }) => siteid));
    expect(await sites()).toEqual(new Set(["3"]));
    await virtual.reload((file) => delete file.sources.main.inventory);
    await virtual.clock.advance(5 * MINUTE_MS);
    expect(await sites()).toEqual(new Set(["3", "4"]));
  });

  test("alarms: changed settings apply at the next poll, without repeated events", async () => {
    virtual = await startVirtualWorker({
      simulator: { sites: [3, 4] },
      source: { alarms: { startup: "announce" } },
      eventsFolder: null,
    });
    const [tag] = [...virtual.simulator.world.tags.values()];
    if (tag === undefined) throw new Error("There is no tag.");
    const raise = () => virtual.simulator.control.raiseAlarm({ siteId: tag.site.id, tagId: tag.id });
    raise();
    await virtual.clock.advance(10 * MINUTE_MS);
    const alarmsBefore = (await virtual.events()).filter(({ type }) => type.startsWith("alarm-"));
    expect(alarmsBefore.length).toBeGreaterThan(0);
    await virtual.reload((file) => {
      file.sources.main.alarms = { startup: "announce", vanish_after_misses: 3, resolved_overlap: "2h" };
    });
    await virtual.clock.advance(2 * MINUTE_MS);
    raise();
    await virtual.clock.advance(20 * MINUTE_MS);
    const all = (await virtual.events()).filter(({ type }) => type.startsWith("alarm-"));
    const newAlarms = all.slice(alarmsBefore.length);
    expect(newAlarms.map(({ type, data }) => [type, "initial" in data && data.initial])).toEqual([
      ["alarm-raised", false],
    ]);
    expect(new Set(all.map(({ id }) => id)).size).toBe(all.length);
  });
});

describe("the request quota at a reload", () => {
  test("shrinks at once, and grows only as far as the current minute allows", async () => {
    await startSource({ schedules: RARE_SCHEDULES, read: [{ name: "all", every: "10s", fresher: true }] });
    await virtual.clock.advance(10 * MINUTE_MS);
    const countRequests = (fromMs: number) => requestsSince(fromMs).filter(isTagRequest).length;
    await virtual.reload((file) => (file.sources.main.quota = { requests_per_minute: 5 }));
    await virtual.clock.advance(MINUTE_MS);
    const slowSinceMs = virtual.clock.monotonic();
    await virtual.clock.advance(10 * MINUTE_MS);
    expect(countRequests(slowSinceMs)).toBeLessThanOrEqual(51);
    expect(countRequests(slowSinceMs)).toBeGreaterThan(40);
    await virtual.reload((file) => (file.sources.main.quota = { requests_per_minute: 20 }));
    const fastSinceMs = virtual.clock.monotonic();
    await virtual.clock.advance(10 * MINUTE_MS);
    expect(countRequests(fastSinceMs)).toBeGreaterThan(180);
    expect(busiestMinute()).toBeLessThanOrEqual(20);
  });
});
