import type { SimulatorOptions } from "./options.ts";
import { lastIndexUpTo } from "./recorded-buildings.ts";
import type { SimulatedSites, Tag } from "./simulated-sites.ts";

/** A tag value as a number: booleans are 0 and 1, null is a device that cannot be read. */
export type RawTagValue = number | null;
export type TagValue = number | boolean | null;

/** From `atMs` on, the tag keeps the value `held`; if `held` is null, the tag follows the recording again. */
export interface TagValueOverride {
  readonly atMs: number;
  readonly fixedValue: { readonly value: RawTagValue } | null;
}

export type Devices = ReturnType<typeof createSimulatedDevices>;

export type VisitTagSample = (atMs: number, value: RawTagValue) => void;

export function fromRawTagValue(tag: Tag, raw: RawTagValue): TagValue {
  return tag.kind === "boolean" && raw !== null ? raw !== 0 : raw;
}

export function toRawTagValue(tag: Tag, value: TagValue): RawTagValue {
  if (value === null) return null;
  if (tag.kind === "boolean") return value === true || (typeof value === "number" && value !== 0) ? 1 : 0;
  return Number(value);
}

export function createSimulatedDevices(world: SimulatedSites, options: SimulatorOptions) {
  const overridesByTagId = new Map<string, TagValueOverride[]>();
  const changesByGatewayId = new Map<number, { readonly atMs: number; readonly online: boolean }[]>();
  const initiallyOfflineGatewayIds = new Set(options.offline_gateways.map(Number));
  const lastMeterReadingByColumn = new Map<Float64Array, number>();
  const logIntervalMs = (options.history.log_every_s ?? 0) * 1000;

  function readRecordedTagSeries(tag: Tag) {
    const { timesMs, columns } = world.loadSeriesTable(tag.file);
    return { times: timesMs, values: columns.get(tag.column) ?? new Float64Array(timesMs.length) };
  }

  function readRecordedSample(tag: Tag, values: Float64Array, index: number, pass: number): RawTagValue {
    const value = values[index] ?? Number.NaN;
    if (Number.isNaN(value)) return null;
    if (!tag.isCumulative || pass === 0 || options.history.meters_on_loop === "restart") return value;
    const lastReading = lastMeterReadingByColumn.get(values) ?? values.findLast((other) => !Number.isNaN(other)) ?? 0;
    lastMeterReadingByColumn.set(values, lastReading);
    return value + pass * lastReading;
  }

  function findRecordedTagValue(tag: Tag, atMs: number): RawTagValue {
    const { timeline, firstSampleMs } = tag.site;
    const timelinePosition = timeline.positionAt(atMs + 0.5);
    const pass = Math.floor(timelinePosition / timeline.lengthMs);
    if (pass < 0) return null;
    const { times, values } = readRecordedTagSeries(tag);
    const index = lastIndexUpTo(times, timelinePosition - pass * timeline.lengthMs + firstSampleMs);
    if (index >= 0) return readRecordedSample(tag, values, index, pass);
    return pass === 0 ? null : readRecordedSample(tag, values, times.length - 1, pass - 1);
  }

  function visitRecordedTagSamples(tag: Tag, fromMs: number, toMs: number, visit: VisitTagSample): void {
    const { timeline, firstSampleMs } = tag.site;
    const { times, values } = readRecordedTagSeries(tag);
    const startPosition = Math.max(0, timeline.positionAt(fromMs - 1));
    const endPosition = timeline.positionAt(toMs);
    for (let pass = Math.floor(startPosition / timeline.lengthMs); pass * timeline.lengthMs <= endPosition; pass += 1) {
      const passStart = pass * timeline.lengthMs - firstSampleMs;
      for (let index = lastIndexUpTo(times, startPosition - passStart - 1) + 1; index < times.length; index += 1) {
        const atMs = timeline.wallMsAt(passStart + (times[index] ?? 0));
        if (atMs >= toMs) return;
        if (atMs >= fromMs) visit(atMs, readRecordedSample(tag, values, index, pass));
      }
    }
  }

  function computeTagValueAt(tag: Tag, atMs: number): RawTagValue {
    if (!isGatewayOnline(tag.gatewayId, atMs)) return null;
    const tagOverride = overridesByTagId.get(tag.id)?.findLast((candidate) => candidate.atMs <= atMs)?.fixedValue;
    return tagOverride ? tagOverride.value : findRecordedTagValue(tag, atMs);
  }

  function visitTagSamples(tag: Tag, fromMs: number, toMs: number, visit: VisitTagSample): void {
    if (logIntervalMs > 0) {
      const logStartMs = Math.max(fromMs, tag.site.timeline.wallMsAt(0));
      for (let atMs = Math.ceil(logStartMs / logIntervalMs) * logIntervalMs; atMs < toMs; atMs += logIntervalMs)
        visit(atMs, computeTagValueAt(tag, atMs));
      return;
    }
    const tagOverrides = overridesByTagId.get(tag.id);
    const hasGatewayChanges = changesByGatewayId.has(tag.gatewayId) || initiallyOfflineGatewayIds.has(tag.gatewayId);
    if (tagOverrides === undefined && !hasGatewayChanges) {
      visitRecordedTagSamples(tag, fromMs, toMs, visit);
      return;
    }
    const isTagOverrideInRange = ({ atMs, fixedValue }: TagValueOverride) =>
      fixedValue !== null && atMs >= fromMs && atMs < toMs;
    const tagWriteTimes = (tagOverrides ?? []).filter(isTagOverrideInRange).map(({ atMs }) => atMs);
    visitRecordedTagSamples(tag, fromMs, toMs, (atMs) => {
      for (let [writtenMs] = tagWriteTimes; writtenMs !== undefined && writtenMs <= atMs; [writtenMs] = tagWriteTimes) {
        if (writtenMs < atMs) visit(writtenMs, computeTagValueAt(tag, writtenMs));
        tagWriteTimes.shift();
      }
      visit(atMs, computeTagValueAt(tag, atMs));
    });
    for (const atMs of tagWriteTimes) visit(atMs, computeTagValueAt(tag, atMs));
  }

  function addTagOverride(tag: Tag, override: TagValueOverride): void {
    const tagOverrides = [...(overridesByTagId.get(tag.id) ?? []), override].sort((a, b) => a.atMs - b.atMs);
    overridesByTagId.set(tag.id, tagOverrides);
  }

  function isGatewayOnline(gatewayId: number, atMs: number): boolean {
    const gatewayChange = changesByGatewayId.get(gatewayId)?.findLast((candidate) => candidate.atMs <= atMs);
    return gatewayChange?.online ?? !initiallyOfflineGatewayIds.has(gatewayId);
  }

  return {
    overrides: overridesByTagId,
    gatewayChanges: changesByGatewayId,
    valueAt: computeTagValueAt,
    visitSamples: visitTagSamples,
    isGatewayOnline,
    override: (tag: Tag, atMs: number, value: RawTagValue) => addTagOverride(tag, { atMs, fixedValue: { value } }),
    release: (tag: Tag, atMs: number) => addTagOverride(tag, { atMs, fixedValue: null }),
    setGatewayOnline(gatewayId: number, atMs: number, isOnline: boolean): void {
      if (isGatewayOnline(gatewayId, atMs) === isOnline) return;
      changesByGatewayId.set(gatewayId, [...(changesByGatewayId.get(gatewayId) ?? []), { atMs, online: isOnline }]);
    },
  };
}
