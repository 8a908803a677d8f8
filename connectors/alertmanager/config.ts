import { z } from "zod";
import { OUTBOUND_HTTP_OPTIONS, ReceiverUrl, RequestHeaders } from "../../src/core/http/outbound/config.ts";
import { SecretRef } from "../../src/core/runtime/secret.ts";
import { durationBetween } from "../../src/core/values/duration.ts";
import { RECEIVER_OPTIONS } from "../shared/receiver/config.ts";

const RESERVED_ALERT_LABELS = ["alertname", "source", "site", "site_id", "priority", "kind", "key"] as const;

/** Label name that Alertmanager before 0.27 accepts. Names with `__` are reserved for Prometheus. */
const AlertLabelName = z
  .string()
  .regex(/^[a-zA-Z_][a-zA-Z0-9_]*$/, "A label name consists of letters, digits and `_`, no digit first.")
  .max(100)
  .refine((name) => !name.startsWith("__"), "Names that begin with __ are kept for Prometheus itself.")
  .refine(
    (name) => !RESERVED_ALERT_LABELS.some((reservedLabel) => reservedLabel === name),
    "Alerts have a label of this name already.",
  );

export const AlertmanagerConfig = z
  .strictObject({
    url: ReceiverUrl.refine((text) => !/\/api\/v[12]\b/.test(text), {
      error: "Leave /api/v2 out of the address; Plenum adds it.",
    }).meta({ description: "Address of Alertmanager, with its path prefix if it has one." }),
    user: z
      .string()
      .regex(/^[^:\p{Cc}]+$/u, "A user name has neither colons nor line breaks.")
      .optional()
      .meta({ description: "User name, with password." }),
    password: SecretRef.optional().meta({ description: "Password, with user." }),
    token: SecretRef.optional().meta({ description: "Bearer token, instead of user and password." }),
    headers: RequestHeaders,
    labels: z
      .record(AlertLabelName, z.string().min(1).max(200))
      .default({})
      .meta({ description: "Additional labels of every alert, such as the team, for routing." }),
    repeat: durationBetween("10s", "1h")
      .prefault("1m")
      .meta({ description: "How often active alerts are sent again, because Alertmanager forgets them at a restart." }),
    ...OUTBOUND_HTTP_OPTIONS,
    ...RECEIVER_OPTIONS,
  })
  .refine((config) => (config.user === undefined) === (config.password === undefined), {
    path: ["user"],
    message: "Give user and password together.",
  })
  .refine((config) => config.token === undefined || config.user === undefined, {
    path: ["token"],
    message: "Give a token, or user and password, not both.",
  })
  .refine((config) => !hasTwoAuthorizations(config), {
    path: ["headers"],
    message: "There is a token or a password already, so leave the header Authorization out.",
  })
  .refine((config) => config.proxy === undefined || URL.parse(config.url)?.protocol !== "http:", {
    path: ["url"],
    message: "Through a proxy use https://, because the proxy would read and could change every alert.",
  })
  .meta({ description: "Alarms as alerts of Prometheus Alertmanager." });
export type AlertmanagerConfig = z.infer<typeof AlertmanagerConfig>;

function hasTwoAuthorizations(config: { token?: unknown; user?: unknown; headers: object }): boolean {
  const hasCredentials = config.token !== undefined || config.user !== undefined;
  return hasCredentials && Object.keys(config.headers).some((name) => name.toLowerCase() === "authorization");
}
