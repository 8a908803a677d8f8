import { expect, onTestFinished, test } from "vitest";
import type { StoredSensors } from "#src/engine/sync/stored-documents.ts";
import { startVirtualWorker } from "../../virtual-worker.ts";

const MINUTE = 60_000;

async function runWorker(silentSensors: object | false) {
  const started = await startVirtualWorker({
    simulator: { sites: [4], alarms: { recorded: false } },
    source: {
      quota: { requests_per_minute: 2 },
      read: [{ name: "all", every: "10m" }],
      history: [{ name: "all", resolution: "5m", every: "10m" }],
      silent_sensors: silentSensors,
    },
    eventsFolder: null,
  });
  onTestFinished(() => started.clear());
  await started.clock.advance(125 * MINUTE);
  const sensorDocuments = await started.worker.store.documents<Partial<StoredSensors>>("sensors/main");
  return {
    requests: started.simulator.truth.requests().length,
    tags: [...started.simulator.world.tags.keys()],
    ids: [...sensorDocuments.values()].flatMap(({ ids }) => ids ?? []),
    numbers: [...sensorDocuments.values()].flatMap(({ numbers }) => numbers ?? []),
  };
}

test("the complete worker watches every read and followed tag for silent sensors without additional requests", async () => {
  const on = await runWorker({});
  expect(on.ids.toSorted()).toEqual(on.tags.toSorted());
  const columnCount = on.numbers.length / on.ids.length;
  const column = (at: number) => on.ids.map((_, row) => on.numbers[row * columnCount + at] ?? 0);
  expect(Math.min(...column(0)), "readings").toBeGreaterThan(5);
  expect(Math.max(...column(11)), "replies of history").toBeGreaterThan(2);
  expect(Math.max(...column(17)), "pairs of live value and log").toBeGreaterThan(0);
  const off = await runWorker(false);
  expect(off.ids).toEqual([]);
  expect(on.requests).toBe(off.requests);
});
