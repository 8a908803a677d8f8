import type { AlarmFact, Event, Kind } from "../../../core/model/event.ts";

/** The order of life, for what happened in the same moment. */
const LIFE: readonly Kind[] = [
  "alarm-raised",
  "alarm-acknowledged",
  "alarm-retriggered",
  "alarm-recovering",
  "alarm-unacknowledged",
  "alarm-changed",
  "alarm-resolved",
  "alarm-vanished",
  "alarm-out-of-scope",
];

/**
 * The events of one alarm from one look at the service, in the order of their own times. An episode leaves whole before
 * the next one begins, and begins with its raise: where the service says no time of the trigger, the raise carries
 * the time at which we saw it, which may be later than the acknowledgement's.
 */
export function inEpisodeOrder(events: readonly Event[]): readonly Event[] {
  if (events.length < 2) return events;
  const episodes = Map.groupBy(events, (event) => (event.data as AlarmFact).episode);
  return [...episodes.values()].flatMap((own) => own.toSorted(byTime));
}

function byTime(one: Event, other: Event): number {
  if (one.type === "alarm-raised" || other.type === "alarm-raised") return rank(one) - rank(other);
  return Date.parse(one.time) - Date.parse(other.time) || rank(one) - rank(other);
}

function rank(event: Event): number {
  return LIFE.indexOf(event.type);
}
