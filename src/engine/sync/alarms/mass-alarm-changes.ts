import type { AlarmFact } from "../../../core/model/event.ts";
import type { Log } from "../../../core/runtime/log.ts";
import type { StoredAlarm } from "../snapshot.ts";
import type { AlarmDiff, Coverage } from "./diff-alarms.ts";

/** A mass change is 5 alarms and over a third of the active ones: often a stale cache or a wrong time zone. */
const MIN_CHANGED_ALARMS = 5;
const MIN_CHANGED_SHARE = 1 / 3;

/** Kinds of mass change. `polls`: further polls in a row that must confirm it; 10 polls outlast most caches. */
const MASS_CHANGE_KINDS = {
  absent: { polls: 10, text: "left the list at once" },
  ended: { polls: 1, text: "are said to be resolved at once" },
  replaced: { polls: 1, text: "are said to have begun again at once" },
  restarted: { polls: 1, text: "got another start time at once" },
} as const;
type MassChangeKind = keyof typeof MASS_CHANGE_KINDS;
const MASS_CHANGE_KIND_NAMES = Object.keys(MASS_CHANGE_KINDS) as readonly MassChangeKind[];

type StoredAlarms = ReadonlyMap<string, StoredAlarm>;

interface MassChange {
  readonly siteIds: ReadonlySet<number>;
  readonly changed: number;
  readonly active: number;
}

export function findMassChange(
  alarms: StoredAlarms,
  isChanged: (known: StoredAlarm) => boolean,
  isObserved: (siteId: number) => boolean,
): MassChange | null {
  const active = [...alarms.values()].filter(({ state, alarm }) => state === "active" && isObserved(alarm.site.id));
  const sites = [...Map.groupBy(active, ({ alarm }) => alarm.site.id)].map(([siteId, ofSite]) => {
    return { siteId, changed: ofSite.filter(isChanged).length, active: ofSite.length };
  });
  const isMassChange = ({ changed, active }: Omit<MassChange, "siteIds">) =>
    changed >= MIN_CHANGED_ALARMS && changed > MIN_CHANGED_SHARE * active;
  const sumSites = (counted: typeof sites) => ({
    changed: counted.reduce((sum, { changed }) => sum + changed, 0),
    active: counted.reduce((sum, { active: ofSite }) => sum + ofSite, 0),
  });
  const massChangeSites = sites.filter(isMassChange(sumSites(sites)) ? ({ changed }) => changed > 0 : isMassChange);
  const siteIds = new Set(massChangeSites.map(({ siteId }) => siteId));
  return siteIds.size === 0 ? null : { siteIds, ...sumSites(massChangeSites) };
}

function classifyChange(known: StoredAlarm, next: StoredAlarm | undefined): MassChangeKind | null {
  if (known.state !== "active" || next === undefined) return null;
  if (next.episode !== known.episode) return "replaced";
  if (next.state === "resolved") return "ended";
  if (becameAbsent(known, next)) return "absent";
  return next.state === "active" && next.alarm.triggeredAt !== known.alarm.triggeredAt ? "restarted" : null;
}

function becameAbsent(known: StoredAlarm, next: StoredAlarm | undefined): boolean {
  return next?.episode === known.episode && (next.state === "missing" || next.state === "vanished");
}

export function findMassEnds(alarms: StoredAlarms, { put }: AlarmDiff): ReadonlySet<string> {
  const isEnded = (known: StoredAlarm) => classifyChange(known, put.get(known.alarm.id)) === "ended";
  const massChange = findMassChange(alarms, isEnded, () => true);
  if (massChange === null) return new Set();
  const endedAlarms = alarms.values().filter((known) => massChange.siteIds.has(known.alarm.site.id) && isEnded(known));
  return new Set(endedAlarms.map(({ alarm }) => alarm.id));
}

/** Withholds mass changes of alarms until confirmed. A restart finds a change again and repeats its confirmation. */
export function createMassGuard(log: Pick<Log, "info" | "warn">) {
  const pollsBySite = Object.fromEntries(
    MASS_CHANGE_KIND_NAMES.map((kind) => [kind, new Map<number, number>()]),
  ) as Readonly<Record<MassChangeKind, Map<number, number>>>;

  function countPolls(kind: MassChangeKind, mass: MassChange | null, isObserved: (siteId: number) => boolean) {
    const pollsOfSites = pollsBySite[kind];
    const { polls, text } = MASS_CHANGE_KINDS[kind];
    const endedSites = [...pollsOfSites.keys()].filter((siteId) => isObserved(siteId) && !mass?.siteIds.has(siteId));
    for (const siteId of endedSites) pollsOfSites.delete(siteId);
    if (endedSites.length > 0) log.info({ sites: endedSites, way: kind }, "a mass change of alarms is over");
    if (mass === null) return new Set<number>();
    const { changed, active, siteIds } = mass;
    for (const siteId of siteIds) pollsOfSites.set(siteId, (pollsOfSites.get(siteId) ?? 0) + 1);
    const sitesAfterPolls = (reading: number) => [...siteIds].filter((siteId) => pollsOfSites.get(siteId) === reading);
    const [begun, confirmed] = [sitesAfterPolls(1), sitesAfterPolls(polls + 1)];
    const details = { way: kind, changed, of: active };
    if (begun.length > 0)
      log.warn({ sites: begun, ...details, polls }, `many active alarms ${text}: waiting for confirmation`);
    if (confirmed.length > 0)
      log.warn({ sites: confirmed, ...details }, `many active alarms ${text}: confirmed and believed`);
    return new Set([...siteIds].filter((siteId) => (pollsOfSites.get(siteId) ?? 0) <= polls));
  }

  return {
    isPending: (siteId: number) => pollsBySite.absent.has(siteId),
    judge(
      alarms: StoredAlarms,
      diff: AlarmDiff,
      coverage: (siteId: number) => Coverage,
      confirmed: ReadonlySet<string> = new Set(),
    ): { readonly diff: AlarmDiff; readonly remarks: readonly string[] } {
      const massChangeRemarks: string[] = [];
      const withheldIds = new Set<string>();
      const massEndedIds = findMassEnds(alarms, diff);
      if (massEndedIds.size > 0 && massEndedIds.isSubsetOf(confirmed))
        log.warn({ alarms: massEndedIds.size }, "many active alarms ended at once: a second reading states the same");
      for (const kind of MASS_CHANGE_KIND_NAMES) {
        const isChanged = (known: StoredAlarm) =>
          classifyChange(known, diff.put.get(known.alarm.id)) === kind &&
          !(kind === "ended" && confirmed.has(known.alarm.id));
        const isObserved = (siteId: number) =>
          kind === "absent" ? coverage(siteId) === "complete" : coverage(siteId) !== "none";
        const massChange = findMassChange(alarms, isChanged, isObserved);
        const siteIds = countPolls(kind, massChange, isObserved);
        if (massChange === null || siteIds.size === 0) continue;
        for (const storedAlarm of alarms.values()) {
          const { id, site } = storedAlarm.alarm;
          const isWithheld = kind === "absent" ? becameAbsent(storedAlarm, diff.put.get(id)) : isChanged(storedAlarm);
          if (isWithheld && siteIds.has(site.id)) withheldIds.add(id);
        }
        const { polls, text } = MASS_CHANGE_KINDS[kind];
        const confirmation = polls === 1 ? "one more poll has shown" : `${polls} polls have shown`;
        massChangeRemarks.push(
          `${massChange.changed} of ${massChange.active} active alarms ${text} (site ${[...siteIds].join(", ")}): they stay as they were until ${confirmation} the same.`,
        );
      }
      return { diff: excludeAlarms(withheldIds, diff), remarks: massChangeRemarks };
    },
  };
}

function excludeAlarms(ids: ReadonlySet<string>, diff: AlarmDiff): AlarmDiff {
  if (ids.size === 0) return diff;
  return {
    put: new Map([...diff.put].filter(([id]) => !ids.has(id))),
    events: diff.events.filter(({ data }) => !ids.has((data as AlarmFact).alarm.id)),
  };
}
