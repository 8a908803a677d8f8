import { configView } from "../../app/build-status.ts";
import type { Config } from "../../app/config/config.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { VERSION } from "../../core/runtime/version.ts";
import type { Store } from "../../engine/store/store.ts";
import { createStatus, type StatusReport } from "../../ui/status/report.ts";

/** The status as the state remembers it, without a worker. */
export function rememberedStatus(store: Store, config: Config): Promise<StatusReport> {
  return createStatus({
    version: VERSION,
    clock: systemClock,
    store,
    ...configView(config),
    live: null,
  }).report();
}
