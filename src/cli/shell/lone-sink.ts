import { CATALOG } from "../../../connectors/catalog.ts";
import { connectorOf, type SinkEntry } from "../../app/config/config.ts";
import type { ConnectorDefinition, Sink } from "../../core/connector.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { createLog } from "../../core/runtime/log.ts";
import { createMetrics } from "../../core/runtime/metrics.ts";
import { createSinkState } from "../../engine/delivery/sink-state-access.ts";
import { createBuildingView } from "../../engine/views/building-view.ts";

/** The worker may be using the state, and what is tried here is none of its past. */
const NO_STATE = {
  document: async () => undefined,
  documents: async () => new Map<string, never>(),
  outbox: { recent: async () => [] },
  commit: async () => {
    throw new Error("What is only tried remembers nothing.");
  },
};

/** A configured sink by itself, to ask its far end something; undefined where the connector has none. */
export async function loneSink(name: string, entry: SinkEntry): Promise<Sink | undefined> {
  const connector = connectorOf(entry);
  const definition = CATALOG[connector] as ConnectorDefinition;
  return definition.sink?.(entry[connector], {
    name,
    log: createLog({ level: "silent" }),
    clock: systemClock,
    metrics: createMetrics(),
    memory: createSinkState(name, NO_STATE),
    picture: createBuildingView(NO_STATE, new Map()),
  });
}
