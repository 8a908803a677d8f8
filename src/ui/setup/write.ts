import { lstatSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, isAbsolute, resolve } from "node:path";
import { ConfigError } from "../../core/errors/errors.ts";

/** Throws ConfigError where something is at this path, a link to nothing included: nothing is ever overwritten. */
export function refuseExisting(file: string, option: string | null): void {
  if (isThere(file)) throw existing(file, option);
}

/** False also for a path that cannot lead to a file, such as one below a file: writing it says why. */
function isThere(file: string): boolean {
  try {
    lstatSync(file);
    return true;
  } catch {
    return false;
  }
}

function existing(file: string, option: string | null): ConfigError {
  const hint = option === null ? "Move it away." : `Name another file with ${option}, or move that one away.`;
  return new ConfigError(`${file} exists already, and nothing is overwritten.`, { hint });
}

interface NewFile {
  readonly file: string;
  readonly text: string;
  /** The option that names it; null where there is none. */
  readonly option: string | null;
}

/**
 * Writes a configuration, and before it the token where that is new: for its owner only, so are the folders that are
 * made for it. Both or neither.
 */
export function writeSetup(config: NewFile, token: NewFile | null): void {
  refuseExisting(config.file, config.option);
  if (token === null) {
    writeNew(config, 0o644);
    return;
  }
  writeNew(token, 0o600);
  try {
    writeNew(config, 0o644);
  } catch (error) {
    rmSync(token.file, { force: true });
    throw error;
  }
}

function writeNew({ file, text, option }: NewFile, mode: number): void {
  try {
    mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
    writeFileSync(file, text, { flag: "wx", mode });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // A folder on the way to it may be a file, which is EEXIST as well.
    if (code === "EEXIST" && isThere(file)) throw existing(file, option);
    throw new ConfigError(`${file} cannot be written (${code}).`, {
      hint: option === null ? "Start Plenum where it may write." : `Name another file with ${option}.`,
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

/** Files and folders next to a configuration: its state, events and secrets. */
export function besideConfig(configFile: string, name: string, base: string = process.cwd()): string {
  const folder = dirname(resolve(base, configFile));
  return folder === resolve(base) ? name : resolve(folder, name);
}
