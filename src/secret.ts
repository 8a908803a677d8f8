import { closeSync, fstatSync, openSync, readFileSync } from "node:fs";
import { z } from "zod";
import { ConfigError } from "./errors.ts";
import { Secret } from "./log.ts";

/** Where a secret is found. The text itself never stands in the configuration. */
export const SecretRef = z
  .union(
    [
      z.strictObject({
        file: z.string().min(1).meta({ description: "Path of a file that holds nothing but the secret." }),
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
  .meta({ description: "Where the secret is: {file: path}, readable by its owner only, or {env: NAME}." });
export type SecretRef = z.infer<typeof SecretRef>;

/** Largest secret file that is read, in bytes: keys and tokens are far smaller, a wrong path need not be. */
const MAX_BYTES = 64 * 1024;

/**
 * Reads a secret now, so that calling it again after a change gives the new one. One line break at the end does
 * not count. Throws ConfigError when it is missing, empty, or a file that others than its owner may read.
 */
export function readSecret(
  ref: SecretRef,
  environment: Readonly<Record<string, string | undefined>> = process.env,
): Secret {
  const text = "file" in ref ? ownFile(ref.file) : environment[ref.env];
  const name = "file" in ref ? `The secret file ${ref.file}` : `The environment variable ${ref.env}`;
  if (text === undefined) {
    throw new ConfigError(`${name} is not set.`, { hint: "Set it, or name a file instead." });
  }
  const secret = text.replace(/\r?\n$/, "");
  if (secret === "") throw new ConfigError(`${name} is empty.`, { hint: "Put the secret into it." });
  return new Secret(secret);
}

function ownFile(path: string): string {
  let handle: number;
  try {
    handle = openSync(path, "r");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new ConfigError(`The secret file ${path} cannot be opened (${code ?? "unknown reason"}).`, {
      hint: "Check the path, and that the user that runs Plenum may read it.",
      cause: error,
    });
  }
  try {
    const { mode, size } = fstatSync(handle);
    // Windows has no such bits; what it shows there says nothing about who may read.
    if (process.platform !== "win32" && (mode & 0o077) !== 0) {
      const bits = (mode & 0o777).toString(8).padStart(3, "0");
      throw new ConfigError(`The secret file ${path} can be read by others than its owner (mode ${bits}).`, {
        hint: `Run: chmod 600 ${path}`,
      });
    }
    if (size > MAX_BYTES) {
      throw new ConfigError(`The secret file ${path} is larger than ${MAX_BYTES} bytes.`, {
        hint: "It has to hold nothing but the secret; check the path.",
      });
    }
    return readFileSync(handle, "utf8");
  } catch (error) {
    if (error instanceof ConfigError) throw error;
    const { code } = error as NodeJS.ErrnoException;
    throw new ConfigError(`The secret file ${path} cannot be read (${code ?? "unknown reason"}).`, {
      cause: error,
    });
  } finally {
    closeSync(handle);
  }
}
