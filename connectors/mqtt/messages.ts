import { type HistoryText, historyText } from "../../src/core/codec/history-event.ts";
import { listText } from "../../src/core/codec/point-text.ts";
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
import type { TopicParts, Topics } from "./topics.ts";

/** One PUBLISH. */
export interface Message {
  readonly topic: string;
  /** Empty and retained: the broker deletes the retained message. */
  readonly payload: string;
  readonly retain: boolean;
  readonly contentType: "application/json" | "application/cloudevents+json";
  /** MQTT 5 user properties; the event's id among them marks the message as ours. */
  readonly properties: Readonly<Record<string, string>>;
  /** MQTT 5: after this many seconds the broker forgets it. */
  readonly expirySeconds?: number;
  /** MQTT 5 correlation data, base64. */
  readonly correlation?: string;
  /** Best effort for a requester: when the broker rejects it, the event still counts as delivered. */
  readonly bestEffort?: true;
}

interface Retained {
  readonly values: boolean;
  readonly alarms: boolean;
  readonly inventory: boolean;
}

/** How long a broker keeps the state of an alarm that is over, in seconds: a week. MQTT 5 only. */
const RESOLVED_KEPT_SECONDS = 604_800;

/**
 * The messages that make up an event, in the order of sending: first the states that it changes, then the event
 * itself. Measurements have no event of their own; their state message carries the id. All of them carry the number of
 * the event, where it has one.
 */
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
  const parts = { ...topicPartsOf(event), kind: "event", id: event.type };
  return [
    ...states,
    {
      topic: topics.of(parts),
      payload: JSON.stringify(toCloudEvent(event, numbered)),
      retain: false,
      contentType: "application/cloudevents+json",
      properties,
    },
  ];
}

function stateMessages(
  event: AnyEvent,
  topics: Topics,
  retained: Retained,
  properties: Message["properties"],
): readonly Message[] {
  const source = sourceName(event);
  // The most frequent event needs none of the helpers below.
  if (event.type === "tag-value") {
    const parts = { source, site: event.siteid ?? null, kind: "tag", id: String(event.data.tag.id) };
    return [
      {
        topic: topics.of({ ...parts, aspect: "value" }),
        payload: JSON.stringify(value(event, source)),
        retain: retained.values,
        contentType: "application/json",
        properties,
      },
    ];
  }
  const at = (kind: string, id: string | number, aspect: string) =>
    topics.of({ ...topicPartsOf(event), kind, id: String(id), aspect });
  const say = (topic: string, body: unknown, retain: boolean): Message => ({
    topic,
    payload: JSON.stringify(body),
    retain,
    contentType: "application/json",
    properties,
  });
  const listed = (kind: string, id: string | number, object: unknown) =>
    say(at(kind, id, "inventory"), inventory(event, object), retained.inventory);
  /** Clears the retained topics of a removed object. */
  const forget = (kind: string, id: string | number, kept: Readonly<Record<string, boolean>>): Message[] =>
    Object.entries(kept)
      .filter(([, isKept]) => isKept)
      .map(([aspect]) => ({ ...say(at(kind, id, aspect), null, true), payload: "" }));

  /** A response on its own topic and on the requested reply topic where that is allowed. */
  function answers(
    plain: Message,
    { correlation }: { readonly correlation: string | null },
    wished: string | null,
  ): readonly Message[] {
    const message = { ...plain, ...(correlation === null ? {} : { correlation }) };
    if (wished === null || !topics.mayReply(wished)) return [message];
    return [message, { ...message, topic: wished, bestEffort: true }];
  }

  switch (event.type) {
    case "tag-history": {
      const text = historyText(event);
      const { tag, resolution } = text.fact;
      const topic = at("tag", tag.id, `history/${resolution}`);
      return [{ ...say(topic, null, false), payload: history(event, text, source) }];
    }
    case "tag-total": {
      const { tag, resolution } = event.data;
      return [say(at("tag", tag.id, `total/${resolution}`), total(event, source), false)];
    }
    case "tag-added":
    case "tag-changed":
      return [listed("tag", event.data.tag.id, event.data.tag)];
    case "tag-removed":
      return forget("tag", event.data.tag.id, {
        inventory: retained.inventory,
        systems: retained.inventory,
        value: retained.values,
      });
    case "tag-systems-changed": {
      const { tag, systems: fields } = event.data;
      return [say(at("tag", tag.id, "systems"), systems(event, fields), retained.inventory)];
    }

    case "alarm-vanished":
      return forget("alarm", event.data.alarm.id, { state: retained.alarms });
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
      const message = say(at("alarm", event.data.alarm.id, "state"), alarmState(event), retained.alarms);
      if (event.data.alarm.status !== "resolved") return [message];
      return [{ ...message, expirySeconds: RESOLVED_KEPT_SECONDS }];
    }

    case "gateway-added":
    case "gateway-changed":
    case "gateway-online":
    case "gateway-offline": {
      const { gateway } = event.data;
      const state = say(at("gateway", gateway.id, "state"), gatewayState(event), retained.inventory);
      return [state, listed("gateway", gateway.id, gateway)];
    }
    case "gateway-removed": {
      const kept = { state: retained.inventory, inventory: retained.inventory };
      return forget("gateway", event.data.gateway.id, kept);
    }
    case "site-added":
    case "site-changed":
      return [listed("site", event.data.site.id, event.data.site)];
    case "site-removed":
      return forget("site", event.data.site.id, { inventory: retained.inventory });
    case "host-added":
    case "host-changed":
      return [listed("host", event.data.host.id, event.data.host)];
    case "host-removed":
      return forget("host", event.data.host.id, { inventory: retained.inventory });
    case "system-added":
    case "system-changed":
      return [listed("system", event.data.system.id, event.data.system)];
    case "system-removed":
      return forget("system", event.data.system.id, { inventory: retained.inventory });

    case "command-accepted": {
      const { replyTo, tagId } = event.data;
      // Use a subtopic: a requester expects one response on the reply topic, the result.
      const beside = replyTo === null ? null : `${replyTo}/accepted`;
      return answers(say(at("tag", tagId, "accepted"), accepted(event), false), event.data, beside);
    }
    case "command-result": {
      const { tagId, commandId, replyTo } = event.data;
      const topic = tagId === null ? at("command", commandId, "result") : at("tag", tagId, "result");
      return answers(say(topic, result(event), false), event.data, replyTo);
    }

    case "command-not-restored":
      return [say(at("tag", event.data.tagId, "not-restored"), notRestored(event), false)];

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
  }
}

/** Source and site for topics: `/sources/main` is `main`; Plenum itself has none. */
function topicPartsOf(event: Event): Pick<TopicParts, "source" | "site"> {
  return { source: sourceName(event), site: event.siteid ?? null };
}

/**
 * Payload of a message. `ts` is the time of the fact (ISO 8601 UTC), `id` the id of the event. The same fact always
 * has the same id and the same text.
 */
type Body = Readonly<Record<string, unknown>>;

/** `quality` is `good`, `uncertain` or `bad`; a value that could not be read is null and `bad`, never 0. */
export function value(event: Event<"tag-value">, source: string | null): Body {
  const { tag, quality, time, latencyMs, lastGood, behindGateway, type } = event.data;
  return {
    ts: time,
    value: event.data.value,
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

/** Common fields of messages about a logged series. */
function series(
  event: Event,
  { tag, resolution, timeZone }: Pick<TagHistoryFact, "tag" | "resolution" | "timeZone">,
  source: string | null,
): Body {
  return {
    ts: event.time,
    unit: tag.unit,
    name: tag.displayName,
    tag: tag.id,
    source,
    site: event.siteid ?? null,
    resolution,
    timeZone,
  };
}

/** Returns text, because the list of points is written without an object for each. */
export function history(event: Event<"tag-history">, { fact, points }: HistoryText, source: string | null): string {
  const { origin, revised } = fact;
  const before = JSON.stringify({ ...series(event, fact, source), origin, revised });
  return `${before.slice(0, -1)},"points":${listText(points)},"id":${JSON.stringify(event.id)}}`;
}

export function total(event: Event<"tag-total">, source: string | null): Body {
  const { from, to, reset } = event.data;
  return {
    ...series(event, event.data, source),
    from,
    to,
    total: event.data.total,
    reset,
    id: event.id,
  };
}

/**
 * `status` is the value of the service, `event` the last change. With `alarm-out-of-scope` the alarm is not visible
 * any more: the rest is the last known state and `inScope` is false.
 */
function alarmState(event: Event & { readonly data: AlarmFact }): Body {
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

function gatewayState(event: Event<"gateway-added" | "gateway-changed" | "gateway-online" | "gateway-offline">): Body {
  const { gateway } = event.data;
  const state = { ts: event.time, online: gateway.online, name: gateway.displayName, id: event.id };
  return "hosts" in event.data ? { ...state, hosts: event.data.hosts, wholeSite: event.data.wholeSite } : state;
}

/** All fields of a site, gateway, host, system or tag; empty when it is removed. */
export function inventory(event: Event, object: unknown): Body {
  return { ts: event.time, object, id: event.id };
}

/** The systems of a tag; empty when no list contains it. */
export function systems(event: Event, fields: Event<"tag-systems-changed">["data"]["systems"]): Body {
  return { ts: event.time, systems: fields, id: event.id };
}

/** The command is in the journal; `waitMs` is the longest wait for the quota. */
export function accepted(event: Event<"command-accepted">): Body {
  const { replyTo: _replyTo, ...fields } = event.data;
  return { ts: event.time, ...fields, id: event.id };
}

/** `outcome` of a command; a requester finds its own by `commandId` or MQTT 5 correlation data. */
export function result(event: Event<"command-result">): Body {
  const { replyTo: _replyTo, ...fields } = event.data;
  return { ts: event.time, ...fields, id: event.id };
}

/** A temporary value is still in force, because the old value could not be restored. */
function notRestored(event: Event<"command-not-restored">): Body {
  return { ts: event.time, ...event.data, id: event.id };
}
