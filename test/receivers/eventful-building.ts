import type { Gateway } from "#src/core/model/building.ts";
import type { Event } from "#src/core/model/event.ts";
import { type DocumentChange, documentSet, type Store } from "#src/engine/store/store.ts";
import type { StoredAlarm, StoredItem } from "#src/engine/sync/snapshot.ts";
import type { SeededRandom } from "../commands/seeded-random.ts";
import { alarm, gatewayOnline, START } from "../receiver/trial.ts";
import { GATEWAY } from "../sample-events.ts";
import type { RunSettings } from "./run-settings.ts";

const SITES = [1, 2] as const;

export interface Life {
  readonly n: number;
  readonly one: ReturnType<typeof alarm>;
  readonly site: number;
  readonly beganMs: number;
  readonly isOlder: boolean;
  isOver: boolean;
  wasActive: boolean;
  cameBack: boolean;
  endedMs: number | null;
  returns: number;
  ends: number;
  acknowledgements: number;
  readonly explainedMs: number[];
}

export type EventfulBuilding = ReturnType<typeof eventfulBuilding>;

export function eventfulBuilding(
  random: SeededRandom,
  { gateways, storms }: RunSettings,
  store: Pick<Store, "commit">,
) {
  const lives: Life[] = [];
  let sinkMs = Number.POSITIVE_INFINITY;
  const away = new Set<string>();
  const returned: { readonly id: string; readonly atMs: number }[] = [];
  const gatewayOf = (site: number) => String(site);

  function begin(site: number, minutes: number, hasSink: boolean): Event {
    const n = lives.length;
    const behind = away.has(gatewayOf(site)) && random.chance(0.8) ? gatewayOf(site) : null;
    const one = alarm(n, { at: minutes, priority: n % 2 === 0 ? "A" : "C", site, behind });
    const life: Life = {
      ...{ n, one, site, beganMs: START + minutes * 60_000, isOlder: !hasSink },
      ...{ isOver: false, wasActive: hasSink, cameBack: false, endedMs: null },
      ...{ returns: 0, ends: 0, acknowledgements: 0 },
      explainedMs: behind === null ? [] : [START + minutes * 60_000],
    };
    lives.push(life);
    return one.raised();
  }

  function next(life: Life, minutes: number, hasSink: boolean): Event | null {
    const { one } = life;
    if (life.isOver) {
      if (!random.chance(0.3)) return null;
      life.isOver = false;
      life.returns += 1;
      life.cameBack ||= hasSink;
      life.wasActive ||= hasSink;
      const behind = away.has(gatewayOf(life.site)) ? gatewayOf(life.site) : null;
      if (behind !== null) life.explainedMs.push(START + minutes * 60_000);
      return explainedBy(one.retriggered(minutes), behind);
    }
    const what = random.pick(["acknowledged", "recovering", "changed", "vanished", "resolved", "resolved"] as const);
    if (what === "changed") {
      const changed = one.changed(`It is ${random.below(1_000)} now`, minutes);
      return random.chance(0.3) ? withPriority(changed, random.pick(["A", "B", "C"])) : changed;
    }
    if (what === "acknowledged") life.acknowledgements += 1;
    if (what !== "resolved") return one[what](minutes);
    const atMs = Math.max(life.beganMs, START + minutes * 60_000 - random.pick([0, 20_000, 120_000]));
    life.isOver = true;
    life.endedMs = atMs;
    life.ends += 1;
    return one.resolved(minutes, { resolvedAt: new Date(atMs).toISOString() });
  }

  function turn(site: number, minutes: number): { readonly event: Event | null; readonly change: DocumentChange } {
    const id = gatewayOf(site);
    const isBack = away.delete(id);
    if (isBack) returned.push({ id, atMs: START + minutes * 60_000 });
    else away.add(id);
    const held: StoredItem<Gateway> = {
      value: { ...GATEWAY, id, online: isBack },
      siteId: site,
      since: "2026-01-01T00:00:00.000Z",
      missingSince: null,
    };
    return {
      event: isBack ? gatewayOnline(minutes, id) : null,
      change: { set: documentSet("gateway", "main"), put: [[id, held]] },
    };
  }

  return {
    lives: lives as readonly Life[],
    sinkMs: () => sinkMs,
    isAway: (gateway: string) => away.has(gateway),
    returnsOf: (gateway: string) => returned.filter(({ id }) => id === gateway).map(({ atMs }) => atMs),

    async happen(nowMs: number, hasSink: boolean) {
      const minutes = (nowMs - START) / 60_000;
      if (hasSink) sinkMs = Math.min(sinkMs, nowMs);
      for (const life of lives) life.wasActive ||= hasSink && !life.isOver;
      const documents: DocumentChange[] = [];
      const events: Event[] = [];
      for (const site of SITES) {
        if (!gateways || !random.chance(0.15)) continue;
        const { event, change } = turn(site, minutes);
        documents.push(change);
        if (event !== null) events.push(event);
      }
      const before = lives.length;
      const isBurst = storms && random.chance(0.08);
      const openings = isBurst ? 6 + random.below(12) : random.chance(0.35) ? 1 : 0;
      const site = random.pick(SITES);
      for (let n = 0; n < openings; n += 1) events.push(begin(site, minutes, hasSink));
      for (const life of lives.slice(0, before)) {
        if (!random.chance(Math.min(0.3, 8 / before))) continue;
        const event = next(life, minutes, hasSink);
        if (event !== null) events.push(event);
      }
      await store.commit({ events, documents: [...documents, ...snapshotsOf(events)] });
    },
  };
}

function explainedBy(event: Event, behindGateway: string | null): Event {
  return { ...event, data: { ...event.data, behindGateway } as never };
}

function withPriority(event: Event, priority: string): Event {
  const { alarm: record } = event.data as Pick<StoredAlarm, "alarm">;
  const changed = { ...record, trigger: { ...record.trigger, priority } };
  return { ...event, priority, data: { ...event.data, alarm: changed } as never };
}

function snapshotsOf(events: readonly Event[]): readonly DocumentChange[] {
  const put = events.flatMap((event) => {
    if (!event.type.startsWith("alarm-")) return [];
    const { alarm: record, episode } = event.data as Pick<StoredAlarm, "alarm" | "episode">;
    const state =
      event.type === "alarm-resolved" ? "resolved" : event.type === "alarm-vanished" ? "vanished" : "active";
    const held: StoredAlarm = { alarm: record, episode, state, since: event.time, misses: 0, returns: 0 };
    return [[record.id, held] as const];
  });
  return [{ set: documentSet("alarm", "main"), put }];
}
