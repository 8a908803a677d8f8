import { resolve } from "node:path";
import type { ConnectorDefinition, SharedStore } from "../../src/core/connector.ts";
import { realFolder } from "../../src/core/errors/folder-problem.ts";
import type { AnyEvent, Event } from "../../src/core/model/event.ts";
import { endpointOf, ParquetConfig, prefixOf } from "./config.ts";

export const parquet = {
  name: "parquet",
  summary: "Tables as Parquet files in a folder or in S3-compatible storage.",
  Config: ParquetConfig,
  whereIs: questionFor,
  shared: sameTables,
  sink: async (config, context) => (await import("./sink.ts")).createParquetSink(config, context),
} satisfies ConnectorDefinition<ParquetConfig>;

/**
 * Two sinks with the same tables conflict. Several writers may share a Delta table, but two sinks that get the
 * same events would add each row twice.
 */
function sameTables(one: ParquetConfig, other: ParquetConfig): SharedStore | null {
  const place = placeOf(other);
  if (place === null || placeOf(one) !== place) return null;
  const isInFolder = other.folder !== undefined;
  const isDelta = one.table_format === "delta" && other.table_format === "delta";
  return {
    path: isInFolder ? ["folder"] : ["s3", "prefix"],
    would: `write the same tables: give one of them another ${isInFolder ? "folder" : "s3.prefix"}`,
    ...(isDelta ? { bearsOthers: true } : {}),
  };
}

/** Returns null for a missing location or an invalid address, which the schema reports. */
function placeOf({ folder, s3 }: ParquetConfig): string | null {
  if (s3 === undefined) return folder === undefined ? null : realFolder(folder);
  const end = URL.parse(endpointOf(s3));
  return end && `${end.origin} ${s3.bucket} ${prefixOf(s3)}`;
}

/** Returns a DuckDB query, which reads folders, S3 and Delta tables alike. */
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
