import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { getConnector } from "../../../connectors/catalog.ts";
import { buildSource } from "../../app/build-source.ts";
import type { SourceConfigEntry } from "../../app/config/config.ts";
import { findSinkConnector, type SinkConfigEntry } from "../../app/config/config-sections.ts";
import type { Sink } from "../../core/connector.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { createLog } from "../../core/runtime/log.ts";
import { createMetrics } from "../../core/runtime/metrics.ts";
import type { ProcessEnv } from "../../core/runtime/secret.ts";
import { createSinkState } from "../../engine/delivery/batches.ts";
import type { Source } from "../../engine/source/source.ts";
import { openStore } from "../../engine/store/open.ts";
import { createBuildingView } from "../../engine/views/building-view.ts";

/** Number of objects per page of a list, so that 30,000 tags need 60 requests instead of 300. */
const LISTING_PAGE_SIZE = 500;

/** Uses a source with a temporary state, because the real state may belong to a running worker. */
export async function useStandaloneSource<T>(
  sourceName: string,
  sourceConfig: SourceConfigEntry,
  environment: ProcessEnv,
  useSource: (source: Source) => Promise<T>,
): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), "plenum-look-"));
  const store = await openStore({ folder, clock: systemClock });
  const log = createLog({ level: "silent" });
  const metrics = createMetrics();
  const { source } = buildSource({
    ...{ name: sourceName, store, clock: systemClock, log, metrics, environment },
    sourceConfig: { ...sourceConfig, page_size: { ...sourceConfig.page_size, others: LISTING_PAGE_SIZE } },
  });
  try {
    return await useSource(source);
  } finally {
    await source.close();
    await store.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Empty state for the test of a sink, because a worker may use the real state. */
const EMPTY_STATE_STORE = {
  document: async () => undefined,
  documents: async () => new Map<string, never>(),
  outbox: { recent: async () => [] },
  commit: async () => {
    throw new Error("A sink that is only tried cannot store state.");
  },
};

export async function createStandaloneSink(name: string, sinkConfig: SinkConfigEntry): Promise<Sink | undefined> {
  const connector = findSinkConnector(sinkConfig);
  return getConnector(connector).sink?.(sinkConfig[connector], {
    name,
    log: createLog({ level: "silent" }),
    clock: systemClock,
    metrics: createMetrics(),
    sinkState: createSinkState(name, EMPTY_STATE_STORE),
    building: createBuildingView(EMPTY_STATE_STORE, new Map()),
  });
}
