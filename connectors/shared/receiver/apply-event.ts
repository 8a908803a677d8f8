import type { Alarm } from "../../../src/core/model/building.ts";
import {
  type AlarmEvent,
  type AlarmFact,
  type AnyEvent,
  type Event,
  eventSourceName,
  isAlarmEvent,
} from "../../../src/core/model/event.ts";
import type { ReceiverConfig } from "./config.ts";
import { parseTimeMsOr } from "./incident-queue.ts";
import { computeIncidentKey, type IncidentChangeKind, type IncidentStatus } from "./receiver-interface.ts";
import {
  createStoredIncident,
  findMembers,
  getIncidentKey,
  type IncidentLedger,
  isResolved,
  type StoredIncident,
} from "./stored-incident.ts";

export interface LedgerUpdate {
  readonly ledger: IncidentLedger;
  readonly fold: ReceiverConfig["fold"];
  readonly initial: boolean;
  readonly gatewayName: (source: string, id: string) => string;
  /** Returns true if the alarm is still active in the same episode. Used only for redelivered events. */
  readonly isActive: (source: string, fact: AlarmFact) => boolean;
  /** Returns true if the gateway whose outage caused an alarm is offline. Used only for redelivered events. */
  readonly isGatewayOffline: (source: string, gatewayId: string) => boolean;
}

export interface DeliveryContext {
  /** Position in the event log; 0 for an event outside the log. */
  readonly position: number;
  /** Time of the commit, UTC; empty for an event outside the log. */
  readonly committedAt: string;
  readonly nowMs: number;
  readonly isRedelivery: boolean;
}

/** Applies an event to the ledger of incidents; a repeated event changes nothing. Returns keys of changed incidents. */
export function applyEvent(update: LedgerUpdate, event: Event, context: DeliveryContext): readonly string[] {
  const { ledger } = update;
  const { isRedelivery, nowMs, position } = context;
  const typedEvent = event as AnyEvent;
  const source = eventSourceName(event);
  if (source === null) return [];
  if (typedEvent.type === "gateway-online") {
    const reconnection = { position, time: event.time, changeId: event.id, nowMs };
    return listChangedKeys(ledger, () => applyGatewayReturn(update, source, typedEvent.data.gateway.id, reconnection));
  }
  if (typedEvent.type === "gateway-offline" && typedEvent.data.wholeSite) {
    const { id } = typedEvent.data.gateway;
    if (isRedelivery && !update.isGatewayOffline(source, id)) return [];
    return listChangedKeys(ledger, () => applyGatewayLoss(update, source, id, Number(event.siteid), position));
  }
  if (!isAlarmEvent(typedEvent)) return [];
  const key = computeIncidentKey(source, "alarm", typedEvent.data.episode);
  const storedIncident = ledger.get(key);
  if (storedIncident !== undefined && position <= storedIncident.through) return keyAndGroupKey(key, storedIncident);
  const nextIncident = computeNextIncident(storedIncident, typedEvent, source, update, context);
  if (nextIncident === null) return [];
  // An alarm that comes back after the end of its group leaves the group, and may join another.
  const alarmGroup = ledger.get(nextIncident.into ?? "");
  const alarmLeavesGroup =
    nextIncident.into !== null && !isResolved(nextIncident) && (alarmGroup === undefined || isResolved(alarmGroup));
  ledger.set(key, alarmLeavesGroup ? { ...nextIncident, into: null, metMs: nowMs } : nextIncident);
  if (storedIncident === undefined || alarmLeavesGroup) {
    const { behindGateway } = typedEvent.data;
    const isExplainedByGateway =
      behindGateway !== null && (!isRedelivery || update.isGatewayOffline(source, behindGateway));
    addAlarmToGroup(update, key, isExplainedByGateway ? behindGateway : null);
  }
  const groupKey = ledger.get(key)?.into ?? null;
  if (storedIncident !== undefined && groupKey !== null) refreshIncidentGroup(ledger, groupKey, event.id, nowMs);
  return keyAndGroupKey(key, ledger.get(key) ?? nextIncident);
}

function listChangedKeys(ledger: IncidentLedger, applyChange: () => void): readonly string[] {
  const previousLedger = new Map(ledger);
  applyChange();
  return [...ledger].filter(([key, incident]) => previousLedger.get(key) !== incident).map(([key]) => key);
}

const keyAndGroupKey = (key: string, { into }: StoredIncident): readonly string[] =>
  into === null ? [key] : [key, into];

function computeNextIncident(
  storedIncident: StoredIncident | undefined,
  event: AlarmEvent,
  source: string,
  { initial, isActive }: LedgerUpdate,
  context: DeliveryContext,
): StoredIncident | null {
  const { nowMs, position } = context;
  const { alarm, episode } = event.data;
  const incidentChange = event.type.slice("alarm-".length) as IncidentChangeKind;
  const { priority } = alarm.trigger;
  const nextIncidentFacts = { alarm, changeId: event.id, priority, changedMs: nowMs, through: position };
  if (storedIncident === undefined) {
    if (incidentChange !== "raised" && incidentChange !== "retriggered") return null;
    if (event.type === "alarm-raised" && event.data.initial && !initial && event.snapshot !== true) return null;
    if (context.isRedelivery && !isActive(source, event.data)) return null;
    return createStoredIncident("alarm", source, episode, {
      ...nextIncidentFacts,
      ...{ change: incidentChange, site: alarm.site, status: readAlarmStatus(alarm), startedAt: alarm.triggeredAt },
      ...{ metMs: nowMs, holdFromMs: findHoldStartMs(event, context) },
    });
  }
  const status = computeIncidentStatus(storedIncident, incidentChange, alarm);
  return {
    ...storedIncident,
    ...nextIncidentFacts,
    status,
    change: isResolved(storedIncident) && status === "resolved" ? storedIncident.change : incidentChange,
    endedAt: status === "resolved" ? (alarm.resolvedAt ?? storedIncident.endedAt ?? event.time) : null,
    retriggers: storedIncident.retriggers + (incidentChange === "retriggered" ? 1 : 0),
  };
}

/** Returns when the delay `hold` starts: when the event was stored, or earlier, when an already active alarm began. */
function findHoldStartMs(event: AlarmEvent, { committedAt, nowMs }: DeliveryContext): number {
  const receivedMs = Math.min(nowMs, parseTimeMsOr(committedAt, nowMs));
  const alarmExistedBefore = event.snapshot === true || (event.type === "alarm-raised" && event.data.initial);
  return alarmExistedBefore
    ? Math.min(receivedMs, parseTimeMsOr(event.data.alarm.triggeredAt, receivedMs))
    : receivedMs;
}

function computeIncidentStatus(
  storedIncident: StoredIncident,
  change: IncidentChangeKind,
  alarm: Alarm,
): IncidentStatus {
  if (change === "resolved") return "resolved";
  if (isResolved(storedIncident) && change !== "retriggered" && change !== "raised") return "resolved";
  if (change === "vanished" || change === "out-of-scope") return "unknown";
  return change === "recovering" ? "recovering" : readAlarmStatus(alarm);
}

const readAlarmStatus = (alarm: Alarm): IncidentStatus =>
  alarm.acknowledged ? "acknowledged" : alarm.recoveringUntil === null ? "active" : "recovering";

export function listAlarmIds(events: readonly Event[]): readonly { readonly source: string; readonly id: string }[] {
  return (events as readonly AnyEvent[]).flatMap((event) => {
    const source = eventSourceName(event);
    return source !== null && isAlarmEvent(event) ? [{ source, id: event.data.alarm.id }] : [];
  });
}

export const isIncidentEventKind = (type: string) => type.startsWith("alarm-") || /^gateway-o(n|ff)line$/.test(type);

export const mayJoinGatewayGroup = (event: Event): boolean =>
  event.type === "gateway-offline" || (event.data as Partial<AlarmFact>).behindGateway != null;

interface GatewayReconnection {
  /** Event-log position of the event `gateway-online`. Outages that began after this position stay open. */
  readonly position: number;
  readonly time: string;
  readonly changeId: string;
  readonly nowMs: number;
}

/** Time after a gateway came back in which its alarms may still end together with their group. */
const GATEWAY_RETURN_WAIT_MS = 180_000;
/** Longest wait while alarms of other gateways still end. At 50 sites, 80 requests take 5 minutes to read the ends. */
const MAX_GATEWAY_RETURN_WAIT_MS = 600_000;

function addAlarmToGroup(update: LedgerUpdate, alarmKey: string, behindGateway: string | null): void {
  const { ledger } = update;
  const alarm = ledger.get(alarmKey);
  if (alarm === undefined || alarm.told !== null || alarm.openingMs !== null) return;
  const isBehindGateway = update.fold.gateway && behindGateway !== null;
  const groupKey = isBehindGateway ? joinGatewayGroup(update, alarm, behindGateway) : joinStormGroup(update, alarm);
  if (groupKey === undefined) return;
  ledger.set(alarmKey, { ...alarm, into: groupKey });
  refreshIncidentGroup(ledger, groupKey, alarm.changeId, alarm.changedMs);
}

/** Applies the return of a gateway. Alarms still active three minutes later become incidents of their own. */
export function applyGatewayReturn(
  update: LedgerUpdate,
  source: string,
  gatewayId: string,
  { position, time, changeId, nowMs }: GatewayReconnection,
): void {
  const { ledger } = update;
  const [key, group] = findOpenGatewayGroup(ledger, source, gatewayId, position) ?? [];
  if (key === undefined || group === undefined || group.settling !== undefined) return;
  const wasGroupSent = group.told !== null || group.openingMs !== null;
  if (!wasGroupSent || findMembers(ledger, key).every(isResolved)) endGroup(update, key, { time, changeId }, nowMs);
  else ledger.set(key, { ...group, settling: { untilMs: nowMs + GATEWAY_RETURN_WAIT_MS, time, changeId } });
}

/** Adds the unsent alarms of a site to the group of its only gateway, which is offline. */
function applyGatewayLoss(update: LedgerUpdate, source: string, gatewayId: string, siteId: number, position: number) {
  const { ledger } = update;
  const [key] = findOpenGatewayGroup(ledger, source, gatewayId) ?? [];
  if (key !== undefined) continueGatewayOutage(ledger, key, position);
  for (const [alarmKey, incident] of [...ledger]) {
    const isAlarmAtSite = incident.kind === "alarm" && incident.source === source && incident.site?.id === siteId;
    if (isAlarmAtSite && incident.into === null && !isResolved(incident)) addAlarmToGroup(update, alarmKey, gatewayId);
  }
}

export function endSettledGatewayGroups(update: LedgerUpdate, groupKeys: readonly string[], nowMs: number): void {
  for (const key of groupKeys) {
    const storedGroup = update.ledger.get(key);
    if (storedGroup?.settling === undefined || isResolved(storedGroup)) continue;
    const { untilMs } = storedGroup.settling;
    const extendedUntilMs = Math.min(
      findLastGatewayAlarmEndMs(update.ledger, key, storedGroup.source) + GATEWAY_RETURN_WAIT_MS,
      untilMs - GATEWAY_RETURN_WAIT_MS + MAX_GATEWAY_RETURN_WAIT_MS,
    );
    // A wait longer than three minutes means that the clock was set back.
    const isWaitOver = nowMs >= Math.max(untilMs, extendedUntilMs) || untilMs - nowMs > GATEWAY_RETURN_WAIT_MS;
    if (isWaitOver || findMembers(update.ledger, key).every(isResolved))
      endGroup(update, key, storedGroup.settling, nowMs);
  }
}

/** Returns the latest end time among alarms behind the other gateways of the source. */
function findLastGatewayAlarmEndMs(ledger: IncidentLedger, groupKey: string, source: string): number {
  return ledger.values().reduce((latestMs, incident) => {
    const isEndedMember = incident.into !== null && incident.into !== groupKey && isResolved(incident);
    const isCounted = isEndedMember && incident.source === source && ledger.get(incident.into)?.kind === "gateway";
    return isCounted ? Math.max(latestMs, incident.changedMs) : latestMs;
  }, Number.NEGATIVE_INFINITY);
}

/** Finds the open incident group of a gateway whose last applied event is before a position in the event log. */
function findOpenGatewayGroup(ledger: IncidentLedger, source: string, id: string, position = Number.POSITIVE_INFINITY) {
  return [...ledger].find(
    ([, { gateway, kind, ...stored }]) =>
      kind === "gateway" &&
      !isResolved(stored) &&
      stored.source === source &&
      gateway?.id === id &&
      stored.through < position,
  );
}

function joinGatewayGroup({ ledger, gatewayName }: LedgerUpdate, alarm: StoredIncident, gatewayId: string): string {
  const [key] = findOpenGatewayGroup(ledger, alarm.source, gatewayId) ?? [];
  if (key === undefined) {
    const gateway = { id: gatewayId, displayName: gatewayName(alarm.source, gatewayId) };
    return addIncidentGroup(ledger, alarm, { kind: "gateway", episode: buildGroupEpisode(gatewayId, alarm), gateway });
  }
  continueGatewayOutage(ledger, key, alarm.through);
  return key;
}

/** Continues an outage: the gateway went offline again before its alarms ended. */
function continueGatewayOutage(ledger: IncidentLedger, groupKey: string, position: number): void {
  const { settling, ...stored } = ledger.get(groupKey) as StoredIncident;
  if (settling !== undefined) ledger.set(groupKey, { ...stored, through: Math.max(stored.through, position) });
}

function joinStormGroup({ ledger, fold }: LedgerUpdate, alarm: StoredIncident): string | undefined {
  const { storm } = fold;
  if (storm === undefined) return undefined;
  const isInScope = ({ site, source }: StoredIncident) =>
    storm.over === "all" || (source === alarm.source && site?.id === alarm.site?.id);
  const isRecent = ({ metMs }: StoredIncident) => metMs > alarm.metMs - storm.within;
  // An alarm that never ends keeps a storm open, but alarms weeks later do not join that storm.
  const openStormGroup = [...ledger].find(
    ([key, stored]) =>
      stored.kind === "storm" && !isResolved(stored) && isInScope(stored) && findMembers(ledger, key).some(isRecent),
  );
  if (openStormGroup !== undefined) return openStormGroup[0];
  // Alarms of an offline gateway open no incident, so a storm does not count these alarms.
  const isCounted = ({ into, kind }: StoredIncident) => kind === "alarm" && ledger.get(into ?? "")?.kind !== "gateway";
  const recentAlarms = [...ledger.values()].filter(
    (incident) => isCounted(incident) && isInScope(incident) && isRecent(incident),
  );
  if (recentAlarms.length <= storm.openings) return undefined;
  const site = storm.over === "all" ? null : alarm.site;
  return addIncidentGroup(ledger, alarm, { kind: "storm", site, episode: buildGroupEpisode(storm.over, alarm) });
}

function addIncidentGroup(ledger: IncidentLedger, alarm: StoredIncident, group: Partial<StoredIncident>): string {
  const { refused: _, ...groupBase } = alarm;
  let addedGroup: StoredIncident = {
    ...groupBase,
    ...{ alarm: null, status: "active", change: "members", endedAt: null, retriggers: 0 },
    ...{ into: null, openingMs: null, told: null },
    ...group,
  };
  // One unsent alarm can start several groups in succession, so each gets its own episode.
  const { episode } = group;
  for (let n = 2; ledger.has(getIncidentKey(addedGroup)); n += 1)
    addedGroup = { ...addedGroup, episode: `${episode} ${n}` };
  ledger.set(getIncidentKey(addedGroup), addedGroup);
  return getIncidentKey(addedGroup);
}

/** Builds the `episode` of a group. An alarm that comes back starts a new group, which needs its own `episode`. */
const buildGroupEpisode = (groupScope: string, { episode, retriggers, startedAt }: StoredIncident): string =>
  [groupScope, startedAt, episode, ...(retriggers === 0 ? [] : [retriggers])].join(" ");

/** Closes the group of a gateway. Active alarms become incidents of their own, or join a storm. */
function endGroup(
  update: LedgerUpdate,
  key: string,
  { time, changeId }: Pick<GatewayReconnection, "time" | "changeId">,
  nowMs: number,
): void {
  const { ledger } = update;
  patchIncident(ledger, key, { status: "resolved", change: "resolved", endedAt: time, changeId, changedMs: nowMs });
  for (const member of findMembers(ledger, key)) {
    if (isResolved(member)) continue;
    patchIncident(ledger, getIncidentKey(member), { into: null, metMs: nowMs, changedMs: nowMs });
    addAlarmToGroup(update, getIncidentKey(member), null);
  }
}

function refreshIncidentGroup(ledger: IncidentLedger, key: string, changeId: string, nowMs: number): void {
  const alarmGroup = ledger.get(key);
  if (alarmGroup === undefined) return;
  const groupMembers = findMembers(ledger, key);
  const priority = groupMembers.map((member) => member.priority).sort()[0] ?? alarmGroup.priority;
  patchIncident(ledger, key, { changeId, priority, change: "members", changedMs: nowMs });
  // A storm ends with its last alarm; a gateway group ends when the gateway is online.
  if (alarmGroup.kind !== "storm" || groupMembers.some((member) => !isResolved(member))) return;
  const [lastAlarmEnd] = groupMembers.map(({ endedAt }) => endedAt ?? "").sort((a, b) => (a < b ? 1 : -1));
  patchIncident(ledger, key, { status: "resolved", change: "resolved", endedAt: lastAlarmEnd || alarmGroup.startedAt });
}

function patchIncident(ledger: IncidentLedger, key: string, patch: Partial<StoredIncident>): void {
  const storedIncident = ledger.get(key);
  if (storedIncident !== undefined) ledger.set(key, { ...storedIncident, ...patch });
}
