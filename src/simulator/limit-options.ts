import { z } from "zod";

export const LimitModel = z.enum([
  "first_hit_window",
  "calendar_window",
  "sliding_log",
  "sliding_log_counting_refusals",
  "token_bucket",
  "leaky_bucket",
  "weighted_counter",
]);
export type LimitModel = z.infer<typeof LimitModel>;

export const RateLimit = z.strictObject({
  model: LimitModel.default("first_hit_window").meta({
    description:
      "How requests are counted. first_hit_window is the habit of the Laravel framework: the window opens at the first request, refusals are not counted, retry_after is in whole seconds and may be one second short.",
  }),
  limit: z.int().min(1).default(20).meta({ description: "Requests per window. 20: interface, Limits." }),
  window_s: z.number().positive().default(60).meta({ description: "Length of the window in seconds." }),
  burst: z
    .int()
    .min(0)
    .default(1)
    .meta({ description: "leaky_bucket only: how many requests may arrive ahead of the steady rate." }),
});
export type RateLimit = z.infer<typeof RateLimit>;

export const RetryAfter = z.strictObject({
  places: z
    .array(z.enum(["errors_meta", "top_meta", "header"]))
    .default(["errors_meta"])
    .meta({
      description: "Where a 429 says how long to wait: errors[0].meta, the meta of the body, the header.",
    }),
  form: z
    .enum(["number", "string", "float", "negative", "zero", "absent"])
    .default("number")
    .meta({ description: "How the waiting time is written." }),
});
export type RetryAfter = z.infer<typeof RetryAfter>;

export const LimitOptions = z.strictObject({
  tag_endpoints: RateLimit.prefault({}).meta({
    description: "The limit of tags read, tags write and tags history.",
  }),
  scope: z
    .enum(["shared", "per_endpoint"])
    .default("shared")
    .meta({ description: "Whether the three tag endpoints share one counter. The interface does not say." }),
  key: z
    .enum(["user", "token"])
    .default("user")
    .meta({ description: "What is counted: the user or the token." }),
  list_endpoints: RateLimit.optional().meta({
    description:
      "A limit of all other authenticated endpoints together. Default: none; the interface states none.",
  }),
  headers: z
    .boolean()
    .default(true)
    .meta({ description: "Send x-ratelimit-limit and x-ratelimit-remaining." }),
  retry_after: RetryAfter.prefault({}).meta({ description: "The form of a refusal." }),
});
export type LimitOptions = z.infer<typeof LimitOptions>;
