import { join } from "node:path";
import type { SimulatorOptions } from "./options.ts";
import {
  loadSeries,
  type RecordedGateway,
  type RecordedHost,
  type RecordedSystem,
  type RecordedTrigger,
  type Recording,
  type SeriesTable,
} from "./recorded-buildings.ts";

// The sites, devices and tags of the simulated world: the recording, its copies and their timelines.

export interface Site {
  readonly id: number;
  readonly displayName: string;
  readonly timezone: string;
  /** 0 for the recorded site, 1 and up for its copies. */
  readonly copy: number;
  /** Recorded time of position 0, milliseconds since 1970. */
  readonly firstMs: number;
  readonly timeline: Timeline;
  readonly alarms: readonly AlarmEpisode[];
}

/** Positions on the timeline of the site. */
interface AlarmTimes {
  readonly raised: number;
  readonly resolved: number;
}

export interface AlarmEpisode extends AlarmTimes {
  readonly id: number;
  readonly triggerId: number;
  readonly tagId: string;
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
  /** A meter reading that only grows: its name ends with `_Teller`. */
  readonly cumulative: boolean;
  readonly file: string;
  readonly column: string;
}

export type Gateway = RecordedGateway;
export type Host = RecordedHost;
export type System = RecordedSystem & { readonly datapoints_count: number };

export interface World {
  readonly epochMs: number;
  readonly sites: ReadonlyMap<number, Site>;
  readonly gateways: ReadonlyMap<number, Gateway>;
  readonly hosts: ReadonlyMap<number, Host>;
  readonly systems: ReadonlyMap<number, System>;
  readonly triggers: ReadonlyMap<number, RecordedTrigger>;
  readonly tags: ReadonlyMap<string, Tag>;
  /** Returns the readings of a file and loads the file at the first call. */
  series(file: string): SeriesTable;
}

const COPY_ID_STEP = 1_000_000;
/** Alarm ids grow by 1,000,000 with each pass; this leaves room for a thousand passes. */
export const ALARM_ID_STEP_PER_COPY = 1_000_000_000;

export function buildWorld(recording: Recording, options: SimulatorOptions, epochMs: number): World {
  const { speed, anchor, loops_before, max_tags = Number.POSITIVE_INFINITY } = options;
  const isChosenSite = ({ id, key }: { readonly id: number; readonly key: string }) =>
    options.sites === undefined || options.sites.includes(id) || options.sites.includes(key);
  const chosenSites = recording.sites
    .filter(isChosenSite)
    .map((site) => ({ ...site, shape: measureSite(recording, site.id, speed) }));
  if (chosenSites.length === 0) throw new Error("The option sites names no site of the data folder.");
  const siteShapes = chosenSites.map(({ shape }) => shape);
  const anchorBySiteId = chooseAnchors(siteShapes, { epochMs, speed, anchor });
  const gatewayIdByHostId = new Map(recording.hosts.map((host) => [host.id, host.gateway_id]));

  const sites = new Map<number, Site>();
  const tags = new Map<string, Tag>();
  const tagCountBySystemId = new Map<number, number>();
  for (let copy = 0; copy < options.replicate; copy += 1) {
    const copyIdOffset = copy * COPY_ID_STEP;
    for (const { id, display_name, timezone, shape } of chosenSites) {
      // Copies are whole weeks apart, so that they differ at any time.
      const startPositionInPass = ((anchorBySiteId.get(id) ?? 0) + copy * WEEK_MS) % shape.lengthMs;
      const position = startPositionInPass + loops_before * shape.lengthMs;
      sites.set(id + copyIdOffset, {
        id: id + copyIdOffset,
        displayName: copy === 0 ? display_name : `${display_name} (${copy + 1})`,
        timezone,
        copy,
        firstMs: shape.firstMs,
        timeline: createTimeline(epochMs, speed, position, shape.lengthMs),
        alarms: buildSiteEpisodes(recording, shape, copy),
      });
    }
    for (const tag of recording.tags) {
      const site = sites.get(tag.site_id + copyIdOffset);
      if (site === undefined || tags.size >= max_tags) continue;
      const { description, unit, kind, file, column } = tag;
      const id = copiedTagId(tag.id, copy);
      const systemId = tag.system_id + copyIdOffset;
      tagCountBySystemId.set(systemId, (tagCountBySystemId.get(systemId) ?? 0) + 1);
      tags.set(id, {
        id,
        site,
        hostId: tag.host_id + copyIdOffset,
        gatewayId: (gatewayIdByHostId.get(tag.host_id) ?? 0) + copyIdOffset,
        systemId,
        ...{ description, unit, kind, file, column },
        displayName: tag.display_name,
        cumulative: tag.display_name.endsWith("_Teller"),
      });
    }
  }

  const seriesByFile = new Map<string, SeriesTable>();
  return {
    epochMs,
    sites,
    tags,
    gateways: copyRows(recording.gateways, sites, (row) => row),
    hosts: copyRows(recording.hosts, sites, (row, copy) => ({
      ...row,
      gateway_id: row.gateway_id + copy * COPY_ID_STEP,
    })),
    systems: copyRows(recording.systems, sites, (row, copy) => ({
      ...row,
      datapoints_count: tagCountBySystemId.get(row.id + copy * COPY_ID_STEP) ?? 0,
    })),
    triggers: copyRows(recording.triggers, sites, (row, copy) => ({ ...row, tag_id: copiedTagId(row.tag_id, copy) })),
    series(file) {
      const table = seriesByFile.get(file) ?? loadSeries(join(recording.folder, file));
      seriesByFile.set(file, table);
      return table;
    },
  };
}

const copiedTagId = (id: string, copy: number) => (copy === 0 ? id : String(Number(id) + copy * COPY_ID_STEP));

function measureSite(recording: Recording, siteId: number, speed: number): AnchoredSite {
  const tags = recording.tags.filter((tag) => tag.site_id === siteId);
  const firstMs = Math.min(...tags.map((tag) => Date.parse(tag.first)));
  const endMs = Math.max(...tags.map((tag) => Date.parse(tag.last) + tag.resolution_seconds * 1000));
  const resolvedAlarms = recording.alarms.flatMap((alarm) =>
    alarm.siteId === siteId && alarm.resolvedAtMs !== null
      ? [{ raised: alarm.triggeredAtMs - firstMs, resolved: alarm.resolvedAtMs - firstMs }]
      : [],
  );
  return { id: siteId, firstMs, lengthMs: computePassLengthMs(endMs - firstMs, speed), episodes: resolvedAlarms };
}

/** An alarm that is still active when the recording ends is resolved at the end of the pass. */
function buildSiteEpisodes(recording: Recording, shape: AnchoredSite, copy: number): AlarmEpisode[] {
  return recording.alarms
    .filter((alarm) => alarm.siteId === shape.id)
    .map((alarm) => ({
      id: alarm.id + copy * ALARM_ID_STEP_PER_COPY,
      triggerId: alarm.triggerId + copy * COPY_ID_STEP,
      tagId: copiedTagId(alarm.tagId, copy),
      raised: alarm.triggeredAtMs - shape.firstMs,
      resolved: alarm.resolvedAtMs === null ? shape.lengthMs : alarm.resolvedAtMs - shape.firstMs,
      value: alarm.value,
    }));
}

function copyRows<Row extends { readonly id: number; readonly site_id: number }, Copy extends Row>(
  rows: readonly Row[],
  sites: ReadonlyMap<number, Site>,
  copyRow: (row: Row, copy: number) => Copy,
): Map<number, Copy> {
  const copiedRows = [...sites.values()].flatMap((site) => {
    const copyIdOffset = site.copy * COPY_ID_STEP;
    return rows
      .filter((row) => row.site_id + copyIdOffset === site.id)
      .map((row) => ({ ...copyRow(row, site.copy), id: row.id + copyIdOffset, site_id: site.id }));
  });
  return new Map(copiedRows.map((copy) => [copy.id, copy]));
}

// A position is a time in ms on a site's endless sequence of recording passes; the second pass starts at `lengthMs`.

export type Timeline = ReturnType<typeof createTimeline>;

const DAY_MS = 86_400_000;
const WEEK_MS = 7 * DAY_MS;

/** `speed`: recorded seconds per second. */
function createTimeline(epochMs: number, speed: number, anchor: number, lengthMs: number) {
  return {
    lengthMs,
    positionAt: (wallMs: number) => anchor + (wallMs - epochMs) * speed,
    wallAt: (position: number) => Math.round(epochMs + (position - anchor) / speed),
  };
}

/** A pass lasts whole weeks, so that each pass starts on the same weekday. */
function computePassLengthMs(recordedMs: number, speed: number): number {
  const unit = speed === 1 ? WEEK_MS : DAY_MS;
  return Math.ceil(recordedMs / unit) * unit;
}

interface AnchoredSite {
  readonly id: number;
  readonly firstMs: number;
  readonly lengthMs: number;
  readonly episodes: readonly AlarmTimes[];
}

/** With anchor `next-alarm`: time from the epoch to the first alarm. */
const SECONDS_TO_FIRST_ALARM = 12;
const PREFERRED_ALARM_DURATION_S = 33;
const SECONDS_BETWEEN_SITE_ALARMS = 25;
/** Fraction of a pass before the epoch, so that clients find history, and more alarms follow. */
const PASS_FRACTION_BEFORE_EPOCH = 0.6;
/** Alarms after this fraction of a pass are preferred, so that clients find history before the alarm. */
const MIN_PASS_FRACTION_OF_ALARM = 0.25;

/** Returns the anchors within the first pass, by site id. */
function chooseAnchors(
  sites: readonly AnchoredSite[],
  { epochMs, speed, anchor }: { epochMs: number; speed: number; anchor: "weeks" | "start" | "next-alarm" },
): Map<number, number> {
  if (anchor === "start") return new Map(sites.map((site) => [site.id, 0]));
  const anchorBySiteId = new Map(sites.map((site) => [site.id, computeWeekAnchor(site, epochMs, speed)]));
  if (anchor === "weeks") return anchorBySiteId;

  const siteChoices = sites
    .flatMap((site) => {
      const episode = chooseBestEpisode(site, speed);
      return episode === undefined ? [] : [{ site, episode }];
    })
    .sort((a, b) => durationMisfit(a.episode, speed) - durationMisfit(b.episode, speed) || a.site.id - b.site.id);
  siteChoices.forEach(({ site, episode }, index) => {
    const recordedMsBeforeAlarm = (SECONDS_TO_FIRST_ALARM + SECONDS_BETWEEN_SITE_ALARMS * index) * 1000 * speed;
    anchorBySiteId.set(site.id, Math.max(0, episode.raised - recordedMsBeforeAlarm));
  });
  return anchorBySiteId;
}

function computeWeekAnchor({ firstMs, lengthMs }: AnchoredSite, epochMs: number, speed: number): number {
  const targetPosition = lengthMs * PASS_FRACTION_BEFORE_EPOCH;
  if (speed !== 1) return targetPosition;
  const msIntoWeek = (((epochMs - firstMs) % WEEK_MS) + WEEK_MS) % WEEK_MS;
  return Math.floor(targetPosition / WEEK_MS) * WEEK_MS + msIntoWeek;
}

function chooseBestEpisode({ episodes, lengthMs }: AnchoredSite, speed: number): AlarmTimes | undefined {
  const laterEpisodes = episodes.filter(({ raised }) => raised >= lengthMs * MIN_PASS_FRACTION_OF_ALARM);
  const candidates = laterEpisodes.length > 0 ? laterEpisodes : episodes;
  return candidates.toSorted((a, b) => durationMisfit(a, speed) - durationMisfit(b, speed) || a.raised - b.raised)[0];
}

const durationMisfit = ({ raised, resolved }: AlarmTimes, speed: number) =>
  Math.abs((resolved - raised) / speed / 1000 - PREFERRED_ALARM_DURATION_S);
