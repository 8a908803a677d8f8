import { maySeeSite } from "../access-tokens.ts";
import { fromRawValue, toRawValue, type Value } from "../devices.ts";
import {
  errorReply,
  forbiddenReply,
  type InvalidField,
  invalidReply,
  jsonReply,
  notFoundReply,
  type SimReply,
  UNEXPECTED_ERROR,
} from "../reply-bodies.ts";
import type { WrittenValue } from "../request-log.ts";
import { tagRecord, utc } from "../response-records.ts";
import type { Tag } from "../simulated-sites.ts";
import { LOG_RESOLUTIONS, type Period } from "../tag-history.ts";
import { type ApiCall, type Endpoint, MAX_TAGS, requiredMessage } from "./endpoint.ts";

// The rate-limited endpoints: read, write and history of up to 20 tags.

function findTags(call: ApiCall, ids: readonly string[]): readonly Tag[] | { readonly refusal: SimReply } {
  const { world, inventory, options } = call.context;
  const { unknown_tag, out_of_scope_tag, order } = options.reads;
  const tags: Tag[] = [];
  for (const id of ids) {
    const tag = world.tags.get(id);
    const tagExists = tag !== undefined && inventory.exists("tags", id) && inventory.exists("sites", tag.site.id);
    const isVisible = tagExists && maySeeSite(call.token, tag.site.id) && call.token.visibleTags?.has(id) !== false;
    if (isVisible) {
      tags.push(tag);
      continue;
    }
    const status = tagExists ? out_of_scope_tag : unknown_tag;
    if (status !== "omit") return { refusal: refuseTag(call, status, id) };
  }
  if (order === "id") tags.sort((a, b) => a.id.length - b.id.length || (a.id < b.id ? -1 : 1));
  return tags;
}

function refuseTag({ context }: ApiCall, status: "404" | "422" | "403", id: string): SimReply {
  if (status === "404") return notFoundReply();
  if (status === "403") return forbiddenReply(context.options.forbidden);
  return invalidReply([{ source: "tags", message: `The selected tags is invalid: ${id}.` }]);
}

export const read: Endpoint = {
  name: "read",
  method: "GET",
  path: "/api/v1/tags/read",
  ability: "read:tags",
  limited: true,
  respond(call) {
    const { context, nowMs, query } = call;
    const ids = query.tagIds();
    if (query.invalid.length > 0) return invalidReply(query.invalid);
    const tags = findTags(call, ids);
    if ("refusal" in tags) return tags.refusal;
    const data = tags.map((tag) => ({
      ...tagRecord(context, tag),
      value: fromRawValue(tag, context.devices.valueAt(tag, nowMs)),
    }));
    const delayMs = readDurationMs(call, tags);
    const reply = jsonReply(200, { data });
    return delayMs > 0 ? { ...reply, transport: { delayMs } } : reply;
  },
};

/** The slowest gateway decides: one slow device delays the other nineteen. */
function readDurationMs({ context, nowMs }: ApiCall, tags: readonly Tag[]): number {
  const { latency_ms, jitter_ms, offline_delay_ms, gateway_delay_ms } = context.options.reads;
  const gatewayDelaysMs = [...new Set(tags.map((tag) => tag.gatewayId))].flatMap((gatewayId) => [
    gateway_delay_ms[String(gatewayId)] ?? 0,
    context.devices.online(gatewayId, nowMs) ? 0 : offline_delay_ms,
  ]);
  const randomDelayMs = jitter_ms === 0 ? 0 : context.random.next() * jitter_ms;
  return Math.round(latency_ms + randomDelayMs + Math.max(0, ...gatewayDelaysMs));
}

interface WriteRequest {
  readonly tagId: string;
  readonly value: number | boolean;
}

type WriteOutcome = WrittenValue["outcome"] | "refused";

export const write: Endpoint = {
  name: "write",
  method: "POST",
  path: "/api/v1/tags/write",
  ability: "write:tags",
  limited: true,
  respond(call) {
    const { context } = call;
    const { answer, partial } = context.options.writes;
    const { requests, invalid } = readWrites(call.request.body);
    if (invalid.length > 0) return invalidReply(invalid);
    const tags = findTags(call, [...new Set(requests.map(({ tagId }) => tagId))]);
    if ("refusal" in tags) return tags.refusal;

    const plans = tags.map((tag) => {
      const value = requests.findLast(({ tagId }) => tagId === tag.id)?.value ?? 0;
      return { tag, value, outcome: decideOutcome(call, tag) };
    });
    const isAnyWriteRefused = plans.some(({ outcome }) => outcome === "refused");
    if (isAnyWriteRefused && partial === "none") return errorReply(500, UNEXPECTED_ERROR);
    for (const { tag, value, outcome } of plans) if (outcome !== "refused") applyWrite(call, tag, value, outcome);
    if (isAnyWriteRefused) return errorReply(500, UNEXPECTED_ERROR);

    const acceptedWrites = plans.filter(({ outcome }) => answer !== "accepted_only" || outcome === "held");
    const data = acceptedWrites.map(({ tag, value, outcome }) => ({
      ...tagRecord(context, tag),
      value: answer === "held" ? valueAfterWrite(call, tag, value, outcome) : value,
    }));
    return jsonReply(200, { data });
  },
};

function decideOutcome({ context, nowMs }: ApiCall, tag: Tag): WriteOutcome {
  const { rejected_tags, ignored_tags, when_offline } = context.options.writes;
  if (rejected_tags.includes(tag.id)) return "refused";
  if (!context.devices.online(tag.gatewayId, nowMs))
    return when_offline === "refuse" ? "refused" : when_offline === "drop" ? "dropped" : "waiting";
  return ignored_tags.includes(tag.id) ? "ignored" : "held";
}

function applyWrite(
  { context, nowMs, number }: ApiCall,
  tag: Tag,
  value: number | boolean,
  outcome: WrittenValue["outcome"],
): void {
  const { clamp, settle_ms } = context.options.writes;
  // A value that waits for its gateway is applied now: clients cannot read it before the gateway is online.
  if (outcome === "held" || outcome === "waiting") {
    const limit = clamp[tag.id];
    const appliedValue =
      limit === undefined || typeof value === "boolean" ? value : Math.min(limit[1], Math.max(limit[0], value));
    context.devices.override(tag, nowMs + settle_ms, toRawValue(tag, appliedValue));
  }
  context.log.addWrite({ atMs: nowMs, requestNumber: number, tagId: tag.id, value, outcome });
}

function valueAfterWrite({ context, nowMs }: ApiCall, tag: Tag, value: number | boolean, outcome: WriteOutcome): Value {
  const { devices, options } = context;
  const valueOfDevice = fromRawValue(tag, devices.valueAt(tag, nowMs + options.writes.settle_ms));
  return outcome === "held" ? valueOfDevice : (valueOfDevice ?? value);
}

function readWrites(body: string | undefined): { requests: WriteRequest[]; invalid: InvalidField[] } {
  const requests: WriteRequest[] = [];
  const invalid: InvalidField[] = [];
  const entries = parseEntries(body);
  if (entries.length === 0) invalid.push({ source: "tags", message: requiredMessage("tags") });
  if (entries.length > MAX_TAGS) {
    const message = `The tags field must not have more than ${MAX_TAGS} items.`;
    return { requests, invalid: [{ source: "tags", message }] };
  }
  entries.forEach((entry, index) => {
    const { tag_id, value } = isObject(entry) ? entry : {};
    const reject = (field: string, isMissing: boolean, expected: string) => {
      const source = `tags.${index}.${field}`;
      const message = isMissing ? requiredMessage(source) : `The ${source} field must be ${expected}.`;
      invalid.push({ source, message });
    };
    const isTagId = typeof tag_id === "string" && tag_id !== "";
    const isTagValue = typeof value === "number" || typeof value === "boolean";
    if (!isTagId) reject("tag_id", tag_id === undefined || tag_id === null || tag_id === "", "a string");
    if (!isTagValue) reject("value", value === undefined || value === null, "a number or a boolean");
    if (isTagId && isTagValue) requests.push({ tagId: tag_id, value });
  });
  return { requests, invalid };
}

function parseEntries(body: string | undefined): readonly unknown[] {
  try {
    const parsed: unknown = JSON.parse(body ?? "");
    return isObject(parsed) && Array.isArray(parsed.tags) ? parsed.tags : [];
  } catch {
    return [];
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export const history: Endpoint = {
  name: "history",
  method: "GET",
  path: "/api/v1/tags/history",
  ability: "read:tags",
  limited: true,
  respond(call) {
    const { context, query } = call;
    // The order of these lines is the order of the errors: interface, Errors.
    const ids = query.tagIds();
    const fromMs = query.utc("from");
    const toMs = query.utc("to");
    const hasResolution = query.required("resolution") !== undefined;
    const resolution = hasResolution ? query.oneOf("resolution", LOG_RESOLUTIONS) : undefined;
    const timeZone = query.zone("tz");
    const isScalar = query.boolean("scalar") ?? false;
    if (fromMs !== undefined && toMs !== undefined && toMs < fromMs)
      query.reject("to", "The to field must be a time after or equal to from.");
    const isComplete = fromMs !== undefined && toMs !== undefined && resolution !== undefined && timeZone !== undefined;
    if (query.invalid.length > 0 || !isComplete) return invalidReply(query.invalid);

    const tags = findTags(call, ids);
    if ("refusal" in tags) return tags.refusal;
    if (tags.some((tag) => !context.history.hasLog(tag)))
      return notFoundReply("No log was found for one or more tags. Make sure that all tags have logs.");
    const period = { fromMs, toMs, nowMs: call.nowMs };
    const series = tags.map((tag) => {
      const record = { ...tagRecord(context, tag), type: "logs" };
      if (isScalar) return { ...record, ...buildScalarFields(call, tag, period) };
      const points = context.history.points(tag, period, resolution, timeZone);
      return { ...record, measurements: points.map(({ startMs, value }) => ({ timestamp: utc(startMs), value })) };
    });
    return refuseLargeReply(call, series) ?? jsonReply(200, { data: series });
  },
};

function buildScalarFields({ context }: ApiCall, tag: Tag, range: Period): object {
  const value = context.history.scalar(tag, range);
  const list = value === null ? [] : [value];
  const valuesByForm = {
    measurements: { measurements: list },
    value: { value },
    number: { measurements: value },
    object: { measurements: { value } },
    point: { measurements: list.map((total) => ({ timestamp: utc(range.fromMs), value: total })) },
    both: { measurements: list, value },
  };
  return valuesByForm[context.options.history.scalar_form];
}

function refuseLargeReply({ context }: ApiCall, series: readonly object[]): SimReply | undefined {
  const { max_values, over_max_values: status } = context.options.history;
  const valueCounts = series.map((log) =>
    "measurements" in log && Array.isArray(log.measurements) ? log.measurements.length : 1,
  );
  const valueCount = valueCounts.reduce((sum, size) => sum + size, 0);
  if (max_values === undefined || valueCount <= max_values) return undefined;
  if (status === 422) return invalidReply([{ source: "from", message: "The range holds too many values." }]);
  return errorReply(status, status === 504 ? "Historical data could not be retrieved." : UNEXPECTED_ERROR);
}
