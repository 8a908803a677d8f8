import { randomBytes } from "node:crypto";
import { checksumSql } from "./checksum.ts";
import type { Bindable, Database } from "./sqlite.ts";

/** What no other stretch of counting is called, of any sink and any state: 16 hexadecimal digits. */
export function newEpoch(): string {
  return randomBytes(8).toString("hex");
}

/**
 * Has sinks count anew from 1, because what they were offered cannot be told by their old count any more: an event was
 * lost to them, or nobody knows whether one was. A receiver that sees the numbers 1, 2, 3 of an epoch so has all there
 * was of it, and a new epoch is where something may be missing. Belongs inside a transaction; a row that is damaged gets
 * its epoch when it is repaired.
 */
export function beginEpoch(database: Database, where: string, ...values: readonly Bindable[]): void {
  const anew = { counted: "0", epoch: "?1" };
  database
    .prepare(
      `update sink set counted = 0, epoch = ?1, checksum = ${checksumSql("sink", anew)}
       where (${where}) and ${checksumSql("sink")} is checksum`,
    )
    .run(newEpoch(), ...values);
}
