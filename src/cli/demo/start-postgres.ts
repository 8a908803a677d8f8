import { execFile, execFileSync, type SpawnOptions, spawn } from "node:child_process";
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
import { endsWithin, sleepFor } from "../../core/runtime/waiting.ts";
import { valueOr } from "../../core/values/value-or.ts";

/** Child process that Ctrl-C in the terminal does not reach; the demo stops its processes in the right order. */
export type ChildProcess = ReturnType<typeof startChildProcess>;

const MAX_ERROR_OUTPUT_CHARACTERS = 4_000;

export function startChildProcess(
  program: string,
  args: readonly string[],
  options: Pick<SpawnOptions, "cwd" | "env" | "gid" | "uid">,
) {
  const childProcess = spawn(program, args, { ...options, detached: true, stdio: ["ignore", "ignore", "pipe"] });
  let errorOutput = "";
  childProcess.stderr?.on("data", (text: Buffer) => {
    errorOutput = (errorOutput + text.toString()).slice(-MAX_ERROR_OUTPUT_CHARACTERS);
  });
  let isProcessRunning = true;
  const processEndReason = new Promise<string>((resolve) => {
    const resolveEndReason = (reason: string) => {
      isProcessRunning = false;
      resolve(reason);
    };
    childProcess.once("error", (error) => resolveEndReason(error.message));
    childProcess.once("exit", (code, signal) => resolveEndReason(signal ?? `code ${code}`));
  });
  return {
    pid: childProcess.pid ?? 0,
    isRunning: () => isProcessRunning,
    errorOutput: () => errorOutput,
    endReason: processEndReason,
    async stop(signal: NodeJS.Signals, timeoutMs: number): Promise<void> {
      if (!isProcessRunning) return;
      childProcess.kill(signal);
      if (!(await endsWithin(systemClock, timeoutMs, processEndReason))) childProcess.kill("SIGKILL");
      await processEndReason;
    },
  };
}

const START_TIMEOUT_MS = 60_000;
const STOP_TIMEOUT_MS = 10_000;
const START_CHECK_INTERVAL_MS = 100;

/** Starts PostgreSQL on loopback in a temporary folder. Throws `ConfigError` if this user cannot run PostgreSQL. */
export async function startPostgres(port: number, signal: AbortSignal) {
  const programsFolder = findPostgresFolder();
  const postgresUser = findPostgresUser();
  const folder = mkdtempSync(join(accessibleTemporaryFolder(), "plenum-postgres-"));
  try {
    if (postgresUser !== null) chownSync(folder, postgresUser.uid, postgresUser.gid);
    return await startPostgresServer(folder, programsFolder, postgresUser, port, signal);
  } catch (error) {
    rmSync(folder, { recursive: true, force: true });
    throw error;
  }
}

async function startPostgresServer(
  serverFolder: string,
  programsFolder: string,
  user: PostgresUser | null,
  port: number,
  signal: AbortSignal,
) {
  const dataFolder = join(serverFolder, "data");
  const password = randomBytes(16).toString("hex");
  const passwordFile = join(serverFolder, "password");
  writeFileSync(passwordFile, password, { mode: 0o600 });
  if (user !== null) chownSync(passwordFile, user.uid, user.gid);
  const spawnOptions = { ...user, cwd: "/" };
  const initdbOptions = `--locale=C.UTF-8 -U plenum -A scram-sha-256 -E UTF8 --no-sync`.split(" ");
  execFileSync(join(programsFolder, "initdb"), ["-D", dataFolder, `--pwfile=${passwordFile}`, ...initdbOptions], {
    ...spawnOptions,
    stdio: "ignore",
  });
  rmSync(passwordFile);
  const settings = [`port = ${port}`, "listen_addresses = '127.0.0.1'", "unix_socket_directories = ''", "fsync = off"];
  appendFileSync(join(dataFolder, "postgresql.conf"), `${settings.join("\n")}\n`);
  const postgresServer = startChildProcess(join(programsFolder, "postgres"), ["-D", dataFolder], spawnOptions);
  const stopPostgres = async (): Promise<void> => {
    // At SIGINT PostgreSQL closes all connections and stops cleanly.
    await postgresServer.stop("SIGINT", STOP_TIMEOUT_MS);
    rmSync(serverFolder, { recursive: true, force: true });
  };
  const startDeadlineMs = systemClock.monotonic() + START_TIMEOUT_MS;
  while (!(await acceptsConnections(programsFolder, port))) {
    const mayKeepWaiting = postgresServer.isRunning() && systemClock.monotonic() < startDeadlineMs;
    if (mayKeepWaiting && (await sleepFor(systemClock, START_CHECK_INTERVAL_MS, signal))) continue;
    await stopPostgres();
    signal.throwIfAborted();
    throw new Retryable(`PostgreSQL did not start: ${postgresServer.errorOutput().trim().split("\n").at(-1) ?? ""}`);
  }
  return { url: `postgresql://plenum@127.0.0.1:${port}/postgres?sslmode=disable`, password, close: stopPostgres };
}

/** Lists where PostgreSQL may be: folders of PATH, Debian's folders of each version, folders of other systems. */
function listPostgresFolders(): readonly string[] {
  const debianPostgresFolder = "/usr/lib/postgresql";
  const postgresVersions = valueOr(() => readdirSync(debianPostgresFolder), []).toSorted(
    (a, b) => Number(b) - Number(a),
  );
  return [
    ...(process.env.PATH ?? "").split(delimiter).filter((folder) => folder !== ""),
    ...postgresVersions.map((version) => join(debianPostgresFolder, version, "bin")),
    ...["/opt/homebrew/bin", "/usr/local/bin", "/usr/pgsql/bin"],
  ];
}

export function findPostgresFolder(folders = listPostgresFolders()): string {
  const postgresFolder = folders.find((path) => isProgram(join(path, "initdb")) && isProgram(join(path, "postgres")));
  // The programs in PATH may be links into the folder that contains all programs.
  if (postgresFolder !== undefined) return dirname(realpathSync(join(postgresFolder, "postgres")));
  throw new ConfigError("A fleet needs PostgreSQL, and none is installed here.", {
    hint: "Install it (apt-get install postgresql, dnf install postgresql-server, brew install postgresql); it need not run. Without --fleet the demo needs none.",
  });
}

function isProgram(path: string): boolean {
  return valueOr(() => {
    accessSync(path, constants.X_OK);
    return true;
  }, false);
}

type PostgresUser = NonNullable<ReturnType<typeof findPostgresUser>>;

/** Returns the user postgres if this process runs as root, because PostgreSQL refuses root; otherwise null. */
function findPostgresUser() {
  if (process.getuid?.() !== 0) return null;
  const readUserId = (flag: string) => Number(execFileSync("id", [flag, "postgres"], { stdio: "pipe" }).toString());
  try {
    return { uid: readUserId("-u"), gid: readUserId("-g") };
  } catch (error) {
    const message = "PostgreSQL refuses to run as root, and there is no user postgres that could run it.";
    throw new ConfigError(message, { cause: error, hint: "Start the demo as another user." });
  }
}

function accessibleTemporaryFolder(): string {
  const folder = tmpdir();
  const isAccessibleToOtherUsers = process.getuid?.() !== 0 || (statSync(folder).mode & 0o001) !== 0;
  return isAccessibleToOtherUsers ? folder : "/tmp";
}

function acceptsConnections(programsFolder: string, port: number): Promise<boolean> {
  const args = ["-q", "-h", "127.0.0.1", "-p", String(port)];
  return promisify(execFile)(join(programsFolder, "pg_isready"), args).then(
    () => true,
    () => false,
  );
}
