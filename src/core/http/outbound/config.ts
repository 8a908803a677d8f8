import { z } from "zod";
import { SecretRef, urlHasCredentials } from "../../runtime/secret.ts";
import { durationBetween } from "../../values/duration.ts";
import { ProxyConfig } from "../proxy.ts";
import { parseIpNetwork } from "./ip-network-ranges.ts";

/** Headers that a configuration may not set, because they control the connection or describe the body. */
const RESERVED_HEADER =
  /^(content-.*|host|connection|keep-alive|transfer-encoding|te|trailer|upgrade|expect|proxy-.*)$/i;

export const ReceiverUrl = z
  .url({ protocol: /^https?$/, error: "Write a whole address, such as https://example.com/hook." })
  .refine((text) => !urlHasCredentials(text), {
    error: "Leave user name and password out of the address; use headers with a secret reference.",
  });

const HttpHeaderName = z
  .string()
  .regex(/^[A-Za-z0-9-]{1,64}$/, "A header name consists of letters, digits and `-`.")
  .refine((name) => !RESERVED_HEADER.test(name), "This header is set by Plenum and cannot be changed.");

const HttpHeaderValue = z.string().regex(/^[\x20-\x7e]*$/, "A header value is one line of plain ASCII characters.");
const CREDENTIAL_HEADER =
  /(^|-)(authorization|auth|cookie|(api|access|subscription|functions)-?key|token|secret|password)$/i;

/** A secret in plain text would not be masked in logs, because it is not registered. */
function isPlainTextSecret(name: string, value: unknown): boolean {
  return typeof value === "string" && value !== "" && (CREDENTIAL_HEADER.test(name) || /^(basic|bearer) /i.test(value));
}

export const RequestHeaders = z
  .record(HttpHeaderName, z.union([HttpHeaderValue, SecretRef]))
  .superRefine((headers, context) => {
    for (const [name, value] of Object.entries(headers)) {
      if (!isPlainTextSecret(name, value)) continue;
      context.addIssue({
        code: "custom",
        path: [name],
        message: "A secret never stands here: say where it is, {file: path} or {env: NAME}.",
      });
    }
  })
  .default({})
  .meta({ description: "Additional request headers; a value can be a secret reference." });

const IpNetworkText = z
  .string()
  .refine((text) => parseIpNetwork(text) !== null, "Write a network as 10.1.0.0/16, fd00::/8 or 192.0.2.7/32.");

export const CaFileOption = z.string().min(1).optional().meta({
  description: "PEM file of a private certificate authority, instead of the public ones.",
});

export const OUTBOUND_HTTP_OPTIONS = {
  timeout: durationBetween("100ms", "30s")
    .prefault("15s")
    .meta({ description: "Maximum time of one request with its response; at most 30s." }),
  allow_networks: z.array(IpNetworkText).max(100).default([]).meta({
    description: "Networks (CIDR) that are allowed although they are not public; http is allowed only there.",
  }),
  proxy: ProxyConfig.optional(),
  ca_file: CaFileOption,
} as const;
export type OutboundHttpConfig = z.infer<z.ZodObject<typeof OUTBOUND_HTTP_OPTIONS>>;
