import { type ChildProcess, execFileSync, spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { DEFAULT_TOKEN } from "#src/simulator/options.ts";
import { startSimulatorServer } from "#src/simulator/server.ts";
import { createSimulator } from "#src/simulator/simulator.ts";
import { release } from "../../../tools/release/release.ts";
import { freePort } from "../../real-servers.ts";
import { check, checkPrivileges, missingPrograms, ROOT, runIfInstalled, say } from "../real-run.ts";

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
  const work = mkdtempSync(join(tmpdir(), "plenum-service-"));
  const service = await startSimulatorServer(createSimulator({ sites: [1, 6] }, { now: Date.now }), { port: 0 });
  let booted: Booted | null = null;
  try {
    say("Making the release …");
    const archive = await unpackedRelease(work);
    booted = await boot(work, archive);
    await tryService(booted, service.url);
  } catch (error) {
    if (booted !== null) process.stderr.write(booted.run("journalctl -u plenum --no-pager | tail -30").stdout);
    throw error;
  } finally {
    await booted?.end();
    await service.close();
    rmSync(work, { recursive: true, force: true });
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
  const root = join(work, "root");
  mkdirSync(root);
  const cgroup = join(unifiedCgroup() ?? "", `plenum-service-${process.pid}`);
  mkdirSync(cgroup);
  const namespaces = ["--mount", "--pid", "--cgroup", "--uts", "--ipc", "--fork", "--kill-child"];
  // A cgroup namespace begins at the cgroup of its first process, which systemd then takes for the root.
  const script = `echo $$ > "$1/cgroup.procs"; shift; exec unshare ${namespaces.join(" ")} "$@"`;
  const command = [join(import.meta.dirname, "boot"), root, archive, process.execPath];
  const child = spawn("sh", ["-c", script, "sh", cgroup, ...command], { stdio: ["ignore", "ignore", "inherit"] });
  const over = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const booted: Booted = {
    run: (text) =>
      spawnSync(
        "nsenter",
        [
          ...["-t", String(firstIn(child)), "-m", "-p", "-C", "-u", "-i", "env", "-i", "--chdir=/"],
          ...["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "sh", "-c", text],
        ],
        { encoding: "utf8" },
      ),
    async end() {
      if (child.exitCode === null) child.kill("SIGKILL");
      await over;
      await until("its cgroups are empty", () => removed(cgroup));
    },
  };
  await until("systemd is running", () => booted.run("systemctl is-system-running").stdout === "running\n");
  return booted;
}

/** Process id of the first process in the namespaces, outside of them. Process 1 would be this machine's own. */
function firstIn({ pid }: ChildProcess): number {
  const first = Number(readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ")[0]);
  if (!Number.isInteger(first) || first < 2) throw new Error("nothing was booted");
  return first;
}

function removed(folder: string): boolean {
  try {
    for (const each of readdirSync(folder, { withFileTypes: true }))
      if (each.isDirectory()) removed(join(folder, each.name));
    rmdirSync(folder);
    return true;
  } catch {
    return false;
  }
}

async function until(what: string, isSo: () => boolean): Promise<void> {
  const begin = performance.now();
  for (;;) {
    try {
      if (isSo()) return;
    } catch (error) {
      if (performance.now() - begin > PATIENCE_MS) throw error;
    }
    if (performance.now() - begin > PATIENCE_MS) throw new Error(`Failed within a minute: ${what}.`);
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
  check("it is installed", must("cd /srv/plenum && packages/systemd/install").startsWith("Plenum "));
  must(`printf ${DEFAULT_TOKEN} | install -m 600 /dev/stdin /etc/plenum/token`);
  const port = await freePort();
  must(`sed -i 's|https://monitoring.example.com|${serviceUrl}|' /etc/plenum/plenum.yaml`);
  must(`printf 'status: { port: ${port} }\\n' >> /etc/plenum/plenum.yaml`);

  must("systemctl enable --now plenum");
  const isRead = () => JSON.parse(plenum("status --json").stdout).sources[0].token !== null;
  await until("it reads from the service", isRead);
  check("it reads with the token from systemd", true);
  const pid = of("MainPID");
  const status = must(`cat /proc/${pid}/status`);
  const field = checkPrivileges(status, must("id -u plenum").trim());
  check("its system calls are filtered", field("Seccomp")[0] === "2");
  const inside = `nsenter -t ${pid} -m setpriv --reuid=plenum --regid=plenum --clear-groups sh -c`;
  for (const place of ["/opt/plenum/x", "/etc/plenum/x", "/var/lib/x", "/usr/local/x"])
    check(`it cannot write ${place}`, run(`${inside} 'touch ${place}'`).status !== 0);
  check("it can write its state", run(`${inside} 'touch /var/lib/plenum/x && rm /var/lib/plenum/x'`).status === 0);
  check("the state is private", must("stat -c '%a %U' /var/lib/plenum").trim() === "700 plenum");

  must("sed -i 's/every: 15m/every: 5m/' /etc/plenum/plenum.yaml && systemctl reload plenum");
  const log = (text: string) => must("journalctl -u plenum --no-pager").includes(text);
  await until("a reload applies the changed file", () => log("15m → 5m"));
  check("a reload applies the changed file", true);

  must(`kill -KILL ${pid}`);
  await until("it restarts", () => of("NRestarts") === "1" && of("SubState") === "running");
  check("it restarts after a kill", true);
  await until("it responds again", () => plenum("status --probe").status === 0);
  const begin = performance.now();
  must("systemctl stop plenum");
  check(`it stops cleanly in ${Math.round(performance.now() - begin)} ms`, of("Result") === "success");

  must("printf 'sources: {}\\n' > /etc/plenum/plenum.yaml");
  run("systemctl start plenum");
  await until("an invalid file stops it", () => of("SubState") === "failed");
  check("an invalid file stops it with 78", of("ExecMainStatus") === "78", of("ExecMainStatus"));
  await wait(8_000);
  check("it does not restart", of("NRestarts") === "0" && of("SubState") === "failed");

  must("/opt/plenum/packages/systemd/install --uninstall --purge");
  const left = run("ls -d /opt/plenum* /etc/plenum /var/lib/plenum /etc/systemd/system/plenum.service; id plenum");
  check("the removal leaves no files", left.stdout === "", left.stdout);
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
