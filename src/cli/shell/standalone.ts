import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CATALOG } from "../../../connectors/catalog.ts";
import { buildSource } from "../../app/build-source.ts";
import { connectorOf, type SinkEntry, type SourceEntry } from "../../app/config/config.ts";
import type { ConnectorDefinition, Sink } from "../../core/connector.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { createLog } from "../../core/runtime/log.ts";
import { createMetrics } from "../../core/runtime/metrics.ts";
import { createSinkState } from "../../engine/delivery/sink-state-access.ts";
import type { Source } from "../../engine/source/source.ts";
import { openStore } from "../../engine/store/open.ts";
import { createBuildingView } from "../../engine/views/building-view.ts";

/**
 * Records in a page of a list, five times what the interface gives unasked: of 30,000 tags 60 requests and not 300. A
 * service that refuses or shortens such pages is asked for what it gives.
 */
const PAGE_SIZE = 500;

/**
 * Lends a source with a state of its own that is thrown away: where there is no worker and no state yet, or the real one
 * may belong to a running worker.
 */
export async function withLoneSource<T>(
  name: string,
  entry: SourceEntry,
  environment: Readonly<Record<string, string | undefined>>,
  use: (source: Source) => Promise<T>,
): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), "plenum-look-"));
  const store = await openStore({ folder, clock: systemClock });
  const log = createLog({ level: "silent" });
  const metrics = createMetrics();
  const { source } = buildSource({
    ...{ name, store, clock: systemClock, log, metrics, environment },
    entry: { ...entry, page_size: { ...entry.page_size, others: PAGE_SIZE } },
  });
  try {
    return await use(source);
  } finally {
    await source.close();
    await store.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

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
