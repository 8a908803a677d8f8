import { z } from "zod";
import { isLoopbackHost } from "../../core/http/loopback.ts";
import { ProxyConfig } from "../../core/http/proxy.ts";
import { SecretRef } from "../../core/runtime/secret.ts";
import { byteSizeSchema } from "../../core/values/byte-size.ts";
import { describeTimeZoneProblem } from "../../core/values/time-zone.ts";
import { TAGS_PER_REQUEST } from "./source.ts";

const REQUESTS_PER_MINUTE = 20;

const ServiceBaseUrl = z.string().superRefine((text, context) => {
  const addUrlError = (message: string) => context.addIssue({ code: "custom", message });
  const url = URL.parse(text);
  if (url === null || !/^https?:$/.test(url.protocol)) {
    addUrlError(explainBadBaseUrl(text));
  } else if (url.username !== "" || url.password !== "") {
    addUrlError("Take the user name and password out of the address; the token goes under `token`.");
  } else if (url.search !== "" || url.hash !== "") {
    addUrlError("The address must end with its path: no `?` and no `#`.");
  } else if (/\/api\/v1\/[^/]/.test(url.pathname)) {
    addUrlError(`Write the address of the service, without an endpoint: ${text.replace(/\/api\/v1\/.*$/, "")}.`);
  }
});

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

export const TimeZone = z.string().superRefine((zone, context) => {
  const message = describeTimeZoneProblem(zone);
  if (message !== null) context.addIssue({ code: "custom", message });
});

const numberOption = (min: number, max: number, standard: number, description: string) =>
  z.int().min(min).max(max).default(standard).meta({ description });

const RequestDeadlinesConfig = z.strictObject({
  connect_ms: numberOption(100, 60_000, 5_000, "Longest wait for a connection."),
  headers_ms: numberOption(
    100,
    300_000,
    30_000,
    "Longest wait for the first line of an answer; a slow gateway takes its time.",
  ),
  total_ms: numberOption(100, 600_000, 60_000, "Longest time of one request, from the connection to the last byte."),
});

const ListPageSizeConfig = z.strictObject({
  alarms: numberOption(1, 500, 500, "Alarms in one page; the interface allows 1 to 500."),
  others: numberOption(
    1,
    1000,
    100,
    "Records in one page of the other lists. The interface states only the default, 100.",
  ),
});

const RequestQuotaConfig = z.strictObject({
  requests_per_minute: numberOption(
    1,
    REQUESTS_PER_MINUTE,
    REQUESTS_PER_MINUTE,
    `Requests per minute to tags read, write and history, each with up to ${TAGS_PER_REQUEST} tags. The interface allows ${REQUESTS_PER_MINUTE}; less leaves room for other programs of the same user.`,
  ),
  separate_endpoints: z.boolean().default(false).meta({
    description:
      "True when read, write and history are known to be counted separately. The interface does not say; false cannot be refused.",
  }),
  reserve_for_writes: numberOption(
    0,
    10,
    0,
    "Requests per minute that only writes may use, so that a command never waits for a poll.",
  ),
  polite: z.number().min(0.05).max(1).default(1).meta({
    description:
      "Share of the requests that is used at most; 0.8 leaves a fifth of the quota to other programs of the same user.",
  }),
  list_requests_per_minute: numberOption(
    1,
    600,
    30,
    "Requests per minute to lists and the token information. The interface states no limit; a refusal lowers it by itself.",
  ),
});

export const SourceConfig = z
  .strictObject({
    base_url: ServiceBaseUrl.transform(removeApiPathFromUrl).meta({
      description: "Address of the service; /api/v1 behind it may be left out.",
      examples: ["https://monitoring.example.com"],
    }),
    allow_plain_http: z.boolean().default(false).meta({
      description: "Allow http:// to another machine. The token then travels readable; for test networks only.",
    }),
    token: SecretRef.meta({
      description: "Where the access token is: {file: path}, readable by its owner only (chmod 600), or {env: NAME}.",
    }),
    time_zone: TimeZone.meta({
      description: "Time zone of the buildings, for days, weeks and months of history.",
      examples: ["Europe/Stockholm"],
    }),
    ca_file: z.string().min(1).optional().meta({
      description: "Certificates (PEM) of a private authority, trusted besides the public ones.",
    }),
    proxy: ProxyConfig.optional(),
    deadlines: RequestDeadlinesConfig.prefault({}).meta({ description: "How long a request may take." }),
    max_body_bytes: byteSizeSchema({ min: 65_536, max: 256 * 1024 * 1024 })
      .prefault("16MiB")
      .meta({
        description:
          "Largest answer that is read, and how much history is asked for at once at most: 64 bytes a value.",
      }),
    page_size: ListPageSizeConfig.prefault({}).meta({ description: "Records in one page of a list." }),
    quota: RequestQuotaConfig.prefault({}).meta({ description: "How many requests the service gets." }),
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
