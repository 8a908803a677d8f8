import { z } from "zod";

/** Checks a Delta log without our own code. Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md */

const time = z.number().int().min(Date.parse("2020-01-01")).max(Date.parse("2100-01-01"));
const size = z.number().int().positive();
const values = z.record(z.string(), z.string().min(1).nullable());
/** RFC 2396 allows these characters in a path without encoding. */
const path = z.string().regex(/^(?:[A-Za-z0-9\-_.!~*'()/=]|%[0-9A-F]{2})+$/);

const Stats = z.strictObject({
  numRecords: z.number().int().nonnegative(),
  minValues: z.record(z.string(), z.union([z.string(), z.number()])),
  maxValues: z.record(z.string(), z.union([z.string(), z.number()])),
  nullCount: z.record(z.string(), z.number().int().nonnegative()),
});

const Line = z.union([
  z.strictObject({ commitInfo: z.looseObject({ timestamp: time, operation: z.string() }) }),
  z.strictObject({ protocol: z.strictObject({ minReaderVersion: z.literal(1), minWriterVersion: z.literal(2) }) }),
  z.strictObject({
    metaData: z.strictObject({
      id: z.uuid(),
      name: z.string(),
      description: z.string(),
      format: z.strictObject({ provider: z.literal("parquet"), options: z.record(z.string(), z.string()) }),
      schemaString: z.string(),
      partitionColumns: z.array(z.string()),
      createdTime: time,
      configuration: z.record(z.string(), z.string()),
    }),
  }),
  z.strictObject({ txn: z.strictObject({ appId: z.string().min(1), version: z.number().int(), lastUpdated: time }) }),
  z.strictObject({
    add: z.strictObject({
      path,
      partitionValues: values,
      size,
      modificationTime: time,
      dataChange: z.boolean(),
      stats: z.string(),
    }),
  }),
  z.strictObject({
    remove: z.strictObject({
      path,
      deletionTimestamp: time,
      dataChange: z.boolean(),
      extendedFileMetadata: z.literal(true),
      partitionValues: values,
      size,
    }),
  }),
]);

const Schema = z.strictObject({
  type: z.literal("struct"),
  fields: z.array(
    z.strictObject({
      name: z.string().min(1),
      type: z.enum(["string", "long", "double", "boolean", "timestamp", "date"]),
      nullable: z.boolean(),
      metadata: z.record(z.string(), z.unknown()),
    }),
  ),
});

export interface Verdict {
  readonly faults: readonly string[];
  readonly version: number;
  readonly files: ReadonlyMap<string, number>;
  readonly removed: ReadonlySet<string>;
  readonly txns: readonly string[];
  readonly columns: readonly string[];
}

/** `until` judges the table at an earlier version. `objects` are all files of the table's folder by relative path. */
export function checkDeltaTable(objects: ReadonlyMap<string, Uint8Array>, until = Number.POSITIVE_INFINITY): Verdict {
  const faults: string[] = [];
  const files = new Map<string, { readonly rows: number; readonly size: number; readonly values: string }>();
  const removed = new Set<string>();
  const txns: string[] = [];
  let schema: z.infer<typeof Schema> | null = null;
  let partitionColumns: readonly string[] = [];
  let id: string | null = null;
  let version = 0;
  for (; version <= until; version += 1) {
    const name = `_delta_log/${String(version).padStart(20, "0")}.json`;
    const bytes = objects.get(name);
    if (bytes === undefined) break;
    const fault = (words: string) => faults.push(`${name}: ${words}`);
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    if (!text.endsWith("\n")) fault("ends within a line");
    const lines = text.trimEnd().split("\n");
    const actions = lines.flatMap((line) => {
      const parsed = Line.safeParse(JSON.parse(line));
      if (!parsed.success) fault(`${line}: ${z.prettifyError(parsed.error)}`);
      return parsed.success ? [parsed.data] : [];
    });

    const inCommit = new Map<string, number>();
    const once = (what: string) => {
      inCommit.set(what, (inCommit.get(what) ?? 0) + 1);
      if (inCommit.get(what) === 2) fault(`${what} stands twice`);
    };
    let rowsAdded = 0;
    let rowsRemoved = 0;
    let isRearranged = false;
    for (const action of actions) {
      if ("commitInfo" in action) once("commitInfo");
      if ("protocol" in action) once("protocol");
      if ("txn" in action) {
        once(`txn ${action.txn.appId}`);
        txns.push(`${action.txn.appId} ${action.txn.version}`);
      }
      if ("metaData" in action) {
        once("metaData");
        const { metaData } = action;
        if (id !== null && metaData.id !== id) fault("the table has another id");
        id = metaData.id;
        const next = Schema.safeParse(JSON.parse(metaData.schemaString));
        if (!next.success) {
          fault(`schemaString: ${z.prettifyError(next.error)}`);
          continue;
        }
        const names = next.data.fields.map((field) => field.name.toLowerCase());
        if (new Set(names).size !== names.length) fault("two columns have the same name");
        for (const before of schema?.fields ?? []) {
          const now = next.data.fields.find((field) => field.name === before.name);
          if (now?.type !== before.type) fault(`the column ${before.name} is gone or of another type`);
          if (before.nullable && now?.nullable === false) fault(`the column ${before.name} may not be null`);
        }
        schema = next.data;
        partitionColumns = metaData.partitionColumns;
        if (partitionColumns.some((column) => !names.includes(column))) fault("a partition has no column");
      }
    }
    if (version === 0 && (!inCommit.has("protocol") || !inCommit.has("metaData"))) {
      fault("the first version has no protocol or no metaData");
    }
    for (const action of actions) {
      if (!("remove" in action)) continue;
      const { remove } = action;
      once(`remove ${remove.path}`);
      const stored = files.get(remove.path);
      if (stored === undefined) fault(`${remove.path} is removed, and was not there`);
      if (stored !== undefined && stored.values !== JSON.stringify(remove.partitionValues)) {
        fault(`${remove.path} is removed from another partition`);
      }
      rowsRemoved += stored?.rows ?? 0;
      files.delete(remove.path);
      removed.add(remove.path);
      isRearranged ||= !remove.dataChange;
    }
    for (const action of actions) {
      if (!("add" in action)) continue;
      const { add } = action;
      once(`add ${add.path}`);
      if (files.has(add.path) || removed.has(add.path)) fault(`${add.path} is used twice`);
      const stats = Stats.safeParse(JSON.parse(add.stats));
      if (!stats.success) fault(`${add.path}: ${z.prettifyError(stats.error)}`);
      const rows = stats.data?.numRecords ?? 0;
      if (Object.keys(add.partitionValues).toSorted().join() !== partitionColumns.toSorted().join()) {
        fault(`${add.path} has other partition columns than the table`);
      }
      for (const [column, nulls] of Object.entries(stats.data?.nullCount ?? {})) {
        const { minValues = {}, maxValues = {} } = stats.data ?? {};
        const [min, max] = [minValues[column], maxValues[column]];
        const type = schema?.fields.find((field) => field.name === column)?.type;
        if (type === undefined) fault(`${column} has statistics, and is no column`);
        if (nulls > rows) fault(`${column} has more nulls than rows`);
        if ((min === undefined) !== (max === undefined)) fault(`${column} has one bound`);
        if (min !== undefined && max !== undefined && min > max) fault(`${column}: ${min} is above ${max}`);
        if (min !== undefined && nulls === rows) fault(`${column} has bounds and no values`);
        if (type === "timestamp" && min !== undefined && !/\.\d{3}Z$/.test(String(min))) {
          fault(`${column}: ${min} is no time in milliseconds`);
        }
      }
      files.set(add.path, { rows, size: add.size, values: JSON.stringify(add.partitionValues) });
      rowsAdded += rows;
      isRearranged ||= !add.dataChange;
    }
    if (isRearranged && rowsAdded !== rowsRemoved) fault("no data change, but other rows");
  }

  if (until === Number.POSITIVE_INFINITY) {
    const beyond = [...objects.keys()].filter(
      (name) => /^_delta_log\/\d{20}\.json$/.test(name) && Number(name.slice(11, 31)) >= version,
    );
    if (beyond.length > 0) faults.push(`version ${version} is missing before ${beyond[0]}`);
    for (const [stored, { size: wanted }] of files) {
      const bytes = objects.get(decodeURIComponent(stored))?.length;
      if (bytes === undefined) faults.push(`${stored} does not lie there`);
      else if (bytes !== wanted) faults.push(`${stored} has ${bytes} bytes, and should have ${wanted}`);
    }
  }
  return {
    faults,
    version: version - 1,
    files: new Map([...files].map(([file, { rows }]) => [file, rows])),
    removed,
    txns,
    columns: schema?.fields.map(({ name }) => name) ?? [],
  };
}
