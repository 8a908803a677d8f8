import type { Log } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import type { Status, StatusHealth } from "./report.ts";
import type { SinkReport } from "./sinks.ts";
import type { SourceHealth } from "./sources.ts";

/** Priorities of the service: a site without such alarms has the value 0, because absent means unknown. */
const PRIORITIES = ["A", "B", "C"];

/**
 * Sets the gauges that describe the present, before each scrape, to the values of the status page. An unknown number is absent,
 * which is not 0.
 */
export async function refreshGauges(options: {
  readonly status: Pick<Status, "health" | "sinks">;
  readonly metrics: Metrics;
  readonly log: Pick<Log, "warn">;
}): Promise<void> {
  const { status, metrics, log } = options;
  let known: readonly [StatusHealth, readonly SinkReport[]] | null = null;
  try {
    known = await Promise.all([status.health(), status.sinks()]);
  } catch (error) {
    log.warn({ err: error }, "the status could not be read for a scrape; what it does not know is left out");
  }
  metrics.outboxDepth.reset();
  metrics.outboxDepthExact.reset();
  metrics.outboxOldestAge.reset();
  metrics.alarmsActive.reset();
  metrics.pollDue.reset();
  metrics.tagsLeftOut.reset();
  metrics.tokenExpires.reset();
  metrics.writesStopped.remove();
  if (known === null) return;
  const [{ commands, disk, now, sources }, sinks] = known;
  for (const sink of sinks) setSinkGauges(metrics, sink, Date.parse(now));
  for (const source of sources) setSourceGauges(metrics, source);
  if (disk.free === null) metrics.diskFreeBytes.remove();
  else metrics.diskFreeBytes.set(disk.free);
  if (disk.diskBytes === null) metrics.diskBytes.remove();
  else metrics.diskBytes.set(disk.diskBytes);
  if (commands?.enabled) metrics.writesStopped.set(commands.stopped ? 1 : 0);
}

function setSinkGauges(metrics: Metrics, report: SinkReport, nowMs: number): void {
  const { depth, again, exact, oldest, ended, sink } = report;
  if (depth === null || again === null || ended !== null) return;
  metrics.outboxDepth.set({ sink }, depth + again);
  metrics.outboxDepthExact.set({ sink }, exact ? 1 : 0);
  metrics.outboxOldestAge.set({ sink }, oldest === null ? 0 : Math.max(0, nowMs - Date.parse(oldest)) / 1_000);
}

function setSourceGauges(metrics: Metrics, { name: source, alarms, counts, jobs, token }: SourceHealth): void {
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
  const zeros = alarms.state === "whole" ? PRIORITIES.map((each) => [each, 0] as const) : [];
  for (const id of counts.siteIds) {
    for (const [priority, count] of new Map([...zeros, ...(counts.activeAlarms.get(id) ?? [])]))
      metrics.alarmsActive.set({ source, site: String(id), priority }, count);
  }
}

/**
 * Joins several expositions in the text format of Prometheus: each family is declared once, followed by the samples of all.
 *
 *   # TYPE plenum_outbox_depth gauge
 *   plenum_outbox_depth{sink="broker",source="north"} 3
 *   plenum_outbox_depth{sink="broker",source="south"} 0
 */
export function joinExpositions(texts: readonly string[]): string {
  const families = new Map<string, { readonly head: string[]; readonly samples: string[] }>();
  for (const text of texts) {
    let family = "";
    let isFirst = false;
    for (const line of text.split("\n")) {
      if (line === "") continue;
      const [, name] = /^# (?:HELP|TYPE) (\S+)/.exec(line) ?? [];
      if (name !== undefined && name !== family) {
        family = name;
        isFirst = !families.has(name);
        if (isFirst) families.set(name, { head: [], samples: [] });
      }
      if (name === undefined) families.get(family)?.samples.push(line);
      else if (isFirst) families.get(family)?.head.push(line);
    }
  }
  const lines = [...families.values()].flatMap(({ head, samples }) =>
    samples.length === 0 ? [] : [...head, ...samples],
  );
  return `${lines.join("\n")}\n`;
}
