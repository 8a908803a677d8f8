import type { SimulatorOptions } from "./options.ts";
import { lastAtOrBefore } from "./recorded-buildings.ts";
import type { Tag, World } from "./simulated-sites.ts";

// The devices of the buildings: the value of each tag at any time, and which gateways are online.

/** Internal form of a tag value: booleans are 0 and 1, null is a device that could not be read. */
export type RawValue = number | null;
export type Value = number | boolean | null;

/** From `atMs` on the tag has the value `held`; null follows the recording again. Part of the exported state. */
export interface ValueOverride {
  readonly atMs: number;
  readonly held: { readonly value: RawValue } | null;
}

export interface GatewayChange {
  readonly atMs: number;
  readonly online: boolean;
}

export type Devices = ReturnType<typeof createDevices>;

export type VisitSample = (atMs: number, value: RawValue) => void;

export function fromRawValue(tag: Tag, raw: RawValue): Value {
  return tag.kind === "boolean" && raw !== null ? raw !== 0 : raw;
}

export function toRawValue(tag: Tag, value: Value): RawValue {
  if (value === null) return null;
  if (tag.kind === "boolean") return value === true || (typeof value === "number" && value !== 0) ? 1 : 0;
  return Number(value);
}

export function createDevices(world: World, options: SimulatorOptions) {
  const overrides = new Map<string, ValueOverride[]>();
  const gatewayChanges = new Map<number, GatewayChange[]>();
  const initiallyOfflineGatewayIds = new Set(options.offline_gateways.map(Number));
  const lastMeterReadingByColumn = new Map<Float64Array, number>();
  const logIntervalMs = (options.history.log_every_s ?? 0) * 1000;

  function readRecordedSeries(tag: Tag) {
    const { timesMs, columns } = world.series(tag.file);
    return { times: timesMs, values: columns.get(tag.column) ?? new Float64Array(timesMs.length) };
  }

  function readRecordedValue(tag: Tag, values: Float64Array, index: number, pass: number): RawValue {
    const value = values[index] ?? Number.NaN;
    if (Number.isNaN(value)) return null;
    if (!tag.cumulative || pass === 0 || options.history.meters_on_loop === "restart") return value;
    const lastReading = lastMeterReadingByColumn.get(values) ?? values.findLast((other) => !Number.isNaN(other)) ?? 0;
    lastMeterReadingByColumn.set(values, lastReading);
    return value + pass * lastReading;
  }

  function findRecordedValue(tag: Tag, atMs: number): RawValue {
    const { timeline, firstMs } = tag.site;
    const position = timeline.positionAt(atMs + 0.5);
    const pass = Math.floor(position / timeline.lengthMs);
    if (pass < 0) return null;
    const { times, values } = readRecordedSeries(tag);
    const index = lastAtOrBefore(times, position - pass * timeline.lengthMs + firstMs);
    if (index >= 0) return readRecordedValue(tag, values, index, pass);
    return pass === 0 ? null : readRecordedValue(tag, values, times.length - 1, pass - 1);
  }

  function visitRecordedSamples(tag: Tag, fromMs: number, toMs: number, visit: VisitSample): void {
    const { timeline, firstMs } = tag.site;
    const { times, values } = readRecordedSeries(tag);
    const startPosition = Math.max(0, timeline.positionAt(fromMs - 1));
    const endPosition = timeline.positionAt(toMs);
    for (let pass = Math.floor(startPosition / timeline.lengthMs); pass * timeline.lengthMs <= endPosition; pass += 1) {
      const passStart = pass * timeline.lengthMs - firstMs;
      for (let index = lastAtOrBefore(times, startPosition - passStart - 1) + 1; index < times.length; index += 1) {
        const atMs = timeline.wallAt(passStart + (times[index] ?? 0));
        if (atMs >= toMs) return;
        if (atMs >= fromMs) visit(atMs, readRecordedValue(tag, values, index, pass));
      }
    }
  }

  function computeValueAt(tag: Tag, atMs: number): RawValue {
    if (!isGatewayOnline(tag.gatewayId, atMs)) return null;
    const override = overrides.get(tag.id)?.findLast((candidate) => candidate.atMs <= atMs)?.held;
    return override ? override.value : findRecordedValue(tag, atMs);
  }

  function visitSamples(tag: Tag, fromMs: number, toMs: number, visit: VisitSample): void {
    if (logIntervalMs > 0) {
      const startMs = Math.max(fromMs, tag.site.timeline.wallAt(0));
      for (let atMs = Math.ceil(startMs / logIntervalMs) * logIntervalMs; atMs < toMs; atMs += logIntervalMs)
        visit(atMs, computeValueAt(tag, atMs));
      return;
    }
    const tagOverrides = overrides.get(tag.id);
    const hasGatewayChanges = gatewayChanges.has(tag.gatewayId) || initiallyOfflineGatewayIds.has(tag.gatewayId);
    if (tagOverrides === undefined && !hasGatewayChanges) {
      visitRecordedSamples(tag, fromMs, toMs, visit);
      return;
    }
    const isOverrideInRange = ({ atMs, held }: ValueOverride) => held !== null && atMs >= fromMs && atMs < toMs;
    const writeTimes = (tagOverrides ?? []).filter(isOverrideInRange).map(({ atMs }) => atMs);
    visitRecordedSamples(tag, fromMs, toMs, (atMs) => {
      for (let [writtenMs] = writeTimes; writtenMs !== undefined && writtenMs <= atMs; [writtenMs] = writeTimes) {
        if (writtenMs < atMs) visit(writtenMs, computeValueAt(tag, writtenMs));
        writeTimes.shift();
      }
      visit(atMs, computeValueAt(tag, atMs));
    });
    for (const atMs of writeTimes) visit(atMs, computeValueAt(tag, atMs));
  }

  function addOverride(tag: Tag, override: ValueOverride): void {
    const tagOverrides = [...(overrides.get(tag.id) ?? []), override].sort((a, b) => a.atMs - b.atMs);
    overrides.set(tag.id, tagOverrides);
  }

  function isGatewayOnline(gatewayId: number, atMs: number): boolean {
    const change = gatewayChanges.get(gatewayId)?.findLast((candidate) => candidate.atMs <= atMs);
    return change?.online ?? !initiallyOfflineGatewayIds.has(gatewayId);
  }

  return {
    overrides,
    gatewayChanges,
    valueAt: computeValueAt,
    visitSamples,
    online: isGatewayOnline,
    override: (tag: Tag, atMs: number, value: RawValue) => addOverride(tag, { atMs, held: { value } }),
    release: (tag: Tag, atMs: number) => addOverride(tag, { atMs, held: null }),
    setOnline(gatewayId: number, atMs: number, isOnline: boolean): void {
      if (isGatewayOnline(gatewayId, atMs) === isOnline) return;
      gatewayChanges.set(gatewayId, [...(gatewayChanges.get(gatewayId) ?? []), { atMs, online: isOnline }]);
    },
  };
}
