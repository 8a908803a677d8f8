import { type AlarmResponse, alarmResponse } from "./alarms.ts";
import { createCachedDocuments } from "./cached-documents.ts";
import { type CommandRow, commandLister } from "./commands.ts";
import { createFetchedHistory } from "./fetched-history.ts";
import type { PageContext, ResponsesOptions } from "./page-context.ts";
import { type PlotResponse, plotResponse } from "./plot.ts";
import type { AlarmQuery, CommandsQuery, PlotQuery, ScopeQuery, TagsQuery } from "./queries.ts";
import type { Status } from "./report.ts";
import { type SinkResponse, sinkResponse } from "./sinks.ts";
import { type AlarmDays, alarmDays, type SiteResponse, siteResponse } from "./sites.ts";
import { type SourceResponse, sourceResponse } from "./sources.ts";
import { type TagResponse, tagResponse } from "./tag.ts";
import { createTagIndex, type TagList } from "./tag-index.ts";

/** Member of the fleet that holds a source. */
export interface Elsewhere {
  /** One sentence for a person. */
  readonly message: string;
  /** Name of the member, and its page ("" when it cannot be opened); null when no member holds the source. */
  readonly holder: { readonly name: string; readonly page: string } | null;
}

/**
 * JSON responses of the worker to the page. Times are UTC, as ISO text or in seconds since 1970 in plotted columns. Null is unknown;
 * an unknown number is never 0. An unknown object gives null.
 */
export interface Responses {
  readonly sources: readonly string[];
  /** Holder of a source of another member; null for an unconfigured source. Absent without a fleet. */
  elsewhere?(source: string): Promise<Elsewhere | null>;
  /** Configured sinks, and earlier ones that are still known. */
  sinkNames(): Promise<readonly string[]>;
  tags(query: TagsQuery): Promise<TagList>;
  tag(source: string, id: string): Promise<TagResponse | null>;
  alarm(query: AlarmQuery): Promise<AlarmResponse | null>;
  site(source: string, id: number): Promise<SiteResponse | null>;
  alarmDays(scope: ScopeQuery): Promise<AlarmDays>;
  commands(query: CommandsQuery): Promise<readonly CommandRow[]>;
  sink(name: string): Promise<SinkResponse | null>;
  source(name: string): Promise<SourceResponse>;
  plot(query: PlotQuery): Promise<PlotResponse | null>;
  /** Aborts requests to the service. */
  stop(): void;
}

export function createResponses(options: ResponsesOptions & { readonly status: Pick<Status, "sinks"> }): Responses {
  const { clock, live, plots, shown, sources, status, store } = options;
  const tags = createTagIndex({ store, clock, sources, readingOf: live.reading });
  const listCommands = commandLister(store);
  const fetched = createFetchedHistory(clock, live.fetchHistory);
  const context: PageContext = { ...options, cache: createCachedDocuments(store, clock), tags, listCommands };
  return {
    sources,
    async sinkNames() {
      const known = await store.outbox.lag();
      return [...new Set([...shown().sinks, ...known.map(({ sink }) => sink)])];
    },
    tags: tags.list,
    tag: (source, id) => tagResponse(context, source, id),
    alarm: (query) => alarmResponse(context, query),
    site: (source, id) => siteResponse(context, source, id),
    alarmDays: (scope) => alarmDays(context, scope),
    commands: listCommands,
    async sink(name) {
      const report = (await status.sinks()).find(({ sink }) => sink === name);
      return report === undefined ? null : sinkResponse(report, store.outbox, plots, clock.now());
    },
    source: async (name) => sourceResponse(plots, clock.now(), name, live.allowed(name)),
    async plot(query) {
      const row = await tags.row(query.source, query.tag);
      return row === null ? null : plotResponse(context, fetched, row, query);
    },
    stop: fetched.stop,
  };
}
