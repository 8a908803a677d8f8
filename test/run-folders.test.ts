import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { createRunFolder, RUN_FOLDER_PREFIX, removeKilledRunFolders } from "./run-folders.ts";
import { mountSmallDisk } from "./small-disk.ts";
import { testFolder } from "./test-resources.ts";

/** A process id above the maximum of Linux. */
const ENDED_PROCESS_ID = 99_999_999;

function placeOfRuns(): string {
  const place = testFolder("runs");
  for (const name of [
    `${RUN_FOLDER_PREFIX}${ENDED_PROCESS_ID}-a`,
    `${RUN_FOLDER_PREFIX}${process.pid}-b`,
    "of somebody else",
  ]) {
    mkdirSync(join(place, name, "a folder"), { recursive: true });
    writeFileSync(join(place, name, "a folder", "file"), "");
  }
  return place;
}

const REMAINING_FOLDERS = ["of somebody else", `${RUN_FOLDER_PREFIX}${process.pid}-b`];

test("temporary files are removed only if their test run was killed", () => {
  const place = placeOfRuns();
  removeKilledRunFolders(place);
  expect(readdirSync(place).toSorted()).toEqual(REMAINING_FOLDERS);
  expect(existsSync(join(place, REMAINING_FOLDERS[1] ?? "", "a folder", "file"))).toBe(true);
});

test("each process has its own temporary folder and removes leftovers of ended processes", () => {
  const place = placeOfRuns();
  const own = createRunFolder(place);
  expect(basename(own)).toMatch(new RegExp(`^${RUN_FOLDER_PREFIX}${process.pid}-`));
  expect(readdirSync(place).toSorted()).toEqual([...REMAINING_FOLDERS, basename(own)].toSorted());
});

test("a leftover small disk that is still mounted is ignored", ({ skip }) => {
  const place = placeOfRuns();
  const disk = join(place, `${RUN_FOLDER_PREFIX}${ENDED_PROCESS_ID}-a`, "a folder");
  skip(!mountSmallDisk(disk, 1), "a disk cannot be mounted here");
  onTestFinished(() => {
    if (existsSync(disk)) execFileSync("umount", ["-l", disk]);
  });
  writeFileSync(join(disk, "file"), "");
  removeKilledRunFolders(place);
  expect(readdirSync(place).toSorted()).toEqual(REMAINING_FOLDERS);
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
