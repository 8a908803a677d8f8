import type { Devices } from "./devices.ts";
import type { SimulatorOptions } from "./options.ts";
import type { Episode, Site, World } from "./world.ts";

export interface Alarm {
  readonly id: string;
  readonly siteId: number;
  readonly triggerId: number;
  readonly tagId: string;
  readonly triggeredAtMs: number;
  /** null: active. */
  readonly resolvedAtMs: number | null;
  readonly recoveringUntilMs: number | null;
  readonly acknowledged: Acknowledgement | null;
  readonly value: number;
  /** Times the alarm was triggered, the first included. */
  readonly episodes: number;
  /** In place of the description of the trigger. */
  readonly description: string | null;
}

export interface Acknowledgement {
  readonly by: string;
  readonly message: string | null;
  readonly atMs: number;
}

/** An alarm that was raised by hand, or a recorded one that was changed by hand. */
export interface ManualAlarm {
  readonly id: string;
  readonly siteId: number;
  readonly triggerId: number;
  readonly tagId: string;
  readonly triggeredAtMs: number;
  /** When the recording resolves it; null: only a hand does. */
  readonly resolvesAtMs: number | null;
  readonly value: number;
  readonly description: string | null;
}

/** What was done to an alarm by hand; wins over the recording. */
export interface AlarmChange {
  readonly triggeredAtMs?: number;
  readonly resolvedAtMs?: number | null;
  readonly recoveringUntilMs?: number | null;
  readonly acknowledged?: Acknowledgement | null;
  readonly episodes?: number;
  readonly deleted?: boolean;
}

export interface Transition {
  readonly atMs: number;
  readonly alarmId: string;
  readonly siteId: number;
  readonly kind:
    | "raised"
    | "resolved"
    | "acknowledged"
    | "unacknowledged"
    | "recovering"
    | "retriggered"
    | "deleted";
  /** When the episode began that the transition belongs to. */
  readonly triggeredAtMs: number;
}

export interface AlarmBook {
  /** Alarms that the service lists at a time, resolved ones while they are kept; in order of id. */
  list(
    nowMs: number,
    filter?: { readonly siteId?: number; readonly status?: "active" | "resolved" },
  ): Alarm[];
  find(id: string, nowMs: number): Alarm | undefined;
  /** Does something to an alarm by hand; an unknown id is left alone. */
  change(id: string, nowMs: number, alter: AlarmChange): void;
  note(transition: Transition): void;
  /** Everything that happened with fromMs <= time <= toMs, in order of time. */
  transitions(fromMs: number, toMs: number): Transition[];
  readonly manual: Map<string, ManualAlarm>;
  readonly changes: Map<string, AlarmChange>;
  readonly noted: Transition[];
}

/** Alarm ids grow by this with each pass of the recording. */
const PASS_STEP = 1_000_000;
/** And by this with each copy of a site (see world.ts). */
const COPY_STEP = 1_000_000_000;

export function createAlarmBook(world: World, devices: Devices, options: SimulatorOptions): AlarmBook {
  const manual = new Map<string, ManualAlarm>();
  const changes = new Map<string, AlarmChange>();
  const noted: Transition[] = [];
  const retentionMs = options.alarms.resolved_retention_h * 3_600_000;

  /** Visits the recorded episodes that touch a time range, with their wall times in whole seconds. */
  function visitRecorded(
    site: Site,
    fromMs: number,
    toMs: number,
    visit: (episode: Episode, id: string, raisedMs: number, resolvedMs: number) => void,
  ) {
    if (!options.alarms.recorded) return;
    const { timeline } = site;
    const length = timeline.lengthMs;
    const lastPass = Math.floor(timeline.positionAt(toMs) / length);
    const firstPass = Math.max(0, Math.floor(timeline.positionAt(fromMs) / length) - 1);
    for (let pass = firstPass; pass <= lastPass; pass += 1) {
      for (const episode of site.alarms) {
        const raisedMs = wholeSecond(timeline.wallAt(pass * length + episode.raised));
        if (raisedMs > toMs) continue;
        const resolvedMs = wholeSecond(timeline.wallAt(pass * length + episode.resolved));
        if (resolvedMs >= fromMs) visit(episode, String(episode.id + pass * PASS_STEP), raisedMs, resolvedMs);
      }
    }
  }

  function recordedBase(
    site: Site,
    episode: Episode,
    id: string,
    raisedMs: number,
    resolvedMs: number,
  ): ManualAlarm {
    return {
      id,
      siteId: site.id,
      triggerId: episode.triggerId,
      tagId: episode.tagId,
      triggeredAtMs: raisedMs,
      resolvesAtMs: resolvedMs,
      value: episode.value ?? valueAt(episode.tagId, raisedMs),
      description: null,
    };
  }

  /** The interface wants a number: where the recording has none and the device could not be read, it is 0. */
  function valueAt(tagId: string, atMs: number): number {
    const tag = world.tags.get(tagId);
    return tag === undefined ? 0 : (devices.valueAt(tag, atMs) ?? 0);
  }

  /** The alarm as it stands now; undefined when it was deleted. */
  function standing(base: ManualAlarm, nowMs: number): Alarm | undefined {
    const change = changes.get(base.id);
    if (change?.deleted === true) return undefined;
    const { resolvesAtMs, ...rest } = base;
    const resolved = resolvesAtMs !== null && resolvesAtMs <= nowMs;
    const recoveringMs = options.alarms.recovering_s * 1000;
    const recovering = resolvesAtMs !== null && !resolved && nowMs >= resolvesAtMs - recoveringMs;
    return {
      ...rest,
      resolvedAtMs: resolved ? resolvesAtMs : null,
      recoveringUntilMs: recovering ? resolvesAtMs : null,
      acknowledged: null,
      episodes: 1,
      ...change,
    };
  }

  function visitBases(
    nowMs: number,
    siteId: number | undefined,
    sinceMs: number,
    visit: (base: ManualAlarm) => void,
  ) {
    for (const site of world.sites.values()) {
      if (siteId !== undefined && site.id !== siteId) continue;
      visitRecorded(site, sinceMs, nowMs, (episode, id, raisedMs, resolvedMs) => {
        if (!manual.has(id)) visit(recordedBase(site, episode, id, raisedMs, resolvedMs));
      });
    }
    for (const base of manual.values()) {
      if (siteId === undefined || base.siteId === siteId) visit(base);
    }
  }

  function list(
    nowMs: number,
    filter: { readonly siteId?: number; readonly status?: "active" | "resolved" } = {},
  ): Alarm[] {
    const found: Alarm[] = [];
    const keptSinceMs = nowMs - retentionMs;
    const sinceMs = filter.status === "active" ? nowMs : keptSinceMs;
    visitBases(nowMs, filter.siteId, sinceMs, (base) => {
      const alarm = standing(base, nowMs);
      if (alarm === undefined || (alarm.resolvedAtMs ?? nowMs) < keptSinceMs) {
        if (base.resolvesAtMs === null) forget(base.id);
        return;
      }
      const status = alarm.resolvedAtMs === null ? "active" : "resolved";
      if (filter.status === undefined || filter.status === status) found.push(alarm);
    });
    return found.sort((a, b) => Number(a.id) - Number(b.id));
  }

  /** Alarms by hand that are over; without this a storm would slow down every later list. */
  function forget(id: string) {
    manual.delete(id);
    changes.delete(id);
  }

  function recordedById(id: string, nowMs: number): ManualAlarm | undefined {
    const pass = Math.floor((Number(id) % COPY_STEP) / PASS_STEP);
    for (const site of world.sites.values()) {
      const episode = site.alarms.find((candidate) => String(candidate.id + pass * PASS_STEP) === id);
      if (episode === undefined || !options.alarms.recorded) continue;
      const start = pass * site.timeline.lengthMs;
      const raisedMs = wholeSecond(site.timeline.wallAt(start + episode.raised));
      const resolvedMs = wholeSecond(site.timeline.wallAt(start + episode.resolved));
      return raisedMs <= nowMs ? recordedBase(site, episode, id, raisedMs, resolvedMs) : undefined;
    }
    return undefined;
  }

  function find(id: string, nowMs: number): Alarm | undefined {
    const base = manual.get(id) ?? recordedById(id, nowMs);
    return base === undefined ? undefined : standing(base, nowMs);
  }

  function change(id: string, nowMs: number, alter: AlarmChange) {
    const base = manual.get(id) ?? recordedById(id, nowMs);
    if (base === undefined) return;
    manual.set(id, base);
    changes.set(id, { ...changes.get(id), ...alter });
  }

  function recordedTransitions(fromMs: number, toMs: number): Transition[] {
    const found: Transition[] = [];
    for (const site of world.sites.values()) {
      visitRecorded(site, fromMs, toMs, (_, alarmId, raisedMs, resolvedMs) => {
        const common = { alarmId, siteId: site.id, triggeredAtMs: raisedMs };
        found.push({ ...common, atMs: raisedMs, kind: "raised" });
        const change = changes.get(alarmId);
        const resolvedByHand = change?.resolvedAtMs !== undefined || change?.deleted === true;
        if (!resolvedByHand) found.push({ ...common, atMs: resolvedMs, kind: "resolved" });
      });
    }
    return found;
  }

  return {
    manual,
    changes,
    noted,
    list,
    find,
    change,
    note: (transition) => noted.push(transition),
    transitions: (fromMs, toMs) =>
      [...recordedTransitions(fromMs, toMs), ...noted]
        .filter(({ atMs }) => atMs >= fromMs && atMs <= toMs)
        .sort((a, b) => a.atMs - b.atMs),
  };
}

function wholeSecond(atMs: number): number {
  return Math.floor(atMs / 1000) * 1000;
}
