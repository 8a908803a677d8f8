import { computeIncidentKey } from "#connectors/shared/receiver/receiver.ts";
import type { StoredIncident } from "#connectors/shared/receiver/stored-incident.ts";
import type { EventfulBuilding, Life } from "./eventful-building.ts";
import type { Thing } from "./receiver-server.ts";
import type { ReceiverCase } from "./receivers.ts";
import type { RunSettings } from "./run-settings.ts";

export interface Evidence {
  readonly row: Pick<ReceiverCase, "most" | "editsLists">;
  readonly settings: RunSettings;
  readonly building: EventfulBuilding;
  readonly things: readonly Thing[];
  readonly book: ReadonlyMap<string, StoredIncident>;
  readonly everHeld: ReadonlySet<string>;
  readonly doubts: number;
}

const MOST_SHOWN = 20;

const lifeKey = ({ one }: Life) => computeIncidentKey("main", "alarm", one.episode);

export function judge(evidence: Evidence): readonly string[] {
  const { building, things, book, everHeld } = evidence;
  const groups = [...book].filter(([, { kind }]) => kind === "gateway" || kind === "storm");
  const foreign = things.filter(({ key }) => key === null || !everHeld.has(key));
  return [
    ...building.lives.flatMap((life) => aboutLife(life, evidence)),
    ...groups.flatMap(([key, group]) => aboutGroup(key, group, evidence)),
    ...(foreign.length > 0 ? [`${foreign.length} things are of nobody`] : []),
    ...aboutRepetitions(evidence),
  ];
}

function thingsOf({ things }: Evidence, key: string | null | undefined): readonly Thing[] {
  return key == null ? [] : things.filter((thing) => thing.key === key);
}

const openOf = (things: readonly Thing[]): number => things.filter(({ isOpen }) => isOpen).length;

function mayBeUntold({ beganMs, endedMs, isOlder, isOver, cameBack }: Life, { holdMs }: RunSettings): boolean {
  if (isOlder && !cameBack) return true;
  return isOver && endedMs !== null && endedMs - beganMs < holdMs;
}

function aboutLife(life: Life, evidence: Evidence): readonly string[] {
  const { n, isOlder, isOver, returns, wasActive } = life;
  const own = thingsOf(evidence, lifeKey(life));
  const held = evidence.book.get(lifeKey(life));
  const shared = thingsOf(evidence, held?.into);
  const where = `it has ${own.length} things of its own and ${held?.into == null ? "no shared one" : `${shared.length} shared`}`;
  const problems: string[] = [];
  const isTold = own.length > 0 || shared.length > 0;
  if (!isTold && !mayBeUntold(life, evidence.settings)) problems.push(`alarm ${n} was never told`);
  if (isTold && isOlder && !wasActive) problems.push(`alarm ${n} was over before there was the sink, and ${where}`);
  if (own.length > (evidence.row.most?.(returns) ?? 1))
    problems.push(`alarm ${n}, back ${returns} times, is ${own.length} things`);
  if (isOver && openOf(own) > 0) problems.push(`alarm ${n} is over, and ${openOf(own)} things are open; ${where}`);
  const open = openOf(own) + openOf(shared);
  if (!isOver && open !== 1 && (isTold || !mayBeUntold(life, evidence.settings)))
    problems.push(`alarm ${n} is active, and told in ${open} open things; ${where}`);
  return problems;
}

function aboutGroup(key: string, group: StoredIncident, evidence: Evidence): readonly string[] {
  const { book, building, settings, row } = evidence;
  const name = `the ${group.kind} ${group.episode}`;
  const things = thingsOf(evidence, key);
  const members = building.lives.filter((life) => book.get(lifeKey(life))?.into === key);
  const problems: string[] = [];
  if (things.length > (row.most?.(0) ?? 1)) problems.push(`${name} is ${things.length} things`);
  const isUntold = things.length === 0 && members.every((life) => mayBeUntold(life, settings));
  const open = openOf(things);
  const isOpen = group.kind === "storm" ? members.some(({ isOver }) => !isOver) : isStill(group, open > 0, building);
  if (!isUntold && open !== (isOpen ? 1 : 0))
    problems.push(`${name} is to be ${isOpen ? "open" : "closed"}, and ${open} of ${things.length} are`);
  if (things.length > 0 && isOld(group, building)) problems.push(`${name} was over before there was the sink`);
  if (isOpen && members.length === 0) problems.push(`${name} stands for nobody`);
  if (!row.editsLists || members.length > MOST_SHOWN) return problems;
  for (const { n, isOver } of members) {
    const line = new RegExp(`Alarm ${n} \\((\\w+)`);
    const shown = things.flatMap(({ texts }) => texts.flatMap((text) => line.exec(text)?.[1] ?? [])).at(-1);
    if (things.length > 0 && (shown === undefined || (shown === "Resolved") !== isOver))
      problems.push(`alarm ${n} is ${isOver ? "over" : "active"}, and in the list of ${name} it is ${shown}`);
  }
  return problems;
}

function isOld({ episode, gateway, kind }: StoredIncident, building: EventfulBuilding): boolean {
  if (kind !== "gateway") return false;
  const id = gateway?.id ?? "";
  const times = founderOf(episode, building)?.explainedMs ?? [];
  const sinkMs = building.sinkMs();
  const lastMs = Math.max(...times.filter((atMs) => atMs <= sinkMs));
  const wasBack = building.returnsOf(id).some((atMs) => atMs > lastMs && atMs <= sinkMs);
  const wasAwaySince = building.isAway(id) || building.returnsOf(id).some((atMs) => atMs > sinkMs);
  return wasBack && !wasAwaySince && times.every((atMs) => atMs <= sinkMs);
}

function founderOf(episode: string, { lives }: EventfulBuilding): Life | undefined {
  return lives.find(({ one }) => ` ${episode} `.includes(` ${one.episode} `));
}

function isStill({ episode, gateway }: StoredIncident, isOpen: boolean, building: EventfulBuilding): boolean {
  const id = gateway?.id ?? "";
  if (!building.isAway(id)) return false;
  const [sinceMs = Number.POSITIVE_INFINITY] = founderOf(episode, building)?.explainedMs ?? [];
  return isOpen || building.returnsOf(id).every((atMs) => atMs <= sinceMs);
}

function aboutRepetitions(evidence: Evidence): readonly string[] {
  const expected = new Map(
    evidence.building.lives.map((life) => [lifeKey(life), 1 + life.returns + life.ends + life.acknowledgements]),
  );
  const repeated = evidence.things
    .map(({ key, messages = 0 }) => Math.max(0, messages - (expected.get(key ?? "") ?? 2)))
    .reduce((sum, each) => sum + each, 0);
  return repeated > evidence.doubts
    ? [`${repeated} messages too many, after ${evidence.doubts} kills and lost answers`]
    : [];
}

export function outlineOf(things: readonly Thing[]): readonly string[] {
  return things.map(({ key, isOpen }) => `${key} ${isOpen}`).sort();
}
