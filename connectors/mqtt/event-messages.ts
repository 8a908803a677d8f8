import { pointsToJson, type SplitHistoryEvent, splitHistoryEvent } from "../../src/core/codec/history-event.ts";
import type { TagValue } from "../../src/core/model/building.ts";
import { type EventNumber, sequenceAttributes } from "../../src/core/model/delivery-sequence.ts";
import {
  type AlarmEvent,
  type AnyEvent,
  type Event,
  eventSourceName,
  isAlarmEvent,
  isTelemetry,
  toCloudEvent,
} from "../../src/core/model/event.ts";
import type { TagHistoryFact } from "../../src/core/model/history-event-data.ts";
import type { MqttConfig } from "./config.ts";
import type { MessageOf } from "./message-schemas.ts";
import type { MqttMessage } from "./publish-packets.ts";
import type { Topics } from "./topics.ts";

export type MessageOptions = Pick<MqttConfig, "payload" | "retain">;

const RESOLVED_ALARM_RETENTION_SECONDS = 604_800;

/** Returns messages for the states that an event changes. Unless the event is telemetry, adds the event itself. */
export function buildMessages(
  event: Event,
  topics: Topics,
  options: MessageOptions,
  sequence?: EventNumber | null,
): readonly MqttMessage[] {
  const sequenceFields = sequenceAttributes(sequence);
  const properties = { "plenum-event-id": event.id, "plenum-event-type": event.type, ...sequenceFields };
  const stateMessages = buildStateMessages(event as AnyEvent, topics, options, properties);
  if (isTelemetry(event.type)) return stateMessages;
  const topicParts = { source: eventSourceName(event), site: event.siteid ?? null, kind: "event", id: event.type };
  return [
    ...stateMessages,
    {
      topic: topics.buildTopic(topicParts),
      payload: formatMeasurements(toCloudEvent(event, sequenceFields)),
      retain: false,
      contentType: "application/cloudevents+json",
      properties,
    },
  ];
}

type InventoryEvent = Extract<
  AnyEvent,
  { type: `${ObjectKind}-${"added" | "changed" | "removed" | "online" | "offline"}` }
>;
type ObjectKind = "site" | "gateway" | "host" | "system" | "tag";
export type RetainedKind = ObjectKind | "alarm" | "site-status";

const INVENTORY_ASPECTS: Readonly<Record<ObjectKind, readonly string[]>> = {
  site: ["inventory"],
  gateway: ["state", "inventory"],
  host: ["inventory"],
  system: ["inventory"],
  tag: ["inventory", "systems"],
};

const VALUE_ASPECTS: Readonly<Record<MessageOptions["payload"], readonly string[]>> = {
  json: ["value"],
  plain: ["value", "quality"],
  both: ["value", "value/plain", "quality"],
};

export function listRetainedAspects(kind: RetainedKind, { payload, retain }: MessageOptions): readonly string[] {
  if (kind === "alarm") return retain.alarms ? ["state"] : [];
  if (kind === "site-status") return retain.inventory ? ["status"] : [];
  return [
    ...(retain.inventory ? INVENTORY_ASPECTS[kind] : []),
    ...(kind === "tag" && retain.values ? VALUE_ASPECTS[payload] : []),
  ];
}

function buildStateMessages(
  event: AnyEvent,
  topics: Topics,
  options: MessageOptions,
  properties: MqttMessage["properties"],
): readonly MqttMessage[] {
  const { retain: retainOptions } = options;
  const source = eventSourceName(event);
  const site = event.siteid ?? null;
  const formatTopic = (kind: string, id: string | number, aspect: string) =>
    topics.buildTopic({ source, site, kind, id: String(id), aspect });
  const toMessage = (topic: string, body: MessageBody, retain: boolean): MqttMessage => ({
    topic,
    payload: formatMeasurements(body),
    retain,
    contentType: "application/json",
    properties,
  });
  if (event.type === "tag-value")
    return buildValueMessages(event, (aspect) => formatTopic("tag", event.data.tag.id, aspect), options, properties);
  const addTimeAndId = (fields: object): MessageBody => ({ ts: event.time, ...fields, id: event.id });
  const buildDeletions = (kind: RetainedKind, id: string | number): MqttMessage[] =>
    listRetainedAspects(kind, options).map((aspect) => ({
      ...toMessage(formatTopic(kind, id, aspect), {}, true),
      payload: "",
    }));

  function buildReplies(reply: MqttMessage, correlation: string | null, replyTo: string | null): MqttMessage[] {
    const correlatedReply = { ...reply, ...(correlation === null ? {} : { correlation }) };
    if (replyTo === null || !topics.mayReply(replyTo)) return [correlatedReply];
    return [correlatedReply, { ...correlatedReply, topic: replyTo, bestEffort: true }];
  }

  function buildAlarmMessages(event: AlarmEvent): readonly MqttMessage[] {
    const { id, status } = event.data.alarm;
    if (event.type === "alarm-vanished") return buildDeletions("alarm", id);
    // Skip an event of an earlier episode, because the state topic shows only the alarm's current episode.
    if (event.data.superseded === true) return [];
    const message = toMessage(formatTopic("alarm", id, "state"), buildAlarmBody(event), retainOptions.alarms);
    return status === "resolved" ? [{ ...message, expirySeconds: RESOLVED_ALARM_RETENTION_SECONDS }] : [message];
  }

  function buildInventoryMessages({ type, data }: InventoryEvent): readonly MqttMessage[] {
    const [kind, object] = getInventoryObject(data);
    if (type.endsWith("-removed"))
      return [...buildDeletions(kind, object.id), ...(kind === "site" ? buildDeletions("site-status", object.id) : [])];
    const body = addTimeAndId({ object: kind === "tag" ? { ...NO_TAG_NAMES, ...object } : object });
    const inventoryMessage = toMessage(formatTopic(kind, object.id, "inventory"), body, retainOptions.inventory);
    if (!("gateway" in data && "online" in data.gateway)) return [inventoryMessage];
    const { online, displayName: name } = data.gateway;
    const { hosts, wholeSite } = "hosts" in data ? data : { hosts: null, wholeSite: null };
    const gatewayState: MessageOf<"gateway-state"> = { ts: event.time, online, name, hosts, wholeSite, id: event.id };
    return [toMessage(formatTopic(kind, object.id, "state"), gatewayState, retainOptions.inventory), inventoryMessage];
  }

  if (isAlarmEvent(event)) return buildAlarmMessages(event);
  switch (event.type) {
    case "tag-history": {
      const history = splitHistoryEvent(event);
      const topic = formatTopic("tag", history.fact.tag.id, `history/${history.fact.resolution}`);
      return [{ ...toMessage(topic, {}, false), payload: formatHistoryPayload(event, history, source) }];
    }
    case "tag-total": {
      const { tag, resolution, from, to, total, reset } = event.data;
      const seriesFields = buildSeriesFields(event, event.data, source);
      const body: MessageOf<"total"> = { ...seriesFields, from, to, total, reset, id: event.id };
      return [toMessage(formatTopic("tag", tag.id, `total/${resolution}`), body, false)];
    }
    case "tag-systems-changed": {
      const { tag, systems } = event.data;
      return [toMessage(formatTopic("tag", tag.id, "systems"), addTimeAndId({ systems }), retainOptions.inventory)];
    }

    case "command-accepted": {
      const { replyTo, ...fields } = event.data;
      const body: MessageOf<"accepted"> = { ts: event.time, ...fields, id: event.id };
      const message = toMessage(formatTopic("tag", fields.tagId, "accepted"), body, false);
      // Use a subtopic: a requester expects only the result on the reply topic.
      return buildReplies(message, fields.correlation, replyTo === null ? null : `${replyTo}/accepted`);
    }
    case "command-result": {
      const { replyTo, ...fields } = event.data;
      const { commandId, correlation, tagId } = fields;
      const body: MessageOf<"result"> = { ts: event.time, ...fields, id: event.id };
      const topic = tagId === null ? formatTopic("command", commandId, "result") : formatTopic("tag", tagId, "result");
      return buildReplies(toMessage(topic, body, false), correlation, replyTo);
    }
    case "command-not-restored": {
      const body: MessageOf<"not-restored"> = { ts: event.time, ...event.data, id: event.id };
      return [toMessage(formatTopic("tag", event.data.tagId, "not-restored"), body, false)];
    }

    case "site-status-changed": {
      const { status, reason, since, site: statusSite } = event.data;
      const siteId = String(statusSite.id);
      const siteFields = { site: siteId, name: statusSite.displayName };
      const body: MessageOf<"site-status"> = { status, reason, since, ...siteFields, ts: event.time, id: event.id };
      return [toMessage(formatTopic("site-status", siteId, "status"), body, retainOptions.inventory)];
    }

    case "series-break":
    case "history-complete":
    case "day-sealed":
    case "audit-head":
    case "silence-started":
    case "silence-ended":
    case "token-expiring":
    case "source-unavailable":
    case "source-available":
    case "worker-alive":
    case "configuration-changed":
    case "delivery-gap":
      return [];

    default:
      return buildInventoryMessages(event);
  }
}

const NO_TAG_NAMES = { alias: null, path: null, unitCode: null };

function getInventoryObject(data: InventoryEvent["data"]) {
  if ("site" in data) return ["site", data.site] as const;
  if ("gateway" in data) return ["gateway", data.gateway] as const;
  if ("host" in data) return ["host", data.host] as const;
  if ("system" in data) return ["system", data.system] as const;
  return ["tag", data.tag] as const;
}

type MessageBody = Readonly<Record<string, unknown>>;

function buildSeriesFields(
  event: Event,
  { tag, resolution, timeZone }: Pick<TagHistoryFact, "tag" | "resolution" | "timeZone">,
  source: string | null,
) {
  const site = event.siteid ?? null;
  return { ts: event.time, unit: tag.unit, name: tag.displayName, tag: tag.id, source, site, resolution, timeZone };
}

/** Formats history as JSON text without creating an object for each point. */
function formatHistoryPayload(
  event: Event<"tag-history">,
  { fact, points }: SplitHistoryEvent,
  source: string | null,
): string {
  const { origin, revised } = fact;
  const fields: Omit<MessageOf<"history">, "points" | "id"> = {
    ...buildSeriesFields(event, fact, source),
    origin,
    revised,
  };
  const pointsJson = addDecimalPoints(pointsToJson(points));
  return `${JSON.stringify(fields).slice(0, -1)},"points":${pointsJson},"id":${JSON.stringify(event.id)}}`;
}

/** Builds the state of an alarm. For `alarm-out-of-scope`: the last known state with `inScope` false. */
function buildAlarmBody(event: AlarmEvent): MessageOf<"alarm-state"> {
  const { alarm, episode, late, behindGateway } = event.data;
  return {
    ts: event.time,
    status: alarm.status,
    priority: alarm.trigger.priority,
    acknowledged: alarm.acknowledged,
    event: event.type,
    inScope: event.type !== "alarm-out-of-scope",
    episode,
    late,
    behindGateway,
    alarm,
    id: event.id,
  };
}

/** Returns the JSON message of a live value, the bare value and its quality, as the option `payload` selects. */
function buildValueMessages(
  event: Event<"tag-value">,
  formatTopic: (aspect: string) => string,
  { payload, retain }: MessageOptions,
  properties: MqttMessage["properties"],
): readonly MqttMessage[] {
  const valueMessage: MqttMessage = {
    topic: formatTopic("value"),
    payload: payload === "plain" ? "" : formatValueMessage(event),
    retain: retain.values,
    contentType: "application/json",
    properties,
  };
  if (payload === "json") return [valueMessage];
  const { quality, value } = event.data;
  const buildPlainMessage = (aspect: string, text: string): MqttMessage => ({
    ...valueMessage,
    topic: formatTopic(aspect),
    payload: text,
    contentType: "text/plain",
  });
  // Send the value before its quality. A subscriber would apply an earlier quality to the previous value.
  return [
    ...(payload === "both" ? [valueMessage] : []),
    ...(value === null ? [] : [buildPlainMessage(payload === "both" ? "value/plain" : "value", formatPlain(value))]),
    buildPlainMessage("quality", quality),
  ];
}

/** Formats the message of a live value. A value that is `bad` or `stale` is null, never 0. */
function formatValueMessage(event: Event<"tag-value">): string {
  const { tag, value, quality, time, latencyMs, lastGood, behindGateway, staleReason, type } = event.data;
  const fields: Omit<MessageOf<"value">, "value" | "lastGoodValue"> = {
    ts: time,
    quality,
    unit: tag.unit,
    name: tag.displayName,
    alias: tag.alias ?? null,
    description: tag.description,
    tag: tag.id,
    source: eventSourceName(event),
    site: event.siteid ?? null,
    lastGoodTime: lastGood === null ? null : lastGood.time,
    staleReason: staleReason ?? null,
    behindGateway,
    typeBefore: type === undefined ? null : type.before,
    typeNow: type === undefined ? null : type.now,
    latencyMs,
    id: event.id,
  };
  const lastGoodText = formatPlain(lastGood === null ? null : lastGood.value);
  // Format the two values directly: `formatMeasurements`, which searches the JSON, would take a third longer.
  return `{"value":${formatPlain(value)},"lastGoodValue":${lastGoodText},${JSON.stringify(fields).slice(1)}`;
}

function formatPlain(value: TagValue): string {
  if (Number.isSafeInteger(value)) return `${value}.0`;
  const text = String(value);
  return typeof value !== "number" || text.includes(".") ? text : text.replace(/^-?\d+(?=e|$)/, "$&.0");
}

/** A measured number without a decimal point. Texts cannot match, because their quotes are escaped. */
const INTEGER_PATTERN = /"(?:value|lastGoodValue|total|requested|before|readBack|inForce|wanted)":-?\d+(?=[,}e])/g;

/** Formats a message so that measured numbers always have a decimal point, e.g. `20.0`: their type never changes. */
const formatMeasurements = (body: object): string => addDecimalPoints(JSON.stringify(body));

const addDecimalPoints = (json: string): string => json.replace(INTEGER_PATTERN, "$&.0");
