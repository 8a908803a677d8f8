import { MAX_CLOCK_DIFFERENCE_MS } from "../../core/runtime/clock-check.ts";
import { valueOr } from "../../core/values/value-or.ts";
import { omitMissingLines } from "../shell/terminal-output.ts";
import type { ConfigurationFindings } from "./configuration-findings.ts";
import { type DiskSpace, isMachineClockBehind, type StateFindings } from "./local-findings.ts";
import type { ServerProbeResult, WorkerFindings } from "./worker-and-service-findings.ts";

export interface DoctorReport {
  readonly format: "plenum-doctor/1";
  readonly madeAt: string;
  readonly troubles: readonly string[];
  readonly program: Readonly<Record<string, unknown>>;
  readonly machine: Readonly<Record<string, unknown>>;
  readonly disks: readonly DiskSpace[];
  readonly configuration: ConfigurationFindings;
  readonly state: StateFindings;
  readonly worker: WorkerFindings;
  /** Result of a request to each server; null without a usable configuration. */
  readonly reach: readonly ServerProbeResult[] | null;
  readonly log: { readonly file: string; readonly lines: readonly string[] } | null;
}

export type DoctorFindings = Omit<DoctorReport, "format" | "madeAt" | "troubles" | "program" | "machine">;

/** Lists problems, the likely causes first: a failed start, then this machine, then the servers. */
export function diagnoseProblems(findings: DoctorFindings): readonly string[] {
  const problems = [
    ...diagnoseConfiguration(findings),
    ...diagnoseState(findings),
    ...diagnoseDisks(findings),
    ...diagnoseClock(findings),
    ...diagnoseWorker(findings),
    ...diagnoseReachability(findings),
    ...diagnoseTokenAccess(findings),
    ...listWorkerWarnings(findings),
  ];
  return [...new Set(problems)];
}

/** A disk with fewer free bytes counts as full, because the write-ahead log alone can take 16 MiB. */
const MIN_FREE_DISK_BYTES = 64 * 1024 ** 2;
const MEBIBYTE_BYTES = 1024 ** 2;

function* diagnoseConfiguration({ configuration }: DoctorFindings): Generator<string> {
  const { file, found, problems, secrets } = configuration;
  const [firstProblem = "", ...otherProblems] = problems;
  const moreText = otherProblems.length === 0 ? "" : ` (${otherProblems.length} more; \`plenum check\` shows them all)`;
  if (found === "missing")
    yield `There is no configuration at ${file}: name the one that the worker uses with --config, or make one with plenum init.`;
  if (found === "unreadable") yield `The configuration cannot be read: ${firstProblem}`;
  if (found === "wrong")
    yield `A worker does not start with this configuration; correct it: ${firstProblem}${moreText}`;
  if (found === "good") for (const problem of secrets) yield `A secret cannot be used: ${problem}`;
}

function* diagnoseState({ state: { folder, found, problems } }: DoctorFindings): Generator<string> {
  const [firstProblem = ""] = problems;
  if (found === "damaged")
    yield `The state in ${folder} is damaged: restart the worker, which quarantines the damaged data and continues (\`plenum state check\` says more). ${firstProblem}`;
  else if (found === "unusable") yield `The state in ${folder} cannot be used: ${firstProblem}`;
  else yield* problems;
}

function* diagnoseDisks({ disks }: DoctorFindings): Generator<string> {
  for (const { where, freeBytes, freeFiles } of disks)
    if (freeBytes !== null && freeBytes < MIN_FREE_DISK_BYTES)
      yield `The disk of the ${where} has only ${Math.floor(freeBytes / MEBIBYTE_BYTES)} MiB left, so Plenum cannot store or send new events: free some space.`;
    // File systems without a limit on the number of files report 0.
    else if (freeFiles !== null && freeFiles > 0 && freeFiles < 100)
      yield `The disk of the ${where} has no room for more files, though it may have space: remove some files.`;
}

function diagnoseClock({ state: { content }, reach: reachResults }: DoctorFindings): readonly string[] {
  const serversWithClockSkew = (reachResults ?? []).filter(
    ({ clockSkewMs }) => clockSkewMs !== null && Math.abs(clockSkewMs) > MAX_CLOCK_DIFFERENCE_MS,
  );
  const clockProblems = serversWithClockSkew.map(
    ({ name, clockSkewMs }) =>
      `The clock of this machine is ${Math.round(Math.abs(clockSkewMs ?? 0) / 1_000)} s ${(clockSkewMs ?? 0) > 0 ? "ahead of" : "behind"} that of ${name}, so times are uncertain and Plenum rejects commands: correct the clock, preferably by NTP.`,
  );
  if (clockProblems.length > 0 || !isMachineClockBehind(content)) return clockProblems;
  return [
    "The clock of this machine is behind the time of the last stored event, so one of the two times is wrong: correct the clock, preferably by NTP.",
  ];
}

function diagnoseWorker({ worker: findings, state: { folder }, log }: DoctorFindings): readonly string[] {
  const { found, trouble, notReady, portTaken } = findings;
  if (found === "running") return notReady === null ? [] : [`The worker runs and is not ready: ${notReady}`];
  if (found !== "none") return trouble === null ? [] : [trouble];
  return omitMissingLines(
    portTaken !== null &&
      `Another program has the port of the status page (${portTaken}), so no worker can start: end it, or set status.port to another.`,
    `No worker is running on the state folder ${folder}: start it with \`plenum run\`, or name the configuration that it uses with --config.${lastLoggedErrorText(log)}`,
  );
}

const ERROR_LOG_LEVEL = 50;

function lastLoggedErrorText(log: DoctorFindings["log"]): string {
  const lastErrorLogLine = log?.lines.findLast((line) => {
    const { level } = parseLogLine(line);
    return typeof level === "number" && level >= ERROR_LOG_LEVEL;
  });
  if (lastErrorLogLine === undefined) return "";
  const { msg, err } = parseLogLine(lastErrorLogLine);
  const texts = [msg, (err as { message?: unknown } | undefined)?.message].filter((text) => typeof text === "string");
  return ` The last complaint in its log: ${texts.join(": ")}`;
}

const parseLogLine = (line: string): Readonly<Record<string, unknown>> =>
  valueOr(() => JSON.parse(line) as Record<string, unknown>, {});

function diagnoseReachability({ reach: reachResults }: DoctorFindings): readonly string[] {
  const remoteResults = (reachResults ?? []).filter(({ by }) => by !== "file" && by !== "stdout");
  const unreachable = remoteResults.filter(({ answers }) => !answers);
  // If no server at all can be reached, the cause is this machine's network.
  if (unreachable.length > 1 && unreachable.length === remoteResults.length && unreachable.every(isServerUnreachable))
    return [
      `None of ${unreachable.map(({ name }) => name).join(", ")} can be reached, so look at this machine's network first: cable, name lookup (DNS), proxy, firewall. ${unreachable[0]?.reason ?? ""}`,
    ];
  const failedProbes = (reachResults ?? []).filter(({ answers }) => !answers);
  return failedProbes.toSorted((a, b) => rankServerFailure(a) - rankServerFailure(b)).map(failedProbeText);
}

/** Returns true for a server without any response; a refusal is a response. */
function isServerUnreachable({ kind, reason }: ServerProbeResult): boolean {
  return kind === "retryable" && /ENOTFOUND|EAI_AGAIN|ENETUNREACH|EHOSTUNREACH|ETIMEDOUT|within/.test(reason ?? "");
}

/** Ranks failures: database, sources, sinks; configuration errors before temporary failures. */
function rankServerFailure({ what, kind }: ServerProbeResult): number {
  return { database: -2, source: 0, sink: 2 }[what] + (kind === "config" ? 0 : 1);
}

const SERVER_KIND_LABELS = { database: "State database", source: "Source", sink: "Sink" } as const;

function failedProbeText({ what, name, kind, reason }: ServerProbeResult): string {
  return `${SERVER_KIND_LABELS[what]} ${name} ${kind === "config" ? "rejects the request" : "does not respond"}: ${reason}`;
}

function diagnoseTokenAccess({ state: { content }, reach: reachResults }: DoctorFindings): readonly string[] {
  return (content?.lost ?? [])
    .filter(({ source, what }) => {
      const token = (reachResults ?? []).find(
        (probeResult) => probeResult.what === "source" && probeResult.name === source,
      )?.token;
      return !token?.abilities.includes(what) && !token?.siteIds.map(String).includes(what);
    })
    .map(({ source, what, since }) =>
      /^\d+$/.test(what)
        ? `The token of ${source} does not see site ${what} any more since ${since}: have the service give it back, or take the site out of the configuration.`
        : `The token of ${source} may not ${what} any more since ${since}: have the service give the ability back, or switch off what needs it.`,
    );
}

/** Lists warnings of the running worker, except about sinks that `reach` reports as unreachable. */
function listWorkerWarnings({ worker: { report }, reach: reachResults }: DoctorFindings): readonly string[] {
  const unreachableSinks = (reachResults ?? []).filter(({ what, answers }) => what === "sink" && !answers);
  return (report?.notices ?? []).filter(
    (notice) => !unreachableSinks.some(({ name }) => notice.startsWith(`${SERVER_KIND_LABELS.sink} ${name}: `)),
  );
}
