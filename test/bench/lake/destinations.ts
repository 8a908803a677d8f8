import { mkdirSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { FileConfig } from "#connectors/file/config.ts";
import { createFileSink } from "#connectors/file/sink.ts";
import { InfluxConfig } from "#connectors/influxdb/config.ts";
import { createInfluxSink } from "#connectors/influxdb/sink.ts";
import { ParquetConfig } from "#connectors/parquet/config.ts";
import { createParquetSink } from "#connectors/parquet/sink.ts";
import { PostgresConfig } from "#connectors/postgres/config.ts";
import { createPostgresSink } from "#connectors/postgres/sink.ts";
import { type ConnectorContext, EVENTS_ACCEPTED, type Sink } from "#src/core/connector.ts";
import { createDatabase, optionsFor } from "../../connectors/postgres/test-database.ts";
import type { Counts } from "../harness.ts";

export const DESTINATIONS = ["idle", "file", "file, gzip", "influxdb", "parquet", "postgres"] as const;
export type Destination = (typeof DESTINATIONS)[number];

interface OpenDestination {
  readonly sink: Sink;
  bytes(): Promise<number>;
}

export async function openDestination(
  name: Destination,
  folder: string,
  port: number,
  context: ConnectorContext,
): Promise<OpenDestination> {
  mkdirSync(folder, { recursive: true });
  const inFolder = async () => countFolderBytes(folder);
  switch (name) {
    case "idle":
      return {
        sink: { open: async () => {}, write: async () => EVENTS_ACCEPTED, close: async () => {} },
        bytes: async () => 0,
      };
    case "file":
    case "file, gzip": {
      const gzip = name !== "file";
      const config = FileConfig.parse({ folder, gzip, keep_files: 100_000, max_total_mb: 100_000 });
      return { sink: createFileSink(config, context), bytes: inFolder };
    }
    case "influxdb": {
      const url = `http://127.0.0.1:${port}`;
      const config = InfluxConfig.parse({ url, bucket: "lake" });
      const bytes = async () => ((await (await fetch(`${url}/counts`)).json()) as Counts).bytes;
      return { sink: createInfluxSink(config, context), bytes };
    }
    case "parquet":
      return { sink: createParquetSink(ParquetConfig.parse({ folder }), context), bytes: inFolder };
    case "postgres": {
      const database = await createDatabase({ port });
      const config = PostgresConfig.parse(optionsFor({ port }, database.name));
      const sum =
        "select sum(pg_total_relation_size(oid))::text from pg_class where relkind = 'r' and relnamespace = 'plenum'::regnamespace";
      const bytes = async () => Number((await database.query(sum))[0]?.[0] ?? 0);
      return { sink: createPostgresSink(config, context), bytes };
    }
  }
}

function countFolderBytes(folder: string): number {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((each) => each.isFile());
  return files.reduce((sum, { name, parentPath }) => sum + statSync(join(parentPath, name)).size, 0);
}
