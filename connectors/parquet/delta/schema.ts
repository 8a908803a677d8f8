import { z } from "zod";
import { ConfigError } from "../../../src/core/errors/errors.ts";
import type { ColumnType, Table } from "../../shared/lake/table-model.ts";
import { type MetaData, type Protocol, parseOrFail } from "./log-format.ts";

/** Type and description of partition columns; the log has the values, not the files. */
const PARTITION_COLUMN_TYPES = {
  date: ["date", "The day, in UTC, into which the row belongs."],
  site: ["string", "The site's id, by which the files are divided."],
} as const;
export type PartitionColumn = keyof typeof PARTITION_COLUMN_TYPES;

export const WRITTEN_PROTOCOL: Protocol = { minReaderVersion: 1, minWriterVersion: 2 };

const DELTA_TYPES: Readonly<Record<ColumnType, string>> = {
  text: "string",
  json: "string",
  time: "timestamp",
  number: "double",
  integer: "long",
  boolean: "boolean",
};

const SchemaField = z.looseObject({
  name: z.string(),
  type: z.unknown(),
  nullable: z.boolean(),
  metadata: z.record(z.string(), z.unknown()).nullish(),
});
type SchemaField = z.infer<typeof SchemaField>;
const TableSchema = z.looseObject({ type: z.literal("struct"), fields: z.array(SchemaField) });

/** Builds nullable fields only, because a column added later is null in older files. */
function buildFields(table: Table, partitionColumns: readonly PartitionColumn[]): readonly SchemaField[] {
  const columns = table.columns.map(({ name, type, about }) => [name, DELTA_TYPES[type], about] as const);
  const partitions = partitionColumns.map((name) => [name, ...PARTITION_COLUMN_TYPES[name]] as const);
  const fields = [...columns, ...partitions];
  return fields.map(([name, type, comment]) => ({ name, type, nullable: true, metadata: { comment } }));
}

export function buildMetaData(table: Table, columns: readonly PartitionColumn[], id: string, nowMs: number): MetaData {
  return {
    id,
    name: table.name,
    description: table.about,
    format: { provider: "parquet", options: {} },
    schemaString: JSON.stringify({ type: "struct", fields: buildFields(table, columns) }),
    partitionColumns: [...columns],
    createdTime: nowMs,
    configuration: {},
  };
}

export function checkProtocol(protocol: Protocol, where: string): void {
  const { minReaderVersion: reader, minWriterVersion: writer } = protocol;
  if (reader <= WRITTEN_PROTOCOL.minReaderVersion && writer <= WRITTEN_PROTOCOL.minWriterVersion) return;
  const features = [...new Set([...(protocol.readerFeatures ?? []), ...(protocol.writerFeatures ?? [])])];
  const featureList = features.length === 0 ? "" : ` (${features.join(", ")})`;
  throw new ConfigError(
    `The Delta table ${where} was raised to reader version ${reader} and writer version ${writer}${featureList}; we write reader version 1 and writer version 2.`,
    { hint: "Take the features off it (ALTER TABLE … DROP FEATURE), or have us write into another folder." },
  );
}

/** Adds missing columns to `metaData` and keeps columns of other writers. Throws ConfigError if our rows do not fit. */
export function fitTableSchema(current: MetaData, table: Table, divisions: readonly PartitionColumn[], where: string) {
  const schema = parseOrFail(`The schema of the Delta table ${where}`, () =>
    TableSchema.parse(JSON.parse(current.schemaString)),
  );
  if (current.format.provider !== "parquet") {
    throw mismatchError(where, `keeps its files as ${current.format.provider}, not as parquet`);
  }
  if (new Set<string>(divisions).symmetricDifference(new Set(current.partitionColumns)).size > 0) {
    throw mismatchError(
      where,
      `is divided by ${joinColumnNames(current.partitionColumns)}, and we write it divided by ${joinColumnNames(divisions)}`,
    );
  }
  const plenumFields = buildFields(table, divisions);
  for (const field of schema.fields) checkSchemaField(field, plenumFields, where);
  const missingFields = plenumFields.filter(({ name }) => !schema.fields.some((field) => field.name === name));
  if (missingFields.length === 0) return current;
  return { ...current, schemaString: JSON.stringify({ ...schema, fields: [...schema.fields, ...missingFields] }) };
}

function checkSchemaField(field: SchemaField, ours: readonly SchemaField[], where: string): void {
  // Compare without case: names that differ only in case would be two columns of the same name.
  const ourField = ours.find(({ name }) => name.toLowerCase() === field.name.toLowerCase());
  if (ourField !== undefined && ourField.name !== field.name) {
    throw mismatchError(where, `has a column ${field.name}, and ours is written ${ourField.name}`);
  }
  if (ourField !== undefined && ourField.type !== field.type) {
    const fieldType = typeof field.type === "string" ? field.type : JSON.stringify(field.type);
    throw mismatchError(where, `has ${fieldType} in its column ${field.name}, where we write ${String(ourField.type)}`);
  }
  if (!field.nullable) {
    throw mismatchError(where, `has a column ${field.name} that must not be null, and ours may be or do not have it`);
  }
  if (field.metadata?.["delta.invariants"] !== undefined) {
    throw mismatchError(where, `has a condition on its column ${field.name} (delta.invariants) that we cannot check`);
  }
}

export function checkAppendOnly(metaData: MetaData, isRemoval: boolean, where: string): void {
  if (!isRemoval || metaData.configuration?.["delta.appendOnly"] !== "true") return;
  throw new ConfigError(`The Delta table ${where} only grows (delta.appendOnly), and its rows have to be replaced.`, {
    hint: "Set the table's property delta.appendOnly to false.",
  });
}

function mismatchError(where: string, how: string): ConfigError {
  return new ConfigError(`The Delta table ${where} ${how}: somebody else changed or made it.`, {
    hint: "Change it back, or have us write into another folder; nothing was written, and the events wait.",
  });
}

function joinColumnNames(names: readonly string[]): string {
  return names.length === 0 ? "nothing" : names.join(" and ");
}
