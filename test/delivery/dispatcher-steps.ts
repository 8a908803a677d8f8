import { afterEach, beforeEach } from "vitest";
import type { Sink } from "#src/core/connector.ts";
import type { Event } from "#src/core/model/event.ts";
import type { EventDispatcher } from "#src/engine/delivery/dispatcher.ts";
import type { SinkLag } from "#src/engine/store/store.ts";
import { ids } from "../store/store-steps.ts";
import { type DispatcherHarness, openDispatcher, type ScriptedSink } from "./dispatcher-harness.ts";

export let harness: DispatcherHarness;

/** Opens a new harness for each test of the file that calls this. */
export function useHarness(): void {
  beforeEach(async () => {
    harness = await openDispatcher();
  });
  afterEach(() => harness.dispose());
}

export { ids, values } from "../store/store-steps.ts";

export const written = (sink: ScriptedSink) => ids(sink.writes.flat());

export async function started(sinks: Record<string, Sink>, delivery: Record<string, unknown> = {}) {
  const dispatcher = harness.dispatcher(sinks, delivery);
  await dispatcher.start(new AbortController().signal);
  await harness.clock.advance(0);
  return dispatcher;
}

export async function stop(dispatcher: EventDispatcher, deadlineMs = 10_000): Promise<void> {
  const stopped = dispatcher.stop(deadlineMs);
  await harness.clock.advance(deadlineMs);
  await stopped;
}

export async function commit(events: readonly Event[], thenMs = 0): Promise<void> {
  await harness.store.commit({ events });
  await harness.clock.advance(thenMs);
}

export async function lag(sink = "a"): Promise<SinkLag> {
  const found = (await harness.store.outbox.lag()).find((each) => each.sink === sink);
  if (found === undefined) throw new Error(`${sink} is unknown`);
  return found;
}

/** Waits between the times of a list: [0, 5, 15] → [5, 10]. */
export const gapsOf = (times: readonly number[]) => times.slice(1).map((time, n) => time - (times[n] ?? 0));
