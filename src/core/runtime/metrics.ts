import { monitorEventLoopDelay } from "node:perf_hooks";
import { setImmediate } from "node:timers/promises";
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from "@prometheus-io/client";

/**
 * Every metric of the worker, in one place, so that names stay consistent. No tag, alarm or command ids as
 * labels: a building has thousands of them. Durations in seconds, as Prometheus asks.
 */
export type Metrics = ReturnType<typeof createMetrics>;

/** Memory, processor time and garbage collection of this process besides; once in a process, for they watch it for ever. */
export function addProcessMetrics({ registry }: Metrics): void {
  collectDefaultMetrics({
    register: registry,
    prefix: "plenum_",
    // Its own figures of the event loop contain the time between two looks; `addEventLoopMetrics` has others.
    eventLoopMonitoringPrecision: LONGEST_TIMER_MS,
    eventLoopUtilizationTimeout: 10_000,
    eventLoopUtilizationAgeBuckets: 1,
  });
  for (const name of LEFT_OUT) registry.removeSingleMetric(`plenum_nodejs_${name}`);
  addEventLoopMetrics(registry);
}

const LONGEST_TIMER_MS = 2 ** 31 - 1;

/**
 * The event loop is looked at this often, milliseconds. Each look wakes the machine: every 50 ms is 0.08 % of a core, every
 * 20 ms twice that.
 */
const LOOK_MS = 50;

/**
 * How long the event loop was stopped since the scrape before, in seconds. A stop is seen by the delay of the look that it
 * holds up: of a stop of 100 ms a delay of 50 to 100 ms, because it began anywhere between two looks. So half of the time
 * between two looks is added to a delay of that length.
 */
export function addEventLoopMetrics(registry: Registry): void {
  const delays = monitorEventLoopDelay({ resolution: LOOK_MS });
  delays.enable();
  const stopMs = (delayMs: number) => {
    if (!(delayMs > 0)) return 0;
    return delayMs < LOOK_MS / 2 ? delayMs : delayMs + LOOK_MS / 2;
  };
  const seconds = (nanoseconds: number) => stopMs(nanoseconds / 1e6 - LOOK_MS) / 1_000;
  /** Delay of a look of our own after each reset, milliseconds: the histogram begins only with the look after that. */
  let firstMs = 0;
  const restart = () => {
    delays.reset();
    firstMs = 0;
    const begunMs = performance.now();
    setTimeout(() => {
      firstMs = performance.now() - begunMs - LOOK_MS;
    }, LOOK_MS).unref();
  };
  restart();
  const gauge = (name: string, help: string) =>
    new Gauge({ name: `plenum_nodejs_eventloop_lag${name}_seconds`, help, registers: [registry] });
  const shown = [
    [gauge("_min", "Shortest stop of the event loop since the last scrape."), () => seconds(delays.min)],
    [
      gauge("_max", "Longest stop of the event loop since the last scrape, to 25 ms."),
      () => Math.max(seconds(delays.max), stopMs(firstMs) / 1_000),
    ],
    [gauge("_mean", "Mean stop of the event loop since the last scrape."), () => seconds(delays.mean)],
    [gauge("_stddev", "Standard deviation of the stops."), () => delays.stddev / 1e9],
    ...[50, 90, 99].map(
      (n) => [gauge(`_p${n}`, `${n}th percentile of the stops.`), () => seconds(delays.percentile(n))] as const,
    ),
  ] as const;
  const lag = new Gauge({
    name: "plenum_nodejs_eventloop_lag_seconds",
    help: "Time until the event loop came to the next task, at this scrape.",
    registers: [registry],
    async collect() {
      if (delays.count > 0) for (const [each, value] of shown) each.set(value());
      restart();
      const begun = performance.now();
      await setImmediate();
      lag.set((performance.now() - begun) / 1_000);
    },
  });
}

/** Default process metrics that are replaced here, or whose names break the rules of `promtool check metrics`. */
const LEFT_OUT = [
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
  const metrics = { registry, ...describedMetrics([registry]) };
  // A gauge without labels starts at 0; these are unknown until they are set.
  const unknown = [
    metrics.auditBytes,
    metrics.auditLimitBytes,
    metrics.diskFreeBytes,
    metrics.diskBytes,
    metrics.fleetMembers,
    metrics.fleetRenewed,
    metrics.fleetSources,
    metrics.logBytes,
    metrics.logPendingBytes,
    metrics.logLimitBytes,
    metrics.writesStopped,
  ];
  for (const gauge of unknown) gauge.remove();
  return metrics;
}

function describedMetrics(registers: Registry[]) {
  return {
    apiRequests: new Counter({
      name: "plenum_api_requests_total",
      help: "Requests to the monitoring service by outcome (ok, retryable, throttled, config, no-log, malformed).",
      labelNames: ["source", "endpoint", "outcome"],
      registers,
    }),
    apiSeconds: new Histogram({
      name: "plenum_api_request_seconds",
      help: "Time from sending a request to having the whole reply.",
      labelNames: ["source", "endpoint"],
      buckets: [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60],
      registers,
    }),
    quotaWaitSeconds: new Histogram({
      name: "plenum_quota_wait_seconds",
      help: "Time that a tag request waited for its slot in the quota.",
      labelNames: ["source", "lane"],
      buckets: [0.01, 0.1, 1, 3, 5, 10, 30, 60, 300],
      registers,
    }),
    quotaSlots: new Counter({
      name: "plenum_quota_slots_total",
      help: "Slots of the quota used.",
      labelNames: ["source", "lane"],
      registers,
    }),
    quotaHeld: new Gauge({
      name: "plenum_quota_held_until_timestamp_seconds",
      help: "Until when the service told us to wait; 0 when it did not.",
      labelNames: ["source"],
      registers,
    }),
    clockSkewSeconds: new Gauge({
      name: "plenum_clock_skew_seconds",
      help: "Our clock minus the service's, by the Date headers of its replies.",
      labelNames: ["source"],
      registers,
    }),
    clockSteps: new Counter({
      name: "plenum_clock_steps_total",
      help: "Steps of the wall clock that were noticed, by direction (forward, back); a suspended machine is one forward.",
      labelNames: ["direction"],
      registers,
    }),
    clockInDoubt: new Gauge({
      name: "plenum_clock_in_doubt",
      help: "1 while the wall clock is not trusted: nothing is written, and no event is dropped for its age.",
      registers,
    }),
    freshnessPromised: new Gauge({
      name: "plenum_freshness_promised_seconds",
      help: "How old a value of the class may become by the plan: the wished age, stretched where the quota does not suffice.",
      labelNames: ["source", "class"],
      registers,
    }),
    freshnessAchieved: new Gauge({
      name: "plenum_freshness_achieved_seconds",
      help: "How old a value of the class has become at most in the last minutes; tags that answer nothing are left out.",
      labelNames: ["source", "class"],
      registers,
    }),
    tagsRead: new Counter({
      name: "plenum_tags_read_total",
      help: "Tag values read, by quality.",
      labelNames: ["source", "quality"],
      registers,
    }),
    tagsLeftOut: new Gauge({
      name: "plenum_tags_left_out",
      help: "Tags without a usable value in the replies, by kind: unreadable (a value that the interface does not allow), unanswered (not listed). The status names them.",
      labelNames: ["source", "kind"],
      registers,
    }),
    pollSuccess: new Gauge({
      name: "plenum_poll_last_success_timestamp_seconds",
      help: "When a job last finished well, also before this start; absent until it did.",
      labelNames: ["source", "job"],
      registers,
    }),
    pollDue: new Gauge({
      name: "plenum_poll_due_timestamp_seconds",
      help: "By when the next good poll of a job has to be there so that what is promised holds; /readyz says the same.",
      labelNames: ["source", "job"],
      registers,
    }),
    tokenExpires: new Gauge({
      name: "plenum_token_expires_timestamp_seconds",
      help: "When the token expires; absent for one that does not, or while that is not known.",
      labelNames: ["source"],
      registers,
    }),
    polls: new Counter({
      name: "plenum_polls_total",
      help: "Runs of a job by outcome (ok, incomplete, failed, overlap).",
      labelNames: ["source", "job", "outcome"],
      registers,
    }),
    historyRefusals: new Counter({
      name: "plenum_history_refusals_total",
      help: "Requests for history that were refused, by reason: no-log (the service's word), refused, mistake (of ours), out-of-sight; unreadable: series that were answered and could not be read.",
      labelNames: ["source", "reason"],
      registers,
    }),
    historySeries: new Gauge({
      name: "plenum_history_series",
      help: "Series of history by state: whole, holes (something is not had yet), refused, no-log, unproven.",
      labelNames: ["source", "state"],
      registers,
    }),
    alarmsActive: new Gauge({
      name: "plenum_alarms_active",
      help: "Alarms that the service holds to be active; absent while that is not known.",
      labelNames: ["source", "site", "priority"],
      registers,
    }),
    alarmRecordsDoubtful: new Gauge({
      name: "plenum_alarm_records_doubtful",
      help: "Records of the list of active alarms in the last poll that changed nothing, by reason: contradictory, stale (also in the list of resolved alarms), unreadable.",
      labelNames: ["source", "reason"],
      registers,
    }),
    unknownWords: new Counter({
      name: "plenum_unknown_words_total",
      help: "What a reply says in words or kinds that the interface does not name, by field: words are kept as they came, values of another kind (tag.value, measurement.value, total.value), logs that cannot be read (log.measurements) and tags that were not answered (tag.unanswered) are left out; tags whose numbers come as text (value.text) count once.",
      labelNames: ["source", "field"],
      registers,
    }),
    eventsCommitted: new Counter({
      name: "plenum_events_committed_total",
      help: "Events committed to the outbox.",
      labelNames: ["type"],
      registers,
    }),
    outboxDepth: new Gauge({
      name: "plenum_outbox_depth",
      help: "Committed events that a sink will still get, by its filter, and alarms that a receiver has still to send; where plenum_outbox_depth_exact is 0, the most that it can be.",
      labelNames: ["sink"],
      registers,
    }),
    outboxDepthExact: new Gauge({
      name: "plenum_outbox_depth_exact",
      help: "1 where plenum_outbox_depth is counted exactly, 0 where the filter would make that expensive.",
      labelNames: ["sink"],
      registers,
    }),
    outboxOldestAge: new Gauge({
      name: "plenum_outbox_oldest_age_seconds",
      help: "Age of the oldest event that a sink will still get; 0 when there is none.",
      labelNames: ["sink"],
      registers,
    }),
    deliveries: new Counter({
      name: "plenum_sink_deliveries_total",
      help: "Events by what became of them at a sink (accepted, rejected, kept, dropped).",
      labelNames: ["sink", "outcome"],
      registers,
    }),
    sinkUp: new Gauge({
      name: "plenum_sink_up",
      help: "1 while a sink accepts events, 0 while it is being retried or has stopped.",
      labelNames: ["sink"],
      registers,
    }),
    commands: new Counter({
      name: "plenum_commands_total",
      help: "Commands by terminal outcome and reason.",
      labelNames: ["outcome", "reason"],
      registers,
    }),
    reloads: new Counter({
      name: "plenum_config_reloads_total",
      help: "Times that the configuration file was read again, by what came of it: changed, unchanged, refused.",
      labelNames: ["outcome"],
      registers,
    }),
    configRefused: new Gauge({
      name: "plenum_config_refused",
      help: "1 while the configuration file is wrong, so that the worker goes on with what it had; 0 while it is right.",
      registers,
    }),
    configPending: new Gauge({
      name: "plenum_config_pending_changes",
      help: "Changes of the configuration file that wait for a restart.",
      registers,
    }),
    diskFreeBytes: new Gauge({
      name: "plenum_disk_free_bytes",
      help: "What the worker may still write on the disk that holds the state; absent where the system does not say.",
      registers,
    }),
    diskBytes: new Gauge({
      name: "plenum_disk_bytes",
      help: "Size of the disk that holds the state; absent where the system does not say.",
      registers,
    }),
    logBytes: new Gauge({
      name: "plenum_outbox_bytes",
      help: "Size of the log of events.",
      registers,
    }),
    logPendingBytes: new Gauge({
      name: "plenum_outbox_pending_bytes",
      help: "Size of the events that the slowest sink in use has not taken yet.",
      registers,
    }),
    logLimitBytes: new Gauge({
      name: "plenum_outbox_limit_bytes",
      help: "Size up to which the log of events may grow; beyond, the oldest values are dropped.",
      registers,
    }),
    writesStopped: new Gauge({
      name: "plenum_writes_stopped",
      help: "1 while the kill switch stops all writes to the building; absent where commands are switched off.",
      registers,
    }),
    auditBytes: new Gauge({
      name: "plenum_audit_log_bytes",
      help: "Size of the audit log of commands.",
      registers,
    }),
    auditLimitBytes: new Gauge({
      name: "plenum_audit_log_limit_bytes",
      help: "Size up to which the audit log may grow, or can on its disk; beyond, nothing is written to the building.",
      registers,
    }),
    fleetMembers: new Gauge({
      name: "plenum_fleet_members",
      help: "Members of the fleet that are alive, as this one saw last; absent for a lone worker.",
      registers,
    }),
    fleetSources: new Gauge({
      name: "plenum_fleet_sources",
      help: "Sources that this member holds; absent for a lone worker.",
      registers,
    }),
    fleetTakeovers: new Counter({
      name: "plenum_fleet_takeovers_total",
      help: "Sources that this member has taken, by reason (first, joined, left, drained, lease-ran-out, could-not-start, unreachable).",
      labelNames: ["reason"],
      registers,
    }),
    fleetRenewed: new Gauge({
      name: "plenum_fleet_renewed_timestamp_seconds",
      help: "When this member last renewed its leases; absent for a lone worker.",
      registers,
    }),
  };
}
