import { createHistogram } from "node:perf_hooks";
import { setImmediate as nextImmediate } from "node:timers/promises";
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "@prometheus-io/client";
import { mapInSlices } from "./waiting.ts";

/** Every metric of the worker. Ids of tags, alarms and commands are no labels: a building has thousands of them. */
export type Metrics = ReturnType<typeof createMetrics>;

export function addProcessMetrics({ registry }: Metrics): void {
  collectDefaultMetrics({
    register: registry,
    prefix: "plenum_",
    // The default event loop metrics include the sampling interval; `addEventLoopMetrics` replaces them.
    eventLoopMonitoringPrecision: MAX_TIMER_DELAY_MS,
    eventLoopUtilizationTimeout: 10_000,
    eventLoopUtilizationAgeBuckets: 1,
  });
  for (const name of REMOVED_DEFAULT_METRICS) registry.removeSingleMetric(`plenum_nodejs_${name}`);
  addEventLoopMetrics(registry);
}

/** Text of all metrics. Yields after each metric: the 22,000 samples of 200 sources take 40 ms. */
export async function formatMetrics(registry: Registry): Promise<string> {
  // The library's types do not say that the metrics of a registry can be passed to its own method.
  const allMetrics = registry.getMetricsAsArray() as unknown as Parameters<Registry["getMetricsAsString"]>[0][];
  const metricTexts = await mapInSlices(allMetrics, (metric) => registry.getMetricsAsString(metric), 1);
  return `${metricTexts.join("\n\n")}\n`;
}

const MAX_TIMER_DELAY_MS = 2 ** 31 - 1;

/**
 * Measures each turn of the event loop: the time from the end of one wait for events to the next.
 *
 * An unreferenced immediate runs once a turn and never wakes an idle worker. A timer of 50 ms would use 0.08 % of a CPU
 * core and report a blocked event loop of 60 ms as 10 to 60 ms.
 */
export function addEventLoopMetrics(registry: Registry): void {
  const { nodeTiming } = performance;
  const tickMicros = createHistogram({ highest: 3_600_000_000 });
  const busyMs = () => performance.now() - nodeTiming.idleTime;
  let tickStartMs = busyMs();
  const measureTick = () => {
    const nowMs = busyMs();
    tickMicros.record(Math.max(1, Math.round((nowMs - tickStartMs) * 1_000)));
    tickStartMs = nowMs;
    setImmediate(measureTick).unref();
  };
  setImmediate(measureTick).unref();
  // Register this gauge before the gauges that its `collect` sets: metrics are collected one after the other.
  const eventLoopLagGauge = new Gauge({
    name: "plenum_nodejs_eventloop_lag_seconds",
    help: "Time until the event loop came to the next task, at this scrape.",
    registers: [registry],
    async collect() {
      const scrapeStartMs = performance.now();
      // `measureTick` runs first, so that it measures the turn of the event loop just before this scrape.
      await nextImmediate();
      eventLoopLagGauge.set((performance.now() - scrapeStartMs) / 1_000);
      if (tickMicros.count > 0) for (const [tickGauge, readMicros] of tickGauges) tickGauge.set(readMicros() / 1e6);
      tickMicros.reset();
    },
  });
  const gauge = (name: string, help: string) =>
    new Gauge({ name: `plenum_nodejs_eventloop_lag${name}_seconds`, help, registers: [registry] });
  const tickGauges = [
    [gauge("_min", "Shortest turn of the event loop since the last scrape."), () => tickMicros.min],
    [gauge("_max", "Longest turn of the event loop since the last scrape: its longest stop."), () => tickMicros.max],
    [gauge("_mean", "Mean turn of the event loop since the last scrape."), () => tickMicros.mean],
    [gauge("_stddev", "Standard deviation of the turns."), () => tickMicros.stddev],
    ...[50, 90, 99].map(
      (n) => [gauge(`_p${n}`, `${n}th percentile of the turns.`), () => tickMicros.percentile(n)] as const,
    ),
  ] as const;
}

/** Default process metrics that are replaced here, or whose names break the rules of `promtool check metrics`. */
const REMOVED_DEFAULT_METRICS = [
  "eventloop_lag_seconds",
  ...["min", "max", "mean", "stddev", "p50", "p90", "p99"].map((name) => `eventloop_lag_${name}_seconds`),
  "active_handles_total",
  "active_requests_total",
  "active_resources_total",
  "eventloop_utilization_histogram",
  "eventloop_utilization_summary",
];

export function createMetrics() {
  const registry = new Registry();
  return { registry, ...createWorkerMetrics([registry]) };
}

function createWorkerMetrics(registers: Registry[]) {
  const counter = <L extends string = never>(name: string, help: string, labelNames: L[] = []) =>
    new Counter({ name, help, labelNames, registers });
  const gauge = <L extends string = never>(name: string, help: string, labelNames: L[] = []) =>
    new Gauge({ name, help, labelNames, registers });
  /** Makes a gauge that is absent until it is set; other gauges without labels start at 0. */
  const unsetGauge = (name: string, help: string) => {
    const emptyGauge = gauge(name, help);
    emptyGauge.remove();
    return emptyGauge;
  };
  const histogram = <L extends string>(name: string, help: string, labelNames: L[], buckets: number[]) =>
    new Histogram({ name, help, labelNames, buckets, registers });
  return {
    apiRequests: counter(
      "plenum_api_requests_total",
      "Requests to the monitoring service by outcome (ok, retryable, throttled, config, no-log, malformed).",
      ["source", "endpoint", "outcome"],
    ),
    apiSeconds: histogram(
      "plenum_api_request_seconds",
      "Time from sending a request to the end of the response.",
      ["source", "endpoint"],
      [0.1, 0.5, 2, 10, 60],
    ),
    quotaWaitSeconds: histogram(
      "plenum_quota_wait_seconds",
      "Time that a tag request waited for its slot in the quota.",
      ["source", "lane"],
      [0.1, 3, 10, 60, 300],
    ),
    quotaSlots: counter("plenum_quota_slots_total", "Slots of the quota used.", ["source", "lane"]),
    quotaHeld: gauge(
      "plenum_quota_held_until_timestamp_seconds",
      "End of a pause that the service ordered; 0 without one.",
      ["source"],
    ),
    clockSkewSeconds: gauge(
      "plenum_clock_skew_seconds",
      "Clock of the worker minus clock of the service, by the Date headers of its responses.",
      ["source"],
    ),
    clockSteps: counter(
      "plenum_clock_steps_total",
      "Steps of the wall clock by direction (forward, back); a suspended machine counts as one forward.",
      ["direction"],
    ),
    clockInDoubt: gauge(
      "plenum_clock_in_doubt",
      "1 while the wall clock is unverified: no tag is written, and no event is dropped for its age.",
    ),
    freshnessPromised: gauge(
      "plenum_freshness_promised_seconds",
      "Maximum planned age of a value of the class: its interval, stretched if the quota requires it.",
      ["source", "class"],
    ),
    freshnessAchieved: gauge(
      "plenum_freshness_achieved_seconds",
      "Maximum measured age of a value of the class in the last minutes, without tags that return nothing.",
      ["source", "class"],
    ),
    tagsRead: counter("plenum_tags_read_total", "Tag values read, by quality.", ["source", "quality"]),
    tagsStale: gauge(
      "plenum_tags_stale",
      "Tags whose last good value is too old, by reason: not-scheduled, out-of-scope, no-ability, quarantined, gateway-offline, source-unavailable.",
      ["source", "reason"],
    ),
    tagsLeftOut: gauge(
      "plenum_tags_left_out",
      "Tags without a usable value in the responses, by kind: unreadable (a value that the interface does not allow), unanswered (not in the response). The status names them.",
      ["source", "kind"],
    ),
    pollSuccess: gauge(
      "plenum_poll_last_success_timestamp_seconds",
      "Last success of a job, also before this start; absent before the first one.",
      ["source", "job"],
    ),
    pollDue: gauge(
      "plenum_poll_due_timestamp_seconds",
      "Time by which a job must succeed again; /readyz uses the same time.",
      ["source", "job"],
    ),
    tokenExpiry: gauge(
      "plenum_token_expires_timestamp_seconds",
      "When the token expires; absent if it does not expire or the time is unknown.",
      ["source"],
    ),
    polls: counter("plenum_polls_total", "Runs of a job by outcome (ok, incomplete, failed, overlap).", [
      "source",
      "job",
      "outcome",
    ]),
    historyRefusals: counter(
      "plenum_history_refusals_total",
      "Refused history requests by reason: no-log (stated by the service), refused, mistake (an invalid request), out-of-sight (site out of scope); unreadable: series in a response that could not be read.",
      ["source", "reason"],
    ),
    historySeries: gauge(
      "plenum_history_series",
      "History series by state: whole, holes (something is missing), refused, no-log, unproven.",
      ["source", "state"],
    ),
    alarmsActive: gauge("plenum_alarms_active", "Active alarms of the service; absent while unknown.", [
      "source",
      "site",
      "priority",
    ]),
    alarmRecordsUnverified: gauge(
      "plenum_alarm_records_doubtful",
      "Records of active alarms in the last poll that changed nothing, by reason: contradictory, stale (also in the list of resolved alarms), unreadable.",
      ["source", "reason"],
    ),
    unknownWords: counter(
      "plenum_unknown_words_total",
      "Content of responses that the interface does not define, by field. Unknown words are kept; values of another type (tag.value, measurement.value, total.value), unreadable logs (log.measurements) and missing tags (tag.unanswered) are left out; a tag with numbers as text (value.text) counts once.",
      ["source", "field"],
    ),
    eventsCommitted: counter("plenum_events_committed_total", "Events committed to the outbox.", ["type"]),
    outboxDepth: gauge(
      "plenum_outbox_depth",
      "Undelivered events of a sink after its filter, and alarms that a receiver has not sent; an upper bound where plenum_outbox_depth_exact is 0.",
      ["sink"],
    ),
    outboxDepthExact: gauge(
      "plenum_outbox_depth_exact",
      "1 if plenum_outbox_depth is exact, 0 if the filter makes counting expensive.",
      ["sink"],
    ),
    outboxOldestAge: gauge(
      "plenum_outbox_oldest_age_seconds",
      "Age of the oldest undelivered event of a sink; 0 without one.",
      ["sink"],
    ),
    deliveries: counter(
      "plenum_sink_deliveries_total",
      "Events by outcome at a sink (accepted, rejected, kept, dropped).",
      ["sink", "outcome"],
    ),
    sinkUp: gauge("plenum_sink_up", "1 while a sink accepts events, 0 while it retries or has stopped.", ["sink"]),
    commands: counter("plenum_commands_total", "Commands by terminal outcome and reason.", ["outcome", "reason"]),
    reloads: counter(
      "plenum_config_reloads_total",
      "Reloads of the configuration file by outcome: changed, unchanged, refused.",
      ["outcome"],
    ),
    configRefused: gauge(
      "plenum_config_refused",
      "1 while the configuration file is wrong and the worker uses the last accepted one, otherwise 0.",
    ),
    configPending: gauge("plenum_config_pending_changes", "Configuration changes that wait for a restart."),
    diskFreeBytes: unsetGauge(
      "plenum_disk_free_bytes",
      "Free bytes on the disk of the state for the worker's user; absent if unknown.",
    ),
    diskBytes: unsetGauge("plenum_disk_bytes", "Size of the disk of the state; absent if unknown."),
    logBytes: unsetGauge("plenum_outbox_bytes", "Size of the log of events."),
    logPendingBytes: unsetGauge(
      "plenum_outbox_pending_bytes",
      "Size of the events that the slowest active sink has not received.",
    ),
    logLimitBytes: unsetGauge(
      "plenum_outbox_limit_bytes",
      "Maximum size of the log of events; above it, the oldest values are dropped.",
    ),
    writesStopped: unsetGauge(
      "plenum_writes_stopped",
      "1 while the kill switch stops all tag writes; absent if commands are disabled.",
    ),
    auditBytes: unsetGauge("plenum_audit_log_bytes", "Size of the audit log of commands."),
    auditLimitBytes: unsetGauge(
      "plenum_audit_log_limit_bytes",
      "Maximum size of the audit log, also by its disk; at the limit no tag is written.",
    ),
    fleetMembers: unsetGauge(
      "plenum_fleet_members",
      "Live members of the fleet as last seen by this one; absent without a fleet.",
    ),
    fleetSources: unsetGauge("plenum_fleet_sources", "Sources that this member holds; absent without a fleet."),
    fleetTakeovers: counter(
      "plenum_fleet_takeovers_total",
      "Sources that this member has taken over, by reason (first, joined, left, drained, lease-ran-out, could-not-start, unreachable).",
      ["reason"],
    ),
    fleetRenewed: unsetGauge(
      "plenum_fleet_renewed_timestamp_seconds",
      "When this member last renewed its leases; absent without a fleet.",
    ),
  };
}
