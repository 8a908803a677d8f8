import { Points } from "../../core/codec/points.ts";
import { Malformed, sentence } from "../../core/errors/errors.ts";
import type { Resolution, TagLog } from "../../core/model/building.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Samples } from "../plots/samples.ts";
import type { FetchHistory } from "./page-context.ts";

/** State of filling gaps from history: idle | asked (poll again) | refused, with the reason | off. */
export interface FetchState {
  readonly state: "idle" | "asked" | "refused" | "off";
  readonly why: string | null;
}

/**
 * Logged history that a plot requested in spare slots. It is only displayed: no event is emitted, and a restart
 * deletes it.
 */
export interface FetchedHistory {
  /** Requests a range unless it is cached or requested already; at most one request per tag. */
  request(range: HistoryRange): FetchState;
  state(range: HistoryRange): FetchState;
  samples(range: HistoryRange): Samples;
  /** Changes whenever `samples` changes. */
  version(range: HistoryRange): number;
  /** Aborts open requests. */
  stop(): void;
}

export interface HistoryRange {
  readonly source: string;
  readonly id: string;
  readonly fromMs: number;
  readonly toMs: number;
  readonly resolution: Resolution;
}

interface Series {
  readonly source: string;
  readonly id: string;
  readonly state: "asked" | "fetched" | "refused";
  readonly why: string | null;
  readonly atMs: number;
  readonly fromMs: number;
  readonly samples: Samples;
  readonly version: number;
}

/** Most open requests, of all tags. */
const MOST_OPEN = 3;
/** Most cached series: 720 points each are some 12 kB. */
const MOST_CACHED = 50;
/** Lifetime of fetched data and of a rejection, in milliseconds. */
const GOOD_MS = 600_000;
/** Longest wait for a spare slot, in milliseconds. */
const PATIENCE_MS = 300_000;
export const NO_SAMPLES: Samples = { times: [], values: [] };
const WAITS: FetchState = { state: "asked", why: "It waits for a slot of the quota that nobody else needs." };

class Impatient extends Error {}

export function createFetchedHistory(clock: Clock, fetch: FetchHistory): FetchedHistory {
  const cached = new Map<string, Series>();
  const stopping = new AbortController();
  let versions = 0;

  const keyOf = ({ id, resolution, source }: HistoryRange) => JSON.stringify([source, id, resolution]);
  const samples = (range: HistoryRange) => cached.get(keyOf(range))?.samples ?? NO_SAMPLES;

  function save(range: HistoryRange, state: Series["state"], why: string | null, values: Samples): void {
    const { fromMs, id, source } = range;
    versions += 1;
    cached.delete(keyOf(range));
    const version = versions;
    cached.set(keyOf(range), { source, id, state, why, atMs: clock.monotonic(), fromMs, samples: values, version });
    for (const [old, series] of cached) {
      if (cached.size <= MOST_CACHED) break;
      if (series.state !== "asked") cached.delete(old);
    }
  }

  /** State of a cached range; null when it has to be requested. */
  function cachedState(range: HistoryRange): FetchState | null {
    const series = cached.get(keyOf(range));
    if (series === undefined) return null;
    const { atMs, fromMs, state, why } = series;
    if (state === "asked") return WAITS;
    const isInRange = state === "refused" || fromMs <= range.fromMs + GOOD_MS;
    if (!isInRange || clock.monotonic() - atMs >= GOOD_MS) return null;
    return state === "fetched" ? { state: "idle", why: null } : { state, why };
  }

  async function receive(range: HistoryRange, response: Promise<readonly TagLog[]>): Promise<void> {
    try {
      const log = (await response).find(({ id }) => id === range.id);
      if (log?.unreadable?.timesMs === null) throw new Malformed(log.unreadable.said, "");
      save(range, "fetched", null, log === undefined ? NO_SAMPLES : samplesOf(log));
    } catch (error) {
      if (!stopping.signal.aborted) save(range, "refused", reasonOf(error), samples(range));
    }
  }

  /** Aborts when the wait for a slot was too long. */
  function patience(): AbortSignal {
    const over = new AbortController();
    clock.sleep(PATIENCE_MS, stopping.signal).then(
      () => over.abort(new Impatient()),
      () => {},
    );
    return over.signal;
  }

  return {
    request(range) {
      const state = cachedState(range);
      if (state !== null) return state;
      const { fromMs, id, resolution, source, toMs } = range;
      const open = [...cached.values()].filter((series) => series.state === "asked");
      if (open.some((series) => series.source === source && series.id === id))
        return { state: "asked", why: "Another span of this tag is asked for." };
      if (open.length >= MOST_OPEN) return { state: "asked", why: "Other tags are asked for first." };
      const query = { tagIds: [id], from: wholeSecond(fromMs), to: wholeSecond(toMs), resolution };
      const response = fetch(source, query, AbortSignal.any([stopping.signal, patience()]));
      if (response === null) return { state: "off", why: "No worker follows this source." };
      save(range, "asked", null, samples(range));
      void receive(range, response);
      return WAITS;
    },
    state: (range) => cachedState(range) ?? { state: "idle", why: null },
    samples,
    version: (range) => cached.get(keyOf(range))?.version ?? 0,
    stop: () => stopping.abort(new Error("stopping")),
  };
}

function reasonOf(error: unknown): string {
  if (error instanceof Impatient)
    return "No slot of the quota was free for it within five minutes; live reads and history took them all.";
  return sentence(error);
}

function samplesOf({ measurements }: TagLog): Samples {
  const points = [...Points.of(measurements)]
    .map(({ time, value }) => ({ t: Date.parse(time) / 1_000, value: value === null ? null : Number(value) }))
    .filter(({ t }) => Number.isFinite(t))
    .sort((a, b) => a.t - b.t);
  return { times: points.map(({ t }) => t), values: points.map(({ value }) => value) };
}

/** Time in the format of the service: full seconds and a `Z`. */
function wholeSecond(ms: number): string {
  return `${isoUtc(ms).slice(0, 19)}Z`;
}
