import { ConfigError, type Failure, Retryable } from "../../core/errors/errors.ts";
import type { Address } from "../../core/postgres/address.ts";
import { failureOf, isServerError, type Wording } from "../../core/postgres/outcome.ts";
import { Fenced } from "../../engine/store/fenced.ts";
import { Conflict } from "../../engine/store/store.ts";
import { shownKey } from "./keys.ts";

/** How what goes wrong with the state's database is said. */
export const FOR_STATE: Wording = {
  addressOption: "url",
  rights: "create on the database, or make it the owner of the schema",
  refused: "does not take what the state is made of",
  changed:
    "Somebody has changed the tables of the state: restore a backup, or let state.postgres.schema name another.",
  tooLong: "If that stays so, look for what else its disk is doing, and into pg_locks there.",
};

/** What an error of the server, the library or the connection means; what our own functions raise in the schema. */
export function meaningIn(error: unknown, address: Address): Failure | Fenced | Conflict {
  if (error instanceof Fenced || error instanceof Conflict) return error;
  if (isServerError(error)) {
    const { code, detail = "" } = error;
    if (code === "PLF01") return new Fenced(detail, { cause: error });
    if (code === "PLF02") return noSuchSource(detail);
    if (code === "PLC01") {
      const [set = "", key = ""] = JSON.parse(detail) as string[];
      return new Conflict(set, shownKey(key));
    }
  }
  return failureOf(error, address, FOR_STATE);
}

/** A server that has become a replica; whoever takes writes now has to be looked for. */
export function hasStoppedWriting(error: unknown): boolean {
  return isServerError(error) && error.code === "25006";
}

export function withoutPrimary(name: string): Retryable {
  return new Retryable(`The server of ${name} has become a replica; the next one is looked for.`);
}

export function noSuchSource(source: string): ConfigError {
  return new ConfigError(`The state in the database has no source ${source}.`, {
    hint: "Check the name, or start a worker with it once.",
  });
}
