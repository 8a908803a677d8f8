import { rmSync } from "node:fs";
import pino from "pino";
import type { AcceptEvents, BatchInfo, Receipt, Sink } from "#src/core/connector.ts";
import type { Event } from "#src/core/model/event.ts";
import type { Clock } from "#src/core/runtime/clock.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { DeliveryConfig } from "#src/engine/delivery/config.ts";
import { createEventDispatcher, type EventDispatcher } from "#src/engine/delivery/dispatcher.ts";
import type { ConfiguredSink } from "#src/engine/delivery/sink-runner.ts";
import { openStore } from "#src/engine/store/open.ts";
import type { Outbox, Store } from "#src/engine/store/store.ts";
import { createBuildingView } from "#src/engine/views/building-view.ts";
import { temporaryFolder } from "../real-servers.ts";
import { createVirtualClock } from "../virtual-clock.ts";

type Respond = (
  batch: readonly Event[],
  signal: AbortSignal,
  accepted?: AcceptEvents,
  offer?: BatchInfo,
) => Receipt | Promise<Receipt>;

/** A sink that answers as the test says, records its writes, and reports overlapping or late calls in `faults`. */
export interface ScriptedSink extends Sink {
  readonly writes: Event[][];
  readonly opens: number;
  readonly closes: number;
  readonly faults: readonly string[];
  respond: Respond;
  onOpen: (signal: AbortSignal) => Promise<void>;
}

export function scriptedSink(respond: Respond = () => ({ rejected: [] })): ScriptedSink {
  let busy = false;
  let opens = 0;
  let closes = 0;
  const faults: string[] = [];
  const sink: ScriptedSink = {
    writes: [],
    respond,
    onOpen: async () => {},
    faults,
    get opens() {
      return opens;
    },
    get closes() {
      return closes;
    },
    async open(signal: AbortSignal) {
      opens += 1;
      await sink.onOpen(signal);
    },
    async write(batch, signal, accepted, offer) {
      if (busy) faults.push("written to twice at a time");
      if (closes > 0) faults.push("written to after close");
      busy = true;
      try {
        sink.writes.push([...batch]);
        return await sink.respond(batch, signal, accepted, offer);
      } finally {
        busy = false;
      }
    },
    async close() {
      closes += 1;
    },
  };
  return sink;
}

/** A sink whose writes wait until `finish` is called. */
export function waitingSink() {
  let finish: () => void = () => {};
  const sink = scriptedSink(
    () =>
      new Promise((resolve) => {
        finish = () => resolve({ rejected: [] });
      }),
  );
  return Object.assign(sink, { finish: () => finish() });
}

export type DispatcherHarness = Awaited<ReturnType<typeof openDispatcher>>;

/** Delivery from the beginning of the log, unless `delivery` says otherwise. */
export function configured(name: string, sink: Sink, delivery: Record<string, unknown> = {}): ConfiguredSink {
  return { name, connector: "scripted", sink, delivery: DeliveryConfig.parse({ from: "beginning", ...delivery }) };
}

export interface Location {
  readonly folder: string;
  /** A second call, after the first store is closed, opens the same state again. */
  open(clock: Clock): Promise<Store>;
  /** True while a server in real time has not answered; virtual time waits. */
  isWaiting(): boolean;
  dispose(): Promise<void> | void;
}

export function inFolder(): Location {
  const folder = temporaryFolder();
  return {
    folder,
    open: (clock) => openStore({ folder, clock }),
    isWaiting: () => false,
    dispose: () => rmSync(folder, { recursive: true }),
  };
}

export async function openDispatcher(location: Location = inFolder()) {
  const { folder, isWaiting } = location;
  const clock = createVirtualClock(Date.parse("2026-11-02T06:00:00Z"), { ticks: 3, isWaiting });
  let store = await location.open(clock);
  const lines: { readonly level: number; readonly msg: string; readonly [field: string]: unknown }[] = [];
  const log = pino({ base: null }, { write: (line: string) => lines.push(JSON.parse(line)) });
  const dispatchers: EventDispatcher[] = [];
  const metrics = createMetrics();
  return {
    folder,
    clock,
    get store() {
      return store;
    },
    lines,
    metrics,
    dispatcher(
      sinks: Record<string, Sink>,
      delivery: Record<string, unknown> = {},
      outbox: Outbox = store.outbox,
    ): EventDispatcher {
      const dispatcher = createEventDispatcher({
        sinks: Object.entries(sinks).map(([name, sink]) => configured(name, sink, delivery)),
        outbox,
        store,
        building: createBuildingView(store, new Map([["main", "Europe/Oslo"]])),
        clock,
        log,
        metrics,
        random: () => 0.5,
      });
      dispatchers.push(dispatcher);
      return dispatcher;
    },
    async reopen(): Promise<void> {
      await store.close();
      store = await location.open(clock);
    },
    async dispose(): Promise<void> {
      for (const dispatcher of dispatchers) {
        const stopped = dispatcher.stop(100);
        await clock.advance(100);
        await stopped;
      }
      await store.close();
      await location.dispose();
    },
  };
}
