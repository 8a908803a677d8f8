import type { AlarmBook, AlarmChange, Transition } from "./alarm-book.ts";
import { asRaw, type Devices, type Value } from "./devices.ts";
import { FaultRule } from "./fault-options.ts";
import type { FaultPlan } from "./faults.ts";
import type { Inventory, InventoryChange, InventoryKind } from "./inventory.ts";
import type { SimulatorOptions } from "./options.ts";
import type { TokenChange, Tokens } from "./tokens.ts";
import type { Tag, Trigger, World } from "./world.ts";

export interface NewAlarm {
  /** Needed when neither a trigger nor a tag is named. */
  readonly siteId?: number | undefined;
  readonly triggerId?: number | undefined;
  readonly tagId?: string | undefined;
  readonly value?: number | undefined;
  readonly description?: string | undefined;
}

/** The hand that moves the world; every change happens at the simulator's present time. Throws on unknown ids. */
export interface Control {
  /** Returns the id of the new alarm. */
  raiseAlarm(alarm: NewAlarm): string;
  acknowledgeAlarm(id: string, by: string, message?: string | null): void;
  unacknowledgeAlarm(id: string): void;
  /** Shows recovering_until; null ends the recovery. */
  recoverAlarm(id: string, untilMs: number | null): void;
  resolveAlarm(id: string): void;
  /** The same id becomes active again, with a new time. */
  retriggerAlarm(id: string): void;
  /** The alarm vanishes without being resolved. */
  deleteAlarm(id: string): void;
  setGateway(id: number, online: boolean): void;
  /** The device holds the value from now on; null: it cannot be read. */
  setTag(id: string, value: Value): void;
  /** The tag follows the recording again. */
  releaseTag(id: string): void;
  changeToken(text: string, change: TokenChange): void;
  changeInventory(kind: InventoryKind, id: string | number, change: InventoryChange): void;
  /** Replaces the fault plan; an empty list ends all faults. */
  setFaults(rules: readonly unknown[]): void;
  setHealth(health: SimulatorOptions["health"]): void;
}

export interface ControlParts {
  readonly world: World;
  readonly devices: Devices;
  readonly alarms: AlarmBook;
  readonly tokens: Tokens;
  readonly inventory: Inventory;
  readonly faults: FaultPlan;
  readonly now: () => number;
  /** A number that no alarm by hand has had. */
  readonly nextAlarm: () => number;
  readonly setHealth: (health: SimulatorOptions["health"]) => void;
}

/** Ids of alarms raised by hand lie above all recorded ones. */
const FIRST_MANUAL_ID = 900_000_000_000;

export function createControl({
  world,
  devices,
  alarms,
  tokens,
  inventory,
  faults,
  now,
  nextAlarm,
  setHealth,
}: ControlParts): Control {
  function tagOf(id: string): Tag {
    const tag = world.tags.get(id);
    if (tag === undefined) throw new Error(`There is no tag ${id}.`);
    return tag;
  }

  function place(alarm: NewAlarm): {
    readonly siteId: number;
    readonly trigger: Trigger | undefined;
    readonly tagId: string;
  } {
    const named = alarm.triggerId === undefined ? undefined : world.triggers.get(alarm.triggerId);
    if (alarm.triggerId !== undefined && named === undefined)
      throw new Error(`There is no trigger ${alarm.triggerId}.`);
    const tag = alarm.tagId === undefined ? undefined : tagOf(alarm.tagId);
    const siteId = tag?.site.id ?? named?.site_id ?? alarm.siteId;
    if (siteId === undefined || !world.sites.has(siteId))
      throw new Error("Name a site, a trigger or a tag that exists.");
    const fits = (trigger: Trigger) =>
      tag === undefined ? trigger.site_id === siteId : trigger.tag_id === tag.id;
    const trigger = named ?? [...world.triggers.values()].find(fits);
    const firstTag = [...world.tags.values()].find((candidate) => candidate.site.id === siteId)?.id;
    return { siteId, trigger, tagId: tag?.id ?? trigger?.tag_id ?? firstTag ?? "" };
  }

  function alter(id: string, kind: Transition["kind"], change: (atMs: number) => AlarmChange) {
    const atMs = now();
    const alarm = alarms.find(id, atMs);
    if (alarm === undefined) throw new Error(`There is no alarm ${id}.`);
    const changed = change(atMs);
    alarms.change(id, atMs, changed);
    const triggeredAtMs = changed.triggeredAtMs ?? alarm.triggeredAtMs;
    alarms.note({ atMs, alarmId: id, siteId: alarm.siteId, kind, triggeredAtMs });
    return alarm;
  }

  return {
    raiseAlarm(wanted) {
      const atMs = now();
      const { siteId, trigger, tagId } = place(wanted);
      const id = String(FIRST_MANUAL_ID + nextAlarm());
      const tag = world.tags.get(tagId);
      const value = wanted.value ?? (tag === undefined ? null : devices.valueAt(tag, atMs)) ?? 0;
      const description = wanted.description ?? null;
      const triggerId = trigger?.id ?? 0;
      alarms.manual.set(id, {
        id,
        siteId,
        triggerId,
        tagId,
        triggeredAtMs: atMs,
        resolvesAtMs: null,
        value,
        description,
      });
      alarms.note({ atMs, alarmId: id, siteId, kind: "raised", triggeredAtMs: atMs });
      return id;
    },
    acknowledgeAlarm(id, by, message = null) {
      alter(id, "acknowledged", (atMs) => ({ acknowledged: { by, message, atMs } }));
    },
    unacknowledgeAlarm(id) {
      alter(id, "unacknowledged", () => ({ acknowledged: null }));
    },
    recoverAlarm(id, untilMs) {
      alter(id, "recovering", () => ({ recoveringUntilMs: untilMs }));
    },
    resolveAlarm(id) {
      alter(id, "resolved", (atMs) => ({ resolvedAtMs: atMs, recoveringUntilMs: null }));
    },
    retriggerAlarm(id) {
      const episodes = (alarms.find(id, now())?.episodes ?? 0) + 1;
      alter(id, "retriggered", (atMs) => ({
        triggeredAtMs: atMs,
        resolvedAtMs: null,
        recoveringUntilMs: null,
        acknowledged: null,
        episodes,
      }));
    },
    deleteAlarm(id) {
      alter(id, "deleted", () => ({ deleted: true }));
    },
    setGateway(id, online) {
      if (!world.gateways.has(id)) throw new Error(`There is no gateway ${id}.`);
      devices.setOnline(id, now(), online);
    },
    setTag(id, value) {
      const tag = tagOf(id);
      devices.hold(tag, now(), asRaw(tag, value));
    },
    releaseTag(id) {
      devices.release(tagOf(id), now());
    },
    changeToken: (text, change) => tokens.change(text, change),
    changeInventory: (kind, id, change) => inventory.change(kind, id, change),
    setFaults(rules) {
      faults.set(
        rules.map((rule) => FaultRule.parse(rule)),
        now(),
      );
    },
    setHealth,
  };
}
