import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { openStore } from "#src/engine/store/open.ts";
import { SQLITE_PAGE_BYTES } from "#src/engine/store/sqlite-page-format.ts";
import { checkStateInFolder, isStateIntact } from "#src/engine/store/state-check.ts";
import { testFolder } from "../test-resources.ts";
import { CLOCK, createFilledState } from "./filled-state.ts";
import { editState } from "./store-steps.ts";

let folder: string;
let file: string;
beforeEach(async () => {
  folder = testFolder();
  file = join(folder, "plenum.db");
  await createFilledState(folder);
});

const OTHER_TRIGGER = "create trigger event_gone after delete on event begin select 1; end";

describe("the check of a stored state", () => {
  test("finds no damage in an intact state, counts its rows and changes no byte, also while a worker runs", async () => {
    const before = readFileSync(file);
    const report = checkStateInFolder(folder);
    expect(isStateIntact(report)).toBe(true);
    expect(report).toMatchObject({ trouble: [], setAside: [], filesSetAside: [] });
    expect(report.tables).toContainEqual({ table: "document", rows: 22, damaged: 0 });
    expect(readFileSync(file)).toEqual(before);
    const worker = await openStore({ folder, clock: CLOCK });
    expect(checkStateInFolder(folder).tables).toEqual(report.tables);
    await worker.close();
  });

  test.each([
    ["document", "update document set body = body || ' ' where key = '10001'", 2],
    ["record", "update record set body = '{}' where sequence = 2", 1],
    ["event", "update event set id = 'x' where position = 5", 1],
    ["dead_letter", "update dead_letter set reason = 'x' where position = 2", 1],
    ["sink", "update sink set position = 1", 3],
    ["quota_hold", "update quota_hold set until_ms = 1", 2],
  ])("reports rows of the table %s that differ from their checksum", (table, sql, damaged) => {
    editState(folder, sql);
    const report = checkStateInFolder(folder);
    expect(isStateIntact(report)).toBe(false);
    expect(report.tables.filter((each) => each.damaged > 0)).toMatchObject([{ table, damaged }]);
  });

  test("accepts rows that a worker has quarantined, and lists those rows", async () => {
    editState(
      folder,
      "update document set body = '1' where key = '10001'; update record set body = '{}' where sequence = 2",
    );
    await (await openStore({ folder, clock: CLOCK })).close();
    const report = checkStateInFolder(folder);
    expect(isStateIntact(report)).toBe(true);
    expect(report.setAside).toMatchObject([
      { table: "document", part: "tag/main", rows: 1 },
      { table: "document", part: "value/main", rows: 1 },
      { table: "record", part: "audit", rows: 1 },
    ]);
  });

  test.each([
    ["a torn page", () => spoil(SQLITE_PAGE_BYTES * 3)],
    ["a broken header", () => spoil(0)],
    ["an empty file with a write-ahead log", () => emptyStateFile()],
    ["a missing index", () => editState(folder, "drop index event_by_class")],
    ["a replaced trigger", () => editState(folder, `drop trigger event_gone; ${OTHER_TRIGGER}`)],
  ])("reports %s", (_, damage) => {
    damage();
    const report = checkStateInFolder(folder);
    expect(isStateIntact(report)).toBe(false);
    expect(report.trouble.join()).not.toBe("");
  });

  function spoil(offset: number): void {
    const bytes = readFileSync(file);
    bytes.fill(0xa5, offset, offset + SQLITE_PAGE_BYTES);
    writeFileSync(file, bytes);
  }

  function emptyStateFile(): void {
    writeFileSync(`${file}-wal`, "what a kill left");
    writeFileSync(file, "");
  }

  test("lists quarantined files, and rejects a folder without a state", async () => {
    cpSync(file, `${file}.damaged-2026-11-02T06-00-00-000Z`);
    cpSync(file, `${file}.damaged-2026-11-02T06-00-00-000Z-wal`);
    expect(checkStateInFolder(folder).filesSetAside).toEqual(["plenum.db.damaged-2026-11-02T06-00-00-000Z"]);
    expect(() => checkStateInFolder(join(folder, "none"))).toThrow("There is no state");
  });
});
