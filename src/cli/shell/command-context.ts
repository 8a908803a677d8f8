import { once } from "node:events";
import { existsSync } from "node:fs";
import { type Command, InvalidArgumentError } from "commander";
import { Config, resolveNamesFilePaths, type SourceConfigEntry } from "../../app/config/config.ts";
import { loadYamlConfig } from "../../app/config/load.ts";
import { ConfigError, Retryable } from "../../core/errors/errors.ts";
import { refuseUnverifiedTls } from "../../core/http/verified-tls.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { createLog } from "../../core/runtime/log.ts";
import { parseDuration } from "../../core/values/duration.ts";
import type { ListPage } from "../../engine/source/source.ts";
import type { Store } from "../../engine/store/store.ts";
import { createSocketSourceReader, type SourceReader } from "../../ui/operator/control-socket-client.ts";
import { findRunningDemo, type RunningDemo } from "../demo/registry-of-running-demos.ts";
import { acceptedConfig, controlSocketOfWorker, oldConfigInUseText } from "./find-worker.ts";
import { readState, useAndClose } from "./open-worker-state.ts";
import { createTerminal, type Terminal } from "./terminal-output.ts";
import { readWorkerPointers } from "./worker-location-file.ts";

export type CliContext = ReturnType<typeof createCliContext>;

const COMMANDS_WITHOUT_DEMO = new Set(["demo", "init", "run", "schema", "simulate"]);

export function createCliContext(
  program: Command,
  commandName: string,
  signal: AbortSignal,
  allCommands: () => Promise<Command>,
) {
  const terminal = () => createTerminal({ json: program.opts().json === true, utc: program.opts().utc === true });
  let chosenFile: string | null = null;
  const configFile = () => {
    chosenFile ??= chooseConfigFile(program, commandName, terminal());
    return chosenFile;
  };
  const config = () => {
    const file = configFile();
    return resolveNamesFilePaths(loadYamlConfig({ schema: Config, file, environment: process.env }), file);
  };
  const readAcceptedConfig = () => acceptedConfig(configFile(), config, signal);
  return {
    signal,
    allCommands,
    configFile,
    config,
    /** Works like `acceptedConfig`, but returns the problems of a wrong file instead of printing a warning. */
    readAcceptedConfig,
    /** Returns the configuration; for a wrong file, warns and returns the configuration that the worker still uses. */
    async acceptedConfig(): Promise<Config> {
      const accepted = await readAcceptedConfig();
      if (accepted.fileProblems !== null) terminal().info(oldConfigInUseText(configFile(), accepted.fileProblems));
      return accepted.config;
    },
    terminal,
    isUtc: () => program.opts().utc === true,
    /** Reads through the running worker; without one, locks the state. Either way only one process counts the quota. */
    async withReader<T>(
      wantedSource: string | undefined,
      useReader: (reader: SourceReader, signal: AbortSignal, timeZone: string) => Promise<T>,
    ): Promise<T> {
      refuseUnverifiedTls();
      const loadedConfig = config();
      const [name, sourceConfig] = chooseSource(loadedConfig, wantedSource);
      const controlSocket = await controlSocketOfWorker({ config: loadedConfig, source: name }, signal);
      if (controlSocket !== null)
        return useReader(createSocketSourceReader(controlSocket, name), signal, sourceConfig.time_zone);
      const [{ openStore }, { buildSource }, { createMetrics }] = await Promise.all([
        import("../../engine/store/open.ts"),
        import("../../app/build-source.ts"),
        import("../../core/runtime/metrics.ts"),
      ]);
      const log = createLog({ level: "error" });
      return useAndClose(await openStore({ folder: loadedConfig.state.folder, clock: systemClock }), (store) => {
        const { source } = buildSource({
          name,
          sourceConfig,
          store,
          clock: systemClock,
          log,
          metrics: createMetrics(),
        });
        return useAndClose(source, () => useReader(source, signal, sourceConfig.time_zone));
      });
    },
  };
}

export interface SourceWithStore {
  readonly config: Config;
  readonly source: string;
  readonly sourceConfig: SourceConfigEntry;
  readonly store: Store;
}

export function readSourceFromState<T>(
  config: Config,
  wantedSource: string | undefined,
  useSource: (source: SourceWithStore) => Promise<T>,
): Promise<T> {
  const [source, sourceConfig] = chooseSource(config, wantedSource);
  return readState({ config, source }, (store) => useSource({ config, source, sourceConfig, store }));
}

/** Chooses the named file, then plenum.yaml, then the file of a running demo. */
function chooseConfigFile(program: Command, name: string, terminal: Terminal): string {
  const { config, demo } = program.opts<{ config: string; demo?: boolean }>();
  const isFileNamed = program.getOptionValueSource("config") !== "default" || process.env.PLENUM_CONFIG;
  if (demo === true) {
    if (COMMANDS_WITHOUT_DEMO.has(name)) throw new InvalidArgumentError(`plenum ${name} takes no --demo.`);
    const runningDemo = findRunningDemo();
    if (runningDemo !== null) return useDemoConfig(runningDemo);
    throw new Retryable("No demo is running.", { hint: "Start one in another terminal with `plenum demo`." });
  }
  if (isFileNamed || COMMANDS_WITHOUT_DEMO.has(name) || existsSync(config) || readWorkerPointers(config).length > 0)
    return config;
  const foundDemo = findRunningDemo();
  if (foundDemo === null) return config;
  terminal.info(`There is no ${config} here; this is about the demo that runs (${foundDemo.statusUrl}).`);
  return useDemoConfig(foundDemo);
}

function useDemoConfig({ config, environment }: RunningDemo): string {
  Object.assign(process.env, environment);
  return config;
}

export function chooseSource(config: Config, source: string | undefined): readonly [string, SourceConfigEntry] {
  const entries = Object.entries(config.sources);
  const sourceConfig =
    source === undefined && entries.length === 1 ? entries[0] : entries.find(([name]) => name === source);
  if (sourceConfig !== undefined) return sourceConfig;
  const sourceNames = Object.keys(config.sources).join(", ");
  throw new ConfigError(
    source === undefined
      ? `There are several sources; add --source and one of ${sourceNames}.`
      : `There is no source ${source}; known are: ${sourceNames}.`,
  );
}

export async function collectPageItems<T>(pages: AsyncIterable<ListPage<T>>): Promise<T[]> {
  return (await Array.fromAsync(pages)).flatMap(({ items }) => items);
}

export async function waitUntilAborted(signal: AbortSignal): Promise<void> {
  if (!signal.aborted) await once(signal, "abort");
}

export function parseInteger(text: string): number {
  if (!/^\d+$/.test(text)) throw new InvalidArgumentError("Write a whole number.");
  return Number(text);
}

/** Parses a duration such as `90s`; returns milliseconds. */
export function parsePositiveDuration(text: string): number {
  const durationMs = parseDuration(text);
  if (durationMs === null || durationMs <= 0) throw new InvalidArgumentError("Write a time such as 90s, 30m or 2h.");
  return durationMs;
}

/** Parses a time in ISO 8601; returns milliseconds since 1970. */
export function parseIsoTime(text: string): number {
  const timeMs = /^\d{4}-\d\d-\d\dT\d\d:\d\d/.test(text) ? Date.parse(text) : Number.NaN;
  if (Number.isNaN(timeMs)) throw new InvalidArgumentError("Write a time such as 2026-12-01T08:00:00+01:00.");
  return timeMs;
}
