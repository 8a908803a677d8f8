import { z } from "zod";
import { ConfigError } from "../../../src/core/errors/errors.ts";
import type { ColumnType, Table } from "../../shared/lake/table.ts";
import { type MetaData, type Protocol, parseOrRefuse } from "./log-format.ts";

/** Partition columns; their values are in the log, not in the files. */
const PARTITION_COLUMN_TYPES = {
  date: ["date", "The day, in UTC, into which the row belongs."],
  site: ["string", "The site's id, by which the files are divided."],
} as const;
export type PartitionColumn = keyof typeof PARTITION_COLUMN_TYPES;

/** Lowest versions, which every reader and writer supports. Constraints or generated columns raise them. */
export const PROTOCOL: Protocol = { minReaderVersion: 1, minWriterVersion: 2 };

const DELTA_TYPES: Readonly<Record<ColumnType, string>> = {
  text: "string",
  json: "string",
  time: "timestamp",
  number: "double",
  integer: "long",
  boolean: "boolean",
};

const Field = z.looseObject({
  name: z.string(),
  type: z.unknown(),
  nullable: z.boolean(),
  metadata: z.record(z.string(), z.unknown()).nullish(),
});
type Field = z.infer<typeof Field>;
const Schema = z.looseObject({ type: z.literal("struct"), fields: z.array(Field) });

/** All columns are nullable: a column added later is null in older files. */
function fieldsOf(table: Table, partitionColumns: readonly PartitionColumn[]): readonly Field[] {
  const columns = table.columns.map(({ name, type, about }) => [name, DELTA_TYPES[type], about] as const);
  const partitions = partitionColumns.map((name) => [name, ...PARTITION_COLUMN_TYPES[name]] as const);
  const fields = [...columns, ...partitions];
  return fields.map(([name, type, comment]) => ({ name, type, nullable: true, metadata: { comment } }));
}

export function newMetaData(
  table: Table,
  partitionColumns: readonly PartitionColumn[],
  id: string,
  nowMs: number,
): MetaData {
  return {
    id,
    name: table.name,
    description: table.about,
    format: { provider: "parquet", options: {} },
    schemaString: JSON.stringify({ type: "struct", fields: fieldsOf(table, partitionColumns) }),
    partitionColumns: [...partitionColumns],
    createdTime: nowMs,
    configuration: {},
  };
}

export function checkProtocol(protocol: Protocol, where: string): void {
  const { minReaderVersion: reader, minWriterVersion: writer } = protocol;
  if (reader <= PROTOCOL.minReaderVersion && writer <= PROTOCOL.minWriterVersion) return;
  const features = [...new Set([...(protocol.readerFeatures ?? []), ...(protocol.writerFeatures ?? [])])];
  const named = features.length === 0 ? "" : ` (${features.join(", ")})`;
  throw new ConfigError(
    `The Delta table ${where} was raised to reader version ${reader} and writer version ${writer}${named}; we write reader version 1 and writer version 2.`,
    { hint: "Take the features off it (ALTER TABLE … DROP FEATURE), or have us write into another folder." },
  );
}

/** Adds our missing columns to `metaData` and keeps those of other writers. Throws ConfigError where rows do not fit. */
export function fitSchema(
  current: MetaData,
  table: Table,
  partitionColumns: readonly PartitionColumn[],
  where: string,
): MetaData {
  const schema = parseOrRefuse(`The schema of the Delta table ${where}`, () =>
    Schema.parse(JSON.parse(current.schemaString)),
  );
  if (current.format.provider !== "parquet") {
    throw mismatch(where, `keeps its files as ${current.format.provider}, not as parquet`);
  }
  if (new Set<string>(partitionColumns).symmetricDifference(new Set(current.partitionColumns)).size > 0) {
    throw mismatch(
      where,
      `is divided by ${joinNames(current.partitionColumns)}, and we write it divided by ${joinNames(partitionColumns)}`,
    );
  }
  const ours = fieldsOf(table, partitionColumns);
  for (const field of schema.fields) checkField(field, ours, where);
  const missing = ours.filter(({ name }) => !schema.fields.some((field) => field.name === name));
  if (missing.length === 0) return current;
  return { ...current, schemaString: JSON.stringify({ ...schema, fields: [...schema.fields, ...missing] }) };
}

function checkField(field: Field, ours: readonly Field[], where: string): void {
  // Names that differ only in case would be two columns of the same name.
  const own = ours.find(({ name }) => name.toLowerCase() === field.name.toLowerCase());
  if (own !== undefined && own.name !== field.name) {
    throw mismatch(where, `has a column ${field.name}, and ours is written ${own.name}`);
  }
  if (own !== undefined && own.type !== field.type) {
    const type = typeof field.type === "string" ? field.type : JSON.stringify(field.type);
    throw mismatch(where, `has ${type} in its column ${field.name}, where we write ${String(own.type)}`);
  }
  if (!field.nullable) {
    throw mismatch(where, `has a column ${field.name} that must not be null, and ours may be or do not have it`);
  }
  if (field.metadata?.["delta.invariants"] !== undefined) {
    throw mismatch(where, `has a condition on its column ${field.name} (delta.invariants) that we cannot check`);
  }
}

export function checkAppendOnly(metaData: MetaData, isRemoval: boolean, where: string): void {
  if (!isRemoval || metaData.configuration?.["delta.appendOnly"] !== "true") return;
  throw new ConfigError(`The Delta table ${where} only grows (delta.appendOnly), and its rows have to be replaced.`, {
    hint: "Set the table's property delta.appendOnly to false.",
  });
}

function mismatch(where: string, how: string): ConfigError {
  return new ConfigError(`The Delta table ${where} ${how}: somebody else changed or made it.`, {
    hint: "Change it back, or have us write into another folder; nothing was written, and the events wait.",
  });
}

function joinNames(names: readonly string[]): string {
  return names.length === 0 ? "nothing" : names.join(" and ");
}
