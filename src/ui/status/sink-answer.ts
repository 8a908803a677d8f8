import type { AnyEvent } from "../../core/model/event.ts";
import type { Store } from "../../engine/store/store.ts";
import { minuteNames, type Plots } from "../plots/plots.ts";
import type { Columns, SinkResponse, SourceResponse } from "./responses.ts";
import { gistOf } from "./rows.ts";
import type { SinkReport } from "./sink-report.ts";

export interface SinkParts {
  readonly store: { readonly outbox: Pick<Store["outbox"], "deadLetters"> };
  /** Null where no series are kept. */
  readonly plots: Pick<Plots, "minutes" | "refused"> | null;
  readonly sinks: () => Promise<readonly SinkReport[]>;
  readonly nowMs: () => number;
}

const DEAD_SHOWN = 100;
const MINUTE_MS = 60_000;
const LANES = ["write", "on-demand", "live", "history", "spare"] as const;

/** Null where there is no such sink. */
export async function sinkAnswer(parts: SinkParts, name: string): Promise<SinkResponse | null> {
  const sink = (await parts.sinks()).find((each) => each.sink === name);
  if (sink === undefined) return null;
  const letters = await parts.store.outbox.deadLetters(name, DEAD_SHOWN);
  return {
    sink: name,
    connector: sink.connector,
    state: sink.state,
    problem: sink.problem,
    lag: columnsOf(parts, minuteNames.lag(name)),
    rate: columnsOf(parts, minuteNames.accepted(name)),
    dead: letters.map(({ at, event, id, reason }) => ({
      id: String(id),
      type: event?.type ?? "damaged",
      at,
      reason,
      gist: event === null ? "It was damaged on the disk and cannot be sent again." : gistOf(event as AnyEvent),
    })),
    deadTotal: sink.deadLetters ?? letters.length,
  };
}

/** Requests of the last 24 hours, by lane, and what was refused. */
export function sourceAnswer(parts: Omit<SinkParts, "sinks" | "store">, name: string, allowed: number): SourceResponse {
  const lanes = LANES.map((lane) => [lane, lastDay(parts, minuteNames.requests(name, lane))] as const);
  return {
    source: name,
    t: lastDayTimes(parts.nowMs()),
    lanes: Object.fromEntries(lanes) as SourceResponse["lanes"],
    allowed,
    refused: parts.plots?.refused.of(name) ?? [],
  };
}

function columnsOf(parts: Omit<SinkParts, "sinks" | "store">, name: string): Columns {
  return { t: lastDayTimes(parts.nowMs()), value: lastDay(parts, name) };
}

function lastDay({ plots, nowMs }: Omit<SinkParts, "sinks" | "store">, name: string): readonly (number | null)[] {
  const last = lastMinute(nowMs());
  return plots?.minutes.of(name, last) ?? lastDayTimes(nowMs()).map(() => null);
}

function lastDayTimes(nowMs: number): readonly number[] {
  const last = lastMinute(nowMs);
  return Array.from({ length: 1_440 }, (_, n) => (last - 1_439 + n) * 60);
}

/** The last minute that is over. */
function lastMinute(nowMs: number): number {
  return Math.floor(nowMs / MINUTE_MS) - 1;
}
