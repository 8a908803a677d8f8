import { expect, test } from "vitest";
import { createReceiverSink } from "#connectors/shared/receiver/sink.ts";
import type { ConnectorContext, Sink } from "#src/core/connector.ts";
import { createBuildingView } from "#src/engine/views/building-view.ts";
import { seededRandom } from "../commands/seeded-random.ts";
import { contextFor } from "../connectors/context.ts";
import { replay, seed } from "../seed.ts";
import { startVirtualWorker, type VirtualWorker } from "../virtual-worker.ts";
import { noticeBoard } from "./notice-board.ts";
import { OPTIONS } from "./trial.ts";

const SEEDS = 6;
const SECOND = 1_000;
const MINUTE = 60_000;

async function play(n: number) {
  const random = seededRandom(seed + n);
  const board = noticeBoard("findable");
  let virtual: VirtualWorker | undefined;
  let sink: Sink | null = null;
  const later = async <T>(use: (sink: Sink) => Promise<T>, otherwise: T): Promise<T> => {
    if (virtual === undefined) return otherwise;
    sink ??= createReceiverSink(board, OPTIONS.parse({}), context(virtual));
    return use(sink);
  };
  virtual = await startVirtualWorker({
    simulator: { sites: [12, 1], alarms: { recorded: false } },
    source: { read: n % 2 === 0 ? [] : [{ name: "all", every: "5m" }] },
    eventsFolder: null,
    sinks: {
      chat: {
        delivery: {},
        sink: () => ({
          open: async () => undefined,
          write: async (batch, signal, accepted, offer) =>
            later((made) => made.write(batch, signal, accepted, offer) as Promise<object>, {}) as Promise<never>,
          tick: async (signal) => (await later(async (made) => made.tick?.(signal), undefined)) ?? { tickInMs: 5_000 },
          close: async () => undefined,
        }),
      },
    },
  });
  const { clock, simulator } = virtual;
  if (n % 4 < 2) {
    for (const id of simulator.world.hosts.keys())
      simulator.control.changeInventory("hosts", id, { attributes: { display_name: `Controller ${id}` } });
  }
  try {
    await clock.advance(2 * MINUTE + random.below(5 * MINUTE));
    const sites = [12, 1].map((siteId) => ({
      siteId,
      gateways: [...simulator.world.gateways.values()].filter((each) => each.site_id === siteId),
    }));
    const alone = sites.filter(({ gateways }) => gateways.length === 1);
    let causes = 0;
    for (let outage = 0; outage < 3; outage += 1) {
      const site = alone[random.below(alone.length)];
      const gateway = site?.gateways[0];
      if (site === undefined || gateway === undefined) throw new Error("No site has one gateway.");
      causes += 1;
      simulator.control.setGateway(gateway.id, false);
      const alarms: string[] = [];
      for (let count = 2 + random.below(8); count > 0; count -= 1) {
        await clock.advance(random.below(20 * SECOND));
        alarms.push(simulator.control.raiseAlarm({ siteId: site.siteId }));
      }
      await clock.advance(5 * MINUTE + random.below(20 * MINUTE));
      simulator.control.setGateway(gateway.id, true);
      for (const id of alarms) {
        await clock.advance(random.below((2 * MINUTE) / alarms.length));
        simulator.control.resolveAlarm(id);
      }
      await clock.advance(10 * MINUTE);
      causes += 1;
      const own = simulator.control.raiseAlarm({ siteId: site.siteId });
      await clock.advance(2 * MINUTE);
      simulator.control.resolveAlarm(own);
      await clock.advance(5 * MINUTE);
    }
    return {
      causes,
      opened: board.notes.length,
      open: board.notes.filter(({ isOpen }) => isOpen).length,
      said: board.said,
    };
  } finally {
    await virtual.clear();
  }

  function context({ clock: time, worker }: VirtualWorker): ConnectorContext {
    const base = contextFor("chat", time);
    return { ...base, building: createBuildingView(worker.store, new Map([["main", "Europe/Oslo"]])) };
  }
}

test(`sends one incident for an outage of a site's only gateway (seed ${seed})`, { timeout: 300_000 }, async () => {
  let causes = 0;
  let opened = 0;
  for (let n = 0; n < SEEDS; n += 1) {
    const run = await play(n);
    expect(run.open, `${replay}, run ${n}: ${run.said.join("; ")}`).toBe(0);
    causes += run.causes;
    opened += run.opened;
  }
  expect(opened, `${causes} causes, ${replay}`).toBeGreaterThanOrEqual(causes);
  expect(opened / causes, `${opened} things for ${causes} causes, ${replay}`).toBeLessThanOrEqual(1.05);
});
