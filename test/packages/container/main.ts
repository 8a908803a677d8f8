import { type ChildProcess, execFileSync, spawn, spawnSync } from "node:child_process";
import { chownSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { stringify } from "yaml";
import { DEFAULT_TOKEN } from "#src/simulator/options.ts";
import { startSimulatorServer } from "#src/simulator/server.ts";
import { createSimulator } from "#src/simulator/simulator.ts";
import { freePort } from "../../real-servers.ts";

/**
 * `npm run container:real [-- FOLDER]`: builds the image of the Dockerfile (packages/container/build) and runs it as uid
 * 10001 with a read-only root, a state volume and no capability, against the simulator. With a folder the base is kept
 * there for the next time. Takes some five minutes, root, and Debian's buildah and debootstrap; without them it says so.
 */

const ROOT = join(import.meta.dirname, "../../..");
const UID = 10001;

interface ImageConfig {
  readonly User: string;
  readonly Env: readonly string[];
  readonly Cmd: readonly string[];
  readonly WorkingDir: string;
  readonly Labels: Readonly<Record<string, string>>;
  readonly Healthcheck: { readonly Test: readonly string[] };
}

const say = (line: string) => process.stdout.write(`${line}\n`);

function check(what: string, isSo: boolean, otherwise = ""): void {
  if (!isSo) throw new Error(`Not so: ${what}. ${otherwise}`);
  say(`  ${what}`);
}

function missing(): readonly string[] {
  const programs = ["buildah", "debootstrap", "unshare", "setpriv", "chroot"].filter(
    (program) => spawnSync("sh", ["-c", `command -v ${program}`]).status !== 0,
  );
  return process.getuid?.() === 0 ? programs : ["root", ...programs];
}

async function main(): Promise<void> {
  const lacks = missing();
  if (lacks.length > 0) {
    say(`The container was not built: it needs ${lacks.join(", ")} (apt-get install -y buildah debootstrap).`);
    process.exitCode = 1;
    return;
  }
  const kept = process.argv[2];
  const work = kept ?? mkdtempSync(join(tmpdir(), "plenum-container-"));
  const image = "localhost/plenum";
  const storage = ["--root", join(work, "storage"), "--runroot", join(work, "run"), "--storage-driver", "vfs"];
  const buildah = (...args: readonly string[]) =>
    execFileSync("buildah", [...storage, ...args], { encoding: "utf8" }).trim();
  let container: string | null = null;
  try {
    say("Building …");
    const built = execFileSync(join(ROOT, "packages/container/build"), ["--work", work, "--tag", image], {
      encoding: "utf8",
      stdio: ["ignore", "pipe", "inherit"],
    });
    say(`  ${built.trim()}`);
    const { Docker } = JSON.parse(buildah("inspect", "--type", "image", image)) as {
      readonly Docker: { readonly config: ImageConfig };
    };
    container = buildah("from", "--pull-never", image);
    await tryImage(buildah("mount", container), Docker.config, work);
    say("All is as it should be.");
  } finally {
    if (container !== null) buildah("rm", container);
    if (kept === undefined) rmSync(work, { recursive: true, force: true });
  }
}

/** Runs what the image says, in its unpacked files `root`. */
async function tryImage(root: string, config: ImageConfig, work: string): Promise<void> {
  check("it runs as 10001", config.User === `${UID}:${UID}`, config.User);
  const head = execFileSync("git", ["rev-parse", "HEAD"], { cwd: ROOT, encoding: "utf8" }).trim();
  check("its label names the commit", config.Labels["org.opencontainers.image.revision"] === head);
  const place = mkdtempSync(join(work, "trial-"));
  const simulator = createSimulator({ sites: [1, 6] }, { now: Date.now });
  const service = await startSimulatorServer(simulator, { port: 0 });
  const port = await freePort();
  const inside = containerIn(root, place, config, service.url, port);
  const worker = inside.start(config.Cmd);
  try {
    await answers(`http://127.0.0.1:${port}/healthz`, worker);
    check("/healthz answers", true);
    const status = readFileSync(`/proc/${inside.pidOf(worker)}/status`, "utf8");
    const line = (name: string) => new RegExp(`^${name}:\\s*(.*)$`, "m").exec(status)?.[1]?.split(/\s+/) ?? [];
    check(
      "all its user ids are 10001",
      line("Uid").every((id) => id === String(UID)),
      line("Uid").join(" "),
    );
    for (const set of ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"])
      check(`it has no capability (${set})`, /^0+$/.test(line(set).join("")), line(set).join(" "));
    check("it can get no new rights", line("NoNewPrivs").join("") === "1");
    const health = inside.run(config.Healthcheck.Test.slice(1));
    check("its health check says well", health.status === 0, health.stderr);
    const version = inside.run(["node", "program/main.js", "--version"]);
    check("its version names the commit", version.stdout.trim().endsWith(`+${head.slice(0, 12)}`), version.stdout);
    const written = inside.run(["sh", "-c", "touch /app/x || touch /x || touch /etc/plenum/x"]);
    check("nothing can be written beside the state", written.status !== 0 && /Read-only/.test(written.stderr));
    const compiled = readdirSync(join(root, "app/.cache/plenum"));
    check("compiled code is there for its user", compiled.length === 1 && compiled[0]?.endsWith(`-${UID}`) === true);
    const begin = performance.now();
    inside.signal(worker, "SIGTERM");
    const code = await new Promise<number | null>((resolve) => worker.once("exit", resolve));
    check(
      `it stops by SIGTERM, in ${Math.round(performance.now() - begin)} ms, and well`,
      code === 0,
      `exit code ${code}`,
    );
    const state = readdirSync(join(place, "state/state"));
    check(
      "its state is on the volume",
      state.some((name) => name.endsWith(".db")),
      state.join(" "),
    );
  } catch (error) {
    process.stderr.write(inside.said(worker));
    throw error;
  } finally {
    // What is in there goes with it (--kill-child).
    if (worker.exitCode === null) worker.kill("SIGKILL");
    await service.close();
    rmSync(place, { recursive: true, force: true });
  }
}

function containerIn(root: string, place: string, config: ImageConfig, serviceUrl: string, port: number) {
  const state = join(place, "state");
  const configuration = join(place, "configuration");
  for (const folder of [state, configuration]) mkdirSync(folder, { mode: 0o700 });
  const files = {
    "plenum.yaml": stringify({
      state: { folder: "/var/lib/plenum/state" },
      status: { port },
      sources: { main: { base_url: serviceUrl, token: { file: "/etc/plenum/token" }, time_zone: "Europe/Oslo" } },
      sinks: { files: { file: { folder: "/var/lib/plenum/events" } } },
    }),
    token: `${DEFAULT_TOKEN}\n`,
  };
  for (const [name, text] of Object.entries(files)) {
    writeFileSync(join(configuration, name), text, { mode: 0o400 });
    chownSync(join(configuration, name), UID, UID);
  }
  for (const folder of [state, configuration]) chownSync(folder, UID, UID);

  const enter = [join(import.meta.dirname, "enter"), root, state, configuration, String(UID)];
  const env = ["env", "-i", `--chdir=${config.WorkingDir}`, ...config.Env];
  const args = (command: readonly string[]) => [
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    ...enter,
    ...env,
    ...command,
  ];
  const heard = new Map<ChildProcess, string>();
  return {
    start(command: readonly string[]): ChildProcess {
      const child = spawn("unshare", args(command), { stdio: ["ignore", "pipe", "pipe"] });
      heard.set(child, "");
      for (const stream of [child.stdout, child.stderr])
        stream?.on("data", (text: Buffer) => heard.set(child, (heard.get(child) ?? "") + text.toString()));
      return child;
    },
    run: (command: readonly string[]) => spawnSync("unshare", args(command), { encoding: "utf8" }),
    said: (child: ChildProcess) => heard.get(child) ?? "",
    /** The first process in there, as it is called out here. */
    pidOf(child: ChildProcess): number {
      const pid = Number(readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, "utf8"));
      // To signal the process 0 would be to signal everybody here.
      if (!(pid > 1)) throw new Error("It is not running any more.");
      return pid;
    },
    signal(child: ChildProcess, name: NodeJS.Signals): void {
      process.kill(this.pidOf(child), name);
    },
  };
}

async function answers(url: string, worker: ChildProcess): Promise<void> {
  for (let turn = 0; turn < 300; turn += 1) {
    if (worker.exitCode !== null) throw new Error("It ended before it answered.");
    const reply = await fetch(url).catch(() => null);
    if (reply?.ok) return;
    await wait(200);
  }
  throw new Error(`${url} did not answer within a minute.`);
}

try {
  await main();
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
}
