import type { ConnectorDefinition } from "../../src/core/connector.ts";
import type { AnyEvent } from "../../src/core/model/event.ts";
import { PostgresConfig } from "./config.ts";

export const postgres = {
  name: "postgres",
  summary: "Tables in PostgreSQL or TimescaleDB.",
  Config: PostgresConfig,
  whereIs({ schema }, event) {
    const { type, data } = event as AnyEvent;
    if (type !== "tag-value") return null;
    const id = data.tag.id.replaceAll("'", "''");
    return `select * from ${schema}.value where tag_id = '${id}' order by time desc limit 100;`;
  },
  sink: async (config, context) => (await import("./sink.ts")).createPostgresSink(config, context),
} satisfies ConnectorDefinition<PostgresConfig>;
