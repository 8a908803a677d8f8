import type { Command } from "commander";
import type { Config } from "../../app/config/config.ts";
import { toPageConfig } from "../../app/status-page-settings.ts";
import { Rejected, Retryable } from "../../core/errors/errors.ts";
import { invalidConfigNotice } from "../../core/model/config-change-report.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { VERSION } from "../../core/runtime/version.ts";
import { formatCount } from "../../core/values/plural.ts";
import type { ActiveLocks } from "../../engine/commands/write-locks.ts";
import type { Store } from "../../engine/store/store.ts";
import type { FleetStatus } from "../../scale/fleet/fleet-status.ts";
import { readFleetStatus } from "../../scale/fleet/fleet-status.ts";
import { type FoundWorker, requestNotReadyReason, requestStatus } from "../../ui/operator/control-socket-client.ts";
import type { CountReliability, JobReport } from "../../ui/status/job-reports.ts";
import { backlogText, type SinkReport } from "../../ui/status/sink-reports.ts";
import type { SourceReport } from "../../ui/status/source-reports.ts";
import { createStatus, type StatusReport } from "../../ui/status/status-report.ts";
import type { CliContext } from "../shell/command-context.ts";
import { findLocalFleetMembers, findWorkerOfConfig, oldConfigInUseText } from "../shell/find-worker.ts";
import { readState, useStateDatabase } from "../shell/open-worker-state.ts";
import { omitMissingLines } from "../shell/terminal-output.ts";

export function defineCommand(command: Command, context: CliContext): void {
  command
    .option("--probe", "print nothing; exit 0 if a worker is alive and ready (for health checks)")
    .addHelpText(
      "after",
      "\nExits 75 when a worker is there and does not answer; `--probe` exits 1 when none is running.\n\nExample:\n  plenum status --json",
    )
    .action(async (options: { readonly probe?: boolean }) => {
      const { config, fileProblems } = await context.readAcceptedConfig();
      const foundWorker = await findWorkerOfConfig({ config }, context.signal);
      if (options.probe === true) return probeReadiness(foundWorker, context.signal);
      const configFileWarnings = fileProblems === null ? [] : [oldConfigInUseText(context.configFile(), fileProblems)];
      if (config.state.postgres !== undefined) return showFleetStatus(context, config, configFileWarnings);
      const { report: workerReport, failure } = await readStatusReport(foundWorker, config, context.signal);
      const report = addConfigFileWarnings(configFileWarnings, workerReport);
      context.terminal().print(report, statusReportLines(report, failure !== null));
      // The printed report is from the stored state and may be outdated; the exit code shows this.
      if (failure !== null) throw failure;
    });
}

async function probeReadiness(foundWorker: FoundWorker, signal: AbortSignal): Promise<void> {
  if (foundWorker.kind === "none") throw new Rejected("No worker is running on this state folder.");
  if (foundWorker.kind === "silent") throw foundWorker.failure;
  const reason = await requestNotReadyReason(foundWorker.socket, signal);
  if (reason !== null) throw new Retryable(`The worker is not ready. ${reason}`);
}

async function readStatusReport(
  foundWorker: FoundWorker,
  config: Config,
  signal: AbortSignal,
): Promise<{ readonly report: StatusReport; readonly failure: Retryable | null }> {
  let failure = foundWorker.kind === "silent" ? foundWorker.failure : null;
  try {
    if (foundWorker.kind === "open") return { report: await requestStatus(foundWorker.socket, signal), failure };
  } catch (error) {
    if (!(error instanceof Retryable)) throw error;
    failure = error;
  }
  return { report: await readState({ config }, (store) => statusReportFromState(store, config)), failure };
}

/** Adds warnings about the configuration file. They replace the worker's own warning about the same file. */
function addConfigFileWarnings(fileWarnings: readonly string[], report: StatusReport): StatusReport {
  const { configuration, notices } = report;
  if (fileWarnings.length === 0) return report;
  const problems = configuration?.refused ?? null;
  const workerConfigNotice =
    configuration === null || problems === null ? null : invalidConfigNotice(configuration.file, problems);
  return { ...report, notices: [...fileWarnings, ...notices.filter((notice) => notice !== workerConfigNotice)] };
}

async function showFleetStatus(context: CliContext, config: Config, fileWarnings: readonly string[]): Promise<void> {
  const terminal = context.terminal();
  const fleet = await useStateDatabase(config, (database) =>
    readFleetStatus(database, null, Object.keys(config.sources)),
  );
  const localMembers = await findLocalFleetMembers(config.state, context.signal);
  const memberReports = await Promise.all(
    localMembers.flatMap((member) => (member.kind === "open" ? requestStatus(member.socket, context.signal) : [])),
  );
  const reports = memberReports.map((report) => addConfigFileWarnings(fileWarnings, report));
  terminal.print({ fleet, members: reports }, [
    ...fileWarnings.map((warning) => `! ${warning}`),
    ...fleetStatusLines(fleet),
    ...reports.flatMap((report) => [
      "",
      `Member ${report.member ?? ""}, on this machine:`,
      ...statusReportLines(report, false),
    ]),
    ...(reports.length === 0 ? ["", "No member runs on this machine."] : []),
  ]);
  for (const foundMember of localMembers) if (foundMember.kind === "silent") throw foundMember.failure;
}

function fleetStatusLines({ members, sources }: FleetStatus): readonly string[] {
  const sourcesWithoutMember = sources.filter(({ holder }) => holder === null).map(({ source }) => source);
  return omitMissingLines(
    ...members.map(({ name, state, host, sources: count, page, seenAt }) => {
      const memberContactText = state === "alive" && page !== "" ? `, ${page}` : `, last heard of at ${seenAt}`;
      return `Member ${name} on ${host}: ${state}, ${formatCount(count, "source")}${memberContactText}`;
    }),
    sourcesWithoutMember.length > 0 && `! No member polls ${sourcesWithoutMember.join(", ")}.`,
  );
}

export function statusReportLines(report: StatusReport, isWorkerSilent: boolean): readonly string[] {
  const noWorkerText = isWorkerSilent ? "A worker is there and does not answer" : "No worker is running";
  return [
    report.startedAt === null
      ? `${noWorkerText}; this is what the state remembers.`
      : `Running since ${report.startedAt}.`,
    ...report.notices.map((notice) => `! ${notice}`),
    ...report.sources.flatMap(sourceStatusLines),
    ...report.sinks.map(sinkStatusLine),
    ...activeLockLines(report.commands?.locks),
    `state ${report.store.file}, ${(report.store.bytes / 1_048_576).toFixed(1)} MiB`,
  ];
}

function activeLockLines(locks: ActiveLocks | undefined): readonly string[] {
  if (locks === undefined || locks.nextEnd === null) return [];
  return [
    `writing: ${formatCount(locks.count, "active lock")}, next end ${locks.nextEnd}; \`plenum writes\` lists them`,
  ];
}

function sourceStatusLines(source: SourceReport): readonly string[] {
  const { name, counts, readings, token, health, history, quota, jobs, firstInventory } = source;
  const countTexts = [
    formatReliableCount(readings.sites, counts.sites, "sites"),
    formatReliableCount(readings.tags, counts.tags, "tags"),
    counts.values === 0 ? "no value read yet" : `${counts.values} values`,
    formatGatewayCounts(source),
    formatReliableCount(readings.alarms, counts.alarms, "active alarms"),
  ];
  const tokenExpiryText = token?.expiresAt ? ` expires ${token.expiresAt}` : "";
  return omitMissingLines(
    `source ${name}: ${countTexts.join(", ")}`,
    firstInventory?.message == null ? null : `  ${firstInventory.message}`,
    token === null ? "  token: not known yet" : `  token "${token.name}"${tokenExpiryText}`,
    health !== null &&
      `  the service's own health check says: ${health.status}${health.time === null ? "" : `, at ${health.time}`} (asked at ${health.askedAt})`,
    history !== null &&
      `  history: ${history.complete} of ${history.series} series complete, emitted until ${history.toldUntil ?? "unknown"}`,
    quota === null && "  quota: unknown, only a running worker counts it",
    ...(quota?.buckets ?? []).map((bucket) => `  quota ${bucket.name}: ${bucket.used} of ${bucket.perMinute} used`),
    ...jobs.map(pollJobLine),
  );
}

function formatReliableCount({ state, at, storedCount }: CountReliability, count: number | null, noun: string): string {
  if (count !== null) return `${count} ${noun}`;
  switch (state) {
    case "off":
      return `${noun} not followed`;
    case "part":
      return `at least ${storedCount} ${noun} (a part of the list cannot be read)`;
    case "old":
      return `unknown ${noun} (${storedCount} at ${at})`;
    default:
      return storedCount === 0 ? `unknown ${noun} (never read)` : `${storedCount} ${noun} so far`;
  }
}

function formatGatewayCounts({ sites, readings }: SourceReport): string {
  const { state, storedCount } = readings.gateways;
  if (state !== "whole") return formatReliableCount(readings.gateways, null, "gateways");
  const onlineGateways = sites.reduce((sum, site) => sum + (site.gateways.online ?? 0), 0);
  const gatewaysWithUnknownState = sites.reduce((sum, site) => sum + site.gateways.unclear, 0);
  return `${onlineGateways} of ${storedCount} gateways online${gatewaysWithUnknownState === 0 ? "" : ` (${gatewaysWithUnknownState} do not say)`}`;
}

function pollJobLine({ name, lastSuccess, late, partly, problem }: JobReport): string {
  const pollStateText = `${partly ? " (in part)" : ""}${late ? " (late)" : ""}`;
  return `  job ${name}: last good poll ${lastSuccess ?? "never"}${pollStateText}${problem === null ? "" : `; ${problem}`}`;
}

function sinkStatusLine(sink: SinkReport): string {
  const { deadLetters, problem, remembered } = sink;
  const deadLettersText = deadLetters === null ? "dead letters unknown" : `${deadLetters} dead letters`;
  const sinkStateText = remembered === null || remembered === 0 ? "" : `, remembers ${remembered}`;
  const problemText = problem === null ? "" : `; ${problem}`;
  return `sink ${sink.sink}: ${sink.state}, lag ${backlogText(sink)}, ${deadLettersText}${sinkStateText}${problemText}`;
}

function statusReportFromState(store: Store, config: Config): Promise<StatusReport> {
  return createStatus({ version: VERSION, clock: systemClock, store, ...toPageConfig(config), live: null }).report();
}
