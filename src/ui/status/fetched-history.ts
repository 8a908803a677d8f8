import { Points } from "../../core/codec/points.ts";
import { Malformed, sentence } from "../../core/errors/errors.ts";
import type { Resolution, TagLog } from "../../core/model/building.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Samples } from "../plots/samples.ts";
import type { PlotResponse } from "./responses.ts";

/**
 * Logged history that a plot requested in spare slots. It is only displayed: no event is emitted, and a restart
 * deletes it.
 */
export interface FetchedHistory {
  /** Orders it unless it is there or under way; never more than one order for a tag, and few at all. */
  order(asked: AskedHistory): PlotResponse["history"];
  state(asked: AskedHistory): PlotResponse["history"];
  samples(asked: AskedHistory): Samples;
  /** Another number when `samples` answers something else. */
  version(asked: AskedHistory): number;
  /** Gives up what is under way. */
  stop(): void;
}

export interface AskedHistory {
  readonly source: string;
  readonly id: string;
  readonly fromMs: number;
  readonly toMs: number;
  readonly resolution: Resolution;
}

/** Asks the service in the spare part of the quota; null where no worker runs for the source. */
export type FetchHistory = (
  source: string,
  query: {
    readonly tagIds: readonly string[];
    readonly from: string;
    readonly to: string;
    readonly resolution: Resolution;
  },
  signal: AbortSignal,
) => Promise<readonly TagLog[]> | null;

interface Order {
  readonly state: "asked" | "there" | "refused";
  readonly why: string | null;
  readonly atMs: number;
  readonly fromMs: number;
  readonly samples: Samples;
  readonly version: number;
}

/** Orders under way at once, of all tags. */
const MOST_OPEN = 3;
/** Series that are remembered: 720 points each are some 12 kB. */
const MOST_KEPT = 50;
/** Lifetime of fetched data and of a rejection, in milliseconds. */
const GOOD_MS = 600_000;
/** So long a spare slot is waited for. */
const PATIENCE_MS = 300_000;
const NOTHING: Samples = { times: [], values: [] };

export function createFetchedHistory(clock: Clock, fetch: FetchHistory): FetchedHistory {
  const orders = new Map<string, Order>();
  const stopping = new AbortController();
  let versions = 0;

  const keyOf = ({ id, resolution, source }: AskedHistory) => JSON.stringify([source, id, resolution]);

  function keep(key: string, order: Omit<Order, "version">): void {
    versions += 1;
    orders.delete(key);
    orders.set(key, { ...order, version: versions });
    for (const [old, { state }] of orders) {
      if (orders.size <= MOST_KEPT) break;
      if (state !== "asked") orders.delete(old);
    }
  }

  function known(asked: AskedHistory): Order | undefined {
    const order = orders.get(keyOf(asked));
    if (order === undefined || order.state === "asked") return order;
    const reaches = order.state === "refused" || order.fromMs <= asked.fromMs + GOOD_MS;
    return reaches && clock.monotonic() - order.atMs < GOOD_MS ? order : undefined;
  }

  function isOpen(source: string, id: string): boolean {
    return [...orders].some(([key, { state }]) => {
      const [itsSource, itsId] = JSON.parse(key) as readonly string[];
      return state === "asked" && itsSource === source && itsId === id;
    });
  }

  async function ask(key: string, asked: AskedHistory, under: Promise<readonly TagLog[]>): Promise<void> {
    const { fromMs, id } = asked;
    const before = orders.get(key)?.samples ?? NOTHING;
    const at = () => ({ atMs: clock.monotonic(), fromMs });
    try {
      const log = (await under).find((each) => each.id === id);
      if (log?.unreadable?.timesMs === null) throw new Malformed(log.unreadable.said, "");
      const samples = log === undefined ? NOTHING : samplesOf(log);
      keep(key, { state: "there", why: null, ...at(), samples });
    } catch (error) {
      if (stopping.signal.aborted) return;
      keep(key, { state: "refused", why: reasonOf(error), ...at(), samples: before });
    }
  }

  return {
    order(asked) {
      const order = known(asked);
      if (order !== undefined) return said(order);
      const { fromMs, id, resolution, source, toMs } = asked;
      if (isOpen(source, id)) return { state: "asked", why: "Another span of this tag is asked for." };
      const open = [...orders.values()].filter(({ state }) => state === "asked").length;
      if (open >= MOST_OPEN) return { state: "asked", why: "Other tags are asked for first." };
      const query = { tagIds: [id], from: wholeSecond(fromMs), to: wholeSecond(toMs), resolution };
      const signal = AbortSignal.any([stopping.signal, patience(clock, stopping.signal)]);
      const under = fetch(source, query, signal);
      if (under === null) return { state: "off", why: "No worker follows this source." };
      const key = keyOf(asked);
      const samples = orders.get(key)?.samples ?? NOTHING;
      keep(key, { state: "asked", why: null, atMs: clock.monotonic(), fromMs, samples });
      void ask(key, asked, under);
      return { state: "asked", why: WAITS };
    },
    state(asked) {
      const order = known(asked);
      return order === undefined ? { state: "idle", why: null } : said(order);
    },
    samples: (asked) => orders.get(keyOf(asked))?.samples ?? NOTHING,
    version: (asked) => orders.get(keyOf(asked))?.version ?? 0,
    stop: () => stopping.abort(new Error("stopping")),
  };
}

const WAITS = "It waits for a slot of the quota that nobody else needs.";

function said({ state, why }: Order): PlotResponse["history"] {
  if (state === "asked") return { state, why: WAITS };
  return state === "there" ? { state: "idle", why: null } : { state, why };
}

class Impatient extends Error {}

function patience(clock: Clock, stop: AbortSignal): AbortSignal {
  const over = new AbortController();
  clock.sleep(PATIENCE_MS, stop).then(
    () => over.abort(new Impatient()),
    () => {},
  );
  return over.signal;
}

function reasonOf(error: unknown): string {
  if (error instanceof Impatient)
    return "No slot of the quota was free for it within five minutes; live reads and history took them all.";
  return sentence(error);
}

function samplesOf({ measurements }: TagLog): Samples {
  const points = Points.of(measurements);
  const all = [...points].map(({ time, value }) => ({ t: Date.parse(time) / 1_000, value }));
  const known = all.filter(({ t }) => Number.isFinite(t)).sort((a, b) => a.t - b.t);
  return {
    times: known.map(({ t }) => t),
    values: known.map(({ value }) => (value === null ? null : Number(value))),
  };
}

/** Time in the format of the interface: full seconds and a `Z`. */
function wholeSecond(ms: number): string {
  return `${isoUtc(ms).slice(0, 19)}Z`;
}
