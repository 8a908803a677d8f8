import { asFailure, ConfigError, type Failure, Retryable } from "../errors/errors.ts";
import { connectionFailure, type ServerInfo, tlsUnsupportedError } from "../http/connection-problem.ts";
import { describePostgresServer, type PostgresAddress } from "./server-address.ts";
import { isPostgresError } from "./session.ts";
import { CommitUnknown } from "./transaction.ts";

const MAX_ERROR_MESSAGE_LENGTH = 300;

/** True for an error about one row: SQLSTATE 22 (invalid value), 23 (constraint) or 54 (too long). */
export function isRowError(error: unknown): boolean {
  return isPostgresError(error) && /^(22|23|54)/.test(error.code);
}

/** True when a table, column or index is missing or different (SQLSTATE 42…, except missing permissions). */
export function isTableError(error: unknown): boolean {
  return isPostgresError(error) && error.code.startsWith("42") && error.code !== "42501";
}

export function describePostgresRejection(error: unknown): string {
  if (!isPostgresError(error)) return shortErrorMessage(error);
  const violatedConstraintText = error.constraint === undefined ? "" : `, constraint ${error.constraint}`;
  return `The database server does not take it: ${shortErrorMessage(error)} (${error.code}${violatedConstraintText}).`;
}

function shortErrorMessage(error: unknown): string {
  return (error instanceof Error ? error.message : String(error)).slice(0, MAX_ERROR_MESSAGE_LENGTH);
}

/**
 * Classifies an error that is not about a single event. For SQLSTATE codes in `findSettingsAdvice`, a person
 * must act: `ConfigError`. Other errors may be temporary: `Retryable`. Connection errors have no code.
 */
export function sqlErrorToFailure(error: unknown, address: PostgresAddress, wording = TABLE_ERROR_WORDING): Failure {
  if (error instanceof CommitUnknown && error.cause !== undefined) {
    const causeFailure = sqlErrorToFailure(error.cause, address, wording);
    return new CommitUnknown(causeFailure.message, causeFailure.hint === undefined ? {} : { hint: causeFailure.hint });
  }
  const knownFailure = asFailure(error);
  if (knownFailure === error) return knownFailure;
  const serverInfo = { ...describePostgresServer(address), addressOption: wording.addressOption };
  if (!isPostgresError(error)) return driverErrorToFailure(error, serverInfo, address);
  const { code } = error;
  const message = `${shortErrorMessage(error)} (${code})`;
  const settingsAdvice = findSettingsAdvice(code, address, wording);
  if (settingsAdvice !== null) {
    const [fault, field, hint] = settingsAdvice;
    return new ConfigError(`${serverInfo.name} ${fault}: ${message}.`, {
      ...(code.startsWith("28") ? { reason: "unauthenticated" } : {}),
      ...(code === "42501" ? { reason: "forbidden" } : {}),
      field,
      hint,
    });
  }
  const timeoutFault = ["took too long and was stopped", wording.timeoutHint] as const;
  const knownFault = code === "57014" ? timeoutFault : (TRANSIENT_FAULTS[code] ?? TRANSIENT_FAULTS[code.slice(0, 2)]);
  const [fault, hint] = knownFault ?? ["could not do it"];
  return new Retryable(`${serverInfo.name} ${fault}: ${message}.`, hint === undefined ? {} : { hint });
}

export interface PostgresErrorWording {
  readonly addressOption: "host" | "url";
  /** Permissions to grant, as the end of the hint "Grant the role …". */
  readonly permissionsToGrant: string;
  readonly rejectionText: string;
  readonly changedTablesHint: string;
  readonly timeoutHint: string;
}

const TABLE_ERROR_WORDING: PostgresErrorWording = {
  addressOption: "host",
  permissionsToGrant: "usage and create on the schema, and select, insert and update on its tables",
  rejectionText: "refuses every row",
  changedTablesHint: "Somebody has changed the tables: put them back as they were made, or let schema name another.",
  timeoutHint: "If that stays so, raise timeout, and the sink's deadline.",
};

type SettingsErrorAdvice = readonly [fault: string, field: string, hint: string];

function findSettingsAdvice(code: string, { user, sslmode }: PostgresAddress, wording: PostgresErrorWording) {
  const tlsHint = sslmode === "disable" ? "; let sslmode out if it wants TLS" : "";
  const adviceByErrorCode: readonly (readonly [codes: RegExp, ...SettingsErrorAdvice])[] = [
    [/^28P01/, "does not accept the password", "password", `Check the password of the role ${user}.`],
    [/^28/, "does not let us in", "user", `Check user and database, and allow both in its pg_hba.conf${tlsHint}.`],
    [/^(3D000|57P04)/, "has no such database", "database", "Create it, or write the name of one that is there."],
    [/^42501/, "does not give us the right", "user", `Grant the role ${user} ${wording.permissionsToGrant}.`],
    [/^25006/, "only lets us read", wording.addressOption, "Write the address of the primary; this may be a replica."],
    [/^(42|3F|0A|P0001|22|23|54)/, wording.rejectionText, "schema", wording.changedTablesHint],
  ];
  const [, ...advice] = adviceByErrorCode.find(([codes]) => codes.test(code)) ?? [];
  return advice.length === 3 ? advice : null;
}

const TRANSIENT_FAULTS: Readonly<Record<string, readonly [fault: string, hint?: string]>> = {
  "53100": ["has no room on its disk", "Make room on it; the events wait."],
  "53300": ["has no connection left for us", "One is enough; raise max_connections there, or end what holds them."],
  "53": ["has used up its resources", "Look into its log; the events wait."],
  "57P03": ["is starting, stopping or recovering"],
  "57": ["ends the connection"],
  "55P03": ["waited too long for a lock", "Somebody holds the tables; look into pg_locks there."],
  "40": ["had somebody else in the way"],
};

function driverErrorToFailure(error: unknown, server: ServerInfo, { user }: PostgresAddress): Failure {
  const errorText = error instanceof Error ? error.message : "";
  if (errorText === "The server does not support SSL connections") return tlsUnsupportedError(server, "it says so");
  if (errorText === "There was an error establishing an SSL connection") {
    return new ConfigError(`${server.name} does not answer as PostgreSQL does.`, {
      field: "host",
      hint: "Check host and port.",
    });
  }
  if (errorText.startsWith("SASL: ")) {
    return new ConfigError(`${server.name} does not prove that it knows the password (SCRAM).`, {
      reason: "unauthenticated",
      field: "password",
      hint: `Check the password of the role ${user}, and that this is the right server.`,
    });
  }
  if (/^Connection terminated|not queryable$/.test(errorText))
    return connectionFailure(Object.assign(new Error(errorText), { code: "ECONNRESET" }), server);
  return connectionFailure(error, server);
}
