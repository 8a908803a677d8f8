import type { AlarmFact, AnyEvent, Event } from "#src/event.ts";
import { type FarEndOfSink, isUnwelcome } from "./far-ends.ts";

/** An event as it was committed. */
export interface Committed {
  readonly position: number;
  readonly event: AnyEvent;
  readonly json: string;
}

export interface Deliveries {
  readonly committed: ReadonlyMap<string, Committed>;
  /** Ids of those that were committed long enough ago to be there. */
  readonly due: ReadonlySet<string>;
  readonly end: FarEndOfSink;
  readonly passes: (event: Event) => boolean;
  /** Ids of its dead letters. */
  readonly deadLetters: ReadonlySet<string>;
  /** Ids of events that were damaged in the state, so that nobody can be asked for them. */
  readonly damaged: ReadonlySet<string>;
  /** The most that may arrive twice. */
  readonly mostTwice: number;
}

const some = (ids: readonly string[]) =>
  `${ids.length} events, as ${ids.slice(0, 3).join(", ")}${ids.length > 3 ? " …" : ""}`;

/** "At least once": each committed event that a sink wants is there, or among its dead letters. */
export function nothingIsLost({ committed, damaged, deadLetters, due, end, passes }: Deliveries): string[] {
  const had = new Set(end.kept.map(({ id }) => id));
  const lost = [...committed.values()]
    .filter(({ event }) => passes(event))
    .map(({ event }) => event.id)
    .filter((id) => due.has(id) && !had.has(id) && !deadLetters.has(id) && !damaged.has(id));
  return lost.length === 0 ? [] : [`${end.name} never got ${some(lost)}`];
}

/** "The same id and the same content": nothing that was not committed, nothing altered, nothing it did not want. */
export function nothingIsAltered({ committed, end, passes }: Deliveries): string[] {
  const strange = end.taken.filter(({ id }) => !committed.has(id)).map(({ id }) => id);
  const other = end.taken.filter(({ id, json }) => committed.has(id) && committed.get(id)?.json !== json);
  const unwanted = end.taken.filter(({ id }) => {
    const known = committed.get(id);
    return known !== undefined && !passes(known.event);
  });
  return [
    ...(strange.length === 0 ? [] : [`${end.name} got what was never committed: ${some(strange)}`]),
    ...(other.length === 0 ? [] : [`${end.name} got altered: ${some(other.map(({ id }) => id))}`]),
    ...(unwanted.length === 0 ? [] : [`${end.name} got unwanted: ${some(unwanted.map(({ id }) => id))}`]),
  ];
}

/** "Per key, first delivery follows commit order." */
export function orderIsKept({ committed, end }: Deliveries): string[] {
  const seen = new Set<string>();
  const last = new Map<string, number>();
  const wrong: string[] = [];
  for (const { id, subject } of end.taken) {
    const position = committed.get(id)?.position;
    // What was refused once comes later, if at all: with a replay, or when a person wants it.
    if (position === undefined || seen.has(id) || isUnwelcome(id)) continue;
    seen.add(id);
    if (position < (last.get(subject) ?? 0)) wrong.push(id);
    last.set(subject, Math.max(position, last.get(subject) ?? 0));
  }
  return wrong.length === 0 ? [] : [`${end.name} got out of order: ${some(wrong)}`];
}

/** "Never more than the window per sink and incident; without an incident there are none." */
export function littleIsRepeated({ end, mostTwice }: Deliveries): string[] {
  const twice = end.taken.length - new Set(end.taken.map(({ id }) => id)).size;
  return twice <= mostTwice ? [] : [`${end.name} got ${twice} events again, where ${mostTwice} may be`];
}

const factOf = (event: AnyEvent) => event.data as AlarmFact;
const episodeOf = (event: AnyEvent) =>
  `${factOf(event).alarm.id} ${Math.floor(Date.parse(factOf(event).alarm.triggeredAt) / 1_000)}`;

/** "Once per episode; resolved only when the service states it." */
export function alarmsAreTrue(
  events: readonly AnyEvent[],
  resolvedInTruth: ReadonlySet<string>,
): readonly string[] {
  const alarms = events.filter(({ type }) => type.startsWith("alarm-"));
  const problems: string[] = [];
  for (const type of ["alarm-raised", "alarm-resolved"]) {
    const told = alarms.filter((event) => event.type === type).map(episodeOf);
    for (const [key, all] of Map.groupBy(told, (key) => key))
      if (all.length > 1) problems.push(`${type} told ${all.length} times: ${key}`);
    if (type === "alarm-resolved")
      for (const key of told)
        if (!resolvedInTruth.has(key)) problems.push(`resolved without a word of the service: ${key}`);
  }
  return problems;
}

/** The log, told from its beginning, leaves exactly those open that the service lists as active. */
export function pictureIsRight(
  events: readonly AnyEvent[],
  active: ReadonlySet<string>,
  forgiven: (alarmId: string) => boolean,
): readonly string[] {
  const open = new Map<string, string>();
  for (const event of events) {
    if (!event.type.startsWith("alarm-")) continue;
    const { alarm, episode } = factOf(event);
    if (event.type === "alarm-resolved" || event.type === "alarm-vanished") {
      if (open.get(alarm.id) === episode) open.delete(alarm.id);
    } else if (event.type === "alarm-raised" || event.type === "alarm-retriggered")
      open.set(alarm.id, episode);
  }
  return [
    ...[...open.keys()]
      .filter((id) => !active.has(id) && !forgiven(id))
      .map((id) => `open in the log only: ${id}`),
    ...[...active]
      .filter((id) => !open.has(id) && !forgiven(id))
      .map((id) => `active and not open in the log: ${id}`),
  ];
}

const TERMINAL = new Set([
  "confirmed",
  "accepted-unverified",
  "mismatch",
  "rejected",
  "expired",
  "superseded",
  "unknown",
]);

/** "Every accepted command ends in exactly one terminal result." */
export function commandsEndOnce(
  events: readonly AnyEvent[],
  acknowledged: ReadonlySet<string>,
  isWhole: boolean,
): readonly string[] {
  const ends = new Map<string, string[]>();
  const accepted = new Set<string>();
  for (const event of events) {
    if (event.type !== "command-result") continue;
    const { commandId, outcome } = event.data;
    if (commandId === null) continue;
    if (String(outcome) === "accepted") accepted.add(commandId);
    else if (TERMINAL.has(outcome)) ends.set(commandId, [...(ends.get(commandId) ?? []), outcome]);
  }
  const problems: string[] = [];
  for (const id of accepted) {
    const own = ends.get(id) ?? [];
    if (own.length > 1) problems.push(`${id} ended ${own.length} times: ${own.join(", ")}`);
    if (own.length === 0 && isWhole) problems.push(`${id} was accepted and never ended`);
  }
  if (!isWhole) return problems;
  for (const id of acknowledged)
    if (!accepted.has(id) && !ends.has(id))
      problems.push(`${id} was acknowledged and nothing was said of it`);
  return problems;
}
