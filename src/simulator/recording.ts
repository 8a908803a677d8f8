import { readFileSync } from "node:fs";
import { join } from "node:path";

// The shape of metadata.json and alarm_events.csv, as described in data/README.md.

export interface RecordedSite {
  readonly id: number;
  readonly key: string;
  readonly display_name: string;
  readonly timezone: string;
}

export interface RecordedGateway {
  readonly id: number;
  readonly site_id: number;
  readonly display_name: string;
  readonly location: string | null;
}

export interface RecordedHost {
  readonly id: number;
  readonly site_id: number;
  readonly gateway_id: number;
  readonly display_name: string;
  readonly description: string | null;
  readonly type: string;
  readonly model_name: string | null;
}

export interface RecordedSystem {
  readonly id: number;
  readonly site_id: number;
  readonly code: string;
  readonly display_name: string;
  readonly discipline: string;
  readonly description: string | null;
  readonly location: string | null;
  readonly manufacturer: string | null;
  readonly installed_year: number | null;
}

export interface RecordedTrigger {
  readonly id: number;
  readonly site_id: number;
  readonly tag_id: string;
  readonly display_name: string;
  readonly description: string | null;
  readonly priority: string;
  readonly event_type: string;
}

export interface RecordedTag {
  readonly id: string;
  readonly site_id: number;
  readonly host_id: number;
  readonly system_id: number;
  readonly display_name: string;
  readonly description: string | null;
  readonly unit: string | null;
  readonly kind: "analog" | "boolean";
  readonly resolution_seconds: number;
  readonly file: string;
  readonly column: string;
  readonly first: string;
  readonly last: string;
}

export interface RecordedAlarm {
  readonly id: number;
  readonly triggerId: number;
  readonly siteId: number;
  readonly tagId: string;
  readonly triggeredAtMs: number;
  /** null: still active when the recording ends. */
  readonly resolvedAtMs: number | null;
  readonly value: number | null;
}

export interface Recording {
  readonly folder: string;
  readonly sites: readonly RecordedSite[];
  readonly gateways: readonly RecordedGateway[];
  readonly hosts: readonly RecordedHost[];
  readonly systems: readonly RecordedSystem[];
  readonly triggers: readonly RecordedTrigger[];
  readonly tags: readonly RecordedTag[];
  readonly alarms: readonly RecordedAlarm[];
}

type Metadata = Pick<Recording, "sites" | "gateways" | "hosts" | "systems" | "triggers" | "tags">;

/** Reads everything but the series, which are read per site when first needed. */
export function loadRecording(folder: string): Recording {
  const metadata: Metadata = JSON.parse(readFileSync(join(folder, "metadata.json"), "utf8"));
  const { sites, gateways, hosts, systems, triggers, tags } = metadata;
  const alarms = parseAlarms(readFileSync(join(folder, "alarm_events.csv"), "utf8"));
  return { folder, sites, gateways, hosts, systems, triggers, tags, alarms };
}

function parseAlarms(text: string): RecordedAlarm[] {
  const [header = "", ...lines] = text.trim().split(/\r?\n/);
  const names = header.split(",");
  return lines.map((line) => {
    const cells = line.split(",");
    const cell = (name: string) => cells[names.indexOf(name)] ?? "";
    return {
      id: Number(cell("alarm_id")),
      triggerId: Number(cell("trigger_id")),
      siteId: Number(cell("site_id")),
      tagId: cell("tag_id"),
      triggeredAtMs: Date.parse(cell("triggered_at")),
      resolvedAtMs: cell("resolved_at") === "" ? null : Date.parse(cell("resolved_at")),
      value: cell("value_at_trigger") === "" ? null : Number(cell("value_at_trigger")),
    };
  });
}
