import type { Tag } from "../../../src/core/model/building.ts";
import type { EventData } from "../../../src/core/model/event.ts";
import type { Cells } from "./table.ts";
import { ucumOf } from "./ucum.ts";

/** How a thing of the inventory is, as cells of its dimension. */

export function tagCells({ id, displayName, description, unit }: Tag): Cells {
  return { tag_id: id, name: displayName, description, unit, unit_ucum: ucumOf(unit) };
}

export function siteCells({ site }: EventData["site-added"]): Cells {
  return { site_id: String(site.id), name: site.displayName };
}

export function systemCells({ system }: EventData["system-added"]): Cells {
  return {
    system_id: system.id,
    code: system.code,
    name: system.displayName,
    discipline: system.discipline,
    description: system.description,
    location: system.location,
    manufacturer: system.manufacturer,
    installed_year: system.installedYear,
    maintenance_notes: system.maintenanceNotes,
    datapoints_count: system.datapointsCount,
  };
}

/** A row for each system that the tag belongs to now, and one for each that it has left. */
export function systemsCells({ systems, before }: EventData["tag-systems-changed"]): readonly Cells[] {
  const now = new Set(systems.map(({ id }) => id));
  const left = before.filter((id) => !now.has(id));
  return [
    ...[...now].map((id) => ({ system_id: id, is_current: true })),
    ...left.map((id) => ({ system_id: id, is_current: false })),
  ];
}

export function gatewayCells({ gateway }: EventData["gateway-added"]): Cells {
  return {
    gateway_id: gateway.id,
    name: gateway.displayName,
    version: gateway.version,
    hardware: gateway.hardware,
    ip_address: gateway.ipAddress,
    location: gateway.location,
  };
}

export function hostCells({ host }: EventData["host-added"]): Cells {
  return {
    host_id: host.id,
    name: host.displayName,
    description: host.description,
    type: host.type,
    model_name: host.modelName,
    ip: host.ip,
    mac_address: host.macAddress,
    gateway_id: host.gateway === null ? null : String(host.gateway.id),
  };
}
