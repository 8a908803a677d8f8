import { lstatSync, mkdirSync, writeFileSync } from "node:fs";
import { dirname, isAbsolute, resolve } from "node:path";
import { ConfigError } from "../errors.ts";

/** Throws ConfigError where something is at this path, a link to nothing included: nothing is ever overwritten. */
export function refuseExisting(file: string, option: string): void {
  if (lstatSync(file, { throwIfNoEntry: false }) === undefined) return;
  throw existing(file, option);
}

function existing(file: string, option: string): ConfigError {
  return new ConfigError(`${file} exists already, and nothing is overwritten.`, {
    hint: `Name another file with ${option}, or move that one away.`,
  });
}

/** Writes a file that is not there yet; the folders above it are made for their owner only. */
export function writeNew(file: string, text: string, mode: number, option: string): void {
  try {
    mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
    writeFileSync(file, text, { flag: "wx", mode });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EEXIST") throw existing(file, option);
    throw new ConfigError(`${file} cannot be written (${code}).`, {
      hint: `Name another file with ${option}.`,
      cause: error,
    });
  }
}

/**
 * How a path is written into a configuration. A relative one starts from the folder in which Plenum is started, so it
 * stays one only where that is the configuration's own.
 */
export function pathFor(configFile: string, path: string, base: string = process.cwd()): string {
  const folder = dirname(resolve(base, configFile));
  return isAbsolute(path) || folder === resolve(base) ? path : resolve(base, path);
}

/** What is made beside a configuration: its state, its events, its secrets. */
export function besideConfig(configFile: string, name: string, base: string = process.cwd()): string {
  const folder = dirname(resolve(base, configFile));
  return folder === resolve(base) ? name : resolve(folder, name);
}
