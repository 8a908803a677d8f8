import type { ConnectorDefinition } from "../../src/core/connector.ts";
import { ParquetConfig, parquetQuery, sharedTables } from "./config.ts";

export const parquet = {
  name: "parquet",
  summary: "Tables as Parquet files in a folder or in S3-compatible storage.",
  Config: ParquetConfig,
  whereIs: parquetQuery,
  shared: sharedTables,
  sink: async (config, context) => (await import("./sink.ts")).createParquetSink(config, context),
} satisfies ConnectorDefinition<ParquetConfig>;
