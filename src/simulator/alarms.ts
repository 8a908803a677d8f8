import type { Devices } from "./devices.ts";
import type { SimulatorOptions } from "./options.ts";
import { ALARM_COPY_STEP, type AlarmEpisode, type Site, type World } from "./world.ts";

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
  /** How often the alarm was triggered, including the first time. */
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

export type AlarmStore = ReturnType<typeof createAlarmStore>;

/** Alarm ids grow by this with each pass of the recording. */
const PASS_STEP = 1_000_000;

export function createAlarmStore(world: World, devices: Devices, options: SimulatorOptions) {
  const stored = new Map<string, BaseAlarm>();
  const changes = new Map<string, AlarmChange>();
  const transitions: AlarmTransition[] = [];
  const retentionMs = options.alarms.resolved_retention_h * 3_600_000;
  const recoveringMs = options.alarms.recovering_s * 1000;

  function timesOf({ timeline }: Site, { raised, resolved }: AlarmEpisode, pass: number) {
    const start = pass * timeline.lengthMs;
    return {
      raisedMs: wholeSecond(timeline.wallAt(start + raised)),
      resolvedMs: wholeSecond(timeline.wallAt(start + resolved)),
    };
  }

  function visitRecorded(
    site: Site,
    fromMs: number,
    toMs: number,
    visit: (episode: AlarmEpisode, id: string, raisedMs: number, resolvedMs: number) => void,
  ): void {
    if (!options.alarms.recorded) return;
    const { lengthMs, positionAt } = site.timeline;
    const lastPass = Math.floor(positionAt(toMs) / lengthMs);
    const firstPass = Math.max(0, Math.floor(positionAt(fromMs) / lengthMs) - 1);
    for (let pass = firstPass; pass <= lastPass; pass += 1) {
      for (const episode of site.alarms) {
        const { raisedMs, resolvedMs } = timesOf(site, episode, pass);
        if (raisedMs > toMs || resolvedMs < fromMs) continue;
        visit(episode, String(episode.id + pass * PASS_STEP), raisedMs, resolvedMs);
      }
    }
  }

  function recordedAlarm(site: Site, episode: AlarmEpisode, id: string, triggeredAtMs: number, resolvesAtMs: number) {
    const { triggerId, tagId } = episode;
    const value = episode.value ?? valueAt(tagId, triggeredAtMs);
    return { id, siteId: site.id, triggerId, tagId, triggeredAtMs, resolvesAtMs, value, description: null };
  }

  /** The interface requires a number, so 0 stands for a missing value. */
  function valueAt(tagId: string, atMs: number): number {
    const tag = world.tags.get(tagId);
    return tag === undefined ? 0 : (devices.valueAt(tag, atMs) ?? 0);
  }

  function alarmNow(base: BaseAlarm, nowMs: number): Alarm | undefined {
    const change = changes.get(base.id);
    if (change?.deleted === true) return undefined;
    const { resolvesAtMs, ...facts } = base;
    const isResolved = resolvesAtMs !== null && resolvesAtMs <= nowMs;
    const isRecovering = resolvesAtMs !== null && !isResolved && nowMs >= resolvesAtMs - recoveringMs;
    return {
      ...facts,
      resolvedAtMs: isResolved ? resolvesAtMs : null,
      recoveringUntilMs: isRecovering ? resolvesAtMs : null,
      acknowledged: null,
      episodes: 1,
      ...change,
    };
  }

  function basesSince(sinceMs: number, nowMs: number, siteId: number | undefined): BaseAlarm[] {
    const found: BaseAlarm[] = [];
    for (const site of world.sites.values()) {
      if (siteId !== undefined && site.id !== siteId) continue;
      visitRecorded(site, sinceMs, nowMs, (episode, id, raisedMs, resolvedMs) => {
        if (!stored.has(id)) found.push(recordedAlarm(site, episode, id, raisedMs, resolvedMs));
      });
    }
    const ofSite = stored.values().filter((base) => siteId === undefined || base.siteId === siteId);
    return [...found, ...ofSite];
  }

  function list(nowMs: number, { siteId, status }: AlarmFilter = {}): Alarm[] {
    const retainedSinceMs = nowMs - retentionMs;
    const found: Alarm[] = [];
    for (const base of basesSince(status === "active" ? nowMs : retainedSinceMs, nowMs, siteId)) {
      const alarm = alarmNow(base, nowMs);
      if (alarm === undefined || (alarm.resolvedAtMs ?? nowMs) < retainedSinceMs) {
        if (base.resolvesAtMs === null) {
          stored.delete(base.id);
          changes.delete(base.id);
        }
        continue;
      }
      const alarmStatus = alarm.resolvedAtMs === null ? "active" : "resolved";
      if (status === undefined || status === alarmStatus) found.push(alarm);
    }
    return found.sort((a, b) => Number(a.id) - Number(b.id));
  }

  function baseOf(id: string, nowMs: number): BaseAlarm | undefined {
    const known = stored.get(id);
    if (known !== undefined || !options.alarms.recorded) return known;
    const pass = Math.floor((Number(id) % ALARM_COPY_STEP) / PASS_STEP);
    for (const site of world.sites.values()) {
      const episode = site.alarms.find((candidate) => String(candidate.id + pass * PASS_STEP) === id);
      if (episode === undefined) continue;
      const { raisedMs, resolvedMs } = timesOf(site, episode, pass);
      return raisedMs <= nowMs ? recordedAlarm(site, episode, id, raisedMs, resolvedMs) : undefined;
    }
    return undefined;
  }

  return {
    stored,
    changes,
    controlTransitions: transitions,
    list,
    find(id: string, nowMs: number): Alarm | undefined {
      const base = baseOf(id, nowMs);
      return base === undefined ? undefined : alarmNow(base, nowMs);
    },
    change(id: string, nowMs: number, change: AlarmChange): void {
      const base = baseOf(id, nowMs);
      if (base === undefined) return;
      stored.set(id, base);
      changes.set(id, { ...changes.get(id), ...change });
    },
    addTransition: (transition: AlarmTransition) => transitions.push(transition),
    transitions(fromMs: number, toMs: number): AlarmTransition[] {
      const found = [] as AlarmTransition[];
      for (const site of world.sites.values()) {
        visitRecorded(site, fromMs, toMs, (_, alarmId, raisedMs, resolvedMs) => {
          const common = { alarmId, siteId: site.id, triggeredAtMs: raisedMs };
          found.push({ ...common, atMs: raisedMs, kind: "raised" });
          const change = changes.get(alarmId);
          const isEndOverridden = change?.resolvedAtMs !== undefined || change?.deleted === true;
          if (!isEndOverridden) found.push({ ...common, atMs: resolvedMs, kind: "resolved" });
        });
      }
      return [...found, ...transitions]
        .filter(({ atMs }) => atMs >= fromMs && atMs <= toMs)
        .sort((a, b) => a.atMs - b.atMs);
    },
  };
}

function wholeSecond(atMs: number): number {
  return Math.floor(atMs / 1000) * 1000;
}
