import type { Gateway } from "#src/core/model/building.ts";
import type { Event } from "#src/core/model/event.ts";
import { type DocumentChange, documentSet, type Store } from "#src/engine/store/store.ts";
import type { StoredAlarm, StoredObject } from "#src/engine/sync/stored-documents.ts";
import type { SeededRandom } from "../commands/seeded-random.ts";
import { gatewayOnline, START, sampleAlarm } from "../receiver/receiver-harness.ts";
import { GATEWAY } from "../sample-events.ts";
import type { RunSettings } from "./run-settings.ts";

const SITES = [1, 2] as const;

export interface AlarmLife {
  readonly n: number;
  readonly one: ReturnType<typeof sampleAlarm>;
  readonly site: number;
  readonly startMs: number;
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

export type EventfulBuilding = ReturnType<typeof createEventfulBuilding>;

export function createEventfulBuilding(
  random: SeededRandom,
  { gateways, storms }: RunSettings,
  store: Pick<Store, "commit">,
) {
  const lives: AlarmLife[] = [];
  let sinkMs = Number.POSITIVE_INFINITY;
  const offlineGateways = new Set<string>();
  const gatewayReturns: { readonly id: string; readonly atMs: number }[] = [];
  const getGatewayId = (site: number) => String(site);

  function raiseAlarm(site: number, minutes: number, hasSink: boolean): Event {
    const n = lives.length;
    const behind = offlineGateways.has(getGatewayId(site)) && random.chance(0.8) ? getGatewayId(site) : null;
    const one = sampleAlarm(n, { at: minutes, priority: n % 2 === 0 ? "A" : "C", site, behind });
    const life: AlarmLife = {
      ...{ n, one, site, startMs: START + minutes * 60_000, isOlder: !hasSink },
      ...{ isOver: false, wasActive: hasSink, cameBack: false, endedMs: null },
      ...{ returns: 0, ends: 0, acknowledgements: 0 },
      explainedMs: behind === null ? [] : [START + minutes * 60_000],
    };
    lives.push(life);
    return one.raised();
  }

  function changeAlarm(life: AlarmLife, minutes: number, hasSink: boolean): Event | null {
    const { one } = life;
    if (life.isOver) {
      if (!random.chance(0.3)) return null;
      life.isOver = false;
      life.returns += 1;
      life.cameBack ||= hasSink;
      life.wasActive ||= hasSink;
      const behind = offlineGateways.has(getGatewayId(life.site)) ? getGatewayId(life.site) : null;
      if (behind !== null) life.explainedMs.push(START + minutes * 60_000);
      return withGateway(one.retriggered(minutes), behind);
    }
    const changeNames = ["acknowledged", "recovering", "changed", "vanished", "resolved", "resolved"] as const;
    const changeName = random.pick(changeNames);
    if (changeName === "changed") {
      const changedEvent = one.changed(`It is ${random.below(1_000)} now`, minutes);
      return random.chance(0.3) ? withPriority(changedEvent, random.pick(["A", "B", "C"])) : changedEvent;
    }
    if (changeName === "acknowledged") life.acknowledgements += 1;
    if (changeName !== "resolved") return one[changeName](minutes);
    const atMs = Math.max(life.startMs, START + minutes * 60_000 - random.pick([0, 20_000, 120_000]));
    life.isOver = true;
    life.endedMs = atMs;
    life.ends += 1;
    return one.resolved(minutes, { resolvedAt: new Date(atMs).toISOString() });
  }

  function toggleGateway(site: number, minutes: number) {
    const id = getGatewayId(site);
    const isBack = offlineGateways.delete(id);
    if (isBack) gatewayReturns.push({ id, atMs: START + minutes * 60_000 });
    else offlineGateways.add(id);
    const held: StoredObject<Gateway> = {
      value: { ...GATEWAY, id, online: isBack },
      siteId: site,
      since: "2026-01-01T00:00:00.000Z",
      missingSince: null,
    };
    return {
      event: isBack ? gatewayOnline(minutes, id) : null,
      change: { set: documentSet("gateway", "main"), put: [[id, held] as const] },
    };
  }

  return {
    lives: lives as readonly AlarmLife[],
    sinkMs: () => sinkMs,
    isAway: (gateway: string) => offlineGateways.has(gateway),
    returnsOf: (gateway: string) => gatewayReturns.filter(({ id }) => id === gateway).map(({ atMs }) => atMs),

    async happen(nowMs: number, hasSink: boolean) {
      const minutes = (nowMs - START) / 60_000;
      if (hasSink) sinkMs = Math.min(sinkMs, nowMs);
      for (const life of lives) life.wasActive ||= hasSink && !life.isOver;
      const documents: DocumentChange[] = [];
      const events: Event[] = [];
      for (const site of SITES) {
        if (!gateways || !random.chance(0.15)) continue;
        const { event, change } = toggleGateway(site, minutes);
        documents.push(change);
        if (event !== null) events.push(event);
      }
      const livesBefore = lives.length;
      const isBurst = storms && random.chance(0.08);
      const openingCount = isBurst ? 6 + random.below(12) : random.chance(0.35) ? 1 : 0;
      const site = random.pick(SITES);
      for (let n = 0; n < openingCount; n += 1) events.push(raiseAlarm(site, minutes, hasSink));
      for (const life of lives.slice(0, livesBefore)) {
        if (!random.chance(Math.min(0.3, 8 / livesBefore))) continue;
        const event = changeAlarm(life, minutes, hasSink);
        if (event !== null) events.push(event);
      }
      await store.commit({ events, documents: [...documents, ...buildSnapshots(events)] });
    },
  };
}

function withGateway(event: Event, behindGateway: string | null): Event {
  return { ...event, data: { ...event.data, behindGateway } as never };
}

function withPriority(event: Event, priority: string): Event {
  const { alarm: record } = event.data as Pick<StoredAlarm, "alarm">;
  const changedEvent = { ...record, trigger: { ...record.trigger, priority } };
  return { ...event, priority, data: { ...event.data, alarm: changedEvent } as never };
}

function buildSnapshots(events: readonly Event[]): readonly DocumentChange[] {
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
