import type { Event } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Store, Wanted } from "../../engine/store/store.ts";
import type { LiveTag, TagReading } from "../../engine/sync/work.ts";
import type { Plots } from "../plots/plots.ts";
import { type AlarmParts, alarmAnswer } from "./alarm-answer.ts";
import { dayBars } from "./alarm-days.ts";
import { createCachedDocuments, STEADY_MS } from "./cached-documents.ts";
import { type CommandRows, createCommandRows } from "./command-rows.ts";
import { createFetchedHistory, type FetchHistory } from "./fetched-history.ts";
import { plotAnswer, type Span } from "./plot-answer.ts";
import type { Status } from "./report.ts";
import type {
  AlarmDays,
  AlarmResponse,
  CommandRow,
  PlotResponse,
  SinkResponse,
  SiteResponse,
  SourceResponse,
  TagList,
  TagResponse,
} from "./responses.ts";
import { sinkAnswer, sourceAnswer } from "./sink-answer.ts";
import type { LiveSink } from "./sink-report.ts";
import { siteAnswer } from "./site-answer.ts";
import { type Place, tagAnswer } from "./tag-answer.ts";
import { type AskedTags, createTagIndex } from "./tag-index.ts";

/** Builds each response of the page. Null for an unknown object. */
/** Who has what is not here. */
export interface Elsewhere {
  /** One sentence for a person. */
  readonly message: string;
  /** Name of the member that holds it, and its page ("" when it cannot be opened); null without a holder. */
  readonly holder: { readonly name: string; readonly page: string } | null;
}

export interface Responses {
  readonly sources: readonly string[];
  /** Holder of a source of another member; null for an unconfigured source. Absent without a fleet. */
  elsewhere?(source: string): Promise<Elsewhere | null>;
  /** Configured sinks, and earlier ones that are still known. */
  sinkNames(): Promise<readonly string[]>;
  tags(asked: AskedTags): Promise<TagList>;
  tag(source: string, id: string): Promise<TagResponse | null>;
  alarm(asked: AlarmQuery): Promise<AlarmResponse | null>;
  site(source: string, id: number): Promise<SiteResponse | null>;
  alarmDays(asked: DaysQuery): Promise<AlarmDays>;
  commands(asked: Parameters<CommandRows["list"]>[0]): Promise<readonly CommandRow[]>;
  sink(name: string): Promise<SinkResponse | null>;
  source(name: string): Promise<SourceResponse>;
  plot(asked: PlotQuery): Promise<PlotResponse | null>;
  /** Gives up what is asked of the service. */
  stop(): void;
}

export interface AlarmQuery {
  readonly source: string;
  readonly id: string;
  /** The latest that is known, where it is left out. */
  readonly episode?: string | undefined;
}

export interface PlotQuery {
  readonly source: string;
  readonly tag: string;
  readonly span: Span;
  /** Whether what is missing may be asked of the service. */
  readonly fetch: boolean;
}

export interface DaysQuery {
  readonly source?: string | undefined;
  readonly site?: number | undefined;
}

/** Facts about single objects that only a running worker knows. */
export interface LiveThings {
  reading(source: string, tagId: string): TagReading | null;
  tag(source: string, tagId: string): LiveTag | null;
  sinks(): readonly LiveSink[];
  /** Where the sinks put an event that their filters let through. */
  places(event: Event): readonly Place[];
  writable(source: string, tagId: string): TagResponse["writable"];
  /** Requests a minute that the service grants. */
  allowed(source: string): number;
  readonly fetchHistory: FetchHistory;
}

export interface ResponsesOptions {
  readonly clock: Clock;
  readonly store: Store;
  readonly sources: readonly string[];
  /** The configured sinks as they are now, and what their filters let through; one that is not named gets everything. */
  readonly shown: () => {
    readonly sinks: readonly string[];
    readonly wanted: ReadonlyMap<string, Wanted>;
  };
  readonly live: LiveThings;
  readonly status: Pick<Status, "sinks">;
  /** Null where no series are kept. */
  readonly plots: Pick<Plots, "minutes" | "raised" | "refused" | "tags"> | null;
}

export function createResponses(options: ResponsesOptions): Responses {
  const { clock, live, plots, shown, sources, status, store } = options;
  const remembered = createCachedDocuments(store, clock);
  const tags = createTagIndex({ store, clock, sources, readingOf: live.reading });
  const commands = createCommandRows(store);
  const sinks: AlarmParts["sinks"] = () => {
    const running = new Map(live.sinks().map(({ name, connector }) => [name, connector]));
    return shown().sinks.map((name) => ({ name, connector: running.get(name) ?? null }));
  };

  const fetched = createFetchedHistory(clock, live.fetchHistory);
  const nowMs = () => clock.now();
  const raised = () => remembered.made("raised", STEADY_MS, async () => (await plots?.raised.all()) ?? []);
  const alarmDays = async (asked: DaysQuery) => dayBars(await raised(), clock.now(), asked);

  return {
    sources,
    async sinkNames() {
      const known = await store.outbox.lag();
      return [...new Set([...shown().sinks, ...known.map(({ sink }) => sink)])];
    },
    tags: tags.list,
    tag: (source, id) =>
      tagAnswer(
        {
          ...{ store, remembered, tags, commands },
          ...{ live: live.tag, places: live.places, writable: live.writable },
        },
        source,
        id,
      ),
    alarm: (asked) => alarmAnswer({ store, remembered, tags, sinks, wanted: shown().wanted }, asked),
    site: (source, id) =>
      siteAnswer(
        { store, remembered, tags, raised: (name, site) => alarmDays({ source: name, site }) },
        source,
        id,
      ),
    alarmDays,
    commands: commands.list,
    sink: (name) => sinkAnswer({ store, plots, sinks: status.sinks, nowMs }, name),
    source: async (name) => sourceAnswer({ plots, nowMs }, name, live.allowed(name)),
    async plot({ fetch, source, span, tag }) {
      const row = await tags.row(source, tag);
      if (row === null) return null;
      return plotAnswer(
        { store, clock, remembered, plots, fetched, readingOf: live.reading },
        row,
        span,
        fetch,
      );
    },
    stop: fetched.stop,
  };
}
