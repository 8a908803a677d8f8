import { ConfigError } from "../../src/core/errors/errors.ts";
import { TABLES } from "../shared/lake/tables.ts";
import type { ObjectStore } from "./object-store.ts";
import { SCHEMAS } from "./paths.ts";
import type { TableFormat } from "./table-format.ts";

type Schemas = Readonly<Record<string, Readonly<Record<string, string>>>>;

/** Key of the entry that names the table format of the lake. */
const FORMAT = "_format";
const OPTION = "table_format";

/**
 * Compares the tables with those stored in the lake, records new columns, and creates each table. A new or dropped
 * column is null in the other files, because readers unite files by column name. A column with another type would
 * make all of them unreadable together, so that is a ConfigError.
 */
export async function agreeOnSchemas(store: ObjectStore, format: TableFormat, signal: AbortSignal): Promise<void> {
  const bytes = await store.get(SCHEMAS, signal);
  const before = bytes === null ? {} : parsed(bytes, store);
  if (bytes !== null) checkFormat(before[FORMAT]?.[OPTION] ?? "plain", store, format);
  const now: Schemas = {
    // Lakes of plain files have no such entry.
    ...(format.name === "plain" ? {} : { [FORMAT]: { [OPTION]: format.name } }),
    ...Object.fromEntries(
      TABLES.map(({ name, columns }) => [name, Object.fromEntries(columns.map((c) => [c.name, c.type]))]),
    ),
  };
  for (const [table, columns] of Object.entries(now)) {
    for (const [column, type] of Object.entries(columns)) {
      const known = before[table]?.[column];
      if (known === undefined || known === type) continue;
      throw new ConfigError(
        `The lake in ${store.where} has ${table}.${column} as ${known}; this version writes it as ${type}.`,
        { hint: "Choose another folder or prefix for what comes from now on." },
      );
    }
  }
  const tables = new Set([...Object.keys(before), ...Object.keys(now)]);
  const all = Object.fromEntries([...tables].sort().map((table) => [table, { ...before[table], ...now[table] }]));
  const text = `${JSON.stringify(all, null, 2)}\n`;
  if (bytes !== null && Buffer.from(bytes).toString() === text) return;
  for (const table of TABLES) await format.make(table, signal);
  await store.put(SCHEMAS, Buffer.from(text), signal);
}

/** Refuses a lake of the other format: rows would be there twice, or not at all. */
function checkFormat(there: string, { where }: ObjectStore, { name }: TableFormat): void {
  if (there === name) return;
  throw new ConfigError(`The lake in ${where} has table_format ${there}; the sink is to write ${name}.`, {
    field: OPTION,
    hint: `Set table_format: ${there}, or choose another folder or prefix; nothing was written.`,
  });
}

function parsed(bytes: Uint8Array, { where }: ObjectStore): Schemas {
  try {
    return JSON.parse(Buffer.from(bytes).toString()) as Schemas;
  } catch (cause) {
    throw new ConfigError(`${where}/${SCHEMAS} is no JSON.`, {
      hint: "Somebody else has written it: remove it, and it is written anew.",
      cause,
    });
  }
}
