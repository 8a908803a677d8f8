import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { refuseUntrustedConfigFile } from "#src/app/config/file-permission-check.ts";
import { smallDisk } from "../small-disk.ts";
import { testFolder } from "../test-resources.ts";

const ownUid = process.geteuid?.() ?? null;
const isRoot = ownUid === 0;

function createFolder(mode = 0o755): string {
  const folder = testFolder("plenum-trust");
  chmodSync(folder, mode);
  return folder;
}

function writeConfig(folder: string, mode = 0o644): string {
  const file = join(folder, "plenum.yaml");
  writeFileSync(file, "sources: {}\n");
  chmodSync(file, mode);
  return file;
}

function refusal(file: string, uid: number | null = ownUid): string | null {
  try {
    refuseUntrustedConfigFile(file, uid);
    return null;
  } catch (error) {
    return `${(error as Error).message} ${(error as { readonly hint?: string }).hint}`;
  }
}

describe.skipIf(ownUid === null)("the ownership check of a configuration file", () => {
  test.each([0o600, 0o640, 0o644, 0o400])("accepts mode %o", (mode) => {
    expect(refusal(writeConfig(createFolder(), mode))).toBeNull();
  });

  test.each([0o666, 0o646, 0o602])("rejects mode %o and prints the command that repairs the mode", (mode) => {
    const file = writeConfig(createFolder(), mode);
    expect(refusal(file)).toBe(
      `Others than the owner can write to the configuration file, ${file} (mode ${mode.toString(8)}, user ${ownUid}, group ${process.getegid?.()}). Run: chmod go-w ${file}, or, if you trust everybody who may write there, run with --allow-writable-config.`,
    );
  });

  test("accepts a file that only the private group of its owner can write (umask 002)", () => {
    expect(refusal(writeConfig(createFolder(0o775), 0o664)) === null).toBe(process.getegid?.() === ownUid);
  });

  test.skipIf(!isRoot)("rejects a file that another group can write", () => {
    const file = writeConfig(createFolder(), 0o664);
    execFileSync("chgrp", ["12345", file]);
    expect(refusal(file)).toContain("group 12345");
  });

  test("rejects a file in a folder that other users can write to", () => {
    const folder = createFolder(0o777);
    expect(refusal(writeConfig(folder))).toContain(
      `the folder of the configuration file, ${folder} (mode 777, user ${ownUid},`,
    );
  });

  test("accepts a file in a sticky folder such as /tmp", () => {
    expect(refusal(writeConfig(createFolder(0o1777)))).toBeNull();
  });

  test("accepts a file of root for any user", () => {
    expect(refusal("/etc/passwd", 10_001)).toBeNull();
  });

  test.skipIf(!isRoot)("rejects a file of another user, and a file in another user's folder", () => {
    const folder = createFolder();
    const file = writeConfig(folder);
    execFileSync("chown", ["12345", file]);
    expect(refusal(file)).toContain(`${file}, belongs to another user (12345; this one is 0). Run: chown 0 ${file}`);
    expect(refusal(file, 12_345), "root's folder").toBeNull();
    execFileSync("chown", ["0", file]);
    execFileSync("chown", ["12345", folder]);
    expect(refusal(file)).toContain(`The folder of the configuration file, ${folder}, belongs to another user`);
  });

  test("checks the folder of each link that leads to the file", () => {
    const realFolder = createFolder();
    const file = writeConfig(realFolder);
    const between = createFolder();
    symlinkSync(realFolder, join(between, "current"));
    const outer = createFolder();
    symlinkSync(join(between, "current", "plenum.yaml"), join(outer, "plenum.yaml"));
    const link = join(outer, "plenum.yaml");
    expect(refusal(link)).toBeNull();
    chmodSync(outer, 0o777);
    expect(refusal(link)).toContain(outer);
    chmodSync(outer, 0o755);
    chmodSync(between, 0o777);
    expect(refusal(link)).toContain(between);
    chmodSync(between, 0o755);
    chmodSync(realFolder, 0o777);
    expect(refusal(link)).toContain(realFolder);
    chmodSync(realFolder, 0o755);
    chmodSync(file, 0o666);
    expect(refusal(link)).toContain("mode 666");
  });

  test.skipIf(!isRoot)("rejects another user's link to the file in a sticky folder", () => {
    const file = writeConfig(createFolder());
    const link = join(createFolder(0o1777), "plenum.yaml");
    symlinkSync(file, link);
    expect(refusal(link)).toBeNull();
    execFileSync("chown", ["-h", "12345", link]);
    expect(refusal(link)).toContain(`The link to the configuration file, ${link}, belongs to another user (12345`);
  });

  test("accepts a missing file and a pipe of the current user", () => {
    const folder = createFolder(0o777);
    expect(refusal(join(folder, "plenum.yaml"))).toBeNull();
    const pipe = join(folder, "pipe");
    execFileSync("mkfifo", ["-m", "600", pipe]);
    expect(refusal(pipe)).toBeNull();
  });
});

test.skipIf(!isRoot)(
  "the ownership check accepts a read-only ConfigMap of Kubernetes, and rejects the same folder when the folder is writable",
  () => {
    const folder = smallDisk(1);
    if (folder === null) return;
    mkdirSync(join(folder, "..2026_11_20"), { mode: 0o755 });
    writeConfig(join(folder, "..2026_11_20"));
    symlinkSync("..2026_11_20", join(folder, "..data"));
    symlinkSync(join("..data", "plenum.yaml"), join(folder, "plenum.yaml"));
    chmodSync(folder, 0o777);
    const file = join(folder, "plenum.yaml");
    expect(refusal(file)).toContain(`${folder} (mode 777`);
    execFileSync("mount", ["-o", "remount,ro", folder]);
    expect(refusal(file)).toBeNull();
    expect(refusal(file, 10_001), "as the user of the container").toBeNull();
  },
);

test("the ownership check accepts every file on systems without user ids", () => {
  expect(refusal(writeConfig(createFolder(0o777), 0o666), null)).toBeNull();
});
