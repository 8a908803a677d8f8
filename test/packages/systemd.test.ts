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
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { parse } from "yaml";
import { Config } from "#src/app/config/config.ts";
import { absent, programPath, temporaryFolder } from "../real-servers.ts";
import { testFolder } from "../test-resources.ts";

const SYSTEMD = join(import.meta.dirname, "../../packages/systemd");
const UNIT = join(SYSTEMD, "plenum.service");
const unit = readFileSync(UNIT, "utf8");

describe("the systemd unit", () => {
  test.skipIf(absent("systemd-analyze"))("has an exposure level of at most 2.0 in systemd-analyze", () => {
    const { status, stdout } = spawnSync(
      programPath("systemd-analyze") ?? "",
      ["security", "--offline=true", "--threshold=20", UNIT],
      { encoding: "utf8" },
    );
    expect(stdout).toMatch(/Overall exposure level for plenum\.service: [01]\.\d OK/);
    expect(status).toBe(0);
  });

  test.skipIf(absent("systemd-analyze"))("contains no setting that systemd does not know", () => {
    const folder = testFolder("unit");
    const unitCopy = join(folder, "plenum.service");
    writeFileSync(unitCopy, unit.replace("/opt/plenum/plenum run", "/bin/true run"));
    const { stderr } = spawnSync(programPath("systemd-analyze") ?? "", ["verify", unitCopy], { encoding: "utf8" });
    expect(stderr.split("\n").filter((line) => line.includes("plenum"))).toEqual([]);
  });

  test("reloads by SIGHUP and does not restart after a configuration error", () => {
    expect(unit).toContain("ExecReload=/bin/kill -HUP $MAINPID");
    expect(unit).toContain("RestartPreventExitStatus=78");
    expect(unit).toMatch(/^MemoryMax=/m);
    expect(unit).not.toMatch(/^WatchdogSec=/m);
  });

  test("passes the token that the example configuration reads", () => {
    const config = Config.parse(parse(readFileSync(join(SYSTEMD, "plenum.yaml"), "utf8")));
    expect(config.sources.campus?.token).toEqual({ file: "/run/credentials/plenum.service/token" });
    expect(unit).toContain("LoadCredential=token:/etc/plenum/token");
    expect(config.state.folder).toMatch(/^\/var\/lib\/plenum\//);
    expect(unit).toContain("StateDirectory=plenum");
  });
});

test.skipIf(absent("logrotate"))("logrotate accepts the configuration for log files", () => {
  const { stderr, status } = spawnSync(
    programPath("logrotate") ?? "",
    ["--debug", "--state", "/dev/null", join(SYSTEMD, "plenum.logrotate")],
    { encoding: "utf8" },
  );
  expect(status).toBe(0);
  expect(stderr).not.toMatch(/^error/m);
});

describe("the installation script", () => {
  function unpacked(version: string): string {
    const folder = join(temporaryFolder("unpacked"), "plenum-1.2.3");
    onTestFinished(() => rmSync(join(folder, ".."), { recursive: true, force: true }));
    for (const path of ["node_modules/zod", "program", "packages"]) mkdirSync(join(folder, path), { recursive: true });
    writeFileSync(join(folder, "program/main.js"), "");
    writeFileSync(join(folder, "plenum"), `#!/bin/sh\necho ${version}\n`);
    chmodSync(join(folder, "plenum"), 0o755);
    cpSync(SYSTEMD, join(folder, "packages/systemd"), { recursive: true });
    return folder;
  }

  const install = (folder: string, ...args: readonly string[]) =>
    execFileSync(join(folder, "packages/systemd/install"), args, { encoding: "utf8" });

  const files = (folder: string) =>
    (readdirSync(folder, { recursive: true, encoding: "utf8" }) as string[])
      .filter((path) => statSync(join(folder, path)).isFile())
      .toSorted();

  test("installs all files, also over an older version, and keeps edited configuration", () => {
    const installRoot = testFolder("root");
    const folder = unpacked("1.2.3");
    expect(install(folder, "--root", installRoot)).toMatch(
      /^Installed Plenum 1\.2\.3 in \/opt\/plenum\. Next:\n.*\/etc\/plenum\/token/,
    );
    const names = files(installRoot).filter((path) => !path.startsWith("opt/"));
    expect(names).toEqual(["etc/logrotate.d/plenum", "etc/plenum/plenum.yaml", "etc/systemd/system/plenum.service"]);
    expect(readFileSync(join(installRoot, "etc/systemd/system/plenum.service"), "utf8")).toBe(unit);
    expect(statSync(join(installRoot, "etc/plenum/plenum.yaml")).mode & 0o777).toBe(0o640);

    writeFileSync(join(installRoot, "etc/plenum/plenum.yaml"), "mine");
    writeFileSync(join(installRoot, "etc/plenum/token"), "secret");
    expect(install(unpacked("1.2.4"), "--root", installRoot)).toMatch(/systemctl restart plenum\n$/);
    expect(readFileSync(join(installRoot, "etc/plenum/plenum.yaml"), "utf8")).toBe("mine");
    const run = (program: string) => execFileSync(join(installRoot, program), { encoding: "utf8" }).trim();
    expect([run("opt/plenum/plenum"), run("opt/plenum.before/plenum")]).toEqual(["1.2.4", "1.2.3"]);
    expect(existsSync(join(installRoot, "opt/plenum.new"))).toBe(false);
    install(join(installRoot, "opt/plenum.before"), "--root", installRoot);
    expect([run("opt/plenum/plenum"), run("opt/plenum.before/plenum")]).toEqual(["1.2.3", "1.2.4"]);
  });

  test("installs into another prefix and writes it into the unit", () => {
    const installRoot = testFolder("root");
    install(unpacked("1.2.3"), "--root", installRoot, "--prefix", "/srv/plenum/");
    expect(existsSync(join(installRoot, "srv/plenum/plenum"))).toBe(true);
    const written = readFileSync(join(installRoot, "etc/systemd/system/plenum.service"), "utf8");
    expect(written).toContain("ExecStart=/srv/plenum/plenum run");
    expect(written).not.toContain("/opt/");
  });

  test("uninstalls without configuration and state, and removes both with --purge", () => {
    const installRoot = testFolder("root");
    const folder = unpacked("1.2.3");
    install(folder, "--root", installRoot);
    mkdirSync(join(installRoot, "var/lib/plenum/state"), { recursive: true });
    writeFileSync(join(installRoot, "var/lib/plenum/state/plenum.db"), "");
    expect(install(folder, "--uninstall", "--root", installRoot)).toContain("stay");
    expect(files(installRoot)).toEqual(["etc/plenum/plenum.yaml", "var/lib/plenum/state/plenum.db"]);
    install(folder, "--uninstall", "--purge", "--root", installRoot);
    expect(files(installRoot)).toEqual([]);
  });

  test.each([
    [["--prefix", "/"], "--prefix needs a folder of its own"],
    [["--prefix", "opt"], "--prefix needs a folder of its own"],
    [["--purge"], "--purge needs --uninstall."],
    [["--root"], "--root needs a folder."],
    [["--force"], "Usage: "],
  ])("rejects the arguments %j and changes nothing", (args, sentence) => {
    const installRoot = testFolder("root");
    const { status, stderr } = spawnSync(
      join(unpacked("1.2.3"), "packages/systemd/install"),
      args[0] === "--root" ? args : ["--root", installRoot, ...args],
      { encoding: "utf8" },
    );
    expect(status).not.toBe(0);
    expect(stderr).toContain(sentence);
    expect(files(installRoot)).toEqual([]);
  });

  test("refuses to install from a source checkout", () => {
    const installRoot = testFolder("root");
    const { stderr } = spawnSync(join(SYSTEMD, "install"), ["--root", installRoot], { encoding: "utf8" });
    expect(stderr).toMatch(/^Run this from the unpacked archive of a release/);
    expect(files(installRoot)).toEqual([]);
  });
});
