import type { ConnectorDefinition } from "../../src/core/connector.ts";
import { buildTagValueQuery, PostgresConfig } from "./config.ts";

export const postgres = {
  name: "postgres",
  summary: "Tables in PostgreSQL or TimescaleDB.",
  Config: PostgresConfig,
  locateEvent: buildTagValueQuery,
  sink: async (config, context) => (await import("./sink.ts")).createPostgresSink(config, context),
} satisfies ConnectorDefinition<PostgresConfig>;
