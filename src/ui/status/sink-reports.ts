import type { AnyEvent } from "../../core/model/event.ts";
import type { SinkLag, Store } from "../../engine/store/store.ts";
import { minuteSeriesNames, type Plots } from "../plots/plot-storage.ts";
import { summarizeEvent } from "./event-summary.ts";

export interface SinkReport {
  readonly sink: string;
  readonly connector: string | null;
  readonly state: string;
  readonly since: string | null;
  readonly problem: string | null;
  /** `depth`: undelivered events; `again`: events to send again. Both are upper bounds unless `exact`. */
  readonly depth: number | null;
  readonly again: number | null;
  readonly exact: boolean;
  readonly oldest: string | null;
  readonly deadLetters: number | null;
  readonly dropped: number | null;
  /** Number of entries in the stored state of the sink, such as open tickets. */
  readonly remembered: number | null;
  readonly ended: string | null;
}

export interface RunningSink {
  readonly name: string;
  readonly connector: string;
  readonly state: string;
  readonly since: string;
  readonly lastError: string | null;
  /** Number of requests that the sink still has to send for events that it has confirmed already. */
  readonly waiting?: number;
}

const UNSTARTED_SINK_STATE = {
  ...{ depth: null, again: null, exact: false, oldest: null },
  ...{ deadLetters: null, dropped: null, remembered: null, ended: null },
};

export function sinkReports(
  lags: readonly SinkLag[],
  running: readonly RunningSink[],
  configured: readonly string[],
): readonly SinkReport[] {
  const startedSinkLags = lags.filter(({ sink, deadLetters }) => configured.includes(sink) || deadLetters > 0);
  const unstartedSinks = configured.filter((name) => !lags.some(({ sink }) => sink === name));
  const runningSinkByName = new Map(running.map((sink) => [sink.name, sink]));
  const describeSink = (name: string, idleState: string) => {
    const sink = runningSinkByName.get(name);
    const [connector, since, problem] = [sink?.connector ?? null, sink?.since ?? null, sink?.lastError ?? null];
    return { sink: name, connector, since, problem, state: sink?.state ?? idleState };
  };
  return [
    ...startedSinkLags.map(({ position: _, sink, ...lag }) => ({
      ...describeSink(sink, "not running"),
      ...{ ...lag, depth: lag.depth + (runningSinkByName.get(sink)?.waiting ?? 0) },
      ...(lag.ended === null ? {} : { state: "ended", problem: lag.ended }),
    })),
    ...unstartedSinks.map((sink) => ({ ...describeSink(sink, "never started"), ...UNSTARTED_SINK_STATE })),
  ];
}

export function backlogText({ depth, again, exact }: Pick<SinkReport, "depth" | "again" | "exact">): string {
  if (depth === null || again === null) return "unknown";
  return `${exact ? "" : "at most "}${depth + again}`;
}

/** Columns of a plot by rising time, in seconds since 1970. A null is a gap in the line. */
export interface PlotColumns {
  readonly t: readonly number[];
  readonly value: readonly (number | null)[];
}

export type SinkResponse = Awaited<ReturnType<typeof sinkResponse>>;

const MAX_DEAD_LETTERS = 100;
const MINUTE_MS = 60_000;

export async function sinkResponse(
  { connector, deadLetters, problem, sink, state }: SinkReport,
  outbox: Pick<Store["outbox"], "deadLetters">,
  plots: Pick<Plots, "minutes"> | null,
  nowMs: number,
) {
  const listedDeadLetters = await outbox.deadLetters(sink, MAX_DEAD_LETTERS);
  return {
    ...{ sink, connector, state, problem },
    /** Undelivered events that pass the filter, for each minute of the last 24 hours. */
    lag: lastDayColumns(plots, nowMs, minuteSeriesNames.lag(sink)),
    rate: lastDayColumns(plots, nowMs, minuteSeriesNames.accepted(sink)),
    dead: listedDeadLetters.map(({ at, event, id, reason }) => ({
      id: String(id),
      type: event?.type ?? "damaged",
      at,
      reason,
      summary:
        event === null ? "It was damaged on the disk and cannot be sent again." : summarizeEvent(event as AnyEvent),
    })),
    deadTotal: deadLetters ?? listedDeadLetters.length,
  };
}

export function lastDayColumns(plots: Pick<Plots, "minutes"> | null, nowMs: number, name: string): PlotColumns {
  const lastMinute = Math.floor(nowMs / MINUTE_MS) - 1;
  const t = Array.from({ length: 1_440 }, (_, n) => (lastMinute - 1_439 + n) * 60);
  return { t, value: plots?.minutes.valuesOfDay(name, lastMinute) ?? t.map(() => null) };
}
