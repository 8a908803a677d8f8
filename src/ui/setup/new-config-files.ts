import { lstatSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, isAbsolute, resolve } from "node:path";
import { ConfigError } from "../../core/errors/errors.ts";

/** Throws ConfigError if something exists at the path, including a broken link. */
export function refuseExistingFile(file: string, cliOption: string | null): void {
  try {
    lstatSync(file);
  } catch {
    return;
  }
  const hint = cliOption === null ? "Move it away." : `Name another file with ${cliOption}, or move that one away.`;
  throw new ConfigError(`${file} exists already, and nothing is overwritten.`, { hint });
}

interface NewFile {
  readonly file: string;
  readonly text: string;
  readonly option: string | null;
}

/** Writes the configuration and the token, which only its owner can read: both files or neither. */
export function writeNewFiles(config: NewFile, token: NewFile | null): void {
  refuseExistingFile(config.file, config.option);
  if (token !== null) writeNewFile(token, 0o600);
  try {
    writeNewFile(config, 0o644);
  } catch (error) {
    if (token !== null) rmSync(token.file, { force: true });
    throw error;
  }
}

function writeNewFile({ file, text, option }: NewFile, mode: number): void {
  try {
    mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
    writeFileSync(file, text, { flag: "wx", mode });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // EEXIST also occurs if a parent folder is a file; then `refuseExistingFile` throws nothing.
    if (code === "EEXIST") refuseExistingFile(file, option);
    throw new ConfigError(`${file} cannot be written (${code}).`, {
      hint: option === null ? "Start Plenum where it may write." : `Name another file with ${option}.`,
      cause: error,
    });
  }
}

/** Returns the path to write in the configuration: relative only if that file is in the working directory. */
export function pathInConfig(configFile: string, path: string, base: string = process.cwd()): string {
  const configFolder = dirname(resolve(base, configFile));
  return isAbsolute(path) || configFolder === resolve(base) ? path : resolve(base, path);
}

export function pathNextToConfig(configFile: string, name: string, base: string = process.cwd()): string {
  const configFolder = dirname(resolve(base, configFile));
  return configFolder === resolve(base) ? name : resolve(configFolder, name);
}
