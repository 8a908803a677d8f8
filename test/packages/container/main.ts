import { type ChildProcess, execFileSync, spawn, spawnSync } from "node:child_process";
import { chownSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { stringify } from "yaml";
import { SERVICE_TOKEN } from "#src/simulator/options.ts";
import { startSimulatorServer } from "#src/simulator/server.ts";
import { createSimulator } from "#src/simulator/simulator.ts";
import { freePort } from "../../real-servers.ts";
import { checkPrivileges, missingPrograms, print, ROOT, report, runIfInstalled } from "../real-run.ts";

/** Builds the image and runs it with a read-only root and a state volume (`npm run container:real [-- FOLDER]`). */

const UID = 10001;

interface ImageConfig {
  readonly User: string;
  readonly Env: readonly string[];
  readonly Cmd: readonly string[];
  readonly WorkingDir: string;
  readonly Labels: Readonly<Record<string, string>>;
  readonly Healthcheck: { readonly Test: readonly string[] };
}

async function main(): Promise<void> {
  const outputFolder = process.argv[2];
  const work = outputFolder ?? mkdtempSync(join(tmpdir(), "plenum-container-"));
  const image = "localhost/plenum";
  const storage = ["--root", join(work, "storage"), "--runroot", join(work, "run"), "--storage-driver", "vfs"];
  const buildah = (...args: readonly string[]) =>
    execFileSync("buildah", [...storage, ...args], { encoding: "utf8" }).trim();
  let container: string | null = null;
  try {
    print("Building …");
    const built = execFileSync(join(ROOT, "packages/container/build"), ["--work", work, "--tag", image], {
      encoding: "utf8",
      stdio: ["ignore", "pipe", "inherit"],
    });
    print(`  ${built.trim()}`);
    const { Docker } = JSON.parse(buildah("inspect", "--type", "image", image)) as {
      readonly Docker: { readonly config: ImageConfig };
    };
    container = buildah("from", "--pull-never", image);
    await tryImage(buildah("mount", container), Docker.config, work);
  } finally {
    if (container !== null) buildah("rm", container);
    if (outputFolder === undefined) rmSync(work, { recursive: true, force: true });
  }
}

async function tryImage(root: string, config: ImageConfig, work: string): Promise<void> {
  report("the image runs as 10001", config.User === `${UID}:${UID}`, config.User);
  const head = execFileSync("git", ["rev-parse", "HEAD"], { cwd: ROOT, encoding: "utf8" }).trim();
  report("the label contains the commit", config.Labels["org.opencontainers.image.revision"] === head);
  const trialFolder = mkdtempSync(join(work, "trial-"));
  const simulator = createSimulator({ sites: [1, 6] }, { now: Date.now });
  const service = await startSimulatorServer(simulator, { port: 0 });
  const port = await freePort();
  const trialContainer = createContainer(root, trialFolder, config, service.url, port);
  const worker = trialContainer.start(config.Cmd);
  try {
    await waitForResponse(`http://127.0.0.1:${port}/healthz`, worker);
    report("/healthz responds", true);
    const status = readFileSync(`/proc/${trialContainer.pidOf(worker)}/status`, "utf8");
    checkPrivileges(status, String(UID));
    const health = trialContainer.run(config.Healthcheck.Test.slice(1));
    report("the health check succeeds", health.status === 0, health.stderr);
    const version = trialContainer.run(["node", "program/main.js", "--version"]);
    report("the version contains the commit", version.stdout.trim().endsWith(`+${head.slice(0, 12)}`), version.stdout);
    const written = trialContainer.run(["sh", "-c", "touch /app/x || touch /x || touch /etc/plenum/x"]);
    report("only the state is writable", written.status !== 0 && /Read-only/.test(written.stderr));
    const compiled = readdirSync(join(root, "app/.cache/plenum"));
    report("compiled code exists for its user", compiled.length === 1 && compiled[0]?.endsWith(`-${UID}`) === true);
    const stopStartMs = performance.now();
    trialContainer.signal(worker, "SIGTERM");
    const code = await new Promise<number | null>((resolve) => worker.once("exit", resolve));
    report(
      `it stops cleanly ${Math.round(performance.now() - stopStartMs)} ms after SIGTERM`,
      code === 0,
      `exit code ${code}`,
    );
    const stateFiles = readdirSync(join(trialFolder, "state/state"));
    report(
      "the state is on the volume",
      stateFiles.some((name) => name.endsWith(".db")),
      stateFiles.join(" "),
    );
  } catch (error) {
    process.stderr.write(trialContainer.said(worker));
    throw error;
  } finally {
    // --kill-child also ends the processes in the container.
    if (worker.exitCode === null) worker.kill("SIGKILL");
    await service.close();
    rmSync(trialFolder, { recursive: true, force: true });
  }
}

function createContainer(root: string, place: string, config: ImageConfig, serviceUrl: string, port: number) {
  const stateFolder = join(place, "state");
  const configuration = join(place, "configuration");
  for (const folder of [stateFolder, configuration]) mkdirSync(folder, { mode: 0o700 });
  const files = {
    "plenum.yaml": stringify({
      state: { folder: "/var/lib/plenum/state" },
      status: { port },
      sources: { main: { base_url: serviceUrl, token: { file: "/etc/plenum/token" }, time_zone: "Europe/Oslo" } },
      sinks: { files: { file: { folder: "/var/lib/plenum/events" } } },
    }),
    token: `${SERVICE_TOKEN}\n`,
  };
  for (const [name, text] of Object.entries(files)) {
    writeFileSync(join(configuration, name), text, { mode: 0o400 });
    chownSync(join(configuration, name), UID, UID);
  }
  for (const folder of [stateFolder, configuration]) chownSync(folder, UID, UID);

  const enterCommand = [join(import.meta.dirname, "enter"), root, stateFolder, configuration, String(UID)];
  const env = ["env", "-i", `--chdir=${config.WorkingDir}`, ...config.Env];
  const args = (command: readonly string[]) => [
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    ...enterCommand,
    ...env,
    ...command,
  ];
  const output = new Map<ChildProcess, string>();
  return {
    start(command: readonly string[]): ChildProcess {
      const child = spawn("unshare", args(command), { stdio: ["ignore", "pipe", "pipe"] });
      output.set(child, "");
      for (const stream of [child.stdout, child.stderr])
        stream?.on("data", (text: Buffer) => output.set(child, (output.get(child) ?? "") + text.toString()));
      return child;
    },
    run: (command: readonly string[]) => spawnSync("unshare", args(command), { encoding: "utf8" }),
    said: (child: ChildProcess) => output.get(child) ?? "",
    pidOf(child: ChildProcess): number {
      const pid = Number(readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, "utf8"));
      // Process 0 would be this process group.
      if (!(pid > 1)) throw new Error("The container has ended.");
      return pid;
    },
    signal(child: ChildProcess, name: NodeJS.Signals): void {
      process.kill(this.pidOf(child), name);
    },
  };
}

async function waitForResponse(url: string, worker: ChildProcess): Promise<void> {
  for (let attempt = 0; attempt < 300; attempt += 1) {
    if (worker.exitCode !== null) throw new Error("The worker ended before it responded.");
    const reply = await fetch(url).catch(() => null);
    if (reply?.ok) return;
    await wait(200);
  }
  throw new Error(`${url} did not answer within a minute.`);
}

const missingTools = missingPrograms("buildah", "debootstrap", "unshare", "setpriv", "chroot");
await runIfInstalled("The container", missingTools, main);
