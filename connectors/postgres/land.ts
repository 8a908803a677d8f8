import type { Receipt, Rejection } from "../../src/core/connector.ts";
import { Retryable } from "../../src/core/errors/errors.ts";
import { isAboutData, isAboutTables, reasonOf } from "../../src/core/postgres/outcome.ts";
import type { Query, Session } from "../../src/core/postgres/session.ts";
import { transact, transactAtOnce } from "../../src/core/postgres/transact.ts";
import type { Told } from "../shared/lake/rows.ts";
import { type Portion, portionOf, type Rows } from "./portion.ts";
import { lockTables } from "./prepare.ts";
import { insertText, type Place } from "./statement.ts";
import { changedBy } from "./versions.ts";

export interface Landing {
  readonly session: Session;
  readonly place: Place;
  readonly timeoutMs: number;
  /** Texts of statements that were made already. */
  readonly texts: Map<string, string>;
  /** Called where the server refuses a batch; throws where the tables are to blame. True when it has made what was gone. */
  check(): Promise<boolean>;
}

/** A search for events that are refused is put off after so many parts; 14 find one among 5,000. */
const MOST_PARTS = 200;

/**
 * Writes a batch in one transaction. Where the server refuses it over a value, it is searched for, by halves, in
 * another transaction with savepoints; the events that are left alone and refused are rejected, all others stored.
 */
export async function land(batch: readonly Told[], landing: Landing): Promise<Receipt> {
  const { session, timeoutMs } = landing;
  const { told, rejected, portion } = readable(batch);
  if (portion.rows.length + portion.news.size === 0) return { rejected };
  try {
    if (portion.news.size > 0)
      await transact(session, { statementMs: timeoutMs }, () => store(portion, landing));
    else
      await transactAtOnce(
        session,
        { statementMs: timeoutMs },
        portion.rows.map((rows) => insertOf(rows, landing)),
      );
    return { rejected };
  } catch (error) {
    const isData = isAboutData(error);
    if (!isData && !isAboutTables(error)) throw error;
    if (await landing.check())
      throw new Retryable("Tables were gone from the database; they were made anew.");
    if (!isData) throw error;
  }
  const found = await transact(session, { statementMs: timeoutMs }, () => search(told, landing));
  const end = found.kept?.from ?? batch.length;
  return { ...found, rejected: [...rejected.filter(({ index }) => index < end), ...found.rejected] };
}

interface Numbered {
  readonly index: number;
  readonly told: Told;
}

interface Readable {
  readonly told: readonly Numbered[];
  readonly rejected: readonly Rejection[];
  readonly portion: Portion;
}

/** Without those that no rows can be made of. */
function readable(batch: readonly Told[]): Readable {
  const numbered = batch.map((told, index) => ({ index, told }));
  try {
    return { told: numbered, rejected: [], portion: portionOf(batch) };
  } catch {
    const rejected: Rejection[] = [];
    const told = numbered.filter(({ index, told: each }) => {
      try {
        portionOf([each]);
        return true;
      } catch (error) {
        rejected.push({ index, reason: reasonOf(error) });
        return false;
      }
    });
    return { told, rejected, portion: portionOf(told.map((each) => each.told)) };
  }
}

async function store({ rows, news }: Portion, landing: Landing): Promise<void> {
  const { session, place } = landing;
  await session.queries(rows.map((each) => insertOf(each, landing)));
  if (news.size > 0) await lockTables(session, place);
  for (const [table, told] of news) {
    const changed = await changedBy(session, table, told, place);
    if (changed !== null) await session.queries([insertOf(changed, landing)]);
  }
}

function insertOf({ table, columns }: Rows, { place, texts }: Landing): Query {
  const arrays = columns.map(({ isArray }) => isArray);
  const key = `${table.name} ${arrays.map(Number).join("")}`;
  const text = texts.get(key) ?? insertText(table, place, arrays);
  texts.set(key, text);
  return { text, values: columns.map(({ bytes }) => bytes) };
}

async function search(batch: readonly Numbered[], landing: Landing): Promise<Receipt> {
  const { session } = landing;
  const rejected: Rejection[] = [];
  const middle = (part: readonly Numbered[]) => Math.ceil(part.length / 2);
  const todo = [batch];
  let parts = 0;
  for (let part = todo.pop(); part !== undefined; part = todo.pop()) {
    const [first] = part;
    if (first === undefined) continue;
    if (parts >= MOST_PARTS) {
      const error = new Retryable("More faulty events than one write can sort out; the rest follows.");
      return { rejected, kept: { from: first.index, error } };
    }
    parts++;
    await session.query("savepoint part");
    try {
      await store(portionOf(part.map(({ told }) => told)), landing);
      await session.query("release part");
    } catch (error) {
      if (!isAboutData(error)) throw error;
      await session.query("rollback to part");
      if (part.length === 1) rejected.push({ index: first.index, reason: reasonOf(error) });
      else todo.push(part.slice(middle(part)), part.slice(0, middle(part)));
    }
  }
  return { rejected };
}
