import { ConfigError } from "../../src/core/errors/errors.ts";
import { LAKE_TABLES } from "../shared/lake/tables.ts";
import { TABLE_SCHEMAS_KEY } from "./lake-paths.ts";
import type { ObjectStore } from "./object-store.ts";
import type { LakeTableFormat } from "./table-format.ts";

type LakeSchemas = Readonly<Record<string, Readonly<Record<string, string>>>>;

/** Entry that names the table format; lakes of plain files have no such entry. */
const TABLE_FORMAT_ENTRY = "_format";
const TABLE_FORMAT_OPTION = "table_format";

/** Compares the tables with those in the lake and adds new columns. Throws ConfigError for a column of another type. */
export async function updateLakeSchemas(store: ObjectStore, format: LakeTableFormat, signal: AbortSignal) {
  const bytes = await store.get(TABLE_SCHEMAS_KEY, signal);
  const storedSchemas = bytes === null ? {} : parseLakeSchemas(bytes, store.location);
  const storedTableFormat = storedSchemas[TABLE_FORMAT_ENTRY]?.[TABLE_FORMAT_OPTION] ?? "plain";
  // In a lake with two formats, readers would see rows twice or not at all.
  if (bytes !== null && storedTableFormat !== format.name)
    throw new ConfigError(
      `The lake in ${store.location} has table_format ${storedTableFormat}; the sink is to write ${format.name}.`,
      {
        field: TABLE_FORMAT_OPTION,
        hint: `Set table_format: ${storedTableFormat}, or choose another folder or prefix; nothing was written.`,
      },
    );
  const currentSchemas: LakeSchemas = {
    ...(format.name === "plain" ? {} : { [TABLE_FORMAT_ENTRY]: { [TABLE_FORMAT_OPTION]: format.name } }),
    ...Object.fromEntries(
      LAKE_TABLES.map(({ name, columns }) => [name, Object.fromEntries(columns.map((c) => [c.name, c.type]))]),
    ),
  };
  for (const [table, columns] of Object.entries(currentSchemas)) {
    for (const [column, type] of Object.entries(columns)) {
      const storedColumnType = storedSchemas[table]?.[column];
      if (storedColumnType === undefined || storedColumnType === type) continue;
      throw new ConfigError(
        `The lake in ${store.location} has ${table}.${column} as ${storedColumnType}; this version writes it as ${type}.`,
        { hint: "Choose another folder or prefix for what comes from now on." },
      );
    }
  }
  const tables = [...new Set([...Object.keys(storedSchemas), ...Object.keys(currentSchemas)])].sort();
  const mergedSchemas = Object.fromEntries(
    tables.map((table) => [table, { ...storedSchemas[table], ...currentSchemas[table] }]),
  );
  const lakeSchemasText = `${JSON.stringify(mergedSchemas, null, 2)}\n`;
  if (bytes !== null && Buffer.from(bytes).toString() === lakeSchemasText) return;
  for (const table of LAKE_TABLES) await format.createTable(table, signal);
  await store.put(TABLE_SCHEMAS_KEY, Buffer.from(lakeSchemasText), signal);
}

function parseLakeSchemas(bytes: Uint8Array, location: string): LakeSchemas {
  try {
    return JSON.parse(Buffer.from(bytes).toString()) as LakeSchemas;
  } catch (cause) {
    throw new ConfigError(`${location}/${TABLE_SCHEMAS_KEY} is no JSON.`, {
      hint: "Another program has written it: remove it, and Plenum writes it again.",
      cause,
    });
  }
}
