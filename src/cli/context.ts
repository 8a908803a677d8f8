import { InvalidArgumentError } from "commander";
import type { Config } from "../config/config.ts";
import type { Reader } from "../operator/remote.ts";
import type { Page } from "../source/source.ts";
import type { Terminal } from "./terminal.ts";

/** What every command is handed; made once in main.ts from the global options. */
export interface CliContext {
  terminal(): Terminal;
  configFile(): string;
  config(): Config;
  /** Aborts on Ctrl-C. */
  readonly signal: AbortSignal;
  /**
   * Lends the service to `use`: the running worker's own connection when there is a worker, otherwise one of our
   * own, with the state folder locked, so that the quota is counted in one place only.
   */
  withReader<T>(
    source: string | undefined,
    use: (reader: Reader, signal: AbortSignal, timeZone: string) => Promise<T>,
  ): Promise<T>;
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
