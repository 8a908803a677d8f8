import { readFileSync } from "node:fs";
import type { Config } from "../../app/config/config.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { VERSION } from "../../core/runtime/version.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { DEFAULT_FOLDER, findState, lenientStateOf } from "../shell/accepted-config.ts";
import { lookAtConfiguration } from "./configuration.ts";
import { diskFacts, machineFacts } from "./machine.ts";
import { reachAll } from "./reach.ts";
import type { DoctorReport, Facts } from "./report.ts";
import { shownText } from "./shown-config.ts";
import { lookAtStateFolder } from "./state.ts";
import { troublesOf } from "./troubles.ts";
import { lookAtWorker } from "./worker.ts";

export interface GatherOptions {
  readonly configFile: string;
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** A log file whose end is taken along. */
  readonly logFile: string | null;
  readonly signal: AbortSignal;
  /** Says what is looked at now. */
  readonly update: (what: string) => void;
}

/** Of a log file the last so many lines, each this long at most, within its last so many bytes. */
const LOG_LINES = 300;
const LINE_LENGTH = 2_000;
const LOG_BYTES = 1024 ** 2;

/** Looks at everything, whatever is broken, and changes nothing. No text in it may be a credential. */
export async function gather(options: GatherOptions): Promise<DoctorReport> {
  const { configFile, environment, signal, update } = options;
  const { facts: configuration, config: own } = lookAtConfiguration(configFile, environment);
  const { config, stateFolder } = own === null ? await withoutFile(options) : ofConfig(own);
  update("Looking at the state");
  const disks = diskFacts(stateFolder);
  const state = await lookAtStateFolder(stateFolder, Object.keys(config?.sources ?? {}));
  update("Asking the worker");
  const worker = await lookAtWorker(stateFolder, config, signal);
  update("Asking sources and sinks");
  const reach = config === null ? null : await reachAll(config, signal);
  const log = options.logFile === null ? null : endOf(options.logFile);
  const facts: Facts = { configuration, disks, state, worker, reach, log };
  return {
    format: "plenum-doctor/1",
    madeAt: isoUtc(systemClock.now()),
    troubles: troublesOf(facts).map(shownText),
    program: { version: VERSION },
    machine: machineFacts(),
    ...withoutSecrets(facts),
  };
}

function ofConfig(config: Config) {
  return { config, stateFolder: config.state.folder };
}

/** Where the file is wrong, the configuration that its running worker accepted last; without one, at least the state. */
async function withoutFile({ configFile, environment, signal }: GatherOptions) {
  const { running, folders } = await findState(configFile, environment, signal);
  const [worker] = running;
  if (worker !== undefined) return ofConfig(worker.config);
  const said = lenientStateOf(configFile, environment).folder;
  return { config: null, stateFolder: folders[0] ?? said ?? DEFAULT_FOLDER };
}

function endOf(file: string): NonNullable<DoctorReport["log"]> {
  try {
    const lines = readFileSync(file).subarray(-LOG_BYTES).toString("utf8").trimEnd().split("\n");
    return { file, lines: lines.slice(-LOG_LINES).map((line) => line.slice(0, LINE_LENGTH)) };
  } catch (error) {
    throw new ConfigError(`The log file ${file} cannot be read.`, { cause: error });
  }
}

/** Every text once more, wherever it came from. */
function withoutSecrets<T>(value: T): T {
  const shown = (each: unknown): unknown => {
    if (typeof each === "string") return shownText(each);
    if (Array.isArray(each)) return each.map(shown);
    if (typeof each !== "object" || each === null) return each;
    return Object.fromEntries(Object.entries(each).map(([key, below]) => [shownText(key), shown(below)]));
  };
  return shown(value) as T;
}
