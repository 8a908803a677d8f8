import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, connect as netConnect } from "node:net";
import { tmpdir, userInfo } from "node:os";
import { join } from "node:path";

/**
 * Real servers for integration tests: started from PATH on loopback and free ports, in a folder of their own,
 * and ended with the test. `.ci/run` installs them; on a user's machine a missing one skips its tests.
 */
export interface RealServer {
  readonly port: number;
  readonly url: string;
  readonly folder: string;
  /** Ends the process by SIGKILL and keeps its folder, as a crash does. */
  kill(): Promise<void>;
  /** Ends it by SIGTERM and keeps its folder, as a service manager does. */
  end(): Promise<void>;
  /** Starts it again after its end, on the same port and with what is in its folder. */
  again(): Promise<void>;
  /** Sends the process a signal that does not end it. */
  signal(name: NodeJS.Signals): void;
  stop(): Promise<void>;
}

export type Program =
  | "mosquitto"
  | "victoria-metrics"
  | "influxd"
  | "prometheus-alertmanager"
  | "exim4"
  | "chromium"
  | "faketime";

/** Where a program is, or null; in CI a missing one is a failure, because then nothing would be tested. */
export function programPath(program: Program): string | null {
  try {
    // Debian keeps daemons in sbin folders, which an ordinary user's PATH may leave out.
    const PATH = `${process.env.PATH ?? ""}:/usr/sbin:/usr/local/sbin`;
    return execFileSync("sh", ["-c", `command -v ${program}`], { env: { ...process.env, PATH } })
      .toString()
      .trim();
  } catch {
    if (process.env.CI === "true") throw new Error(`${program} is not installed; .ci/run has to install it.`);
    return null;
  }
}

/** For `describe.skipIf(absent("mosquitto"))`: true, with a sentence on standard error, when it is missing. */
export function absent(program: Program): boolean {
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
  /** Lines for the configuration file, in place of the anonymous loopback listener. */
  readonly lines?: (port: number, folder: string) => readonly string[];
  readonly port?: number;
}

export async function startMosquitto(options: MosquittoOptions = {}): Promise<RealServer> {
  const port = options.port ?? (await freePort());
  const folder = temporaryFolder("mosquitto");
  const lines = options.lines?.(port, folder) ?? [
    `listener ${port} 127.0.0.1`,
    "allow_anonymous true",
    "persistence false",
  ];
  const root = process.getuid?.() === 0 ? ["user root"] : [];
  writeFileSync(join(folder, "mosquitto.conf"), `${[...root, ...lines].join("\n")}\n`);
  return started(
    "mosquitto",
    ["-c", join(folder, "mosquitto.conf")],
    port,
    folder,
    `mqtt://127.0.0.1:${port}`,
  );
}

export async function startVictoriaMetrics(): Promise<RealServer> {
  const port = await freePort();
  const folder = temporaryFolder("victoria-metrics");
  const options = [
    `-httpListenAddr=127.0.0.1:${port}`,
    `-storageDataPath=${folder}/data`,
    "-retentionPeriod=1200",
    "-search.latencyOffset=0s",
    "-dedup.minScrapeInterval=1ms",
  ];
  return started("victoria-metrics", options, port, folder, `http://127.0.0.1:${port}`);
}

/** InfluxDB 1.x, as Debian packages it. */
export async function startInflux(): Promise<RealServer> {
  const port = await freePort();
  const rpc = await freePort();
  const folder = temporaryFolder("influxd");
  writeFileSync(
    join(folder, "influxd.conf"),
    `reporting-disabled = true
bind-address = "127.0.0.1:${rpc}"
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
`,
  );
  return started(
    "influxd",
    ["-config", join(folder, "influxd.conf")],
    port,
    folder,
    `http://127.0.0.1:${port}`,
  );
}

/** Alertmanager, as Debian packages it, which tells a webhook at once of all that changes. */
export async function startAlertmanager(webhookUrl: string): Promise<RealServer> {
  const port = await freePort();
  const folder = temporaryFolder("alertmanager");
  writeFileSync(
    join(folder, "alertmanager.yml"),
    `route:
  receiver: test
  group_by: ["..."]
  group_wait: 10ms
  group_interval: 200ms
receivers:
  - name: test
    webhook_configs:
      - url: ${webhookUrl}
`,
  );
  const options = [
    `--config.file=${folder}/alertmanager.yml`,
    `--storage.path=${folder}/data`,
    `--web.listen-address=127.0.0.1:${port}`,
    "--cluster.listen-address=",
  ];
  return started("prometheus-alertmanager", options, port, folder, `http://127.0.0.1:${port}`);
}

/**
 * Exim, as Debian packages it: takes mail by STARTTLS for `plenum` with that password, refuses `gone@…`, defers
 * `later@…`, and keeps the rest in its queue.
 */
export async function startExim(certificate: {
  readonly cert: string;
  readonly key: string;
}): Promise<RealServer> {
  const port = await freePort();
  const folder = temporaryFolder("exim");
  writeFileSync(join(folder, "tls.pem"), `${certificate.key}${certificate.cert}`, { mode: 0o600 });
  writeFileSync(
    join(folder, "exim.conf"),
    `exim_user = ${userInfo().uid}
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
  deny local_parts = gone
  defer local_parts = later
  accept
begin authenticators
plain:
  driver = plaintext
  public_name = PLAIN
  server_prompts = :
  server_condition = \${if and{{eq{$auth2}{plenum}}{eq{$auth3}{plenum}}}}
`,
    { mode: 0o600 },
  );
  const options = ["-C", join(folder, "exim.conf"), "-bdf"];
  return started("exim4", options, port, folder, `smtp://127.0.0.1:${port}`);
}

async function started(
  program: Program,
  options: readonly string[],
  port: number,
  folder: string,
  url: string,
): Promise<RealServer> {
  const path = programPath(program);
  if (path === null) throw new Error(`${program} is not installed.`);
  const begin = async () => {
    const child = spawn(path, options, { stdio: ["ignore", "ignore", "pipe"] });
    let complaint = "";
    child.stderr?.on("data", (text: Buffer) => {
      complaint = (complaint + text.toString()).slice(-2000);
    });
    const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
    try {
      await portOpen(port, child, 15_000);
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
  };
  return {
    port,
    url,
    folder,
    kill: () => endBy("SIGKILL"),
    end: () => endBy("SIGTERM"),
    async again() {
      running = await begin();
    },
    signal(name) {
      running.child.kill(name);
    },
    async stop() {
      await endBy("SIGKILL");
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Waits until the port accepts a connection, the process ends, or the time is up. */
export async function portOpen(port: number, child: ChildProcess | null, withinMs: number): Promise<void> {
  const until = performance.now() + withinMs;
  while (performance.now() < until) {
    if (child !== null && child.exitCode !== null) throw new Error(`ended with code ${child.exitCode}`);
    if (await accepts(port)) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error(`port ${port} did not open within ${withinMs} ms`);
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
