import { z } from "zod";
import { CaFileOption } from "../../src/core/http/outbound/config.ts";
import type { AnyEvent, Event } from "../../src/core/model/event.ts";
import {
  isSecuredAddress,
  parsePostgresAddress,
  postgresUrlSchema,
  SchemaName,
  SslModeOption,
} from "../../src/core/postgres/server-address.ts";
import { quoteSqlText } from "../../src/core/postgres/sql-quoting.ts";
import { SecretRef } from "../../src/core/runtime/secret.ts";
import { durationBetween } from "../../src/core/values/duration.ts";

const PostgresIdentifier = z.string().min(1).max(63);

export const PostgresConfig = z
  .strictObject({
    url: postgresUrlSchema("one").optional().meta({
      description:
        "Address with user and database, such as postgresql://plenum@db.example.com/buildings; instead of host, port, database, user and sslmode.",
    }),
    host: z
      .string()
      .regex(/^(\/.*|[A-Za-z0-9._:[\]-]{1,253})$/, "Write the name of the server alone; port and database are options.")
      .optional()
      .meta({ description: "Name or address of the server, or the folder of its socket on this machine." }),
    port: z.int().min(1).max(65_535).optional().meta({ description: "Port; 5432 by default." }),
    database: PostgresIdentifier.optional().meta({ description: "Name of an existing database in UTF8." }),
    user: PostgresIdentifier.optional().meta({ description: "Role of the login." }),
    password: SecretRef.optional().meta({ description: "Password of the role." }),
    sslmode: SslModeOption.optional().meta({
      description:
        "verify-full (default, except for a socket): TLS with a verified certificate and name; require and verify-ca mean the same here. disable: no encryption.",
    }),
    allow_plain: z.boolean().default(false).meta({
      description:
        "Allow `sslmode: disable` to another machine. Others in the network can then read password and data.",
    }),
    ca_file: CaFileOption,
    schema: SchemaName.default("plenum").meta({ description: "Schema of the tables." }),
    create: z.boolean().default(true).meta({
      description: "Create missing schemas and tables, and columns of later versions.",
    }),
    timescale: z.boolean().default(false).meta({
      description: "Create the growing tables as TimescaleDB hypertables; the database must have the extension.",
    }),
    timeout: durationBetween("1s", "10m").prefault("25s").meta({
      description: "Maximum time of one statement; at most 10m, and below the sink's deadline.",
    }),
    connect_timeout: durationBetween("100ms", "2m")
      .prefault("10s")
      .meta({ description: "Maximum time of a login; at most 2m." }),
  })
  .superRefine((config, context) => {
    const addIssue = (path: string, message: string) => context.addIssue({ code: "custom", path: [path], message });
    const connectionOptionNames = ["host", "port", "database", "user", "sslmode"] as const;
    if (config.url !== undefined) {
      for (const option of connectionOptionNames)
        if (config[option] !== undefined) addIssue(option, "It belongs into url, which is given too.");
    } else {
      for (const option of ["host", "database", "user"] as const)
        if (config[option] === undefined) addIssue(option, `Give url, or ${option}.`);
      if (config.host === undefined) return;
    }
    if (!config.allow_plain && !isSecuredAddress(parsePostgresAddress(config)))
      addIssue(
        config.url === undefined ? "sslmode" : "url",
        "Without TLS everybody on the way can read password and data; set allow_plain: true to go on anyway.",
      );
  })
  .meta({ description: "Tables in PostgreSQL or TimescaleDB." });
export type PostgresConfig = z.infer<typeof PostgresConfig>;

export function buildTagValueQuery({ schema }: PostgresConfig, event: Event): string | null {
  const { type, data } = event as AnyEvent;
  if (type !== "tag-value") return null;
  return `select * from ${schema}.value where tag_id = ${quoteSqlText(data.tag.id)} order by time desc limit 100;`;
}
