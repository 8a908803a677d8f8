import { ConfigError } from "../../src/core/errors/errors.ts";
import type { PostgresSession } from "../../src/core/postgres/session.ts";
import { quoteSqlName } from "../../src/core/postgres/sql-quoting.ts";
import { runTransaction } from "../../src/core/postgres/transaction.ts";
import type { Log } from "../../src/core/runtime/log.ts";
import type { LakeTable } from "../shared/lake/table-model.ts";
import { SQL_TYPES } from "./column-encoding.ts";
import {
  buildAddColumnSql,
  buildCreateHypertableSql,
  buildCreateTableSql,
  buildCreateVersionTableSql,
  buildPrimaryKey,
  formatColumnPath,
  joinQuotedColumnNames,
  qualifiedName,
  type TableSettings,
  VERSION_TABLE,
} from "./sql-statements.ts";

export interface TableRequirements {
  readonly tables: readonly LakeTable[];
  readonly target: TableSettings;
  readonly create: boolean;
  readonly timeoutMs: number;
}

/** Creates missing tables and columns; returns true if any were missing. Throws ConfigError if a table does not fit. */
export async function prepareTables(session: PostgresSession, requirements: TableRequirements, log: Log) {
  const { tables, target } = requirements;
  const missingTableParts = findMissingTableParts(tables, await readCatalog(session, requirements), target);
  if (!hasMissingTableParts(missingTableParts)) return false;
  if (!requirements.create) throw createMissingTablesError(missingTableParts, target);
  const timescaleSchema = target.timescale ? await findTimescaleSchema(session) : null;
  await runTransaction(session, { statementMs: requirements.timeoutMs }, async () => {
    await lockTables(session, target);
    const databaseCatalog = await readCatalog(session, requirements);
    const { tables: newTables, columns } = findMissingTableParts(tables, databaseCatalog, target);
    if (!hasMissingTableParts({ tables: newTables, columns })) return;
    const hypertables = newTables.filter(({ rowPolicy }) => rowPolicy === "append");
    await session.query(
      [
        ...(databaseCatalog.hasSchema ? [] : [`create schema ${quoteSqlName(target.schema)}`]),
        buildCreateVersionTableSql(target),
        ...newTables.map((table) => buildCreateTableSql(table, target)),
        ...(timescaleSchema === null
          ? []
          : hypertables.map((table) => buildCreateHypertableSql(table, target, timescaleSchema))),
        ...columns.map(({ table, column }) => buildAddColumnSql(table, column, target)),
      ].join(";\n"),
    );
    const addedColumns = columns.map(({ table, column }) => formatColumnPath(table, column));
    const columnsOfNewTables = newTables.flatMap((table) =>
      table.columns.map((column) => formatColumnPath(table, column)),
    );
    const versionTableName = qualifiedName(target, VERSION_TABLE);
    await session.query(
      `insert into ${versionTableName} (version, columns) select coalesce(max(version), 0) + 1, $1::text[] from ${versionTableName}`,
      [[...columnsOfNewTables, ...addedColumns]],
    );
    const names = newTables.map(({ name }) => name);
    log.info({ schema: target.schema, tables: names, columns: addedColumns }, "made what was missing in the database");
  });
  return true;
}

export async function checkTablePrivileges(session: PostgresSession, requirements: TableRequirements): Promise<void> {
  const { tables, target } = requirements;
  const databaseCatalog = await readCatalog(session, requirements);
  const missingTableParts = findMissingTableParts(tables, databaseCatalog, target);
  if (hasMissingTableParts(missingTableParts)) {
    if (!requirements.create) throw createMissingTablesError(missingTableParts, target);
    if (target.timescale) await findTimescaleSchema(session);
    const { rows } = databaseCatalog.hasSchema
      ? await session.query("select has_schema_privilege($1, 'create')", [target.schema])
      : await session.query("select has_database_privilege(current_database(), 'create')");
    const objectName = databaseCatalog.hasSchema ? `the schema ${target.schema}` : "the database";
    if (rows[0]?.[0] !== true)
      throw createPrivilegeError(`create tables in ${objectName}`, `grant create on ${objectName}`);
  }
  for (const { name } of tables.filter((table) => databaseCatalog.tables.has(table.name))) {
    const { rows } = await session.query(
      `select has_schema_privilege($1, 'usage') and has_table_privilege(format('%I.%I', $1::text, $2::text), 'select')
 and has_table_privilege(format('%I.%I', $1::text, $2::text), 'insert') and has_table_privilege(format('%I.%I', $1::text, $2::text), 'update')`,
      [target.schema, name],
    );
    if (rows[0]?.[0] === true) continue;
    const allTables = `all tables in schema ${target.schema}`;
    throw createPrivilegeError(`write into ${target.schema}.${name}`, `grant select, insert, update on ${allTables}`);
  }
}

/** Prevents other Plenum workers from changing tables until the transaction ends. */
export async function lockTables(session: PostgresSession, { schema }: TableSettings): Promise<void> {
  await session.query("select pg_advisory_xact_lock($1::int, hashtext($2))", [String(ADVISORY_LOCK_KEY), schema]);
}

const ADVISORY_LOCK_KEY = 0x706c656e;

const hasMissingTableParts = ({ tables, columns }: MissingTableParts): boolean => tables.length + columns.length > 0;

function createMissingTablesError({ tables, columns }: MissingTableParts, { schema }: TableSettings): ConfigError {
  const missingNames = [
    ...tables.map(({ name }) => `the table ${name}`),
    ...columns.map(({ table, column }) => `the column ${table.name}.${column.name}`),
  ];
  const [firstName = "", ...otherNames] = missingNames;
  const otherMissingText = otherNames.length === 0 ? "" : ` and ${otherNames.length} more`;
  return new ConfigError(`The schema ${schema} lacks ${firstName}${otherMissingText}.`, {
    field: "create",
    hint: "Set create: true, once with a role that may create them if that of the worker may not.",
  });
}

function createPrivilegeError(action: string, hint: string): ConfigError {
  return new ConfigError(`The role may not ${action}.`, {
    reason: "forbidden",
    field: "user",
    hint: `Have its owner run: ${hint} to that role.`,
  });
}

async function findTimescaleSchema(session: PostgresSession): Promise<string> {
  const { rows } = await session.query(
    "select n.nspname::text from pg_extension e join pg_namespace n on n.oid = e.extnamespace where e.extname = 'timescaledb'",
  );
  const timescaleSchema = rows[0]?.[0];
  if (typeof timescaleSchema === "string") return timescaleSchema;
  throw new ConfigError("The database has no extension timescaledb.", {
    field: "timescale",
    hint: "Run there: create extension timescaledb; or leave timescale out.",
  });
}

async function readCatalog(session: PostgresSession, { tables, target }: TableRequirements): Promise<DatabaseCatalog> {
  const { rows } = await session.query(
    `select n.nspname::text, c.relname::text, c.relkind::text, a.attname::text, format_type(a.atttypid, a.atttypmod),
  a.attnotnull, a.atthasdef or a.attidentity <> ''
from pg_catalog.pg_namespace n
left join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = any($2::text[]) and c.relkind in ('r', 'p', 'v', 'm', 'f')
left join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
where n.nspname = $1`,
    [target.schema, [...tables.map(({ name }) => name), VERSION_TABLE.name]],
  );
  const relations = new Map<string, CatalogTable>();
  for (const [table, kind, column, type, isNotNull, hasDefault] of rows.map(([, ...cells]) => cells)) {
    if (table === null) continue;
    const catalogTable = relations.get(String(table)) ?? { kind: String(kind), columns: new Map(), uniqueIndexes: [] };
    relations.set(String(table), catalogTable);
    if (column === null) continue;
    const columnProperties = { type: String(type), isNotNull: isNotNull === true, hasDefault: hasDefault === true };
    catalogTable.columns.set(String(column), columnProperties);
  }
  await addUniqueIndexes(session, target.schema, relations);
  const createdColumns = new Set<string>();
  if (relations.delete(VERSION_TABLE.name)) {
    const versionResult = await session.query(`select unnest(columns) from ${qualifiedName(target, VERSION_TABLE)}`);
    for (const [createdColumn] of versionResult.rows) createdColumns.add(String(createdColumn));
  }
  return { hasSchema: rows.length > 0, tables: relations, createdColumns };
}

/** Adds to `tables` the unique indexes that `on conflict` can use. */
async function addUniqueIndexes(session: PostgresSession, schema: string, tables: ReadonlyMap<string, CatalogTable>) {
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
  for (const [table, columns] of rows) tables.get(String(table))?.uniqueIndexes.push(String(columns));
}

interface CatalogTable {
  readonly kind: string;
  /** Columns by name, with types in the form of `format_type`, such as `double precision`. */
  readonly columns: Map<string, { readonly type: string; readonly isNotNull: boolean; readonly hasDefault: boolean }>;
  readonly uniqueIndexes: string[];
}

interface DatabaseCatalog {
  readonly hasSchema: boolean;
  readonly tables: ReadonlyMap<string, CatalogTable>;
  /** Columns that Plenum has ever created, as `table.column`. */
  readonly createdColumns: ReadonlySet<string>;
}

/** Tables and columns that Plenum still has to create, such as columns that a new Plenum version added. */
type MissingTableParts = ReturnType<typeof findMissingTableParts>;

/** Finds missing tables and columns. Throws ConfigError if an existing table does not fit our rows. */
function findMissingTableParts(tables: readonly LakeTable[], catalog: DatabaseCatalog, target: TableSettings) {
  const columns = tables.flatMap((table) => {
    const catalogTable = catalog.tables.get(table.name);
    if (catalogTable === undefined) return [];
    checkTableColumns(table, catalogTable, target);
    const missingColumns = table.columns.filter(({ name }) => !catalogTable.columns.has(name));
    const droppedColumn = missingColumns.find((column) => catalog.createdColumns.has(formatColumnPath(table, column)));
    if (droppedColumn === undefined) return missingColumns.map((column) => ({ table, column }));
    throw tableError(
      `The table ${formatTableName(target, table)} has lost its column ${droppedColumn.name}.`,
      `Run: alter table ${qualifiedName(target, table)} add column "${droppedColumn.name}" ${SQL_TYPES[droppedColumn.type].name}`,
    );
  });
  return { tables: tables.filter(({ name }) => !catalog.tables.has(name)), columns };
}

function checkTableColumns(table: LakeTable, existing: CatalogTable, target: TableSettings): void {
  const name = formatTableName(target, table);
  if (!["r", "p"].includes(existing.kind))
    throw tableError(`${name} is no table.`, "Rename what has that name, or let schema name another.");
  for (const [columnName, { type, isNotNull, hasDefault }] of existing.columns) {
    const expectedColumn = table.columns.find((column) => column.name === columnName);
    const alterColumnHint = `Run: alter table ${qualifiedName(target, table)} alter column "${columnName}"`;
    if (expectedColumn === undefined) {
      if (!isNotNull || hasDefault) continue;
      throw tableError(
        `The table ${name} has a column ${columnName} that is not null and has no default, and Plenum does not fill it.`,
        `${alterColumnHint} drop not null; or give it a default.`,
      );
    }
    const expectedType = SQL_TYPES[expectedColumn.type].name;
    if (type !== expectedType)
      throw tableError(
        `The column ${columnName} of ${name} is ${type} and has to be ${expectedType}.`,
        `${alterColumnHint} type ${expectedType}`,
      );
    if (isNotNull && expectedColumn.isNullable)
      throw tableError(`The column ${columnName} of ${name} has to take null.`, `${alterColumnHint} drop not null`);
  }
  const key = buildPrimaryKey(table, target);
  if (existing.uniqueIndexes.includes(key.toSorted().join(" ")) || key.some((column) => !existing.columns.has(column)))
    return;
  throw tableError(
    `The table ${name} has no unique index on ${key.join(", ")}.`,
    `Run: create unique index on ${qualifiedName(target, table)} (${joinQuotedColumnNames(key)})`,
  );
}

const tableError = (message: string, hint: string): ConfigError => new ConfigError(message, { field: "schema", hint });

const formatTableName = ({ schema }: TableSettings, { name }: LakeTable): string => `${schema}.${name}`;
