import { createMonotonicClockReader } from "../core/runtime/elapsed-time.ts";
import { createSource, type SourceOptions } from "../engine/source/client.ts";
import { createQuota, type QuotaOptions } from "../engine/source/quota/quota.ts";
import { traceRequests } from "../engine/source/request-trace.ts";
import type { Store } from "../engine/store/store.ts";
import type { SourceConfigEntry } from "./config/config.ts";

export type BuiltSource = ReturnType<typeof buildSource>;

type OptionalFields<T> = { readonly [K in keyof T]?: T[K] | undefined };

export function buildSource(
  options: Pick<SourceOptions, "name" | "clock" | "log" | "metrics"> & {
    readonly sourceConfig: SourceConfigEntry;
    readonly store: Store;
  } & OptionalFields<Pick<SourceOptions, "environment" | "transport" | "clockCheck" | "checkBeforeRequest">> &
    OptionalFields<Pick<QuotaOptions, "maxTransitMs">>,
) {
  const {
    name,
    sourceConfig,
    store,
    clock,
    metrics,
    environment,
    transport,
    clockCheck,
    checkBeforeRequest,
    maxTransitMs,
  } = options;
  const log = options.log.child({ source: name });
  const { requests_per_minute, polite, reserve_for_writes, separate_endpoints } = sourceConfig.quota;
  const requestQuota = createQuota({
    ...{ source: name, clock, store: store.quotaStore, log, metrics },
    ...{ perMinute: requests_per_minute, polite, reserve: reserve_for_writes },
    separateEndpoints: separate_endpoints,
    ...(checkBeforeRequest === undefined && { readClock: createMonotonicClockReader(clock) }),
    ...(maxTransitMs !== undefined && { maxTransitMs }),
    onOtherClient: (quotaUse) => log.warn({ use: quotaUse }, "another program seems to spend the same quota"),
  });
  const sourceClient = createSource({
    ...{ name, config: sourceConfig, limiter: requestQuota, clock, metrics, log },
    ...(environment && { environment }),
    ...(clockCheck && { clockCheck }),
    ...(checkBeforeRequest && { checkBeforeRequest }),
    ...(transport && { transport }),
  });
  return { name, sourceConfig, quota: requestQuota, ...traceRequests(sourceClient, clock) };
}
