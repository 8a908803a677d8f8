import { tokenSeesSite } from "../access-tokens.ts";
import { buildTagRecord, toUtc } from "../build-response-records.ts";
import { fromRawTagValue, toRawTagValue } from "../devices.ts";
import {
  errorReply,
  forbiddenReply,
  type InvalidRequestField,
  invalidFieldsReply,
  jsonReply,
  notFoundReply,
  type ServiceReply,
  UNEXPECTED_ERROR_MESSAGE,
} from "../reply-bodies.ts";
import type { LoggedTagWrite } from "../request-log.ts";
import type { Tag } from "../simulated-sites.ts";
import { HISTORY_RESOLUTIONS, type HistoryPeriod } from "../tag-history.ts";
import { type ApiCall, type Endpoint, MAX_TAGS_PER_REQUEST, requiredFieldMessage } from "./endpoint.ts";

function findPermittedTags(call: ApiCall, ids: readonly string[]): readonly Tag[] | { readonly refusal: ServiceReply } {
  const { world, inventory, options } = call.context;
  const { unknown_tag, out_of_scope_tag, order } = options.reads;
  const tags: Tag[] = [];
  for (const id of ids) {
    const tag = world.tags.get(id);
    const tagExists = tag !== undefined && inventory.exists("tags", id) && inventory.exists("sites", tag.site.id);
    const mayReadTag = tagExists && tokenSeesSite(call.token, tag.site.id) && call.token.visibleTags?.has(id) !== false;
    if (mayReadTag) {
      tags.push(tag);
      continue;
    }
    const status = tagExists ? out_of_scope_tag : unknown_tag;
    if (status !== "omit") return { refusal: buildTagRefusal(call, status, id) };
  }
  if (order === "id") tags.sort((a, b) => a.id.length - b.id.length || (a.id < b.id ? -1 : 1));
  return tags;
}

function buildTagRefusal({ context }: ApiCall, status: "404" | "422" | "403", id: string): ServiceReply {
  if (status === "404") return notFoundReply();
  if (status === "403") return forbiddenReply(context.options.forbidden);
  return invalidFieldsReply([{ source: "tags", message: `The selected tags is invalid: ${id}.` }]);
}

export const read: Endpoint = {
  name: "read",
  method: "GET",
  path: "/api/v1/tags/read",
  ability: "read:tags",
  limited: true,
  respond(call) {
    const { context, nowMs, query } = call;
    const ids = query.readTagIds();
    if (query.invalidFields.length > 0) return invalidFieldsReply(query.invalidFields);
    const tags = findPermittedTags(call, ids);
    if ("refusal" in tags) return tags.refusal;
    const data = tags.map((tag) => ({
      ...buildTagRecord(context, tag),
      value: fromRawTagValue(tag, context.devices.valueAt(tag, nowMs)),
    }));
    const readDelayMs = computeReadDurationMs(call, tags);
    const reply = jsonReply(200, { data });
    return readDelayMs > 0 ? { ...reply, transport: { delayMs: readDelayMs } } : reply;
  },
};

/** A read of several tags takes as long as the response of the slowest gateway. */
function computeReadDurationMs({ context, nowMs }: ApiCall, tags: readonly Tag[]): number {
  const { latency_ms, jitter_ms, offline_delay_ms, gateway_delay_ms } = context.options.reads;
  const gatewayDelaysMs = [...new Set(tags.map((tag) => tag.gatewayId))].flatMap((gatewayId) => [
    gateway_delay_ms[String(gatewayId)] ?? 0,
    context.devices.isGatewayOnline(gatewayId, nowMs) ? 0 : offline_delay_ms,
  ]);
  const randomDelayMs = jitter_ms === 0 ? 0 : context.random.next() * jitter_ms;
  return Math.round(latency_ms + randomDelayMs + Math.max(0, ...gatewayDelaysMs));
}

interface TagWriteRequest {
  readonly tagId: string;
  readonly value: number | boolean;
}

type TagWriteOutcome = LoggedTagWrite["outcome"] | "refused";

export const write: Endpoint = {
  name: "write",
  method: "POST",
  path: "/api/v1/tags/write",
  ability: "write:tags",
  limited: true,
  respond(call) {
    const { context } = call;
    const { answer, partial } = context.options.writes;
    const { requests, invalid } = parseTagWrites(call.request.body);
    if (invalid.length > 0) return invalidFieldsReply(invalid);
    const tags = findPermittedTags(call, [...new Set(requests.map(({ tagId }) => tagId))]);
    if ("refusal" in tags) return tags.refusal;

    const writePlans = tags.map((tag) => {
      const value = requests.findLast(({ tagId }) => tagId === tag.id)?.value ?? 0;
      return { tag, value, outcome: decideTagWriteOutcome(call, tag) };
    });
    const isAnyWriteRefused = writePlans.some(({ outcome }) => outcome === "refused");
    if (isAnyWriteRefused && partial === "none") return errorReply(500, UNEXPECTED_ERROR_MESSAGE);
    for (const { tag, value, outcome } of writePlans) if (outcome !== "refused") writeTag(call, tag, value, outcome);
    if (isAnyWriteRefused) return errorReply(500, UNEXPECTED_ERROR_MESSAGE);

    const reportedTagWrites = writePlans.filter(({ outcome }) => answer !== "accepted_only" || outcome === "held");
    const data = reportedTagWrites.map(({ tag, value, outcome }) => ({
      ...buildTagRecord(context, tag),
      value: answer === "held" ? tagValueAfterWrite(call, tag, value, outcome) : value,
    }));
    return jsonReply(200, { data });
  },
};

function decideTagWriteOutcome({ context, nowMs }: ApiCall, tag: Tag): TagWriteOutcome {
  const { rejected_tags, ignored_tags, when_offline } = context.options.writes;
  if (rejected_tags.includes(tag.id)) return "refused";
  if (!context.devices.isGatewayOnline(tag.gatewayId, nowMs))
    return when_offline === "refuse" ? "refused" : when_offline === "drop" ? "dropped" : "waiting";
  return ignored_tags.includes(tag.id) ? "ignored" : "held";
}

function writeTag(
  { context, nowMs, number }: ApiCall,
  tag: Tag,
  value: number | boolean,
  outcome: LoggedTagWrite["outcome"],
): void {
  const { clamp, settle_ms } = context.options.writes;
  // Store the value now even if the gateway is offline: clients cannot read the tag before the gateway is online.
  if (outcome === "held" || outcome === "waiting") {
    const bounds = clamp[tag.id];
    const appliedTagValue =
      bounds === undefined || typeof value === "boolean" ? value : Math.min(bounds[1], Math.max(bounds[0], value));
    context.devices.override(tag, nowMs + settle_ms, toRawTagValue(tag, appliedTagValue));
  }
  context.log.addWrite({ atMs: nowMs, requestNumber: number, tagId: tag.id, value, outcome });
}

function tagValueAfterWrite({ context, nowMs }: ApiCall, tag: Tag, value: number | boolean, outcome: TagWriteOutcome) {
  const { devices, options } = context;
  const deviceTagValue = fromRawTagValue(tag, devices.valueAt(tag, nowMs + options.writes.settle_ms));
  return outcome === "held" ? deviceTagValue : (deviceTagValue ?? value);
}

function parseTagWrites(body: string | undefined): { requests: TagWriteRequest[]; invalid: InvalidRequestField[] } {
  const requests: TagWriteRequest[] = [];
  const invalid: InvalidRequestField[] = [];
  const tagWriteEntries = parseTagWriteEntries(body);
  if (tagWriteEntries.length === 0) invalid.push({ source: "tags", message: requiredFieldMessage("tags") });
  if (tagWriteEntries.length > MAX_TAGS_PER_REQUEST) {
    const message = `The tags field must not have more than ${MAX_TAGS_PER_REQUEST} items.`;
    return { requests, invalid: [{ source: "tags", message }] };
  }
  tagWriteEntries.forEach((entry, index) => {
    const { tag_id, value } = isJsonObject(entry) ? entry : {};
    const rejectField = (field: string, isMissing: boolean, expected: string) => {
      const source = `tags.${index}.${field}`;
      const message = isMissing ? requiredFieldMessage(source) : `The ${source} field must be ${expected}.`;
      invalid.push({ source, message });
    };
    const isValidTagId = typeof tag_id === "string" && tag_id !== "";
    const isValidTagValue = typeof value === "number" || typeof value === "boolean";
    if (!isValidTagId) rejectField("tag_id", tag_id === undefined || tag_id === null || tag_id === "", "a string");
    if (!isValidTagValue) rejectField("value", value === undefined || value === null, "a number or a boolean");
    if (isValidTagId && isValidTagValue) requests.push({ tagId: tag_id, value });
  });
  return { requests, invalid };
}

function parseTagWriteEntries(body: string | undefined): readonly unknown[] {
  try {
    const parsedBody: unknown = JSON.parse(body ?? "");
    return isJsonObject(parsedBody) && Array.isArray(parsedBody.tags) ? parsedBody.tags : [];
  } catch {
    return [];
  }
}

function isJsonObject(value: unknown): value is Record<string, unknown> {
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
    // The interface specification defines the order of the errors in the reply.
    const ids = query.readTagIds();
    const fromMs = query.readUtcMs("from");
    const toMs = query.readUtcMs("to");
    const hasResolutionParameter = query.requireText("resolution") !== undefined;
    const resolution = hasResolutionParameter ? query.readChoice("resolution", HISTORY_RESOLUTIONS) : undefined;
    const timeZone = query.readTimeZone("tz");
    const isScalarRequest = query.readBoolean("scalar") ?? false;
    if (fromMs !== undefined && toMs !== undefined && toMs < fromMs)
      query.rejectField("to", "The to field must be a time after or equal to from.");
    const isComplete = fromMs !== undefined && toMs !== undefined && resolution !== undefined && timeZone !== undefined;
    if (query.invalidFields.length > 0 || !isComplete) return invalidFieldsReply(query.invalidFields);

    const tags = findPermittedTags(call, ids);
    if ("refusal" in tags) return tags.refusal;
    if (tags.some((tag) => !context.history.hasLog(tag)))
      return notFoundReply("No log was found for one or more tags. Make sure that all tags have logs.");
    const historyPeriod = { fromMs, toMs, nowMs: call.nowMs };
    const tagHistories = tags.map((tag) => {
      const record = { ...buildTagRecord(context, tag), type: "logs" };
      if (isScalarRequest) return { ...record, ...buildSingleHistoryValueFields(call, tag, historyPeriod) };
      const logPoints = context.history.points(tag, historyPeriod, resolution, timeZone);
      return { ...record, measurements: logPoints.map(({ startMs, value }) => ({ timestamp: toUtc(startMs), value })) };
    });
    return refuseLargeHistoryReply(call, tagHistories) ?? jsonReply(200, { data: tagHistories });
  },
};

function buildSingleHistoryValueFields({ context }: ApiCall, tag: Tag, range: HistoryPeriod): object {
  const value = context.history.scalar(tag, range);
  const scalarValues = value === null ? [] : [value];
  const scalarFieldsByForm = {
    measurements: { measurements: scalarValues },
    value: { value },
    number: { measurements: value },
    object: { measurements: { value } },
    point: { measurements: scalarValues.map((total) => ({ timestamp: toUtc(range.fromMs), value: total })) },
    both: { measurements: scalarValues, value },
  };
  return scalarFieldsByForm[context.options.history.scalar_form];
}

function refuseLargeHistoryReply({ context }: ApiCall, series: readonly object[]): ServiceReply | undefined {
  const { max_values, over_max_values: status } = context.options.history;
  const historyValueCounts = series.map((log) =>
    "measurements" in log && Array.isArray(log.measurements) ? log.measurements.length : 1,
  );
  const historyValueCount = historyValueCounts.reduce((sum, size) => sum + size, 0);
  if (max_values === undefined || historyValueCount <= max_values) return undefined;
  if (status === 422) return invalidFieldsReply([{ source: "from", message: "The range holds too many values." }]);
  return errorReply(status, status === 504 ? "Historical data could not be retrieved." : UNEXPECTED_ERROR_MESSAGE);
}
