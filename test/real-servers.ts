import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import {
  appendFileSync,
  chmodSync,
  chownSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { createServer, connect as netConnect } from "node:net";
import { tmpdir, userInfo } from "node:os";
import { dirname, join } from "node:path";
import { Client } from "pg";
import { createWallClock, type WallClock } from "./wall-clock.ts";

export interface RealServer {
  readonly port: number;
  readonly url: string;
  readonly folder: string;
  kill(): Promise<void>;
  end(): Promise<void>;
  startAgain(): Promise<void>;
  signal(name: NodeJS.Signals): void;
  setClock(aheadS: number): void;
  stop(): Promise<void>;
}

/** Long, because it only ends a start that hangs. */
const START_TIMEOUT_MS = 120_000;

export type Program =
  | "mosquitto"
  | "promtool"
  | "mosquitto_passwd"
  | "systemd-analyze"
  | "logrotate"
  | "victoria-metrics"
  | "influxd"
  | "prometheus-alertmanager"
  | "exim4"
  | "postgres"
  | "chromium"
  | "kcat"
  | "java"
  | "faketime";

/** Null without the program; throws in CI. */
export function programPath(program: Program): string | null {
  try {
    // Debian installs daemons outside of PATH, and PostgreSQL in a folder for each major version.
    const PATH = `${process.env.PATH ?? ""}:/usr/sbin:/usr/local/sbin:/usr/lib/postgresql/15/bin`;
    return execFileSync("sh", ["-c", `command -v ${program}`], { env: { ...process.env, PATH } })
      .toString()
      .trim();
  } catch {
    if (process.env.CI === "true") throw new Error(`${program} is not installed; .ci/run has to install it.`);
    return null;
  }
}

/** True without the program, and in the fast tests, which start no servers. */
export function absent(program: Program): boolean {
  if (process.env.PLENUM_FAST === "1") return true;
  if (programPath(program) !== null) return false;
  process.stderr.write(`${program} is not installed here: its tests are skipped.\n`);
  return true;
}

export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() => resolve(typeof address === "object" && address !== null ? address.port : 0));
    });
  });
}

export function temporaryFolder(name = "plenum-test"): string {
  return mkdtempSync(join(tmpdir(), `${name}-`));
}

export interface MosquittoOptions {
  readonly lines?: (port: number, folder: string) => readonly string[];
  readonly moreLines?: readonly string[];
  readonly port?: number;
}

async function startLocal(
  program: Program,
  scheme: string,
  prepare: (port: number, folder: string) => readonly string[] | Promise<readonly string[]>,
  chosenPort?: number,
): Promise<RealServer> {
  const port = chosenPort ?? (await freePort());
  const folder = temporaryFolder(program);
  return started(program, await prepare(port, folder), port, folder, `${scheme}://127.0.0.1:${port}`);
}

function writeConfig(folder: string, name: string, text: string): string {
  writeFileSync(join(folder, name), text, { mode: 0o600 });
  return join(folder, name);
}

export function startMosquitto(options: MosquittoOptions = {}): Promise<RealServer> {
  const { moreLines = [] } = options;
  const defaultLines = (port: number) => [`listener ${port} 127.0.0.1`, "allow_anonymous true", "persistence false"];
  const root = process.getuid?.() === 0 ? ["user root"] : [];
  const prepare = (port: number, folder: string) => {
    const lines = [...root, ...(options.lines?.(port, folder) ?? [...defaultLines(port), ...moreLines])];
    return ["-c", writeConfig(folder, "mosquitto.conf", `${lines.join("\n")}\n`)];
  };
  return startLocal("mosquitto", "mqtt", prepare, options.port);
}

export function startVictoriaMetrics(): Promise<RealServer> {
  return startLocal("victoria-metrics", "http", (port, folder) => [
    ...[`-httpListenAddr=127.0.0.1:${port}`, `-storageDataPath=${folder}/data`, "-retentionPeriod=1200"],
    ...["-search.latencyOffset=0s", "-dedup.minScrapeInterval=1ms"],
  ]);
}

export function startInflux(): Promise<RealServer> {
  return startLocal("influxd", "http", async (port, folder) => {
    const rpcPort = await freePort();
    const text = `reporting-disabled = true
bind-address = "127.0.0.1:${rpcPort}"
[meta]
dir = "${folder}/meta"
[data]
dir = "${folder}/data"
wal-dir = "${folder}/wal"
[monitor]
store-enabled = false
[http]
bind-address = "127.0.0.1:${port}"
log-enabled = false
`;
    return ["-config", writeConfig(folder, "influxd.conf", text)];
  });
}

export function startAlertmanager(webhookUrl: string): Promise<RealServer> {
  const text = `route:
  receiver: test
  group_by: ["..."]
  group_wait: 10ms
  group_interval: 200ms
receivers:
  - name: test
    webhook_configs:
      - url: ${webhookUrl}
`;
  return startLocal("prometheus-alertmanager", "http", (port, folder) => [
    ...[`--config.file=${writeConfig(folder, "alertmanager.yml", text)}`, `--storage.path=${folder}/data`],
    ...[`--web.listen-address=127.0.0.1:${port}`, "--cluster.listen-address="],
  ]);
}

/** Exim accepts mail for `plenum`, rejects `gone@…`, defers `later@…`, and queues all other mail. */
export function startExim(certificate: { readonly cert: string; readonly key: string }): Promise<RealServer> {
  return startLocal("exim4", "smtp", (port, folder) => {
    writeConfig(folder, "tls.pem", `${certificate.key}${certificate.cert}`);
    const text = `exim_user = ${userInfo().uid}
exim_group = ${userInfo().gid}
spool_directory = ${folder}/spool
log_file_path = ${folder}/%slog
pid_file_path = ${folder}/pid
primary_hostname = localhost
daemon_smtp_ports = ${port}
local_interfaces = 127.0.0.1
keep_environment =
host_lookup =
queue_only
tls_advertise_hosts = *
tls_certificate = ${folder}/tls.pem
auth_advertise_hosts = \${if eq{$tls_in_cipher}{}{}{*}}
acl_smtp_rcpt = recipients
begin acl
recipients:
  deny !authenticated = *
  accept
begin authenticators
plain:
  driver = plaintext
  public_name = PLAIN
  server_prompts = :
  server_condition = \${if and{{eq{$auth2}{plenum}}{eq{$auth3}{plenum}}}}
`;
    return ["-C", writeConfig(folder, "exim.conf", text), "-bdf"];
  });
}

/** Kafka in KRaft mode with one node. `format`: options of the tool that prepares its folder. */
export async function startKafka(options: {
  readonly classPath: string;
  readonly port: number;
  readonly lines: readonly string[];
  readonly format?: readonly string[];
}): Promise<RealServer> {
  const { classPath, port } = options;
  const controller = await freePort();
  const folder = temporaryFolder("kafka");
  const properties = join(folder, "server.properties");
  const lines = [
    "process.roles=broker,controller",
    "node.id=1",
    `controller.quorum.voters=1@127.0.0.1:${controller}`,
    "controller.listener.names=CONTROLLER",
    `log.dirs=${folder}/logs`,
    "auto.create.topics.enable=false",
    ...options.lines.map((line) => line.replace(/^listeners=/, `listeners=CONTROLLER://127.0.0.1:${controller},`)),
  ];
  writeFileSync(properties, `${lines.join("\n")}\n`);
  const java = programPath("java") ?? "java";
  const tool = ["-cp", classPath, "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk"];
  execFileSync(java, [...tool, "-c", properties, ...(options.format ?? [])], { stdio: "ignore" });
  const run = ["-Xmx384m", "-cp", classPath, "kafka.Kafka", properties];
  return started("java", run, port, folder, `127.0.0.1:${port}`);
}

function isStopped(pid: number): boolean {
  const tasks = `/proc/${pid}/task`;
  if (!existsSync(tasks)) return true;
  return readdirSync(tasks).every((task) => {
    try {
      return /\) [Tt] /.test(readFileSync(join(tasks, task, "stat"), "utf8"));
    } catch {
      return true;
    }
  });
}

export interface MockRecord {
  readonly topic: string;
  readonly tstype: string;
  readonly ts: number;
  /** Names and values, one after the other. */
  readonly headers: readonly string[];
  readonly key: string;
  readonly payload: string;
}

export interface MockKafka {
  readonly brokers: readonly string[];
  records(): readonly MockRecord[];
  signal(name: NodeJS.Signals): Promise<void>;
  stop(): Promise<void>;
}

export async function startMockKafka(topic: string, brokers: number): Promise<MockKafka> {
  const path = programPath("kcat");
  if (path === null) throw new Error("kcat is not installed.");
  const mock = ["-b", "unused:1", "-X", `test.mock.num.brokers=${brokers}`];
  const child = spawn(path, [...mock, "-C", "-t", topic, "-u", "-J", "-o", "beginning"], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const chunks: Buffer[] = [];
  child.stdout.on("data", (chunk: Buffer) => chunks.push(chunk));
  const addresses = await new Promise<string>((resolve, reject) => {
    let output = "";
    child.stderr.on("data", (text: Buffer) => {
      output += text.toString();
      const [, found] = /replaced with (\S+)/.exec(output) ?? [];
      // The topic exists when the consumer has reached the end of a partition.
      if (found !== undefined && output.includes("Reached end")) resolve(found);
    });
    child.once("exit", () => reject(new Error(`kcat did not start: ${output}`)));
  });
  return {
    brokers: addresses.split(","),
    records: () => {
      const lines = Buffer.concat(chunks).toString().split("\n").slice(0, -1);
      return lines.map((line) => JSON.parse(line) as MockRecord);
    },
    async signal(name) {
      child.kill(name);
      // A process with many threads continues for a moment after SIGSTOP.
      while (name === "SIGSTOP" && !isStopped(child.pid ?? 0)) await new Promise((go) => setImmediate(go));
    },
    async stop() {
      child.kill("SIGKILL");
      await ended;
    },
  };
}

/** The role `postgres` needs no password, others need SCRAM. `lines`: for postgresql.conf. `files`: next to it. */
export async function startPostgres(
  options: {
    readonly lines?: readonly string[];
    readonly tls?: { readonly certFile: string; readonly keyFile: string };
    readonly hasOwnClock?: boolean;
  } = {},
): Promise<RealServer> {
  const tlsLines = ["ssl = on", "ssl_cert_file = 'tls.pem'", "ssl_key_file = 'tls.key'"];
  const lines = ["max_connections = 20", ...(options.lines ?? []), ...(options.tls === undefined ? [] : tlsLines)];
  return runPostgres(lines, options.hasOwnClock === true, ({ data, owner, run }) => {
    const initdbOptions = ["-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync", "-A", "trust"];
    run("initdb", "-D", data, ...initdbOptions);
    const { certFile, keyFile } = options.tls ?? {};
    for (const [name, file] of Object.entries({ "tls.pem": certFile, "tls.key": keyFile })) {
      if (file === undefined) continue;
      writeFileSync(join(data, name), readFileSync(file), { mode: 0o600 });
      chownSync(join(data, name), ...owner);
    }
    const rules = [
      "local all all trust",
      "host all,replication postgres 127.0.0.1/32 trust",
      "host plenum plenum 127.0.0.1/32 trust",
      "host all all 127.0.0.1/32 scram-sha-256",
    ];
    writeFileSync(join(data, "pg_hba.conf"), `${rules.join("\n")}\n`);
  });
}

export async function startStandby({ port }: RealServer): Promise<RealServer> {
  const primary = `host=127.0.0.1 port=${port} user=postgres application_name=standby`;
  return runPostgres([], false, ({ data, run }) =>
    run("pg_basebackup", "-D", data, "-R", "-d", primary, "--checkpoint=fast", "--no-sync"),
  );
}

interface PostgresFolder {
  readonly data: string;
  readonly owner: readonly [uid: number, gid: number];
  run(program: string, ...options: readonly string[]): void;
}

async function runPostgres(
  wanted: readonly string[],
  hasOwnClock: boolean,
  prepare: (folder: PostgresFolder) => void,
): Promise<RealServer> {
  const programs = dirname(realpathSync(programPath("postgres") ?? ""));
  const port = await freePort();
  const folder = temporaryFolder("postgres");
  // PostgreSQL refuses to run as root, so root runs it as the user of the package.
  const isRoot = process.getuid?.() === 0;
  const idOf = (which: string) => Number(execFileSync("id", [which, "postgres"]).toString());
  const [uid, gid] = isRoot ? [idOf("-u"), idOf("-g")] : [userInfo().uid, userInfo().gid];
  const as = isRoot ? ["setpriv", `--reuid=${uid}`, `--regid=${gid}`, "--clear-groups"] : [];
  chownSync(folder, uid, gid);
  if (isRoot) letThrough(dirname(folder));
  const data = join(folder, "data");
  prepare({
    data,
    owner: [uid, gid],
    run(program, ...options) {
      const [first = "", ...rest] = [...as, join(programs, program), ...options];
      execFileSync(first, rest, { stdio: "ignore", cwd: "/" });
    },
  });
  const lines = [
    `port = ${port}`,
    "listen_addresses = '127.0.0.1'",
    `unix_socket_directories = '${folder}'`,
    // Shared memory is in the folder, so that its removal frees the memory of a killed server.
    "dynamic_shared_memory_type = mmap",
    ...wanted,
  ];
  appendFileSync(join(data, "postgresql.conf"), `${lines.join("\n")}\n`);
  const url = `postgresql://postgres@127.0.0.1:${port}/postgres`;
  // The port opens before the server accepts connections.
  const isReady = () => exitsWell(join(programs, "pg_isready"), ["-q", "-h", "127.0.0.1", "-p", String(port)]);
  const server = await started("postgres", ["-D", data], port, folder, url, {
    ...{ as, isReady },
    ...(hasOwnClock ? { clock: createWallClock(folder, 0) } : {}),
  });
  return {
    ...server,
    async startAgain() {
      // Backends outlive a killed server for a moment and prevent its start.
      const until = performance.now() + 15_000;
      for (;;) {
        try {
          return await server.startAgain();
        } catch (error) {
          if (performance.now() > until) throw error;
          await new Promise((resolve) => setTimeout(resolve, 20));
        }
      }
    },
  };
}

export async function ownDatabase({ port, url }: RealServer): Promise<string> {
  const client = new Client({ connectionString: url });
  await client.connect();
  await client.query("create role plenum login");
  await client.query("create database plenum owner plenum");
  await client.end();
  return `postgresql://plenum@127.0.0.1:${port}/plenum`;
}

function letThrough(folder: string): void {
  const { mode } = statSync(folder);
  if ((mode & 0o001) === 0) chmodSync(folder, mode | 0o001);
}

function exitsWell(program: string, options: readonly string[]): boolean {
  try {
    execFileSync(program, options, { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

interface Start {
  readonly as?: readonly string[];
  readonly isReady?: () => boolean;
  readonly clock?: WallClock;
}

async function started(
  program: Program,
  options: readonly string[],
  port: number,
  folder: string,
  url: string,
  { as = [], isReady = () => true, clock }: Start = {},
): Promise<RealServer> {
  const path = programPath(program);
  if (path === null) throw new Error(`${program} is not installed.`);
  // After the change of the user, because libfaketime creates files of that user.
  const fake = Object.entries(clock?.environment ?? {}).map(([name, value]) => `${name}=${value}`);
  const [command = path, ...before] = [...as, ...(fake.length === 0 ? [] : ["env", ...fake]), path];
  const begin = async () => {
    const child = spawn(command, [...before, ...options], { stdio: ["ignore", "ignore", "pipe"] });
    let complaint = "";
    child.stderr?.on("data", (text: Buffer) => {
      complaint = (complaint + text.toString()).slice(-2000);
    });
    const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
    try {
      await portOpen(port, child, isReady);
    } catch (error) {
      child.kill("SIGKILL");
      throw new Error(`${program} did not start: ${complaint}`, { cause: error });
    }
    return { child, ended };
  };
  let running = await begin();
  const endBy = async (name: NodeJS.Signals) => {
    running.child.kill(name);
    await running.ended;
    clock?.cleanUp(running.child.pid ?? 0);
  };
  return {
    port,
    url,
    folder,
    kill: () => endBy("SIGKILL"),
    end: () => endBy("SIGTERM"),
    async startAgain() {
      running = await begin();
    },
    signal(name) {
      running.child.kill(name);
    },
    setClock(aheadS) {
      if (clock === undefined) throw new Error(`This ${program} has the machine's clock.`);
      clock.set(aheadS);
    },
    async stop() {
      await endBy("SIGKILL");
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

export async function portOpen(port: number, child: ChildProcess | null, isReady = () => true): Promise<void> {
  const until = performance.now() + START_TIMEOUT_MS;
  while (performance.now() < until) {
    if (child !== null && child.exitCode !== null) throw new Error(`ended with code ${child.exitCode}`);
    if ((await accepts(port)) && isReady()) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error(`port ${port} did not open`);
}

function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = netConnect(port, "127.0.0.1");
    socket.once("connect", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", () => resolve(false));
  });
}
