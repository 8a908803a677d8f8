import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Command } from "commander";
import { ConfigError } from "../../core/errors/errors.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { VERSION } from "../../core/runtime/version.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { toPrintableJson } from "../../core/values/printable-text.ts";
import type { CliContext } from "../shell/command-context.ts";
import { DEFAULT_STATE_FOLDER, findWorkerState, readStateSectionLeniently } from "../shell/find-worker.ts";
import { omitMissingLines } from "../shell/terminal-output.ts";
import { inspectConfiguration } from "./configuration-findings.ts";
import { type DoctorFindings, type DoctorReport, diagnoseProblems } from "./likely-problems.ts";
import { describeMachine, inspectStateFolder, readDiskSpaces } from "./local-findings.ts";
import { maskText } from "./mask-config.ts";
import { inspectWorker, probeServers } from "./worker-and-service-findings.ts";

/** Defines `plenum doctor`, which works with a broken configuration, state or worker. */
export function defineCommand(command: Command, context: CliContext): void {
  command
    .option("--to <folder>", "where the file is written", ".")
    .option("--log <file>", "take the end of this log file along; a running worker's is taken anyway")
    .addHelpText(
      "after",
      "\nThe file is for its owner only and holds no secret: neither tokens and passwords nor what looks like one. It\n" +
        "does name sites, tags, sinks and addresses of servers. Nothing is sent anywhere.\n\n" +
        "Examples:\n  plenum doctor\n  plenum doctor --log /var/log/plenum/plenum.log",
    )
    .action(async (options: { readonly to: string; readonly log?: string }) => {
      const terminal = context.terminal();
      const { configFile, signal } = context;
      const { log: logFile = null } = options;
      const report = await terminal.progress("Looking around", (update) =>
        createDoctorReport({ configFile: configFile(), environment: process.env, logFile, signal, update }),
      );
      const file = writeDoctorReport(options.to, report);
      terminal.print({ file, troubles: report.troubles }, formatDoctorReport(file, report));
    });
}

function writeDoctorReport(folder: string, report: DoctorReport): string {
  const file = join(folder, `plenum-doctor-${report.madeAt.replaceAll(/[:.]/g, "-")}.json`);
  try {
    // The flag `wx` never overwrites a file and never follows a link.
    writeFileSync(file, `${toPrintableJson(JSON.stringify(report, null, 2))}\n`, { flag: "wx", mode: 0o600 });
    return file;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const hint = "Name a folder that you may write with --to.";
    throw new ConfigError(`${file} cannot be written (${code}).`, { hint, cause: error });
  }
}

const MAX_PRINTED_PROBLEMS = 10;

function formatDoctorReport(file: string, { troubles }: DoctorReport): readonly string[] {
  const [firstProblem, ...otherProblems] = troubles;
  const unlistedProblemCount = otherProblems.length - MAX_PRINTED_PROBLEMS;
  return omitMissingLines(
    firstProblem === undefined ? "Nothing is wrong, as far as can be seen from here." : `Most likely: ${firstProblem}`,
    otherProblems.length > 0 && "Also:",
    ...otherProblems.slice(0, MAX_PRINTED_PROBLEMS).map((trouble) => `- ${trouble}`),
    unlistedProblemCount > 0 && `- and ${unlistedProblemCount} more, in the file`,
    `All that support would ask for is in ${file}; it holds no secret.`,
  );
}

interface DoctorReportInputs {
  readonly configFile: string;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly logFile: string | null;
  readonly signal: AbortSignal;
  readonly update: (progressText: string) => void;
}

const MAX_LOG_LINES = 300;
const MAX_LOG_LINE_LENGTH = 2_000;
const MAX_LOG_BYTES = 1024 ** 2;

async function createDoctorReport(options: DoctorReportInputs): Promise<DoctorReport> {
  const { configFile, environment, signal, update } = options;
  const { findings: configuration, config: validConfig } = inspectConfiguration(configFile, environment);
  const { config, stateFolder } =
    validConfig === null
      ? await findConfigFromWorker(options)
      : { config: validConfig, stateFolder: validConfig.state.folder };
  update("Looking at the state");
  const disks = readDiskSpaces(stateFolder);
  const state = await inspectStateFolder(stateFolder, Object.keys(config?.sources ?? {}));
  update("Asking the worker");
  const worker = await inspectWorker(stateFolder, config, signal);
  update("Asking sources and sinks");
  const reach = config === null ? null : await probeServers(config, signal);
  const log = options.logFile === null ? null : readLogFileEnd(options.logFile);
  const findings: DoctorFindings = { configuration, disks, state, worker, reach, log };
  return {
    format: "plenum-doctor/1",
    madeAt: isoUtc(systemClock.now()),
    troubles: diagnoseProblems(findings).map(maskText),
    program: { version: VERSION },
    machine: describeMachine(),
    ...maskSecrets(findings),
  };
}

/** For an invalid file: returns the configuration that the running worker accepted last, or only a state folder. */
async function findConfigFromWorker({ configFile, environment, signal }: DoctorReportInputs) {
  const { running, folders } = await findWorkerState(configFile, environment, signal);
  const [worker] = running;
  if (worker !== undefined) return { config: worker.config, stateFolder: worker.config.state.folder };
  const configuredStateFolder = readStateSectionLeniently(configFile, environment).folder;
  return { config: null, stateFolder: folders[0] ?? configuredStateFolder ?? DEFAULT_STATE_FOLDER };
}

function readLogFileEnd(file: string): NonNullable<DoctorReport["log"]> {
  try {
    const logLines = readFileSync(file).subarray(-MAX_LOG_BYTES).toString("utf8").trimEnd().split("\n");
    return { file, lines: logLines.slice(-MAX_LOG_LINES).map((line) => line.slice(0, MAX_LOG_LINE_LENGTH)) };
  } catch (error) {
    throw new ConfigError(`The log file ${file} cannot be read.`, { cause: error });
  }
}

function maskSecrets<T>(value: T): T {
  const maskValue = (nestedValue: unknown): unknown => {
    if (typeof nestedValue === "string") return maskText(nestedValue);
    if (Array.isArray(nestedValue)) return nestedValue.map(maskValue);
    if (typeof nestedValue !== "object" || nestedValue === null) return nestedValue;
    return Object.fromEntries(
      Object.entries(nestedValue).map(([key, innerValue]) => [maskText(key), maskValue(innerValue)]),
    );
  };
  return maskValue(value) as T;
}
