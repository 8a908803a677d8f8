import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buildSource } from "../../app/build-source.ts";
import type { SourceEntry } from "../../app/config/config.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { createLog } from "../../core/runtime/log.ts";
import { createMetrics } from "../../core/runtime/metrics.ts";
import type { Source } from "../../engine/source/source.ts";
import { openStore } from "../../engine/store/open.ts";

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
