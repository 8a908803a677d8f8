import type { TagLog, TagTotal } from "../../building.ts";
import { type Clock, isoUtc } from "../../clock.ts";
import { meaningOf } from "../../errors.ts";
import type { Log } from "../../log.ts";
import type { Choose, HistoryQuery, SlotOffer, Source } from "../../source/source.ts";
import { culprits } from "../plan/split.ts";
import type { HeldHistory } from "../snapshot.ts";
import { refusalOf } from "../tag-group/refusal.ts";
import type { Ask } from "./ask.ts";
import type { Series } from "./book.ts";
import { bucketBefore, rangeTime } from "./buckets.ts";
import type { LearnedWindow } from "./learned-window.ts";
import { ms, settleOrder, withoutLog } from "./ledger.ts";
import type { HistoryProbe, Probe } from "./probe.ts";
import type { HistorySettle } from "./settle.ts";

/** What one request of history is for. */
export type Task = { readonly ask: Ask } | { readonly probe: Probe };

/** Makes the requests of history and settles what comes of them. Throws what does not concern a single tag. */
export interface HistoryRequests {
  /**
   * One piece of work. `decide` is asked when a slot is free; null lets it pass. Where a tag spoils the request, the
   * others are served in smaller ones.
   */
  perform(
    kind: "series" | "totals",
    decide: (offer: SlotOffer) => Task | null,
    signal: AbortSignal,
  ): Promise<void>;
}

/** How long nothing is looked for again after nothing was found, in milliseconds. */
const IDLE_LOOK_MS = 1_000;
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
    const part = { ...ask, series, values: Math.round((ask.values * series.length) / ask.series.length) };
    if (ask.kind === "total") await settleTotals(part, await source.totals(query, "history", signal));
    else await settleLogs(part, await logsOf(query, () => part.values, signal));
  }

  const settleTotals = (part: Ask, totals: readonly TagTotal[]) =>
    noting(part, () => settle.totals(part, totals));
  const settleLogs = (part: Ask, logs: readonly TagLog[]) =>
    noting(part, () => settle.logs(part, logs, window.answered(part.values)));

  /** A series that an answer brought no further is left alone for a while. */
  async function noting(part: Ask, settling: () => Promise<readonly Series[]>): Promise<void> {
    const before = new Map(part.series.map((each) => [each, each.held]));
    const moved = new Set((await settling()).filter((each) => hasMoved(before.get(each), each.held)));
    for (const each of part.series) {
      if (!moved.has(each)) each.notBeforeMs = clock.monotonic() + STUCK_MS;
    }
  }

  /** Learns from a failure what size may be too large. */
  async function logsOf(
    query: HistoryQuery | Choose<HistoryQuery>,
    values: () => number | null,
    signal: AbortSignal,
  ): Promise<readonly TagLog[]> {
    try {
      return await source.history(query, "history", signal);
    } catch (error) {
      const { kind } = meaningOf(error);
      const size = values();
      if (!signal.aborted && size !== null && (kind === "retryable" || kind === "malformed"))
        await window.failed(size);
      throw error;
    }
  }

  /** The first request found a group refused: its parts, one by one, until it is known who spoils it. */
  async function searchRefused(ask: Ask, signal: AbortSignal): Promise<void> {
    const attempt = async (series: readonly Series[]): Promise<boolean> => {
      try {
        await fetchPart(ask, series, signal);
        return true;
      } catch (error) {
        if (refusalOf(meaningOf(error)) === null) throw error;
        return false;
      }
    };
    const search = culprits(ask.series);
    let step = search.next();
    while (!step.done) step = search.next(await attempt(step.value));
    const changed = new Map(step.value.map((series) => [series, refused(ask, series, clock.now())]));
    await settle.ledgers(changed);
    log.info({ tags: step.value.map(({ key }) => key), kind: ask.kind }, "history without a log");
  }

  async function learned(toLearn: Probe, logs: readonly TagLog[] | null): Promise<void> {
    const verdicts = probe.settle(toLearn, logs, clock.now());
    try {
      await settle.ledgers(verdicts);
    } catch (error) {
      probe.forget([...verdicts.keys()]);
      throw error;
    }
  }

  return {
    async perform(kind, decide, signal) {
      let task: Task | null = null;
      const choose: Choose<HistoryQuery> = (offer) => {
        task = decide(offer);
        return task === null ? { passMs: IDLE_LOOK_MS } : { ask: queryOf(task) };
      };
      const decided = (): Task => {
        if (task === null) throw new Error("A history request left before it was decided.");
        return task;
      };
      try {
        if (kind === "totals") {
          const totals = await source.totals(choose, "history", signal);
          const chosen = decided();
          if ("ask" in chosen) await settleTotals(chosen.ask, totals);
          return;
        }
        const values = () => (task !== null && "ask" in task ? task.ask.values : null);
        const logs = await logsOf(choose, values, signal);
        const chosen = decided();
        if ("ask" in chosen) await settleLogs(chosen.ask, logs);
        else await learned(chosen.probe, logs);
      } catch (error) {
        if (refusalOf(meaningOf(error)) === null || task === null) throw error;
        const chosen = decided();
        if ("ask" in chosen) await searchRefused(chosen.ask, signal);
        else await learned(chosen.probe, null);
      }
    },
  };
}

function queryOf(task: Task): HistoryQuery {
  return "ask" in task ? queryFor(task.ask, task.ask.series) : task.probe.query;
}

/** The range reaches one bucket further back than needed, because the interface does not say what ends include. */
function queryFor(ask: Ask, series: readonly Series[]): HistoryQuery {
  const [first] = series;
  if (first === undefined) throw new Error("A history request is for at least one series.");
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
