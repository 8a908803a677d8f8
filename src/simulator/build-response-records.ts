import type { Alarm } from "./alarms.ts";
import type { Devices } from "./devices.ts";
import type { RecordedGateway, RecordedHost } from "./recorded-buildings.ts";
import { seededFraction } from "./seeded-random.ts";
import type { SimulatedSites, SimulatedSystem, Site, Tag } from "./simulated-sites.ts";
import type { HistoryBuckets } from "./tag-history.ts";

export const INVENTORY_KINDS = ["sites", "tags", "gateways", "hosts", "systems", "triggers"] as const;
export type InventoryKind = (typeof INVENTORY_KINDS)[number];

export interface InventoryObjectChange {
  readonly removed?: boolean | undefined;
  /** Attributes that replace recorded attributes, by their names in the interface specification. */
  readonly attributes?: Readonly<Record<string, unknown>> | undefined;
}

export type SimulatedInventory = ReturnType<typeof createSimulatedInventory>;

export function createSimulatedInventory() {
  const inventoryChangesByKey = new Map<string, InventoryObjectChange>();
  return {
    changes: inventoryChangesByKey,
    exists: (kind: InventoryKind, id: string | number) => inventoryChangesByKey.get(`${kind}/${id}`)?.removed !== true,
    withChanges<T extends object>(kind: InventoryKind, id: string | number, attributes: T): T {
      const changedAttributes = inventoryChangesByKey.get(`${kind}/${id}`)?.attributes;
      return changedAttributes === undefined ? attributes : { ...attributes, ...changedAttributes };
    },
    changeObject(kind: InventoryKind, id: string | number, { removed, attributes }: InventoryObjectChange): void {
      const earlierInventoryChange = inventoryChangesByKey.get(`${kind}/${id}`);
      inventoryChangesByKey.set(`${kind}/${id}`, {
        removed: removed ?? earlierInventoryChange?.removed,
        attributes: { ...earlierInventoryChange?.attributes, ...attributes },
      });
    },
  };
}

interface ResponseRecordContext {
  readonly world: SimulatedSites;
  readonly devices: Devices;
  readonly buckets: HistoryBuckets;
  readonly inventory: SimulatedInventory;
}

export function buildSiteRecord({ inventory }: ResponseRecordContext, site: Site) {
  return inventory.withChanges("sites", site.id, { id: site.id, display_name: site.displayName });
}

export function buildTagRecord({ inventory }: ResponseRecordContext, tag: Tag) {
  const attributes = { display_name: tag.displayName, description: tag.description, unit: tag.unit };
  return { type: "tags", id: tag.id, attributes: inventory.withChanges("tags", tag.id, attributes) };
}

const GATEWAY_VERSIONS = ["4.2.1", "4.2.3", "4.3.0"];
const GATEWAY_HARDWARE_MODELS = ["GW-200", "GW-200", "GW-310"];

export function buildGatewayRecord(
  { inventory, devices }: ResponseRecordContext,
  gateway: RecordedGateway,
  nowMs: number,
) {
  const attributes = inventory.withChanges("gateways", gateway.id, {
    display_name: gateway.display_name,
    online: devices.isGatewayOnline(gateway.id, nowMs),
    version: seededChoice(GATEWAY_VERSIONS, `version ${gateway.id}`),
    hardware: seededChoice(GATEWAY_HARDWARE_MODELS, `hardware ${gateway.id}`),
    ip_address: inventIpAddress(gateway.id, "10.20"),
    location: gateway.location ?? "",
  });
  return { type: "gateways", id: String(gateway.id), attributes };
}

export function buildHostRecord({ inventory, world }: ResponseRecordContext, host: RecordedHost) {
  const gateway = inventory.withChanges("gateways", host.gateway_id, {
    id: host.gateway_id,
    display_name: world.gateways.get(host.gateway_id)?.display_name ?? "",
  });
  const attributes = inventory.withChanges("hosts", host.id, {
    display_name: host.display_name,
    description: host.description,
    type: host.type,
    model_name: host.model_name ?? "unknown",
    ip: inventIpAddress(host.id, "10.30"),
    mac_address: seededFraction(0, `mac ${host.id}`) < 0.5 ? null : inventMacAddress(host.id),
    gateway: { id: gateway.id, display_name: gateway.display_name },
  });
  return { type: "hosts", id: String(host.id), attributes };
}

export function buildSystemRecord({ inventory }: ResponseRecordContext, system: SimulatedSystem) {
  const attributes = inventory.withChanges("systems", system.id, {
    code: system.code,
    display_name: system.display_name,
    discipline: system.discipline,
    description: system.description ?? "",
    location: system.location ?? "",
    manufacturer: system.manufacturer ?? "unknown",
    installed_year: system.installed_year ?? 1990 + Math.floor(seededFraction(0, `year ${system.id}`) * 25),
    maintenance_notes: null,
    datapoints_count: system.datapoints_count,
  });
  return { type: "systems", id: String(system.id), attributes };
}

export function buildAlarmRecord(context: ResponseRecordContext, alarm: Alarm) {
  const { world, inventory, buckets } = context;
  const { acknowledged, siteId } = alarm;
  const site = world.sites.get(siteId);
  const trigger = buildTriggerRecord(context, alarm.triggerId);
  const tag = world.tags.get(alarm.tagId);
  const source = (tag && world.hosts.get(tag.hostId)?.display_name) ?? "service";
  const tagName = tag === undefined ? alarm.tagId : buildTagRecord(context, tag).attributes.display_name;
  const timeZone = site?.timezone ?? "UTC";
  const toLocalTime = (atMs: number) => formatLocalTime(atMs, buckets.offsetMs(timeZone, atMs));
  const toLocalTimeOrNull = (atMs: number | null) => (atMs === null ? null : toLocalTime(atMs));
  return {
    type: "alarms",
    id: alarm.id,
    attributes: {
      site: inventory.withChanges("sites", siteId, { id: siteId, display_name: site?.displayName ?? "" }),
      trigger,
      status: alarm.resolvedAtMs === null ? "active" : "resolved",
      source,
      description: alarm.description ?? `${trigger.display_name}: ${trigger.description ?? tagName}`,
      triggered_at: toLocalTime(alarm.triggeredAtMs),
      resolved_at: toLocalTimeOrNull(alarm.resolvedAtMs),
      recovering_until: toLocalTimeOrNull(alarm.recoveringUntilMs),
      acknowledged: acknowledged !== null,
      acknowledged_by: acknowledged?.by ?? null,
      acknowledged_message: acknowledged?.message ?? null,
      acknowledged_at: toLocalTimeOrNull(acknowledged?.atMs ?? null),
      last_active_event: {
        id: Number(alarm.id) * 10 + alarm.episodes,
        source,
        type: world.triggers.get(alarm.triggerId)?.event_type ?? "manual",
        triggered_on: tagName,
        value: alarm.value,
        textlist_value: null,
        triggered_at: toLocalTime(alarm.triggeredAtMs),
      },
    },
  };
}

export function buildTriggerRecord({ world, inventory }: ResponseRecordContext, triggerId: number) {
  const trigger = world.triggers.get(triggerId);
  return inventory.withChanges("triggers", triggerId, {
    id: triggerId,
    display_name: trigger?.display_name ?? "Raised by hand",
    description: trigger?.description ?? null,
    priority: trigger?.priority ?? "B",
    enabled: true,
  });
}

export const toUtc = (atMs: number): string => `${new Date(atMs).toISOString().slice(0, 19)}Z`;

function formatLocalTime(atMs: number, offsetMs: number): string {
  const minutes = Math.abs(Math.round(offsetMs / 60_000));
  const padTwoDigits = (value: number) => String(value).padStart(2, "0");
  const localTime = new Date(atMs + offsetMs).toISOString().slice(0, 19);
  return `${localTime}${offsetMs < 0 ? "-" : "+"}${padTwoDigits(Math.floor(minutes / 60))}:${padTwoDigits(minutes % 60)}`;
}

function seededChoice(choices: readonly string[], seed: string): string {
  return choices[Math.floor(seededFraction(0, seed) * choices.length)] ?? "";
}

const inventIpAddress = (id: number, network: string) => `${network}.${Math.floor(id / 250) % 250}.${(id % 250) + 2}`;

/** The prefix 02 marks a locally administered MAC address, which no manufacturer assigns. */
function inventMacAddress(id: number): string {
  const hex = (id % 0xffffff).toString(16).padStart(6, "0");
  return `02:00:5e:${hex.slice(0, 2)}:${hex.slice(2, 4)}:${hex.slice(4, 6)}`;
}
