import { z } from "zod";
import type { Random } from "./seeded-random.ts";

const ApiEndpointName = z.enum([
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
export type ApiEndpointName = z.infer<typeof ApiEndpointName>;

const FaultRequestMatch = z
  .strictObject({
    endpoints: z.array(ApiEndpointName).optional().describe("Only these endpoints. Default: all."),
    method: z.enum(["GET", "POST"]).optional().describe("Only this method."),
    site_id: z.int().optional().describe("Only requests for this site."),
    tag_id: z.string().optional().describe("Only requests that name this tag."),
    page: z.int().optional().describe("Only this page of a list."),
  })
  .describe("Requests that the rule applies to.");

const FaultActivePeriod = z
  .strictObject({
    after_s: z.number().min(0).optional().describe("Begins this many seconds after the plan was set."),
    for_s: z.number().positive().optional().describe("Lasts this many seconds."),
    skip: z.int().min(0).optional().describe("Does not apply to the first n matching requests."),
    count: z.int().min(1).optional().describe("Applies to at most n matching requests."),
    every: z.int().min(1).optional().describe("Applies to every n-th matching request."),
    probability: z.number().min(0).max(1).optional().describe("Applies with this seeded probability."),
  })
  .describe("When the rule is active. All given conditions must hold.");

const writeEffectOption = z
  .enum(["none", "applied"])
  .default("none")
  .describe("Whether a write reached the device before the fault: the case that tempts clients to retry.");

const httpStatusOption = z.int().min(200).max(599).default(200).describe("HTTP status.");
const errorStatusOption = z.int().min(400).max(599).default(500).describe("The status in errors[0].");

const faultKindOption = <Name extends string>(name: Name, description: string) => z.literal(name).describe(description);

export const Fault = z.discriminatedUnion("kind", [
  z.strictObject({
    kind: faultKindOption("throttled", "429."),
    retry_after_s: z.number().default(60).describe("The waiting time that the response states, in seconds."),
  }),
  z.strictObject({
    kind: faultKindOption("maintenance", "503, before the service checks the token."),
    body: z.enum(["json", "html", "empty"]).default("json").describe("Body of the response."),
    status: z.literal([503, 200]).default(503).describe("200: a maintenance page sent as a success."),
    retry_after: z
      .union([z.string(), z.number()])
      .optional()
      .describe("Retry-After: seconds, an HTTP date, or an invalid text."),
  }),
  z.strictObject({
    kind: faultKindOption("error", "An error of the service."),
    status: errorStatusOption,
    real_status: z.boolean().default(false).describe("Also send the status as the HTTP status."),
    message: z.string().optional().describe("Replaces the usual message."),
    effect: writeEffectOption,
  }),
  z.strictObject({
    kind: faultKindOption("html", "An HTML page, such as a log-in page or the page of a proxy."),
    status: httpStatusOption,
    title: z.string().default("Log in").describe("Title of the page."),
    effect: writeEffectOption,
  }),
  z.strictObject({
    kind: faultKindOption("redirect", "A redirect."),
    status: z
      .literal([301, 302, 303, 307, 308])
      .default(302)
      .describe("HTTP status; 307 and 308 request the same body again."),
    location: z.string().describe("Target address."),
  }),
  z.strictObject({
    kind: faultKindOption("slow", "The response begins late."),
    delay_ms: z.number().min(0).describe("Time before the first byte."),
  }),
  z.strictObject({
    kind: faultKindOption("drip", "The body arrives in small pieces."),
    bytes: z.int().min(1).default(1).describe("Size of a piece."),
    every_ms: z.number().min(0).default(1000).describe("Time between two pieces."),
  }),
  z.strictObject({
    kind: faultKindOption("cut", "The connection breaks in the middle of the body."),
    after_bytes: z.int().min(0).describe("Number of bytes of the body that arrive."),
  }),
  z.strictObject({ kind: faultKindOption("reset", "The connection is reset."), effect: writeEffectOption }),
  z.strictObject({
    kind: faultKindOption("null_values", "Devices that cannot be read."),
    tags: z.array(z.string()).optional().describe("Only these tags. Default: all."),
  }),
  z.strictObject({
    kind: faultKindOption("gateway_offline", "Gateways that appear offline in the responses."),
    gateways: z.array(z.string()).describe("Ids of the gateways."),
  }),
  z.strictObject({
    kind: faultKindOption("errors_and_data", "A complete response that also contains errors."),
    status: errorStatusOption,
  }),
  z.strictObject({
    kind: faultKindOption("malformed", "A body that is no JSON."),
    body: z.string().default('{"data":[{"type":"tags","id":').describe("The body."),
  }),
  z.strictObject({
    kind: faultKindOption("missing_route", "An endpoint that does not exist (any more): 404."),
    body: z
      .enum(["json", "html", "inside"])
      .default("json")
      .describe("The framework's own message, the page of a proxy, or an error inside HTTP 200."),
  }),
  z.strictObject({
    kind: faultKindOption("shrunken_list", "A complete, plausible list that lacks most records."),
    keep: z.number().min(0).max(1).default(0.3).describe("Fraction of the records that is still listed."),
  }),
  z.strictObject({
    kind: faultKindOption("failing_record", "A page of a list that contains this record fails with 500."),
    id: z.string().describe("Id of the record."),
  }),
  z.strictObject({
    kind: faultKindOption("hostile_links", "links.next leads to another address."),
    next: z.string().describe("The address."),
  }),
  z.strictObject({
    kind: faultKindOption("raw", "Any response."),
    status: httpStatusOption,
    headers: z.record(z.string(), z.string()).default({ "content-type": "application/json" }).describe("Headers."),
    body: z.string().describe("Body."),
  }),
]);
export type Fault = z.infer<typeof Fault>;

export const FaultRule = z.strictObject({
  name: z.string().optional().describe("A note for the reader of the plan."),
  match: FaultRequestMatch.prefault({}),
  when: FaultActivePeriod.prefault({}),
  fault: Fault.describe("The fault; the README describes the kinds."),
});
export type FaultRule = z.infer<typeof FaultRule>;

export interface FaultableRequest {
  readonly endpoint: ApiEndpointName | null;
  readonly method: string;
  readonly siteIds: ReadonlySet<number>;
  readonly tagIds: ReadonlySet<string>;
  readonly page: number;
}

interface ActiveFaultRule {
  readonly rule: FaultRule;
  readonly setAtMs: number;
  matchCount: number;
  appliedCount: number;
}

export type FaultPlan = ReturnType<typeof createFaultPlan>;

export function createFaultPlan(initialRules: readonly FaultRule[], nowMs: number, random: Random) {
  const createActiveFaultRules = (rules: readonly FaultRule[], setAtMs: number): ActiveFaultRule[] =>
    rules.map((rule) => ({ rule, setAtMs, matchCount: 0, appliedCount: 0 }));
  let activeRules = createActiveFaultRules(initialRules, nowMs);
  return {
    setRules(rules: readonly FaultRule[], atMs: number) {
      activeRules = createActiveFaultRules(rules, atMs);
    },
    faultsFor(describeRequest: () => FaultableRequest, atMs: number): Fault[] {
      if (activeRules.length === 0) return [];
      const request = describeRequest();
      return activeRules
        .filter((activeRule) => faultRuleApplies(activeRule, request, atMs, random))
        .map(({ rule }) => rule.fault);
    },
  };
}

function faultRuleApplies(active: ActiveFaultRule, request: FaultableRequest, nowMs: number, random: Random): boolean {
  const { match, when } = active.rule;
  const { endpoint } = request;
  if (match.endpoints !== undefined && (endpoint === null || !match.endpoints.includes(endpoint))) return false;
  if (match.method !== undefined && match.method !== request.method) return false;
  if (match.site_id !== undefined && !request.siteIds.has(match.site_id)) return false;
  if (match.tag_id !== undefined && !request.tagIds.has(match.tag_id)) return false;
  if (match.page !== undefined && match.page !== request.page) return false;

  const faultStartMs = active.setAtMs + (when.after_s ?? 0) * 1000;
  if (nowMs < faultStartMs || (when.for_s !== undefined && nowMs >= faultStartMs + when.for_s * 1000)) return false;
  active.matchCount += 1;
  const matchNumber = active.matchCount - (when.skip ?? 0);
  if (matchNumber < 1 || (when.every !== undefined && matchNumber % when.every !== 0)) return false;
  if (when.count !== undefined && active.appliedCount >= when.count) return false;
  if (when.probability !== undefined && random.next() >= when.probability) return false;
  active.appliedCount += 1;
  return true;
}
