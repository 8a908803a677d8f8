import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import { createValueCache, WATCHED_DATA_AGE_MS } from "./cache-of-stored-documents.ts";
import type { RunningSink, SinkReport } from "./sink-reports.ts";
import type { SourceHealth } from "./source-reports.ts";
import { type CommitFailure, isDiskFull } from "./state-disk-space.ts";
import type { Status, StatusHealth } from "./status-report.ts";

/** Response of `/readyz`. It needs no password, so it contains no error text of services or sinks. */
export interface Readiness {
  readonly ready: boolean;
  readonly reasons: readonly NotReadyReason[];
  /** Notes about incomplete inventories, which do not affect readiness. */
  readonly notes?: readonly string[];
}

interface NotReadyReason {
  readonly reason: "starting-or-stopping" | "poll-late" | "commit-failed" | "disk-full" | "sink-blocked";
  /** Part that is not ready, such as `source/campus/alarms`, `sink/lake`, `state` or `worker`. */
  readonly subject: string;
  readonly message: string;
}

/** A sink that is blocked for a longer time makes the worker not ready. */
export const MAX_SINK_BLOCKED_MS = 10 * 60_000;
const UNBLOCKED_SINK_STATES: readonly string[] = ["idle", "delivering", "starting"];

export function createReadinessCheck(options: {
  readonly clock: Clock;
  readonly health: Status["health"];
  /** False before all services have started, and while the worker stops. */
  readonly isRunning: () => boolean;
  readonly currentCommitFailure: () => CommitFailure | null;
}): () => Promise<Readiness> {
  const { clock, isRunning, currentCommitFailure } = options;
  // Cached, because `/readyz` needs no password, so any client may request it often.
  const readinessCache = createValueCache(clock);
  async function checkReadiness(): Promise<Readiness> {
    const commitFailure = currentCommitFailure();
    const message = `Nothing could be written to the state since ${commitFailure?.since}; the log says why.`;
    const failedCommits: NotReadyReason[] =
      commitFailure === null ? [] : [{ reason: "commit-failed", subject: "state", message }];
    const health = await options.health().catch(() => null);
    const reasons = [...failedCommits, ...(health === null ? [UNREADABLE_STATE_REASON] : notReadyReasonsOf(health))];
    const notes = health?.sources.flatMap(firstInventoryNotes) ?? [];
    return { ready: reasons.length === 0, reasons, ...(notes.length === 0 ? {} : { notes }) };
  }
  return async () => {
    if (isRunning()) return readinessCache("readiness", WATCHED_DATA_AGE_MS, checkReadiness);
    const message = "The worker is starting or stopping.";
    return { ready: false, reasons: [{ reason: "starting-or-stopping", subject: "worker", message }] };
  };
}

const UNREADABLE_STATE_REASON: NotReadyReason = {
  reason: "commit-failed",
  subject: "state",
  message: "The state cannot be read; the log says why.",
};
const DISK_FULL_REASON: NotReadyReason = {
  reason: "disk-full",
  subject: "state",
  message: "The disk that holds the state is full, or nearly; free some space.",
};

function notReadyReasonsOf({ sources, sinks, disk, now }: StatusHealth): readonly NotReadyReason[] {
  return [
    ...(isDiskFull(disk.free) ? [DISK_FULL_REASON] : []),
    ...sources.flatMap(latePollReasons),
    ...sinks.flatMap((sink) => blockedSinkReason(sink, Date.parse(now))),
  ];
}

/** Returns the progress of the first reading of all lists, during which polls without a success are not late. */
function firstInventoryNotes({ name, firstInventory }: SourceHealth): readonly string[] {
  const message = firstInventory?.message ?? null;
  return message === null ? [] : [`${name}: ${message}`];
}

function latePollReasons({ name, jobs, unavailable }: SourceHealth): readonly NotReadyReason[] {
  return jobs
    .filter(({ late }) => late)
    .map((job) => {
      const lastPollText = job.lastSuccess === null ? "there was none yet" : `the last was at ${job.lastSuccess}`;
      const isPollRefused = unavailable.some((unavailability) => unavailability.job === job.name);
      return {
        reason: "poll-late",
        subject: `source/${name}/${job.name}`,
        message: `A successful poll of ${name}, ${job.name}, was due by ${job.dueBy} at the latest, and ${lastPollText}.${isPollRefused ? " The service rejects it: give the token the permission, or switch the schedule off." : ""}`,
      };
    });
}

function blockedSinkReason({ name, state, since }: RunningSink, nowMs: number): readonly NotReadyReason[] {
  if (UNBLOCKED_SINK_STATES.includes(state) || nowMs - Date.parse(since) <= MAX_SINK_BLOCKED_MS) return [];
  const message = `The sink ${name} has accepted no events since ${since} (${state}); \`plenum status\` says why.`;
  return [{ reason: "sink-blocked", subject: `sink/${name}`, message }];
}

/** Priorities whose metric is 0 without alarms, because an absent metric means unknown. */
const ALARM_PRIORITIES = ["A", "B", "C"];

/** Sets the gauges before each scrape. A gauge with an unknown value is left out, because 0 would be wrong. */
export async function refreshMetricGauges(options: {
  readonly status: Pick<Status, "health" | "sinks">;
  readonly metrics: Metrics;
  readonly log: Pick<Log, "warn">;
}): Promise<void> {
  const { status, metrics, log } = options;
  let healthAndSinks: readonly [StatusHealth, readonly SinkReport[]] | null = null;
  try {
    healthAndSinks = await Promise.all([status.health(), status.sinks()]);
  } catch (error) {
    log.warn(
      { err: error },
      "the status could not be read for a metrics scrape; metrics with unknown values are left out",
    );
  }
  const { outboxDepth, outboxDepthExact, outboxOldestAge, alarmsActive, pollDue, tagsLeftOut, tokenExpiry } = metrics;
  const sinkGauges = [outboxDepth, outboxDepthExact, outboxOldestAge];
  for (const gauge of [...sinkGauges, alarmsActive, pollDue, tagsLeftOut, tokenExpiry]) gauge.reset();
  metrics.writesStopped.remove();
  if (healthAndSinks === null) return;
  const [{ commands, disk, now, sources }, sinks] = healthAndSinks;
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
  const leftOutTagCounts = counts?.tagsWithoutValue ?? null;
  if (leftOutTagCounts !== null) {
    metrics.tagsLeftOut.set({ source, kind: "unreadable" }, leftOutTagCounts.unreadable);
    metrics.tagsLeftOut.set({ source, kind: "unanswered" }, leftOutTagCounts.unanswered);
  }
  if (token?.expiresAt) metrics.tokenExpiry.set({ source }, Date.parse(token.expiresAt) / 1_000);
  for (const { name: job, lastSuccess, dueBy } of jobs) {
    if (dueBy !== null) metrics.pollDue.set({ source, job }, Date.parse(dueBy) / 1_000);
    if (lastSuccess === null) metrics.pollSuccess.remove({ source, job });
    else metrics.pollSuccess.set({ source, job }, Date.parse(lastSuccess) / 1_000);
  }
  if (counts === null || !(alarms.state === "whole" || alarms.state === "part")) return;
  const zeroAlarmCounts = alarms.state === "whole" ? ALARM_PRIORITIES.map((priority) => [priority, 0] as const) : [];
  for (const id of counts.siteIds) {
    for (const [priority, count] of new Map([...zeroAlarmCounts, ...(counts.activeAlarms.get(id) ?? [])]))
      metrics.alarmsActive.set({ source, site: String(id), priority }, count);
  }
}

/** Joins metric texts so that each metric family is declared once, followed by its samples from all texts. */
export function joinMetricTexts(texts: readonly string[]): string {
  const metricFamilies = new Map<string, { readonly head: string[]; readonly samples: string[] }>();
  for (const text of texts) {
    let familyName = "";
    let isNewFamily = false;
    for (const line of text.split("\n")) {
      if (line === "") continue;
      const [, name] = /^# (?:HELP|TYPE) (\S+)/.exec(line) ?? [];
      if (name !== undefined && name !== familyName) {
        familyName = name;
        isNewFamily = !metricFamilies.has(name);
        if (isNewFamily) metricFamilies.set(name, { head: [], samples: [] });
      }
      if (name === undefined) metricFamilies.get(familyName)?.samples.push(line);
      else if (isNewFamily) metricFamilies.get(familyName)?.head.push(line);
    }
  }
  const lines = [...metricFamilies.values()].flatMap(({ head, samples }) =>
    samples.length === 0 ? [] : [...head, ...samples],
  );
  return `${lines.join("\n")}\n`;
}
