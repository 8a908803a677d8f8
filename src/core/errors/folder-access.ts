import { constants, existsSync, lstatSync, realpathSync } from "node:fs";
import { access, open, stat } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { asFailure, ConfigError, type Failure, Retryable } from "./errors.ts";
import { systemErrorCode } from "./local-machine-failure.ts";

const FOLDER_ERROR_HINTS: Readonly<Record<string, string>> = {
  EACCES: "Give the user that runs Plenum the right to write there.",
  EPERM: "Give the user that runs Plenum the right to write there.",
  EROFS: "The file system is read-only; choose a folder on a writable one.",
  ENOTDIR: "A part of the path is a file; choose another folder.",
  EEXIST: "A part of the path is a file; choose another folder.",
  EISDIR: "There is a folder where a file should be; choose another folder.",
  ELOOP: "A symbolic link stands where a file should be; remove it.",
  ENAMETOOLONG: "The path is too long; choose a shorter one.",
};

export function fileErrorToFailure(error: unknown, folder: string, fullDiskAdvice: string): Failure {
  const code = systemErrorCode(error);
  if (code === "") return asFailure(error);
  if (code === "ENOSPC" || code === "EDQUOT") {
    return new Retryable(`The disk below ${folder} is full (${code}).`, {
      hint: `${fullDiskAdvice}; the events wait.`,
      cause: error,
    });
  }
  const brokenLinkPath = findBrokenLink(folder);
  if (brokenLinkPath !== null) return brokenLinkError(brokenLinkPath, error);
  const hint = FOLDER_ERROR_HINTS[code];
  if (hint !== undefined) {
    return new ConfigError(`The files in ${folder} cannot be written (${code}).`, {
      field: "folder",
      hint,
      cause: error,
    });
  }
  return new Retryable(`The files in ${folder} could not be written (${code}).`, { cause: error });
}

/** Returns the broken symbolic link in a path or above it; null without one. Nothing can be created below such a link. */
export function findBrokenLink(path: string): string | null {
  const absolutePath = resolve(path);
  try {
    if (existsSync(absolutePath)) return null;
    if (lstatSync(absolutePath, { throwIfNoEntry: false })?.isSymbolicLink()) return absolutePath;
  } catch {
    return null;
  }
  return dirname(absolutePath) === absolutePath ? null : findBrokenLink(dirname(absolutePath));
}

function brokenLinkError(link: string, cause?: unknown): ConfigError {
  return new ConfigError(`${link} is a link that leads nowhere.`, {
    field: "folder",
    hint: "Make the folder that it leads to, or choose another folder.",
    cause,
  });
}

/** Resolves links as far as the path exists, so that two spellings of one folder are equal. */
export function resolveFolderLinks(path: string): string {
  const absolutePath = resolve(path);
  try {
    return realpathSync.native(absolutePath);
  } catch {
    return dirname(absolutePath) === absolutePath
      ? absolutePath
      : join(resolveFolderLinks(dirname(absolutePath)), basename(absolutePath));
  }
}

/** Writes new and renamed files of a folder to disk, so that they survive a power cut. */
export async function syncFolder(folder: string): Promise<void> {
  await using folderHandle = await open(folder, constants.O_RDONLY);
  await folderHandle.sync();
}

/** Throws unless the folder, or its nearest existing parent, is writable. Creates nothing. */
export async function checkFolderWritable(folder: string, fullDiskAdvice: string): Promise<void> {
  const path = resolve(folder);
  try {
    const brokenSymlink = findBrokenLink(path);
    if (brokenSymlink !== null) throw brokenLinkError(brokenSymlink);
    const folderStats = await stat(path).catch((error: unknown) => {
      if (systemErrorCode(error) === "ENOENT" && dirname(path) !== path) return null;
      throw error;
    });
    if (folderStats === null) return await checkFolderWritable(dirname(path), fullDiskAdvice);
    if (!folderStats.isDirectory()) throw new ConfigError(`${path} is not a folder.`, { field: "folder" });
    await access(path, constants.W_OK | constants.X_OK);
  } catch (error) {
    throw fileErrorToFailure(error, path, fullDiskAdvice);
  }
}
