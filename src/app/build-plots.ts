import type { Clock } from "../core/runtime/clock.ts";
import type { Log } from "../core/runtime/log.ts";
import type { Metrics } from "../core/runtime/metrics.ts";
import type { TracedRequest } from "../engine/source/request-trace.ts";
import { LANES } from "../engine/source/source.ts";
import { documentSet, type Store } from "../engine/store/store.ts";
import type { StoredPoll } from "../engine/sync/snapshot.ts";
import type { SourceWork } from "../ui/operator/work.ts";
import { clearPlots, createPlots, minuteNames, type OwnFacts, type Plots } from "../ui/plots/plots.ts";
import type { Status } from "../ui/status/report.ts";
import type { Config } from "./config/config.ts";

interface BuildPlots {
  readonly config: Pick<Config, "sources" | "state">;
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Pick<Metrics, "deliveries" | "quotaSlots">;
  /** Parts that exist only after everything else is built. */
  readonly known: () => {
    readonly status: Pick<Status, "sinks">;
    readonly works: ReadonlyMap<string, SourceWork>;
  };
}

/** Time series for the page's plots; null when plots are off, which also deletes stored ones. */
export async function buildPlots({ config, known, metrics, ...shared }: BuildPlots): Promise<Plots | null> {
  const { store } = shared;
  const sources = Object.keys(config.sources);
  if (!config.state.plots) {
    await clearPlots(store, sources);
    return null;
  }
  const seen = new Map<string, number>();
  const facts: OwnFacts = {
    async levels() {
      const sinks = await known().status.sinks();
      return new Map(
        sinks.map(({ sink, depth, again }) => [
          minuteNames.lag(sink),
          depth === null || again === null ? null : depth + again,
        ]),
      );
    },
    async counts() {
      const [deliveries, slots] = await Promise.all([metrics.deliveries.get(), metrics.quotaSlots.get()]);
      // A counter without a count is 0, not unknown.
      const lanes = sources.flatMap((source) => LANES.map((lane) => minuteNames.requests(source, lane)));
      const sinks = (await known().status.sinks()).map(({ sink }) => minuteNames.accepted(sink));
      return new Map([
        ...[...lanes, ...sinks].map((name) => [name, 0] as const),
        ...labelled(deliveries)
          .filter(({ labels }) => labels.outcome === "accepted")
          .map(({ labels, value }) => [minuteNames.accepted(String(labels.sink)), value] as const),
        ...labelled(slots).map(
          ({ labels: { lane, source }, value }) => [minuteNames.requests(String(source), String(lane)), value] as const,
        ),
      ]);
    },
    async refused(note) {
      for (const [source, work] of known().works) {
        for (const request of work.requests()) {
          if (request.number <= (seen.get(source) ?? 0)) continue;
          seen.set(source, request.number);
          if (request.outcome !== "ok" && request.outcome !== "stopped")
            note(source, { at: request.at, what: ASKED[request.endpoint], words: wordsOf(request) });
        }
        for (const [job, poll] of await store.documents<StoredPoll>(documentSet("poll", source))) {
          if (poll.problem !== null) note(source, { at: poll.lastAttempt, what: job, words: poll.problem });
        }
      }
    },
  };
  return createPlots({ ...shared, sources, facts });
}

function labelled({ values }: { readonly values: readonly { readonly labels: object; readonly value: number }[] }) {
  return values.map(({ labels, value }) => ({ labels: labels as Readonly<Record<string, unknown>>, value }));
}

const ASKED: Readonly<Record<TracedRequest["endpoint"], string>> = {
  read: "reading values",
  write: "writing",
  history: "history",
};

function wordsOf({ message, outcome, tagIds }: TracedRequest): string {
  const [first] = tagIds;
  const about = tagIds.length === 1 ? `tag ${first}` : `${tagIds.length} tags, the first ${first}`;
  return `${message ?? outcome} (${about})`;
}
