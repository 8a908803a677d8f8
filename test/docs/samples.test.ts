import { expect, onTestFinished, test } from "vitest";
import type { AnyEvent, Event, EventKind } from "#src/core/model/event.ts";
import { sampleOfEveryForm } from "../sample-events.ts";
import { startVirtualWorker } from "../virtual-worker.ts";

/** Events that a worker emits must have the fields of the examples in the reference, in envelope and data. */

const MINUTE_MS = 60_000;

/** Source, subject pattern and attribute names of an event. */
function eventShape(event: Event): string {
  const subject = event.subject.replaceAll(/\d{2,}|(?<=\/)\d+(?=\/|$)/g, "#");
  return [event.source, subject.replace(/(history|total)\/\w+$/, "series"), ...Object.keys(event).toSorted()].join(" ");
}

function dataFields({ data }: Event): readonly string[] {
  return Object.keys(data).toSorted();
}

test("a worker emits events with the same fields as the documented examples", async () => {
  const worker = await startVirtualWorker({
    eventsFolder: null,
    simulator: { sites: [1, 6] },
    source: {
      schedules: { alarms: "*/2 * * * *", gateways: "*/5 * * * *", tags: "*/5 * * * *" },
      inventory: { tags_of_systems: true, remove_after: "1h" },
      read: [{ name: "all", every: "30m" }],
      history: [
        { name: "log", resolution: "1h", backfill: "2d" },
        { name: "days", select: { units: ["kWh"] }, resolution: "1d", total: true, backfill: "3d" },
      ],
    },
  });
  onTestFinished(() => worker.clear());
  const { control, world } = worker.simulator;
  await worker.clock.advance(5 * MINUTE_MS);
  const id = control.raiseAlarm({ siteId: 6 });
  const [gateway = 0] = world.gateways.keys();
  control.setGateway(gateway, false);
  await worker.clock.advance(6 * MINUTE_MS);
  control.acknowledgeAlarm(id, "Ann Nilsson");
  control.setGateway(gateway, true);
  await worker.clock.advance(6 * MINUTE_MS);
  control.resolveAlarm(id);
  control.changeToken("simulator-token", { sites: [6] });
  await worker.clock.advance(4 * MINUTE_MS);
  const emittedEvents = await worker.events();
  const samples = sampleOfEveryForm();
  const kinds = new Set<EventKind>();
  const differences = new Set<string>();
  for (const event of emittedEvents as readonly AnyEvent[]) {
    kinds.add(event.type);
    const kindSamples = samples.filter(({ type }) => type === event.type);
    if (!kindSamples.some((sample) => eventShape(sample) === eventShape(event)))
      differences.add(`${event.type}: ${eventShape(event)}, not ${kindSamples.map(eventShape).join(" or ")}`);
    if (!kindSamples.some((sample) => dataFields(sample).join() === dataFields(event).join()))
      differences.add(`${event.type}: ${dataFields(event)}, not ${kindSamples.map(dataFields).join(" or ")}`);
  }
  expect([...differences]).toEqual([]);
  expect([...kinds].length, [...kinds].join()).toBeGreaterThan(14);
});
