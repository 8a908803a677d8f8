import { resolve } from "node:path";
import { z } from "zod";
import { CaFileOption } from "../../core/http/outbound/config.ts";
import {
  isSecuredAddress,
  parsePostgresAddress,
  postgresUrlSchema,
  SchemaName,
  serverUrls,
} from "../../core/postgres/server-address.ts";
import { SecretRef } from "../../core/runtime/secret.ts";
import { byteSizeSchema } from "../../core/values/byte-size.ts";
import { Duration } from "../../core/values/duration.ts";

const MIN_REPLAY_WINDOW_MS = 15 * 60_000;
const MEBIBYTE = 1024 ** 2;

export const PostgresState = z
  .strictObject({
    url: postgresUrlSchema("several").meta({
      description:
        "Address with user and database, such as postgresql://plenum@db.example.com/plenum. Separate several servers by commas (…@a:5432,b:5432/plenum); the one that accepts writes is used.",
    }),
    password: SecretRef.optional().meta({ description: "Password of the user." }),
    ca_file: CaFileOption,
    allow_plain: z.boolean().default(false).meta({
      description: "Allow `sslmode=disable` to another machine. Others in the network can then read password and data.",
    }),
    schema: SchemaName.default("plenum_state").meta({
      description:
        "Schema for the tables of the state, and nothing else. Members with the same schema are one fleet. Created if the user is allowed to.",
    }),
    connections: z.int().min(2).max(100).default(4).meta({
      description:
        "Connections of a member for the states of its sources; it has four more for leases, the kill switch and notifications. Add about one per 50 sources.",
    }),
  })
  .superRefine(({ url, allow_plain }, context) => {
    if (allow_plain || serverUrls(url).every((each) => isSecuredAddress(parsePostgresAddress({ url: each })))) return;
    context.addIssue({
      code: "custom",
      path: ["url"],
      message: "Without TLS everybody on the way can read password and data; set allow_plain: true to go on anyway.",
    });
  })
  .meta({
    description:
      "Keep the state in PostgreSQL (15 or newer), and distribute the sources to all members with the same configuration. The folder then holds only files of this machine.",
  });

export type PostgresState = z.infer<typeof PostgresState>;

export const StateConfig = z
  .strictObject({
    folder: z.string().min(1).default("state").meta({
      description:
        "Folder of the state, on a local disk. Plenum creates it with access for its owner only, who can operate the worker. It refuses a folder that others may write to or that belongs to another user.",
    }),
    postgres: PostgresState.optional(),
    max_bytes: byteSizeSchema({ min: MEBIBYTE }).prefault("1GiB").meta({
      description:
        "Maximum size of the log of events; with `postgres`, per source. Above it, values are dropped before alarms, and a gap record is emitted.",
    }),
    max_age: Duration.prefault("7d").meta({
      description:
        "How long an event waits for a sink that does not accept it. Only time in which the worker runs with a verified clock counts.",
    }),
    replay_window: Duration.refine((ms) => ms >= MIN_REPLAY_WINDOW_MS, {
      message: "The replay window has to be 15m or longer: a sink may lose what it has just acknowledged.",
    })
      .prefault("24h")
      .meta({ description: "How long a delivered event is kept, so that it can be sent again. Counted like max_age." }),
    plots: z.boolean().default(true).meta({
      description:
        "Store time series for the plots of the status page: per tag one day of readings and one month of hourly values, about 14 kB a tag. False deletes them.",
    }),
  })
  .meta({ description: "State that survives restarts." });

export type StateConfig = z.infer<typeof StateConfig>;

export function withAbsoluteStatePaths(state: StateConfig): StateConfig {
  const { folder, postgres } = state;
  if (postgres === undefined) return { ...state, folder: resolve(folder) };
  const { ca_file: authority, password } = postgres;
  return {
    ...state,
    folder: resolve(folder),
    postgres: {
      ...postgres,
      ...(authority === undefined ? {} : { ca_file: resolve(authority) }),
      ...(password !== undefined && "file" in password ? { password: { file: resolve(password.file) } } : {}),
    },
  };
}
