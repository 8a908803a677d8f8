import type { AccessTokens } from "./access-tokens.ts";
import type { AlarmChange, AlarmIdentity, AlarmTransition } from "./alarms.ts";
import { type TagValue, toRawTagValue } from "./devices.ts";
import type { SimulatedServiceContext } from "./endpoints/endpoint.ts";
import { type FaultPlan, FaultRule } from "./fault-plan.ts";
import type { SimulatorOptions } from "./options.ts";
import type { Tag } from "./simulated-sites.ts";

/** Fields of an alarm to raise. `siteId` is required if the alarm names neither a trigger nor a tag. */
export type NewAlarmOptions = {
  readonly [Field in "siteId" | "triggerId" | "tagId" | "value" | "description"]?: AlarmIdentity[Field] | undefined;
};

const FIRST_MANUAL_ALARM_ID = 900_000_000_000;

/** Changes simulated alarms, tags, gateways, tokens and faults. Throws on unknown ids. */
export function createSimulatorControl(
  { world, devices, alarms, inventory }: SimulatedServiceContext,
  tokens: AccessTokens,
  faults: FaultPlan,
  now: () => number,
  getTag: (id: string) => Tag,
  nextAlarmNumber: () => number,
  setHealth: (health: SimulatorOptions["health"]) => void,
) {
  function findSiteTriggerAndTag({ siteId, tagId, triggerId }: NewAlarmOptions) {
    const givenTrigger = triggerId === undefined ? undefined : world.triggers.get(triggerId);
    if (triggerId !== undefined && givenTrigger === undefined) throw new Error(`There is no trigger ${triggerId}.`);
    const tag = tagId === undefined ? undefined : getTag(tagId);
    const site = tag?.site.id ?? givenTrigger?.site_id ?? siteId;
    if (site === undefined || !world.sites.has(site)) throw new Error("Name a site, a trigger or a tag that exists.");
    const isTriggerOfAlarm = (tag_id: string, site_id: number) => (tag ? tag_id === tag.id : site_id === site);
    const trigger = givenTrigger ?? world.triggers.values().find((one) => isTriggerOfAlarm(one.tag_id, one.site_id));
    const firstTagOfSite = world.tags.values().find((candidate) => candidate.site.id === site);
    return { siteId: site, triggerId: trigger?.id ?? 0, tagId: tag?.id ?? trigger?.tag_id ?? firstTagOfSite?.id ?? "" };
  }

  function changeAlarm(id: string, kind: AlarmTransition["kind"], makeChange: (atMs: number) => AlarmChange) {
    const atMs = now();
    const alarm = alarms.find(id, atMs);
    if (alarm === undefined) throw new Error(`There is no alarm ${id}.`);
    const alarmChange = makeChange(atMs);
    alarms.changeAlarm(id, atMs, alarmChange);
    const triggeredAtMs = alarmChange.triggeredAtMs ?? alarm.triggeredAtMs;
    alarms.addTransition({ atMs, alarmId: id, siteId: alarm.siteId, kind, triggeredAtMs });
  }

  return {
    raiseAlarm(alarm: NewAlarmOptions): string {
      const atMs = now();
      const { siteId, triggerId, tagId } = findSiteTriggerAndTag(alarm);
      const id = String(FIRST_MANUAL_ALARM_ID + nextAlarmNumber());
      const tag = world.tags.get(tagId);
      const value = alarm.value ?? (tag === undefined ? null : devices.valueAt(tag, atMs)) ?? 0;
      const description = alarm.description ?? null;
      const alarmTimes = { triggeredAtMs: atMs, resolvesAtMs: null };
      alarms.manualAlarms.set(id, { id, siteId, triggerId, tagId, value, description, ...alarmTimes });
      alarms.addTransition({ atMs, alarmId: id, siteId, kind: "raised", triggeredAtMs: atMs });
      return id;
    },
    acknowledgeAlarm: (id: string, by: string, message: string | null = null) =>
      changeAlarm(id, "acknowledged", (atMs) => ({ acknowledged: { by, message, atMs } })),
    unacknowledgeAlarm: (id: string) => changeAlarm(id, "unacknowledged", () => ({ acknowledged: null })),
    recoverAlarm: (id: string, untilMs: number | null) =>
      changeAlarm(id, "recovering", () => ({ recoveringUntilMs: untilMs })),
    resolveAlarm: (id: string) =>
      changeAlarm(id, "resolved", (atMs) => ({ resolvedAtMs: atMs, recoveringUntilMs: null })),
    retriggerAlarm(id: string): void {
      const episodes = (alarms.find(id, now())?.episodes ?? 0) + 1;
      const retriggeredAlarm = { resolvedAtMs: null, recoveringUntilMs: null, acknowledged: null, episodes };
      changeAlarm(id, "retriggered", (triggeredAtMs) => ({ triggeredAtMs, ...retriggeredAlarm }));
    },
    deleteAlarm: (id: string) => changeAlarm(id, "deleted", () => ({ deleted: true })),
    setGateway(id: number, online: boolean): void {
      if (!world.gateways.has(id)) throw new Error(`There is no gateway ${id}.`);
      devices.setGatewayOnline(id, now(), online);
    },
    setTag: (id: string, value: TagValue) => devices.override(getTag(id), now(), toRawTagValue(getTag(id), value)),
    releaseTag: (id: string) => devices.release(getTag(id), now()),
    changeToken: tokens.changeToken,
    changeInventory: inventory.changeObject,
    setFaults: (rules: readonly unknown[]) => faults.setRules(FaultRule.array().parse(rules), now()),
    setHealth,
  };
}
