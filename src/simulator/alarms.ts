import type { Devices } from "./devices.ts";
import type { SimulatorOptions } from "./options.ts";
import { ALARM_ID_STEP_PER_COPY, type AlarmEpisode, type Site, type World } from "./simulated-sites.ts";

// Alarms of the simulated service: recorded ones and those that the control interface raised or changed.

export interface Acknowledgement {
  readonly by: string;
  readonly message: string | null;
  readonly atMs: number;
}

export interface AlarmFacts {
  readonly id: string;
  readonly siteId: number;
  readonly triggerId: number;
  readonly tagId: string;
  readonly triggeredAtMs: number;
  readonly value: number;
  readonly description: string | null;
}

export interface Alarm extends AlarmFacts {
  /** null: active. */
  readonly resolvedAtMs: number | null;
  readonly recoveringUntilMs: number | null;
  readonly acknowledged: Acknowledgement | null;
  readonly episodes: number;
}

export interface BaseAlarm extends AlarmFacts {
  readonly resolvesAtMs: number | null;
}

/** Changes of an alarm by the control interface; they override the recording. */
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

/** Alarm ids grow by this with each pass of the recording. */
const ALARM_ID_STEP_PER_PASS = 1_000_000;

export function createAlarmStore(world: World, devices: Devices, options: SimulatorOptions) {
  const storedAlarms = new Map<string, BaseAlarm>();
  const alarmChangesById = new Map<string, AlarmChange>();
  const controlTransitions: AlarmTransition[] = [];
  const resolvedRetentionMs = options.alarms.resolved_retention_h * 3_600_000;
  const recoveryDurationMs = options.alarms.recovering_s * 1000;

  function computeEpisodeTimes({ timeline }: Site, { raised, resolved }: AlarmEpisode, pass: number) {
    const start = pass * timeline.lengthMs;
    return {
      raisedMs: roundDownToSecond(timeline.wallAt(start + raised)),
      resolvedMs: roundDownToSecond(timeline.wallAt(start + resolved)),
    };
  }

  /** Lists the recorded alarms that are active at some time in a range. */
  function* listRecorded(site: Site, fromMs: number, toMs: number) {
    if (!options.alarms.recorded) return;
    const { lengthMs, positionAt } = site.timeline;
    const lastPass = Math.floor(positionAt(toMs) / lengthMs);
    const firstPass = Math.max(0, Math.floor(positionAt(fromMs) / lengthMs) - 1);
    for (let pass = firstPass; pass <= lastPass; pass += 1) {
      for (const episode of site.alarms) {
        const episodeTimesMs = computeEpisodeTimes(site, episode, pass);
        if (episodeTimesMs.raisedMs > toMs || episodeTimesMs.resolvedMs < fromMs) continue;
        yield { site, episode, id: String(episode.id + pass * ALARM_ID_STEP_PER_PASS), ...episodeTimesMs };
      }
    }
  }

  function toBaseAlarm({ site, episode, id, raisedMs, resolvedMs }: RecordedAlarm): BaseAlarm {
    const { triggerId, tagId } = episode;
    const value = episode.value ?? readTagValue(tagId, raisedMs);
    const times = { triggeredAtMs: raisedMs, resolvesAtMs: resolvedMs };
    return { id, siteId: site.id, triggerId, tagId, ...times, value, description: null };
  }

  /** The interface requires a number, so 0 stands for a missing value. */
  function readTagValue(tagId: string, atMs: number): number {
    const tag = world.tags.get(tagId);
    return tag === undefined ? 0 : (devices.valueAt(tag, atMs) ?? 0);
  }

  function computeAlarmState(base: BaseAlarm, nowMs: number): Alarm | undefined {
    const change = alarmChangesById.get(base.id);
    if (change?.deleted === true) return undefined;
    const { resolvesAtMs, ...facts } = base;
    const isResolved = resolvesAtMs !== null && resolvesAtMs <= nowMs;
    const isRecovering = resolvesAtMs !== null && !isResolved && nowMs >= resolvesAtMs - recoveryDurationMs;
    return {
      ...facts,
      resolvedAtMs: isResolved ? resolvesAtMs : null,
      recoveringUntilMs: isRecovering ? resolvesAtMs : null,
      acknowledged: null,
      episodes: 1,
      ...change,
    };
  }

  function listBaseAlarms(sinceMs: number, nowMs: number, siteId: number | undefined): BaseAlarm[] {
    const recordedAlarms = [...world.sites.values()]
      .filter(({ id }) => siteId === undefined || id === siteId)
      .flatMap((site) => [...listRecorded(site, sinceMs, nowMs)].filter(({ id }) => !storedAlarms.has(id)));
    const storedSiteAlarms = storedAlarms.values().filter((base) => siteId === undefined || base.siteId === siteId);
    return [...recordedAlarms.map(toBaseAlarm), ...storedSiteAlarms];
  }

  function listAlarms(nowMs: number, { siteId, status }: AlarmFilter = {}): Alarm[] {
    const oldestRetainedMs = nowMs - resolvedRetentionMs;
    const matchingAlarms: Alarm[] = [];
    for (const baseAlarm of listBaseAlarms(status === "active" ? nowMs : oldestRetainedMs, nowMs, siteId)) {
      const alarm = computeAlarmState(baseAlarm, nowMs);
      if (alarm === undefined || (alarm.resolvedAtMs ?? nowMs) < oldestRetainedMs) {
        if (baseAlarm.resolvesAtMs === null) {
          storedAlarms.delete(baseAlarm.id);
          alarmChangesById.delete(baseAlarm.id);
        }
        continue;
      }
      const alarmStatus = alarm.resolvedAtMs === null ? "active" : "resolved";
      if (status === undefined || status === alarmStatus) matchingAlarms.push(alarm);
    }
    return matchingAlarms.sort((a, b) => Number(a.id) - Number(b.id));
  }

  function findBaseAlarm(id: string, nowMs: number): BaseAlarm | undefined {
    const storedAlarm = storedAlarms.get(id);
    if (storedAlarm !== undefined || !options.alarms.recorded) return storedAlarm;
    const pass = Math.floor((Number(id) % ALARM_ID_STEP_PER_COPY) / ALARM_ID_STEP_PER_PASS);
    for (const site of world.sites.values()) {
      const episode = site.alarms.find((candidate) => String(candidate.id + pass * ALARM_ID_STEP_PER_PASS) === id);
      if (episode === undefined) continue;
      const times = computeEpisodeTimes(site, episode, pass);
      return times.raisedMs <= nowMs ? toBaseAlarm({ site, episode, id, ...times }) : undefined;
    }
    return undefined;
  }

  return {
    stored: storedAlarms,
    changes: alarmChangesById,
    controlTransitions,
    list: listAlarms,
    find(id: string, nowMs: number): Alarm | undefined {
      const baseAlarm = findBaseAlarm(id, nowMs);
      return baseAlarm === undefined ? undefined : computeAlarmState(baseAlarm, nowMs);
    },
    change(id: string, nowMs: number, change: AlarmChange): void {
      const baseAlarm = findBaseAlarm(id, nowMs);
      if (baseAlarm === undefined) return;
      storedAlarms.set(id, baseAlarm);
      alarmChangesById.set(id, { ...alarmChangesById.get(id), ...change });
    },
    addTransition: (transition: AlarmTransition) => controlTransitions.push(transition),
    transitions(fromMs: number, toMs: number): AlarmTransition[] {
      const recordedAlarms = [...world.sites.values()].flatMap((site) => [...listRecorded(site, fromMs, toMs)]);
      const recordedTransitions = recordedAlarms.flatMap(({ site, id, raisedMs, resolvedMs }): AlarmTransition[] => {
        const alarmFacts = { alarmId: id, siteId: site.id, triggeredAtMs: raisedMs };
        const raised = { ...alarmFacts, atMs: raisedMs, kind: "raised" } as const;
        const change = alarmChangesById.get(id);
        const isAlarmEndOverridden = change?.resolvedAtMs !== undefined || change?.deleted === true;
        return isAlarmEndOverridden ? [raised] : [raised, { ...alarmFacts, atMs: resolvedMs, kind: "resolved" }];
      });
      return [...recordedTransitions, ...controlTransitions]
        .filter(({ atMs }) => atMs >= fromMs && atMs <= toMs)
        .sort((a, b) => a.atMs - b.atMs);
    },
  };
}

const roundDownToSecond = (atMs: number): number => Math.floor(atMs / 1000) * 1000;
