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
  z.strictObject({
    kind: z.literal("throttled").meta({ description: "429." }),
    retry_after_s: z
      .number()
      .default(60)
      .meta({ description: "The wait that the answer states, in seconds." }),
  }),
  z.strictObject({
    kind: z.literal("maintenance").meta({ description: "503, before the token is looked at." }),
    body: z.enum(["json", "html", "empty"]).default("json").meta({ description: "What the answer holds." }),
    status: z
      .union([z.literal(503), z.literal(200)])
      .default(503)
      .meta({ description: "200: a maintenance page that pretends to be an answer." }),
    retry_after: retryAfterHeader,
  }),
  z.strictObject({
    kind: z.literal("error").meta({ description: "An error of the service." }),
    status: z.int().min(400).max(599).default(500).meta({ description: "The status in errors[0]." }),
    real_status: z
      .boolean()
      .default(false)
      .meta({ description: "Send it as HTTP status as well, not inside 200." }),
    message: z.string().optional().meta({ description: "In place of the usual message." }),
    effect: Effect,
  }),
  z.strictObject({
    kind: z.literal("html").meta({ description: "A page, as a log-in or a proxy would send." }),
    status: z.int().min(200).max(599).default(200).meta({ description: "HTTP status." }),
    title: z.string().default("Log in").meta({ description: "Title of the page." }),
    effect: Effect,
  }),
  z.strictObject({
    kind: z.literal("redirect").meta({ description: "A redirect." }),
    status: z
      .union([z.literal(301), z.literal(302), z.literal(303), z.literal(307), z.literal(308)])
      .default(302)
      .meta({ description: "HTTP status; 307 and 308 ask to send the body again." }),
    location: z.string().meta({ description: "Where to." }),
  }),
  z.strictObject({
    kind: z.literal("slow").meta({ description: "The answer begins late." }),
    delay_ms: z.number().min(0).meta({ description: "Time before the first byte." }),
  }),
  z.strictObject({
    kind: z.literal("drip").meta({ description: "The body leaves in small pieces." }),
    bytes: z.int().min(1).default(1).meta({ description: "Size of a piece." }),
    every_ms: z.number().min(0).default(1000).meta({ description: "Time between two pieces." }),
  }),
  z.strictObject({
    kind: z.literal("cut").meta({ description: "The connection breaks in the middle of the body." }),
    after_bytes: z.int().min(0).meta({ description: "How much of the body arrives." }),
  }),
  z.strictObject({
    kind: z.literal("reset").meta({ description: "The connection is reset." }),
    effect: Effect,
  }),
  z.strictObject({
    kind: z.literal("null_values").meta({ description: "Devices that cannot be read." }),
    tags: z.array(z.string()).optional().meta({ description: "Only these tags. Default: all." }),
  }),
  z.strictObject({
    kind: z.literal("gateway_offline").meta({ description: "Gateways that look offline in the answers." }),
    gateways: z.array(z.string()).meta({ description: "Their ids." }),
  }),
  z.strictObject({
    kind: z.literal("errors_and_data").meta({ description: "A whole answer with errors beside it." }),
    status: z.int().min(400).max(599).default(500).meta({ description: "The status in errors[0]." }),
  }),
  z.strictObject({
    kind: z.literal("malformed").meta({ description: "A body that is no JSON." }),
    body: z.string().default('{"data":[{"type":"tags","id":').meta({ description: "That body." }),
  }),
  z.strictObject({
    kind: z.literal("missing_route").meta({ description: "An endpoint that is not there (any more): 404." }),
    body: z.enum(["json", "html", "inside"]).default("json").meta({
      description: "The framework's own message, a proxy's page, or an error inside HTTP 200.",
    }),
  }),
  z.strictObject({
    kind: z.literal("shrunken_list").meta({ description: "A whole, plausible list that lacks most of it." }),
    keep: z
      .number()
      .min(0)
      .max(1)
      .default(0.3)
      .meta({ description: "Share of the records, from the first on, that are still listed." }),
  }),
  z.strictObject({
    kind: z.literal("hostile_links").meta({ description: "links.next leads elsewhere." }),
    next: z.string().meta({ description: "Where to." }),
  }),
  z.strictObject({
    kind: z.literal("raw").meta({ description: "Any answer at all." }),
    status: z.int().min(200).max(599).default(200).meta({ description: "HTTP status." }),
    headers: z
      .record(z.string(), z.string())
      .default({ "content-type": "application/json" })
      .meta({ description: "Headers." }),
    body: z.string().meta({ description: "Body." }),
  }),
]);
export type Fault = z.infer<typeof Fault>;

export const FaultRule = z.strictObject({
  name: z.string().optional().meta({ description: "For the reader of the plan." }),
  match: Match.prefault({}),
  when: When.prefault({}),
  fault: Fault.meta({ description: "What happens; the kinds are described in the README." }),
});
export type FaultRule = z.infer<typeof FaultRule>;
