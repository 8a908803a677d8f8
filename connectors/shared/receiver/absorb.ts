import type { Alarm } from "../../../src/core/model/building.ts";
import { type AlarmFact, type AnyEvent, type Event, sourceName } from "../../../src/core/model/event.ts";
import type { Folding } from "./folding.ts";
import { type Change, type IncidentStatus, incidentKey } from "./incident.ts";
import { type IncidentLedger, isOver, type StoredIncident } from "./stored-incident.ts";
import { msOr } from "./timing.ts";

/** What a sink makes of events: changes of its book, and which incidents they are about. */
export interface AbsorbOptions {
  readonly folding: Folding;
  /** Whether alarms that were active at the first sight are told. */
  readonly initial: boolean;
  /** For events that are sent again: whether the alarm is active in the same episode still. */
  readonly isActive: (source: string, fact: AlarmFact) => boolean;
  /** For the same: whether the gateway that explained an alarm is away still, or again. */
  readonly isAway: (source: string, gatewayId: string) => boolean;
}

interface At {
  readonly position: number;
  /** When the worker committed it, UTC; empty where it stands nowhere in the log. */
  readonly committedAt: string;
  readonly nowMs: number;
  readonly again: boolean;
}

/** Takes an event into the book; answers the keys of the incidents that it is about. Twice is as good as once. */
export function absorb(
  book: IncidentLedger,
  event: Event,
  at: At,
  options: AbsorbOptions,
): readonly string[] {
  const one = event as AnyEvent;
  const source = sourceName(event);
  if (source === null) return [];
  if (one.type === "gateway-online") {
    const before = new Map(book);
    const { position, nowMs } = at;
    const back = { position, time: event.time, changeId: event.id, nowMs };
    options.folding.gatewayBack(book, source, one.data.gateway.id, back);
    return [...book].filter(([key, held]) => before.get(key) !== held).map(([key]) => key);
  }
  if (one.type === "gateway-offline" && one.data.wholeSite) {
    const { id } = one.data.gateway;
    if (at.again && !options.isAway(source, id)) return [];
    const before = new Map(book);
    const away = { siteId: Number(event.siteid), position: at.position };
    options.folding.gatewayAway(book, source, id, away);
    return [...book].filter(([key, held]) => before.get(key) !== held).map(([key]) => key);
  }
  if (!isAboutAlarm(one)) return [];
  const key = incidentKey(source, "alarm", one.data.episode);
  const held = book.get(key);
  if (held !== undefined && at.position <= held.through) return withGroup(key, held);
  const next = nextOf(held, one, source, at, options);
  if (next === null) return [];
  // What it was folded into is over, and told as that or forgotten: one that comes back stands by itself, or in what
  // explains it now.
  const into = next.into === null ? undefined : book.get(next.into);
  const isBack = next.into !== null && !isOver(next) && (into === undefined || isOver(into));
  book.set(key, isBack ? { ...next, into: null, metMs: at.nowMs } : next);
  if (held === undefined || isBack) {
    const { behindGateway } = one.data;
    const explains = behindGateway !== null && (!at.again || options.isAway(source, behindGateway));
    options.folding.place(book, key, explains ? behindGateway : null);
  }
  const group = book.get(key)?.into ?? null;
  if (held !== undefined && group !== null) options.folding.refresh(book, group, event.id, at.nowMs);
  return withGroup(key, book.get(key) ?? next);
}

function withGroup(key: string, { into }: StoredIncident): readonly string[] {
  return into === null ? [key] : [key, into];
}

type AlarmEvent = Extract<AnyEvent, { readonly type: `alarm-${string}` }>;

function isAboutAlarm(event: AnyEvent): event is AlarmEvent {
  return event.type.startsWith("alarm-");
}

/** What becomes of an incident by an event; null when the event does not concern this sink. */
function nextOf(
  held: StoredIncident | undefined,
  event: AlarmEvent,
  source: string,
  at: At,
  options: AbsorbOptions,
): StoredIncident | null {
  const { again, nowMs, position } = at;
  const { alarm, episode } = event.data;
  const change = event.type.slice("alarm-".length) as Change;
  if (held === undefined) {
    if (change !== "raised" && change !== "retriggered") return null;
    if (event.type === "alarm-raised" && event.data.initial && !options.initial && event.snapshot !== true)
      return null;
    if (again && !options.isActive(source, event.data)) return null;
    return {
      kind: "alarm",
      ...{ source, episode, alarm, change },
      site: alarm.site,
      gateway: null,
      priority: alarm.trigger.priority,
      status: statusOf(alarm),
      changeId: event.id,
      startedAt: alarm.triggeredAt,
      endedAt: null,
      retriggers: 0,
      into: null,
      metMs: nowMs,
      changedMs: nowMs,
      holdFromMs: holdFrom(event, at),
      through: position,
      openingMs: null,
      told: null,
    };
  }
  const status = statusAfter(held, change, alarm);
  return {
    ...held,
    ...{ alarm, status },
    // A record that came after the end says more of what was, and does not change that it is over.
    change: isOver(held) && status === "resolved" ? held.change : change,
    changeId: event.id,
    priority: alarm.trigger.priority,
    endedAt: status === "resolved" ? (alarm.resolvedAt ?? held.endedAt ?? event.time) : null,
    retriggers: held.retriggers + (change === "retriggered" ? 1 : 0),
    changedMs: nowMs,
    through: position,
  };
}

/**
 * Since when the `hold` of a new alarm is counted: since the worker met it, by the worker's clock. When it began is said
 * by the service's: with one of the two wrong, that would be an hour to come, and nobody would be told, or an hour ago,
 * and every alarm that ends by itself would be. One that really began long before, while the worker was away, may still
 * end soon, and waits for its `hold` and no longer. But what was met at a first look, or is told out of the state, has
 * lasted by the service's word, which then is all that there is.
 */
function holdFrom(event: AlarmEvent, { committedAt, nowMs }: At): number {
  const metMs = Math.min(nowMs, msOr(committedAt, nowMs));
  const wasThere = event.snapshot === true || (event.type === "alarm-raised" && event.data.initial);
  return wasThere ? Math.min(metMs, msOr(event.data.alarm.triggeredAt, metMs)) : metMs;
}

function statusAfter(held: StoredIncident, change: Change, alarm: Alarm): IncidentStatus {
  if (change === "resolved") return "resolved";
  if (isOver(held) && change !== "retriggered" && change !== "raised") return "resolved";
  if (change === "vanished" || change === "out-of-scope") return "unknown";
  if (change === "recovering") return "recovering";
  return statusOf(alarm);
}

function statusOf(alarm: Alarm): IncidentStatus {
  return alarm.acknowledged ? "acknowledged" : alarm.recoveringUntil === null ? "active" : "recovering";
}

/** The alarms of a batch that was delivered before, to look up what has become of them. */
export function alarmsIn(
  events: readonly Event[],
): readonly { readonly source: string; readonly id: string }[] {
  return (events as readonly AnyEvent[]).flatMap((event) => {
    const source = sourceName(event);
    return source !== null && isAboutAlarm(event) ? [{ source, id: event.data.alarm.id }] : [];
  });
}

/** Whether an event of this type changes an incident, or how it is told. */
export function concernsIncidents(type: string): boolean {
  return type.startsWith("alarm-") || /^gateway-o(n|ff)line$/.test(type);
}

/** Whether an event may put alarms into the absence of a gateway. */
export function mayFold(event: Event): boolean {
  return event.type === "gateway-offline" || (event.data as Partial<AlarmFact>).behindGateway != null;
}
