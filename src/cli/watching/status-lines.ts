import type { JobReport } from "../../ui/status/job-report.ts";
import type { Reading } from "../../ui/status/reading.ts";
import type { StatusReport } from "../../ui/status/report.ts";
import { behind, type SinkReport } from "../../ui/status/sink-report.ts";
import type { SourceReport } from "../../ui/status/source-report.ts";

/** The status for a person. What is not known is called unknown. */
export function statusLines(report: StatusReport, workerIsSilent: boolean): readonly string[] {
  return [
    report.startedAt !== null
      ? `Running since ${report.startedAt}.`
      : workerIsSilent
        ? "A worker is there and does not answer; this is what the state remembers."
        : "No worker is running; this is what the state remembers.",
    ...report.notices.map((notice) => `! ${notice}`),
    ...report.sources.flatMap(sourceLines),
    ...report.sinks.map(sinkLine),
    `state ${report.store.file}, ${(report.store.bytes / 1_048_576).toFixed(1)} MiB`,
  ];
}

function sourceLines(source: SourceReport): readonly string[] {
  const { name, counts, readings, token, health, history, quota, jobs, firstInventory } = source;
  return [
    `source ${name}: ${[
      numberOf(readings.sites, counts.sites, "sites"),
      numberOf(readings.tags, counts.tags, "tags"),
      counts.values === 0 ? "no value read yet" : `${counts.values} values`,
      gatewaysOf(source),
      numberOf(readings.alarms, counts.alarms, "active alarms"),
    ].join(", ")}`,
    ...(firstInventory?.message == null ? [] : [`  ${firstInventory.message}`]),
    token === null
      ? "  token: not known yet"
      : `  token "${token.name}"${token.expiresAt === null ? "" : ` expires ${token.expiresAt}`}`,
    ...(health === null
      ? []
      : [
          `  the service's own health check says: ${health.status}${health.time === null ? "" : `, at ${health.time}`} (asked at ${health.askedAt})`,
        ]),
    ...(history === null
      ? []
      : [
          `  history: ${history.complete} of ${history.series} series complete, told until ${history.toldUntil ?? "unknown"}`,
        ]),
    ...(quota === null
      ? ["  quota: unknown, only a running worker counts it"]
      : quota.buckets.map(
          (allowance) => `  quota ${allowance.name}: ${allowance.used} of ${allowance.perMinute} used`,
        )),
    ...jobs.map(jobLine),
  ];
}

/** A number, or that it is not known and what was known last. */
function numberOf({ state, at, held }: Reading, count: number | null, noun: string): string {
  if (count !== null) return `${count} ${noun}`;
  switch (state) {
    case "off":
      return `${noun} not followed`;
    case "part":
      return `at least ${held} ${noun} (a part of the list cannot be read)`;
    case "old":
      return `unknown ${noun} (${held} at ${at})`;
    default:
      return held === 0 ? `unknown ${noun} (never read)` : `${held} ${noun} so far`;
  }
}

function gatewaysOf({ sites, readings }: SourceReport): string {
  const { state, held } = readings.gateways;
  if (state !== "whole") return numberOf(readings.gateways, null, "gateways");
  const online = sites.reduce((sum, site) => sum + (site.gateways.online ?? 0), 0);
  const unclear = sites.reduce((sum, site) => sum + site.gateways.unclear, 0);
  return `${online} of ${held} gateways online${unclear === 0 ? "" : ` (${unclear} do not say)`}`;
}

function jobLine({ name, lastSuccess, late, partly, problem }: JobReport): string {
  const mark = `${partly ? " (in part)" : ""}${late ? " (late)" : ""}`;
  return `  job ${name}: last good poll ${lastSuccess ?? "never"}${mark}${problem === null ? "" : `; ${problem}`}`;
}

function sinkLine(sink: SinkReport): string {
  const { deadLetters, problem, remembered } = sink;
  const refused = deadLetters === null ? "dead letters unknown" : `${deadLetters} dead letters`;
  const memory = remembered === null || remembered === 0 ? "" : `, remembers ${remembered}`;
  const trouble = problem === null ? "" : `; ${problem}`;
  return `sink ${sink.sink}: ${sink.state}, lag ${behind(sink)}, ${refused}${memory}${trouble}`;
}
