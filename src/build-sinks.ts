import { CATALOG } from "../connectors/catalog.ts";
import type { Clock } from "./clock.ts";
import { type Config, connectorOf } from "./config/config.ts";
import type {
  Accept,
  CommandSource,
  ConnectorContext,
  ConnectorDefinition,
  Picture,
  Sink,
} from "./connector.ts";
import type { ConfiguredSink } from "./delivery/dispatcher.ts";
import { createSinkMemory } from "./delivery/memory.ts";
import { type Service, startedOnce } from "./lifecycle.ts";
import type { Log } from "./log.ts";
import type { Metrics } from "./metrics.ts";
import type { Store } from "./store/store.ts";

export interface BuiltSinks {
  readonly sinks: readonly ConfiguredSink[];
  /** Where commands come from: the connectors that can listen and are told to. */
  readonly listeners: readonly CommandSource[];
}

/** Stands in for a connector, by the name of the sink; null where the connector itself is meant. */
export type StandIn = (name: string) => Sink | null;

/** Every enabled sink of the configuration, by the connector that its entry names. */
export async function buildSinks(options: {
  /** For simulations. */
  readonly standIn?: StandIn;
  readonly config: Config["sinks"];
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly store: Store;
  readonly picture: Picture;
}): Promise<BuiltSinks> {
  const { clock, metrics, picture } = options;
  const sinks: ConfiguredSink[] = [];
  const listeners: CommandSource[] = [];
  for (const [name, entry] of Object.entries(options.config)) {
    if (!entry.enabled) continue;
    const connector = connectorOf(entry);
    const definition = CATALOG[connector] as ConnectorDefinition;
    const context: ConnectorContext = {
      name,
      log: options.log.child({ sink: name }),
      clock,
      metrics,
      memory: createSinkMemory(name, options.store),
      picture,
    };
    const sink = options.standIn?.(name) ?? (await definition.sink?.(entry[connector], context));
    if (sink !== undefined) sinks.push({ name, connector, sink, delivery: entry });
    const listener = definition.commands?.(entry[connector], context);
    if (listener !== undefined) listeners.push(listener);
  }
  return { sinks, listeners };
}

/** Hands what the listeners hear to the gate. */
export function listening(listeners: readonly CommandSource[], accept: Accept): Service {
  return startedOnce({
    name: "listening",
    async start(signal) {
      for (const listener of listeners) await listener.open(accept, signal);
    },
    async stop() {
      // One that cannot be closed must not keep the others open.
      const closed = await Promise.allSettled(listeners.map((listener) => listener.close()));
      for (const each of closed) if (each.status === "rejected") throw each.reason;
    },
  });
}
