import { ConfigError, type Failure, meaningOf, Retryable } from "./errors.ts";
import { systemCodeOf } from "./own-trouble.ts";

/** Codes that a person has to do something about; everything else may pass by itself. */
const SETTINGS: Readonly<Record<string, string>> = {
  EACCES: "Give the user that runs Plenum the right to write there.",
  EPERM: "Give the user that runs Plenum the right to write there.",
  EROFS: "The file system is read-only; choose a folder on a writable one.",
  ENOTDIR: "A part of the path is a file; choose another folder.",
  EEXIST: "A part of the path is a file; choose another folder.",
  EISDIR: "There is a folder where a file should be; choose another folder.",
  ELOOP: "A symbolic link stands where a file should be; remove it.",
  ENAMETOOLONG: "The path is too long; choose a shorter one.",
};

/**
 * What a failed operation on the files of a sink means, as a sentence. `room` says what gives a full disk room, as in
 * `Free some space`.
 */
export function folderFailure(error: unknown, folder: string, room: string): Failure {
  const code = systemCodeOf(error);
  if (code === "") return meaningOf(error);
  if (code === "ENOSPC" || code === "EDQUOT") {
    return new Retryable(`The disk below ${folder} is full (${code}).`, {
      hint: `${room}; the events wait.`,
      cause: error,
    });
  }
  const hint = SETTINGS[code];
  if (hint !== undefined) {
    return new ConfigError(`The files in ${folder} cannot be written (${code}).`, {
      field: "folder",
      hint,
      cause: error,
    });
  }
  return new Retryable(`The files in ${folder} could not be written (${code}).`, { cause: error });
}
