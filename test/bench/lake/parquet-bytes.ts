import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parquetMetadata } from "hyparquet";

/** Bytes that one column has, compressed, in all Parquet files below a folder. */
export function columnBytes(folder: string, column: string): number {
  const files = globSync("**/*.parquet", { cwd: folder });
  return files.reduce((sum, file) => {
    const { row_groups } = parquetMetadata(Uint8Array.from(readFileSync(join(folder, file))).buffer);
    const chunks = row_groups.flatMap(({ columns }) => columns.map(({ meta_data }) => meta_data));
    const own = chunks.filter((chunk) => chunk?.path_in_schema[0] === column);
    return sum + own.reduce((bytes, chunk) => bytes + Number(chunk?.total_compressed_size ?? 0), 0);
  }, 0);
}
