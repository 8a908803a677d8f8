import { join } from "node:path";
import type { SimulatorOptions } from "./options.ts";
import {
  type BuildingRecording,
  loadRecordedSeries,
  type RecordedSeriesTable,
  type RecordedSystem,
  type RecordedTag,
} from "./recorded-buildings.ts";

export interface Site {
  readonly id: number;
  readonly displayName: string;
  readonly timezone: string;
  /** Number of the copy; 0 for the recorded site. */
  readonly copyNumber: number;
  /** Time of the first recorded sample, milliseconds since 1970. */
  readonly firstSampleMs: number;
  readonly timeline: SiteTimeline;
  readonly alarms: readonly AlarmEpisode[];
}

export type AlarmEpisode = Readonly<ReturnType<typeof buildSiteAlarmEpisodes>[number]>;

/** Start and end of an alarm as positions in the replayed recording of its site. */
type AlarmPositions = Pick<AlarmEpisode, "raisedMs" | "resolvedMs">;

export type Tag = Readonly<ReturnType<typeof copyTag>>;

export type SimulatedSystem = RecordedSystem & { readonly datapoints_count: number };

export type SimulatedSites = Readonly<ReturnType<typeof buildSites>>;

const ID_STEP_PER_SITE_COPY = 1_000_000;
/** Each copy of a site adds this number to the alarm ids. Each of up to 1,000 replays adds 1,000,000. */
export const ALARM_ID_STEP_PER_COPY = 1_000_000_000;

export function buildSites(recording: BuildingRecording, options: SimulatorOptions, epochMs: number) {
  const { speed, anchor, loops_before, max_tags = Number.POSITIVE_INFINITY } = options;
  const isSelectedSite = ({ id, key }: { readonly id: number; readonly key: string }) =>
    options.sites === undefined || options.sites.includes(id) || options.sites.includes(key);
  const selectedSites = recording.sites
    .filter(isSelectedSite)
    .map((site) => ({ ...site, span: measureSiteRecording(recording, site.id, speed) }));
  if (selectedSites.length === 0) throw new Error("The option sites names no site of the data folder.");
  const siteRecordingRanges = selectedSites.map(({ span }) => span);
  const timelineAnchorBySiteId = chooseTimelineAnchors(siteRecordingRanges, { epochMs, speed, anchor });
  const gatewayIdByHostId = new Map(recording.hosts.map((host) => [host.id, host.gateway_id]));

  const sites = new Map<number, Site>();
  const tags = new Map<string, Tag>();
  const tagCountBySystemId = new Map<number, number>();
  for (let copy = 0; copy < options.replicate; copy += 1) {
    const siteCopyIdOffset = copy * ID_STEP_PER_SITE_COPY;
    for (const { id, display_name, timezone, span } of selectedSites) {
      // Each copy of a site starts at another week of the recording, so that copies differ at any time.
      const startPositionInReplayPass = ((timelineAnchorBySiteId.get(id) ?? 0) + copy * WEEK_MS) % span.lengthMs;
      const timelinePosition = startPositionInReplayPass + loops_before * span.lengthMs;
      sites.set(id + siteCopyIdOffset, {
        id: id + siteCopyIdOffset,
        displayName: copy === 0 ? display_name : `${display_name} (${copy + 1})`,
        timezone,
        copyNumber: copy,
        firstSampleMs: span.firstMs,
        timeline: createSiteTimeline(epochMs, speed, timelinePosition, span.lengthMs),
        alarms: buildSiteAlarmEpisodes(recording, span, copy),
      });
    }
    for (const tag of recording.tags) {
      const site = sites.get(tag.site_id + siteCopyIdOffset);
      if (site === undefined || tags.size >= max_tags) continue;
      const copiedTag = copyTag(tag, site, gatewayIdByHostId.get(tag.host_id) ?? 0);
      const { id, systemId } = copiedTag;
      tags.set(id, copiedTag);
      tagCountBySystemId.set(systemId, (tagCountBySystemId.get(systemId) ?? 0) + 1);
    }
  }

  const seriesByFile = new Map<string, RecordedSeriesTable>();
  return {
    epochMs,
    sites,
    tags,
    gateways: copyRows(recording.gateways, sites, (row) => row),
    hosts: copyRows(recording.hosts, sites, (row, copy) => ({
      ...row,
      gateway_id: row.gateway_id + copy * ID_STEP_PER_SITE_COPY,
    })),
    systems: copyRows(recording.systems, sites, (row, copy) => ({
      ...row,
      datapoints_count: tagCountBySystemId.get(row.id + copy * ID_STEP_PER_SITE_COPY) ?? 0,
    })),
    triggers: copyRows(recording.triggers, sites, (row, copy) => ({ ...row, tag_id: tagIdOfCopy(row.tag_id, copy) })),
    loadSeriesTable(file: string): RecordedSeriesTable {
      const seriesTable = seriesByFile.get(file) ?? loadRecordedSeries(join(recording.folder, file));
      seriesByFile.set(file, seriesTable);
      return seriesTable;
    },
  };
}

function copyTag(tag: RecordedTag, site: Site, recordedGatewayId: number) {
  const { description, unit, kind, file, column, display_name: displayName } = tag;
  const siteCopyIdOffset = site.copyNumber * ID_STEP_PER_SITE_COPY;
  return {
    ...{ site, displayName, description, unit, kind, file, column },
    id: tagIdOfCopy(tag.id, site.copyNumber),
    hostId: tag.host_id + siteCopyIdOffset,
    gatewayId: recordedGatewayId + siteCopyIdOffset,
    systemId: tag.system_id + siteCopyIdOffset,
    /** True for a meter reading that only grows; the names of such tags end with `_Teller`. */
    isCumulative: displayName.endsWith("_Teller"),
  };
}

const tagIdOfCopy = (id: string, copy: number) => (copy === 0 ? id : String(Number(id) + copy * ID_STEP_PER_SITE_COPY));

function measureSiteRecording(recording: BuildingRecording, siteId: number, speed: number) {
  const tags = recording.tags.filter((tag) => tag.site_id === siteId);
  const firstMs = Math.min(...tags.map((tag) => Date.parse(tag.first)));
  const endMs = Math.max(...tags.map((tag) => Date.parse(tag.last) + tag.resolution_seconds * 1000));
  const resolvedAlarms = recording.alarms.flatMap((alarm) =>
    alarm.siteId === siteId && alarm.resolvedAtMs !== null
      ? [{ raisedMs: alarm.triggeredAtMs - firstMs, resolvedMs: alarm.resolvedAtMs - firstMs }]
      : [],
  );
  return { id: siteId, firstMs, lengthMs: computeReplayPassLengthMs(endMs - firstMs, speed), episodes: resolvedAlarms };
}

/** Lists a site's alarms. An alarm that is active when the recording ends is resolved at the end of the replay. */
function buildSiteAlarmEpisodes(recording: BuildingRecording, span: SiteRecordingRange, copy: number) {
  return recording.alarms
    .filter((alarm) => alarm.siteId === span.id)
    .map((alarm) => ({
      id: alarm.id + copy * ALARM_ID_STEP_PER_COPY,
      triggerId: alarm.triggerId + copy * ID_STEP_PER_SITE_COPY,
      tagId: tagIdOfCopy(alarm.tagId, copy),
      raisedMs: alarm.triggeredAtMs - span.firstMs,
      resolvedMs: alarm.resolvedAtMs === null ? span.lengthMs : alarm.resolvedAtMs - span.firstMs,
      value: alarm.value,
    }));
}

function copyRows<Row extends { readonly id: number; readonly site_id: number }, Copy extends Row>(
  rows: readonly Row[],
  sites: ReadonlyMap<number, Site>,
  copyRow: (row: Row, copy: number) => Copy,
): Map<number, Copy> {
  const copiedObjects = [...sites.values()].flatMap((site) => {
    const siteCopyIdOffset = site.copyNumber * ID_STEP_PER_SITE_COPY;
    return rows
      .filter((row) => row.site_id + siteCopyIdOffset === site.id)
      .map((row) => ({ ...copyRow(row, site.copyNumber), id: row.id + siteCopyIdOffset, site_id: site.id }));
  });
  return new Map(copiedObjects.map((copy) => [copy.id, copy]));
}

// A site repeats its recording. A position is the replayed time in milliseconds, over all replays.

export type SiteTimeline = ReturnType<typeof createSiteTimeline>;

const DAY_MS = 86_400_000;
const WEEK_MS = 7 * DAY_MS;

function createSiteTimeline(epochMs: number, speed: number, anchorPosition: number, lengthMs: number) {
  return {
    lengthMs,
    positionAt: (wallMs: number) => anchorPosition + (wallMs - epochMs) * speed,
    wallMsAt: (position: number) => Math.round(epochMs + (position - anchorPosition) / speed),
  };
}

/** At speed 1, a replay lasts whole weeks, so that each starts on the same weekday; at other speeds, whole days. */
function computeReplayPassLengthMs(recordedMs: number, speed: number): number {
  const passLengthUnitMs = speed === 1 ? WEEK_MS : DAY_MS;
  return Math.ceil(recordedMs / passLengthUnitMs) * passLengthUnitMs;
}

type SiteRecordingRange = ReturnType<typeof measureSiteRecording>;

/** With the option `anchor: next-alarm`, a site's first alarm comes this long after the start. */
const SECONDS_TO_FIRST_ALARM = 12;
const PREFERRED_ALARM_DURATION_S = 33;
const SECONDS_BETWEEN_SITE_ALARMS = 25;
/** Fraction of the recording that is replayed as history before the simulation starts. */
const REPLAY_FRACTION_BEFORE_EPOCH = 0.6;
/** Prefers alarms after this fraction of the recording, so that clients find history that precedes the alarm. */
const MIN_ALARM_POSITION_FRACTION = 0.25;

/** Chooses the position in the recording at which each site starts, by site id. */
function chooseTimelineAnchors(
  sites: readonly SiteRecordingRange[],
  { epochMs, speed, anchor }: { epochMs: number; speed: number; anchor: "weeks" | "start" | "next-alarm" },
): Map<number, number> {
  if (anchor === "start") return new Map(sites.map((site) => [site.id, 0]));
  const timelineAnchorBySiteId = new Map(sites.map((site) => [site.id, weekAlignedPosition(site, epochMs, speed)]));
  if (anchor === "weeks") return timelineAnchorBySiteId;

  const sitesWithChosenAlarm = sites
    .flatMap((site) => {
      const chosenAlarmEpisode = chooseBestAlarmEpisode(site, speed);
      return chosenAlarmEpisode === undefined ? [] : [{ site, episode: chosenAlarmEpisode }];
    })
    .sort((a, b) => durationGap(a.episode, speed) - durationGap(b.episode, speed) || a.site.id - b.site.id);
  sitesWithChosenAlarm.forEach(({ site, episode }, index) => {
    const recordedMsBeforeAlarm = (SECONDS_TO_FIRST_ALARM + SECONDS_BETWEEN_SITE_ALARMS * index) * 1000 * speed;
    timelineAnchorBySiteId.set(site.id, Math.max(0, episode.raisedMs - recordedMsBeforeAlarm));
  });
  return timelineAnchorBySiteId;
}

function weekAlignedPosition({ firstMs, lengthMs }: SiteRecordingRange, epochMs: number, speed: number): number {
  const targetTimelinePosition = lengthMs * REPLAY_FRACTION_BEFORE_EPOCH;
  if (speed !== 1) return targetTimelinePosition;
  const msIntoWeek = (((epochMs - firstMs) % WEEK_MS) + WEEK_MS) % WEEK_MS;
  return Math.floor(targetTimelinePosition / WEEK_MS) * WEEK_MS + msIntoWeek;
}

function chooseBestAlarmEpisode({ episodes, lengthMs }: SiteRecordingRange, speed: number): AlarmPositions | undefined {
  const laterAlarmEpisodes = episodes.filter(({ raisedMs }) => raisedMs >= lengthMs * MIN_ALARM_POSITION_FRACTION);
  const candidates = laterAlarmEpisodes.length > 0 ? laterAlarmEpisodes : episodes;
  return candidates.toSorted((a, b) => durationGap(a, speed) - durationGap(b, speed) || a.raisedMs - b.raisedMs)[0];
}

const durationGap = ({ raisedMs, resolvedMs }: AlarmPositions, speed: number) =>
  Math.abs((resolvedMs - raisedMs) / speed / 1000 - PREFERRED_ALARM_DURATION_S);
