import { type AlarmFact, type AnyEvent, type Event, isUrgentKind } from "#src/core/model/event.ts";
import { availableBuckets, hasLog, promisedRanges } from "../losses/judge/expected.ts";
import type { ReportedGaps } from "../losses/judge/reported-gaps.ts";
import type { Harness } from "../losses/loss-harness.ts";
import { type ReceivedEvents, seriesKey } from "../losses/received-events.ts";
import { isRejectedId, type SimulatedSink } from "./simulated-sinks.ts";

const DAY_MS = 86_400_000;

export interface Committed {
  readonly position: number;
  readonly event: AnyEvent;
  readonly json: string;
}

export interface Deliveries {
  readonly committed: ReadonlyMap<string, Committed>;
  /** Ids of events committed long enough ago to be delivered. */
  readonly due: ReadonlySet<string>;
  readonly end: SimulatedSink;
  readonly passes: (event: Event) => boolean;
  readonly deadLetters: ReadonlySet<string>;
  readonly damaged: ReadonlySet<string>;
  /** Maximum number of repeated events. */
  readonly repetitionsMax: number;
}

const listIds = (ids: readonly string[]) =>
  `${ids.length} events, as ${ids.slice(0, 3).join(", ")}${ids.length > 3 ? " …" : ""}`;

/** "At least once": each committed event of a sink is delivered or a dead letter. */
export function nothingIsLost({ committed, damaged, deadLetters, due, end, passes }: Deliveries): string[] {
  const deliveredIds = new Set(end.stillStored.map(({ id }) => id));
  const lost = [...committed.values()]
    .filter(({ event }) => passes(event))
    .map(({ event }) => event.id)
    .filter((id) => due.has(id) && !deliveredIds.has(id) && !deadLetters.has(id) && !damaged.has(id));
  return lost.length === 0 ? [] : [`${end.name} never got ${listIds(lost)}`];
}

/** "The same id and the same content", except for damaged events, which may be emitted again with another time. */
export function nothingIsAltered({ committed, damaged, end, passes }: Deliveries): string[] {
  const strange = end.everAccepted.filter(({ id }) => !committed.has(id)).map(({ id }) => id);
  const accepted = end.everAccepted.filter(({ id }) => committed.has(id) && !damaged.has(id));
  const other = accepted.filter(({ id, json }) => committed.get(id)?.json !== json);
  const unwanted = end.everAccepted.filter(({ id }) => {
    const known = committed.get(id);
    return known !== undefined && !passes(known.event);
  });
  return [
    ...(strange.length === 0 ? [] : [`${end.name} got what was never committed: ${listIds(strange)}`]),
    ...(other.length === 0 ? [] : [`${end.name} got altered: ${listIds(other.map(({ id }) => id))}`]),
    ...(unwanted.length === 0 ? [] : [`${end.name} got unwanted: ${listIds(unwanted.map(({ id }) => id))}`]),
  ];
}

/** "Per key, first delivery follows commit order", among urgent events and among the others. */
export function orderIsRight({ committed, damaged, end }: Deliveries): string[] {
  const seen = new Set<string>();
  const last = new Map<string, number>();
  const wrong: string[] = [];
  for (const { id, subject } of end.everAccepted) {
    const { position, event } = committed.get(id) ?? {};
    // The result of a command may overtake values of its tag.
    const key = `${subject} ${event !== undefined && isUrgentKind(event.type)}`;
    // Rejected events only arrive later, by a replay.
    if (position === undefined || seen.has(id) || isRejectedId(id) || damaged.has(id)) continue;
    seen.add(id);
    if (position < (last.get(key) ?? 0)) wrong.push(id);
    last.set(key, Math.max(position, last.get(key) ?? 0));
  }
  return wrong.length === 0 ? [] : [`${end.name} got out of order: ${listIds(wrong)}`];
}

/** "Never more than the window per sink and incident; without an incident there are none." */
export function littleIsRepeated({ end, repetitionsMax: mostTwice }: Deliveries): string[] {
  const twice = end.everAccepted.length - new Set(end.everAccepted.map(({ id }) => id)).size;
  return twice <= mostTwice ? [] : [`${end.name} got ${twice} events again, where ${mostTwice} may be`];
}

const factOf = (event: AnyEvent) => event.data as AlarmFact;
/** "Once per episode; resolved only when the service states it." Only a damaged alarm may get a second episode. */
export function alarmsAreTrue(
  events: readonly AnyEvent[],
  resolvedInTruth: ReadonlySet<string>,
  isAlarmDamaged: boolean,
): readonly string[] {
  const problems: string[] = [];
  for (const type of ["alarm-raised", "alarm-resolved"]) {
    const facts = events.filter((event) => event.type === type).map(factOf);
    const ids = facts.map(({ alarm }) => alarm.id);
    const keys = facts.map(({ alarm, episode }) => (isAlarmDamaged ? `${alarm.id} ${episode}` : alarm.id));
    for (const [key, all] of Map.groupBy(keys, (each) => each))
      if (all.length > 1) problems.push(`${type} emitted ${all.length} times: ${key}`);
    if (type === "alarm-resolved")
      for (const id of ids)
        if (!resolvedInTruth.has(id)) problems.push(`resolved without a statement of the service: ${id}`);
  }
  return problems;
}

/** A boolean is never good for a tag that is a number in truth and has a unit. */
export function changedTypesAreUncertain(
  events: readonly AnyEvent[],
  isNumber: (tagId: string) => boolean,
): readonly string[] {
  const good = events.flatMap((event) => {
    if (event.type !== "tag-value") return [];
    const { quality, tag, value } = event.data;
    if (typeof value !== "boolean" || quality !== "good" || !tag.unit || !isNumber(tag.id)) return [];
    return [`${tag.id} (${tag.unit}) = ${value}`];
  });
  return good.length === 0 ? [] : [`${good.length} values are good, as ${good[0]}`];
}

export interface ValueViews {
  readonly end: SimulatedSink;
  /** Times of the replies with a usable value of each tag, monotonic milliseconds, ascending. */
  readonly readMs: ReadonlyMap<string, readonly number[]>;
  /** Interval of the tag's class plus two request slots, milliseconds. */
  readonly promiseMs: (tagId: string) => number;
  readonly starts: readonly WorkerStart[];
  readonly endMs: number;
}

export interface WorkerStart {
  readonly atMs: number;
  /** The wall clock is wrong, or was in the run before, so the ages of stored values count from the start. */
  readonly isClockWrong: boolean;
}

/** Time for the bucket of due times, the transaction and the delivery. */
const STALE_DELIVERY_MS = 5_000;
const STALE_START_MS = 30_000;

/** "No sink shows `good` for a value that is older than its interval plus two request slots." */
export function noOldValueIsGood(
  { end, readMs, promiseMs, starts, endMs }: ValueViews,
  { onlyAtEnd }: { readonly onlyAtEnd: boolean },
): string[] {
  const shown = new Map<string, { readonly fromMs: number; readonly tagId: string; readonly isUsable: boolean }>();
  const problems: string[] = [];

  function check({ fromMs, tagId, isUsable }: { fromMs: number; tagId: string; isUsable: boolean }, untilMs: number) {
    if (!isUsable) return;
    const readings = readMs.get(tagId) ?? [];
    const first = readings.findLastIndex((atMs) => atMs <= fromMs);
    const bases = [...readings.slice(Math.max(0, first)).filter((atMs) => atMs < untilMs), untilMs];
    for (const [index, readAtMs] of bases.slice(0, -1).entries()) {
      const replacedMs = Math.max(fromMs, bases[index + 1] ?? untilMs);
      const wrongStart = starts.findLast(
        ({ atMs, isClockWrong }) => isClockWrong && readAtMs < atMs && atMs < replacedMs,
      );
      const dueMs = (wrongStart?.atMs ?? readAtMs) + promiseMs(tagId) + STALE_DELIVERY_MS;
      const hasJustStarted = starts.some(
        ({ atMs }) => atMs > readAtMs && atMs < replacedMs && replacedMs - atMs < STALE_START_MS,
      );
      if (replacedMs > dueMs && !hasJustStarted)
        problems.push(
          `${end.name} shows ${tagId} as good ${Math.round((replacedMs - readAtMs) / 1_000)} s after its reading`,
        );
    }
  }

  for (const { atMs, json, subject } of onlyAtEnd ? end.stillStored : end.everAccepted) {
    if (!subject.includes("/tag/")) continue;
    const event = JSON.parse(json) as AnyEvent;
    if (event.type !== "tag-value") continue;
    const { quality, tag } = event.data;
    const before = shown.get(tag.id);
    if (before !== undefined && !onlyAtEnd) check(before, atMs);
    shown.set(tag.id, { fromMs: atMs, tagId: tag.id, isUsable: quality === "good" || quality === "uncertain" });
  }
  for (const last of shown.values()) check(onlyAtEnd ? { ...last, fromMs: endMs } : last, endMs);
  return problems.length === 0 ? [] : [`${problems.length} times, as ${problems[0]}`];
}

/** Buckets that count as absent do not exist at the service, unless samples arrive late. */
export function absenceIsTrue(harness: Harness, events: readonly AnyEvent[]): readonly string[] {
  if (harness.world.lateMs > 0) return [];
  const wrong = events.flatMap((event) => {
    if (event.type !== "history-complete" || !("tag" in event.data)) return [];
    const { tag, resolution, firstDate, lastDate, absent, expected, notWanted } = event.data;
    if (absent === 0 || !hasLog(harness, tag.id)) return [];
    const fromMs = Date.parse(firstDate);
    const toMs = Date.parse(lastDate) + DAY_MS;
    const availableCount = availableBuckets(harness, { tagId: tag.id, resolution, fromMs, toMs, order: null }).length;
    const most = Math.max(0, expected - Math.max(0, availableCount - notWanted));
    return absent <= most
      ? []
      : [`${tag.id} ${resolution} from ${firstDate} to ${lastDate}: ${absent} absent, at most ${most} are`];
  });
  return wrong.length === 0 ? [] : [`${wrong.length} series, as ${wrong[0]}`];
}

/** Unreadable history is fetched later, or named as missing. `unreadable`: `<tag> <resolution> <start>`. */
export function unreadableIsFetchedOrNamed(
  unreadable: ReadonlySet<string>,
  harness: Harness,
  far: ReceivedEvents,
  gaps: ReportedGaps,
): readonly string[] {
  // The daily re-read finds samples that arrive late.
  if (harness.world.lateMs > 0) return [];
  const wanted = Map.groupBy(promisedRanges(harness, far), ({ tagId, resolution }) => seriesKey(tagId, resolution));
  const missing = [...unreadable].filter((key) => {
    const [tagId = "", resolution = "", at] = key.split(" ");
    const series = seriesKey(tagId, resolution);
    const covers = ({ fromMs, toMs }: { readonly fromMs: number; readonly toMs: number }) =>
      fromMs <= Number(at) && Number(at) < toMs;
    const isDelivered = far.points.get(series)?.has(Number(at)) === true;
    return !isDelivered && wanted.get(series)?.some(covers) && !gaps.get(series)?.some(covers);
  });
  return missing.length === 0 ? [] : [`${missing.length} points, as ${missing[0]}`];
}

/** The alarms that are open after all events are those that the service lists as active. */
export function viewIsRight(
  events: readonly AnyEvent[],
  active: ReadonlySet<string>,
  isExcusedAlarm: (alarmId: string) => boolean,
): readonly string[] {
  const open = new Map<string, string>();
  for (const event of events) {
    if (!event.type.startsWith("alarm-")) continue;
    const { alarm, episode } = factOf(event);
    if (event.type === "alarm-resolved" || event.type === "alarm-vanished") {
      if (open.get(alarm.id) === episode) open.delete(alarm.id);
    } else if (event.type === "alarm-raised" || event.type === "alarm-retriggered") open.set(alarm.id, episode);
  }
  return [
    ...[...open.keys()]
      .filter((id) => !active.has(id) && !isExcusedAlarm(id))
      .map((id) => `open in the log only: ${id}`),
    ...[...active]
      .filter((id) => !open.has(id) && !isExcusedAlarm(id))
      .map((id) => `active and not open in the log: ${id}`),
  ];
}

const TERMINAL = new Set("confirmed accepted-unverified mismatch rejected expired superseded unknown".split(" "));

/** "Every accepted command ends in exactly one terminal result." */
export function commandsEndOnce(
  events: readonly AnyEvent[],
  acknowledged: ReadonlySet<string>,
  isComplete: boolean,
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
    if (own.length === 0 && isComplete) problems.push(`${id} was accepted and never ended`);
  }
  if (!isComplete) return problems;
  for (const id of acknowledged)
    if (!accepted.has(id) && !ends.has(id)) problems.push(`${id} was acknowledged and has no result`);
  return problems;
}
