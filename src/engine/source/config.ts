import { z } from "zod";
import { isLoopbackHost } from "../../core/http/loopback.ts";
import { ProxyConfig } from "../../core/http/proxy.ts";
import { SecretRef } from "../../core/runtime/secret.ts";
import { byteSizeSchema } from "../../core/values/byte-size.ts";
import { checkedText } from "../../core/values/checked-text.ts";
import { describeTimeZoneProblem } from "../../core/values/time-zone.ts";
import { TAGS_PER_REQUEST } from "./source.ts";

const REQUESTS_PER_MINUTE = 20;

function findBaseUrlProblem(text: string): string | null {
  const url = URL.parse(text);
  if (url === null || !/^https?:$/.test(url.protocol)) return explainBadBaseUrl(text);
  if (url.username !== "" || url.password !== "")
    return "Take the user name and password out of the address; the token goes under `token`.";
  if (url.search !== "" || url.hash !== "") return "The address must end with its path: no `?` and no `#`.";
  if (!/\/api\/v1\/[^/]/.test(url.pathname)) return null;
  return `Write the address of the service, without an endpoint: ${text.replace(/\/api\/v1\/.*$/, "")}.`;
}

function explainBadBaseUrl(text: string): string {
  const looksLikeHostName = /^[a-z0-9][a-z0-9.-]*\.[a-z]{2,}(:\d+)?(\/[^@?#]*)?$/i.test(text);
  return looksLikeHostName
    ? `Write the address with its scheme: https://${text}.`
    : "Write the address of the service as https://host or https://host/path.";
}

function removeApiPathFromUrl(address: string): string {
  return address
    .replace(/\/+$/, "")
    .replace(/\/api\/v1$/, "")
    .replace(/\/+$/, "");
}

export const TimeZone = checkedText(describeTimeZoneProblem);

const numberOption = (min: number, max: number, defaultValue: number, description: string) =>
  z.int().min(min).max(max).default(defaultValue).meta({ description });

const RequestDeadlinesConfig = z.strictObject({
  connect_ms: numberOption(100, 60_000, 5_000, "Maximum time to connect."),
  headers_ms: numberOption(
    100,
    300_000,
    30_000,
    "Maximum time until the first line of a response; slow gateways need time.",
  ),
  total_ms: numberOption(100, 600_000, 60_000, "Maximum time of a request, from the connection to the last byte."),
});

const ListPageSizeConfig = z.strictObject({
  alarms: numberOption(1, 500, 500, "Alarms per page; the interface allows 1 to 500."),
  others: numberOption(
    1,
    1000,
    100,
    "Records per page of the other lists. The interface only states the default, 100.",
  ),
});

const RequestQuotaConfig = z.strictObject({
  requests_per_minute: numberOption(
    1,
    REQUESTS_PER_MINUTE,
    REQUESTS_PER_MINUTE,
    `Requests per minute to read, write and history of tags, each with up to ${TAGS_PER_REQUEST} tags. The interface allows ${REQUESTS_PER_MINUTE}; use less if other programs use the same user.`,
  ),
  separate_endpoints: z.boolean().default(false).meta({
    description:
      "True if the service counts read, write and history separately. The interface does not say; false is always safe.",
  }),
  reserve_for_writes: numberOption(
    0,
    10,
    0,
    "Requests per minute that only writes may use, so that a command never waits for a poll.",
  ),
  polite: z.number().min(0.05).max(1).default(1).meta({
    description: "Maximum share of the requests; 0.8 leaves a fifth of the quota to other programs of the same user.",
  }),
  list_requests_per_minute: numberOption(
    1,
    600,
    30,
    "Requests per minute to lists and token information. The interface states no limit; a rejection lowers it automatically.",
  ),
});

export const SourceConfig = z
  .strictObject({
    base_url: checkedText(findBaseUrlProblem)
      .transform(removeApiPathFromUrl)
      .meta({
        description: "Address of the service; the path /api/v1 is optional.",
        examples: ["https://monitoring.example.com"],
      }),
    allow_plain_http: z.boolean().default(false).meta({
      description:
        "Allow http:// to another machine. Others in the network can then read the token; use it in test networks only.",
    }),
    token: SecretRef.meta({
      description: "The access token: {file: path}, readable by its owner only (chmod 600), or {env: NAME}.",
    }),
    time_zone: TimeZone.meta({
      description: "Time zone of the buildings, for days, weeks and months of history.",
      examples: ["Europe/Stockholm"],
    }),
    ca_file: z.string().min(1).optional().meta({
      description: "PEM file of a private certificate authority, trusted in addition to the public ones.",
    }),
    proxy: ProxyConfig.optional(),
    deadlines: RequestDeadlinesConfig.prefault({}).meta({ description: "Time limits of a request." }),
    max_body_bytes: byteSizeSchema({ min: 65_536, max: 256 * 1024 * 1024 })
      .prefault("16MiB")
      .meta({ description: "Maximum size of a response. Also limits a history request: 64 bytes per value." }),
    page_size: ListPageSizeConfig.prefault({}).meta({ description: "Records per page of a list." }),
    quota: RequestQuotaConfig.prefault({}).meta({ description: "Limits for the requests to the service." }),
  })
  .superRefine((config, context) => {
    const url = URL.parse(config.base_url);
    if (url?.protocol !== "http:" || config.allow_plain_http) return;
    // Through a proxy, requests leave this machine even for a loopback address.
    if (config.proxy === undefined && isLoopbackHost(url.hostname)) return;
    context.addIssue({
      code: "custom",
      path: ["base_url"],
      message: "Use https://, because the token would travel readable. For a test network set allow_plain_http: true.",
    });
  });
export type SourceConfig = z.infer<typeof SourceConfig>;
