import { shownConfig } from "../../build-status.ts";
import { systemClock } from "../../clock.ts";
import type { Config } from "../../config/config.ts";
import { createStatus, type StatusReport } from "../../status/report.ts";
import type { Store } from "../../store/store.ts";
import { VERSION } from "../../version.ts";

/** The status as the state remembers it, without a worker. */
export function rememberedStatus(store: Store, config: Config): Promise<StatusReport> {
  return createStatus({
    version: VERSION,
    clock: systemClock,
    store,
    ...shownConfig(config),
    live: null,
  }).report();
}
