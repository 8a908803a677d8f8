import { randomBytes, timingSafeEqual } from "node:crypto";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Secret } from "../log.ts";

/**
 * How the command line proves to a running worker that it may operate it: it can read a file in the state folder,
 * which only the worker's own user can (folder 0700, file 0600). The key is new at every start.
 */
export interface OperatorDoor {
  readonly url: string;
  readonly key: Secret;
}

export interface OwnDoor {
  readonly key: Secret;
  /** Says where the worker is to be found, once it listens. */
  open(url: string): void;
  close(): void;
}

const FILE = "operator.json";

export function writeDoor(stateFolder: string): OwnDoor {
  const key = randomBytes(32).toString("base64url");
  const file = join(stateFolder, FILE);
  return {
    key: new Secret(key),
    open: (url) => writeFileSync(file, `${JSON.stringify({ url, key })}\n`, { mode: 0o600 }),
    close: () => rmSync(file, { force: true }),
  };
}

/** Null when no worker has left its door here. One that was killed leaves it behind; then nobody answers. */
export function readDoor(stateFolder: string): OperatorDoor | null {
  try {
    const { url, key } = JSON.parse(readFileSync(join(stateFolder, FILE), "utf8")) as {
      url: string;
      key: string;
    };
    return { url, key: new Secret(key) };
  } catch {
    return null;
  }
}

export function opens(key: Secret, authorization: string | undefined): boolean {
  const given = Buffer.from(authorization ?? "");
  const wanted = Buffer.from(`Bearer ${key.reveal()}`);
  return given.length === wanted.length && timingSafeEqual(given, wanted);
}
