import { definitionOf } from "../../connectors/catalog.ts";
import type { Accept } from "../core/connector.ts";
import type { Event } from "../core/model/event.ts";
import type { Clock } from "../core/runtime/clock.ts";
import type { Commands } from "../engine/commands/commands.ts";
import { operatorArrival } from "../engine/commands/operator-arrival.ts";
import { matches } from "../engine/delivery/filter.ts";
import type { Source } from "../engine/source/source.ts";
import type { Store } from "../engine/store/store.ts";
import type { SourceWork } from "../ui/operator/work.ts";
import type { Plots } from "../ui/plots/plots.ts";
import { type Actions, createResponses, type Responses } from "../ui/status/api.ts";
import type { LiveThings } from "../ui/status/page-context.ts";
import type { Status } from "../ui/status/report.ts";
import type { PageSettings } from "./build-status.ts";
import { type Config, connectorOf } from "./config/config.ts";

/** Builds the JSON of each view of the page. */
export function buildResponses(options: {
  readonly config: Pick<Config, "sources">;
  /** The sinks as they are in force. */
  readonly page: Pick<PageSettings, "entries" | "sinks" | "wanted">;
  readonly clock: Clock;
  readonly store: Store;
  readonly works: ReadonlyMap<string, SourceWork>;
  readonly sinks: LiveThings["sinks"];
  readonly commands: Pick<Commands, "writable">;
  readonly sources: ReadonlyMap<string, Source>;
  readonly status: Pick<Status, "sinks">;
  readonly plots: Plots | null;
}): Responses {
  const { clock, commands, config, page, plots, sinks, sources, status, store, works } = options;
  return createResponses({
    clock,
    store,
    status,
    plots,
    sources: Object.keys(config.sources),
    shown: () => page,
    live: {
      reading: (source, id) => works.get(source)?.reading(id) ?? null,
      tag: (source, id) => works.get(source)?.tag(id) ?? null,
      sinks,
      places: (event) => placesOf(page.entries, event),
      writable: commands.writable,
      allowed: (source) =>
        sources
          .get(source)
          ?.quota()
          .buckets.reduce((sum, { perMinute }) => sum + perMinute, 0) ?? 0,
      fetchHistory(source, query, signal) {
        const timeZone = config.sources[source]?.time_zone ?? "UTC";
        return sources.get(source)?.history({ ...query, timeZone }, "spare", signal) ?? null;
      },
    },
  });
}

/** Actions of a person on the page, through the same gate as `plenum write`. */
export function buildActions(options: {
  readonly clock: Clock;
  readonly accept: Accept;
  readonly notReady: () => string | null;
}): Actions {
  const { accept, clock, notReady } = options;
  const always = { forSeconds: null, ttlSeconds: null, at: "status page" } as const;
  return {
    notReady,
    write: (wish) => accept(operatorArrival({ ...wish, ...always, receivedAtMs: clock.now() })),
  };
}

/** Topics or queries of each sink whose filter passes the event. */
function placesOf(sinks: Config["sinks"], event: Event): ReturnType<LiveThings["places"]> {
  return Object.entries(sinks).flatMap(([sink, entry]) => {
    if (!entry.enabled || !matches(entry.filter, event)) return [];
    const connector = connectorOf(entry);
    const definition = definitionOf(connector);
    const text = definition.whereIs?.(entry[connector], event) ?? null;
    return text === null ? [] : [{ sink, connector, text }];
  });
}
