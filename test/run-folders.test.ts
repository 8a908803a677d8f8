import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { createRunFolder, RUN_FOLDER_PREFIX, removeKilledRunFolders } from "./run-folders.ts";
import { mounted } from "./small-disk.ts";
import { testFolder } from "./test-folder.ts";

/** A process id above the maximum of Linux. */
const DEAD = 99_999_999;

function placeOfRuns(): string {
  const place = testFolder("runs");
  for (const name of [`${RUN_FOLDER_PREFIX}${DEAD}-a`, `${RUN_FOLDER_PREFIX}${process.pid}-b`, "of somebody else"]) {
    mkdirSync(join(place, name, "a folder"), { recursive: true });
    writeFileSync(join(place, name, "a folder", "file"), "");
  }
  return place;
}

const LEFT = ["of somebody else", `${RUN_FOLDER_PREFIX}${process.pid}-b`];

test("temporary files are removed only if their test run was killed", () => {
  const place = placeOfRuns();
  removeKilledRunFolders(place);
  expect(readdirSync(place).toSorted()).toEqual(LEFT);
  expect(existsSync(join(place, LEFT[1] ?? "", "a folder", "file"))).toBe(true);
});

test("each process has its own temporary folder and removes leftovers of ended processes", () => {
  const place = placeOfRuns();
  const own = createRunFolder(place);
  expect(basename(own)).toMatch(new RegExp(`^${RUN_FOLDER_PREFIX}${process.pid}-`));
  expect(readdirSync(place).toSorted()).toEqual([...LEFT, basename(own)].toSorted());
});

test("a leftover small disk that is still mounted is ignored", ({ skip }) => {
  const place = placeOfRuns();
  const disk = join(place, `${RUN_FOLDER_PREFIX}${DEAD}-a`, "a folder");
  skip(!mounted(disk, 1), "a disk cannot be mounted here");
  onTestFinished(() => {
    if (existsSync(disk)) execFileSync("umount", ["-l", disk]);
  });
  writeFileSync(join(disk, "file"), "");
  removeKilledRunFolders(place);
  expect(readdirSync(place).toSorted()).toEqual(LEFT);
});

test("leftover files that cannot be removed are reported, and the clean-up continues", () => {
  const said = vi.spyOn(process.stderr, "write").mockReturnValue(true);
  onTestFinished(() => said.mockRestore());
  const place = placeOfRuns();
  removeKilledRunFolders(place, () => {
    throw new Error("resource busy");
  });
  expect(said.mock.calls.flat().join()).toMatch(/-a, of a test run that was killed, .*resource busy/);
});
