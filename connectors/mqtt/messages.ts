import { type HistoryText, historyText, listText } from "../../src/core/codec/history-event.ts";
import {
  type AlarmFact,
  type AnyEvent,
  type Event,
  isTelemetry,
  sourceName,
  toCloudEvent,
} from "../../src/core/model/event.ts";
import type { TagHistoryFact } from "../../src/core/model/history-facts.ts";
import { type Sequence, sequenceAttributes } from "../../src/core/model/sequence.ts";
import type { MqttConfig } from "./config.ts";
import type { Topics } from "./topics.ts";

export interface Message {
  readonly topic: string;
  /** Empty and retained: the broker deletes the retained message. */
  readonly payload: string;
  readonly retain: boolean;
  readonly contentType: "application/json" | "application/cloudevents+json";
  readonly properties: Readonly<Record<string, string>>;
  readonly expirySeconds?: number;
  readonly correlation?: string;
  /** When the broker rejects the message, the event still counts as delivered. */
  readonly bestEffort?: true;
}

type Retained = MqttConfig["retain"];

const RESOLVED_RETAINED_SECONDS = 604_800;

/** Returns the states that an event changes, then the event itself unless the event is telemetry. */
export function messagesOf(
  event: Event,
  topics: Topics,
  retained: Retained,
  sequence?: Sequence | null,
): readonly Message[] {
  const numbered = sequenceAttributes(sequence);
  const properties = { "plenum-event-id": event.id, "plenum-event-type": event.type, ...numbered };
  const states = stateMessages(event as AnyEvent, topics, retained, properties);
  if (isTelemetry(event.type)) return states;
  const parts = { source: sourceName(event), site: event.siteid ?? null, kind: "event", id: event.type };
  return [
    ...states,
    {
      topic: topics.topicOf(parts),
      payload: JSON.stringify(toCloudEvent(event, numbered)),
      retain: false,
      contentType: "application/cloudevents+json",
      properties,
    },
  ];
}

type Inventory = Extract<AnyEvent, { type: `${Noun}-${"added" | "changed" | "removed" | "online" | "offline"}` }>;
type Noun = "site" | "gateway" | "host" | "system" | "tag";

/** Topics below an object that the broker retains, each with the option of `retain` that decides. */
const RETAINED_ASPECTS: Readonly<Record<Noun, Readonly<Record<string, keyof Retained>>>> = {
  site: { inventory: "inventory" },
  gateway: { state: "inventory", inventory: "inventory" },
  host: { inventory: "inventory" },
  system: { inventory: "inventory" },
  tag: { inventory: "inventory", systems: "inventory", value: "values" },
};

function stateMessages(
  event: AnyEvent,
  topics: Topics,
  retained: Retained,
  properties: Message["properties"],
): readonly Message[] {
  const source = sourceName(event);
  const site = event.siteid ?? null;
  const topicOf = (kind: string, id: string | number, aspect: string) =>
    topics.topicOf({ source, site, kind, id: String(id), aspect });
  const json = (topic: string, body: Body, retain: boolean): Message => ({
    topic,
    payload: JSON.stringify(body),
    retain,
    contentType: "application/json",
    properties,
  });
  if (event.type === "tag-value") {
    return [json(topicOf("tag", event.data.tag.id, "value"), valueBody(event, source), retained.values)];
  }
  const stamped = (fields: object): Body => ({ ts: event.time, ...fields, id: event.id });
  const clear = (kind: string, id: string | number, aspects: Readonly<Record<string, keyof Retained>>): Message[] =>
    Object.entries(aspects)
      .filter(([, option]) => retained[option])
      .map(([aspect]) => ({ ...json(topicOf(kind, id, aspect), {}, true), payload: "" }));

  function responses(plain: Message, correlation: string | null, replyTo: string | null): readonly Message[] {
    const message = { ...plain, ...(correlation === null ? {} : { correlation }) };
    if (replyTo === null || !topics.mayReply(replyTo)) return [message];
    return [message, { ...message, topic: replyTo, bestEffort: true }];
  }

  function inventoryMessages({ type, data }: Inventory): readonly Message[] {
    const [kind, object] = objectIn(data);
    if (type.endsWith("-removed")) return clear(kind, object.id, RETAINED_ASPECTS[kind]);
    const inventory = json(topicOf(kind, object.id, "inventory"), stamped({ object }), retained.inventory);
    if (!("gateway" in data && "online" in data.gateway)) return [inventory];
    const { online, displayName: name } = data.gateway;
    const reach = "hosts" in data ? { hosts: data.hosts, wholeSite: data.wholeSite } : {};
    const state = { ts: event.time, online, name, id: event.id, ...reach };
    return [json(topicOf(kind, object.id, "state"), state, retained.inventory), inventory];
  }

  switch (event.type) {
    case "tag-history": {
      const text = historyText(event);
      const topic = topicOf("tag", text.fact.tag.id, `history/${text.fact.resolution}`);
      return [{ ...json(topic, {}, false), payload: historyPayload(event, text, source) }];
    }
    case "tag-total": {
      const { tag, resolution } = event.data;
      return [json(topicOf("tag", tag.id, `total/${resolution}`), totalBody(event, source), false)];
    }
    case "tag-systems-changed": {
      const { tag, systems } = event.data;
      return [json(topicOf("tag", tag.id, "systems"), stamped({ systems }), retained.inventory)];
    }

    case "alarm-vanished":
      return clear("alarm", event.data.alarm.id, { state: "alarms" });
    case "alarm-raised":
    case "alarm-resolved":
    case "alarm-acknowledged":
    case "alarm-unacknowledged":
    case "alarm-recovering":
    case "alarm-retriggered":
    case "alarm-changed":
    case "alarm-out-of-scope": {
      // The state topic has the present episode only.
      if (event.data.superseded === true) return [];
      const { id, status } = event.data.alarm;
      const message = json(topicOf("alarm", id, "state"), alarmBody(event), retained.alarms);
      return status === "resolved" ? [{ ...message, expirySeconds: RESOLVED_RETAINED_SECONDS }] : [message];
    }

    case "command-accepted": {
      const { replyTo, ...fields } = event.data;
      const message = json(topicOf("tag", fields.tagId, "accepted"), stamped(fields), false);
      // A subtopic, because a requester expects a single response on the reply topic: the result.
      return responses(message, fields.correlation, replyTo === null ? null : `${replyTo}/accepted`);
    }
    case "command-result": {
      const { replyTo, ...fields } = event.data;
      const { commandId, correlation, tagId } = fields;
      const topic = tagId === null ? topicOf("command", commandId, "result") : topicOf("tag", tagId, "result");
      return responses(json(topic, stamped(fields), false), correlation, replyTo);
    }
    case "command-not-restored":
      return [json(topicOf("tag", event.data.tagId, "not-restored"), stamped(event.data), false)];

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
      return inventoryMessages(event);
  }
}

function objectIn(data: Inventory["data"]) {
  if ("site" in data) return ["site", data.site] as const;
  if ("gateway" in data) return ["gateway", data.gateway] as const;
  if ("host" in data) return ["host", data.host] as const;
  if ("system" in data) return ["system", data.system] as const;
  return ["tag", data.tag] as const;
}

type Body = Readonly<Record<string, unknown>>;

/** A value that could not be read is null and `bad`, never 0. */
function valueBody(event: Event<"tag-value">, source: string | null): Body {
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

function seriesFields(
  event: Event,
  { tag, resolution, timeZone }: Pick<TagHistoryFact, "tag" | "resolution" | "timeZone">,
  source: string | null,
): Body {
  const site = event.siteid ?? null;
  return { ts: event.time, unit: tag.unit, name: tag.displayName, tag: tag.id, source, site, resolution, timeZone };
}

/** Returns text, because the list of points is written without an object for each. */
function historyPayload(event: Event<"tag-history">, { fact, points }: HistoryText, source: string | null): string {
  const { origin, revised } = fact;
  const before = JSON.stringify({ ...seriesFields(event, fact, source), origin, revised });
  return `${before.slice(0, -1)},"points":${listText(points)},"id":${JSON.stringify(event.id)}}`;
}

function totalBody(event: Event<"tag-total">, source: string | null): Body {
  const { from, to, total, reset } = event.data;
  return { ...seriesFields(event, event.data, source), from, to, total, reset, id: event.id };
}

/** For `alarm-out-of-scope`, the rest is the last known state and `inScope` is false. */
function alarmBody(event: Event & { readonly data: AlarmFact }): Body {
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
