import type { TagLog } from "../../building.ts";
import { type Clock, isoUtc } from "../../clock.ts";
import { meaningOf } from "../../errors.ts";
import type { Log } from "../../log.ts";
import type { HistoryQuery, Source } from "../../source/source.ts";
import { culprits } from "../plan/split.ts";
import { isMemberRefusal } from "../read/refused.ts";
import type { HeldHistory } from "../snapshot.ts";
import type { Ask } from "./ask.ts";
import type { Series } from "./book.ts";
import { bucketBefore, rangeTime } from "./buckets.ts";
import type { LearnedWindow } from "./learned-window.ts";
import { ms, settleOrder, withoutLog } from "./ledger.ts";
import type { HistoryProbe, Probe } from "./probe.ts";
import type { HistorySettle } from "./settle.ts";

/** Makes the requests of history and settles what comes of them. Throws what does not concern a single tag. */
export interface HistoryRequests {
  /** Serves an ask whole; where a tag spoils the request, the others are served in smaller ones. */
  serve(ask: Ask, signal: AbortSignal): Promise<void>;
  /** Finds out which of some tags have a log. */
  learn(probe: Probe, signal: AbortSignal): Promise<void>;
}

/** How long a series is left alone whose answer brought it no further, in milliseconds. */
const STUCK_MS = 300_000;

export function createHistoryRequests(options: {
  readonly source: Source;
  readonly clock: Clock;
  readonly log: Pick<Log, "info">;
  readonly window: LearnedWindow;
  readonly probe: HistoryProbe;
  readonly settle: HistorySettle;
}): HistoryRequests {
  const { source, clock, log, window, probe, settle } = options;

  /** One request for some of the series of an ask, and its settlement. */
  async function fetchPart(ask: Ask, series: readonly Series[], signal: AbortSignal): Promise<void> {
    const query = queryFor(ask, series);
    if (query === null) return;
    const part = { ...ask, series, values: Math.round((ask.values * series.length) / ask.series.length) };
    const before = new Map(series.map((each) => [each, each.held]));
    let settled: readonly Series[];
    if (ask.kind === "total") {
      settled = await settle.totals(part, await source.totals(query, "history", signal));
    } else {
      const logs = await fetchLogs(query, part.values, signal);
      settled = await settle.logs(part, logs, window.answered(part.values));
    }
    const moved = new Set(settled.filter((each) => hasMoved(before.get(each), each.held)));
    for (const each of series) {
      if (!moved.has(each)) each.notBeforeMs = clock.monotonic() + STUCK_MS;
    }
  }

  /** Learns from a failure what size may be too large. */
  async function fetchLogs(
    query: HistoryQuery,
    values: number,
    signal: AbortSignal,
  ): Promise<readonly TagLog[]> {
    try {
      return await source.history(query, "history", signal);
    } catch (error) {
      const { kind } = meaningOf(error);
      if (!signal.aborted && (kind === "retryable" || kind === "malformed")) await window.failed(values);
      throw error;
    }
  }

  return {
    async serve(ask, signal) {
      const attempt = async (series: readonly Series[]): Promise<boolean> => {
        try {
          await fetchPart(ask, series, signal);
          return true;
        } catch (error) {
          if (!isMemberRefusal(error)) throw error;
          return false;
        }
      };
      if (await attempt(ask.series)) return;
      const search = culprits(ask.series);
      let step = search.next();
      while (!step.done) step = search.next(await attempt(step.value));
      const changed = new Map(step.value.map((series) => [series, refused(ask, series, clock.now())]));
      await settle.ledgers(changed);
      log.info({ tags: step.value.map(({ key }) => key), kind: ask.kind }, "history without a log");
    },

    async learn(toLearn, signal) {
      let logs: readonly TagLog[] | null = null;
      try {
        logs = await source.history(toLearn.query, "history", signal);
      } catch (error) {
        if (!isMemberRefusal(error)) throw error;
      }
      const verdicts = probe.settle(toLearn, logs, clock.now());
      try {
        await settle.ledgers(verdicts);
      } catch (error) {
        probe.forget([...verdicts.keys()]);
        throw error;
      }
    },
  };
}

/** The range reaches one bucket further back than needed, because the interface does not say what ends include. */
function queryFor(ask: Ask, series: readonly Series[]): HistoryQuery | null {
  const [first] = series;
  if (first === undefined) return null;
  const { resolution, timeZone } = first.rules;
  const { fromMs, toMs } = ask.range;
  const from = ask.kind === "total" ? fromMs : bucketBefore(fromMs, resolution, timeZone);
  const tagIds = series.map(({ placed }) => placed.tag.id);
  return { tagIds, from: rangeTime(from), to: rangeTime(toMs), resolution, timeZone };
}

/** In the past a 404 says that this range has no log; at the head that the tag has none (any more). */
function refused(ask: Ask, series: Series, nowMs: number): HeldHistory {
  const range = ask.ranges.get(series.key);
  if (ask.kind === "tail" && range !== undefined) return { ...series.held, reached: isoUtc(range.fromMs) };
  if (ask.kind === "order" && range !== undefined) return settleOrder(series.held, [], range).held;
  return withoutLog(series.held, nowMs);
}

/** Whether an answer brought a series further, so that asking again at once makes sense. */
function hasMoved(before: HeldHistory | undefined, after: HeldHistory): boolean {
  return (
    before === undefined ||
    ms(after.watermark) > ms(before.watermark) ||
    ms(after.reached) < ms(before.reached) ||
    after.islands !== before.islands ||
    (after.rereadFrom !== null && after.rereadFrom !== before.rereadFrom)
  );
}
