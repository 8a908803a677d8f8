import { afterEach, beforeEach, expect, test } from "vitest";
import type { Event } from "#src/event.ts";
import { valueEvent } from "../sample-events.ts";
import { configured, openWorkshop, type ScriptedSink, scriptedSink, type Workshop } from "./workshop.ts";

/** Other sinks while the dispatcher runs. */
let workshop: Workshop;
beforeEach(async () => {
  workshop = await openWorkshop();
});
afterEach(() => workshop.dispose());

const values = (from: number, count: number) => Array.from({ length: count }, (_, n) => valueEvent(from + n));
const ids = (events: readonly Event[]) => events.map(({ id }) => id);
const written = (sink: ScriptedSink) => ids(sink.writes.flat());

async function commit(events: readonly Event[]): Promise<void> {
  await workshop.store.commit({ events });
  await workshop.clock.advance(1_000);
}

async function endedOf(name: string) {
  return (await workshop.store.outbox.lag()).find(({ sink }) => sink === name)?.ended;
}

test("one that comes gets everything, one that stays is not disturbed, one that goes is closed and ended", async () => {
  const [stays, goes, comes] = [scriptedSink(), scriptedSink(), scriptedSink()];
  const dispatcher = workshop.dispatcher({});
  await dispatcher.start(new AbortController().signal);
  const staying = configured("stays", stays);
  await dispatcher.change([staying, configured("goes", goes)]);
  await commit(values(0, 2));
  await dispatcher.change([staying, configured("comes", comes)]);
  await commit(values(2, 1));
  expect([stays, goes, comes].map(({ opens, closes }) => [opens, closes])).toEqual([
    [1, 0],
    [1, 1],
    [1, 0],
  ]);
  expect([stays, goes, comes].map(written)).toEqual([
    ids(values(0, 3)),
    ids(values(0, 2)),
    ids(values(0, 3)),
  ]);
  expect(dispatcher.status().map(({ name }) => name)).toEqual(["stays", "comes"]);
  expect([await endedOf("stays"), await endedOf("goes"), await endedOf("comes")]).toEqual([
    null,
    "not in the configuration",
    null,
  ]);
  const { values: gauges } = await workshop.metrics.sinkUp.get();
  expect(gauges.map(({ labels }) => labels.sink).toSorted()).toEqual(["comes", "stays"]);
});

test("who takes another's place begins when that one has finished its batch, and behind it", async () => {
  let finish: () => void = () => {};
  const before = scriptedSink(
    () =>
      new Promise((resolve) => {
        finish = () => resolve({ rejected: [] });
      }),
  );
  const after = scriptedSink();
  const dispatcher = workshop.dispatcher({ a: before });
  await dispatcher.start(new AbortController().signal);
  await commit(values(0, 2));
  await dispatcher.change([configured("a", after)]);
  await commit(values(2, 2));
  expect([before.closes, after.opens]).toEqual([0, 0]);
  finish();
  await workshop.clock.advance(1_000);
  expect([before.closes, after.opens]).toEqual([1, 1]);
  expect([written(before), written(after)]).toEqual([ids(values(0, 2)), ids(values(2, 2))]);
});

test("before the start and after the stop nobody is taken on", async () => {
  const [early, late] = [scriptedSink(), scriptedSink()];
  const dispatcher = workshop.dispatcher({});
  await dispatcher.change([configured("a", early)]);
  await dispatcher.start(new AbortController().signal);
  await commit(values(0, 1));
  await dispatcher.stop(1_000);
  await dispatcher.change([configured("a", late)]);
  await commit(values(1, 1));
  expect([early.opens, late.opens]).toEqual([0, 0]);
});
