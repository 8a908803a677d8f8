import { z } from "zod";
import { ConfigError } from "../../../src/core/errors/errors.ts";
import type { ColumnType, LakeTable } from "../../shared/lake/table-model.ts";
import { hasDayPartitions } from "../lake-paths.ts";
import { type DeltaMetaData, type DeltaProtocol, parseDeltaLogOrFail } from "./log-format.ts";

/** Names, types and descriptions of partition columns. The Delta log has their values; the files do not. */
const PARTITION_COLUMNS = [
  ["date", "date", "The day, in UTC, into which the row belongs."],
  ["site", "string", "The site's id, by which the files are divided."],
] as const;

export const WRITTEN_DELTA_PROTOCOL: DeltaProtocol = { minReaderVersion: 1, minWriterVersion: 2 };

const DELTA_COLUMN_TYPES: Readonly<Record<ColumnType, string>> = {
  text: "string",
  json: "string",
  time: "timestamp",
  number: "double",
  integer: "long",
  boolean: "boolean",
};

const DeltaSchemaField = z.looseObject({
  name: z.string(),
  type: z.unknown(),
  nullable: z.boolean(),
  metadata: z.record(z.string(), z.unknown()).nullish(),
});
type DeltaSchemaField = z.infer<typeof DeltaSchemaField>;
const DeltaTableSchema = z.looseObject({ type: z.literal("struct"), fields: z.array(DeltaSchemaField) });

const listPartitionColumns = (table: LakeTable) => (hasDayPartitions(table) ? PARTITION_COLUMNS : []);

/** Builds nullable fields only, because a column added later is null in older files. */
function buildDeltaFields(table: LakeTable): readonly DeltaSchemaField[] {
  const columns = table.columns.map(({ name, type, about }) => [name, DELTA_COLUMN_TYPES[type], about] as const);
  const schemaFields = [...columns, ...listPartitionColumns(table)];
  return schemaFields.map(([name, type, comment]) => ({ name, type, nullable: true, metadata: { comment } }));
}

export function buildDeltaMetaData(table: LakeTable, id: string, nowMs: number) {
  return {
    id,
    name: table.name,
    description: table.about,
    format: { provider: "parquet", options: {} },
    schemaString: JSON.stringify({ type: "struct", fields: buildDeltaFields(table) }),
    partitionColumns: listPartitionColumns(table).map(([name]) => name),
    createdTime: nowMs,
    configuration: {},
  };
}

export function checkDeltaProtocol(protocol: DeltaProtocol, tableLocation: string): void {
  const { minReaderVersion: reader, minWriterVersion: writer } = protocol;
  if (reader <= WRITTEN_DELTA_PROTOCOL.minReaderVersion && writer <= WRITTEN_DELTA_PROTOCOL.minWriterVersion) return;
  const tableFeatures = [...new Set([...(protocol.readerFeatures ?? []), ...(protocol.writerFeatures ?? [])])];
  const featureList = tableFeatures.length === 0 ? "" : ` (${tableFeatures.join(", ")})`;
  throw new ConfigError(
    `The Delta table ${tableLocation} was raised to reader version ${reader} and writer version ${writer}${featureList}; we write reader version 1 and writer version 2.`,
    { hint: "Take the features off it (ALTER TABLE … DROP FEATURE), or have us write into another folder." },
  );
}

/** Adds missing columns to `metaData` and keeps columns of other writers. Throws ConfigError if our rows do not fit. */
export function addMissingColumns(metaData: DeltaMetaData, table: LakeTable, tableLocation: string) {
  const partitionColumns = listPartitionColumns(table).map(([name]) => name);
  const schema = parseDeltaLogOrFail(`The schema of the Delta table ${tableLocation}`, () =>
    DeltaTableSchema.parse(JSON.parse(metaData.schemaString)),
  );
  if (metaData.format.provider !== "parquet")
    throw createSchemaError(tableLocation, `keeps its files as ${metaData.format.provider}, not as parquet`);
  if (new Set<string>(partitionColumns).symmetricDifference(new Set(metaData.partitionColumns)).size > 0)
    throw createSchemaError(
      tableLocation,
      `is divided by ${joinColumnNames(metaData.partitionColumns)}, and we write it divided by ${joinColumnNames(partitionColumns)}`,
    );
  const plenumFields = buildDeltaFields(table);
  for (const field of schema.fields) checkDeltaSchemaField(field, plenumFields, tableLocation);
  const missingFields = plenumFields.filter(({ name }) => !schema.fields.some((field) => field.name === name));
  if (missingFields.length === 0) return metaData;
  return { ...metaData, schemaString: JSON.stringify({ ...schema, fields: [...schema.fields, ...missingFields] }) };
}

function checkDeltaSchemaField(
  field: DeltaSchemaField,
  plenumFields: readonly DeltaSchemaField[],
  tableLocation: string,
): void {
  const fail = (problem: string) => {
    throw createSchemaError(tableLocation, problem);
  };
  // Compare without case: names that differ only in case would be two columns of the same name.
  const plenumField = plenumFields.find(({ name }) => name.toLowerCase() === field.name.toLowerCase());
  if (plenumField !== undefined && plenumField.name !== field.name)
    fail(`has a column ${field.name}, and ours is written ${plenumField.name}`);
  if (plenumField !== undefined && plenumField.type !== field.type) {
    const fieldType = typeof field.type === "string" ? field.type : JSON.stringify(field.type);
    fail(`has ${fieldType} in its column ${field.name}, where we write ${String(plenumField.type)}`);
  }
  if (!field.nullable) fail(`has a column ${field.name} that must not be null, and ours may be or do not have it`);
  if (field.metadata?.["delta.invariants"] !== undefined)
    fail(`has a condition on its column ${field.name} (delta.invariants) that we cannot check`);
}

export function checkAppendOnlyTable(metaData: DeltaMetaData, isRemoval: boolean, tableLocation: string): void {
  if (!isRemoval || metaData.configuration?.["delta.appendOnly"] !== "true") return;
  const message = `The Delta table ${tableLocation} only grows (delta.appendOnly), and its rows have to be replaced.`;
  throw new ConfigError(message, { hint: "Set the table's property delta.appendOnly to false." });
}

function createSchemaError(tableLocation: string, problem: string): ConfigError {
  return new ConfigError(`The Delta table ${tableLocation} ${problem}: somebody else changed or made it.`, {
    hint: "Change it back, or have us write into another folder; nothing was written, and the events wait.",
  });
}

const joinColumnNames = (names: readonly string[]): string => (names.length === 0 ? "nothing" : names.join(" and "));
