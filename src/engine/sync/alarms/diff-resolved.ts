import type { Alarm } from "../../../core/model/building.ts";
import type { Event } from "../../../core/model/event.ts";
import type { StoredAlarm } from "../snapshot.ts";
import { acknowledgeEndedEpisode, type DiffContext, isOpenAlarm } from "./diff-alarm.ts";
import { type AlarmDiff, beginAndEnd, endEpisode, fillRecord, groupById, sortEpisodeEvents } from "./diff-alarms.ts";
import {
  addFormerEpisode,
  endsBeforeStart,
  episodeKey,
  isEmittedEnd,
  isOfFormerEpisode,
  isResolved,
  isSameEpisode,
  mayBeDropped,
  relateRecord,
} from "./episode.ts";
import { endOrStartMs, latestTimeMs } from "./times.ts";

export interface ResolvedDiffOptions extends DiffContext {
  /** Unknown episodes that ended before this time are skipped; milliseconds since 1970 by the service's clock. */
  readonly fromMs: number;
  readonly isHistory: (alarm: Alarm) => boolean;
  readonly silent: boolean;
}

/** Adds alarm changes that polls missed: ends, complete episodes, acknowledgements after the end. Ignores absences. */
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
    .sort((one, other) => (endOrStartMs(one) ?? 0) - (endOrStartMs(other) ?? 0));
  const resolvedById = groupById(resolved);
  for (const record of resolved) {
    const known = put.get(record.id) ?? alarms.get(record.id);
    const isQuiet = options.isHistory(record) || options.silent;
    const relation = known === undefined ? "newer" : relateRecord(known, record);
    if (known !== undefined && relation === "same") {
      if (known.state === "resolved") {
        // If an episode has several resolved records, the last record states the acknowledgement.
        const isLast = record === resolvedById.get(record.id)?.findLast((one) => relateRecord(known, one) === "same");
        const step = known.untold === true || !isLast ? null : acknowledgeEndedEpisode(known, record, options);
        if (step !== null) put.set(record.id, step.stored);
        if (step !== null && !options.silent) events.push(...step.events);
        continue;
      }
      // The alarm came back after this end; the list of active alarms decides whether it is over again.
      if (isOpenAlarm(known) && isEmittedEnd(known, record)) continue;
      // The alarm is active and this end lies before its start, so the end belongs to an older episode.
      if (known.state === "active" && endsBeforeStart(known, record)) continue;
    } else if ((latestTimeMs(record) ?? 0) < options.fromMs) continue;
    if (known !== undefined && relation === "past" && !isLateEnd(known, record)) {
      if (isSameEpisode(known, record) || isOfFormerEpisode(known, record) || mayBeDropped(known, record)) continue;
      const former = addFormerEpisode(known, { episode: episodeKey(record), endMs: endOrStartMs(record) });
      put.set(record.id, { ...known, former });
      const steps = isQuiet ? [] : [...beginAndEnd(record, { ...options, superseded: true })];
      events.push(...sortEpisodeEvents(steps.flatMap((step) => step.events)));
      continue;
    }
    const steps = [
      ...(known === undefined ? beginAndEnd(record, options) : endEpisode(known, record, resolvedById, options)),
    ];
    const isEmitted = !isQuiet || (known !== undefined && isOpenAlarm(known) && !options.silent);
    for (const { stored } of steps) put.set(record.id, isEmitted ? stored : { ...stored, untold: true });
    if (isEmitted) events.push(...sortEpisodeEvents(steps.flatMap((step) => step.events)));
  }
  return { put, events };
}

/** True if a record of an earlier event states an end of a vanished alarm that was not emitted yet. */
function isLateEnd(known: StoredAlarm, record: Alarm): boolean {
  return known.state === "vanished" && isSameEpisode(known, record) && !isEmittedEnd(known, record);
}
