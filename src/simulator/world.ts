import { join } from "node:path";
import { type AnchorSite, chooseAnchors } from "./anchors.ts";
import type { SimulatorOptions } from "./options.ts";
import type {
  RecordedGateway,
  RecordedHost,
  RecordedSystem,
  RecordedTrigger,
  Recording,
} from "./recording.ts";
import { loadSeries, type SeriesTable } from "./series.ts";
import { createTimeline, passLength, type Timeline, WEEK_MS } from "./timeline.ts";

export interface Site {
  readonly id: number;
  readonly displayName: string;
  readonly timezone: string;
  /** 0 for the recorded site, 1 and up for its replicas. */
  readonly copy: number;
  /** The recorded time of position 0, milliseconds since 1970. */
  readonly firstMs: number;
  readonly timeline: Timeline;
  readonly alarms: readonly Episode[];
}

/** One recorded alarm, in positions on the tape of its site. */
export interface Episode {
  readonly id: number;
  readonly triggerId: number;
  readonly tagId: string;
  readonly raised: number;
  readonly resolved: number;
  readonly value: number | null;
}

export interface Tag {
  readonly id: string;
  readonly site: Site;
  readonly hostId: number;
  readonly gatewayId: number;
  readonly systemId: number;
  readonly displayName: string;
  readonly description: string | null;
  readonly unit: string | null;
  readonly kind: "analog" | "boolean";
  /** A meter reading that only grows: `_Teller` in its name. */
  readonly cumulative: boolean;
  readonly file: string;
  readonly column: string;
}

export type Gateway = RecordedGateway;
export type Host = RecordedHost;
export type System = RecordedSystem & { readonly datapoints_count: number };
export type Trigger = RecordedTrigger;

export interface World {
  readonly epochMs: number;
  readonly sites: ReadonlyMap<number, Site>;
  readonly gateways: ReadonlyMap<number, Gateway>;
  readonly hosts: ReadonlyMap<number, Host>;
  readonly systems: ReadonlyMap<number, System>;
  readonly triggers: ReadonlyMap<number, Trigger>;
  readonly tags: ReadonlyMap<string, Tag>;
  /** Loads the file at the first call. */
  series(file: string): SeriesTable;
}

const COPY_STEP = 1_000_000;
/** Alarm ids grow by 1,000,000 with each pass; the copies stay clear of a thousand passes. */
const ALARM_COPY_STEP = 1_000_000_000;

export function buildWorld(recording: Recording, options: SimulatorOptions, epochMs: number): World {
  const chosen = recording.sites.filter(
    (site) =>
      options.sites === undefined || options.sites.includes(site.id) || options.sites.includes(site.key),
  );
  if (chosen.length === 0) throw new Error("The option sites names no site of the data folder.");

  const outlines = chosen.map((site) => outline(recording, site.id, options.speed));
  const anchors = chooseAnchors(outlines, { epochMs, speed: options.speed, anchor: options.anchor });
  const gatewayOfHost = new Map(recording.hosts.map((host) => [host.id, host.gateway_id]));

  const sites = new Map<number, Site>();
  const tags = new Map<string, Tag>();
  const chosenTags = recording.tags.filter((tag) => chosen.some((site) => site.id === tag.site_id));
  for (let copy = 0; copy < options.replicate; copy += 1) {
    for (const recorded of chosen) {
      const shape = outlines.find((candidate) => candidate.id === recorded.id);
      if (shape === undefined) continue;
      // Copies stand whole weeks apart, so that they do not all do the same at the same time.
      const phase = ((anchors.get(recorded.id) ?? 0) + copy * WEEK_MS) % shape.lengthMs;
      const anchor = phase + options.loops_before * shape.lengthMs;
      const id = recorded.id + copy * COPY_STEP;
      sites.set(id, {
        id,
        displayName: copy === 0 ? recorded.display_name : `${recorded.display_name} (${copy + 1})`,
        timezone: recorded.timezone,
        copy,
        firstMs: shape.firstMs,
        timeline: createTimeline({ epochMs, speed: options.speed, anchor, lengthMs: shape.lengthMs }),
        alarms: episodes(recording, recorded.id, shape, copy),
      });
    }
    for (const tag of chosenTags) {
      const site = sites.get(tag.site_id + copy * COPY_STEP);
      if (site === undefined || tags.size >= (options.max_tags ?? Number.POSITIVE_INFINITY)) continue;
      const id = copiedTagId(tag.id, copy);
      tags.set(id, {
        id,
        site,
        hostId: tag.host_id + copy * COPY_STEP,
        gatewayId: (gatewayOfHost.get(tag.host_id) ?? 0) + copy * COPY_STEP,
        systemId: tag.system_id + copy * COPY_STEP,
        displayName: tag.display_name,
        description: tag.description,
        unit: tag.unit,
        kind: tag.kind,
        cumulative: tag.display_name.endsWith("_Teller"),
        file: tag.file,
        column: tag.column,
      });
    }
  }

  const pointsOfSystem = new Map<number, number>();
  for (const tag of tags.values())
    pointsOfSystem.set(tag.systemId, (pointsOfSystem.get(tag.systemId) ?? 0) + 1);
  const loaded = new Map<string, SeriesTable>();
  return {
    epochMs,
    sites,
    tags,
    gateways: copies(recording.gateways, sites, (row, step) => ({ ...row, id: row.id + step })),
    hosts: copies(recording.hosts, sites, (row, step) => ({
      ...row,
      id: row.id + step,
      gateway_id: row.gateway_id + step,
    })),
    systems: copies(recording.systems, sites, (row, step) => ({
      ...row,
      id: row.id + step,
      datapoints_count: pointsOfSystem.get(row.id + step) ?? 0,
    })),
    triggers: copies(recording.triggers, sites, (row, step) => ({
      ...row,
      id: row.id + step,
      tag_id: copiedTagId(row.tag_id, step / COPY_STEP),
    })),
    series(file) {
      const known = loaded.get(file);
      if (known !== undefined) return known;
      const table = loadSeries(join(recording.folder, file));
      loaded.set(file, table);
      return table;
    },
  };
}

/** Tag ids are text, though they look like numbers. */
function copiedTagId(id: string, copy: number): string {
  return copy === 0 ? id : String(Number(id) + copy * COPY_STEP);
}

type Outline = AnchorSite;

function outline(recording: Recording, siteId: number, speed: number): Outline {
  let firstMs = Number.POSITIVE_INFINITY;
  let endMs = Number.NEGATIVE_INFINITY;
  for (const tag of recording.tags) {
    if (tag.site_id !== siteId) continue;
    firstMs = Math.min(firstMs, Date.parse(tag.first));
    endMs = Math.max(endMs, Date.parse(tag.last) + tag.resolution_seconds * 1000);
  }
  const resolved = recording.alarms.flatMap((alarm) =>
    alarm.siteId === siteId && alarm.resolvedAtMs !== null
      ? [{ raised: alarm.triggeredAtMs - firstMs, resolved: alarm.resolvedAtMs - firstMs }]
      : [],
  );
  return { id: siteId, firstMs, lengthMs: passLength(endMs - firstMs, speed), episodes: resolved };
}

/** An alarm that is still active when the recording ends is resolved at the end of the pass. */
function episodes(recording: Recording, siteId: number, shape: Outline, copy: number): Episode[] {
  return recording.alarms
    .filter((alarm) => alarm.siteId === siteId)
    .map((alarm) => ({
      id: alarm.id + copy * ALARM_COPY_STEP,
      triggerId: alarm.triggerId + copy * COPY_STEP,
      tagId: copiedTagId(alarm.tagId, copy),
      raised: alarm.triggeredAtMs - shape.firstMs,
      resolved: alarm.resolvedAtMs === null ? shape.lengthMs : alarm.resolvedAtMs - shape.firstMs,
      value: alarm.value,
    }));
}

/** The rows of every included site and of its copies, by their new ids. */
function copies<Row extends { readonly site_id: number }, Out extends { readonly id: number }>(
  rows: readonly Row[],
  sites: ReadonlyMap<number, Site>,
  moved: (row: Row, step: number) => Out,
): Map<number, Out> {
  const all = new Map<number, Out>();
  for (const site of sites.values()) {
    const step = site.copy * COPY_STEP;
    for (const row of rows) {
      if (row.site_id + step !== site.id) continue;
      const copy = { ...moved(row, step), site_id: site.id };
      all.set(copy.id, copy);
    }
  }
  return all;
}
