import type { Alarm, Gateway, Site, Tag } from "../building.ts";
import { type Clock, isoUtc } from "../clock.ts";
import type { QuotaStatus } from "../source/source.ts";
import { documentSet, type SinkLag, type Store } from "../store/store.ts";
import type { Held, HeldAlarm, HeldPoll, HeldValue } from "../sync/snapshot.ts";

/**
 * The one projection of a worker's state that the web page, `plenum status`, health and metrics show.
 *
 * What is durable comes from the store, so that it can be shown without a worker; what only a running worker knows
 * comes through `LiveParts`.
 */
export interface StatusReport {
  readonly version: string;
  readonly now: string;
  /** Null when no worker is running: then the report is what the state folder remembers. */
  readonly startedAt: string | null;
  /** Sentences that a person should read, worst first; empty when all is well. */
  readonly notices: readonly string[];
  readonly sources: readonly SourceReport[];
  readonly sinks: readonly SinkReport[];
  readonly commands: CommandsReport | null;
  readonly store: { readonly file: string; readonly bytes: number };
}

export interface SourceReport {
  readonly name: string;
  readonly origin: string;
  readonly quota: QuotaStatus | null;
  readonly jobs: readonly (HeldPoll & { readonly name: string })[];
  readonly sites: readonly SiteReport[];
  readonly counts: {
    readonly sites: number;
    readonly tags: number;
    readonly values: number;
    readonly alarms: number;
  };
}

export interface SiteReport {
  readonly id: number;
  readonly displayName: string;
  readonly tags: number;
  readonly gateways: { readonly online: number; readonly all: number };
  /** Active alarms by priority. */
  readonly alarms: Readonly<Record<string, number>>;
}

export interface SinkReport extends SinkLag {
  readonly connector: string | null;
  readonly state: string;
  readonly since: string | null;
  readonly problem: string | null;
}

export interface CommandsReport {
  readonly enabled: boolean;
  readonly rehearsal: boolean;
  readonly stopped: boolean;
  readonly writable: number;
  readonly waiting: number;
}

/** What a running worker adds. */
export interface LiveParts {
  readonly startedAtMs: number;
  quota(source: string): QuotaStatus | null;
  sinks(): readonly LiveSink[];
  commands(): CommandsReport | null;
  notices(): readonly string[];
}

export interface LiveSink {
  readonly name: string;
  readonly connector: string;
  readonly state: string;
  readonly since: string;
  readonly lastError: string | null;
}

export interface StatusOptions {
  readonly version: string;
  readonly clock: Clock;
  readonly store: Store;
  readonly sources: readonly { readonly name: string; readonly origin: string }[];
  readonly live: LiveParts | null;
}

export interface Status {
  report(): Promise<StatusReport>;
  alarms(): Promise<readonly AlarmRow[]>;
  values(filter: ValueFilter): Promise<readonly ValueRow[]>;
}

export interface AlarmRow {
  readonly source: string;
  readonly alarm: Alarm;
  readonly state: HeldAlarm["state"];
}

export interface ValueFilter {
  readonly site?: number;
  /** Part of a name or id, in any case. */
  readonly search?: string;
  readonly limit: number;
}

export interface ValueRow extends HeldValue {
  readonly source: string;
  readonly siteId: number | null;
  readonly tag: Tag;
}

export function createStatus(options: StatusOptions): Status {
  const { clock, live, store } = options;
  const names = options.sources.map((source) => source.name);

  async function sourceReport({ name, origin }: { name: string; origin: string }): Promise<SourceReport> {
    const [sites, tags, gateways, alarms, values, polls] = await Promise.all([
      store.documents<Held<Site>>(documentSet("site", name)),
      store.documents<Held<Tag>>(documentSet("tag", name)),
      store.documents<Held<Gateway>>(documentSet("gateway", name)),
      store.documents<HeldAlarm>(documentSet("alarm", name)),
      store.documents<HeldValue>(documentSet("value", name)),
      store.documents<HeldPoll>(documentSet("poll", name)),
    ]);
    const active = [...alarms.values()].filter(isActive);
    const siteReports = [...sites.values()].map(({ value: site }): SiteReport => {
      const own = [...gateways.values()].filter(
        (held) => held.siteId === site.id && held.missingSince === null,
      );
      return {
        id: site.id,
        displayName: site.displayName,
        tags: count(tags.values(), (held) => held.siteId === site.id),
        gateways: { online: count(own, (held) => held.value.online), all: own.length },
        alarms: byPriority(active.filter((held) => held.alarm.site.id === site.id)),
      };
    });
    return {
      name,
      origin,
      quota: live?.quota(name) ?? null,
      jobs: [...polls].map(([job, poll]) => ({ name: job, ...poll })),
      sites: siteReports.toSorted((a, b) => a.id - b.id),
      counts: { sites: sites.size, tags: tags.size, values: values.size, alarms: active.length },
    };
  }

  async function sinkReports(): Promise<readonly SinkReport[]> {
    const lags = await store.outbox.lag();
    const running = new Map(live?.sinks().map((sink) => [sink.name, sink]));
    return lags.map((lag) => {
      const sink = running.get(lag.sink);
      return {
        ...lag,
        connector: sink?.connector ?? null,
        state: lag.ended === null ? (sink?.state ?? "not running") : "ended",
        since: sink?.since ?? null,
        problem: lag.ended ?? sink?.lastError ?? null,
      };
    });
  }

  return {
    async report() {
      const [sources, sinks, { file, bytes }] = await Promise.all([
        Promise.all(options.sources.map(sourceReport)),
        sinkReports(),
        store.describe(),
      ]);
      return {
        version: options.version,
        now: isoUtc(clock.now()),
        startedAt: live === null ? null : isoUtc(live.startedAtMs),
        notices: [...(live?.notices() ?? []), ...problems(sources, sinks)],
        sources,
        sinks,
        commands: live?.commands() ?? null,
        store: { file, bytes },
      };
    },

    async alarms() {
      const rows: AlarmRow[] = [];
      for (const source of names) {
        const held = await store.documents<HeldAlarm>(documentSet("alarm", source));
        for (const { alarm, state } of held.values()) {
          if (state === "active" || state === "missing" || state === "out-of-scope")
            rows.push({ source, alarm, state });
        }
      }
      return rows.toSorted((a, b) => (a.alarm.triggeredAt < b.alarm.triggeredAt ? 1 : -1));
    },

    async values(filter) {
      const wanted = filter.search?.toLowerCase() ?? "";
      const rows: ValueRow[] = [];
      for (const source of names) {
        const [values, tags] = await Promise.all([
          store.documents<HeldValue>(documentSet("value", source)),
          store.documents<Held<Tag>>(documentSet("tag", source)),
        ]);
        for (const [id, value] of values) {
          const held = tags.get(id);
          const tag = held?.value ?? { id, displayName: id, description: null, unit: null };
          const siteId = held?.siteId ?? null;
          if (filter.site !== undefined && siteId !== filter.site) continue;
          if (!`${id} ${tag.displayName} ${tag.description ?? ""}`.toLowerCase().includes(wanted)) continue;
          rows.push({ ...value, source, siteId, tag });
        }
      }
      return rows.toSorted((a, b) => (a.time < b.time ? 1 : -1)).slice(0, filter.limit);
    },
  };
}

function isActive(held: HeldAlarm): boolean {
  return held.state === "active" || held.state === "missing";
}

function count<T>(items: Iterable<T>, fits: (item: T) => boolean): number {
  let total = 0;
  for (const item of items) if (fits(item)) total += 1;
  return total;
}

function byPriority(held: readonly HeldAlarm[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { alarm } of held) counts[alarm.trigger.priority] = (counts[alarm.trigger.priority] ?? 0) + 1;
  return counts;
}

/** Silence is never to be read as "no alarms": what does not work is said first. */
function problems(sources: readonly SourceReport[], sinks: readonly SinkReport[]): readonly string[] {
  return [
    ...sources.flatMap((source) =>
      source.jobs
        .filter((job) => job.problem !== null)
        .map((job) => `${source.name}, ${job.name}: ${job.problem}`),
    ),
    ...sinks.filter((sink) => sink.problem !== null).map((sink) => `Sink ${sink.sink}: ${sink.problem}`),
    ...sinks
      .filter((sink) => sink.deadLetters > 0)
      .map((sink) => `Sink ${sink.sink} has ${sink.deadLetters} dead letters; see plenum outbox dead.`),
  ];
}
