import type { AlarmFact } from "../../../core/model/event.ts";
import type { Log } from "../../../core/runtime/log.ts";
import type { StoredAlarm } from "../snapshot.ts";
import type { AlarmDiff, Coverage } from "./diff-alarms.ts";

/**
 * One way in which a poll changes alarms that are known to be active: `absent`: a complete list does not show them;
 * `ended`: the service says that they are resolved; `replaced`: another episode has begun; `restarted`: the same episode
 * has another start time.
 */
export type Way = "absent" | "ended" | "replaced" | "restarted";

/** How many of the alarms that are known to be active one poll would change in the same way, and at which sites. */
export interface Mass {
  readonly siteIds: ReadonlySet<number>;
  readonly changed: number;
  readonly of: number;
}

/**
 * A change is a mass change from so many alarms on, where it also concerns more than a third of the known active ones.
 * Below that it is everyday life: one of one is over, two of three. Five that change together are more often the answer
 * of a cache, of an old replica, of an index that is being built, or of a server with a wrong time zone.
 */
const LEAST = 5;
const SHARE = 1 / 3;

interface Kind {
  /** Further polls in a row that must show the same before it is believed. */
  readonly polls: number;
  /** Follows "5 of 12 active alarms". */
  readonly text: string;
}

/**
 * Ten polls, five minutes at one poll per 30 s, are the life of a usual cache: an absence is believed after them. What
 * the service states is believed when the next poll shows it again.
 */
const KINDS: Readonly<Record<Way, Kind>> = {
  absent: { polls: 10, text: "left the list at once" },
  ended: { polls: 1, text: "are said to be resolved at once" },
  replaced: { polls: 1, text: "are said to have begun again at once" },
  restarted: { polls: 1, text: "got another start time at once" },
};
const WAYS = Object.keys(KINDS) as readonly Way[];

/**
 * The mass change among the alarms that are known to be active, at single sites or at all of them together; null where
 * there is none. Pure. An alarm that was missed once already does not count as active: its absence has been confirmed.
 */
export function massOf(
  held: ReadonlyMap<string, StoredAlarm>,
  isChanged: (known: StoredAlarm) => boolean,
  isObserved: (siteId: number) => boolean,
): Mass | null {
  const counts = new Map<number, { siteId: number; changed: number; of: number }>();
  for (const known of held.values()) {
    const siteId = known.alarm.site.id;
    if (known.state !== "active" || !isObserved(siteId)) continue;
    const count = counts.get(siteId) ?? { siteId, changed: 0, of: 0 };
    counts.set(siteId, count);
    count.of += 1;
    if (isChanged(known)) count.changed += 1;
  }
  const sites = [...counts.values()];
  const all = { changed: sumOf(sites, "changed"), of: sumOf(sites, "of") };
  const counted = isMass(all) ? sites.filter((site) => site.changed > 0) : sites.filter(isMass);
  if (counted.length === 0) return null;
  const siteIds = new Set(counted.map((site) => site.siteId));
  return { siteIds, changed: sumOf(counted, "changed"), of: sumOf(counted, "of") };
}

function isMass({ changed, of }: { readonly changed: number; readonly of: number }): boolean {
  return changed >= LEAST && changed > SHARE * of;
}

function sumOf(sites: readonly { readonly changed: number; readonly of: number }[], what: "changed" | "of"): number {
  return sites.reduce((sum, site) => sum + site[what], 0);
}

/** In which way a difference changes an alarm that is known to be active; null where in none. */
function wayOf(known: StoredAlarm, next: StoredAlarm | undefined): Way | null {
  if (known.state !== "active" || next === undefined) return null;
  if (next.episode !== known.episode) return "replaced";
  if (next.state === "resolved") return "ended";
  if (isAbsent(known, next)) return "absent";
  return next.state === "active" && next.alarm.triggeredAt !== known.alarm.triggeredAt ? "restarted" : null;
}

function isAbsent(known: StoredAlarm, next: StoredAlarm | undefined): boolean {
  return next?.episode === known.episode && (next.state === "missing" || next.state === "vanished");
}

/** Ids of the alarms whose end a difference states, where these ends are a mass change. */
export function massEnds(held: ReadonlyMap<string, StoredAlarm>, { put }: AlarmDiff): ReadonlySet<string> {
  const isEnded = (known: StoredAlarm) => wayOf(known, put.get(known.alarm.id)) === "ended";
  const mass = massOf(held, isEnded, () => true);
  const ended = [...held.values()].filter((known) => mass?.siteIds.has(known.alarm.site.id) === true && isEnded(known));
  return new Set(ended.map((known) => known.alarm.id));
}

export interface MassGuard {
  /** The difference without the mass changes that have to be confirmed first, and messages about these. */
  judge(held: ReadonlyMap<string, StoredAlarm>, diff: AlarmDiff, seen: Seen): Judged;
  /** Whether the absence of many alarms of a site waits for its confirmation: then each reading of it counts. */
  isOpen(siteId: number): boolean;
}

interface Seen {
  readonly coverage: (siteId: number) => Coverage;
  /** Alarm ids whose end a second reading in the same poll has stated again. */
  readonly confirmed?: ReadonlySet<string>;
}

export interface Judged {
  readonly diff: AlarmDiff;
  readonly remarks: string[];
}

/**
 * Keeps alarms as they are until a mass change is confirmed. The change is measured against the alarms that the store
 * holds as active, so it is found again after a restart, and the count begins again.
 */
export function createMassGuard(log: Pick<Log, "info" | "warn">): MassGuard {
  const readings: Readonly<Record<Way, Map<number, number>>> = {
    absent: new Map(),
    ended: new Map(),
    replaced: new Map(),
    restarted: new Map(),
  };

  /** Counts one more reading of a mass change; answers the sites at which it is not believed yet. */
  function count(way: Way, mass: Mass | null, isObserved: (siteId: number) => boolean): ReadonlySet<number> {
    const counted = readings[way];
    const { polls, text } = KINDS[way];
    const over = [...counted.keys()].filter((siteId) => isObserved(siteId) && !mass?.siteIds.has(siteId));
    for (const siteId of over) counted.delete(siteId);
    if (over.length > 0) log.info({ sites: over, way }, "a mass change of alarms is over");
    if (mass === null) return new Set();
    const { changed, of, siteIds } = mass;
    const began = [...siteIds].filter((siteId) => !counted.has(siteId));
    for (const siteId of siteIds) counted.set(siteId, (counted.get(siteId) ?? 0) + 1);
    if (began.length > 0)
      log.warn({ sites: began, way, changed, of, polls }, `many active alarms ${text}: waiting for confirmation`);
    const confirmed = [...siteIds].filter((siteId) => counted.get(siteId) === polls + 1);
    if (confirmed.length > 0)
      log.warn({ sites: confirmed, way, changed, of }, `many active alarms ${text}: confirmed and believed`);
    return new Set([...siteIds].filter((siteId) => (counted.get(siteId) ?? 0) <= polls));
  }

  return {
    isOpen: (siteId) => readings.absent.has(siteId),
    judge(held, diff, { coverage, confirmed = new Set() }) {
      const remarks: string[] = [];
      const waiting = new Set<string>();
      const stated = massEnds(held, diff);
      if (stated.size > 0 && stated.isSubsetOf(confirmed))
        log.warn({ alarms: stated.size }, "many active alarms ended at once: a second reading states the same");
      for (const way of WAYS) {
        const isChanged = (known: StoredAlarm) =>
          wayOf(known, diff.put.get(known.alarm.id)) === way && !(way === "ended" && confirmed.has(known.alarm.id));
        const isObserved = (siteId: number) =>
          way === "absent" ? coverage(siteId) === "complete" : coverage(siteId) !== "none";
        const mass = massOf(held, isChanged, isObserved);
        const siteIds = count(way, mass, isObserved);
        if (mass === null || siteIds.size === 0) continue;
        for (const known of held.values()) {
          const { id, site } = known.alarm;
          // The same list says nothing about the alarms that it lacked before, either.
          const waits = way === "absent" ? isAbsent(known, diff.put.get(id)) : isChanged(known);
          if (waits && siteIds.has(site.id)) waiting.add(id);
        }
        remarks.push(remarkOf(way, mass, siteIds));
      }
      return { diff: without(waiting, diff), remarks };
    },
  };
}

function remarkOf(way: Way, { changed, of }: Mass, siteIds: ReadonlySet<number>): string {
  const { polls, text } = KINDS[way];
  const where = `site ${[...siteIds].join(", ")}`;
  const until = polls === 1 ? "one more poll has shown" : `${polls} polls have shown`;
  return `${changed} of ${of} active alarms ${text} (${where}): they stay as they were until ${until} the same.`;
}

function without(ids: ReadonlySet<string>, diff: AlarmDiff): AlarmDiff {
  if (ids.size === 0) return diff;
  return {
    put: new Map([...diff.put].filter(([id]) => !ids.has(id))),
    events: diff.events.filter(({ data }) => !ids.has((data as AlarmFact).alarm.id)),
  };
}
