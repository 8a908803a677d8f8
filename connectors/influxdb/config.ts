import { z } from "zod";
import { isLoopbackHost } from "../../src/core/http/loopback.ts";
import { CaFileOption } from "../../src/core/http/outbound/config.ts";
import { ProxyConfig } from "../../src/core/http/proxy.ts";
import { type AnyEvent, type Event, eventSourceName } from "../../src/core/model/event.ts";
import { SecretRef, urlHasCredentials } from "../../src/core/runtime/secret.ts";
import { durationBetween } from "../../src/core/values/duration.ts";

const InfluxServerUrl = z
  .url({ protocol: /^https?$/, error: "Write a whole address, such as http://influxdb:8086." })
  .refine((text) => !urlHasCredentials(text), {
    error: "Leave user name and password out of the address; use username and password, or token.",
  })
  // The endpoint path is appended to the URL, so the URL must not contain `?` or `#`.
  .refine((text) => !/[?#]/.test(text), {
    error:
      "The address must end with its path: no `?` and no `#`. Database, bucket and user have options of their own.",
  })
  .refine((text) => !/\/(api\/v2|write|query)\/?$/.test(text), {
    error: "Leave the path of the write endpoint out of the address; api says which one is used.",
  });

export const NAME_TAGS = ["name", "site_name", "system"] as const;

const InfluxObjectName = z.string().min(1).max(255);

const InfluxIdentifier = z.string().regex(/^[a-z][a-z0-9_]{0,63}$/, "Use lower-case letters, digits and `_`.");

const RESERVED_INFLUX_TAGS =
  "source site_id tag_id alias unit resolution time_zone type object object_id alarm_id trigger_id priority gateway_id outcome reason sink time";
const ConfiguredInfluxTag = InfluxIdentifier.refine(
  (name) => !RESERVED_INFLUX_TAGS.split(" ").includes(name),
  "Points have a tag of this name already.",
);

export const InfluxConfig = z
  .strictObject({
    url: InfluxServerUrl.meta({ description: "Address of the server without the path of an endpoint." }),
    api: z.enum(["v2", "v1"]).default("v2").meta({
      description: "v2 for InfluxDB 2, 3 and VictoriaMetrics; v1 for InfluxDB 1.x.",
    }),
    org: z.string().default("").meta({ description: "Organisation (v2); VictoriaMetrics needs none." }),
    bucket: InfluxObjectName.optional().meta({ description: "Bucket (v2); in InfluxDB 3 the database." }),
    database: InfluxObjectName.optional().meta({ description: "Database (v1)." }),
    retention_policy: InfluxObjectName.optional().meta({
      description: "Retention policy (v1); the server's default if omitted.",
    }),
    create_database: z.boolean().default(false).meta({ description: "Create the database when the sink opens (v1)." }),
    token: SecretRef.optional().meta({ description: "Token with write permission (InfluxDB 2 and 3)." }),
    username: z.string().min(1).optional().meta({ description: "User name (InfluxDB 1.x), with password." }),
    password: SecretRef.optional().meta({ description: "Password (InfluxDB 1.x), with username." }),
    measurement_prefix: InfluxIdentifier.optional().meta({ description: "Prefix of every measurement name." }),
    allow_plain_http: z.boolean().default(false).meta({
      description:
        "Allow a token or password over http:// to another machine, where others in the network can read it.",
    }),
    tags: z
      .record(ConfiguredInfluxTag, z.string().min(1).max(256))
      .default({})
      .meta({ description: "Additional tags of every point, such as the environment." }),
    tags_from: z.array(z.enum(NAME_TAGS)).default([]).meta({
      description:
        "Names to add as InfluxDB tags, next to the ids: of the tag (name), its site (site_name), the codes of its systems (system). A new name starts a new series.",
    }),
    gzip: z.boolean().default(true).meta({ description: "Compress requests above 16,384 bytes." }),
    timeout: durationBetween("100ms", "2m")
      .prefault("10s")
      .meta({ description: "Total time of one request; at most 2m." }),
    proxy: ProxyConfig.optional(),
    ca_file: CaFileOption,
  })
  .superRefine((config, context) => {
    const reportIssue = (path: string, message: string) => context.addIssue({ code: "custom", path: [path], message });
    const usesInfluxV2Api = config.api === "v2";
    const [requiredOption, optionOfOtherApi] = usesInfluxV2Api
      ? (["bucket", "database"] as const)
      : (["database", "bucket"] as const);
    if (config[requiredOption] === undefined)
      reportIssue(requiredOption, `With \`api: ${config.api}\` a ${requiredOption} is needed.`);
    if (config[optionOfOtherApi] !== undefined)
      reportIssue(optionOfOtherApi, `With \`api: ${config.api}\` it is called ${requiredOption}.`);
    for (const option of ["retention_policy", "create_database"] as const) {
      if (usesInfluxV2Api && config[option]) reportIssue(option, "This is for `api: v1` only.");
    }
    if ((config.username === undefined) !== (config.password === undefined))
      reportIssue("username", "Give username and password together.");
    for (const tagName of config.tags_from) {
      if (tagName in config.tags) reportIssue("tags", `With \`tags_from\` points have a tag ${tagName} already.`);
    }
    const url = URL.parse(config.url);
    // Through a proxy, even requests to a loopback address leave this machine.
    const sendsToOtherMachine = url !== null && (config.proxy !== undefined || !isLoopbackHost(url.hostname));
    const isUnencryptedHttp = url?.protocol === "http:" && sendsToOtherMachine;
    if (isUnencryptedHttp && (config.token ?? config.password) !== undefined && !config.allow_plain_http)
      reportIssue("url", "A token or password needs https://; set allow_plain_http: true to send it readable anyway.");
    if (config.token !== undefined && config.username !== undefined)
      reportIssue("token", "Give a token, or username and password, not both.");
  })
  .meta({ description: "Points in InfluxDB 1.x, 2, 3 or VictoriaMetrics." });
export type InfluxConfig = z.infer<typeof InfluxConfig>;

/** Returns a query for the last day of a tag; null for events other than `tag-value`. */
export function buildExampleInfluxQuery(
  { api, bucket = "", measurement_prefix: prefix = "" }: InfluxConfig,
  event: Event,
): string | null {
  const { type, data } = event as AnyEvent;
  if (type !== "tag-value") return null;
  const source = eventSourceName(event) ?? "";
  if (api === "v2") {
    const quoteFluxText = JSON.stringify;
    const fluxTagFilter = `r._measurement == ${quoteFluxText(`${prefix}tag_value`)} and r.source == ${quoteFluxText(source)} and r.tag_id == ${quoteFluxText(data.tag.id)}`;
    return `from(bucket: ${quoteFluxText(bucket)}) |> range(start: -24h) |> filter(fn: (r) => ${fluxTagFilter})`;
  }
  const quoteInfluxSqlText = (word: string) => `'${word.replaceAll(/[\\']/g, "\\$&")}'`;
  return `SELECT * FROM "${prefix}tag_value" WHERE "source" = ${quoteInfluxSqlText(source)} AND "tag_id" = ${quoteInfluxSqlText(data.tag.id)} AND time > now() - 24h`;
}
