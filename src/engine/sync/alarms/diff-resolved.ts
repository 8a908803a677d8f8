import type { Alarm } from "../../../core/model/building.ts";
import type { Event } from "../../../core/model/event.ts";
import type { StoredAlarm } from "../snapshot.ts";
import { type AlarmContext, acknowledgeEnded, begin, isOpen, resolve, type Step } from "./diff-alarm.ts";
import { type AlarmDiff, asKnown, believe, byId } from "./diff-alarms.ts";
import {
  episodeOf,
  isEmittedEnd,
  isForgotten,
  isFormer,
  isOverBefore,
  isResolved,
  isSameEpisode,
  relationOf,
  withFormer,
} from "./episode.ts";
import { inEpisodeOrder } from "./episode-order.ts";
import { endOf, lastTimeOf } from "./times.ts";

export interface ResolvedDiffOptions extends AlarmContext {
  /** Episodes that ended before this, milliseconds since 1970 by the service's clock, are history. */
  readonly fromMs: number;
  /** True when an unknown alarm began and ended before its site was followed. */
  readonly isHistory: (alarm: Alarm) => boolean;
  /** True at the first sweep after a start that is to be silent. */
  readonly silent: boolean;
}

/**
 * Adds what the list of resolved alarms shows beyond the polls: missed ends, complete episodes between two polls, and
 * acknowledgements after the end. Each record is evidence about one alarm; an absence proves nothing.
 */
export function diffResolved(
  held: ReadonlyMap<string, StoredAlarm>,
  records: readonly Alarm[],
  options: ResolvedDiffOptions,
): AlarmDiff {
  const put = new Map<string, StoredAlarm>();
  const events: Event[] = [];
  const filled = records.map((record) => asKnown(held, record));
  const resolved = filled.filter(isResolved).sort((a, b) => (endOf(a) ?? 0) - (endOf(b) ?? 0));
  const evidence = byId(resolved);
  for (const record of resolved) {
    const known = put.get(record.id) ?? held.get(record.id);
    const history = options.isHistory(record) || options.silent;
    const relation = known === undefined ? "newer" : relationOf(known, record);
    const told = known !== undefined && relation === "same";
    if (told && known.state === "resolved") {
      // If an episode has several ends, the last one states the acknowledgement.
      const isLast = record === evidence.get(record.id)?.findLast((one) => relationOf(known, one) === "same");
      const step = known.untold === true || !isLast ? null : acknowledgeEnded(known, record, options);
      if (step !== null) put.set(record.id, step.held);
      if (step !== null && !options.silent) events.push(...step.events);
      continue;
    }
    // The end of a time before: the episode came back since, and whether it is over again, the other list says.
    if (told && isOpen(known) && isEmittedEnd(known, record)) continue;
    // While the alarm is listed as active, this is the end of an older one; the poll that misses the alarm asks again.
    if (told && known.state === "active" && isOverBefore(known, record)) continue;
    if (relation !== "same" && (lastTimeOf(record) ?? 0) < options.fromMs) continue;
    if (known !== undefined && relation === "past" && !isLateWord(known, record)) {
      if (!isUnheard(known, record)) continue;
      const former = withFormer(known, { episode: episodeOf(record), endMs: endOf(record) });
      put.set(record.id, { ...known, former });
      const before = whole(record, { ...options, superseded: true });
      if (!history) events.push(...inEpisodeOrder(before.flatMap((step) => step.events)));
      continue;
    }
    const steps: readonly Step[] =
      known === undefined ? whole(record, options) : [...believe(known, record, evidence, options)];
    const news: Event[] = [];
    for (const step of steps) {
      const open = known !== undefined && isOpen(known) && !options.silent;
      const tells = !history || open;
      put.set(record.id, tells ? step.held : { ...step.held, untold: true });
      if (tells) news.push(...step.events);
    }
    events.push(...inEpisodeOrder(news));
  }
  return { put, events };
}

/** For a vanished alarm, accepts an end of an earlier event unless that end was emitted. */
function isLateWord(known: StoredAlarm, record: Alarm): boolean {
  return known.state === "vanished" && isSameEpisode(known, record) && !isEmittedEnd(known, record);
}

/** Whether a record is of a whole episode before the held one of which no event was emitted. */
function isUnheard(known: StoredAlarm, record: Alarm): boolean {
  return !isSameEpisode(known, record) && !isFormer(known, record) && !isForgotten(known, record);
}

function whole(record: Alarm, options: AlarmContext): readonly Step[] {
  const begun = begin(record, false, options);
  return [begun, resolve(begun.held, record, options)];
}
