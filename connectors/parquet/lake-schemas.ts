import { ConfigError } from "../../src/core/errors/errors.ts";
import { TABLES } from "../shared/lake/tables.ts";
import type { ObjectStore } from "./object-store.ts";
import { SCHEMAS_KEY } from "./paths.ts";
import type { TableFormat } from "./table-format.ts";

type Schemas = Readonly<Record<string, Readonly<Record<string, string>>>>;

/** Names the table format of the lake; lakes of plain files have none. */
const FORMAT = "_format";
const OPTION = "table_format";

/** Compares the tables with those in the lake and adds new columns. Throws ConfigError for a column of another type. */
export async function updateSchemas(store: ObjectStore, format: TableFormat, signal: AbortSignal): Promise<void> {
  const bytes = await store.get(SCHEMAS_KEY, signal);
  const before = bytes === null ? {} : parseSchemas(bytes, store.where);
  const stored = before[FORMAT]?.[OPTION] ?? "plain";
  // Rows in two formats would be there twice, or not at all.
  if (bytes !== null && stored !== format.name) {
    throw new ConfigError(
      `The lake in ${store.where} has table_format ${stored}; the sink is to write ${format.name}.`,
      {
        field: OPTION,
        hint: `Set table_format: ${stored}, or choose another folder or prefix; nothing was written.`,
      },
    );
  }
  const now: Schemas = {
    ...(format.name === "plain" ? {} : { [FORMAT]: { [OPTION]: format.name } }),
    ...Object.fromEntries(
      TABLES.map(({ name, columns }) => [name, Object.fromEntries(columns.map((c) => [c.name, c.type]))]),
    ),
  };
  for (const [table, columns] of Object.entries(now)) {
    for (const [column, type] of Object.entries(columns)) {
      const storedType = before[table]?.[column];
      if (storedType === undefined || storedType === type) continue;
      throw new ConfigError(
        `The lake in ${store.where} has ${table}.${column} as ${storedType}; this version writes it as ${type}.`,
        { hint: "Choose another folder or prefix for what comes from now on." },
      );
    }
  }
  const tables = [...new Set([...Object.keys(before), ...Object.keys(now)])].sort();
  const all = Object.fromEntries(tables.map((table) => [table, { ...before[table], ...now[table] }]));
  const text = `${JSON.stringify(all, null, 2)}\n`;
  if (bytes !== null && Buffer.from(bytes).toString() === text) return;
  for (const table of TABLES) await format.createTable(table, signal);
  await store.put(SCHEMAS_KEY, Buffer.from(text), signal);
}

function parseSchemas(bytes: Uint8Array, where: string): Schemas {
  try {
    return JSON.parse(Buffer.from(bytes).toString()) as Schemas;
  } catch (cause) {
    throw new ConfigError(`${where}/${SCHEMAS_KEY} is no JSON.`, {
      hint: "Somebody else has written it: remove it, and it is written anew.",
      cause,
    });
  }
}
