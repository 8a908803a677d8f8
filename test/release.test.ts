import { execFileSync, spawnSync } from "node:child_process";
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { USER_AGENT, VERSION } from "#src/core/runtime/version.ts";
import { changesOf, type Release, release } from "../tools/release/release.ts";
import { runProgram } from "./plenum-process.ts";
import { temporaryFolder } from "./real-servers.ts";
import { testFolder } from "./test-resources.ts";

const ROOT = join(import.meta.dirname, "..");
const { version, dependencies, engines } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
const COMMIT = "0123456789abcdef0123456789abcdef01234567";
const SECONDS = 1_700_000_000;
let dist: string;
let program: string;
let made: Release;

beforeAll(async () => {
  const folder = temporaryFolder("release");
  chmodSync(tmpdir(), 0o711);
  chmodSync(folder, 0o711);
  dist = join(folder, "dist");
  made = await release({ root: ROOT, target: dist, commit: COMMIT, seconds: SECONDS });
  execFileSync("tar", ["-xzf", join(dist, archive()), "-C", folder]);
  program = join(folder, `plenum-${version}`);
});

afterAll(() => {
  rmSync(join(dist, ".."), { recursive: true, force: true });
});

const archive = () => `plenum-${version}-${process.platform}-${process.arch}.tar.gz`;
const paths = (folder: string) =>
  readdirSync(folder, { recursive: true, encoding: "utf8" }).map((path) => path.replaceAll("\\", "/"));

const asNobody = process.getuid?.() === 0 ? ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] : [];

describe("a release", () => {
  test("is byte-identical when built from another folder", async () => {
    const other = testFolder("another place");
    for (const name of readdirSync(ROOT).filter((one) => !/^(\.|node_modules$|test$|dist$)/.test(one)))
      cpSync(join(ROOT, name), join(other, name), { recursive: true });
    symlinkSync(join(ROOT, "node_modules"), join(other, "node_modules"));
    // Files of users, which must not be released.
    mkdirSync(join(other, "packages/compose/secrets"), { recursive: true });
    for (const path of ["packages/compose/secrets/token", "config/plenum.yaml"])
      writeFileSync(join(other, path), "secret");
    const target = join(other, "made/here");
    await release({ root: other, target, commit: COMMIT, seconds: SECONDS });
    expect(readFileSync(join(target, "SHA256SUMS"), "utf8")).toBe(readFileSync(join(dist, "SHA256SUMS"), "utf8"));
  });

  test("has checksums of all its files", () => {
    expect(execFileSync("sha256sum", ["-c", "SHA256SUMS"], { cwd: dist, encoding: "utf8" }).split("\n")).toEqual([
      `plenum-${version}-changes.md: OK`,
      `${archive()}: OK`,
      `plenum-${version}.cdx.json: OK`,
      `plenum-${version}.tgz: OK`,
      "",
    ]);
    expect(readdirSync(dist)).toHaveLength(5);
    expect(readFileSync(join(dist, `plenum-${version}-changes.md`), "utf8")).toMatch(`## ${version}`);
  });

  test("is at most 40 MB, unpacked", () => {
    expect(made.parts.reduce((sum, [, bytes]) => sum + bytes, 0)).toBeLessThan(40e6);
    expect(made.files.find(([name]) => name === archive())?.[1]).toBeLessThan(10e6);
  });

  test("contains all licences, and no sources or development files", () => {
    const all = paths(program);
    expect(all.filter((path) => path.endsWith(".ts"))).toEqual([]);
    expect(all.filter((path) => /^(test|tools\/release|src\/README)/.test(path))).toEqual([]);
    expect(all).toEqual(expect.arrayContaining(["config/example.yaml", "docs/plenum.1", "plenum"]));
    expect(readFileSync(join(program, "THIRD-PARTY-NOTICES.md"), "utf8")).toMatch(/^## zod /m);
    expect(JSON.parse(readFileSync(join(program, "sbom.cdx.json"), "utf8"))).toMatchObject({ bomFormat: "CycloneDX" });
    expect(existsSync(join(program, "node_modules/zod/LICENSE"))).toBe(true);
    for (const name of Object.keys(dependencies))
      expect(existsSync(join(program, "node_modules", name)), name).toBe(true);
    for (const name of ["vitest", "typescript", "dev-runtime"])
      expect(existsSync(join(program, "node_modules", name)), name).toBe(false);
    const modes = new Set(all.map((path) => statSync(join(program, path)).mode & 0o777));
    expect([...modes].filter((mode) => mode !== 0o755 && mode !== 0o644)).toEqual([]);
  });

  test("contains every file that its modules import", () => {
    const files = paths(program).filter((path) => /^program\/.*\.js$/.test(path) && path !== "program/main.js");
    expect(files.length).toBeGreaterThan(100);
    const code = `for (const file of ${JSON.stringify(files)}) await import("./" + file);`;
    const { stderr, status } = spawnSync(process.execPath, ["--input-type=module", "-e", code], {
      cwd: program,
      encoding: "utf8",
    });
    expect({ stderr, status }).toEqual({ stderr: "", status: 0 });
  });

  test("runs the demo as a user without write permission and does not change its folder", async () => {
    const folder = testFolder("nobody");
    chmodSync(folder, 0o777);
    const before = paths(program).length;
    spawnSync("chmod", ["-R", "a-w", program]);
    const [command = "", ...args] = [...asNobody, join(program, "plenum"), "demo", "--folder", join(folder, "demo")];
    // The program must choose the cache folder itself.
    vi.stubEnv("NODE_COMPILE_CACHE", undefined);
    onTestFinished(() => void vi.unstubAllEnvs());
    const environment = { HOME: "/nonexistent", XDG_CACHE_HOME: join(folder, "cache") };
    const demo = runProgram(command, args, { cwd: folder, environment });
    await demo.waitForOutput(/status page +http\S+/);
    const [, address = ""] = /status page +(http\S+)/.exec(demo.output()) ?? [];
    expect((await fetch(address)).status).toBe(200);
    expect(await demo.end("SIGTERM")).toBe(0);
    expect(demo.output()).toContain("Stopped cleanly");
    expect(paths(program)).toHaveLength(before);
    expect(readdirSync(join(folder, "cache/plenum"))).toHaveLength(1);
  });

  test("prints its version and commit", () => {
    const { stdout } = spawnSync(join(program, "plenum"), ["--version"], { encoding: "utf8" });
    expect(stdout).toBe(`${version}+0123456789ab\n`);
  });

  test("reports the required version if Node.js is too old", () => {
    const floor = engines.node.slice(2);
    const claim = `Object.defineProperty(process, "versions", { value: { ...process.versions, node: "20.20.2" } })`;
    const { status, stdout, stderr } = spawnSync(
      process.execPath,
      ["--import", `data:text/javascript,${encodeURIComponent(claim)}`, join(program, "plenum"), "demo"],
      { encoding: "utf8" },
    );
    expect({ status, stdout, stderr }).toEqual({
      status: 1,
      stdout: "",
      stderr: `Plenum ${version} needs Node.js ${floor} or newer, and this is Node.js 20.20.2: install a newer one from https://nodejs.org and run this command again.\n`,
    });
  });

  test("contains an npm package with a command and only the locked dependencies", () => {
    const list = execFileSync("tar", ["-tzf", join(dist, `plenum-${version}.tgz`)], { encoding: "utf8" });
    expect(list).toContain("package/tools/start.cjs\n");
    expect(list).toContain("package/npm-shrinkwrap.json\n");
    const manifest = JSON.parse(readFileSync(join(program, "package.json"), "utf8"));
    expect(manifest).toMatchObject({ version, dependencies, gitHead: COMMIT, bin: { plenum: "tools/start.cjs" } });
    expect(manifest).not.toHaveProperty("devDependencies");
    expect(manifest).not.toHaveProperty("scripts");
    const { packages } = JSON.parse(readFileSync(join(program, "npm-shrinkwrap.json"), "utf8"));
    expect(Object.values(packages).filter((one) => (one as { dev?: boolean }).dev === true)).toEqual([]);
    expect(packages["node_modules/zod"]).toMatchObject({ integrity: expect.stringMatching(/^sha512-/) });
  });
});

describe("the version of Plenum", () => {
  test("contains the commit of a clone and is sent as user agent", () => {
    const { status, stdout } = spawnSync("git", ["rev-parse", "HEAD"], { cwd: ROOT, encoding: "utf8" });
    const isClone = status === 0 && statSync(join(ROOT, ".git"), { throwIfNoEntry: false })?.isDirectory();
    expect(VERSION).toBe(isClone ? `${version}+${stdout.slice(0, 12)}` : version);
    expect(USER_AGENT).toBe(`plenum/${VERSION}`);
  });

  test.each([
    ["in a release", `{"version":"1.2.3","gitHead":"${COMMIT}"}`, {}, "1.2.3+0123456789ab"],
    ["in a modified release", `{"version":"1.2.3","gitHead":"${COMMIT}.dirty"}`, {}, "1.2.3+0123456789ab.dirty"],
    ["in a package without a known commit", '{"version":"1.2.3"}', {}, "1.2.3"],
    ["in a clone without a branch", '{"version":"1.2.3"}', { HEAD: `${COMMIT}\n` }, "1.2.3+0123456789ab"],
    [
      "in a clone whose branches git has packed",
      '{"version":"1.2.3"}',
      { HEAD: "ref: refs/heads/main\n", "packed-refs": `# pack-refs\n${COMMIT} refs/heads/main\n` },
      "1.2.3+0123456789ab",
    ],
    ["in a clone without a commit", '{"version":"1.2.3"}', { HEAD: "ref: refs/heads/main\n" }, "1.2.3"],
  ])("consists of the package version and the commit, if known: %s", (_, manifest, git, wanted) => {
    const folder = testFolder("version");
    for (const name of ["src", ".git"]) mkdirSync(join(folder, name));
    cpSync(join(ROOT, "src/core/runtime/version.ts"), join(folder, "src/core/runtime/version.ts"));
    const files = {
      "package.json": manifest,
      ...Object.fromEntries(Object.entries(git).map(([k, v]) => [`.git/${k}`, v])),
    };
    for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
    const code = 'console.log((await import("./src/core/runtime/version.ts")).VERSION)';
    const { stdout } = spawnSync(process.execPath, ["--input-type=module", "-e", code], {
      cwd: folder,
      encoding: "utf8",
    });
    expect(stdout).toBe(`${wanted}\n`);
  });
});

test("rejects a release without a section in CHANGELOG.md", () => {
  expect(changesOf("# C\n\n## 2.0.0 – x\n\nnew\n\n## 1.0.0\n\nold\n", "2.0.0")).toBe("## 2.0.0 – x\n\nnew\n");
  expect(() => changesOf("# C\n\n## 1.0.0\n", "2.0.0")).toThrow("CHANGELOG.md has no section “## 2.0.0”");
});
