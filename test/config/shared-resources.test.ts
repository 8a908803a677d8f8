import { mkdirSync, rmSync, symlinkSync } from "node:fs";
import { join, relative } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Config } from "#src/app/config/config.ts";
import { parseYaml } from "#src/app/config/load.ts";
import { temporaryFolder } from "../real-servers.ts";
import { SOURCE } from "./configured.ts";

let folder: string;
beforeAll(() => {
  folder = temporaryFolder("shared-places");
  mkdirSync(join(folder, "real"));
  symlinkSync("real", join(folder, "link"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function conflictOf(a: string, b: string, more = ""): string | null {
  const configText = `${SOURCE}${more}sinks:\n  a: { ${a} }\n  b: { ${b} }\n`;
  try {
    parseYaml({ schema: Config, file: "f", text: configText, environment: {} });
    return null;
  } catch (error) {
    return (error as Error).message.replace(/^f:\d+:\d+ /, "");
  }
}

const file = (path: string, more = "") => `file: { folder: "${path}"${more} }`;
const parquet = (path: string, more = "") => `parquet: { folder: "${path}"${more} }`;
const s3 = (more: string, format = "plain") =>
  `parquet: { s3: { bucket: lake, access_key_id: { env: ID }, secret_access_key: { env: KEY }, ${more} }, table_format: ${format} }`;

const SAME_FILES =
  "sinks.b.file.folder: The sinks a and b would write the same files: give one of them another folder or another name.";
const SAME_TABLES =
  "sinks.b.parquet.folder: The sinks a and b would write the same tables: give one of them another folder.";
const SAME_PREFIX =
  "sinks.b.parquet.s3.prefix: The sinks a and b would write the same tables: give one of them another s3.prefix.";

describe("the configuration of two file sinks", () => {
  test.each([
    ["the same spelling", "real", "real"],
    ["a slash at its end", "real", "real/"],
    ["a path with ..", "real", "other/../real"],
    ["a link", "real", "link"],
    ["a link to a parent folder", "real/later/events", "link/later/events"],
    ["a folder that does not exist yet", "later", "./later/"],
  ])("is rejected when both sinks use one folder: %s", (_what, one, other) => {
    const [here, there] = [`${folder}/${one}`, `${folder}/${other}`];
    expect(conflictOf(file(here), file(there))).toBe(SAME_FILES);
    expect(conflictOf(file(relative(process.cwd(), here)), file(there))).toBe(SAME_FILES);
    expect(conflictOf(file(here, ", gzip: true, name: x"), file(there, ", name: x"))).toBe(SAME_FILES);
  });

  test("is rejected when both sinks write folders for days and one sink's folder contains the other's", () => {
    const days = ', path: "{date}"';
    expect(conflictOf(file("/x", days), file("/x/y", days))).toBe(SAME_FILES);
    expect(conflictOf(file("/x/y", days), file("/x", ', path: "{kind}/{date}"'))).toBe(SAME_FILES);
    expect(conflictOf(file("/x/y", days), file("/x/..y", days))).toBeNull();
    expect(conflictOf(file("/x/y", days), file("/x/yz", days))).toBeNull();
  });

  test.each([
    ["two folders", file("/x/a"), file("/x/b")],
    ["a folder within another", file("/x"), file("/x/b")],
    ["two file names", file("/x"), file("/x", ", name: other")],
    ["two path layouts with different file names", file("/x"), file("/x", ', path: "{date}"')],
    ["a disabled sink", file("/x"), `enabled: false, ${file("/x")}`],
    ["a file sink and a data lake in one folder", file("/x"), parquet("/x")],
  ])("is accepted with %s", (_what, a, b) => {
    expect(conflictOf(a, b)).toBeNull();
  });

  test("is rejected with one error for each of three conflicting sinks", () => {
    const b = `${file("/x")} }\n  c: { ${file("/x")}`;
    expect(conflictOf(file("/x"), b)?.split("\n")).toEqual([
      SAME_FILES,
      expect.stringContaining("sinks.c.file.folder: The sinks a and c would write the same files"),
    ]);
  });
});

describe("the configuration of two data lakes", () => {
  test.each([
    ["one folder", parquet("/x"), parquet("/x/"), SAME_TABLES],
    ["one folder in two formats", parquet("/x"), parquet("/x", ", table_format: delta"), SAME_TABLES],
    ["one bucket", s3("region: eu-north-1"), s3("region: eu-north-1"), SAME_PREFIX],
    ["one prefix in two spellings", s3("prefix: a/b"), s3("prefix: /a/b/"), SAME_PREFIX],
    [
      "one storage in two spellings",
      s3("region: eu-north-1"),
      s3('endpoint: "https://S3.eu-north-1.amazonaws.com:443/"'),
      SAME_PREFIX,
    ],
    ["the same events in one Delta table", s3("prefix: a", "delta"), s3("prefix: a", "delta"), SAME_PREFIX],
  ])("is rejected when the lakes use %s", (_what, a, b, said) => {
    expect(conflictOf(a, b)).toBe(said);
  });

  test.each([
    ["two folders", parquet("/x/a"), parquet("/x/b")],
    ["two prefixes", s3("prefix: a"), s3("prefix: b")],
    ["two storages", s3('endpoint: "https://a.example"'), s3('endpoint: "https://b.example"')],
    [
      "different events in one Delta table",
      `filter: { sites: [1] }, ${s3("prefix: a", "delta")}`,
      `filter: { sites: [2] }, ${s3("prefix: a", "delta")}`,
    ],
  ])("is accepted with %s", (_what, a, b) => {
    expect(conflictOf(a, b)).toBeNull();
  });

  test("is rejected when two plain-table lakes share a folder, even with different events", () => {
    expect(conflictOf(`filter: { sites: [1] }, ${parquet("/x")}`, `filter: { sites: [2] }, ${parquet("/x")}`)).toBe(
      SAME_TABLES,
    );
  });

  test("is rejected with the errors of each lake, without a conflict error, when options of the lakes are invalid", () => {
    const lakeConflict = conflictOf(s3("endpoint: nonsense"), s3("endpoint: nonsense"));
    expect(lakeConflict).toContain("sinks.a.parquet.s3.endpoint: Write a whole address");
    expect(lakeConflict).not.toContain("The sinks");
    expect(conflictOf("parquet: {}", "parquet: {}")).not.toContain("The sinks");
  });

  test("is accepted in a fleet where the lakes of all sources write one table", () => {
    const fleetState = 'state: { postgres: { url: "postgresql://p@db.example.com/p" } }\n';
    expect(conflictOf(s3("prefix: a", "delta"), s3("prefix: b", "delta"), fleetState)).toBeNull();
    expect(conflictOf(s3("prefix: a", "delta"), s3("prefix: a", "delta"), fleetState)).toBe(SAME_PREFIX);
  });
});
