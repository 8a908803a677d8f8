import { resolve } from "node:path";
import type { ConnectorDefinition } from "../../src/connector.ts";
import type { AnyEvent, Event } from "../../src/event.ts";
import { ParquetConfig } from "./config.ts";

export const parquet = {
  name: "parquet",
  summary: "Tables as Parquet files in a folder or in S3-compatible storage.",
  Config: ParquetConfig,
  whereIs: questionFor,
  sink: async (config, context) => (await import("./sink.ts")).createParquetSink(config, context),
} satisfies ConnectorDefinition<ParquetConfig>;

/** In the words of DuckDB, which reads folders, S3 and Delta tables alike. */
function questionFor({ folder, s3, table_format }: ParquetConfig, event: Event): string | null {
  const { type, data } = event as AnyEvent;
  if (type !== "tag-value") return null;
  const lake = folder === undefined ? ["s3:/", s3?.bucket, s3?.prefix] : [resolve(folder)];
  const place = [...lake.filter((part) => part !== ""), "value"].join("/").replaceAll(/([^:/])\/+/g, "$1/");
  const table =
    table_format === "delta"
      ? `delta_scan(${quoted(place)})`
      : `read_parquet(${quoted(`${place}/**/*.parquet`)}, hive_partitioning = true, union_by_name = true)`;
  return `select * from ${table} where tag_id = ${quoted(data.tag.id)} order by time desc limit 100;`;
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}
