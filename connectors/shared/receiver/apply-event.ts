import type { Alarm } from "../../../src/core/model/building.ts";
import { type AlarmFact, type AnyEvent, type Event, sourceName } from "../../../src/core/model/event.ts";
import { parseTimeOr } from "./agenda.ts";
import type { ReceiverConfig } from "./config.ts";
import { type Change, type IncidentStatus, incidentKey } from "./receiver.ts";
import { type IncidentLedger, isOver, keyOf, membersOf, newIncident, type StoredIncident } from "./stored-incident.ts";

export interface LedgerUpdate {
  readonly ledger: IncidentLedger;
  readonly fold: ReceiverConfig["fold"];
  readonly initial: boolean;
  readonly gatewayName: (source: string, id: string) => string;
  /** For redelivered events: whether the alarm is still active in the same episode. */
  readonly isActive: (source: string, fact: AlarmFact) => boolean;
  /** For redelivered events: whether the gateway that explained an alarm is offline. */
  readonly isAway: (source: string, gatewayId: string) => boolean;
}

export interface EventContext {
  /** 0 for an event outside the log. */
  readonly position: number;
  /** UTC; empty for an event outside the log. */
  readonly committedAt: string;
  readonly nowMs: number;
  readonly again: boolean;
}

/** Returns the keys of the incidents that changed. Idempotent. */
export function applyEvent(update: LedgerUpdate, event: Event, context: EventContext): readonly string[] {
  const { ledger } = update;
  const { again, nowMs, position } = context;
  const one = event as AnyEvent;
  const source = sourceName(event);
  if (source === null) return [];
  if (one.type === "gateway-online") {
    const back = { position, time: event.time, changeId: event.id, nowMs };
    return changedKeys(ledger, () => gatewayReturned(update, source, one.data.gateway.id, back));
  }
  if (one.type === "gateway-offline" && one.data.wholeSite) {
    const { id } = one.data.gateway;
    if (again && !update.isAway(source, id)) return [];
    return changedKeys(ledger, () => gatewayLost(update, source, id, Number(event.siteid), position));
  }
  if (!isAboutAlarm(one)) return [];
  const key = incidentKey(source, "alarm", one.data.episode);
  const stored = ledger.get(key);
  if (stored !== undefined && position <= stored.through) return withGroup(key, stored);
  const next = nextState(stored, one, source, update, context);
  if (next === null) return [];
  // An alarm that comes back after the end of its group stands alone, or joins the group that explains it now.
  const group = ledger.get(next.into ?? "");
  const isBack = next.into !== null && !isOver(next) && (group === undefined || isOver(group));
  ledger.set(key, isBack ? { ...next, into: null, metMs: nowMs } : next);
  if (stored === undefined || isBack) {
    const { behindGateway } = one.data;
    const explains = behindGateway !== null && (!again || update.isAway(source, behindGateway));
    fold(update, key, explains ? behindGateway : null);
  }
  const into = ledger.get(key)?.into ?? null;
  if (stored !== undefined && into !== null) refreshGroup(ledger, into, event.id, nowMs);
  return withGroup(key, ledger.get(key) ?? next);
}

function changedKeys(ledger: IncidentLedger, change: () => void): readonly string[] {
  const before = new Map(ledger);
  change();
  return [...ledger].filter(([key, stored]) => before.get(key) !== stored).map(([key]) => key);
}

const withGroup = (key: string, { into }: StoredIncident): readonly string[] => (into === null ? [key] : [key, into]);

type AlarmEvent = Extract<AnyEvent, { readonly type: `alarm-${string}` }>;

const isAboutAlarm = (event: AnyEvent): event is AlarmEvent => event.type.startsWith("alarm-");

function nextState(
  stored: StoredIncident | undefined,
  event: AlarmEvent,
  source: string,
  { initial, isActive }: LedgerUpdate,
  context: EventContext,
): StoredIncident | null {
  const { nowMs, position } = context;
  const { alarm, episode } = event.data;
  const change = event.type.slice("alarm-".length) as Change;
  const next = { alarm, changeId: event.id, priority: alarm.trigger.priority, changedMs: nowMs, through: position };
  if (stored === undefined) {
    if (change !== "raised" && change !== "retriggered") return null;
    if (event.type === "alarm-raised" && event.data.initial && !initial && event.snapshot !== true) return null;
    if (context.again && !isActive(source, event.data)) return null;
    return newIncident("alarm", source, episode, {
      ...next,
      ...{ change, site: alarm.site, status: statusOf(alarm), startedAt: alarm.triggeredAt },
      ...{ metMs: nowMs, holdFromMs: holdFrom(event, context) },
    });
  }
  const status = statusAfter(stored, change, alarm);
  return {
    ...stored,
    ...next,
    status,
    // A record after the end adds details; the incident stays over.
    change: isOver(stored) && status === "resolved" ? stored.change : change,
    endedAt: status === "resolved" ? (alarm.resolvedAt ?? stored.endedAt ?? event.time) : null,
    retriggers: stored.retriggers + (change === "retriggered" ? 1 : 0),
  };
}

/** By the worker's clock, because the service's may be wrong; for alarms that already existed, by the service's. */
function holdFrom(event: AlarmEvent, { committedAt, nowMs }: EventContext): number {
  const metMs = Math.min(nowMs, parseTimeOr(committedAt, nowMs));
  const existed = event.snapshot === true || (event.type === "alarm-raised" && event.data.initial);
  return existed ? Math.min(metMs, parseTimeOr(event.data.alarm.triggeredAt, metMs)) : metMs;
}

function statusAfter(stored: StoredIncident, change: Change, alarm: Alarm): IncidentStatus {
  if (change === "resolved") return "resolved";
  if (isOver(stored) && change !== "retriggered" && change !== "raised") return "resolved";
  if (change === "vanished" || change === "out-of-scope") return "unknown";
  return change === "recovering" ? "recovering" : statusOf(alarm);
}

function statusOf(alarm: Alarm): IncidentStatus {
  return alarm.acknowledged ? "acknowledged" : alarm.recoveringUntil === null ? "active" : "recovering";
}

export function alarmsIn(events: readonly Event[]): readonly { readonly source: string; readonly id: string }[] {
  return (events as readonly AnyEvent[]).flatMap((event) => {
    const source = sourceName(event);
    return source !== null && isAboutAlarm(event) ? [{ source, id: event.data.alarm.id }] : [];
  });
}

export function concernsIncidents(type: string): boolean {
  return type.startsWith("alarm-") || /^gateway-o(n|ff)line$/.test(type);
}

export function mayJoinGateway(event: Event): boolean {
  return event.type === "gateway-offline" || (event.data as Partial<AlarmFact>).behindGateway != null;
}

interface GatewayReturn {
  /** An outage that began after this position of the log continues. */
  readonly position: number;
  readonly time: string;
  readonly changeId: string;
  readonly nowMs: number;
}

/** Alarms may end this long after their gateway came back and still end with the group. */
const SETTLE_MS = 180_000;

function fold(update: LedgerUpdate, key: string, behindGateway: string | null): void {
  const { ledger } = update;
  const alarm = ledger.get(key);
  // The receiver already has the alarm as an incident of its own.
  if (alarm === undefined || alarm.told !== null || alarm.openingMs !== null) return;
  const isBehindGateway = update.fold.gateway && behindGateway !== null;
  const into = isBehindGateway ? gatewayGroup(update, alarm, behindGateway) : stormGroup(update, alarm);
  if (into === undefined) return;
  ledger.set(key, { ...alarm, into });
  refreshGroup(ledger, into, alarm.changeId, alarm.changedMs);
}

/** Alarms that are still active three minutes later leave the group. */
export function gatewayReturned(
  update: LedgerUpdate,
  source: string,
  gatewayId: string,
  { position, time, changeId, nowMs }: GatewayReturn,
): void {
  const { ledger } = update;
  const [key, group] = openGatewayGroup(ledger, source, gatewayId, position) ?? [];
  if (key === undefined || group === undefined || group.settling !== undefined) return;
  const wasSent = group.told !== null || group.openingMs !== null;
  if (!wasSent || membersOf(ledger, key).every(isOver)) endGroup(update, key, { time, changeId }, nowMs);
  else ledger.set(key, { ...group, settling: { untilMs: nowMs + SETTLE_MS, time, changeId } });
}

/** The only gateway of a site is offline: folds the unsent alarms of the site. */
function gatewayLost(update: LedgerUpdate, source: string, gatewayId: string, siteId: number, position: number): void {
  const { ledger } = update;
  const [key] = openGatewayGroup(ledger, source, gatewayId) ?? [];
  if (key !== undefined) continueOutage(ledger, key, position);
  for (const [alarmKey, stored] of [...ledger]) {
    const isHere = stored.kind === "alarm" && stored.source === source && stored.site?.id === siteId;
    if (isHere && stored.into === null && !isOver(stored)) fold(update, alarmKey, gatewayId);
  }
}

/** Closes groups whose gateway has been online for three minutes, or whose alarms have all ended. */
export function settleGateways(update: LedgerUpdate, keys: readonly string[], nowMs: number): void {
  for (const key of keys) {
    const stored = update.ledger.get(key);
    if (stored?.settling === undefined || isOver(stored)) continue;
    const { untilMs } = stored.settling;
    // A wait longer than three minutes means that the clock was set back.
    const isDue = nowMs >= untilMs || untilMs - nowMs > SETTLE_MS;
    if (isDue || membersOf(update.ledger, key).every(isOver)) endGroup(update, key, stored.settling, nowMs);
  }
}

/** Finds the open group of a gateway whose last event is before a position. */
function openGatewayGroup(ledger: IncidentLedger, source: string, id: string, position = Number.POSITIVE_INFINITY) {
  return [...ledger].find(
    ([, { gateway, kind, ...stored }]) =>
      kind === "gateway" &&
      !isOver(stored) &&
      stored.source === source &&
      gateway?.id === id &&
      stored.through < position,
  );
}

function gatewayGroup({ ledger, gatewayName }: LedgerUpdate, alarm: StoredIncident, id: string): string {
  const [key] = openGatewayGroup(ledger, alarm.source, id) ?? [];
  if (key === undefined) {
    const gateway = { id, displayName: gatewayName(alarm.source, id) };
    return addGroup(ledger, alarm, { kind: "gateway", episode: episodeOf(id, alarm), gateway });
  }
  continueOutage(ledger, key, alarm.through);
  return key;
}

/** The gateway is offline again before its alarms ended. Its earlier return no longer counts. */
function continueOutage(ledger: IncidentLedger, key: string, position: number): void {
  const { settling, ...stored } = ledger.get(key) as StoredIncident;
  if (settling !== undefined) ledger.set(key, { ...stored, through: Math.max(stored.through, position) });
}

function stormGroup({ ledger, fold }: LedgerUpdate, alarm: StoredIncident): string | undefined {
  const { storm } = fold;
  if (storm === undefined) return undefined;
  const isHere = ({ site, source }: StoredIncident) =>
    storm.over === "all" || (source === alarm.source && site?.id === alarm.site?.id);
  const isRecent = ({ metMs }: StoredIncident) => metMs > alarm.metMs - storm.within;
  // A member that never ends keeps a storm open. Alarms weeks later are not part of it.
  const known = [...ledger].find(
    ([key, stored]) =>
      stored.kind === "storm" && !isOver(stored) && isHere(stored) && membersOf(ledger, key).some(isRecent),
  );
  if (known !== undefined) return known[0];
  // Alarms of an offline gateway were not opened, so they do not count.
  const isOpening = ({ into, kind }: StoredIncident) => kind === "alarm" && ledger.get(into ?? "")?.kind !== "gateway";
  const openings = [...ledger.values()].filter((stored) => isOpening(stored) && isHere(stored) && isRecent(stored));
  if (openings.length <= storm.openings) return undefined;
  const site = storm.over === "all" ? null : alarm.site;
  return addGroup(ledger, alarm, { kind: "storm", site, episode: episodeOf(storm.over, alarm) });
}

function addGroup(ledger: IncidentLedger, alarm: StoredIncident, group: Partial<StoredIncident>): string {
  const { refused: _, ...rest } = alarm;
  let added: StoredIncident = {
    ...rest,
    ...{ alarm: null, status: "active", change: "members", endedAt: null, retriggers: 0 },
    ...{ into: null, openingMs: null, told: null },
    ...group,
  };
  // One unsent alarm can start several groups in succession, so each gets its own episode.
  for (let n = 2; ledger.has(keyOf(added)); n += 1) added = { ...added, episode: `${group.episode} ${n}` };
  ledger.set(keyOf(added), added);
  return keyOf(added);
}

/** One alarm can start several groups, one for each time that it came back. */
function episodeOf(what: string, { episode, retriggers, startedAt }: StoredIncident): string {
  return [what, startedAt, episode, ...(retriggers === 0 ? [] : [retriggers])].join(" ");
}

/** Closes a group of a gateway. Its active alarms become incidents of their own, or a storm. */
function endGroup(
  update: LedgerUpdate,
  key: string,
  { time, changeId }: Pick<GatewayReturn, "time" | "changeId">,
  nowMs: number,
): void {
  const { ledger } = update;
  patch(ledger, key, { status: "resolved", change: "resolved", endedAt: time, changeId, changedMs: nowMs });
  for (const member of membersOf(ledger, key)) {
    if (isOver(member)) continue;
    patch(ledger, keyOf(member), { into: null, metMs: nowMs, changedMs: nowMs });
    fold(update, keyOf(member), null);
  }
}

function refreshGroup(ledger: IncidentLedger, key: string, changeId: string, nowMs: number): void {
  const group = ledger.get(key);
  if (group === undefined) return;
  const members = membersOf(ledger, key);
  const priority = members.map((member) => member.priority).sort()[0] ?? group.priority;
  patch(ledger, key, { changeId, priority, change: "members", changedMs: nowMs });
  // A storm ends with its last alarm; a gateway group ends when the gateway is online.
  if (group.kind !== "storm" || members.some((member) => !isOver(member))) return;
  const [lastEnd] = members.map(({ endedAt }) => endedAt ?? "").sort((a, b) => (a < b ? 1 : -1));
  patch(ledger, key, { status: "resolved", change: "resolved", endedAt: lastEnd || group.startedAt });
}

function patch(ledger: IncidentLedger, key: string, change: Partial<StoredIncident>): void {
  const stored = ledger.get(key);
  if (stored !== undefined) ledger.set(key, { ...stored, ...change });
}
