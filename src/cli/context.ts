import { type Command, InvalidArgumentError } from "commander";
import { buildSource } from "../build-source.ts";
import { systemClock } from "../clock.ts";
import { Config, type SourceEntry } from "../config/config.ts";
import { loadYaml } from "../config/load.ts";
import { ConfigError } from "../errors.ts";
import { createLog } from "../log.ts";
import { createMetrics } from "../metrics.ts";
import { openDoor, type Reader, remoteReader } from "../operator/remote.ts";
import type { Page } from "../source/source.ts";
import { openStore } from "../store/open.ts";
import { refuseUnverifiedTls } from "../verified-tls.ts";
import { createTerminal, type Terminal } from "./terminal.ts";

/** What every command is handed; made once in main.ts from the global options. */
export interface CliContext {
  terminal(): Terminal;
  configFile(): string;
  config(): Config;
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

export function createCliContext(program: Command, signal: AbortSignal): CliContext {
  const configFile = () => program.opts<{ config: string }>().config;
  const config = () => loadYaml({ schema: Config, file: configFile(), environment: process.env });
  return {
    signal,
    configFile,
    config,
    terminal: () => createTerminal({ json: program.opts().json === true }),
    async withReader(wanted, use) {
      refuseUnverifiedTls();
      const settings = config();
      const [name, entry] = choose(settings, wanted);
      const { folder } = settings.state;
      const door = await openDoor(folder, signal);
      if (door !== null) return use(remoteReader(door, name), signal, entry.time_zone);
      const store = await openStore({ folder, clock: systemClock });
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
