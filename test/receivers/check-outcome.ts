import { computeIncidentKey } from "#connectors/shared/receiver/receiver-interface.ts";
import type { StoredIncident } from "#connectors/shared/receiver/stored-incident.ts";
import type { AlarmLife, EventfulBuilding } from "./eventful-building.ts";
import type { ReceiverIncident } from "./receiver-server.ts";
import type { ReceiverCase } from "./receivers.ts";
import type { RunSettings } from "./run-settings.ts";

export interface RunOutcome {
  readonly row: Pick<ReceiverCase, "most" | "editsLists">;
  readonly settings: RunSettings;
  readonly building: EventfulBuilding;
  readonly receiverIncidents: readonly ReceiverIncident[];
  readonly storedIncidents: ReadonlyMap<string, StoredIncident>;
  readonly everStored: ReadonlySet<string>;
  readonly unverifiedOpenings: number;
}

const MOST_SHOWN = 20;

const getAlarmKey = ({ one }: AlarmLife) => computeIncidentKey("main", "alarm", one.episode);

export function findProblems(outcome: RunOutcome): readonly string[] {
  const { building, receiverIncidents: incidents, storedIncidents: stored, everStored } = outcome;
  const groups = [...stored].filter(([, { kind }]) => kind === "gateway" || kind === "storm");
  const unknownIncidents = incidents.filter(({ key }) => key === null || !everStored.has(key));
  return [
    ...building.lives.flatMap((life) => checkAlarm(life, outcome)),
    ...groups.flatMap(([key, group]) => checkGroup(key, group, outcome)),
    ...(unknownIncidents.length > 0 ? [`${unknownIncidents.length} things are of nobody`] : []),
    ...checkRepetitions(outcome),
  ];
}

function findIncidents(
  { receiverIncidents: incidents }: RunOutcome,
  key: string | null | undefined,
): readonly ReceiverIncident[] {
  return key == null ? [] : incidents.filter((incident) => incident.key === key);
}

const countOpen = (incidents: readonly ReceiverIncident[]): number => incidents.filter(({ isOpen }) => isOpen).length;

function mayBeUnsent({ startMs, endedMs, isOlder, isOver, cameBack }: AlarmLife, { holdMs }: RunSettings): boolean {
  if (isOlder && !cameBack) return true;
  return isOver && endedMs !== null && endedMs - startMs < holdMs;
}

function checkAlarm(life: AlarmLife, outcome: RunOutcome): readonly string[] {
  const { n, isOlder, isOver, returns, wasActive } = life;
  const ownIncidents = findIncidents(outcome, getAlarmKey(life));
  const storedIncident = outcome.storedIncidents.get(getAlarmKey(life));
  const groupIncidents = findIncidents(outcome, storedIncident?.into);
  const location = `it has ${ownIncidents.length} things of its own and ${storedIncident?.into == null ? "no shared one" : `${groupIncidents.length} shared`}`;
  const problems: string[] = [];
  const isSent = ownIncidents.length > 0 || groupIncidents.length > 0;
  if (!isSent && !mayBeUnsent(life, outcome.settings)) problems.push(`alarm ${n} was never told`);
  if (isSent && isOlder && !wasActive) problems.push(`alarm ${n} was over before there was the sink, and ${location}`);
  if (ownIncidents.length > (outcome.row.most?.(returns) ?? 1))
    problems.push(`alarm ${n}, back ${returns} times, is ${ownIncidents.length} things`);
  if (isOver && countOpen(ownIncidents) > 0)
    problems.push(`alarm ${n} is over, and ${countOpen(ownIncidents)} things are open; ${location}`);
  const openCount = countOpen(ownIncidents) + countOpen(groupIncidents);
  if (!isOver && openCount !== 1 && (isSent || !mayBeUnsent(life, outcome.settings)))
    problems.push(`alarm ${n} is active, and told in ${openCount} open things; ${location}`);
  return problems;
}

function checkGroup(key: string, group: StoredIncident, outcome: RunOutcome): readonly string[] {
  const { storedIncidents: stored, building, settings, row } = outcome;
  const groupName = `the ${group.kind} ${group.episode}`;
  const incidents = findIncidents(outcome, key);
  const members = building.lives.filter((life) => stored.get(getAlarmKey(life))?.into === key);
  const problems: string[] = [];
  if (incidents.length > (row.most?.(0) ?? 1)) problems.push(`${groupName} is ${incidents.length} things`);
  const isUnsent = incidents.length === 0 && members.every((life) => mayBeUnsent(life, settings));
  const openCount = countOpen(incidents);
  const hasActive = members.some(({ isOver }) => !isOver);
  const isOpen = group.kind === "storm" ? hasActive : isStillOffline(group, openCount > 0, building);
  if (!isUnsent && openCount !== (isOpen ? 1 : 0))
    problems.push(`${groupName} is to be ${isOpen ? "open" : "closed"}, and ${openCount} of ${incidents.length} are`);
  if (incidents.length > 0 && endedBeforeSink(group, building))
    problems.push(`${groupName} was over before there was the sink`);
  if (isOpen && members.length === 0) problems.push(`${groupName} stands for nobody`);
  if (!row.editsLists || members.length > MOST_SHOWN) return problems;
  for (const { n, isOver } of members) {
    const line = new RegExp(`Alarm ${n} \\((\\w+)`);
    const listedStatus = incidents.flatMap(({ texts }) => texts.flatMap((text) => line.exec(text)?.[1] ?? [])).at(-1);
    if (incidents.length > 0 && (listedStatus === undefined || (listedStatus === "Resolved") !== isOver))
      problems.push(`alarm ${n} is ${isOver ? "over" : "active"}, and ${listedStatus} in the list of ${groupName}`);
  }
  return problems;
}

function endedBeforeSink({ episode, gateway, kind }: StoredIncident, building: EventfulBuilding): boolean {
  if (kind !== "gateway") return false;
  const id = gateway?.id ?? "";
  const explainedTimes = findFirstAlarm(episode, building)?.explainedMs ?? [];
  const sinkMs = building.sinkMs();
  const lastMs = Math.max(...explainedTimes.filter((atMs) => atMs <= sinkMs));
  const wasBack = building.returnsOf(id).some((atMs) => atMs > lastMs && atMs <= sinkMs);
  const wasAwaySince = building.isAway(id) || building.returnsOf(id).some((atMs) => atMs > sinkMs);
  return wasBack && !wasAwaySince && explainedTimes.every((atMs) => atMs <= sinkMs);
}

function findFirstAlarm(episode: string, { lives }: EventfulBuilding): AlarmLife | undefined {
  return lives.find(({ one }) => ` ${episode} `.includes(` ${one.episode} `));
}

function isStillOffline({ episode, gateway }: StoredIncident, isOpen: boolean, building: EventfulBuilding): boolean {
  const id = gateway?.id ?? "";
  if (!building.isAway(id)) return false;
  const [sinceMs = Number.POSITIVE_INFINITY] = findFirstAlarm(episode, building)?.explainedMs ?? [];
  return isOpen || building.returnsOf(id).every((atMs) => atMs <= sinceMs);
}

function checkRepetitions(outcome: RunOutcome): readonly string[] {
  const expectedMessages = new Map(
    outcome.building.lives.map((life) => [getAlarmKey(life), 1 + life.returns + life.ends + life.acknowledgements]),
  );
  const repeatedMessages = outcome.receiverIncidents
    .map(({ key, messages = 0 }) => Math.max(0, messages - (expectedMessages.get(key ?? "") ?? 2)))
    .reduce((sum, each) => sum + each, 0);
  return repeatedMessages > outcome.unverifiedOpenings
    ? [`${repeatedMessages} messages too many, after ${outcome.unverifiedOpenings} kills and lost answers`]
    : [];
}

export function summarizeIncidents(incidents: readonly ReceiverIncident[]): readonly string[] {
  return incidents.map(({ key, isOpen }) => `${key} ${isOpen}`).sort();
}
