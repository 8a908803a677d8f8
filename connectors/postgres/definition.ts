import type { ConnectorDefinition } from "../../src/connector.ts";
import { PostgresConfig } from "./config.ts";

export const postgres = {
  name: "postgres",
  summary: "Tables in PostgreSQL or TimescaleDB.",
  Config: PostgresConfig,
  sink: async (config, context) => (await import("./sink.ts")).createPostgresSink(config, context),
} satisfies ConnectorDefinition<PostgresConfig>;
