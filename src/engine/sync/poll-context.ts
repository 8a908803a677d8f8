import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import type { Source } from "../source/source.ts";
import type { StoreChange } from "../store/store.ts";
import type { SyncConfig } from "./config.ts";
import type { FirstInventoryProgress } from "./first-inventory-progress.ts";
import type { TagNaming } from "./inventory/tag-naming.ts";
import type { SyncState } from "./sync-state.ts";
import type { TokenScope } from "./token-scope.ts";

export interface PollContext {
  readonly source: Source;
  readonly config: SyncConfig;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly scope: TokenScope;
  readonly syncState: SyncState;
  readonly firstInventory: Pick<FirstInventoryProgress, "page">;
  readonly tagNaming: TagNaming;
  readonly sitesWithTagList: Set<number>;
  offlineGatewayOf(siteId: number): string | null;
  /** Reads the gateway lists of sites whose new alarms an offline gateway may explain. */
  recheckGateways(siteIds: readonly number[], signal: AbortSignal): Promise<void>;
  commit(job: string, change: StoreChange, isRecovery?: boolean): Promise<void>;
}
