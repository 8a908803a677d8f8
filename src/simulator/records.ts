import type { Alarm } from "./alarm-book.ts";
import type { Scene } from "./endpoints/endpoint.ts";
import { chanceOf } from "./random.ts";
import type { Gateway, Host, Site, System, Tag } from "./world.ts";

// The records of the interface. Fields that no source has are made up from the id, always the same way.

export function siteRecord({ inventory }: Scene, site: Site) {
  return inventory.altered("sites", site.id, { id: site.id, display_name: site.displayName });
}

export function tagRecord({ inventory }: Scene, tag: Tag) {
  const attributes = { display_name: tag.displayName, description: tag.description, unit: tag.unit };
  return { type: "tags", id: tag.id, attributes: inventory.altered("tags", tag.id, attributes) };
}

const GATEWAY_VERSIONS = ["4.2.1", "4.2.3", "4.3.0"];
const GATEWAY_HARDWARE = ["GW-200", "GW-200", "GW-310"];

export function gatewayRecord({ inventory, devices }: Scene, gateway: Gateway, nowMs: number) {
  const attributes = {
    display_name: gateway.display_name,
    online: devices.online(gateway.id, nowMs),
    version: pick(GATEWAY_VERSIONS, `version ${gateway.id}`),
    hardware: pick(GATEWAY_HARDWARE, `hardware ${gateway.id}`),
    ip_address: addressOf(gateway.id, "10.20"),
    location: gateway.location ?? "",
  };
  return {
    type: "gateways",
    id: String(gateway.id),
    attributes: inventory.altered("gateways", gateway.id, attributes),
  };
}

export function hostRecord({ inventory, world }: Scene, host: Host) {
  const gateway = world.gateways.get(host.gateway_id);
  const attributes = {
    display_name: host.display_name,
    description: host.description,
    type: host.type,
    model_name: host.model_name ?? "unknown",
    ip: addressOf(host.id, "10.30"),
    mac_address: chanceOf(0, `mac ${host.id}`) < 0.5 ? null : macOf(host.id),
    gateway: inventory.altered("gateways", host.gateway_id, {
      id: host.gateway_id,
      display_name: gateway?.display_name ?? "",
    }),
  };
  const { id, display_name } = attributes.gateway;
  const named = { ...attributes, gateway: { id, display_name } };
  return { type: "hosts", id: String(host.id), attributes: inventory.altered("hosts", host.id, named) };
}

export function systemRecord({ inventory }: Scene, system: System) {
  const attributes = {
    code: system.code,
    display_name: system.display_name,
    discipline: system.discipline,
    description: system.description ?? "",
    location: system.location ?? "",
    manufacturer: system.manufacturer ?? "unknown",
    installed_year: system.installed_year ?? 1990 + Math.floor(chanceOf(0, `year ${system.id}`) * 25),
    maintenance_notes: null,
    datapoints_count: system.datapoints_count,
  };
  return {
    type: "systems",
    id: String(system.id),
    attributes: inventory.altered("systems", system.id, attributes),
  };
}

export function alarmRecord(scene: Scene, alarm: Alarm) {
  const { world, inventory } = scene;
  const site = world.sites.get(alarm.siteId);
  const trigger = triggerOf(scene, alarm);
  const tag = world.tags.get(alarm.tagId);
  const host = tag === undefined ? undefined : world.hosts.get(tag.hostId);
  const zone = site?.timezone ?? "UTC";
  const local = (atMs: number) => withOffset(atMs, scene.buckets.offsetMs(zone, atMs));
  const tagName = tag === undefined ? alarm.tagId : tagRecord(scene, tag).attributes.display_name;
  return {
    type: "alarms",
    id: alarm.id,
    attributes: {
      site: inventory.altered("sites", alarm.siteId, {
        id: alarm.siteId,
        display_name: site?.displayName ?? "",
      }),
      trigger,
      status: alarm.resolvedAtMs === null ? "active" : "resolved",
      source: host?.display_name ?? "service",
      description: alarm.description ?? `${trigger.display_name}: ${trigger.description ?? tagName}`,
      triggered_at: local(alarm.triggeredAtMs),
      resolved_at: alarm.resolvedAtMs === null ? null : local(alarm.resolvedAtMs),
      recovering_until: alarm.recoveringUntilMs === null ? null : local(alarm.recoveringUntilMs),
      acknowledged: alarm.acknowledged !== null,
      acknowledged_by: alarm.acknowledged?.by ?? null,
      acknowledged_message: alarm.acknowledged?.message ?? null,
      acknowledged_at: alarm.acknowledged === null ? null : local(alarm.acknowledged.atMs),
      last_active_event: {
        id: Number(alarm.id) * 10 + alarm.episodes,
        source: host?.display_name ?? "service",
        type: world.triggers.get(alarm.triggerId)?.event_type ?? "manual",
        triggered_on: tagName,
        value: alarm.value,
        textlist_value: null,
        triggered_at: local(alarm.triggeredAtMs),
      },
    },
  };
}

export function triggerOf({ world, inventory }: Scene, alarm: Pick<Alarm, "triggerId">) {
  const trigger = world.triggers.get(alarm.triggerId);
  return inventory.altered("triggers", alarm.triggerId, {
    id: alarm.triggerId,
    display_name: trigger?.display_name ?? "Raised by hand",
    description: trigger?.description ?? null,
    priority: trigger?.priority ?? "B",
    enabled: true,
  });
}

/** ISO 8601 in UTC with a trailing Z, whole seconds. */
export function utc(atMs: number): string {
  return `${new Date(atMs).toISOString().slice(0, 19)}Z`;
}

/** ISO 8601 with a numeric offset, whole seconds. */
function withOffset(atMs: number, offsetMs: number): string {
  const minutes = Math.abs(Math.round(offsetMs / 60_000));
  const twoDigits = (value: number) => String(value).padStart(2, "0");
  const sign = offsetMs < 0 ? "-" : "+";
  const wall = new Date(atMs + offsetMs).toISOString().slice(0, 19);
  return `${wall}${sign}${twoDigits(Math.floor(minutes / 60))}:${twoDigits(minutes % 60)}`;
}

function pick(choices: readonly string[], text: string): string {
  return choices[Math.floor(chanceOf(0, text) * choices.length)] ?? "";
}

function addressOf(id: number, network: string): string {
  return `${network}.${Math.floor(id / 250) % 250}.${(id % 250) + 2}`;
}

/** 02: locally administered, so it is nobody's. */
function macOf(id: number): string {
  const hex = (id % 0xffffff).toString(16).padStart(6, "0");
  return `02:00:5e:${hex.slice(0, 2)}:${hex.slice(2, 4)}:${hex.slice(4, 6)}`;
}
