import { expect, test } from "vitest";
import { INCIDENT_EVENT_KINDS } from "#connectors/shared/receiver/config.ts";
import { createReceiverSink } from "#connectors/shared/receiver/sink.ts";
import type { ConnectorContext, Sink } from "#src/core/connector.ts";
import { createBuildingView } from "#src/engine/views/building-view.ts";
import { seededRandom } from "../commands/seeded-random.ts";
import { contextFor } from "../connectors/context.ts";
import { replay, seed } from "../seed.ts";
import { startVirtualWorker, type VirtualWorker } from "../virtual-worker.ts";
import { createNoticeBoard } from "./notice-board.ts";
import { ReceiverOptions } from "./trial.ts";

const SEEDS = 6;
const SECOND_MS = 1_000;
const MINUTE_MS = 60_000;

async function playOutages(n: number) {
  const random = seededRandom(seed + n);
  const board = createNoticeBoard("findable");
  let virtual: VirtualWorker | undefined;
  let sink: Sink | null = null;
  const useSink = async <T>(use: (sink: Sink) => Promise<T>, otherwise: T): Promise<T> => {
    if (virtual === undefined) return otherwise;
    sink ??= createReceiverSink(board, ReceiverOptions.parse({}), context(virtual));
    return use(sink);
  };
  virtual = await startVirtualWorker({
    simulator: { sites: [12, 1], alarms: { recorded: false } },
    source: { read: n % 2 === 0 ? [] : [{ name: "all", every: "5m" }] },
    eventsFolder: null,
    sinks: {
      chat: {
        delivery: { filter: { kinds: [...INCIDENT_EVENT_KINDS] } },
        sink: () => ({
          open: async () => undefined,
          write: async (batch, signal, accepted, offer) =>
            useSink((made) => made.write(batch, signal, accepted, offer) as Promise<object>, {}) as Promise<never>,
          tick: async (signal) =>
            (await useSink(async (made) => made.tick?.(signal), undefined)) ?? { tickInMs: 5_000 },
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
    await clock.advance(2 * MINUTE_MS + random.below(5 * MINUTE_MS));
    const sites = [12, 1].map((siteId) => ({
      siteId,
      gateways: [...simulator.world.gateways.values()].filter((each) => each.site_id === siteId),
    }));
    const singleGatewaySites = sites.filter(({ gateways }) => gateways.length === 1);
    let causes = 0;
    for (let outage = 0; outage < 3; outage += 1) {
      const site = singleGatewaySites[random.below(singleGatewaySites.length)];
      const gateway = site?.gateways[0];
      if (site === undefined || gateway === undefined) throw new Error("No site has one gateway.");
      causes += 1;
      simulator.control.setGateway(gateway.id, false);
      const alarms: string[] = [];
      for (let count = 2 + random.below(8); count > 0; count -= 1) {
        await clock.advance(random.below(20 * SECOND_MS));
        alarms.push(simulator.control.raiseAlarm({ siteId: site.siteId }));
      }
      await clock.advance(5 * MINUTE_MS + random.below(20 * MINUTE_MS));
      simulator.control.setGateway(gateway.id, true);
      for (const id of alarms) {
        await clock.advance(random.below((2 * MINUTE_MS) / alarms.length));
        simulator.control.resolveAlarm(id);
      }
      await clock.advance(10 * MINUTE_MS);
      causes += 1;
      const ownAlarm = simulator.control.raiseAlarm({ siteId: site.siteId });
      await clock.advance(2 * MINUTE_MS);
      simulator.control.resolveAlarm(ownAlarm);
      await clock.advance(5 * MINUTE_MS);
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
    const baseContext = contextFor("chat", time);
    return { ...baseContext, building: createBuildingView(worker.store, new Map([["main", "Europe/Oslo"]])) };
  }
}

test(`sends one incident for an outage of a site's only gateway (seed ${seed})`, { timeout: 300_000 }, async () => {
  let causes = 0;
  let openedCount = 0;
  for (let n = 0; n < SEEDS; n += 1) {
    const run = await playOutages(n);
    expect(run.open, `${replay}, run ${n}: ${run.said.join("; ")}`).toBe(0);
    causes += run.causes;
    openedCount += run.opened;
  }
  expect(openedCount, `${causes} causes, ${replay}`).toBeGreaterThanOrEqual(causes);
  expect(openedCount / causes, `${openedCount} things for ${causes} causes, ${replay}`).toBeLessThanOrEqual(1.05);
});
