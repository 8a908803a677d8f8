import type { SinkLag } from "../../engine/store/store.ts";

/** A sink as displayed. Null means unknown: the sink has never been started. */
export interface SinkReport {
  readonly sink: string;
  readonly connector: string | null;
  readonly state: string;
  readonly since: string | null;
  readonly problem: string | null;
  /** Events that it will get and things that it has still to send; events once more. At most so many where not `exact`. */
  readonly depth: number | null;
  readonly again: number | null;
  readonly exact: boolean;
  /** When the oldest of them was committed. */
  readonly oldest: string | null;
  readonly deadLetters: number | null;
  readonly dropped: number | null;
  /** Number of entries in its state, such as open tickets. */
  readonly remembered: number | null;
  readonly ended: string | null;
}

/** Facts about a sink that only a running worker knows. */
export interface LiveSink {
  readonly name: string;
  readonly connector: string;
  readonly state: string;
  readonly since: string;
  readonly lastError: string | null;
  /** Number of things that it has still to send for events that are settled. */
  readonly waiting?: number;
}

/** Configured sinks, and earlier ones that still have dead letters. */
export function sinkReports(
  lags: readonly SinkLag[],
  running: readonly LiveSink[],
  configured: readonly string[],
): readonly SinkReport[] {
  const shown = lags.filter(({ sink, deadLetters }) => configured.includes(sink) || deadLetters > 0);
  const unknown = configured.filter((name) => !lags.some(({ sink }) => sink === name));
  const live = (name: string) => running.find((sink) => sink.name === name);
  return [
    ...shown.map(({ position: _, ...lag }): SinkReport => {
      const sink = live(lag.sink);
      return {
        ...lag,
        depth: lag.depth + (sink?.waiting ?? 0),
        connector: sink?.connector ?? null,
        state: lag.ended === null ? (sink?.state ?? "not running") : "ended",
        since: sink?.since ?? null,
        problem: lag.ended ?? sink?.lastError ?? null,
      };
    }),
    ...unknown.map((name): SinkReport => {
      const sink = live(name);
      return {
        sink: name,
        connector: sink?.connector ?? null,
        state: sink?.state ?? "never started",
        since: sink?.since ?? null,
        problem: sink?.lastError ?? null,
        depth: null,
        again: null,
        exact: false,
        oldest: null,
        deadLetters: null,
        dropped: null,
        remembered: null,
        ended: null,
      };
    }),
  ];
}

/** How many events it is behind, in words. */
export function behind({ depth, again, exact }: Pick<SinkReport, "depth" | "again" | "exact">): string {
  if (depth === null || again === null) return "unknown";
  return `${exact ? "" : "at most "}${depth + again}`;
}
