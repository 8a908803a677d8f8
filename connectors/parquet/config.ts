import { resolve } from "node:path";
import { z } from "zod";
import type { StoreSharedBySinks } from "../../src/core/connector.ts";
import { resolveFolderLinks } from "../../src/core/errors/folder-access.ts";
import { isLoopbackHost } from "../../src/core/http/loopback.ts";
import { CaFileOption } from "../../src/core/http/outbound/config.ts";
import { ProxyConfig } from "../../src/core/http/proxy.ts";
import type { AnyEvent, Event } from "../../src/core/model/event.ts";
import { quoteSqlText } from "../../src/core/postgres/sql-quoting.ts";
import { SecretRef, urlHasCredentials } from "../../src/core/runtime/secret.ts";
import { durationBetween } from "../../src/core/values/duration.ts";

const S3EndpointUrl = z
  .url({ protocol: /^https?$/, error: "Write a whole address, such as https://s3.example.com." })
  .refine((text) => !urlHasCredentials(text), {
    error: "Leave the keys out of the address; use access_key_id and secret_access_key.",
  })
  .refine((text) => !/[?#]/.test(text), { error: "The address ends with its server: no `?` and no `#`." })
  .refine((text) => !URL.canParse(text) || /^\/?$/.test(new URL(text).pathname), {
    error: "Leave the path out of the address; the bucket and the prefix have options of their own.",
  });

export const S3Config = z
  .strictObject({
    endpoint: S3EndpointUrl.optional().meta({
      description: "Address of the storage; Amazon's in the region by default.",
    }),
    region: z
      .string()
      .regex(/^[a-z0-9-]{1,64}$/, "Write a region such as eu-north-1.")
      .default("us-east-1")
      .meta({ description: "Region for signing requests; many storages ignore it." }),
    bucket: z
      .string()
      .regex(/^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/, "A bucket has 3 to 63 of a-z, 0-9, `.` and `-`.")
      .meta({ description: "Name of an existing bucket." }),
    prefix: z.string().max(512).default("").meta({
      description: "Prefix of every key, such as `plenum/lake`; use a separate one for each sink.",
    }),
    path_style: z.boolean().default(false).meta({
      description: "True if the bucket is in the path instead of the host name, as with MinIO and Ceph.",
    }),
    access_key_id: SecretRef.meta({ description: "Id of the access key." }),
    secret_access_key: SecretRef.meta({ description: "Secret access key." }),
    session_token: SecretRef.optional().meta({ description: "Session token of temporary keys." }),
    allow_plain_http: z.boolean().default(false).meta({
      description: "Allow http:// to another machine. Others in the network can then read the data.",
    }),
    timeout: durationBetween("1s", "2m").prefault("20s").meta({
      description: "Maximum time of one request; at most 2m. Above 30s raise the sink's deadline too.",
    }),
    proxy: ProxyConfig.optional(),
    ca_file: CaFileOption,
  })
  .superRefine((config, context) => {
    const addIssue = (path: string, message: string) => context.addIssue({ code: "custom", path: [path], message });
    const url = config.endpoint === undefined ? null : URL.parse(config.endpoint);
    const sendsToOtherMachine = url !== null && (config.proxy !== undefined || !isLoopbackHost(url.hostname));
    if (url?.protocol === "http:" && sendsToOtherMachine && !config.allow_plain_http) {
      addIssue("endpoint", "Use https://; set allow_plain_http: true to send everything readable anyway.");
    }
    if (url?.protocol === "https:" && !config.path_style && config.bucket.includes("."))
      addIssue("bucket", "A name with dots fits no certificate before the host; set path_style: true.");
  })
  .meta({ description: "S3-compatible storage." });
export type S3Config = z.infer<typeof S3Config>;

export const ParquetConfig = z
  .strictObject({
    folder: z
      .string()
      .min(1)
      .refine((text) => !text.includes("\0"), "A folder name cannot hold a NUL character.")
      .optional()
      .meta({ description: "Folder of the lake. Created if missing. Use a separate folder for each sink." }),
    s3: S3Config.optional(),
    table_format: z.enum(["plain", "delta"]).default("plain").meta({
      description:
        "plain: a table is all Parquet files in its folder. delta: each folder is a Delta Lake table with a transaction log.",
    }),
    max_rows: z.int().min(1).max(1_000_000).default(100_000).meta({
      description: "Write files when this many rows are waiting. A hundred thousand rows use about 30 MB of memory.",
    }),
    max_age: durationBetween("1s", "24h").prefault("15m").meta({
      description: "Write files when the oldest waiting row has this age. Waiting rows are safe in the log of events.",
    }),
    mode: z.enum(["0600", "0640", "0644"]).default("0640").meta({
      description: "File mode in a folder: for the owner, also the group, or everybody.",
    }),
  })
  .refine((config) => (config.folder === undefined) !== (config.s3 === undefined), {
    path: ["folder"],
    message: "Say where the lake is: folder, or s3, and not both.",
  })
  .meta({ description: "Tables as Parquet files in a folder or in S3-compatible storage." });
export type ParquetConfig = z.infer<typeof ParquetConfig>;

export function resolveS3Endpoint({ endpoint, region }: Pick<S3Config, "endpoint" | "region">): string {
  return endpoint ?? `https://s3.${region}.amazonaws.com`;
}

export const normalizeKeyPrefix = ({ prefix }: Pick<S3Config, "prefix">): string =>
  prefix === "" ? "" : `${prefix.replace(/^\/+|\/+$/g, "")}/`;

/** Returns the option by which two sinks share tables, or null. Sinks with the same events would add each row twice. */
export function findSharedTables(firstConfig: ParquetConfig, otherConfig: ParquetConfig): StoreSharedBySinks | null {
  const tableLocation = describeLakeLocation(otherConfig);
  if (tableLocation === null || describeLakeLocation(firstConfig) !== tableLocation) return null;
  const isLakeInFolder = otherConfig.folder !== undefined;
  const areBothDeltaTables = firstConfig.table_format === "delta" && otherConfig.table_format === "delta";
  return {
    path: isLakeInFolder ? ["folder"] : ["s3", "prefix"],
    consequence: `write the same tables: give one of them another ${isLakeInFolder ? "folder" : "s3.prefix"}`,
    ...(areBothDeltaTables ? { allowsDistinctFilters: true } : {}),
  };
}

function describeLakeLocation({ folder, s3 }: ParquetConfig): string | null {
  if (s3 === undefined) return folder === undefined ? null : resolveFolderLinks(folder);
  const url = URL.parse(resolveS3Endpoint(s3));
  return url && `${url.origin} ${s3.bucket} ${normalizeKeyPrefix(s3)}`;
}

export function buildParquetQuery({ folder, s3, table_format }: ParquetConfig, event: Event): string | null {
  const { type, data } = event as AnyEvent;
  if (type !== "tag-value") return null;
  const lakePathParts = folder === undefined ? ["s3:/", s3?.bucket, s3?.prefix] : [resolve(folder)];
  const path = [...lakePathParts.filter((part) => part !== ""), "value"].join("/").replaceAll(/([^:/])\/+/g, "$1/");
  const sqlTableExpression =
    table_format === "delta"
      ? `delta_scan(${quoteSqlText(path)})`
      : `read_parquet(${quoteSqlText(`${path}/**/*.parquet`)}, hive_partitioning = true, union_by_name = true)`;
  return `select * from ${sqlTableExpression} where tag_id = ${quoteSqlText(data.tag.id)} order by time desc limit 100;`;
}
