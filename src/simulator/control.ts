import type { AlarmChange, AlarmFacts, AlarmStore, AlarmTransition } from "./alarms.ts";
import { type Devices, toRaw, type Value } from "./devices.ts";
import { type FaultPlan, FaultRule } from "./faults.ts";
import type { SimulatorOptions } from "./options.ts";
import type { Inventory } from "./records.ts";
import type { Tokens } from "./tokens.ts";
import type { Tag, World } from "./world.ts";

/** `siteId` is required when the alarm names neither a trigger nor a tag. */
export type NewAlarm = {
  readonly [Field in "siteId" | "triggerId" | "tagId" | "value" | "description"]?: AlarmFacts[Field] | undefined;
};

interface ControlParts {
  readonly world: World;
  readonly devices: Devices;
  readonly alarms: AlarmStore;
  readonly tokens: Tokens;
  readonly inventory: Inventory;
  readonly faults: FaultPlan;
  readonly now: () => number;
  readonly tagOf: (id: string) => Tag;
  readonly nextAlarm: () => number;
  readonly setHealth: (health: SimulatorOptions["health"]) => void;
}

const FIRST_RAISED_ID = 900_000_000_000;

/** Changes the simulated world at its present time. Throws on unknown ids. */
export function createControl(parts: ControlParts) {
  const { world, devices, alarms, tokens, inventory, faults, now, tagOf, nextAlarm, setHealth } = parts;

  function subjectOf({ siteId, tagId, triggerId }: NewAlarm) {
    const named = triggerId === undefined ? undefined : world.triggers.get(triggerId);
    if (triggerId !== undefined && named === undefined) throw new Error(`There is no trigger ${triggerId}.`);
    const tag = tagId === undefined ? undefined : tagOf(tagId);
    const site = tag?.site.id ?? named?.site_id ?? siteId;
    if (site === undefined || !world.sites.has(site)) throw new Error("Name a site, a trigger or a tag that exists.");
    const trigger =
      named ?? world.triggers.values().find(({ site_id, tag_id }) => (tag ? tag_id === tag.id : site_id === site));
    const firstTag = world.tags.values().find((candidate) => candidate.site.id === site);
    return { siteId: site, triggerId: trigger?.id ?? 0, tagId: tag?.id ?? trigger?.tag_id ?? firstTag?.id ?? "" };
  }

  function changeAlarm(id: string, kind: AlarmTransition["kind"], changeAt: (atMs: number) => AlarmChange) {
    const atMs = now();
    const alarm = alarms.find(id, atMs);
    if (alarm === undefined) throw new Error(`There is no alarm ${id}.`);
    const change = changeAt(atMs);
    alarms.change(id, atMs, change);
    const triggeredAtMs = change.triggeredAtMs ?? alarm.triggeredAtMs;
    alarms.addTransition({ atMs, alarmId: id, siteId: alarm.siteId, kind, triggeredAtMs });
  }

  return {
    raiseAlarm(alarm: NewAlarm): string {
      const atMs = now();
      const { siteId, triggerId, tagId } = subjectOf(alarm);
      const id = String(FIRST_RAISED_ID + nextAlarm());
      const tag = world.tags.get(tagId);
      const value = alarm.value ?? (tag === undefined ? null : devices.valueAt(tag, atMs)) ?? 0;
      const description = alarm.description ?? null;
      const times = { triggeredAtMs: atMs, resolvesAtMs: null };
      alarms.stored.set(id, { id, siteId, triggerId, tagId, value, description, ...times });
      alarms.addTransition({ atMs, alarmId: id, siteId, kind: "raised", triggeredAtMs: atMs });
      return id;
    },
    acknowledgeAlarm: (id: string, by: string, message: string | null = null) =>
      changeAlarm(id, "acknowledged", (atMs) => ({ acknowledged: { by, message, atMs } })),
    unacknowledgeAlarm: (id: string) => changeAlarm(id, "unacknowledged", () => ({ acknowledged: null })),
    /** Sets recovering_until; null ends the recovery. */
    recoverAlarm: (id: string, untilMs: number | null) =>
      changeAlarm(id, "recovering", () => ({ recoveringUntilMs: untilMs })),
    resolveAlarm: (id: string) =>
      changeAlarm(id, "resolved", (atMs) => ({ resolvedAtMs: atMs, recoveringUntilMs: null })),
    /** Makes the alarm active again with the same id and a new time. */
    retriggerAlarm(id: string): void {
      const episodes = (alarms.find(id, now())?.episodes ?? 0) + 1;
      const active = { resolvedAtMs: null, recoveringUntilMs: null, acknowledged: null, episodes };
      changeAlarm(id, "retriggered", (triggeredAtMs) => ({ triggeredAtMs, ...active }));
    },
    deleteAlarm: (id: string) => changeAlarm(id, "deleted", () => ({ deleted: true })),
    setGateway(id: number, online: boolean): void {
      if (!world.gateways.has(id)) throw new Error(`There is no gateway ${id}.`);
      devices.setOnline(id, now(), online);
    },
    setTag: (id: string, value: Value) => devices.override(tagOf(id), now(), toRaw(tagOf(id), value)),
    releaseTag: (id: string) => devices.release(tagOf(id), now()),
    changeToken: tokens.change,
    changeInventory: inventory.change,
    setFaults: (rules: readonly unknown[]) => faults.set(FaultRule.array().parse(rules), now()),
    setHealth,
  };
}
