import type { Alarm } from "../../../src/core/model/building.ts";
import { type AlarmFact, type AnyEvent, type Event, sourceName } from "../../../src/core/model/event.ts";
import type { ReceiverConfig } from "./config.ts";
import { type Change, type IncidentStatus, incidentKey } from "./receiver.ts";
import { type IncidentLedger, isOver, keyOf, membersOf, type StoredIncident } from "./stored-incident.ts";
import { parseTimeOr } from "./timing.ts";

/** Rules for applying events to the ledger. */
interface ApplyOptions {
  readonly folding: Folding;
  /** Send alarms that were already active when Plenum first saw them. */
  readonly initial: boolean;
  /** For redelivered events: true while the alarm is still active in the same episode. */
  readonly isActive: (source: string, fact: AlarmFact) => boolean;
  /** For redelivered events: true while the gateway that explained an alarm is offline. */
  readonly isAway: (source: string, gatewayId: string) => boolean;
}

interface At {
  readonly position: number;
  /** Time at which the worker committed the event, UTC; empty for an event outside the log. */
  readonly committedAt: string;
  readonly nowMs: number;
  readonly again: boolean;
}

/** Applies an event to the ledger and returns the keys of the incidents that it concerns. Idempotent. */
export function applyEvent(ledger: IncidentLedger, event: Event, at: At, options: ApplyOptions): readonly string[] {
  const one = event as AnyEvent;
  const source = sourceName(event);
  if (source === null) return [];
  if (one.type === "gateway-online") {
    const before = new Map(ledger);
    const { position, nowMs } = at;
    const back = { position, time: event.time, changeId: event.id, nowMs };
    options.folding.gatewayReturned(ledger, source, one.data.gateway.id, back);
    return [...ledger].filter(([key, stored]) => before.get(key) !== stored).map(([key]) => key);
  }
  if (one.type === "gateway-offline" && one.data.wholeSite) {
    const { id } = one.data.gateway;
    if (at.again && !options.isAway(source, id)) return [];
    const before = new Map(ledger);
    const away = { siteId: Number(event.siteid), position: at.position };
    options.folding.gatewayLost(ledger, source, id, away);
    return [...ledger].filter(([key, stored]) => before.get(key) !== stored).map(([key]) => key);
  }
  if (!isAboutAlarm(one)) return [];
  const key = incidentKey(source, "alarm", one.data.episode);
  const stored = ledger.get(key);
  if (stored !== undefined && at.position <= stored.through) return withGroup(key, stored);
  const next = nextState(stored, one, source, at, options);
  if (next === null) return [];
  // Its group is over. An alarm that comes back stands alone, or joins the group that explains it now.
  const into = next.into === null ? undefined : ledger.get(next.into);
  const isBack = next.into !== null && !isOver(next) && (into === undefined || isOver(into));
  ledger.set(key, isBack ? { ...next, into: null, metMs: at.nowMs } : next);
  if (stored === undefined || isBack) {
    const { behindGateway } = one.data;
    const explains = behindGateway !== null && (!at.again || options.isAway(source, behindGateway));
    options.folding.place(ledger, key, explains ? behindGateway : null);
  }
  const group = ledger.get(key)?.into ?? null;
  if (stored !== undefined && group !== null) options.folding.refresh(ledger, group, event.id, at.nowMs);
  return withGroup(key, ledger.get(key) ?? next);
}

function withGroup(key: string, { into }: StoredIncident): readonly string[] {
  return into === null ? [key] : [key, into];
}

type AlarmEvent = Extract<AnyEvent, { readonly type: `alarm-${string}` }>;

function isAboutAlarm(event: AnyEvent): event is AlarmEvent {
  return event.type.startsWith("alarm-");
}

/** Returns the next state of an incident; null when the event does not concern this sink. */
function nextState(
  stored: StoredIncident | undefined,
  event: AlarmEvent,
  source: string,
  at: At,
  options: ApplyOptions,
): StoredIncident | null {
  const { again, nowMs, position } = at;
  const { alarm, episode } = event.data;
  const change = event.type.slice("alarm-".length) as Change;
  if (stored === undefined) {
    if (change !== "raised" && change !== "retriggered") return null;
    if (event.type === "alarm-raised" && event.data.initial && !options.initial && event.snapshot !== true) return null;
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
  const status = statusAfter(stored, change, alarm);
  return {
    ...stored,
    ...{ alarm, status },
    // A record after the end adds details; the incident stays over.
    change: isOver(stored) && status === "resolved" ? stored.change : change,
    changeId: event.id,
    priority: alarm.trigger.priority,
    endedAt: status === "resolved" ? (alarm.resolvedAt ?? stored.endedAt ?? event.time) : null,
    retriggers: stored.retriggers + (change === "retriggered" ? 1 : 0),
    changedMs: nowMs,
    through: position,
  };
}

/**
 * Start of the `hold` of a new alarm, by the clock of the worker. The clock of the service may be an hour wrong: the
 * alarm would then wait an hour too long, or not at all. For alarms that already existed at the first list or come
 * from a snapshot, only the time of the service is known.
 */
function holdFrom(event: AlarmEvent, { committedAt, nowMs }: At): number {
  const metMs = Math.min(nowMs, parseTimeOr(committedAt, nowMs));
  const wasThere = event.snapshot === true || (event.type === "alarm-raised" && event.data.initial);
  return wasThere ? Math.min(metMs, parseTimeOr(event.data.alarm.triggeredAt, metMs)) : metMs;
}

function statusAfter(stored: StoredIncident, change: Change, alarm: Alarm): IncidentStatus {
  if (change === "resolved") return "resolved";
  if (isOver(stored) && change !== "retriggered" && change !== "raised") return "resolved";
  if (change === "vanished" || change === "out-of-scope") return "unknown";
  if (change === "recovering") return "recovering";
  return statusOf(alarm);
}

function statusOf(alarm: Alarm): IncidentStatus {
  return alarm.acknowledged ? "acknowledged" : alarm.recoveringUntil === null ? "active" : "recovering";
}

/** Returns the alarms of a redelivered batch, so that the sink can look up their present state. */
export function alarmsIn(events: readonly Event[]): readonly { readonly source: string; readonly id: string }[] {
  return (events as readonly AnyEvent[]).flatMap((event) => {
    const source = sourceName(event);
    return source !== null && isAboutAlarm(event) ? [{ source, id: event.data.alarm.id }] : [];
  });
}

/** True for events that change an incident or its text. */
export function concernsIncidents(type: string): boolean {
  return type.startsWith("alarm-") || /^gateway-o(n|ff)line$/.test(type);
}

/** True for events that may fold alarms into an offline gateway. */
export function mayJoinGateway(event: Event): boolean {
  return event.type === "gateway-offline" || (event.data as Partial<AlarmFact>).behindGateway != null;
}

/** Folds alarms into groups: one per offline gateway, one per storm. */
interface Folding {
  /** Folds an alarm that was not sent yet into the offline gateway that explains it, or into its storm. */
  place(ledger: IncidentLedger, key: string, behindGateway: string | null): void;
  /** The only gateway of a site is offline: folds the alarms of the site that were not sent yet. */
  gatewayLost(
    ledger: IncidentLedger,
    source: string,
    gatewayId: string,
    at: { readonly siteId: number; readonly position: number },
  ): void;
  /** The gateway is online again. Alarms that are still active three minutes later leave the group. */
  gatewayReturned(ledger: IncidentLedger, source: string, gatewayId: string, at: GatewayReturn): void;
  /** Closes groups whose gateway has been online for three minutes. */
  settle(ledger: IncidentLedger, keys: readonly string[], nowMs: number): void;
  /** Updates a group after one of its members changed. */
  refresh(ledger: IncidentLedger, key: string, changeId: string, nowMs: number): void;
}

interface GatewayReturn {
  /** Position of the event in the log. An outage that began after it continues. */
  readonly position: number;
  readonly time: string;
  readonly changeId: string;
  readonly nowMs: number;
}

/** Alarms may end this long after their gateway came back and still end with the group, in milliseconds. */
const SETTLE_MS = 180_000;

export function createFolding(
  { gateway, storm }: ReceiverConfig["fold"],
  /** Returns the display name of a gateway. */
  gatewayName: (source: string, id: string) => string,
): Folding {
  function update(ledger: IncidentLedger, key: string, change: Partial<StoredIncident>): void {
    const stored = ledger.get(key);
    if (stored !== undefined) ledger.set(key, { ...stored, ...change });
  }

  const findOpen = (ledger: IncidentLedger, fits: (stored: StoredIncident, key: string) => boolean) =>
    [...ledger].find(([key, stored]) => !isOver(stored) && fits(stored, key))?.[0];

  function openGateway(ledger: IncidentLedger, alarm: StoredIncident, id: string): string {
    const known = findOpen(
      ledger,
      (stored) => stored.kind === "gateway" && stored.source === alarm.source && stored.gateway?.id === id,
    );
    if (known !== undefined) {
      goesOn(ledger, known, alarm.through);
      return known;
    }
    const group: StoredIncident = {
      ...asGroup(alarm),
      kind: "gateway",
      episode: episodeOf(id, alarm),
      gateway: { id, displayName: gatewayName(alarm.source, id) },
    };
    return begin(ledger, group);
  }

  /** Adds a group. One unsent alarm can start several groups in succession, so each gets its own episode. */
  function begin(ledger: IncidentLedger, group: StoredIncident): string {
    let begun = group;
    for (let n = 2; ledger.has(keyOf(begun)); n += 1) begun = { ...group, episode: `${group.episode} ${n}` };
    ledger.set(keyOf(begun), begun);
    return keyOf(begun);
  }

  function openStorm(ledger: IncidentLedger, alarm: StoredIncident): string | undefined {
    if (storm === undefined) return undefined;
    const isHere = (stored: StoredIncident) =>
      storm.over === "all" || (stored.source === alarm.source && stored.site?.id === alarm.site?.id);
    // A member that never ends keeps a storm open. Alarms weeks later are not part of it.
    const goesOn = (key: string) => membersOf(ledger, key).some(({ metMs }) => metMs > alarm.metMs - storm.within);
    const known = findOpen(ledger, (stored, key) => stored.kind === "storm" && isHere(stored) && goesOn(key));
    if (known !== undefined) return known;
    // Alarms of an offline gateway were not opened, so they do not count.
    const isOpening = ({ into, kind }: StoredIncident) =>
      kind === "alarm" && ledger.get(into ?? "")?.kind !== "gateway";
    const lately = [...ledger.values()].filter(
      (stored) => isOpening(stored) && isHere(stored) && stored.metMs > alarm.metMs - storm.within,
    );
    if (lately.length <= storm.openings) return undefined;
    const group: StoredIncident = {
      ...asGroup(alarm),
      kind: "storm",
      site: storm.over === "all" ? null : alarm.site,
      episode: episodeOf(storm.over, alarm),
    };
    return begin(ledger, group);
  }

  /** The gateway is offline again before its alarms ended. Its earlier return no longer counts. */
  function goesOn(ledger: IncidentLedger, key: string, position: number): void {
    const { settling, ...stored } = ledger.get(key) as StoredIncident;
    if (settling !== undefined) ledger.set(key, { ...stored, through: Math.max(stored.through, position) });
  }

  function end(
    ledger: IncidentLedger,
    key: string,
    { time, changeId }: Pick<GatewayReturn, "time" | "changeId">,
    nowMs: number,
  ): void {
    update(ledger, key, {
      status: "resolved",
      change: "resolved",
      endedAt: time,
      changeId,
      changedMs: nowMs,
    });
    for (const member of membersOf(ledger, key)) {
      if (isOver(member)) continue;
      update(ledger, keyOf(member), { into: null, metMs: nowMs, changedMs: nowMs });
      folding.place(ledger, keyOf(member), null);
    }
  }

  const folding: Folding = {
    place(ledger, key, behindGateway) {
      const alarm = ledger.get(key);
      // The receiver already has the alarm as an incident of its own.
      if (alarm === undefined || alarm.told !== null || alarm.openingMs !== null) return;
      const into =
        gateway && behindGateway !== null ? openGateway(ledger, alarm, behindGateway) : openStorm(ledger, alarm);
      if (into === undefined) return;
      update(ledger, key, { into });
      folding.refresh(ledger, into, alarm.changeId, alarm.changedMs);
    },

    gatewayReturned(ledger, source, gatewayId, { position, time, changeId, nowMs }) {
      const key = findOpen(
        ledger,
        (stored) =>
          stored.kind === "gateway" &&
          stored.source === source &&
          stored.gateway?.id === gatewayId &&
          stored.through < position,
      );
      const group = ledger.get(key ?? "");
      if (key === undefined || group === undefined || group.settling !== undefined) return;
      const wasTold = group.told !== null || group.openingMs !== null;
      if (!wasTold || membersOf(ledger, key).every(isOver)) end(ledger, key, { time, changeId }, nowMs);
      else update(ledger, key, { settling: { untilMs: nowMs + SETTLE_MS, time, changeId } });
    },

    gatewayLost(ledger, source, gatewayId, { siteId, position }) {
      const away = findOpen(
        ledger,
        ({ gateway, kind, ...stored }) => kind === "gateway" && stored.source === source && gateway?.id === gatewayId,
      );
      if (away !== undefined) goesOn(ledger, away, position);
      for (const [key, stored] of [...ledger]) {
        const isHere = stored.kind === "alarm" && stored.source === source && stored.site?.id === siteId;
        if (isHere && stored.into === null && !isOver(stored)) folding.place(ledger, key, gatewayId);
      }
    },

    settle(ledger, keys, nowMs) {
      for (const key of keys) {
        const stored = ledger.get(key);
        const settling = stored?.settling;
        if (stored === undefined || settling === undefined || isOver(stored)) continue;
        const { untilMs } = settling;
        // A wait longer than three minutes means that the clock was set back.
        const isDue = nowMs >= untilMs || untilMs - nowMs > SETTLE_MS;
        if (isDue || membersOf(ledger, key).every(isOver)) end(ledger, key, settling, nowMs);
      }
    },

    refresh(ledger, key, changeId, nowMs) {
      const group = ledger.get(key);
      if (group === undefined) return;
      const members = membersOf(ledger, key);
      const priority = members.map((member) => member.priority).sort()[0] ?? group.priority;
      update(ledger, key, { changeId, priority, change: "members", changedMs: nowMs });
      // A storm ends with its last alarm; a gateway group ends when the gateway is online.
      if (group.kind !== "storm" || members.some((member) => !isOver(member))) return;
      const ends = members.map(({ endedAt }) => endedAt ?? "").sort();
      update(ledger, key, {
        status: "resolved",
        change: "resolved",
        endedAt: ends.at(-1) || group.startedAt,
      });
    },
  };
  return folding;
}

/** One alarm can start several groups, one for each time that it came back. */
function episodeOf(what: string, { episode, retriggers, startedAt }: StoredIncident): string {
  return [what, startedAt, episode, ...(retriggers === 0 ? [] : [retriggers])].join(" ");
}

/** The fields in which a group begins as its first alarm. */
function asGroup(alarm: StoredIncident): StoredIncident {
  const { refused: _, ...rest } = alarm;
  return {
    ...rest,
    alarm: null,
    status: "active",
    change: "members",
    endedAt: null,
    retriggers: 0,
    into: null,
    openingMs: null,
    told: null,
  };
}
