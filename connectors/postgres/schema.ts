import { ConfigError } from "../../src/core/errors/errors.ts";
import type { Session } from "../../src/core/postgres/session.ts";
import { transact } from "../../src/core/postgres/transact.ts";
import type { Log } from "../../src/core/runtime/log.ts";
import type { Column, Table } from "../shared/lake/table.ts";
import { SQL_TYPES } from "./columns.ts";
import {
  addColumn,
  columnList,
  columnPathOf,
  createHypertable,
  createSchema,
  createTable,
  createVersionTable,
  primaryKeyOf,
  qualifiedName,
  type Target,
  VERSION_TABLE,
} from "./sql.ts";

export interface TableRequirements {
  readonly tables: readonly Table[];
  readonly target: Target;
  readonly create: boolean;
  readonly timeoutMs: number;
}

/** Returns whether tables or columns were created. Throws ConfigError where they may not be created or do not fit. */
export async function prepareTables(session: Session, wanted: TableRequirements, log: Log): Promise<boolean> {
  const { tables, target } = wanted;
  const missing = findMissing(tables, await readCatalog(session, wanted), target);
  if (!isIncomplete(missing)) return false;
  if (!wanted.create) throw missingError(missing, target);
  const functions = target.timescale ? await schemaOfTimescale(session) : null;
  await transact(session, { statementMs: wanted.timeoutMs }, async () => {
    await lockTables(session, target);
    const before = await readCatalog(session, wanted);
    const { tables: newTables, columns } = findMissing(tables, before, target);
    if (!isIncomplete({ tables: newTables, columns })) return;
    const hypertables = newTables.filter(({ rowPolicy }) => rowPolicy === "append");
    await session.query(
      [
        ...(before.hasSchema ? [] : [createSchema(target)]),
        createVersionTable(target),
        ...newTables.map((table) => createTable(table, target)),
        ...(functions === null ? [] : hypertables.map((table) => createHypertable(table, target, functions))),
        ...columns.map(({ table, column }) => addColumn(table, column, target)),
      ].join(";\n"),
    );
    const stamps = [
      ...newTables.flatMap((table) => table.columns.map((column) => ({ table, column }))),
      ...columns,
    ].map(({ table, column }) => columnPathOf(table, column));
    const versions = qualifiedName(target, VERSION_TABLE);
    await session.query(
      `insert into ${versions} (version, columns) select coalesce(max(version), 0) + 1, $1::text[] from ${versions}`,
      [stamps],
    );
    const names = newTables.map(({ name }) => name);
    const added = columns.map(({ table, column }) => columnPathOf(table, column));
    log.info({ schema: target.schema, tables: names, columns: added }, "made what was missing in the database");
  });
  return true;
}

/** Throws ConfigError where the role may not create or write the tables. */
export async function checkPrivileges(session: Session, wanted: TableRequirements): Promise<void> {
  const { tables, target } = wanted;
  const existing = await readCatalog(session, wanted);
  const missing = findMissing(tables, existing, target);
  if (isIncomplete(missing)) {
    if (!wanted.create) throw missingError(missing, target);
    if (target.timescale) await schemaOfTimescale(session);
    const [right, of] = existing.hasSchema
      ? [`has_schema_privilege($1, 'create')`, `the schema ${target.schema}`]
      : [`has_database_privilege(current_database(), 'create')`, "the database"];
    const { rows } = await session.query(`select ${right}`, existing.hasSchema ? [target.schema] : undefined);
    if (rows[0]?.[0] !== true) throw privilegeError(`create tables in ${of}`, `grant create on ${of}`);
  }
  for (const { name } of tables.filter((table) => existing.tables.has(table.name))) {
    const { rows } = await session.query(
      `select has_schema_privilege($1, 'usage') and has_table_privilege(format('%I.%I', $1::text, $2::text), 'select')
 and has_table_privilege(format('%I.%I', $1::text, $2::text), 'insert') and has_table_privilege(format('%I.%I', $1::text, $2::text), 'update')`,
      [target.schema, name],
    );
    if (rows[0]?.[0] === true) continue;
    const all = `all tables in schema ${target.schema}`;
    throw privilegeError(`write into ${target.schema}.${name}`, `grant select, insert, update on ${all}`);
  }
}

/** Locks out other Plenum workers that change tables or dependent rows, until the transaction ends. */
export async function lockTables(session: Session, { schema }: Target): Promise<void> {
  await session.query("select pg_advisory_xact_lock($1::int, hashtext($2))", [String(LOCK_NUMBER), schema]);
}

/** Arbitrary lock number: "plen" in ASCII. */
const LOCK_NUMBER = 0x706c656e;

function isIncomplete({ tables, columns }: Missing): boolean {
  return tables.length + columns.length > 0;
}

function missingError({ tables, columns }: Missing, { schema }: Target): ConfigError {
  const names = [
    ...tables.map(({ name }) => `the table ${name}`),
    ...columns.map(({ table, column }) => `the column ${table.name}.${column.name}`),
  ];
  const [first = "", ...others] = names;
  const more = others.length === 0 ? "" : ` and ${others.length} more`;
  return new ConfigError(`The schema ${schema} lacks ${first}${more}.`, {
    field: "create",
    hint: "Set create: true, once with a role that may create them if that of the worker may not.",
  });
}

function privilegeError(what: string, hint: string): ConfigError {
  return new ConfigError(`The role may not ${what}.`, {
    reason: "forbidden",
    field: "user",
    hint: `Have its owner run: ${hint} to that role.`,
  });
}

async function schemaOfTimescale(session: Session): Promise<string> {
  const { rows } = await session.query(
    "select n.nspname::text from pg_extension e join pg_namespace n on n.oid = e.extnamespace where e.extname = 'timescaledb'",
  );
  const name = rows[0]?.[0];
  if (typeof name === "string") return name;
  throw new ConfigError("The database has no extension timescaledb.", {
    field: "timescale",
    hint: "Run there: create extension timescaledb; or leave timescale out.",
  });
}

async function readCatalog(session: Session, { tables, target }: TableRequirements): Promise<Catalog> {
  const names = [...tables.map(({ name }) => name), VERSION_TABLE.name];
  const { rows } = await session.query(
    `select n.nspname::text, c.relname::text, c.relkind::text, a.attname::text, format_type(a.atttypid, a.atttypmod),
  a.attnotnull, a.atthasdef or a.attidentity <> ''
from pg_catalog.pg_namespace n
left join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = any($2::text[]) and c.relkind in ('r', 'p', 'v', 'm', 'f')
left join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
where n.nspname = $1`,
    [target.schema, names],
  );
  const existing = new Map<string, CatalogTable>();
  for (const [table, kind, column, type, isNotNull, hasDefault] of rows.map(([, ...cells]) => cells)) {
    if (table === null) continue;
    const known = existing.get(String(table)) ?? { kind: String(kind), columns: new Map(), uniques: [] };
    existing.set(String(table), known);
    if (column === null) continue;
    const state = { type: String(type), isNotNull: isNotNull === true, hasDefault: hasDefault === true };
    known.columns.set(String(column), state);
  }
  await addUniques(session, target, existing);
  const stamps = new Set<string>();
  if (existing.delete(VERSION_TABLE.name)) {
    const created = await session.query(`select unnest(columns) from ${qualifiedName(target, VERSION_TABLE)}`);
    for (const [stamp] of created.rows) stamps.add(String(stamp));
  }
  return { hasSchema: rows.length > 0, tables: existing, stamps };
}

/** Adds the unique indexes that `on conflict` can use. */
async function addUniques(session: Session, { schema }: Target, tables: ReadonlyMap<string, CatalogTable>) {
  const { rows } = await session.query(
    `select c.relname::text, array_to_string(array_agg(a.attname::text order by a.attname::text collate "C"), ' ')
from pg_catalog.pg_index i
join pg_catalog.pg_class c on c.oid = i.indrelid
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum = any(i.indkey::int2[])
where n.nspname = $1 and i.indisunique and i.indisvalid and i.indimmediate and i.indpred is null and i.indexprs is null
group by c.relname, i.indexrelid`,
    [schema],
  );
  for (const [table, columns] of rows) tables.get(String(table))?.uniques.push(String(columns));
}

interface CatalogTable {
  /** `r` for a table, `p` for a partitioned one. */
  readonly kind: string;
  /** Types as `format_type` writes them, such as `double precision`. */
  readonly columns: Map<string, { readonly type: string; readonly isNotNull: boolean; readonly hasDefault: boolean }>;
  /** Columns of each unique index, sorted by name. */
  readonly uniques: string[];
}

interface Catalog {
  readonly hasSchema: boolean;
  readonly tables: ReadonlyMap<string, CatalogTable>;
  /** Columns that Plenum has ever created, as `table.column`. */
  readonly stamps: ReadonlySet<string>;
}

/** Tables and columns that Plenum never created, such as columns of a later version. */
interface Missing {
  readonly tables: readonly Table[];
  readonly columns: readonly { readonly table: Table; readonly column: Column }[];
}

/** Throws ConfigError where a changed table does not fit our rows; nothing is then written. */
function findMissing(tables: readonly Table[], catalog: Catalog, target: Target): Missing {
  const columns = tables.flatMap((table) => {
    const existing = catalog.tables.get(table.name);
    if (existing === undefined) return [];
    refuseUnfitTable(table, existing, target);
    const missing = table.columns.filter(({ name }) => !existing.columns.has(name));
    const lost = missing.find((column) => catalog.stamps.has(columnPathOf(table, column)));
    if (lost === undefined) return missing.map((column) => ({ table, column }));
    throw schemaError(
      `The table ${displayName(target, table)} has lost its column ${lost.name}.`,
      `Run: alter table ${qualifiedName(target, table)} add column "${lost.name}" ${SQL_TYPES[lost.type].name}`,
    );
  });
  return { tables: tables.filter(({ name }) => !catalog.tables.has(name)), columns };
}

function refuseUnfitTable(table: Table, existing: CatalogTable, target: Target): void {
  const name = displayName(target, table);
  if (!["r", "p"].includes(existing.kind)) {
    throw schemaError(`${name} is no table.`, "Rename what has that name, or let schema name another.");
  }
  for (const [columnName, { type, isNotNull, hasDefault }] of existing.columns) {
    const own = table.columns.find((column) => column.name === columnName);
    const alter = `Run: alter table ${qualifiedName(target, table)} alter column "${columnName}"`;
    if (own === undefined) {
      if (!isNotNull || hasDefault) continue;
      throw schemaError(
        `The table ${name} has a column ${columnName} that has to be filled, and nobody does.`,
        `${alter} drop not null; or give it a default.`,
      );
    }
    const wanted = SQL_TYPES[own.type].name;
    if (type !== wanted) {
      throw schemaError(
        `The column ${columnName} of ${name} is ${type} and has to be ${wanted}.`,
        `${alter} type ${wanted}`,
      );
    }
    if (isNotNull && own.isNullable) {
      throw schemaError(`The column ${columnName} of ${name} has to take null.`, `${alter} drop not null`);
    }
  }
  const key = primaryKeyOf(table, target);
  if (existing.uniques.includes(key.toSorted().join(" ")) || key.some((column) => !existing.columns.has(column)))
    return;
  throw schemaError(
    `The table ${name} has no unique index on ${key.join(", ")}.`,
    `Run: create unique index on ${qualifiedName(target, table)} (${columnList(key)})`,
  );
}

function schemaError(message: string, hint: string): ConfigError {
  return new ConfigError(message, { field: "schema", hint });
}

function displayName({ schema }: Target, { name }: Table): string {
  return `${schema}.${name}`;
}
