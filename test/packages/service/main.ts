import { type ChildProcess, execFileSync, spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { SERVICE_TOKEN } from "#src/simulator/options.ts";
import { startSimulatorServer } from "#src/simulator/server.ts";
import { createSimulator } from "#src/simulator/simulator.ts";
import { release } from "../../../tools/release/release.ts";
import { freePort } from "../../real-servers.ts";
import { checkPrivileges, missingPrograms, print, ROOT, report, runIfInstalled } from "../real-run.ts";

/** Installs a release in a systemd of its own and runs the unit against the simulator (`npm run service:real`). */

const SYSTEMD = "/usr/lib/systemd/systemd";
const PATIENCE_MS = 60_000;

/** Returns where cgroup2 is mounted writable; hybrid systems also have cgroup1. */
function unifiedCgroup(): string | null {
  const line = readFileSync("/proc/mounts", "utf8")
    .split("\n")
    .find((each) => each.split(" ")[2] === "cgroup2" && !each.split(" ")[3]?.split(",").includes("ro"));
  return line?.split(" ")[1] ?? null;
}

async function main(): Promise<void> {
  const workFolder = mkdtempSync(join(tmpdir(), "plenum-service-"));
  const service = await startSimulatorServer(createSimulator({ sites: [1, 6] }, { now: Date.now }), { port: 0 });
  let booted: Booted | null = null;
  try {
    print("Making the release …");
    const archive = await unpackedRelease(workFolder);
    booted = await boot(workFolder, archive);
    await tryService(booted, service.url);
  } catch (error) {
    if (booted !== null) process.stderr.write(booted.run("journalctl -u plenum --no-pager | tail -30").stdout);
    throw error;
  } finally {
    await booted?.end();
    await service.close();
    rmSync(workFolder, { recursive: true, force: true });
  }
}

async function unpackedRelease(work: string): Promise<string> {
  const git = (...args: readonly string[]) => execFileSync("git", args, { cwd: ROOT, encoding: "utf8" }).trim();
  const commit = `${git("rev-parse", "HEAD")}${git("status", "--porcelain") === "" ? "" : ".dirty"}`;
  const target = join(work, "dist");
  await release({ root: ROOT, target, commit, seconds: Number(git("show", "-s", "--format=%ct", "HEAD")) });
  const archive = readdirSync(target).find((name) => name.endsWith(".tar.gz"));
  if (archive === undefined) throw new Error("the release has no archive");
  execFileSync("tar", ["-xzf", join(target, archive), "-C", work]);
  return join(work, archive.replace(/-linux-x64\.tar\.gz$/, ""));
}

interface Booted {
  run(command: string): { readonly status: number | null; readonly stdout: string; readonly stderr: string };
  end(): Promise<void>;
}

async function boot(work: string, archive: string): Promise<Booted> {
  const rootFolder = join(work, "root");
  mkdirSync(rootFolder);
  const cgroup = join(unifiedCgroup() ?? "", `plenum-service-${process.pid}`);
  mkdirSync(cgroup);
  const namespaces = ["--mount", "--pid", "--cgroup", "--uts", "--ipc", "--fork", "--kill-child"];
  // A cgroup namespace begins at the cgroup of its first process, which systemd then takes for the root.
  const script = `echo $$ > "$1/cgroup.procs"; shift; exec unshare ${namespaces.join(" ")} "$@"`;
  const command = [join(import.meta.dirname, "boot"), rootFolder, archive, process.execPath];
  const bootProcess = spawn("sh", ["-c", script, "sh", cgroup, ...command], { stdio: ["ignore", "ignore", "inherit"] });
  const bootEnded = new Promise<void>((resolve) => bootProcess.once("exit", () => resolve()));
  const booted: Booted = {
    run: (text) =>
      spawnSync(
        "nsenter",
        [
          ...["-t", String(findFirstPid(bootProcess)), "-m", "-p", "-C", "-u", "-i", "env", "-i", "--chdir=/"],
          ...["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "sh", "-c", text],
        ],
        { encoding: "utf8" },
      ),
    async end() {
      if (bootProcess.exitCode === null) bootProcess.kill("SIGKILL");
      await bootEnded;
      await waitUntil("its cgroups are empty", () => removed(cgroup));
    },
  };
  await waitUntil("systemd is running", () => booted.run("systemctl is-system-running").stdout === "running\n");
  return booted;
}

/** Process id of the first process in the namespaces, outside of them. Process 1 would be this machine's own. */
function findFirstPid({ pid }: ChildProcess): number {
  const firstPid = Number(readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ")[0]);
  if (!Number.isInteger(firstPid) || firstPid < 2) throw new Error("nothing was booted");
  return firstPid;
}

function removed(folder: string): boolean {
  try {
    for (const folderEntry of readdirSync(folder, { withFileTypes: true }))
      if (folderEntry.isDirectory()) removed(join(folder, folderEntry.name));
    rmdirSync(folder);
    return true;
  } catch {
    return false;
  }
}

async function waitUntil(what: string, isSo: () => boolean): Promise<void> {
  const startMs = performance.now();
  for (;;) {
    try {
      if (isSo()) return;
    } catch (error) {
      if (performance.now() - startMs > PATIENCE_MS) throw error;
    }
    if (performance.now() - startMs > PATIENCE_MS) throw new Error(`Failed within a minute: ${what}.`);
    await wait(500);
  }
}

async function tryService({ run }: Booted, serviceUrl: string): Promise<void> {
  const must = (command: string) => {
    const { status, stdout, stderr } = run(command);
    if (status !== 0) throw new Error(`${command}: ${stdout}${stderr}`);
    return stdout;
  };
  const of = (name: string) => must(`systemctl show plenum --property ${name} --value`).trim();
  const plenum = (words: string) => run(`/opt/plenum/plenum ${words} --config /etc/plenum/plenum.yaml`);
  report("it is installed", must("cd /srv/plenum && packages/systemd/install").startsWith("Plenum "));
  must(`printf ${SERVICE_TOKEN} | install -m 600 /dev/stdin /etc/plenum/token`);
  const port = await freePort();
  must(`sed -i 's|https://monitoring.example.com|${serviceUrl}|' /etc/plenum/plenum.yaml`);
  must(`printf 'status: { port: ${port} }\\n' >> /etc/plenum/plenum.yaml`);

  must("systemctl enable --now plenum");
  const isRead = () => JSON.parse(plenum("status --json").stdout).sources[0].token !== null;
  await waitUntil("it reads from the service", isRead);
  report("it reads with the token from systemd", true);
  const pid = of("MainPID");
  const status = must(`cat /proc/${pid}/status`);
  const field = checkPrivileges(status, must("id -u plenum").trim());
  report("its system calls are filtered", field("Seccomp")[0] === "2");
  const unitShell = `nsenter -t ${pid} -m setpriv --reuid=plenum --regid=plenum --clear-groups sh -c`;
  for (const path of ["/opt/plenum/x", "/etc/plenum/x", "/var/lib/x", "/usr/local/x"])
    report(`it cannot write ${path}`, run(`${unitShell} 'touch ${path}'`).status !== 0);
  report("it can write its state", run(`${unitShell} 'touch /var/lib/plenum/x && rm /var/lib/plenum/x'`).status === 0);
  report("the state is private", must("stat -c '%a %U' /var/lib/plenum").trim() === "700 plenum");

  must("sed -i 's/every: 15m/every: 5m/' /etc/plenum/plenum.yaml && systemctl reload plenum");
  const log = (text: string) => must("journalctl -u plenum --no-pager").includes(text);
  await waitUntil("a reload applies the changed file", () => log("15m → 5m"));
  report("a reload applies the changed file", true);

  must(`kill -KILL ${pid}`);
  await waitUntil("it restarts", () => of("NRestarts") === "1" && of("SubState") === "running");
  report("it restarts after a kill", true);
  await waitUntil("it responds again", () => plenum("status --probe").status === 0);
  const stopStartMs = performance.now();
  must("systemctl stop plenum");
  report(`it stops cleanly in ${Math.round(performance.now() - stopStartMs)} ms`, of("Result") === "success");

  must("printf 'sources: {}\\n' > /etc/plenum/plenum.yaml");
  run("systemctl start plenum");
  await waitUntil("an invalid file stops it", () => of("SubState") === "failed");
  report("an invalid file stops it with 78", of("ExecMainStatus") === "78", of("ExecMainStatus"));
  await wait(8_000);
  report("it does not restart", of("NRestarts") === "0" && of("SubState") === "failed");

  must("/opt/plenum/packages/systemd/install --uninstall --purge");
  const folders = "/opt/plenum* /etc/plenum /var/lib/plenum /etc/systemd/system/plenum.service";
  const { stdout: remaining } = run(`ls -d ${folders}; id plenum`);
  report("the removal leaves no files", remaining === "", remaining);
}

await runIfInstalled(
  "The service",
  [
    ...missingPrograms("unshare", "nsenter", "pivot_root", "systemctl", "systemd-id128", "useradd"),
    ...(existsSync(SYSTEMD) ? [] : ["systemd"]),
    ...(unifiedCgroup() === null ? ["a writable cgroup2"] : []),
  ],
  main,
);
