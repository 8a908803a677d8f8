import type { Alarm } from "../../../core/model/building.ts";
import type { Event } from "../../../core/model/event.ts";
import type { StoredAlarm } from "../snapshot.ts";
import { type AlarmContext, acknowledgeEnded, isOpen } from "./diff-alarm.ts";
import { type AlarmDiff, beginAndEnd, endEpisode, fillRecord, groupById, inEpisodeOrder } from "./diff-alarms.ts";
import {
  episodeOf,
  isEmittedEnd,
  isOfFormerEpisode,
  isOverBefore,
  isResolved,
  isSameEpisode,
  mayBeForgotten,
  relationOf,
  withFormer,
} from "./episode.ts";
import { endOf, lastTimeOf } from "./times.ts";

export interface ResolvedDiffOptions extends AlarmContext {
  /** Episodes that ended before this time are history, milliseconds since 1970 by the service's clock. */
  readonly fromMs: number;
  readonly isHistory: (alarm: Alarm) => boolean;
  readonly silent: boolean;
}

/** Adds what polls missed: ends, complete episodes, acknowledgements after the end. An absence proves nothing. */
export function diffResolved(
  alarms: ReadonlyMap<string, StoredAlarm>,
  records: readonly Alarm[],
  options: ResolvedDiffOptions,
): AlarmDiff {
  const put = new Map<string, StoredAlarm>();
  const events: Event[] = [];
  const resolved = records
    .map((record) => fillRecord(alarms, record))
    .filter(isResolved)
    .sort((one, other) => (endOf(one) ?? 0) - (endOf(other) ?? 0));
  const evidence = groupById(resolved);
  for (const record of resolved) {
    const known = put.get(record.id) ?? alarms.get(record.id);
    const isQuiet = options.isHistory(record) || options.silent;
    const relation = known === undefined ? "newer" : relationOf(known, record);
    if (known !== undefined && relation === "same") {
      if (known.state === "resolved") {
        // If an episode has several ends, the last one states the acknowledgement.
        const isLast = record === evidence.get(record.id)?.findLast((one) => relationOf(known, one) === "same");
        const step = known.untold === true || !isLast ? null : acknowledgeEnded(known, record, options);
        if (step !== null) put.set(record.id, step.stored);
        if (step !== null && !options.silent) events.push(...step.events);
        continue;
      }
      // The alarm came back after this end; the list of active alarms decides whether it is over again.
      if (isOpen(known) && isEmittedEnd(known, record)) continue;
      // The alarm is listed as active, so this is the end of an older episode.
      if (known.state === "active" && isOverBefore(known, record)) continue;
    } else if ((lastTimeOf(record) ?? 0) < options.fromMs) continue;
    if (known !== undefined && relation === "past" && !isLateEnd(known, record)) {
      if (isSameEpisode(known, record) || isOfFormerEpisode(known, record) || mayBeForgotten(known, record)) continue;
      const former = withFormer(known, { episode: episodeOf(record), endMs: endOf(record) });
      put.set(record.id, { ...known, former });
      const steps = isQuiet ? [] : [...beginAndEnd(record, { ...options, superseded: true })];
      events.push(...inEpisodeOrder(steps.flatMap((step) => step.events)));
      continue;
    }
    const steps = [
      ...(known === undefined ? beginAndEnd(record, options) : endEpisode(known, record, evidence, options)),
    ];
    const isEmitted = !isQuiet || (known !== undefined && isOpen(known) && !options.silent);
    for (const { stored } of steps) put.set(record.id, isEmitted ? stored : { ...stored, untold: true });
    if (isEmitted) events.push(...inEpisodeOrder(steps.flatMap((step) => step.events)));
  }
  return { put, events };
}

/** True for an earlier event's end of a vanished alarm, unless that end was emitted. */
function isLateEnd(known: StoredAlarm, record: Alarm): boolean {
  return known.state === "vanished" && isSameEpisode(known, record) && !isEmittedEnd(known, record);
}
