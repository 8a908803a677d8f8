import { type Failure, LocalFailure, meaningOf } from "../../../core/errors/errors.ts";
import type { Alarm } from "../../../core/model/building.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Source } from "../../source/source.ts";
import { collectSteady } from "../listing.ts";
import type { StoredAlarm } from "../snapshot.ts";
import { episodeOf, isResolved, relationOf } from "./episode.ts";
import { createPatience } from "./patience.ts";
import { endOf, instant } from "./times.ts";

/** The word of the list of resolved alarms about known ends of alarms that the list of active alarms shows. */
export interface Settlement {
  /** Ids of the alarms whose known end it lacks: the service has gone back behind it, and they are active. */
  readonly believed: ReadonlySet<string>;
  /** Ids of the alarms whose known end it shows: their records in the list of active alarms are out of date. */
  readonly stale: ReadonlySet<string>;
  readonly failures: ReadonlyMap<number, Failure>;
}

export interface OvertakenEnds {
  settle(held: ReadonlyMap<string, StoredAlarm>, overtaken: readonly Alarm[], signal: AbortSignal): Promise<Settlement>;
  /** The poll of the last settlement is committed. */
  committed(): void;
}

export interface OvertakenOptions {
  readonly source: Source;
  readonly clock: Clock;
  /** Most pages of resolved alarms that are read of one site. */
  readonly maxPages: number;
  /** At so many polls in a row the list is read; after that ever more rarely. */
  readonly always: number;
}

interface Settling {
  readonly contested: readonly StoredAlarm[];
  readonly stale: ReadonlySet<string>;
}

/** So long an end that we know may be missing from a replica of the service, in milliseconds. */
const REPLICA_MS = 60_000;

/**
 * Settles whether an alarm that is known to be resolved is active again, although no later event says so: as after a
 * restored backup of the service. It reads the complete list of resolved alarms of the site. Where that cannot be read
 * completely, it says nothing, and the patience of ten polls decides (doubts.ts).
 */
export function createOvertakenEnds({ source, clock, maxPages, always }: OvertakenOptions): OvertakenEnds {
  const patience = createPatience(always);
  let stale: ReadonlySet<string> = new Set();
  let settling: Settling | null = null;

  /** The complete list of resolved alarms of a site; null where it cannot be read completely. */
  async function readEnds(siteId: number, signal: AbortSignal): Promise<readonly Alarm[] | null> {
    // A list may have a row for each episode of an alarm.
    const rowOf = (alarm: Alarm) => `${episodeOf(alarm)} ${alarm.id} ${alarm.resolvedAt}`;
    const read = () => source.alarms({ siteId, status: "resolved" }, signal);
    const listing = await collectSteady(read, { idOf: rowOf, sameAs: rowOf, maxPages });
    signal.throwIfAborted();
    return listing.complete ? listing.items : null;
  }

  return {
    async settle(held, overtaken, signal) {
      const shown = new Map(overtaken.map((alarm) => [alarm.id, alarm]));
      const contested = [...shown.keys()].flatMap((id) => {
        const known = held.get(id);
        if (known?.state !== "resolved") return [];
        return Math.abs(clock.now() - Date.parse(known.since)) < REPLICA_MS ? [] : [known];
      });
      const believed = new Set<string>();
      const stillStale = new Set(contested.map(({ alarm }) => alarm.id).filter((id) => stale.has(id)));
      const failures = new Map<number, Failure>();
      const bySite = Map.groupBy(patience.worthAsking(contested), ({ alarm }) => alarm.site.id);
      for (const [siteId, asked] of bySite) {
        let ends: readonly Alarm[] | null = null;
        try {
          ends = await readEnds(siteId, signal);
        } catch (error) {
          signal.throwIfAborted();
          const failure = meaningOf(error);
          if (failure instanceof LocalFailure) throw failure;
          failures.set(siteId, failure);
        }
        if (ends === null) continue;
        const rows = Map.groupBy(ends, ({ id }) => id);
        for (const known of asked) {
          const { id } = known.alarm;
          stillStale.delete(id);
          if (!showsEnd(known, rows.get(id) ?? [])) believed.add(id);
          else if (!beganAfterEnd(known, shown.get(id))) stillStale.add(id);
        }
      }
      settling = { contested, stale: stillStale };
      return { believed, stale: stillStale, failures };
    },
    committed() {
      if (settling === null) return;
      patience.committed(settling.contested);
      stale = settling.stale;
    },
  };
}

/** Whether one of the resolved records of an alarm is the end that is known, or a later one. */
function showsEnd(known: StoredAlarm, rows: readonly Alarm[]): boolean {
  return rows.some((row) => isResolved(row) && relationOf(known, row) !== "past");
}

/** Whether a record says that its alarm began after the known end: then that end does not contradict it. */
function beganAfterEnd({ alarm }: StoredAlarm, record: Alarm | undefined): boolean {
  const start = instant(record?.triggeredAt ?? null);
  const end = endOf(alarm);
  return start !== null && end !== null && start > end;
}
