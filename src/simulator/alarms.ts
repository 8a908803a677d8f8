import type { Devices } from "./devices.ts";
import type { SimulatorOptions } from "./options.ts";
import { ALARM_ID_STEP_PER_COPY, type AlarmEpisode, type SimulatedSites, type Site } from "./simulated-sites.ts";

export interface AlarmIdentity {
  readonly id: string;
  readonly siteId: number;
  readonly triggerId: number;
  readonly tagId: string;
  readonly triggeredAtMs: number;
  readonly value: number;
  readonly description: string | null;
}

export interface Alarm extends AlarmIdentity {
  /** Time of the resolution; null while the alarm is active. */
  readonly resolvedAtMs: number | null;
  readonly recoveringUntilMs: number | null;
  readonly acknowledged: { readonly by: string; readonly message: string | null; readonly atMs: number } | null;
  readonly episodes: number;
}

export interface OriginalAlarm extends AlarmIdentity {
  readonly resolvesAtMs: number | null;
}

/** Fields of a recorded alarm that the control interface changed. */
export type AlarmChange = Partial<
  Pick<Alarm, "triggeredAtMs" | "resolvedAtMs" | "recoveringUntilMs" | "acknowledged" | "episodes"> & {
    readonly deleted: boolean;
  }
>;

export interface AlarmTransition {
  readonly atMs: number;
  readonly alarmId: string;
  readonly siteId: number;
  readonly kind: "raised" | "resolved" | "acknowledged" | "unacknowledged" | "recovering" | "retriggered" | "deleted";
  readonly triggeredAtMs: number;
}

export interface AlarmFilter {
  readonly siteId?: number;
  readonly status?: "active" | "resolved";
}

interface RecordedAlarm {
  readonly site: Site;
  readonly episode: AlarmEpisode;
  readonly id: string;
  readonly raisedMs: number;
  readonly resolvedMs: number;
}

export type AlarmStore = ReturnType<typeof createAlarmStore>;

/** Each replay of the recording adds this number to the alarm ids. */
const ALARM_ID_STEP_PER_REPLAY = 1_000_000;

export function createAlarmStore(world: SimulatedSites, devices: Devices, options: SimulatorOptions) {
  const manualAlarms = new Map<string, OriginalAlarm>();
  const alarmChangesById = new Map<string, AlarmChange>();
  const manualTransitions: AlarmTransition[] = [];
  const resolvedAlarmRetentionMs = options.alarms.resolved_retention_h * 3_600_000;
  const recoveryDurationMs = options.alarms.recovering_s * 1000;

  function computeAlarmEpisodeTimes({ timeline }: Site, { raisedMs, resolvedMs }: AlarmEpisode, pass: number) {
    const passStartPosition = pass * timeline.lengthMs;
    return {
      raisedMs: roundDownToSecond(timeline.wallMsAt(passStartPosition + raisedMs)),
      resolvedMs: roundDownToSecond(timeline.wallMsAt(passStartPosition + resolvedMs)),
    };
  }

  /** Lists the recorded alarms that are active at any time in the range. */
  function* listRecordedAlarms(site: Site, fromMs: number, toMs: number) {
    if (!options.alarms.recorded) return;
    const { lengthMs, positionAt } = site.timeline;
    const lastReplayPass = Math.floor(positionAt(toMs) / lengthMs);
    const firstReplayPass = Math.max(0, Math.floor(positionAt(fromMs) / lengthMs) - 1);
    for (let pass = firstReplayPass; pass <= lastReplayPass; pass += 1) {
      for (const episode of site.alarms) {
        const alarmEpisodeTimes = computeAlarmEpisodeTimes(site, episode, pass);
        if (alarmEpisodeTimes.raisedMs > toMs || alarmEpisodeTimes.resolvedMs < fromMs) continue;
        yield { site, episode, id: String(episode.id + pass * ALARM_ID_STEP_PER_REPLAY), ...alarmEpisodeTimes };
      }
    }
  }

  function toOriginalAlarm({ site, episode, id, raisedMs, resolvedMs }: RecordedAlarm): OriginalAlarm {
    const { triggerId, tagId } = episode;
    const value = episode.value ?? readTagValue(tagId, raisedMs);
    const alarmTimes = { triggeredAtMs: raisedMs, resolvesAtMs: resolvedMs };
    return { id, siteId: site.id, triggerId, tagId, ...alarmTimes, value, description: null };
  }

  /** Returns 0 for a missing value, because the interface requires a number. */
  function readTagValue(tagId: string, atMs: number): number {
    const tag = world.tags.get(tagId);
    return tag === undefined ? 0 : (devices.valueAt(tag, atMs) ?? 0);
  }

  function computeAlarmState(base: OriginalAlarm, nowMs: number): Alarm | undefined {
    const alarmChange = alarmChangesById.get(base.id);
    if (alarmChange?.deleted === true) return undefined;
    const { resolvesAtMs, ...alarmIdentity } = base;
    const isAlarmResolved = resolvesAtMs !== null && resolvesAtMs <= nowMs;
    const isAlarmRecovering = resolvesAtMs !== null && !isAlarmResolved && nowMs >= resolvesAtMs - recoveryDurationMs;
    return {
      ...alarmIdentity,
      resolvedAtMs: isAlarmResolved ? resolvesAtMs : null,
      recoveringUntilMs: isAlarmRecovering ? resolvesAtMs : null,
      acknowledged: null,
      episodes: 1,
      ...alarmChange,
    };
  }

  function listOriginalAlarms(sinceMs: number, nowMs: number, siteId: number | undefined): OriginalAlarm[] {
    const recordedAlarms = [...world.sites.values()]
      .filter(({ id }) => siteId === undefined || id === siteId)
      .flatMap((site) => [...listRecordedAlarms(site, sinceMs, nowMs)].filter(({ id }) => !manualAlarms.has(id)));
    const manualSiteAlarms = manualAlarms.values().filter((base) => siteId === undefined || base.siteId === siteId);
    return [...recordedAlarms.map(toOriginalAlarm), ...manualSiteAlarms];
  }

  function listAlarms(nowMs: number, { siteId, status }: AlarmFilter = {}): Alarm[] {
    const oldestRetainedMs = nowMs - resolvedAlarmRetentionMs;
    const matchingAlarms: Alarm[] = [];
    for (const originalAlarm of listOriginalAlarms(status === "active" ? nowMs : oldestRetainedMs, nowMs, siteId)) {
      const alarm = computeAlarmState(originalAlarm, nowMs);
      if (alarm === undefined || (alarm.resolvedAtMs ?? nowMs) < oldestRetainedMs) {
        if (originalAlarm.resolvesAtMs === null) {
          manualAlarms.delete(originalAlarm.id);
          alarmChangesById.delete(originalAlarm.id);
        }
        continue;
      }
      const alarmStatus = alarm.resolvedAtMs === null ? "active" : "resolved";
      if (status === undefined || status === alarmStatus) matchingAlarms.push(alarm);
    }
    return matchingAlarms.sort((a, b) => Number(a.id) - Number(b.id));
  }

  function findOriginalAlarm(id: string, nowMs: number): OriginalAlarm | undefined {
    const manualAlarm = manualAlarms.get(id);
    if (manualAlarm !== undefined || !options.alarms.recorded) return manualAlarm;
    const pass = Math.floor((Number(id) % ALARM_ID_STEP_PER_COPY) / ALARM_ID_STEP_PER_REPLAY);
    for (const site of world.sites.values()) {
      const episode = site.alarms.find((candidate) => String(candidate.id + pass * ALARM_ID_STEP_PER_REPLAY) === id);
      if (episode === undefined) continue;
      const alarmTimes = computeAlarmEpisodeTimes(site, episode, pass);
      return alarmTimes.raisedMs <= nowMs ? toOriginalAlarm({ site, episode, id, ...alarmTimes }) : undefined;
    }
    return undefined;
  }

  return {
    manualAlarms,
    changes: alarmChangesById,
    controlTransitions: manualTransitions,
    list: listAlarms,
    find(id: string, nowMs: number): Alarm | undefined {
      const originalAlarm = findOriginalAlarm(id, nowMs);
      return originalAlarm === undefined ? undefined : computeAlarmState(originalAlarm, nowMs);
    },
    changeAlarm(id: string, nowMs: number, change: AlarmChange): void {
      const originalAlarm = findOriginalAlarm(id, nowMs);
      if (originalAlarm === undefined) return;
      manualAlarms.set(id, originalAlarm);
      alarmChangesById.set(id, { ...alarmChangesById.get(id), ...change });
    },
    addTransition: (transition: AlarmTransition) => manualTransitions.push(transition),
    listTransitions(fromMs: number, toMs: number): AlarmTransition[] {
      const recordedAlarms = [...world.sites.values()].flatMap((site) => [...listRecordedAlarms(site, fromMs, toMs)]);
      const recordedTransitions = recordedAlarms.flatMap(({ site, id, raisedMs, resolvedMs }): AlarmTransition[] => {
        const transitionFields = { alarmId: id, siteId: site.id, triggeredAtMs: raisedMs };
        const raised = { ...transitionFields, atMs: raisedMs, kind: "raised" } as const;
        const alarmChange = alarmChangesById.get(id);
        const isAlarmEndOverridden = alarmChange?.resolvedAtMs !== undefined || alarmChange?.deleted === true;
        return isAlarmEndOverridden ? [raised] : [raised, { ...transitionFields, atMs: resolvedMs, kind: "resolved" }];
      });
      return [...recordedTransitions, ...manualTransitions]
        .filter(({ atMs }) => atMs >= fromMs && atMs <= toMs)
        .sort((a, b) => a.atMs - b.atMs);
    },
  };
}

const roundDownToSecond = (atMs: number): number => Math.floor(atMs / 1000) * 1000;
