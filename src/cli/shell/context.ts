import { existsSync } from "node:fs";
import { type Command, InvalidArgumentError } from "commander";
import { Config, type SourceEntry } from "../../app/config/config.ts";
import { loadYaml } from "../../app/config/load.ts";
import { ConfigError, Retryable } from "../../core/errors/errors.ts";
import { refuseUnverifiedTls } from "../../core/http/verified-tls.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { createLog } from "../../core/runtime/log.ts";
import type { Page } from "../../engine/source/source.ts";
import { type Reader, remoteReader } from "../../ui/operator/remote.ts";
import { findDemo, type RunningDemo } from "../demo/running-demos.ts";
import { type AcceptedConfig, acceptedConfig, openDoorFor, usedInstead } from "./find-worker.ts";
import { pointersOf } from "./pointer.ts";
import { createTerminal, type Terminal } from "./terminal.ts";

/** What every command is handed; made once in main.ts from the global options. */
export interface CliContext {
  terminal(): Terminal;
  /** Whether times stay in UTC also for people. */
  utc(): boolean;
  configFile(): string;
  config(): Config;
  /**
   * The file's configuration, or, where the file is wrong, the one that its running worker accepted last. For commands
   * that have to work in both cases; says on standard error that the file is rejected.
   */
  acceptedConfig(): Promise<Config>;
  /** The same, for a command that says by itself that the file is rejected. */
  accepted(): Promise<AcceptedConfig>;
  /** The program with every command defined, which otherwise happens when one is called. */
  allCommands(): Promise<Command>;
  /** Aborts on Ctrl-C. */
  readonly signal: AbortSignal;
  /**
   * Lends the service to `use`: the running worker's own connection when there is a worker, otherwise one of our
   * own with the state folder locked, so that the quota is counted in one place only.
   */
  withReader<T>(
    source: string | undefined,
    use: (reader: Reader, signal: AbortSignal, timeZone: string) => Promise<T>,
  ): Promise<T>;
}

/** Commands that have nothing to do with a worker that runs. */
const WITHOUT_DEMO = new Set(["demo", "init", "run", "schema", "simulate"]);

export function createCliContext(
  program: Command,
  name: string,
  signal: AbortSignal,
  allCommands: () => Promise<Command>,
): CliContext {
  const terminal = () =>
    createTerminal({ json: program.opts().json === true, utc: program.opts().utc === true });
  let found: string | null = null;
  const configFile = () => {
    found ??= chosenConfig(program, name, terminal());
    return found;
  };
  const config = () => loadYaml({ schema: Config, file: configFile(), environment: process.env });
  const accepted = () => acceptedConfig(configFile(), config, signal);
  return {
    signal,
    allCommands,
    configFile,
    config,
    accepted,
    async acceptedConfig() {
      const found = await accepted();
      if (found.rejected !== null) terminal().say(usedInstead(configFile(), found.rejected));
      return found.config;
    },
    terminal,
    utc: () => program.opts().utc === true,
    async withReader(wanted, use) {
      refuseUnverifiedTls();
      const settings = config();
      const [name, entry] = choose(settings, wanted);
      const door = await openDoorFor({ config: settings, source: name }, signal);
      if (door !== null) return use(remoteReader(door, name), signal, entry.time_zone);
      // Most commands ask the worker, and need none of this.
      const [{ openStore }, { buildSource }, { createMetrics }] = await Promise.all([
        import("../../engine/store/open.ts"),
        import("../../app/build-source.ts"),
        import("../../core/runtime/metrics.ts"),
      ]);
      const store = await openStore({ folder: settings.state.folder, clock: systemClock });
      try {
        const log = createLog({ level: "error" });
        const { source } = buildSource({
          name,
          entry,
          store,
          clock: systemClock,
          log,
          metrics: createMetrics(),
        });
        try {
          return await use(source, signal, entry.time_zone);
        } finally {
          await source.close();
        }
      } finally {
        await store.close();
      }
    },
  };
}

/**
 * The configuration that was named; without a name plenum.yaml, and where there is none, that of the demo that runs. What
 * the demo's configuration is filled in with stands in this process's environment from then on.
 */
function chosenConfig(program: Command, name: string, terminal: Terminal): string {
  const { config, demo } = program.opts<{ config: string; demo?: boolean }>();
  const isNamed = program.getOptionValueSource("config") !== "default" || process.env.PLENUM_CONFIG;
  if (demo === true) {
    if (WITHOUT_DEMO.has(name)) throw new InvalidArgumentError(`plenum ${name} takes no --demo.`);
    const running = findDemo();
    if (running !== null) return useDemo(running);
    throw new Retryable("No demo is running.", { hint: "Start one in another terminal with `plenum demo`." });
  }
  // A worker whose file was removed counts before a demo.
  if (isNamed || WITHOUT_DEMO.has(name) || existsSync(config) || pointersOf(config).length > 0) return config;
  const running = findDemo();
  if (running === null) return config;
  terminal.say(`There is no ${config} here; this is about the demo that runs (${running.statusUrl}).`);
  return useDemo(running);
}

function useDemo({ config, environment }: RunningDemo): string {
  Object.assign(process.env, environment);
  return config;
}

/** The source that is meant: the one of this name, or the only one. */
export function choose(config: Config, wanted: string | undefined): readonly [string, SourceEntry] {
  const all = Object.entries(config.sources);
  const names = all.map(([name]) => name).join(", ");
  const found = wanted === undefined && all.length === 1 ? all[0] : all.find(([name]) => name === wanted);
  if (found !== undefined) return found;
  throw new ConfigError(
    wanted === undefined
      ? `There are several sources; add --source and one of ${names}.`
      : `There is no source ${wanted}; known are: ${names}.`,
  );
}

export async function collect<T>(pages: AsyncIterable<Page<T>>): Promise<T[]> {
  const all: T[] = [];
  for await (const page of pages) all.push(...page.items);
  return all;
}

export function integer(text: string): number {
  if (!/^\d+$/.test(text)) throw new InvalidArgumentError("Write a whole number.");
  return Number(text);
}
