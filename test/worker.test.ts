import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, expect, onTestFinished, test } from "vitest";
import type { AnyEvent, Event } from "#src/core/model/event.ts";
import { temporaryFolder } from "./real-servers.ts";
import { values } from "./store/store-steps.ts";
import { startVirtualWorker, type VirtualWorker } from "./virtual-worker.ts";

const MINUTE = 60_000;
const MEBIBYTE = 1024 ** 2;
let virtual: VirtualWorker;
afterEach(() => virtual.clear());

test("values behind a gateway name the gateway while it is offline, and no gateway afterwards", async () => {
  virtual = await startVirtualWorker({
    simulator: { sites: [3, 4], alarms: { recorded: false } },
    source: { schedules: { gateways: "0 * * * * *" }, read: [{ name: "all", every: "1m" }] },
  });
  const { simulator, clock } = virtual;
  await clock.advance(10 * MINUTE);
  const [gateway] = [...simulator.world.gateways.values()].filter(({ site_id }) => site_id === 4);
  if (gateway === undefined) throw new Error("Site 4 has no gateway.");
  const eventsBefore = await virtual.events();
  simulator.control.setGateway(gateway.id, false);
  await clock.advance(20 * MINUTE);
  const meanwhile = (await virtual.events()).slice(eventsBefore.length);
  expect(kinds(meanwhile, "gateway-offline")).toBe(1);
  const nullValues = valuesOf(meanwhile, 4).filter(({ data }) => data.value === null);
  // The first nulls may be read before the list of gateways says why.
  expect(nullValues.filter(({ data }) => data.behindGateway === String(gateway.id)).length).toBeGreaterThan(0);
  expect(nullValues.every(({ data }) => data.quality === "bad")).toBe(true);
  expect(valuesOf(meanwhile, 3).every(({ data }) => data.behindGateway === null)).toBe(true);
  simulator.control.setGateway(gateway.id, true);
  await clock.advance(15 * MINUTE);
  const eventsAfter = (await virtual.events()).slice(eventsBefore.length + meanwhile.length);
  expect(kinds(eventsAfter, "gateway-online")).toBe(1);
  const lastByTag = new Map(valuesOf(eventsAfter, 4).map((event) => [event.data.tag.id, event]));
  expect(lastByTag.size).toBeGreaterThan(0);
  for (const { data } of lastByTag.values()) expect(data.behindGateway).toBeNull();
});
test("a sink that fails during a backfill pauses the backfill while new history follows, and loses nothing", async () => {
  const folder = temporaryFolder("dead-sink");
  const eventsFolder = join(folder, "events");
  writeFileSync(eventsFolder, "");
  virtual = await startVirtualWorker({
    simulator: { sites: [2, 3, 4], alarms: { recorded: false }, loops_before: 20 },
    source: { history: [{ name: "all", resolution: "5m", backfill: "150d" }] },
    state: { max_bytes: 10 * MEBIBYTE },
    eventsFolder,
  });
  const { worker, clock } = virtual;
  const { outbox } = worker.store;
  await clock.advance(60 * MINUTE);
  const held = (await outbox.pressure()).pendingBytes;
  expect(held).toBeGreaterThan(MEBIBYTE);
  expect(held).toBeLessThan(2 * MEBIBYTE);
  const [backfilled, followed] = [await toldPoints(virtual, "backfill"), await toldPoints(virtual, "live")];
  await clock.advance(180 * MINUTE);
  expect(await toldPoints(virtual, "backfill")).toBe(backfilled);
  expect(await toldPoints(virtual, "live")).toBeGreaterThan(followed);
  expect((await outbox.lag()).map(({ dropped }) => dropped)).toEqual([0]);
  rmSync(eventsFolder);
  await clock.advance(6 * 60 * MINUTE);
  await expect
    .poll(async () => {
      await clock.advance(1_000);
      return (await outbox.lag()).map(({ depth, dropped }) => ({ depth, dropped }));
    })
    .toEqual([{ depth: 0, dropped: 0 }]);
  const facts = delivered(eventsFolder).map(({ data }) => data);
  const past = facts.filter(({ origin }) => origin === "backfill");
  expect(past.reduce((sum, { points }) => sum + points.length, 0)).toBeGreaterThan(2 * backfilled);
  const times = new Map<string, string[]>();
  for (const data of facts)
    times.set(data.tag.id, [...(times.get(data.tag.id) ?? []), ...data.points.map(({ time }) => time)]);
  expect(times.size).toBeGreaterThan(20);
  for (const each of times.values()) {
    const [first = 0, ...others] = each.map((time) => Date.parse(time)).toSorted((a, b) => a - b);
    expect(others.length).toBeGreaterThan(150 * 24);
    // The recording has one reading per hour.
    expect(others.at(-1)).toBe(first + others.length * 60 * MINUTE);
  }
  rmSync(folder, { recursive: true });
});

test("a start with 100,000 logged events takes at most 1.3 times the processor time of one with 10,000", async () => {
  virtual = await startWithEvents(100_000);
  const smaller = await startWithEvents(10_000);
  onTestFinished(smaller.clear);
  const startMicros: number[][] = [[], []];
  for (let round = 0; round < 9; round++)
    for (const [n, { restart, clock }] of [smaller, virtual].entries()) {
      const before = process.threadCpuUsage();
      await restart("stop");
      await clock.advance(5_000);
      const { user, system } = process.threadCpuUsage(before);
      startMicros[n]?.push(user + system);
    }
  const [small = 0, large = 0] = startMicros.map((micros) => Math.min(...micros));
  expect(large / small).toBeLessThan(1.3);
});

async function startWithEvents(count: number) {
  const filledWorker = await startVirtualWorker({
    simulator: { sites: [6], alarms: { recorded: false } },
    source: { read: [] },
    eventsFolder: null,
  });
  for (let n = 0; n < count; n += 1_000) await filledWorker.worker.store.commit({ events: values(n, 1_000) });
  return filledWorker;
}

/** Counts the points of history in the log, which keeps all of them until the sink settles some. */
async function toldPoints({ events }: VirtualWorker, origin: "live" | "backfill"): Promise<number> {
  return (await events())
    .filter((event) => event.type === "tag-history")
    .filter(({ data }) => data.origin === origin)
    .reduce((sum, { data }) => sum + data.points.length, 0);
}

function delivered(folder: string): readonly Event<"tag-history">[] {
  return readdirSync(folder)
    .filter((name) => name.endsWith(".jsonl"))
    .flatMap((name) => readFileSync(join(folder, name), "utf8").trim().split("\n"))
    .map((line) => JSON.parse(line) as AnyEvent)
    .filter((event) => event.type === "tag-history");
}

function kinds(events: readonly AnyEvent[], type: AnyEvent["type"]): number {
  return events.filter((event) => event.type === type).length;
}

function valuesOf(events: readonly AnyEvent[], siteId: number): readonly Event<"tag-value">[] {
  return events
    .filter((event): event is Event<"tag-value"> & AnyEvent => event.type === "tag-value")
    .filter((event) => event.subject.startsWith(`site/${siteId}/`));
}
