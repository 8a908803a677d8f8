import type { AlarmFact } from "../../../core/model/event.ts";
import type { Log } from "../../../core/runtime/log.ts";
import type { StoredAlarm } from "../stored-documents.ts";
import type { AlarmDiff, ListCoverage } from "./diff-alarms.ts";

/** A mass change: in one poll, 5 or more alarms and over a third of the active ones change. Often a cache is stale. */
const MIN_CHANGED_ALARMS = 5;
const MIN_CHANGED_ALARM_SHARE = 1 / 3;

/** Kinds of mass change. `polls`: number of further polls in a row that must show the change before it counts. */
const MASS_ALARM_CHANGE_KINDS = {
  absent: { polls: 10, text: "left the list at once" },
  ended: { polls: 1, text: "are said to be resolved at once" },
  replaced: { polls: 1, text: "are said to have begun again at once" },
  restarted: { polls: 1, text: "got another start time at once" },
} as const;
type MassChangeKind = keyof typeof MASS_ALARM_CHANGE_KINDS;
const MASS_ALARM_CHANGE_KIND_NAMES = Object.keys(MASS_ALARM_CHANGE_KINDS) as readonly MassChangeKind[];

type StoredAlarmsById = ReadonlyMap<string, StoredAlarm>;

interface MassChange {
  readonly siteIds: ReadonlySet<number>;
  readonly changedCount: number;
  readonly activeCount: number;
}

export function findMassAlarmChange(
  alarms: StoredAlarmsById,
  isChanged: (storedAlarm: StoredAlarm) => boolean,
  isObserved: (siteId: number) => boolean,
): MassChange | null {
  const active = [...alarms.values()].filter(({ state, alarm }) => state === "active" && isObserved(alarm.site.id));
  const sites = [...Map.groupBy(active, ({ alarm }) => alarm.site.id)].map(([siteId, siteAlarms]) => {
    return { siteId, changedCount: siteAlarms.filter(isChanged).length, activeCount: siteAlarms.length };
  });
  const isMassChange = ({ changedCount, activeCount }: Omit<MassChange, "siteIds">) =>
    changedCount >= MIN_CHANGED_ALARMS && changedCount > MIN_CHANGED_ALARM_SHARE * activeCount;
  const sumCounts = (countedSites: typeof sites) => ({
    changedCount: countedSites.reduce((sum, { changedCount }) => sum + changedCount, 0),
    activeCount: countedSites.reduce((sum, { activeCount }) => sum + activeCount, 0),
  });
  const massChangeSites = sites.filter(
    isMassChange(sumCounts(sites)) ? ({ changedCount }) => changedCount > 0 : isMassChange,
  );
  const siteIds = new Set(massChangeSites.map(({ siteId }) => siteId));
  return siteIds.size === 0 ? null : { siteIds, ...sumCounts(massChangeSites) };
}

function classifyAlarmChange(storedAlarm: StoredAlarm, next: StoredAlarm | undefined): MassChangeKind | null {
  if (storedAlarm.state !== "active" || next === undefined) return null;
  if (next.episode !== storedAlarm.episode) return "replaced";
  if (next.state === "resolved") return "ended";
  if (becameAbsent(storedAlarm, next)) return "absent";
  return next.state === "active" && next.alarm.triggeredAt !== storedAlarm.alarm.triggeredAt ? "restarted" : null;
}

function becameAbsent(storedAlarm: StoredAlarm, next: StoredAlarm | undefined): boolean {
  return next?.episode === storedAlarm.episode && (next.state === "missing" || next.state === "vanished");
}

export function findMassAlarmEnds(alarms: StoredAlarmsById, { put }: AlarmDiff): ReadonlySet<string> {
  const hasEnded = (storedAlarm: StoredAlarm) =>
    classifyAlarmChange(storedAlarm, put.get(storedAlarm.alarm.id)) === "ended";
  const massChange = findMassAlarmChange(alarms, hasEnded, () => true);
  if (massChange === null) return new Set();
  const endedAlarms = alarms
    .values()
    .filter((storedAlarm) => massChange.siteIds.has(storedAlarm.alarm.site.id) && hasEnded(storedAlarm));
  return new Set(endedAlarms.map(({ alarm }) => alarm.id));
}

/** Withholds mass changes of alarms until further polls confirm them. */
export function createMassAlarmChangeGuard(log: Pick<Log, "info" | "warn">) {
  const noPolls = () => new Map<number, number>();
  const pollCountsByKind = { absent: noPolls(), ended: noPolls(), replaced: noPolls(), restarted: noPolls() };

  function countPolls(kind: MassChangeKind, massChange: MassChange | null, isObserved: (siteId: number) => boolean) {
    const pollCounts = pollCountsByKind[kind];
    const { polls, text } = MASS_ALARM_CHANGE_KINDS[kind];
    const isNormal = (siteId: number) => isObserved(siteId) && !massChange?.siteIds.has(siteId);
    const normalSites = [...pollCounts.keys()].filter(isNormal);
    for (const siteId of normalSites) pollCounts.delete(siteId);
    if (normalSites.length > 0) log.info({ sites: normalSites, way: kind }, "a mass change of alarms is over");
    if (massChange === null) return new Set<number>();
    const { changedCount, activeCount, siteIds } = massChange;
    for (const siteId of siteIds) pollCounts.set(siteId, (pollCounts.get(siteId) ?? 0) + 1);
    const sitesAtCount = (pollCount: number) => [...siteIds].filter((siteId) => pollCounts.get(siteId) === pollCount);
    const [newSites, confirmedSites] = [sitesAtCount(1), sitesAtCount(polls + 1)];
    const details = { way: kind, changed: changedCount, of: activeCount };
    const warn = (fields: object, outcome: string) => log.warn(fields, `many active alarms ${text}: ${outcome}`);
    if (newSites.length > 0) warn({ sites: newSites, ...details, polls }, "waiting for confirmation");
    if (confirmedSites.length > 0) warn({ sites: confirmedSites, ...details }, "confirmed, so the changes are emitted");
    return new Set([...siteIds].filter((siteId) => (pollCounts.get(siteId) ?? 0) <= polls));
  }

  return {
    isAbsencePending: (siteId: number) => pollCountsByKind.absent.has(siteId),
    withholdMassChanges(
      alarms: StoredAlarmsById,
      diff: AlarmDiff,
      coverage: (siteId: number) => ListCoverage,
      confirmedEndIds: ReadonlySet<string> = new Set(),
    ): { readonly diff: AlarmDiff; readonly remarks: readonly string[] } {
      const massChangeRemarks: string[] = [];
      const withheldAlarmIds = new Set<string>();
      const massEndedIds = findMassAlarmEnds(alarms, diff);
      if (massEndedIds.size > 0 && massEndedIds.isSubsetOf(confirmedEndIds))
        log.warn({ alarms: massEndedIds.size }, "many active alarms ended at once: a second reading states the same");
      for (const kind of MASS_ALARM_CHANGE_KIND_NAMES) {
        const hasChanged = (storedAlarm: StoredAlarm) =>
          classifyAlarmChange(storedAlarm, diff.put.get(storedAlarm.alarm.id)) === kind &&
          !(kind === "ended" && confirmedEndIds.has(storedAlarm.alarm.id));
        const isSiteObserved = (siteId: number) =>
          kind === "absent" ? coverage(siteId) === "complete" : coverage(siteId) !== "none";
        const massChange = findMassAlarmChange(alarms, hasChanged, isSiteObserved);
        const siteIds = countPolls(kind, massChange, isSiteObserved);
        if (massChange === null || siteIds.size === 0) continue;
        for (const storedAlarm of alarms.values()) {
          const { id, site } = storedAlarm.alarm;
          const isWithheld = kind === "absent" ? becameAbsent(storedAlarm, diff.put.get(id)) : hasChanged(storedAlarm);
          if (isWithheld && siteIds.has(site.id)) withheldAlarmIds.add(id);
        }
        const { polls, text } = MASS_ALARM_CHANGE_KINDS[kind];
        const confirmationText = polls === 1 ? "one more poll has shown" : `${polls} polls have shown`;
        massChangeRemarks.push(
          `${massChange.changedCount} of ${massChange.activeCount} active alarms ${text} (site ${[...siteIds].join(", ")}): they stay as they were until ${confirmationText} the same.`,
        );
      }
      return { diff: excludeAlarmsFromDiff(withheldAlarmIds, diff), remarks: massChangeRemarks };
    },
  };
}

function excludeAlarmsFromDiff(alarmIds: ReadonlySet<string>, diff: AlarmDiff): AlarmDiff {
  if (alarmIds.size === 0) return diff;
  return {
    put: new Map([...diff.put].filter(([id]) => !alarmIds.has(id))),
    events: diff.events.filter(({ data }) => !alarmIds.has((data as AlarmFact).alarm.id)),
  };
}
