import { pointsToJson, type SplitHistoryEvent, splitHistoryEvent } from "../../src/core/codec/history-event.ts";
import { type EventNumber, sequenceAttributes } from "../../src/core/model/delivery-sequence.ts";
import {
  type AlarmFact,
  type AnyEvent,
  type Event,
  eventSourceName,
  isTelemetry,
  toCloudEvent,
} from "../../src/core/model/event.ts";
import type { TagHistoryFact } from "../../src/core/model/history-event-data.ts";
import type { MqttConfig } from "./config.ts";
import type { Topics } from "./topics.ts";

export interface MqttMessage {
  readonly topic: string;
  /** Message body. An empty retained message makes the broker delete the retained message of the topic. */
  readonly payload: string;
  readonly retain: boolean;
  readonly contentType: "application/json" | "application/cloudevents+json";
  readonly properties: Readonly<Record<string, string>>;
  readonly expirySeconds?: number;
  readonly correlation?: string;
  /** The event counts as delivered even if the broker rejects this message. */
  readonly bestEffort?: true;
}

type RetainOptions = MqttConfig["retain"];

const RESOLVED_ALARM_RETENTION_SECONDS = 604_800;

/** Returns messages for the states that an event changes, then the event itself unless it is telemetry. */
export function buildMessages(
  event: Event,
  topics: Topics,
  retained: RetainOptions,
  sequence?: EventNumber | null,
): readonly MqttMessage[] {
  const sequenceFields = sequenceAttributes(sequence);
  const properties = { "plenum-event-id": event.id, "plenum-event-type": event.type, ...sequenceFields };
  const states = buildStateMessages(event as AnyEvent, topics, retained, properties);
  if (isTelemetry(event.type)) return states;
  const topicParts = { source: eventSourceName(event), site: event.siteid ?? null, kind: "event", id: event.type };
  return [
    ...states,
    {
      topic: topics.buildTopic(topicParts),
      payload: JSON.stringify(toCloudEvent(event, sequenceFields)),
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

/** Retained topics of each kind of object, with the `retain` option that enables each topic. */
const RETAIN_OPTION_BY_ASPECT: Readonly<Record<ObjectKind, Readonly<Record<string, keyof RetainOptions>>>> = {
  site: { inventory: "inventory" },
  gateway: { state: "inventory", inventory: "inventory" },
  host: { inventory: "inventory" },
  system: { inventory: "inventory" },
  tag: { inventory: "inventory", systems: "inventory", value: "values" },
};

function buildStateMessages(
  event: AnyEvent,
  topics: Topics,
  retained: RetainOptions,
  properties: MqttMessage["properties"],
): readonly MqttMessage[] {
  const source = eventSourceName(event);
  const site = event.siteid ?? null;
  const formatTopic = (kind: string, id: string | number, aspect: string) =>
    topics.buildTopic({ source, site, kind, id: String(id), aspect });
  const toJson = (topic: string, body: MessageBody, retain: boolean): MqttMessage => ({
    topic,
    payload: JSON.stringify(body),
    retain,
    contentType: "application/json",
    properties,
  });
  if (event.type === "tag-value")
    return [toJson(formatTopic("tag", event.data.tag.id, "value"), buildValueBody(event, source), retained.values)];
  const withTimeAndId = (fields: object): MessageBody => ({ ts: event.time, ...fields, id: event.id });
  const deleteRetained = (
    kind: string,
    id: string | number,
    aspects: Readonly<Record<string, keyof RetainOptions>>,
  ): MqttMessage[] =>
    Object.entries(aspects)
      .filter(([, option]) => retained[option])
      .map(([aspect]) => ({ ...toJson(formatTopic(kind, id, aspect), {}, true), payload: "" }));

  function buildReplies(plain: MqttMessage, correlation: string | null, replyTo: string | null): MqttMessage[] {
    const message = { ...plain, ...(correlation === null ? {} : { correlation }) };
    if (replyTo === null || !topics.mayReply(replyTo)) return [message];
    return [message, { ...message, topic: replyTo, bestEffort: true }];
  }

  function buildInventoryMessages({ type, data }: InventoryEvent): readonly MqttMessage[] {
    const [kind, object] = getInventoryObject(data);
    if (type.endsWith("-removed")) return deleteRetained(kind, object.id, RETAIN_OPTION_BY_ASPECT[kind]);
    const inventory = toJson(formatTopic(kind, object.id, "inventory"), withTimeAndId({ object }), retained.inventory);
    if (!("gateway" in data && "online" in data.gateway)) return [inventory];
    const { online, displayName: name } = data.gateway;
    const affectedHosts = "hosts" in data ? { hosts: data.hosts, wholeSite: data.wholeSite } : {};
    const gatewayState = { ts: event.time, online, name, id: event.id, ...affectedHosts };
    return [toJson(formatTopic(kind, object.id, "state"), gatewayState, retained.inventory), inventory];
  }

  switch (event.type) {
    case "tag-history": {
      const history = splitHistoryEvent(event);
      const topic = formatTopic("tag", history.fact.tag.id, `history/${history.fact.resolution}`);
      return [{ ...toJson(topic, {}, false), payload: formatHistoryPayload(event, history, source) }];
    }
    case "tag-total": {
      const { tag, resolution } = event.data;
      return [toJson(formatTopic("tag", tag.id, `total/${resolution}`), buildTotalBody(event, source), false)];
    }
    case "tag-systems-changed": {
      const { tag, systems } = event.data;
      return [toJson(formatTopic("tag", tag.id, "systems"), withTimeAndId({ systems }), retained.inventory)];
    }

    case "alarm-vanished":
      return deleteRetained("alarm", event.data.alarm.id, { state: "alarms" });
    case "alarm-raised":
    case "alarm-resolved":
    case "alarm-acknowledged":
    case "alarm-unacknowledged":
    case "alarm-recovering":
    case "alarm-retriggered":
    case "alarm-changed":
    case "alarm-out-of-scope": {
      // The state topic shows only the current episode of an alarm.
      if (event.data.superseded === true) return [];
      const { id, status } = event.data.alarm;
      const message = toJson(formatTopic("alarm", id, "state"), buildAlarmBody(event), retained.alarms);
      return status === "resolved" ? [{ ...message, expirySeconds: RESOLVED_ALARM_RETENTION_SECONDS }] : [message];
    }

    case "command-accepted": {
      const { replyTo, ...fields } = event.data;
      const message = toJson(formatTopic("tag", fields.tagId, "accepted"), withTimeAndId(fields), false);
      // A subtopic, because a requester expects a single response on the reply topic: the result.
      return buildReplies(message, fields.correlation, replyTo === null ? null : `${replyTo}/accepted`);
    }
    case "command-result": {
      const { replyTo, ...fields } = event.data;
      const { commandId, correlation, tagId } = fields;
      const topic = tagId === null ? formatTopic("command", commandId, "result") : formatTopic("tag", tagId, "result");
      return buildReplies(toJson(topic, withTimeAndId(fields), false), correlation, replyTo);
    }
    case "command-not-restored":
      return [toJson(formatTopic("tag", event.data.tagId, "not-restored"), withTimeAndId(event.data), false)];

    case "series-break":
    case "silent-sensors":
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

function getInventoryObject(data: InventoryEvent["data"]) {
  if ("site" in data) return ["site", data.site] as const;
  if ("gateway" in data) return ["gateway", data.gateway] as const;
  if ("host" in data) return ["host", data.host] as const;
  if ("system" in data) return ["system", data.system] as const;
  return ["tag", data.tag] as const;
}

type MessageBody = Readonly<Record<string, unknown>>;

/** Builds the message of a live value. An unreadable value is null with quality `bad`, never 0. */
function buildValueBody(event: Event<"tag-value">, source: string | null): MessageBody {
  const { tag, value, quality, time, latencyMs, lastGood, behindGateway, type } = event.data;
  return {
    ts: time,
    value,
    unit: tag.unit,
    quality,
    ...(type === undefined ? {} : { type }),
    name: tag.displayName,
    description: tag.description,
    tag: tag.id,
    source,
    site: event.siteid ?? null,
    lastGood,
    behindGateway,
    latencyMs,
    id: event.id,
  };
}

function buildSeriesFields(
  event: Event,
  { tag, resolution, timeZone }: Pick<TagHistoryFact, "tag" | "resolution" | "timeZone">,
  source: string | null,
): MessageBody {
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
  const fieldsJson = JSON.stringify({ ...buildSeriesFields(event, fact, source), origin, revised });
  return `${fieldsJson.slice(0, -1)},"points":${pointsToJson(points)},"id":${JSON.stringify(event.id)}}`;
}

function buildTotalBody(event: Event<"tag-total">, source: string | null): MessageBody {
  const { from, to, total, reset } = event.data;
  return { ...buildSeriesFields(event, event.data, source), from, to, total, reset, id: event.id };
}

/** Builds the state of an alarm. For `alarm-out-of-scope`: the last known state with `inScope` false. */
function buildAlarmBody(event: Event & { readonly data: AlarmFact }): MessageBody {
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
