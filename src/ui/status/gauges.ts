import type { Log } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import type { Status, StatusHealth } from "./report.ts";
import type { SinkReport } from "./sink-report.ts";
import type { SourceHealth } from "./source-health.ts";

/**
 * Sets the gauges that are true at a moment only, so that a scrape sees how it is and not how it was. They say what
 * the status page says; a number that is not known is absent, which is not 0.
 */
export async function refreshGauges(options: {
  readonly status: Pick<Status, "health" | "sinks">;
  readonly metrics: Gauges;
  readonly log: Pick<Log, "warn">;
}): Promise<void> {
  const { status, metrics, log } = options;
  let known: readonly [StatusHealth, readonly SinkReport[]] | null = null;
  try {
    known = await Promise.all([status.health(), status.sinks()]);
  } catch (error) {
    log.warn({ err: error }, "the status could not be read for a scrape; what it does not know is left out");
  }
  for (const gauge of [
    metrics.outboxDepth,
    metrics.outboxDepthExact,
    metrics.outboxOldestAge,
    metrics.alarmsActive,
    metrics.pollDue,
    metrics.tagsLeftOut,
    metrics.tokenExpires,
  ]) {
    gauge.reset();
  }
  metrics.writesStopped.remove();
  if (known === null) return;
  const [{ commands, disk, now, sources }, sinks] = known;
  for (const sink of sinks) showSink(metrics, sink, Date.parse(now));
  for (const source of sources) showSource(metrics, source);
  showDisk(metrics, disk);
  if (commands?.enabled) metrics.writesStopped.set(commands.stopped ? 1 : 0);
}

type Gauges = Pick<
  Metrics,
  | "outboxDepth"
  | "outboxDepthExact"
  | "outboxOldestAge"
  | "alarmsActive"
  | "pollSuccess"
  | "diskFreeBytes"
  | "diskBytes"
  | "pollDue"
  | "tagsLeftOut"
  | "tokenExpires"
  | "writesStopped"
>;

/** Priorities that the interface names: a site without such alarms shows 0, so that absent means not known. */
const PRIORITIES = ["A", "B", "C"];

function showSink(metrics: Gauges, sink: SinkReport, nowMs: number): void {
  const { depth, again, exact, oldest, ended } = sink;
  if (depth === null || again === null || ended !== null) return;
  const labels = { sink: sink.sink };
  metrics.outboxDepth.set(labels, depth + again);
  metrics.outboxDepthExact.set(labels, exact ? 1 : 0);
  metrics.outboxOldestAge.set(labels, oldest === null ? 0 : Math.max(0, nowMs - Date.parse(oldest)) / 1_000);
}

function showDisk(
  metrics: Pick<Gauges, "diskFreeBytes" | "diskBytes">,
  { free, diskBytes }: StatusHealth["disk"],
): void {
  for (const [gauge, bytes] of [
    [metrics.diskFreeBytes, free],
    [metrics.diskBytes, diskBytes],
  ] as const) {
    if (bytes === null) gauge.remove();
    else gauge.set(bytes);
  }
}

function showSource(metrics: Gauges, { name: source, alarms, counts, jobs, token }: SourceHealth): void {
  const leftOut = counts?.leftOut ?? null;
  if (leftOut !== null) {
    metrics.tagsLeftOut.set({ source, kind: "unreadable" }, leftOut.unreadable);
    metrics.tagsLeftOut.set({ source, kind: "unanswered" }, leftOut.unanswered);
  }
  if (token?.expiresAt) metrics.tokenExpires.set({ source }, Date.parse(token.expiresAt) / 1_000);
  for (const { name: job, lastSuccess, dueBy } of jobs) {
    if (dueBy !== null) metrics.pollDue.set({ source, job }, Date.parse(dueBy) / 1_000);
    if (lastSuccess === null) metrics.pollSuccess.remove({ source, job });
    else metrics.pollSuccess.set({ source, job }, Date.parse(lastSuccess) / 1_000);
  }
  if (counts === null || !(alarms.state === "whole" || alarms.state === "part")) return;
  for (const id of counts.siteIds) {
    const ofSite = counts.activeAlarms.get(id) ?? new Map<string, number>();
    const zeros = alarms.state === "whole" ? PRIORITIES.map((each) => [each, 0] as const) : [];
    for (const [priority, count] of new Map([...zeros, ...ofSite]))
      metrics.alarmsActive.set({ source, site: String(id), priority }, count);
  }
}
