import type { HistoryText } from "../../src/core/codec/history-event.ts";
import { listText } from "../../src/core/codec/point-text.ts";
import type { AlarmFact, Event } from "../../src/core/model/event.ts";
import type { TagHistoryFact } from "../../src/core/model/history-facts.ts";

/**
 * What the messages say, as JSON. Each has `ts`, the time of the fact (ISO 8601 UTC), and `id`, the id of the
 * event that it comes from: the same fact has the same id and the same text whenever it is sent again.
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

/** What every message of a logged series begins with. */
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

/** As text, because of the points: a list of them is written without making an object of each. */
export function history(
  event: Event<"tag-history">,
  { fact, points }: HistoryText,
  source: string | null,
): string {
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
 * `status` is the service's own word. `event` says what happened last. With `alarm-out-of-scope` the token no
 * longer shows the alarm: the rest is then what was known before, and `inScope` is false.
 */
export function alarmState(event: Event & { readonly data: AlarmFact }): Body {
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

export function gatewayState(
  event: Event<"gateway-added" | "gateway-changed" | "gateway-online" | "gateway-offline">,
): Body {
  const { gateway } = event.data;
  const state = { ts: event.time, online: gateway.online, name: gateway.displayName, id: event.id };
  return "hosts" in event.data
    ? { ...state, hosts: event.data.hosts, wholeSite: event.data.wholeSite }
    : state;
}

/** Everything the service says about a site, gateway, host, system or tag; empty once it is gone. */
export function inventory(event: Event, object: unknown): Body {
  return { ts: event.time, object, id: event.id };
}

/** The systems that have a tag; none once no list shows it as theirs. */
export function systems(event: Event, told: Event<"tag-systems-changed">["data"]["systems"]): Body {
  return { ts: event.time, systems: told, id: event.id };
}

/** A command is in the journal; `waitMs` says how long the quota will make it wait at most. */
export function accepted(event: Event<"command-accepted">): Body {
  const { replyTo: _replyTo, ...told } = event.data;
  return { ts: event.time, ...told, id: event.id };
}

/** `outcome` is the end of the command; a requester finds its own by `commandId` or MQTT 5 correlation data. */
export function result(event: Event<"command-result">): Body {
  const { replyTo: _replyTo, ...told } = event.data;
  return { ts: event.time, ...told, id: event.id };
}

/** A value that was meant for a time is still in force, because the old one could not be put back. */
export function notRestored(event: Event<"command-not-restored">): Body {
  return { ts: event.time, ...event.data, id: event.id };
}
