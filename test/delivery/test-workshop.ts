import { afterEach, beforeEach } from "vitest";
import type { Sink } from "#src/core/connector.ts";
import type { Event } from "#src/core/model/event.ts";
import type { Dispatcher } from "#src/engine/delivery/dispatcher.ts";
import type { SinkLag } from "#src/engine/store/store.ts";
import { ids } from "../store/steps.ts";
import { openWorkshop, type ScriptedSink, type Workshop } from "./workshop.ts";

export let workshop: Workshop;

/** Opens a new workshop for each test of the file that calls this. */
export function useWorkshop(): void {
  beforeEach(async () => {
    workshop = await openWorkshop();
  });
  afterEach(() => workshop.dispose());
}

export { ids, values } from "../store/steps.ts";

export const written = (sink: ScriptedSink) => ids(sink.writes.flat());

export async function started(sinks: Record<string, Sink>, delivery: Record<string, unknown> = {}) {
  const dispatcher = workshop.dispatcher(sinks, delivery);
  await dispatcher.start(new AbortController().signal);
  await workshop.clock.advance(0);
  return dispatcher;
}

export async function stop(dispatcher: Dispatcher, deadlineMs = 10_000): Promise<void> {
  const stopped = dispatcher.stop(deadlineMs);
  await workshop.clock.advance(deadlineMs);
  await stopped;
}

export async function commit(events: readonly Event[], thenMs = 0): Promise<void> {
  await workshop.store.commit({ events });
  await workshop.clock.advance(thenMs);
}

export async function lag(sink = "a"): Promise<SinkLag> {
  const found = (await workshop.store.outbox.lag()).find((each) => each.sink === sink);
  if (found === undefined) throw new Error(`${sink} is unknown`);
  return found;
}

/** Waits between the times of a list: [0, 5, 15] → [5, 10]. */
export const gapsOf = (times: readonly number[]) => times.slice(1).map((time, n) => time - (times[n] ?? 0));
