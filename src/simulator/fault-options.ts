import { z } from "zod";

export const EndpointName = z.enum([
  "sites",
  "alarms",
  "tags",
  "read",
  "write",
  "history",
  "healthcheck",
  "me",
  "gateways",
  "hosts",
  "systems",
]);
export type EndpointName = z.infer<typeof EndpointName>;

const Match = z
  .strictObject({
    endpoints: z.array(EndpointName).optional().meta({ description: "Only these endpoints. Default: all." }),
    method: z.enum(["GET", "POST"]).optional().meta({ description: "Only this method." }),
    site_id: z.int().optional().meta({ description: "Only requests that ask for this site." }),
    tag_id: z.string().optional().meta({ description: "Only requests that name this tag." }),
    page: z.int().optional().meta({ description: "Only this page of a list." }),
  })
  .meta({ description: "Which requests the rule is about." });

const When = z
  .strictObject({
    after_s: z.number().min(0).optional().meta({ description: "Begins this long after the plan was set." }),
    for_s: z.number().positive().optional().meta({ description: "Lasts this long from its beginning." }),
    skip: z.int().min(0).optional().meta({ description: "Lets this many matching requests pass first." }),
    count: z.int().min(1).optional().meta({ description: "Hits at most this many matching requests." }),
    every: z.int().min(1).optional().meta({ description: "Hits each n-th matching request." }),
    probability: z.number().min(0).max(1).optional().meta({ description: "Hits by seeded chance." }),
  })
  .meta({ description: "When the rule is in force. All that is given must hold." });

const Effect = z.enum(["none", "applied"]).default("none").meta({
  description: "Whether a write reached the device before the fault: the case that tempts clients to repeat.",
});

const retryAfterHeader = z
  .union([z.string(), z.number()])
  .optional()
  .meta({ description: "Retry-After: seconds, an HTTP date, or nonsense." });

export const Fault = z.discriminatedUnion("kind", [
  z.strictObject({ kind: z.literal("throttled"), retry_after_s: z.number().default(60) }),
  z.strictObject({
    kind: z.literal("maintenance"),
    body: z.enum(["json", "html", "empty"]).default("json"),
    status: z.union([z.literal(503), z.literal(200)]).default(503),
    retry_after: retryAfterHeader,
  }),
  z.strictObject({
    kind: z.literal("error"),
    status: z.int().min(400).max(599).default(500),
    real_status: z
      .boolean()
      .default(false)
      .meta({ description: "Send it as HTTP status as well, not inside 200." }),
    message: z.string().optional(),
    effect: Effect,
  }),
  z.strictObject({
    kind: z.literal("html"),
    status: z.int().default(200),
    title: z.string().default("Log in"),
  }),
  z.strictObject({
    kind: z.literal("redirect"),
    status: z
      .union([z.literal(301), z.literal(302), z.literal(303), z.literal(307), z.literal(308)])
      .default(302),
    location: z.string(),
  }),
  z.strictObject({ kind: z.literal("slow"), delay_ms: z.number().min(0) }),
  z.strictObject({
    kind: z.literal("drip"),
    bytes: z.int().min(1).default(1),
    every_ms: z.number().min(0).default(1000),
  }),
  z.strictObject({ kind: z.literal("cut"), after_bytes: z.int().min(0) }),
  z.strictObject({ kind: z.literal("reset"), effect: Effect }),
  z.strictObject({ kind: z.literal("null_values"), tags: z.array(z.string()).optional() }),
  z.strictObject({ kind: z.literal("gateway_offline"), gateways: z.array(z.string()) }),
  z.strictObject({ kind: z.literal("errors_and_data"), status: z.int().default(500) }),
  z.strictObject({ kind: z.literal("malformed"), body: z.string().default('{"data":[{"type":"tags","id":') }),
  z.strictObject({ kind: z.literal("hostile_links"), next: z.string() }),
  z.strictObject({
    kind: z.literal("raw"),
    status: z.int().default(200),
    headers: z.record(z.string(), z.string()).default({ "content-type": "application/json" }),
    body: z.string(),
  }),
]);
export type Fault = z.infer<typeof Fault>;

export const FaultRule = z.strictObject({
  name: z.string().optional().meta({ description: "Shown in the request log of the control interface." }),
  match: Match.prefault({}),
  when: When.prefault({}),
  fault: Fault.meta({ description: "What happens; the kinds are described in the README." }),
});
export type FaultRule = z.infer<typeof FaultRule>;
