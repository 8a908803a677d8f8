import { closeSync, constants, existsSync, fstatSync, openSync, readFileSync, statSync } from "node:fs";
import { resolve } from "node:path";
import { z } from "zod";
import { ConfigError, LocalFailure } from "../errors/errors.ts";
import { resolveFolderLinks } from "../errors/folder-access.ts";
import { findMachineFailure, systemErrorCode } from "../errors/local-machine-failure.ts";
import { checkedText } from "../values/checked-text.ts";
import { recordSecretLocation, registerSecret } from "../values/secret-masking.ts";
import type { Clock } from "./clock.ts";
import { Secret } from "./log.ts";

/** Reference to a secret in a file or an environment variable. The configuration never contains the secret itself. */
export const SecretRef = z
  .union(
    [
      z.strictObject({
        file: checkedText(findKernelPathComplaint)
          .min(1)
          .meta({ description: "Path of a file that contains only the secret." }),
      }),
      z.strictObject({
        env: z
          .string()
          .regex(/^[A-Za-z_][A-Za-z0-9_]*$/, "Use the name of an environment variable, not its content.")
          .meta({ description: "Name of the environment variable that holds the secret." }),
      }),
    ],
    { error: "Say where the secret is: {file: path} or {env: NAME}." },
  )
  .meta({
    description:
      "The secret: {file: path}, readable by its owner only, or by its group if the file is read-only; or {env: NAME}.",
  });
export type SecretRef = z.infer<typeof SecretRef>;

const KERNEL_FOLDERS = ["/proc", "/sys", "/dev"];
const SHARED_MEMORY_FOLDER = "/dev/shm";

/** Follows links. Returns an error message for a path in a kernel folder, e.g. /proc; null for any other path. */
function findKernelPathComplaint(path: string): string | null {
  const pathWithoutLinks = existsSync(path) ? resolveFolderLinks(path) : resolve(path);
  const isInsideFolder = (folder: string) => pathWithoutLinks === folder || pathWithoutLinks.startsWith(`${folder}/`);
  const kernelFolder = KERNEL_FOLDERS.find(isInsideFolder);
  if (kernelFolder === undefined || isInsideFolder(SHARED_MEMORY_FOLDER)) return null;
  return `A file under ${kernelFolder} is no secret file: it shows what this machine or this process does. Put the secret into a file of its own.`;
}

/** True if an address contains a user name or a password, e.g. `https://:word@host`. */
export function urlHasCredentials(address: string): boolean {
  if (!URL.canParse(address)) return false;
  const { username, password } = new URL(address);
  return username !== "" || password !== "";
}

export type ProcessEnv = Readonly<Record<string, string | undefined>>;

const MAX_SECRET_FILE_BYTES = 64 * 1024;

class MissingSecretError extends ConfigError {}

/** How long a known secret may be missing while it is being replaced, in milliseconds. */
const MAX_SECRET_ABSENCE_MS = 60_000;

/** Throws ConfigError for a missing, empty or shared file, and LocalFailure when this machine cannot read files. */
export function readSecret(ref: SecretRef, environment: ProcessEnv = process.env): Secret {
  const secretText = "file" in ref ? readPrivateFile(ref.file) : environment[ref.env];
  const secretLabel = "file" in ref ? `The secret file ${ref.file}` : `The environment variable ${ref.env}`;
  if (secretText === undefined) {
    if ("env" in ref && looksLikeSecret(ref.env)) throw createMisplacedSecretError("the variable's name", ref.env);
    throw new MissingSecretError(`${secretLabel} is not set.`, { hint: "Set it, or name a file instead." });
  }
  const secretValue = secretText.replace(/\r?\n$/, "");
  if (secretValue === "") throw new MissingSecretError(`${secretLabel} is empty.`, { hint: "Put the secret into it." });
  const maskedSecret = new Secret(secretValue);
  recordSecretLocation(secretLabel, secretValue);
  return maskedSecret;
}

/** Rereads the secret at each call. A missing or empty file throws LocalFailure for a minute, then ConfigError. */
export function secretReader(ref: SecretRef, clock: Pick<Clock, "monotonic">, environment?: ProcessEnv): () => Secret {
  let lastSecret: Secret | null = null;
  let missingSinceMs: number | null = null;
  return () => {
    try {
      lastSecret = readSecret(ref, environment);
      missingSinceMs = null;
      return lastSecret;
    } catch (error) {
      if (lastSecret === null) throw error;
      if (error instanceof LocalFailure) return lastSecret;
      if (!(error instanceof MissingSecretError)) throw error;
      missingSinceMs ??= clock.monotonic();
      if (clock.monotonic() - missingSinceMs >= MAX_SECRET_ABSENCE_MS) throw error;
      throw new LocalFailure(error.message, {
        hint: "It was there before; if it is being exchanged, nothing else has to be done.",
        cause: error,
      });
    }
  };
}

export function readSecretFileStamp(file: string): string {
  try {
    const { mtimeMs, ctimeMs, ino, size } = statSync(file);
    return `${mtimeMs} ${ctimeMs} ${ino} ${size}`;
  } catch {
    return "absent";
  }
}

/** Text of at least 20 characters that may be a token; a path contains a slash. */
const TOKEN_LIKE_TEXT = /^[A-Za-z0-9._~+=:|-]{20,}$/;
/** File extension, e.g. of `api-token-2.txt`; the part after the last dot of a token is longer. */
const FILE_EXTENSION = /\.[A-Za-z][A-Za-z0-9]{0,7}$/;
const VARIABLE_OR_FILE_NAME = /^[A-Za-z]{1,12}\d{0,4}([_-]([A-Za-z]{1,12}\d{0,4}|\d{1,4}))+$/;

/** True if the text looks like a secret (`17|Zk3…`) instead of a path or a variable's name. */
function looksLikeSecret(text: string): boolean {
  if (!TOKEN_LIKE_TEXT.test(text) || FILE_EXTENSION.test(text) || VARIABLE_OR_FILE_NAME.test(text)) return false;
  return text.includes("|") || (/[A-Za-z]/.test(text) && /\d/.test(text));
}

function createMisplacedSecretError(expectedContent: string, text: string): ConfigError {
  registerSecret(text);
  return new MissingSecretError(`A secret itself seems to stand where ${expectedContent} belongs.`, {
    hint: "Put the secret into a file and its path here, {file: path}; everyone who has seen this configuration knows the secret.",
  });
}

function readPrivateFile(path: string): string {
  const errorMessageStart = `The secret file ${path} cannot be`;
  const pathComplaint = findKernelPathComplaint(path);
  if (pathComplaint !== null) throw new ConfigError(`The secret file ${path} is refused.`, { hint: pathComplaint });
  let fileDescriptor: number;
  try {
    // O_NONBLOCK: opening a named pipe without a writer would block the worker. Windows has no such flag.
    fileDescriptor = openSync(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
  } catch (error) {
    const code = systemErrorCode(error);
    const machineFailure = findMachineFailure(code, `${errorMessageStart} opened`, error);
    if (machineFailure !== null) throw machineFailure;
    if (looksLikeSecret(path)) throw createMisplacedSecretError("the path of its file", path);
    throw new (code === "ENOENT" ? MissingSecretError : ConfigError)(`${errorMessageStart} opened (${code}).`, {
      hint: "Check the path, and that the user that runs Plenum may read it.",
      cause: error,
    });
  }
  try {
    const fileStats = fstatSync(fileDescriptor);
    if (!fileStats.isFile() && !fileStats.isDirectory()) {
      throw new ConfigError(`The secret file ${path} is a pipe or a device, and no file.`, {
        hint: "It is read again whenever it is used, and a pipe gives it once: write the secret into a file.",
      });
    }
    const { mode, uid, size } = fileStats;
    if (isReadableByOthers(mode, uid)) {
      const permissionsText = (mode & 0o777).toString(8).padStart(3, "0");
      throw new ConfigError(`The secret file ${path} can be read by others than its owner (mode ${permissionsText}).`, {
        hint: `Run: chmod 600 ${path}`,
      });
    }
    if (size > MAX_SECRET_FILE_BYTES) {
      throw new ConfigError(`The secret file ${path} is larger than ${MAX_SECRET_FILE_BYTES} bytes.`, {
        hint: "It has to hold nothing but the secret; check the path.",
      });
    }
    return readFileSync(fileDescriptor, "utf8");
  } catch (error) {
    if (error instanceof ConfigError) throw error;
    throw createUnreadableFileError(error, `${errorMessageStart} read`);
  } finally {
    closeSync(fileDescriptor);
  }
}

/** Returns false for a group-readable file that the worker cannot write, e.g. root:plenum 0640 or `fsGroup` 0440. */
function isReadableByOthers(mode: number, uid: number): boolean {
  if (process.platform === "win32") return false;
  if ((mode & 0o037) !== 0) return true;
  const isReadOnlyForWorker = uid !== process.geteuid?.() || (mode & 0o200) === 0;
  return (mode & 0o040) !== 0 && !isReadOnlyForWorker;
}

function createUnreadableFileError(error: unknown, messageStart: string): Error {
  const code = systemErrorCode(error);
  if (code === "EISDIR") return new ConfigError(`${messageStart} (${code}).`, { cause: error });
  const machineFailure = findMachineFailure(code, messageStart, error);
  return machineFailure ?? new LocalFailure(`${messageStart} at the moment (${code}).`, { cause: error });
}

/** Reads PEM. Throws ConfigError for an invalid file, LocalFailure when this machine cannot read files. */
export function readCertificateFile(path: string, field: string): string {
  const errorMessageStart = `The certificate file ${path} cannot be read`;
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    const machineFailure = findMachineFailure(systemErrorCode(error), errorMessageStart, error);
    throw machineFailure ?? new ConfigError(`${errorMessageStart}.`, { field, cause: error });
  }
}
