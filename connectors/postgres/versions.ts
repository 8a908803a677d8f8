import { quoted } from "../../src/core/postgres/quoted.ts";
import type { Session } from "../../src/core/postgres/session.ts";
import type { Cell, Row, Table } from "../shared/lake/table.ts";
import { placeOf } from "../shared/lake/table.ts";
import { withNews } from "../shared/lake/versions.ts";
import { type Rows, rowsFor } from "./portion.ts";
import { listOf, nameOf, type Place } from "./statement.ts";

/**
 * The rows of a table of versions that news change or add. What is held of the things is read first, so nobody else may
 * change them before the transaction ends.
 */
export async function changedBy(
  session: Session,
  table: Table,
  news: readonly Row[],
  place: Place,
): Promise<Rows | null> {
  const held = await heldOf(session, table, news, place);
  const known = new Set(held);
  const changed = withNews(table, held, news).filter((row) => !known.has(row));
  return changed.length === 0 ? null : rowsFor(table, changed);
}

/** All states of the things that the news are about. */
async function heldOf(
  session: Session,
  table: Table,
  news: readonly Row[],
  place: Place,
): Promise<readonly Row[]> {
  const thing = table.key.filter((name) => name !== table.time);
  const values = thing.map((name) => news.map((row) => String(row[placeOf(table, name)])));
  const { rows } = await session.query(
    `select ${table.columns.map(({ name, type }) => readAs(name, type)).join(", ")} from ${nameOf(place, table)}
where (${listOf(thing)}) in (select ${thing.map((_, n) => `told.c${n}`).join(", ")} from unnest(${values.map((_, n) => `$${n + 1}::text[]`).join(", ")}) as told (${thing.map((_, n) => `c${n}`).join(", ")}))`,
    values,
  );
  return rows.map((row) => row.map((cell): Cell => cell));
}

/** Milliseconds for a time, and a double for a whole number, of which the library would make a text. */
function readAs(name: string, type: Table["columns"][number]["type"]): string {
  if (type === "time") return `(extract(epoch from ${quoted(name)}) * 1000)::double precision`;
  if (type === "integer") return `${quoted(name)}::double precision`;
  return type === "json" ? `${quoted(name)}::text` : quoted(name);
}
