import { describe, expect, test } from "vitest";
import {
  findSharedTables,
  normalizeKeyPrefix,
  ParquetConfig,
  resolveS3Endpoint,
  S3Config,
} from "#connectors/parquet/config.ts";
import { finalizeDay } from "#connectors/parquet/day-manifest.ts";
import { updateLakeSchemas } from "#connectors/parquet/lake-schemas.ts";
import { encodeParquet, readRowCount } from "#connectors/parquet/parquet-file.ts";
import { readTableRows } from "#connectors/parquet/partition-files.ts";
import { createPlainTableFormat } from "#connectors/parquet/plain-table-format.ts";
import { createColumnarRows, createRowSorter, sortDistinctRows } from "#connectors/parquet/rows-to-columns.ts";
import { toS3Failure } from "#connectors/parquet/s3-store.ts";
import type { LakeRow, LakeTable } from "#connectors/shared/lake/table-model.ts";
import { LAKE_TABLES } from "#connectors/shared/lake/tables.ts";
import { contextFor, never } from "../context.ts";
import { createMemoryStore } from "./delta/memory-store.ts";
import { METER, METER_WITH_UNIT, reading } from "./delta/meter-table.ts";

const KEYS = { access_key_id: { env: "A" }, secret_access_key: { env: "B" } };

/** Readings with columns that trace them to an event. */
const TRACED: LakeTable = {
  ...METER,
  columns: [
    ...METER.columns,
    { name: "observed_at", type: "time", isNullable: false, about: "" },
    { name: "event_id", type: "text", isNullable: false, about: "" },
  ],
  key: ["meter_id", "time"],
};

describe("the columns of buffered rows", () => {
  test("the columns of buffered rows return the cells of a thousand rows unchanged, including null", () => {
    const columns = createColumnarRows(METER);
    const rows = Array.from({ length: 1_000 }, (_, n) => reading(n));
    expect(rows.map((row) => columns.add(row))).toEqual([...Array(1_000).keys()]);
    expect(columns.length).toBe(1_000);
    expect(rows.map((_, row) => METER.columns.map((__, index) => columns.getCell(index, row)))).toEqual(rows);
  });

  test("the character count of buffered rows includes each text once, and adjacent equal event ids once", () => {
    const columns = createColumnarRows(TRACED);
    const row = (meter: string, id: string): LakeRow => [meter, 0, null, null, 0, null, 0, id];
    columns.add(row("aaa", "1"));
    columns.add(row("bb", "2"));
    columns.add(row("aaa", "3"));
    columns.add(row("aaa", "1"));
    expect(columns.characterCount).toBe(3 + 2 + 4);
    columns.add(row("bb", "1"));
    expect(columns.characterCount).toBe(3 + 2 + 4);
  });

  test("the columns of buffered rows sort rows by text, number and boolean, null first, and keep the order of equal rows", async () => {
    const table: LakeTable = { ...METER, sortedBy: ["meter_id", "value", "is_open"] };
    const columns = createColumnarRows(table);
    const rows: readonly LakeRow[] = [
      ["b", 0, 1, true, 0, null],
      ["a", 0, 2, true, 1, null],
      ["a", 0, 2, false, 2, null],
      ["a", 0, 2, null, 3, null],
      ["a", 0, null, true, 4, null],
      ["a", 0, -1, true, 5, null],
      ["a", 0, 2, true, 6, null],
      [null, 0, 9, true, 7, null],
    ];
    const numbers = rows.map((row) => columns.add(row));
    expect([...(await createRowSorter(columns)(numbers))]).toEqual([7, 4, 5, 3, 2, 1, 6, 0]);
    expect([...(await createRowSorter(columns)([6, 1]))]).toEqual([1, 6]);
  });

  test("the columns of buffered rows are reduced to the last observed row of each key", async () => {
    const columns = createColumnarRows(TRACED);
    const row = (meter: string, time: number, observedAt: number, position: number): LakeRow => [
      ...[meter, time, position, null, position, null],
      ...[observedAt, `${meter} ${position}`],
    ];
    for (const each of [row("a", 1, 5, 9), row("a", 1, 6, 1), row("a", 1, 6, 3), row("a", 2, 1, 1), row("b", 1, 1, 7)])
      columns.add(each);
    expect([...(await sortDistinctRows(columns))]).toEqual([2, 3, 4]);
  });
});

describe("a Parquet file", () => {
  async function written(count: number) {
    const columns = createColumnarRows(METER);
    const rows = Array.from({ length: count }, (_, n) => reading(n));
    const bytes = await encodeParquet(columns, Uint32Array.from(rows.map((row) => columns.add(row))));
    return { bytes, rows };
  }

  async function readAs(table: LakeTable, bytes: Uint8Array): Promise<readonly LakeRow[]> {
    return readTableRows(table, ["x.parquet"], { location: "lake", readFile: async () => bytes }, never());
  }

  test.each([0, 1, 9_999, 10_000, 20_001])(
    "a Parquet file is read with the same %i rows that were written",
    async (count) => {
      const { bytes, rows } = await written(count);
      expect(readRowCount(bytes, "x")).toBe(count);
      expect(await readAs(METER, bytes)).toEqual(rows);
    },
  );

  test("a Parquet file keeps microseconds and integers beyond 32 bits", async () => {
    const columns = createColumnarRows(METER);
    const row: LakeRow = ["a", 1_790_000_000_000.125, 0.1, false, 2 ** 40 + 1, "{}"];
    const bytes = await encodeParquet(columns, Uint32Array.of(columns.add(row)));
    expect(await readAs(METER, bytes)).toEqual([row]);
  });

  test("a Parquet file is read with null in new columns, and without unknown columns", async () => {
    const { bytes } = await written(2);
    expect((await readAs(METER_WITH_UNIT, bytes)).map((row) => row.at(-1))).toEqual([null, null]);
    const { columns } = METER;
    expect(await readAs({ ...METER, columns: columns.slice(4, 5) }, bytes)).toEqual([[0], [1]]);
  });

  test("a Parquet file causes a configuration error when it is damaged, truncated or has another column type", async () => {
    const { bytes } = await written(20);
    const broken = Uint8Array.from(bytes);
    broken.fill(7, 10, 60);
    for (const each of [Buffer.from("hello"), bytes.subarray(0, -20), broken])
      await expect(readAs(METER, each)).rejects.toMatchObject({
        kind: "config",
        message: "lake/x.parquet cannot be read as a Parquet file.",
      });
    const other = METER.columns.map((column) =>
      column.name === "value" ? { ...column, type: "integer" as const } : column,
    );
    await expect(readAs({ ...METER, columns: other }, bytes)).rejects.toMatchObject({
      kind: "config",
      message: "In lake/x.parquet the column value is not of the type integer.",
    });
  });
});

describe("failures of S3 requests (toFailure)", () => {
  const config = S3Config.parse({ endpoint: "https://s3.example", bucket: "lake", ...KEYS });
  const failure = (status: number, code: string, headers = {}) =>
    toS3Failure({ status, headers, bytes: Buffer.from(`<Error><Code>${code}</Code></Error>`) }, config, 0);

  test.each([
    [403, "RequestTimeTooSkewed", "config", undefined, /Set the clock/],
    [404, "NoSuchBucket", "config", "s3.bucket", /answered 404 \(NoSuchBucket\): there is no bucket lake/],
    [401, "", "config", "s3.access_key_id", /^https:\/\/s3\.example answered 401: it does not accept the keys/],
    [400, "ExpiredToken", "config", "s3.access_key_id", /does not accept the keys/],
    [300, "", "config", "s3.region", /is elsewhere/],
    [399, "", "config", "s3.region", /is elsewhere/],
    [400, "IllegalLocationConstraintException", "config", "s3.region", /is elsewhere/],
    [507, "", "retryable", undefined, /is full/],
    [403, "QuotaExceeded", "retryable", undefined, /is full/],
    [403, "", "config", undefined, /s3:PutObject/],
    [400, "NotImplemented", "config", "s3.endpoint", /If-None-Match/],
    [500, "", "retryable", undefined, /answered 500\.$/],
    [400, "RequestTimeout", "retryable", undefined, /answered 400 \(RequestTimeout\)\.$/],
    [409, "OperationAborted", "retryable", undefined, /answered 409/],
    [499, "", "config", "s3", /does not take this/],
  ])("an S3 response with status %i and code '%s' becomes a %s failure", (status, code, kind, field, message) => {
    const found = failure(status, code);
    expect(found).toMatchObject(field === undefined ? { kind } : { kind, field });
    expect(`${found.message} ${found.hint ?? ""}`.trim()).toMatch(message);
  });

  test.each([
    [429, "", "allowance"],
    [503, "SlowDown", "allowance"],
    [200, "SlowDown", "allowance"],
    [503, "", "everything"],
  ])("an S3 response with status %i and code '%s' throttles requests (%s)", (status, code, scope) => {
    expect(failure(status, code, { "retry-after": "7" })).toMatchObject({
      kind: "throttled",
      retryAfterMs: 7_000,
      scope,
    });
  });

  test("only a 400 response with the text of a TLS server leads to the advice to use https://", () => {
    const words = "Client sent an HTTP request to an HTTPS server.";
    const answered = (status: number) => toS3Failure({ status, headers: {}, bytes: Buffer.from(words) }, config, 0);
    expect(answered(400).hint).toContain("https://");
    expect(answered(404).message).toContain("does not take this");
  });

  test("the endpoint is the configured one, or Amazon's endpoint of the region", () => {
    expect(resolveS3Endpoint(config)).toBe("https://s3.example");
    expect(resolveS3Endpoint(S3Config.parse({ bucket: "lake", region: "eu-north-1", ...KEYS }))).toBe(
      "https://s3.eu-north-1.amazonaws.com",
    );
    expect(["", "a", "/a/b/"].map((prefix) => normalizeKeyPrefix({ prefix }))).toEqual(["", "a/", "a/b/"]);
  });
});

describe("the configuration of the Parquet sink", () => {
  const complaint = (config: object) => ParquetConfig.safeParse(config).error?.issues[0]?.message ?? "";
  const s3 = (more: object) => complaint({ s3: { bucket: "lake", ...KEYS, ...more } });

  test("the configuration of the Parquet sink has the defaults and limits that the reference documentation names", () => {
    const folder = "/lake";
    expect(ParquetConfig.parse({ folder })).toMatchObject({
      table_format: "plain",
      max_rows: 100_000,
      max_age: 900_000,
      mode: "0640",
    });
    for (const more of [{ max_rows: 1 }, { max_rows: 1_000_000 }, { max_age: "1s" }, { max_age: "24h" }])
      expect(complaint({ folder, ...more }), JSON.stringify(more)).toBe("");
    for (const more of [{ max_rows: 0 }, { max_rows: 1_000_001 }, { max_age: "999ms" }, { max_age: "25h" }])
      expect(complaint({ folder, ...more }), JSON.stringify(more)).not.toBe("");
    for (const more of [{ timeout: "1s" }, { timeout: "2m" }, { prefix: "x".repeat(512) }, { region: "x".repeat(64) }])
      expect(s3(more), JSON.stringify(more)).toBe("");
    for (const more of [{ timeout: "999ms" }, { timeout: "121s" }, { prefix: "x".repeat(513) }, { region: "" }])
      expect(s3(more), JSON.stringify(more)).not.toBe("");
  });

  test("the configuration of the Parquet sink accepts one location, and plain HTTP only to this machine unless allow_plain_http is set", () => {
    const one = { bucket: "lake", ...KEYS };
    for (const wrong of [{}, { folder: "" }, { folder: "/lake", s3: one }]) expect(complaint(wrong)).not.toBe("");
    const [secure, local] = [{ endpoint: "https://s3.example" }, { endpoint: "http://127.0.0.1:9000" }];
    const plain = { endpoint: "http://s3.example" };
    const dotted = { bucket: "a.b" };
    const right = [secure, { ...secure, ...dotted, path_style: true }, { ...local, ...dotted }];
    for (const each of [...right, { ...plain, allow_plain_http: true }])
      expect(s3(each), JSON.stringify(each)).toBe("");
    expect(s3({ endpoint: "https://s3.example/lake" })).toContain("Leave the path out");
    expect(s3({ ...secure, ...dotted, path_style: false })).toContain("path_style");
    expect(s3(plain)).toContain("allow_plain_http");
    // A proxy takes even this machine's requests elsewhere.
    expect(s3({ ...local, proxy: { url: "http://proxy.example:3128" } })).toContain("allow_plain_http");
    expect(s3({ endpoint: "https://key:secret@s3.example" })).toContain("Leave the keys out");
    expect(s3({ endpoint: "https://:secret@s3.example" })).not.toBe("");
    expect(s3({ endpoint: "https://s3.example/?X-Amz-Credential=key" })).not.toBe("");
  });

  test("the configuration of the Parquet sink detects two sinks that write the same tables", () => {
    const shared = (one: object, other: object) =>
      findSharedTables(ParquetConfig.parse(one), ParquetConfig.parse(other));
    const index = (more: object) => ({ s3: { bucket: "lake", prefix: "a", ...KEYS, ...more } });
    expect(shared({ folder: "/lake" }, { folder: "/other" })).toBeNull();
    expect(shared({ folder: "/lake" }, index({}))).toBeNull();
    expect(shared({ folder: "/lake" }, { folder: "/lake/" })).toEqual({
      path: ["folder"],
      consequence: "write the same tables: give one of them another folder",
    });
    expect(shared(index({}), index({ prefix: "/a/" }))).toEqual({
      path: ["s3", "prefix"],
      consequence: "write the same tables: give one of them another s3.prefix",
    });
    for (const more of [{ prefix: "b" }, { bucket: "other" }, { region: "eu-north-1" }])
      expect(shared(index({}), index(more)), JSON.stringify(more)).toBeNull();
    const delta = { folder: "/lake", table_format: "delta" };
    expect(shared(delta, delta)).toMatchObject({ allowsDistinctFilters: true });
    expect(shared(delta, { folder: "/lake" })).not.toHaveProperty("allowsDistinctFilters");
  });
});

describe("a lake in the memory store", () => {
  function createLake() {
    const store = createMemoryStore();
    const context = contextFor("lake");
    return { store, format: createPlainTableFormat(store, context), clock: context.clock };
  }

  test("a lake writes its table schemas once, and again when a column is added", async () => {
    const { store, format } = createLake();
    await updateLakeSchemas(store, format, never());
    const puts = () => store.calls.put + store.calls.putIfAbsent;
    await updateLakeSchemas(store, format, never());
    expect(puts()).toBe(LAKE_TABLES.length + 1);
    const known = JSON.parse(store.text("_schemas.json"));
    delete known.value.unit;
    known.value.former = "text";
    store.write("_schemas.json", JSON.stringify(known));
    await updateLakeSchemas(store, format, never());
    expect(puts()).toBe(2 * (LAKE_TABLES.length + 1));
    expect(JSON.parse(store.text("_schemas.json")).value).toMatchObject({ unit: "text", former: "text" });
    store.write("_schemas.json", JSON.stringify({ value: { unit: "number" } }));
    await expect(updateLakeSchemas(store, format, never())).rejects.toMatchObject({
      message: "The lake in memory: has value.unit as number; this version writes it as text.",
    });
  });

  test("a day that is finalized repeatedly lists each earlier revision once, the newest first", async () => {
    const { store, format, clock } = createLake();
    const seal = (revision: number) =>
      finalizeDay({ site: "1", day: "2026-11-02", revision, account: {} }, { store, format, clock, signal: never() });
    for (const revision of [1, 2, 2, 3, 3]) await seal(revision);
    const manifest = JSON.parse(store.text("_manifests/site=1/date=2026-11-02.json"));
    expect(manifest).toMatchObject({ revision: 3, site: "1", date: "2026-11-02", tables: {} });
    expect(manifest.before.map(({ revision }: { revision: number }) => revision)).toEqual([2, 1]);
    store.write("_manifests/site=1/date=2026-11-02.json", "not a manifest");
    await seal(4);
    expect(JSON.parse(store.text("_manifests/site=1/date=2026-11-02.json")).before).toEqual([]);
  });
});
