import { afterEach, describe, expect, test } from "vitest";
import type { Receipt, Sink } from "#src/connector.ts";
import type { AnyEvent } from "#src/event.ts";
import { startVirtualWorker, type VirtualWorker } from "../virtual-worker.ts";

const MINUTE = 60_000;
let virtual: VirtualWorker;
/** Whether the worker of this test has begun: before, its clock is not to be had. */
let isOn = false;
afterEach(async () => {
  isOn = false;
  await virtual.clear();
});

/** A far end that keeps what it was sent, and how often it was opened and closed. */
function farEnd(delayMs = 0) {
  const got: AnyEvent[] = [];
  const seen = { got, opened: 0, closed: 0, under: 0, most: 0 };
  const sink = (): Sink => {
    let isOpen = false;
    return {
      async open() {
        if (!isOpen) seen.opened += 1;
        isOpen = true;
      },
      async write(batch): Promise<Receipt> {
        seen.under += 1;
        seen.most = Math.max(seen.most, seen.under);
        if (isOn && delayMs > 0) await virtual.clock.sleep(delayMs);
        got.push(...(batch as AnyEvent[]));
        seen.under -= 1;
        return { rejected: [] };
      },
      async close() {
        if (isOpen) seen.closed += 1;
        isOpen = false;
      },
    };
  };
  return { ...seen, seen, sink };
}

const SIMULATOR = { sites: [3, 4], alarms: { recorded: false } };
const SOURCE = { read: [{ name: "all", every: "1m" }] };

function ids(events: readonly AnyEvent[]): readonly string[] {
  return events.map(({ id }) => id);
}

describe("a change while the worker runs", () => {
  test("is told once, and what waits for a restart is said", async () => {
    const one = farEnd();
    virtual = await startVirtualWorker({
      simulator: SIMULATOR,
      source: SOURCE,
      eventsFolder: null,
      sinks: { one: { delivery: {}, sink: one.sink } },
    });
    await virtual.clock.advance(2 * MINUTE);
    const report = await virtual.reload((file) => {
      file.sources.main.read[0].every = "2m";
      file.sources.main.time_zone = "Europe/Stockholm";
    });
    expect(report.changes.map(({ path }) => path)).toEqual(["sources.main.read.all.every"]);
    expect(report.pending.map(({ path }) => path)).toEqual(["sources.main.time_zone"]);
    await virtual.clock.advance(MINUTE);
    const told = one.got.filter(({ type }) => type === "configuration-changed");
    expect(told.map(({ data }) => data)).toEqual([
      { by: "signal", changes: report.changes, pending: report.pending },
    ]);
    const again = await virtual.reload(() => undefined);
    expect(again.changes).toEqual([]);
    await virtual.clock.advance(MINUTE);
    expect(one.got.filter(({ type }) => type === "configuration-changed")).toHaveLength(1);
  });

  test("that is wrong changes nothing", async () => {
    virtual = await startVirtualWorker({ simulator: SIMULATOR, source: SOURCE, eventsFolder: null });
    await virtual.clock.advance(2 * MINUTE);
    const report = await virtual.reload((file) => (file.sources.main.read[0].every = "1s"));
    expect(report.refused).toEqual([
      "20 requests a minute are one every 3 s; a shorter interval cannot be kept.",
    ]);
    const right = await virtual.reload((file) => (file.sources.main.read[0].every = "5m"));
    expect(right.refused).toBeNull();
    expect(right.changes).toMatchObject([{ path: "sources.main.read.all.every", before: "1m", after: "5m" }]);
  });
});

describe("sinks", () => {
  test("come, change, rest and go under load; each event reaches each sink that is to have it, once", async () => {
    const [stays, changes, comes] = [farEnd(), farEnd(700), farEnd()];
    const ends = { stays, changes, comes };
    virtual = await startVirtualWorker({
      simulator: SIMULATOR,
      source: SOURCE,
      eventsFolder: null,
      sinks: Object.fromEntries(
        Object.entries(ends).map(([name, { sink }]) => [
          name,
          { delivery: { enabled: name !== "comes" }, sink },
        ]),
      ),
    });
    isOn = true;
    await virtual.clock.advance(5 * MINUTE + 2_345);
    for (let round = 0; round < 6; round += 1) {
      await virtual.reload((file) => {
        file.sinks.changes.batch = 10 + round;
        file.sinks.changes.filter = round % 2 === 0 ? { kinds: ["tag-*"] } : {};
        file.sinks.comes.enabled = round !== 3;
      });
      await virtual.clock.advance(MINUTE + 777);
    }
    await virtual.reload((file) => {
      file.sinks.changes.filter = {};
    });
    await virtual.clock.advance(10 * MINUTE);
    const all = await virtual.events();
    expect(ids(stays.got)).toEqual(ids(all).slice(0, stays.got.length));
    expect(all.length - stays.got.length).toBeLessThan(60);
    expect(stays.seen).toMatchObject({ opened: 1, closed: 0 });
    // One connection at a time, each batch finished before the next begins.
    expect(changes.seen.opened).toBe(7);
    expect(changes.seen.opened - changes.seen.closed).toBe(1);
    expect(changes.seen.most).toBe(1);
    expect(new Set(ids(changes.got)).size).toBe(changes.got.length);
    const values = (events: readonly AnyEvent[]) => ids(events.filter(({ type }) => type === "tag-value"));
    expect(values(changes.got)).toEqual(values(all).slice(0, values(changes.got).length));
    expect(values(all).length - values(changes.got).length).toBeLessThan(60);
    // From the moment on at which it came, without a hole but for nothing: it kept its place while it rested.
    const since = ids(all).indexOf(comes.got[0]?.id ?? "");
    expect(since).toBeGreaterThan(0);
    expect(ids(comes.got)).toEqual(ids(all).slice(since, since + comes.got.length));
  });
});
