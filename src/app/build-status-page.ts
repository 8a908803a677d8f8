import { getConnector } from "../../connectors/catalog.ts";
import type { AcceptCommand } from "../core/connector.ts";
import type { Event } from "../core/model/event.ts";
import type { Clock } from "../core/runtime/clock.ts";
import type { Log } from "../core/runtime/log.ts";
import type { Metrics } from "../core/runtime/metrics.ts";
import { toOperatorCommand } from "../engine/commands/operator-command-message.ts";
import { createSinkState } from "../engine/delivery/batches.ts";
import { matchesFilter } from "../engine/delivery/filter.ts";
import type { TracedRequest } from "../engine/source/request-trace.ts";
import { LANES } from "../engine/source/source.ts";
import { documentSet, type Store } from "../engine/store/store.ts";
import type { StoredJob } from "../engine/sync/stored-documents.ts";
import type { SourceActivity } from "../ui/operator/quota-plan-routes.ts";
import {
  createPlots,
  deleteStoredPlots,
  minuteSeriesNames,
  type Plots,
  type WorkerPlotNumbers,
} from "../ui/plots/plot-storage.ts";
import type { PageActions } from "../ui/status/page-api.ts";
import type { SinkAddress } from "../ui/status/response-context.ts";
import type { Status } from "../ui/status/status-report.ts";
import type { Config } from "./config/config.ts";
import { findSinkConnector } from "./config/config-sections.ts";

/** Builds the actions of the status page. A tag write from the page passes the same checks as `plenum write`. */
export function buildPageActions(options: {
  readonly clock: Clock;
  readonly accept: AcceptCommand;
  readonly notReadyReason: () => string | null;
}): PageActions {
  const { accept, clock, notReadyReason } = options;
  const operatorWriteDefaults = { forSeconds: null, ttlSeconds: null, sentFrom: "status page" } as const;
  return {
    notReadyReason,
    write: (request) => accept(toOperatorCommand({ ...request, ...operatorWriteDefaults, receivedAtMs: clock.now() })),
  };
}

/** Lists, for each sink whose filter accepts the event, the topic or query with which to find it at the server. */
export async function listSinkAddresses(sinks: Config["sinks"], event: Event, store: Store): Promise<SinkAddress[]> {
  const addresses: SinkAddress[] = [];
  for (const [sink, sinkConfig] of Object.entries(sinks)) {
    if (!sinkConfig.enabled || !matchesFilter(sinkConfig.filter, event)) continue;
    const connector = findSinkConnector(sinkConfig);
    const locateEvent = getConnector(connector).locateEvent;
    const text = (await locateEvent?.(sinkConfig[connector], event, createSinkState(sink, store))) ?? null;
    if (text !== null) addresses.push({ sink, connector, text });
  }
  return addresses;
}

/** Builds the time series for the plots of the status page. If plots are off, deletes stored time series. */
export async function buildPagePlots(options: {
  readonly config: Pick<Config, "sources" | "state">;
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Pick<Metrics, "deliveries" | "quotaSlots">;
  readonly runningWorker: () => {
    readonly status: Pick<Status, "sinks">;
    readonly activityBySource: ReadonlyMap<string, SourceActivity>;
  };
}): Promise<Plots | null> {
  const { clock, config, log, metrics, runningWorker, store } = options;
  const sources = Object.keys(config.sources);
  if (!config.state.plots) {
    await deleteStoredPlots(store, sources);
    return null;
  }
  const lastRequestNumberBySource = new Map<string, number>();
  const plotNumbers: WorkerPlotNumbers = {
    async currentGaugeValues() {
      const sinks = await runningWorker().status.sinks();
      return new Map(
        sinks.map(({ sink, depth, again }) => [
          minuteSeriesNames.lag(sink),
          depth === null || again === null ? null : depth + again,
        ]),
      );
    },
    async totalCounts() {
      const [deliveries, slots] = await Promise.all([metrics.deliveries.get(), metrics.quotaSlots.get()]);
      const counters = new Map<string, number>();
      // Set all counters to 0 first, because a counter without a sample in the registry is 0, not unknown.
      for (const source of sources) for (const lane of LANES) counters.set(minuteSeriesNames.requests(source, lane), 0);
      for (const { sink } of await runningWorker().status.sinks()) counters.set(minuteSeriesNames.accepted(sink), 0);
      for (const { labels, value } of deliveries.values as readonly MetricCounterSample[])
        if (labels.outcome === "accepted") counters.set(minuteSeriesNames.accepted(String(labels.sink)), value);
      for (const { labels, value } of slots.values as readonly MetricCounterSample[])
        counters.set(minuteSeriesNames.requests(String(labels.source), String(labels.lane)), value);
      return counters;
    },
    async noteRefusedRequests(note) {
      for (const [source, activity] of runningWorker().activityBySource) {
        for (const request of activity.requests()) {
          if (request.number <= (lastRequestNumberBySource.get(source) ?? 0)) continue;
          lastRequestNumberBySource.set(source, request.number);
          if (request.outcome !== "ok" && request.outcome !== "stopped")
            note(source, { at: request.at, what: REQUEST_LABELS[request.endpoint], words: describeRefusal(request) });
        }
        for (const [job, poll] of await store.documents<StoredJob>(documentSet("poll", source))) {
          if (poll.problem !== null) note(source, { at: poll.lastAttempt, what: job, words: poll.problem });
        }
      }
    },
  };
  return createPlots({ store, clock, log, sources, numbers: plotNumbers });
}

interface MetricCounterSample {
  readonly labels: Readonly<Record<string, unknown>>;
  readonly value: number;
}

const REQUEST_LABELS: Readonly<Record<TracedRequest["endpoint"], string>> = {
  read: "reading values",
  write: "writing",
  history: "history",
};

function describeRefusal({ message, outcome, tagIds }: TracedRequest): string {
  const [firstTagId] = tagIds;
  const requestedText = tagIds.length === 1 ? `tag ${firstTagId}` : `${tagIds.length} tags, the first ${firstTagId}`;
  return `${message ?? outcome} (${requestedText})`;
}
