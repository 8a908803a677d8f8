import type { SimulatorOptions } from "./options.ts";
import { lastAtOrBefore } from "./series.ts";
import type { Tag, World } from "./world.ts";

/** What a tag can hold: booleans as 0 and 1 inside, null for a device that could not be read. */
export type Raw = number | null;
export type Value = number | boolean | null;

/** From `atMs` on the tag holds the value, or follows the recording again. */
export interface Hold {
  readonly atMs: number;
  readonly held: { readonly value: Raw } | null;
}

export interface GatewayChange {
  readonly atMs: number;
  readonly online: boolean;
}

/** The building itself: what its devices hold at any time, and which gateways can be reached. */
export interface Devices {
  valueAt(tag: Tag, atMs: number): Raw;
  /** Visits the samples with fromMs <= time < toMs in order of time. */
  visitSamples(tag: Tag, fromMs: number, toMs: number, visit: (atMs: number, value: Raw) => void): void;
  hold(tag: Tag, atMs: number, value: Raw): void;
  release(tag: Tag, atMs: number): void;
  online(gatewayId: number, atMs: number): boolean;
  setOnline(gatewayId: number, atMs: number, online: boolean): void;
  readonly holds: Map<string, Hold[]>;
  readonly gatewayChanges: Map<number, GatewayChange[]>;
}

export function asValue(tag: Tag, raw: Raw): Value {
  return tag.kind === "boolean" && raw !== null ? raw !== 0 : raw;
}

export function asRaw(tag: Tag, value: Value): Raw {
  if (value === null) return null;
  if (tag.kind === "boolean") return value === true || (typeof value === "number" && value !== 0) ? 1 : 0;
  return Number(value);
}

export function createDevices(world: World, options: SimulatorOptions): Devices {
  const holds = new Map<string, Hold[]>();
  const gatewayChanges = new Map<number, GatewayChange[]>();
  const offlineAtFirst = new Set(options.offline_gateways.map(Number));
  const meterAtEnd = new Map<Float64Array, number>();

  function column(tag: Tag) {
    const table = world.series(tag.file);
    return {
      times: table.timesMs,
      values: table.columns.get(tag.column) ?? new Float64Array(table.timesMs.length),
    };
  }

  function cell(tag: Tag, values: Float64Array, index: number, pass: number): Raw {
    const value = values[index] ?? Number.NaN;
    if (Number.isNaN(value)) return null;
    if (!tag.cumulative || pass === 0 || options.history.meters_on_loop === "restart") return value;
    return value + pass * lastReading(values);
  }

  function lastReading(values: Float64Array): number {
    const known = meterAtEnd.get(values);
    if (known !== undefined) return known;
    const last = values.findLast((value) => !Number.isNaN(value)) ?? 0;
    meterAtEnd.set(values, last);
    return last;
  }

  function recordedAt(tag: Tag, atMs: number): Raw {
    const { timeline, firstMs } = tag.site;
    const position = timeline.positionAt(atMs + 0.5);
    const pass = Math.floor(position / timeline.lengthMs);
    if (pass < 0) return null;
    const { times, values } = column(tag);
    const index = lastAtOrBefore(times, position - pass * timeline.lengthMs + firstMs);
    if (index >= 0) return cell(tag, values, index, pass);
    return pass === 0 ? null : cell(tag, values, times.length - 1, pass - 1);
  }

  function visitRecorded(tag: Tag, fromMs: number, toMs: number, visit: (atMs: number, value: Raw) => void) {
    const { timeline, firstMs } = tag.site;
    const { times, values } = column(tag);
    const from = Math.max(0, timeline.positionAt(fromMs - 1));
    const to = timeline.positionAt(toMs);
    for (let pass = Math.floor(from / timeline.lengthMs); pass * timeline.lengthMs <= to; pass += 1) {
      const passStart = pass * timeline.lengthMs - firstMs;
      for (let index = lastAtOrBefore(times, from - passStart - 1) + 1; index < times.length; index += 1) {
        const atMs = timeline.wallAt(passStart + (times[index] ?? 0));
        if (atMs >= toMs) return;
        if (atMs >= fromMs) visit(atMs, cell(tag, values, index, pass));
      }
    }
  }

  function visitLogged(
    tag: Tag,
    everyMs: number,
    fromMs: number,
    toMs: number,
    visit: (atMs: number, value: Raw) => void,
  ) {
    const startMs = Math.max(fromMs, tag.site.timeline.wallAt(0));
    for (let atMs = Math.ceil(startMs / everyMs) * everyMs; atMs < toMs; atMs += everyMs) {
      visit(atMs, valueAt(tag, atMs));
    }
  }

  function valueAt(tag: Tag, atMs: number): Raw {
    if (!online(tag.gatewayId, atMs)) return null;
    const hold = holdAt(holds.get(tag.id), atMs);
    return hold === null ? recordedAt(tag, atMs) : hold.value;
  }

  function visitSamples(tag: Tag, fromMs: number, toMs: number, visit: (atMs: number, value: Raw) => void) {
    const everyMs = (options.history.log_every_s ?? 0) * 1000;
    if (everyMs > 0) return visitLogged(tag, everyMs, fromMs, toMs, visit);
    const tagHolds = holds.get(tag.id);
    const untouched =
      tagHolds === undefined && !gatewayChanges.has(tag.gatewayId) && !offlineAtFirst.has(tag.gatewayId);
    if (untouched) return visitRecorded(tag, fromMs, toMs, visit);

    // A written value is a sample of its own, at the time of the write.
    const written = (tagHolds ?? []).filter(
      (hold) => hold.held !== null && hold.atMs >= fromMs && hold.atMs < toMs,
    );
    let next = 0;
    visitRecorded(tag, fromMs, toMs, (atMs) => {
      for (; next < written.length && (written[next]?.atMs ?? atMs) <= atMs; next += 1) {
        const writtenMs = written[next]?.atMs ?? atMs;
        if (writtenMs < atMs) visit(writtenMs, valueAt(tag, writtenMs));
      }
      visit(atMs, valueAt(tag, atMs));
    });
    for (const { atMs } of written.slice(next)) visit(atMs, valueAt(tag, atMs));
  }

  function addHold(tag: Tag, hold: Hold) {
    const list = holds.get(tag.id) ?? [];
    list.push(hold);
    list.sort((a, b) => a.atMs - b.atMs);
    holds.set(tag.id, list);
  }

  function online(gatewayId: number, atMs: number): boolean {
    const change = gatewayChanges.get(gatewayId)?.findLast((candidate) => candidate.atMs <= atMs);
    return change?.online ?? !offlineAtFirst.has(gatewayId);
  }

  return {
    holds,
    gatewayChanges,
    valueAt,
    visitSamples,
    online,
    hold: (tag, atMs, value) => addHold(tag, { atMs, held: { value } }),
    release: (tag, atMs) => addHold(tag, { atMs, held: null }),
    setOnline(gatewayId, atMs, isOnline) {
      if (online(gatewayId, atMs) === isOnline) return;
      gatewayChanges.set(gatewayId, [...(gatewayChanges.get(gatewayId) ?? []), { atMs, online: isOnline }]);
    },
  };
}

function holdAt(list: readonly Hold[] | undefined, atMs: number): { readonly value: Raw } | null {
  return list?.findLast((hold) => hold.atMs <= atMs)?.held ?? null;
}
