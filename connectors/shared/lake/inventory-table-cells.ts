import type { Tag } from "../../../src/core/model/building.ts";
import type { EventData } from "../../../src/core/model/event.ts";
import { toUcumCode } from "../../../src/core/values/ucum-code.ts";
import type { RowCells } from "./table-model.ts";

export function tagCells({ id, displayName, description, unit, alias, path, unitCode }: Tag): RowCells {
  return {
    ...{ tag_id: id, name: displayName, description, unit, unit_ucum: toUcumCode(unit) },
    ...{ alias: alias ?? null, path: path ?? null, unit_code: unitCode ?? null },
  };
}

export function siteCells({ site }: EventData["site-added"]): RowCells {
  return { site_id: String(site.id), name: site.displayName };
}

export function systemCells({ system }: EventData["system-added"]): RowCells {
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

/** Returns a row for each current system of the tag and for each system that the tag left. */
export function tagSystemCells({ systems, before }: EventData["tag-systems-changed"]): readonly RowCells[] {
  const currentSystemIds = new Set(systems.map(({ id }) => id));
  const formerSystemIds = before.filter((id) => !currentSystemIds.has(id));
  return [
    ...[...currentSystemIds].map((id) => ({ system_id: id, is_current: true })),
    ...formerSystemIds.map((id) => ({ system_id: id, is_current: false })),
  ];
}

export function gatewayCells({ gateway }: EventData["gateway-added"]): RowCells {
  return {
    gateway_id: gateway.id,
    name: gateway.displayName,
    version: gateway.version,
    hardware: gateway.hardware,
    ip_address: gateway.ipAddress,
    location: gateway.location,
  };
}

export function hostCells({ host }: EventData["host-added"]): RowCells {
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
