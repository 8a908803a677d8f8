import { execFile, execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import {
  accessSync,
  appendFileSync,
  chownSync,
  constants,
  mkdtempSync,
  readdirSync,
  realpathSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { promisify } from "node:util";
import { ConfigError, Retryable } from "../../core/errors/errors.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { sleepFor } from "../../core/runtime/waiting.ts";
import { startChild } from "./child.ts";

/** A PostgreSQL of the demo's own, on loopback and in a temporary folder, with a password that nobody else knows. */
export interface DemoPostgres {
  readonly url: string;
  readonly password: string;
  /** Ends it, and takes its folder away. */
  close(): Promise<void>;
}

const run = promisify(execFile);

const START_WITHIN_MS = 60_000;
const STOP_WITHIN_MS = 10_000;
const LOOK_EVERY_MS = 100;

/** Throws `ConfigError` with one sentence where none is installed, or where it would refuse to run. */
export async function startPostgres(port: number, signal: AbortSignal): Promise<DemoPostgres> {
  const programs = programsFolder();
  const user = ownUser();
  const folder = mkdtempSync(join(openFolder(), "plenum-postgres-"));
  try {
    if (user !== null) chownSync(folder, user.uid, user.gid);
    return await startIn(folder, programs, user, port, signal);
  } catch (error) {
    rmSync(folder, { recursive: true, force: true });
    throw error;
  }
}

async function startIn(
  folder: string,
  programs: string,
  user: User | null,
  port: number,
  signal: AbortSignal,
): Promise<DemoPostgres> {
  const data = join(folder, "data");
  const password = randomBytes(16).toString("hex");
  const passwordFile = join(folder, "password");
  writeFileSync(passwordFile, password, { mode: 0o600 });
  if (user !== null) chownSync(passwordFile, user.uid, user.gid);
  const wishes = [
    "-U",
    "plenum",
    `--pwfile=${passwordFile}`,
    "-A",
    "scram-sha-256",
    "-E",
    "UTF8",
    "--no-sync",
  ];
  const as = { ...user, cwd: "/" };
  execFileSync(join(programs, "initdb"), ["-D", data, "--locale=C.UTF-8", ...wishes], {
    ...as,
    stdio: "ignore",
  });
  rmSync(passwordFile);
  const lines = [
    `port = ${port}`,
    "listen_addresses = '127.0.0.1'",
    "unix_socket_directories = ''",
    // All of it goes with the demo.
    "fsync = off",
  ];
  appendFileSync(join(data, "postgresql.conf"), `${lines.join("\n")}\n`);
  const server = startChild(join(programs, "postgres"), ["-D", data], as);
  const close = async () => {
    // Ends at once whoever is connected still, and comes to rest by itself.
    await server.stop("SIGINT", STOP_WITHIN_MS);
    rmSync(folder, { recursive: true, force: true });
  };
  const until = systemClock.monotonic() + START_WITHIN_MS;
  while (!(await isReady(programs, port))) {
    if (
      server.isRunning() &&
      systemClock.monotonic() < until &&
      (await sleepFor(systemClock, LOOK_EVERY_MS, signal))
    )
      continue;
    await close();
    signal.throwIfAborted();
    throw new Retryable(`PostgreSQL did not start: ${lastLine(server.said())}`);
  }
  return { url: `postgresql://plenum@127.0.0.1:${port}/postgres?sslmode=disable`, password, close };
}

/** In PATH, and where Debian keeps a folder for each version. */
function usualFolders(): readonly string[] {
  const debian = "/usr/lib/postgresql";
  const versions = foldersIn(debian).toSorted((a, b) => Number(b) - Number(a));
  return [
    ...(process.env.PATH ?? "").split(delimiter).filter((folder) => folder !== ""),
    ...versions.map((version) => join(debian, version, "bin")),
    ...["/opt/homebrew/bin", "/usr/local/bin", "/usr/pgsql/bin"],
  ];
}

/** Where initdb and postgres lie. */
export function programsFolder(folders = usualFolders()): string {
  const found = folders.find(
    (folder) => isProgram(join(folder, "initdb")) && isProgram(join(folder, "postgres")),
  );
  // What stands there may be a link to where all its programs are.
  if (found !== undefined) return dirname(realpathSync(join(found, "postgres")));
  throw new ConfigError("A fleet needs PostgreSQL, and none is installed here.", {
    hint: "Install it (apt-get install postgresql, dnf install postgresql-server, brew install postgresql); it need not run. Without --fleet the demo needs none.",
  });
}

function foldersIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

interface User {
  readonly uid: number;
  readonly gid: number;
}

/** It refuses to run as root, who runs it as the user that its package has made; null for everybody else. */
function ownUser(): User | null {
  if (process.getuid?.() !== 0) return null;
  try {
    const idOf = (which: string) =>
      Number(execFileSync("id", [which, "postgres"], { stdio: "pipe" }).toString());
    return { uid: idOf("-u"), gid: idOf("-g") };
  } catch (error) {
    throw new ConfigError(
      "PostgreSQL refuses to run as root, and there is no user postgres that could run it.",
      {
        cause: error,
        hint: "Start the demo as another user.",
      },
    );
  }
}

/** A place for temporary folders that the other user may go through. */
function openFolder(): string {
  const folder = tmpdir();
  const isOpen = process.getuid?.() !== 0 || (statSync(folder).mode & 0o001) !== 0;
  return isOpen ? folder : "/tmp";
}

/** Its port opens before it lets anybody in. */
async function isReady(programs: string, port: number): Promise<boolean> {
  try {
    await run(join(programs, "pg_isready"), ["-q", "-h", "127.0.0.1", "-p", String(port)]);
    return true;
  } catch {
    return false;
  }
}

function lastLine(text: string): string {
  return text.trim().split("\n").at(-1) ?? "";
}
