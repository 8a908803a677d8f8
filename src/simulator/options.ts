import { fileURLToPath } from "node:url";
import { z } from "zod";
import { FaultRule } from "./fault-options.ts";
import { LimitOptions } from "./limit-options.ts";

export const ABILITIES = [
  "read:alarms",
  "read:tags",
  "write:tags",
  "read:gateways",
  "read:hosts",
  "read:systems",
] as const;

/** The token that is accepted when the options name none. */
export const DEFAULT_TOKEN = "simulator-token";

export const TokenOptions = z.strictObject({
  token: z.string().min(1).meta({ description: "The text after `Bearer`." }),
  name: z.string().default("Simulator").meta({ description: "The name of the token." }),
  user_id: z.int().default(1).meta({ description: "Tokens of one user share a rate limit." }),
  user_name: z.string().default("Test user").meta({ description: "The name of the user." }),
  user_email: z.string().default("test.user@example.com").meta({ description: "The address of the user." }),
  abilities: z
    .array(z.string())
    .default([...ABILITIES])
    .meta({ description: "What the token may do; `*` is everything." }),
  permissions: z
    .array(z.enum(["gateways", "hosts", "documents"]))
    .default(["gateways", "hosts", "documents"])
    .meta({ description: "What the user may read besides the abilities of the token." }),
  sites: z
    .union([z.literal("all"), z.array(z.int())])
    .default("all")
    .meta({ description: "The site ids the token is scoped to." }),
  visible_tags: z.array(z.string()).optional().meta({
    description: "A user with component permissions only: the tag ids reachable through the views.",
  }),
  expires_at: z.iso
    .datetime({ offset: true })
    .optional()
    .meta({ description: "End of the token. Default: one year after the epoch." }),
  revoked: z.boolean().default(false).meta({
    description: "Taken back before its end: 401, until the same text is accepted again.",
  }),
});
export type TokenOptions = z.infer<typeof TokenOptions>;

const Lists = z.strictObject({
  max_per_page: z
    .int()
    .min(1)
    .default(500)
    .meta({ description: "Largest page of the lists other than alarms; the interface does not state it." }),
  over_max: z
    .enum(["refuse", "clamp"])
    .default("clamp")
    .meta({ description: "A larger per_page is refused with 422 or silently clamped." }),
  links: z
    .enum(["drop", "keep"])
    .default("drop")
    .meta({ description: "Whether page links drop the filters (the framework's default) or keep them." }),
  empty_meta: z
    .enum(["null", "zero"])
    .default("null")
    .meta({ description: "meta.from and meta.to of an empty page." }),
});

const Alarms = z.strictObject({
  recorded: z
    .boolean()
    .default(true)
    .meta({ description: "Replay the recorded alarms. false: only alarms by hand." }),
  order: z
    .enum(["id", "triggered_desc", "shuffled"])
    .default("id")
    .meta({ description: "Sort order of the list; the interface does not state it." }),
  resolved_retention_h: z
    .number()
    .min(0)
    .default(720)
    .meta({ description: "How long a resolved alarm stays in the list, in hours." }),
  recovering_s: z
    .number()
    .min(0)
    .default(0)
    .meta({ description: "How long before its resolution a recorded alarm shows recovering_until." }),
  out_of_scope_site: z
    .enum(["empty", "403"])
    .default("empty")
    .meta({ description: "Answer to a site_id that exists but lies outside the token's scope." }),
});

const Reads = z.strictObject({
  unknown_tag: z
    .enum(["404", "422", "403", "omit"])
    .default("404")
    .meta({ description: "Answer to a tag id that does not exist, on read, write and history." }),
  out_of_scope_tag: z
    .enum(["404", "422", "403", "omit"])
    .default("403")
    .meta({ description: "Answer to a tag outside the token's sites or views." }),
  order: z
    .enum(["id", "asked"])
    .default("id")
    .meta({ description: "Order of the records in an answer: by id or as asked." }),
  latency_ms: z.number().min(0).default(0).meta({ description: "Time a read takes at least." }),
  jitter_ms: z.number().min(0).default(0).meta({ description: "Random time on top, up to this." }),
  offline_delay_ms: z
    .number()
    .min(0)
    .default(0)
    .meta({ description: "Time a read takes when it contains a tag behind an offline gateway." }),
  gateway_delay_ms: z
    .record(z.string(), z.number().min(0))
    .default({})
    .meta({ description: "Slow gateways: id to the time that a read through it takes." }),
});

const Writes = z.strictObject({
  when_offline: z.enum(["refuse", "drop", "apply_later"]).default("refuse").meta({
    description: "A write through an offline gateway: error 500, lost in silence, or applied on return.",
  }),
  partial: z
    .enum(["none", "apply_good"])
    .default("none")
    .meta({ description: "When one tag of a write is refused: nothing is written, or the others are." }),
  rejected_tags: z
    .array(z.string())
    .default([])
    .meta({ description: "Devices that refuse: the request gets a 500." }),
  ignored_tags: z
    .array(z.string())
    .default([])
    .meta({ description: "Devices that say yes and keep their value." }),
  clamp: z
    .record(z.string(), z.tuple([z.number(), z.number()]))
    .default({})
    .meta({ description: "Devices that hold the value inside [minimum, maximum]." }),
  settle_ms: z.number().min(0).default(0).meta({ description: "Time until a written value can be read." }),
  answer: z.enum(["echo", "held", "accepted_only"]).default("echo").meta({
    description: "The values in the answer: as sent, as the device holds them, or only accepted tags.",
  }),
});

const History = z.strictObject({
  scalar_form: z
    .enum(["measurements", "value", "number", "object", "point", "both"])
    .default("measurements")
    .meta({
      description:
        "Where a scalar stands: measurements: [n], value: n, measurements: n, measurements: {value}, measurements: [{timestamp, value}], or both of the stated forms.",
    }),
  range_end: z
    .enum(["exclusive", "inclusive"])
    .default("exclusive")
    .meta({ description: "Whether `to` belongs to the range." }),
  unaligned_range: z.enum(["partial", "whole"]).default("partial").meta({
    description: "A bucket cut by the range is computed from the samples inside, or from all of its samples.",
  }),
  no_log: z
    .strictObject({
      share: z.number().min(0).max(1).default(0).meta({ description: "Share of tags without a log." }),
      cluster_by_host: z.boolean().default(false).meta({ description: "Whole hosts lack their logs." }),
      tags: z
        .array(z.string())
        .default([])
        .meta({ description: "Tags that have no log, besides the share." }),
    })
    .prefault({})
    .meta({ description: "Tags that answer 404 on history, and with them all others of the request." }),
  log_every_s: z.number().min(1).optional().meta({
    description: "The log holds a value each n seconds (last sample held). Default: the recorded samples.",
  }),
  log_start_spread_days: z
    .number()
    .min(0)
    .default(0)
    .meta({ description: "Logs begin at seeded times within this many days after the start of the world." }),
  late_data: z
    .strictObject({
      minutes: z.number().min(0).default(0).meta({ description: "How late a sample reaches the history." }),
      share: z.number().min(0).max(1).default(1).meta({ description: "Share of samples that are late." }),
    })
    .prefault({})
    .meta({ description: "Samples that appear after their bucket has closed." }),
  meters_on_loop: z
    .enum(["continue", "restart"])
    .default("continue")
    .meta({ description: "What a cumulative meter does when the recording begins again." }),
  max_values: z
    .int()
    .min(1)
    .optional()
    .meta({ description: "Most values one answer can hold before it fails." }),
  over_max_values: z
    .union([z.literal(500), z.literal(504), z.literal(422)])
    .default(504)
    .meta({ description: "The error of a request for more values than that." }),
});

export const SimulatorOptions = z.strictObject({
  data_folder: z
    .string()
    .default(fileURLToPath(new URL("./data", import.meta.url)))
    .meta({ description: "Folder with metadata.json, alarm_events.csv and series/." }),
  seed: z.int().default(1).meta({ description: "Seed of everything left to chance." }),
  epoch: z
    .union([z.iso.datetime({ offset: true }), z.int()])
    .optional()
    .meta({
      description:
        "When the world began (ISO 8601 or ms). The same epoch continues the same world. Default: now.",
    }),
  speed: z.number().positive().default(1).meta({ description: "Recorded seconds per second." }),
  anchor: z.enum(["weeks", "start", "next-alarm"]).default("weeks").meta({
    description:
      "Where in the recording the epoch lies: weeks: beyond the middle, shifted by whole weeks; start: at its beginning; next-alarm: 12 s before an alarm that lasts about half a minute.",
  }),
  loops_before: z
    .int()
    .min(0)
    .default(0)
    .meta({ description: "Passes of the recording that lie before the epoch." }),
  sites: z
    .array(z.union([z.int(), z.string()]))
    .optional()
    .meta({ description: "Ids or keys of the sites to include. Default: all." }),
  replicate: z
    .int()
    .min(1)
    .default(1)
    .meta({ description: "Copies of the sites; ids of copy n grow by n · 1,000,000." }),
  max_tags: z.int().min(1).optional().meta({ description: "Stop at this many tags." }),
  public_url: z
    .url()
    .optional()
    .meta({ description: "Origin in page links. Default: the Host of the request." }),
  tokens: z
    .array(TokenOptions)
    .min(1)
    .default([TokenOptions.parse({ token: DEFAULT_TOKEN })])
    .meta({ description: "Accepted tokens." }),
  forbidden: z.enum(["inside", "real"]).default("inside").meta({
    description: "Whether a 403 comes inside HTTP 200 or as the real status. The interface shows neither.",
  }),
  without_accept: z.enum(["json", "redirect"]).default("json").meta({
    description: "Answer to a request that does not accept JSON: as usual, or a redirect to the log-in page.",
  }),
  health: z
    .enum(["healthy", "failing_500", "failing_503", "unhealthy_200"])
    .default("healthy")
    .meta({ description: "What the health check says." }),
  clock_skew_s: z.number().default(0).meta({
    description: "How far the Date header of the answers is ahead of the world's clock, in seconds.",
  }),
  request_log: z.int().min(0).default(20_000).meta({ description: "How many requests the truth remembers." }),
  lists: Lists.prefault({}).meta({ description: "Pages of lists." }),
  alarms: Alarms.prefault({}).meta({ description: "Alarms." }),
  reads: Reads.prefault({}).meta({ description: "Reading tags." }),
  writes: Writes.prefault({}).meta({ description: "Writing tags." }),
  history: History.prefault({}).meta({ description: "Logged history." }),
  limits: LimitOptions.prefault({}).meta({ description: "Rate limits." }),
  offline_gateways: z
    .array(z.string())
    .default([])
    .meta({ description: "Gateways that are offline at first." }),
  faults: z.array(FaultRule).default([]).meta({ description: "The fault plan." }),
});
export type SimulatorOptions = z.infer<typeof SimulatorOptions>;
/** What a caller writes: everything may be left out. */
export type SimulatorOptionsInput = z.input<typeof SimulatorOptions>;
