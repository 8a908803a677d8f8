import type { ConnectorDefinition } from "../../src/core/connector.ts";
import { buildParquetQuery, findSharedTables, ParquetConfig } from "./config.ts";

export const parquet = {
  name: "parquet",
  summary: "Tables as Parquet files in a folder or in S3-compatible storage.",
  Config: ParquetConfig,
  locateEvent: buildParquetQuery,
  findSharedStore: findSharedTables,
  sink: async (config, context) => (await import("./sink.ts")).createParquetSink(config, context),
} satisfies ConnectorDefinition<ParquetConfig>;
