import type { Gateway, Site, System } from "../../core/model/building.ts";
import type { Event } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { documentSet, type Store, type Wanted } from "../../engine/store/store.ts";
import { type Listed, type StoredTagSystems, syncSet } from "../../engine/sync/snapshot.ts";
import type { LiveTag, TagReading } from "../../engine/sync/work.ts";
import type { Plots } from "../plots/plots.ts";
import type { RaisedAlarm } from "../plots/raised.ts";
import { type AlarmParts, alarmAnswer } from "./alarm-answer.ts";
import { activeAlarms } from "./alarm-briefs.ts";
import { type CachedDocuments, createCachedDocuments, STEADY_MS, WATCHED_MS } from "./cached-documents.ts";
import { type CommandRows, createCommandRows } from "./command-rows.ts";
import { createFetchedHistory, type FetchHistory } from "./fetched-history.ts";
import { plotAnswer, type Span } from "./plot-answer.ts";
import type { Status } from "./report.ts";
import type {
  AlarmDays,
  AlarmResponse,
  CommandRow,
  DayBars,
  PlotResponse,
  SinkResponse,
  SiteResponse,
  SourceResponse,
  TagList,
  TagResponse,
} from "./responses.ts";
import { sinkAnswer, sourceAnswer } from "./sink-answer.ts";
import type { LiveSink } from "./sink-report.ts";
import { type Place, tagAnswer } from "./tag-answer.ts";
import { type AskedTags, createTagIndex, type TagIndex } from "./tag-index.ts";

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

interface AlarmQuery {
  readonly source: string;
  readonly id: string;
  /** The latest that is known, where it is left out. */
  readonly episode?: string | undefined;
}

interface PlotQuery {
  readonly source: string;
  readonly tag: string;
  readonly span: Span;
  /** Whether what is missing may be asked of the service. */
  readonly fetch: boolean;
}

interface DaysQuery {
  readonly source?: string | undefined;
  readonly site?: number | undefined;
}

/** Facts about single objects that only a running worker knows. */
export interface LiveThings {
  reading(source: string, tagId: string): TagReading | null;
  tag(source: string, tagId: string): LiveTag | null;
  sinks(): readonly LiveSink[];
  /** Topics or queries of the sinks whose filters pass the event. */
  places(event: Event): readonly Place[];
  writable(source: string, tagId: string): TagResponse["writable"];
  /** Requests a minute that the service grants. */
  allowed(source: string): number;
  readonly fetchHistory: FetchHistory;
}

interface ResponsesOptions {
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
      siteAnswer({ store, remembered, tags, raised: (name, site) => alarmDays({ source: name, site }) }, source, id),
    alarmDays,
    commands: commands.list,
    sink: (name) => sinkAnswer({ store, plots, sinks: status.sinks, nowMs }, name),
    source: async (name) => sourceAnswer({ plots, nowMs }, name, live.allowed(name)),
    async plot({ fetch, source, span, tag }) {
      const row = await tags.row(source, tag);
      if (row === null) return null;
      return plotAnswer({ store, clock, remembered, plots, fetched, readingOf: live.reading }, row, span, fetch);
    },
    stop: fetched.stop,
  };
}

const DAYS = 30;
const DAY_MS = 86_400_000;

/** The last 30 UTC days, today included; every priority that occurs has a number for each day. */
function dayBars(
  raised: Iterable<RaisedAlarm>,
  nowMs: number,
  asked: { readonly source?: string | undefined; readonly site?: number | undefined },
): DayBars {
  const days = Array.from({ length: DAYS }, (_, n) => isoUtc(nowMs - (DAYS - 1 - n) * DAY_MS).slice(0, 10));
  const places = new Map(days.map((day, n) => [day, n]));
  const byPriority = new Map<string, number[]>();
  for (const { source, site, day, priority, count } of raised) {
    const place = places.get(day);
    if (place === undefined) continue;
    if (asked.source !== undefined && asked.source !== source) continue;
    if (asked.site !== undefined && asked.site !== site) continue;
    const bars = byPriority.get(priority) ?? days.map(() => 0);
    byPriority.set(priority, bars);
    bars[place] = (bars[place] ?? 0) + count;
  }
  return { days, byPriority: Object.fromEntries([...byPriority].sort(([a], [b]) => (a < b ? -1 : 1))) };
}

interface SiteParts {
  readonly store: Pick<Store, "document">;
  readonly remembered: CachedDocuments;
  readonly tags: Pick<TagIndex, "counts" | "ofSite">;
  readonly raised: (source: string, site: number) => Promise<DayBars>;
}

/** Null for an unknown site. */
async function siteAnswer(parts: SiteParts, source: string, id: number): Promise<SiteResponse | null> {
  const { remembered, store, tags } = parts;
  const site = await store.document<Listed<Site>>(documentSet("site", source), String(id));
  if (site === undefined) return null;
  const ofSite = async <T extends { readonly displayName: string }>(name: "gateway" | "system", maxAgeMs: number) => {
    const held = await remembered.documents<Listed<T>>(documentSet(name, source), maxAgeMs);
    return [...held.values()]
      .filter((each) => each.siteId === id && each.missingSince === null)
      .map(({ value }) => value)
      .sort((a, b) => a.displayName.localeCompare(b.displayName, "en", { numeric: true }));
  };
  const [gateways, systems, tagsOf] = await Promise.all([
    ofSite<Gateway>("gateway", WATCHED_MS),
    ofSite<System>("system", STEADY_MS),
    tagsBySystem(parts, source, id),
  ]);
  return {
    source,
    id,
    displayName: site.value.displayName,
    alarms: await activeAlarms(remembered, source, (alarm) => alarm.site.id === id),
    gateways: gateways.map(({ id: gateway, displayName, online }) => ({ id: gateway, displayName, online })),
    systems: systems.map((system) => ({
      id: system.id,
      displayName: system.displayName,
      tags: tagsOf?.get(system.id) ?? (tagsOf === null ? system.datapointsCount : 0),
    })),
    tags: await tags.counts({ source, site: id }),
    raised: await parts.raised(source, id),
  };
}

/** Number of the site's tags that each system lists; null when they are not read. */
async function tagsBySystem(
  { remembered, tags }: SiteParts,
  source: string,
  site: number,
): Promise<ReadonlyMap<string, number> | null> {
  const places = await remembered.documents<StoredTagSystems>(syncSet("tag-system", source), STEADY_MS);
  if (places.size === 0) return null;
  const counts = new Map<string, number>();
  for (const { tag } of await tags.ofSite(source, site)) {
    for (const system of places.get(tag.id)?.systemIds ?? []) counts.set(system, (counts.get(system) ?? 0) + 1);
  }
  return counts;
}
