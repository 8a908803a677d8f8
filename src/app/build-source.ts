import type { Clock } from "../core/runtime/clock.ts";
import type { ClockCheck } from "../core/runtime/clock-check.ts";
import type { Log } from "../core/runtime/log.ts";
import type { Metrics } from "../core/runtime/metrics.ts";
import { monotonicMark } from "../core/runtime/moment.ts";
import { createSource } from "../engine/source/client.ts";
import { createQuota, type Quota } from "../engine/source/quota/quota.ts";
import { type RequestTrace, traced } from "../engine/source/request-trace.ts";
import type { Leaving } from "../engine/source/send.ts";
import type { Source } from "../engine/source/source.ts";
import type { Transport } from "../engine/source/transport.ts";
import type { Store } from "../engine/store/store.ts";
import type { SourceEntry } from "./config/config.ts";

export interface BuiltSource {
  readonly name: string;
  readonly entry: SourceEntry;
  readonly source: Source;
  readonly quota: Quota;
  /** The last tag requests. */
  readonly trace: RequestTrace;
}

/** One source with its quota: the worker builds them, and so does the command line when no worker is running. */
export function buildSource(options: {
  readonly name: string;
  readonly entry: SourceEntry;
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly environment?: Readonly<Record<string, string | undefined>>;
  readonly transport?: Transport;
  readonly clockDoubt?: ClockCheck;
  readonly leaving?: Leaving;
  /** See `QuotaOptions`. */
  readonly longestWayMs?: number;
}): BuiltSource {
  const { name, entry, store, clock, metrics } = options;
  const log = options.log.child({ source: name });
  const { requests_per_minute, polite, reserve_for_writes, separate_endpoints } = entry.quota;
  const quota = createQuota({
    source: name,
    clock,
    store: store.quotaStore,
    perMinute: requests_per_minute,
    polite,
    reserve: reserve_for_writes,
    sharing: separate_endpoints ? "separate" : "auto",
    log,
    metrics,
    ...(options.leaving === undefined ? { mark: monotonicMark(clock) } : {}),
    ...(options.longestWayMs === undefined ? {} : { longestWayMs: options.longestWayMs }),
    onForeign: (use) => log.warn({ use }, "another program seems to spend the same quota"),
  });
  const client = createSource({
    name,
    config: entry,
    limiter: quota,
    clock,
    metrics,
    log,
    ...(options.environment === undefined ? {} : { environment: options.environment }),
    ...(options.clockDoubt === undefined ? {} : { clockDoubt: options.clockDoubt }),
    ...(options.leaving === undefined ? {} : { leaving: options.leaving }),
    ...(options.transport === undefined ? {} : { transport: options.transport }),
  });
  return { name, entry, quota, ...traced(client, clock) };
}
