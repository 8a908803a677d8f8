import { fileURLToPath } from "node:url";
import { z } from "zod";
import { FaultRule } from "./fault-plan.ts";

export const TOKEN_ABILITIES = [
  "read:alarms",
  "read:tags",
  "write:tags",
  "read:gateways",
  "read:hosts",
  "read:systems",
] as const;

export const SERVICE_TOKEN = "simulator-token";

/** Makes an option whose default is the first of the values. */
function choiceOption<const Values extends readonly [string, ...string[]]>(values: Values, description: string) {
  return z
    .enum(values)
    .default(() => values[0] as Values[number])
    .describe(description);
}

const textListOption = (initial: readonly string[], description: string) =>
  z
    .array(z.string())
    .default([...initial])
    .describe(description);

const nonNegativeNumberOption = z.number().min(0).default(0);

export const USER_PERMISSIONS = ["gateways", "hosts", "documents"] as const;

export const AccessTokenOptions = z.strictObject({
  token: z.string().min(1).describe("The text after `Bearer`."),
  name: z.string().default("Simulator").describe("The name of the token."),
  user_id: z.int().default(1).describe("Tokens of one user share a rate limit."),
  user_name: z.string().default("Test user").describe("The name of the user."),
  user_email: z.string().default("test.user@example.com").describe("The e-mail address of the user."),
  abilities: textListOption(TOKEN_ABILITIES, "Abilities of the token; `*` grants all."),
  permissions: z
    .array(z.enum(USER_PERMISSIONS))
    .default([...USER_PERMISSIONS])
    .describe("The user's own permissions."),
  sites: z
    .union([z.literal("all"), z.array(z.int())])
    .default("all")
    .describe("Site ids in the scope."),
  visible_tags: z
    .array(z.string())
    .optional()
    .describe("For a user with component permissions only: ids of the tags in the user's views."),
  expires_at: z.iso.datetime({ offset: true }).optional().describe("Default: one year after the epoch."),
  revoked: z.boolean().default(false).describe("The service rejects the token with 401 while this is true."),
});
export type AccessTokenOptions = z.infer<typeof AccessTokenOptions>;

const RateLimitOptions = z.strictObject({
  model: choiceOption(
    [
      "first_hit_window",
      "calendar_window",
      "sliding_log",
      "sliding_log_counting_refusals",
      "token_bucket",
      "leaky_bucket",
      "weighted_counter",
    ],
    "How requests are counted. first_hit_window works as in the Laravel framework: the first request opens the window, refusals are not counted, retry_after is in whole seconds and may be one second short.",
  ),
  limit: z.int().min(1).default(20).describe("Requests per window. 20: interface, Limits."),
  window_s: z.number().positive().default(60).describe("Length of the window in seconds."),
  burst: z.int().min(0).default(1).describe("leaky_bucket only: requests allowed ahead of the steady rate."),
});
export type RateLimitOptions = z.infer<typeof RateLimitOptions>;

const RetryAfterOptions = z.strictObject({
  places: z
    .array(z.enum(["errors_meta", "top_meta", "header"]))
    .default(["errors_meta"])
    .describe("Where a 429 states the waiting time: errors[0].meta, meta of the body, header."),
  form: choiceOption(["number", "string", "float", "negative", "zero", "absent"], "Format of the waiting time."),
});
export type RetryAfterOptions = z.infer<typeof RetryAfterOptions>;

const AllRateLimitOptions = z.strictObject({
  tag_endpoints: RateLimitOptions.prefault({}).describe("Limit of the endpoints read, write and history."),
  scope: choiceOption(["shared", "per_endpoint"], "Whether the tag endpoints share one counter; not stated."),
  key: choiceOption(["user", "token"], "Requests are counted per user or per token."),
  list_endpoints: RateLimitOptions.optional().describe(
    "Limit of all other authenticated endpoints together. Default: none; the interface states none.",
  ),
  headers: z.boolean().default(true).describe("Send x-ratelimit-limit and x-ratelimit-remaining."),
  retry_after: RetryAfterOptions.prefault({}).describe("Format of a 429."),
});

// In the descriptions, "not stated" means that the interface specification does not define this behaviour.
const PaginatedListOptions = z.strictObject({
  max_per_page: z.int().min(1).default(500).describe("Largest page of all lists except alarms; not stated."),
  over_max: z
    .enum(["refuse", "clamp"])
    .default("clamp")
    .describe("Whether a larger per_page is rejected with 422 or silently clamped."),
  links: choiceOption(["drop", "keep"], "Page links drop or keep the filters; drop: as frameworks do."),
  empty_meta: choiceOption(["null", "zero"], "meta.from and meta.to of an empty page."),
});

const SimulatedAlarmOptions = z.strictObject({
  recorded: z.boolean().default(true).describe("Replay the recorded alarms. false: only alarms by control."),
  order: choiceOption(["id", "triggered_desc", "shuffled"], "Sort order of the list; not stated."),
  resolved_retention_h: z.number().min(0).default(720).describe("Hours that a resolved alarm stays listed."),
  recovering_s: nonNegativeNumberOption.describe("Seconds of recovering_until before the resolution."),
  out_of_scope_site: choiceOption(["empty", "403"], "Response to a site_id outside the token's scope."),
});

const TagRefusalStatus = z.enum(["404", "422", "403", "omit"]);

const TagReadOptions = z.strictObject({
  unknown_tag: TagRefusalStatus.default("404").describe("Response to an unknown tag id on read, write and history."),
  out_of_scope_tag: TagRefusalStatus.default("403").describe("Response to a tag outside the sites or views."),
  order: choiceOption(["id", "asked"], "Order of the records: by id or as requested."),
  latency_ms: nonNegativeNumberOption.describe("Minimum duration of a read."),
  jitter_ms: nonNegativeNumberOption.describe("Random additional duration, at most this."),
  offline_delay_ms: nonNegativeNumberOption.describe("Duration of a read through an offline gateway."),
  gateway_delay_ms: z
    .record(z.string(), z.number().min(0))
    .default({})
    .describe("Slow gateways: gateway id to the duration of a read through it."),
});

const TagWriteOptions = z.strictObject({
  when_offline: choiceOption(
    ["refuse", "drop", "apply_later"],
    "A write to an offline gateway fails, is lost, or applied later.",
  ),
  partial: choiceOption(["none", "apply_good"], "If a device rejects one tag: write no tag, or the others."),
  rejected_tags: textListOption([], "Tags whose device rejects writes with a 500."),
  ignored_tags: textListOption([], "Tags whose device accepts but ignores writes."),
  clamp: z
    .record(z.string(), z.tuple([z.number(), z.number()]))
    .default({})
    .describe("Tags whose device clamps values to [minimum, maximum]."),
  settle_ms: nonNegativeNumberOption.describe("Time until a written value can be read."),
  answer: choiceOption(
    ["echo", "held", "accepted_only"],
    "Values in the response: as sent, as stored by the device, or of accepted tags only.",
  ),
});

const NoTagLogOptions = z.strictObject({
  share: z.number().min(0).max(1).default(0).describe("Fraction of tags without a log."),
  cluster_by_host: z.boolean().default(false).describe("Select complete hosts instead of single tags."),
  tags: textListOption([], "Tags without a log, in addition to the fraction."),
});

const LateSampleOptions = z.strictObject({
  minutes: nonNegativeNumberOption.describe("Delay of a late sample."),
  share: z.number().min(0).max(1).default(1).describe("Fraction of samples that are late."),
});

const TagHistoryOptions = z.strictObject({
  scalar_form: choiceOption(
    ["measurements", "value", "number", "object", "point", "both"],
    "Format of a scalar: measurements: [n], value: n, measurements: n, measurements: {value}, measurements: [{timestamp, value}], or both of the stated forms.",
  ),
  range_end: choiceOption(["exclusive", "inclusive"], "Whether the range contains `to`."),
  unaligned_range: choiceOption(
    ["partial", "whole"],
    "A bucket that the range cuts uses the samples inside the range, or all.",
  ),
  no_log: NoTagLogOptions.prefault({}).describe("Tags that make every history request that names them fail with 404."),
  log_every_s: z.number().min(1).optional().describe("Seconds between log values. Default: as recorded."),
  log_start_spread_days: nonNegativeNumberOption.describe("Logs begin at seeded times within this many days."),
  late_data: LateSampleOptions.prefault({}).describe("Samples that appear after their bucket has closed."),
  meters_on_loop: choiceOption(["continue", "restart"], "Cumulative meters continue or restart with each pass."),
  max_values: z.int().min(1).optional().describe("A response with more values fails."),
  over_max_values: z.literal([500, 504, 422]).default(504).describe("Error status of a response with too many values."),
});

export const SimulatorOptions = z.strictObject({
  data_folder: z
    .string()
    .default(fileURLToPath(new URL("./data", import.meta.url)))
    .describe("Folder with metadata.json, alarm_events.csv and series/."),
  seed: z.int().default(1).describe("Seed of all random choices."),
  epoch: z
    .union([z.iso.datetime({ offset: true }), z.int()])
    .optional()
    .describe("Start of the world (ISO 8601 or ms). The same epoch continues the same world. Default: now."),
  speed: z.number().positive().default(1).describe("Recorded seconds per second."),
  anchor: choiceOption(
    ["weeks", "start", "next-alarm"],
    "Position of the epoch in the recording: weeks: after the middle, shifted by complete weeks; start: at its beginning; next-alarm: 12 s before an alarm that lasts about half a minute.",
  ),
  loops_before: z.int().min(0).default(0).describe("Passes of the recording before the epoch."),
  sites: z
    .array(z.union([z.int(), z.string()]))
    .optional()
    .describe("Ids or keys of sites. Default: all."),
  replicate: z.int().min(1).default(1).describe("Copies of the sites; ids of copy n grow by n · 1,000,000."),
  max_tags: z.int().min(1).optional().describe("Maximum number of tags."),
  public_url: z.url().optional().describe("Origin in page links. Default: the Host of the request."),
  tokens: z
    .array(AccessTokenOptions)
    .min(1)
    .default([AccessTokenOptions.parse({ token: SERVICE_TOKEN })])
    .describe("Accepted tokens."),
  forbidden: choiceOption(["inside", "real"], "A 403 is inside HTTP 200, or the HTTP status; not stated."),
  without_accept: choiceOption(
    ["json", "redirect"],
    "Response if the request does not accept JSON: as usual, or a redirect to the log-in page.",
  ),
  health: choiceOption(["healthy", "failing_500", "failing_503", "unhealthy_200"], "Response of the health check."),
  clock_skew_s: z.number().default(0).describe("Seconds that the Date header is ahead of the world's clock."),
  request_log: z.int().min(0).default(20_000).describe("Number of requests that the request log retains."),
  lists: PaginatedListOptions.prefault({}).describe("Pages of lists."),
  alarms: SimulatedAlarmOptions.prefault({}).describe("Alarms."),
  reads: TagReadOptions.prefault({}).describe("Reading tags."),
  writes: TagWriteOptions.prefault({}).describe("Writing tags."),
  history: TagHistoryOptions.prefault({}).describe("Logged history."),
  limits: AllRateLimitOptions.prefault({}).describe("Rate limits."),
  offline_gateways: z.array(z.string()).default([]).describe("Gateways that are offline at the start."),
  faults: z.array(FaultRule).default([]).describe("The fault plan."),
});
export type SimulatorOptions = z.infer<typeof SimulatorOptions>;
export type SimulatorOptionsInput = z.input<typeof SimulatorOptions>;
