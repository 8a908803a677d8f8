import { resolve } from "node:path";
import { z } from "zod";
import {
  isSecuredAddress,
  parsePostgresAddress,
  postgresUrl,
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
    url: postgresUrl("several").meta({
      description:
        "Address with user and database, such as postgresql://plenum@db.example.com/plenum. Several servers stand with commas between them (…@a:5432,b:5432/plenum); whichever takes writes is used.",
    }),
    password: SecretRef.optional().meta({ description: "Password of the user." }),
    ca_file: z
      .string()
      .min(1)
      .optional()
      .meta({ description: "PEM file of a private certificate authority, in place of the public ones." }),
    allow_plain: z.boolean().default(false).meta({
      description: "Allow `sslmode=disable` to another machine, so that password and data can be read on the way.",
    }),
    schema: SchemaName.default("plenum_state").meta({
      description:
        "Schema of the state's tables, of which nothing else may be in it. Members with the same schema are one fleet. Created where the user may.",
    }),
    connections: z.int().min(2).max(100).default(4).meta({
      description:
        "Connections that a member has for the states of its sources; four more are for leases, the kill switch and listening. Add one for every 50 sources or so.",
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
      "Keep the state in PostgreSQL (15 or newer) and share the sources out among all members that are started with the same configuration. The folder then holds only what belongs to this machine.",
  });

export type PostgresState = z.infer<typeof PostgresState>;

export const StateConfig = z
  .strictObject({
    folder: z.string().min(1).default("state").meta({
      description:
        "Folder of the state, on a local disk. Created with access for its owner only; whoever owns it operates the worker, so one that others may write, or that belongs to another user, is refused.",
    }),
    postgres: PostgresState.optional(),
    max_bytes: byteSizeSchema({ min: MEBIBYTE }).prefault("1GiB").meta({
      description:
        "Bytes that the log of events may take; with `postgres` that of each source by itself. Beyond, telemetry goes before alarms; a loss leaves a gap record.",
    }),
    max_age: Duration.prefault("7d").meta({
      description:
        "How long an event waits for a sink that does not accept it. Counted is time in which the worker runs and its clock is not in doubt.",
    }),
    replay_window: Duration.refine((ms) => ms >= MIN_REPLAY_WINDOW_MS, {
      message: "The replay window has to be 15m or longer: a sink may lose what it has just acknowledged.",
    })
      .prefault("24h")
      .meta({
        description:
          "How long an event is kept after every sink has it, so that it can be sent again. Counted as for max_age.",
      }),
    plots: z.boolean().default(true).meta({
      description:
        "Keep series for the plots of the status page: of each tag a day as it was read and a month by the hour, some 14 kB a tag. False clears them away.",
    }),
  })
  .meta({ description: "The state: what is remembered over restarts." });

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
