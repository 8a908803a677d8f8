import type { Alarm } from "../../core/model/building.ts";
import {
  type AlarmFact,
  EVENT_KINDS,
  type Event,
  type EventKind,
  eventSubject,
  sourceUri,
} from "../../core/model/event.ts";
import type { Silence } from "../../engine/silence/alarm-silences.ts";
import { documentSet, type LoggedEvent } from "../../engine/store/store.ts";
import type { StoredAlarm } from "../../engine/sync/snapshot.ts";
import { findSinksBehind, readTickets, type Ticket, ticketKey } from "../../engine/views/alarm-tickets.ts";
import { findTag } from "../../engine/views/alarm-time-series.ts";
import { type CachedDocuments, SLOW_DATA_MS, WATCHED_DATA_AGE_MS } from "./cached-documents.ts";
import type { AlarmQuery, AlarmsQuery } from "./query-parameters.ts";
import type { PageContext } from "./response-context.ts";
import { type Silenced, silencedBy } from "./silence-routes.ts";

export interface AlarmRow {
  readonly source: string;
  readonly alarm: Alarm;
  readonly state: StoredAlarm["state"];
  readonly tickets: readonly Ticket[];
  readonly silenced: Silenced | null;
}

/** GET /api/alarms?source&site&priority&limit */
export interface AlarmList {
  readonly priorities: Readonly<Record<string, number>>;
  /** The first alarms that match the priority, too: highest priority first, then the newest. */
  readonly rows: readonly AlarmRow[];
}

export type AlarmBrief = ReturnType<typeof briefOf>;
export type AlarmResponse = NonNullable<Awaited<ReturnType<typeof alarmResponse>>>;

type AlarmEvent = LoggedEvent & { readonly event: Event<"alarm-raised"> };

const ALARM_KINDS = EVENT_KINDS.filter((kind) => kind.startsWith("alarm-"));
const MOST_EVENTS = 200;
const ALARM_EVENTS_CACHE_MS = 5_000;
const MAX_DEAD_LETTERS = 500;

function mayBeActive({ state }: Pick<StoredAlarm, "state">): boolean {
  return state !== "resolved" && state !== "vanished";
}

/** Alarms that may be active, most urgent first. `silences`: the active silences. */
export async function alarmRows(
  cache: CachedDocuments,
  sources: readonly string[],
  sinks: readonly string[],
  silences: readonly Silence[],
): Promise<readonly AlarmRow[]> {
  const tickets = await readTickets((set) => cache.documents(set, WATCHED_DATA_AGE_MS), sinks);
  const rows: AlarmRow[] = [];
  for (const source of sources) {
    const alarms = await cache.documents<StoredAlarm>(documentSet("alarm", source), WATCHED_DATA_AGE_MS);
    for (const { alarm, episode, state } of alarms.values()) {
      if (!mayBeActive({ state })) continue;
      const silenced = silencedBy(silences, source, alarm);
      rows.push({ source, alarm, state, tickets: tickets.get(ticketKey(source, episode)) ?? [], silenced });
    }
  }
  return rows.sort(byUrgency);
}

function byUrgency({ alarm: a }: { readonly alarm: Alarm }, { alarm: b }: { readonly alarm: Alarm }): number {
  return a.trigger.priority.localeCompare(b.trigger.priority) || Date.parse(b.triggeredAt) - Date.parse(a.triggeredAt);
}

export function alarmList(all: readonly AlarmRow[], { limit, priority, site, source }: AlarmsQuery): AlarmList {
  const inScope = all.filter(
    (row) => (source ?? row.source) === row.source && (site ?? row.alarm.site.id) === row.alarm.site.id,
  );
  const priorities: Record<string, number> = {};
  for (const { alarm } of inScope) priorities[alarm.trigger.priority] = (priorities[alarm.trigger.priority] ?? 0) + 1;
  const rows = inScope.filter(({ alarm }) => (priority ?? alarm.trigger.priority) === alarm.trigger.priority);
  return { priorities, rows: rows.slice(0, limit) };
}

export async function activeAlarms(cache: CachedDocuments, source: string, matches: (alarm: Alarm) => boolean) {
  const alarms = await cache.documents<StoredAlarm>(documentSet("alarm", source), WATCHED_DATA_AGE_MS);
  return [...alarms.values()]
    .filter((each) => mayBeActive(each) && matches(each.alarm))
    .sort(byUrgency)
    .map((each) => storedBrief(source, each));
}

function storedBrief(source: string, stored: StoredAlarm): AlarmBrief {
  const { alarm, episode, state, since } = stored;
  return {
    ...briefOf(source, alarm, episode, state),
    endedAt: mayBeActive(stored) ? null : (alarm.resolvedAt ?? since),
  };
}

function briefOf(source: string, alarm: Alarm, episode: string, state: string) {
  return {
    ...{ source, id: alarm.id, episode, state },
    name: alarm.trigger.displayName,
    site: alarm.site.displayName,
    priority: alarm.trigger.priority,
    raisedAt: alarm.triggeredAt,
    endedAt: alarm.resolvedAt,
  };
}

/** GET /api/alarm?source&id&episode */
export async function alarmResponse(context: PageContext, query: AlarmQuery) {
  const { source, id } = query;
  const stored = await context.store.document<StoredAlarm>(documentSet("alarm", source), id);
  const events = await findAlarmEvents(context, source, id, stored);
  const episode = query.episode ?? stored?.episode ?? events[0]?.event.data.episode;
  const episodeEvents = events.filter(({ event }) => event.data.episode === episode);
  const isStored = stored !== undefined && stored.episode === episode;
  const alarm = isStored ? stored.alarm : episodeEvents[0]?.event.data.alarm;
  const brief = isStored ? storedBrief(source, stored) : loggedBrief(source, episodeEvents);
  if (alarm === undefined || episode === undefined || brief === null) return null;
  const latestBrief = stored === undefined ? brief : storedBrief(source, stored);
  return {
    brief,
    alarm,
    life: alarmTimeline(alarm, episodeEvents),
    tag: await namedTag(context, source, alarm),
    sinks: await deliveryBySink(context, ticketKey(source, episode), episodeEvents),
    episodes: listEpisodes(source, events, latestBrief),
  };
}

async function findAlarmEvents(
  { cache, store }: PageContext,
  source: string,
  id: string,
  stored: StoredAlarm | undefined,
): Promise<readonly AlarmEvent[]> {
  const site = stored?.alarm.site.id;
  // The site of an alarm that is no longer stored is unknown.
  const sites = site === undefined ? (await cache.documents(documentSet("site", source), SLOW_DATA_MS)).keys() : [site];
  const events = await cache.computed(`alarm ${source} ${id} ${site}`, ALARM_EVENTS_CACHE_MS, () =>
    store.outbox.latest(MOST_EVENTS, ALARM_KINDS, {
      source: sourceUri(source),
      subjects: [...sites].map((each) => eventSubject("alarm", Number(each), id)),
    }),
  );
  return events.filter((each): each is AlarmEvent => (each.event.data as AlarmFact).alarm.id === id);
}

const END_STATES: ReadonlyMap<EventKind, string> = new Map([
  ["alarm-resolved", "resolved"],
  ["alarm-vanished", "vanished"],
  ["alarm-out-of-scope", "out-of-scope"],
]);

function loggedBrief(source: string, newestFirst: readonly AlarmEvent[]): AlarmBrief | null {
  const [lastEvent] = newestFirst;
  if (lastEvent === undefined) return null;
  const { alarm, episode } = lastEvent.event.data;
  const endState = END_STATES.get(lastEvent.event.type as EventKind);
  const brief = briefOf(source, alarm, episode, endState ?? "active");
  return endState === undefined ? brief : { ...brief, endedAt: brief.endedAt ?? lastEvent.event.time };
}

function listEpisodes(source: string, newestFirst: readonly AlarmEvent[], latest: AlarmBrief): readonly AlarmBrief[] {
  const earlierBriefs = [...Map.groupBy(newestFirst, ({ event }) => event.data.episode)]
    .filter(([episode]) => episode !== latest.episode)
    .flatMap(([, events]) => loggedBrief(source, events) ?? []);
  return [latest, ...earlierBriefs].sort((a, b) => Date.parse(b.raisedAt) - Date.parse(a.raisedAt));
}

/** Timeline from the log, oldest step first. The alarm itself supplies steps that the log no longer has. */
export function alarmTimeline(alarm: Alarm, newestFirst: readonly AlarmEvent[]) {
  const loggedSteps = newestFirst
    .toReversed()
    .map(({ event }) => ({ at: event.time, what: event.type.slice("alarm-".length), words: alarmEventText(event) }));
  const stepFromAlarm = (at: string | null, what: string, words: string) =>
    at === null || loggedSteps.some((step) => step.what === what) ? [] : [{ at, what, words }];
  return [
    ...stepFromAlarm(alarm.triggeredAt, "raised", raisedText(alarm)),
    ...stepFromAlarm(alarm.acknowledged ? alarm.acknowledgedAt : null, "acknowledged", acknowledgement(alarm)),
    ...loggedSteps,
    ...stepFromAlarm(alarm.resolvedAt, "resolved", "Resolved."),
  ].sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
}

const STEP_WORDS: Readonly<Record<string, (alarm: Alarm, suffix: string) => string>> = {
  "alarm-raised": (alarm, suffix) => `${raisedText(alarm)}${suffix}`,
  "alarm-acknowledged": acknowledgement,
  "alarm-unacknowledged": () => "The acknowledgement was withdrawn.",
  "alarm-recovering": ({ recoveringUntil: until }) => `Recovering${until === null ? "" : ` until ${until}`}.`,
  "alarm-retriggered": () => "Triggered again while it was active.",
  "alarm-resolved": (_, suffix) => `Resolved.${suffix}`,
  "alarm-vanished": () => "The alarm disappeared from the lists of the service, which did not report its end.",
  "alarm-out-of-scope": () => "The token can no longer see the site, so Plenum cannot see the end of the alarm.",
};

function alarmEventText({ data, type }: Event): string {
  const { alarm, late } = data as AlarmFact;
  const words = STEP_WORDS[type]?.(alarm, late ? " Plenum found this afterwards." : "");
  return words ?? `Changed: ${Object.keys((data as { readonly before?: object }).before ?? {}).join(", ")}.`;
}

function raisedText({ trigger: { priority } }: Alarm): string {
  return `Raised with priority ${priority}.`;
}

function acknowledgement({ acknowledgedBy, acknowledgedMessage }: Alarm): string {
  const message = acknowledgedMessage === null ? "" : `: ${acknowledgedMessage}`;
  return `Acknowledged${acknowledgedBy === null ? "" : ` by ${acknowledgedBy}`}${message}`;
}

/** The only tag that has the name in the alarm; null when no tag or several tags have it. */
async function namedTag({ tags }: Pick<PageContext, "tags">, source: string, alarm: Alarm) {
  const matchingTag = findTag(alarm, await tags.ofSite(source, alarm.site.id));
  return matchingTag && { source, id: matchingTag.tag.id, displayName: matchingTag.name };
}

/** Delivery state per sink. `episode`: key of the alarm's tickets. */
async function deliveryBySink(
  { store, cache, live, sinksAndFilters }: PageContext,
  episode: string,
  newestFirst: readonly AlarmEvent[],
) {
  const { sinks, filterBySink } = sinksAndFilters();
  const lags = await cache.computed("alarm lag", WATCHED_DATA_AGE_MS, () => store.outbox.lag(filterBySink));
  const documents = <T>(set: string) => cache.documents<T>(set, WATCHED_DATA_AGE_MS);
  const tickets = (await readTickets(documents, sinks)).get(episode);
  const unsent = await findSinksBehind(documents, sinks, episode);
  return Promise.all(
    sinks.map(async (sink) => {
      const letters = await cache.computed(`dead ${sink}`, WATCHED_DATA_AGE_MS, () =>
        store.outbox.deadLetters(sink, MAX_DEAD_LETTERS),
      );
      const deadLetter = letters.find((letter) => newestFirst.some(({ event }) => event.id === letter.event?.id));
      const filter = filterBySink.get(sink);
      const lastEvent = newestFirst.find(({ event }) => filter?.matches(event) ?? true);
      const position = unsent.has(sink) ? 0 : lags.find((lag) => lag.sink === sink)?.position;
      const { state, words } =
        deadLetter === undefined
          ? sinkDelivery(newestFirst.length > 0, lastEvent, position)
          : { state: "dead letter", words: `Rejected permanently: ${deadLetter.reason}` };
      const ticket = tickets?.find((each) => each.sink === sink);
      return {
        sink,
        connector: live.sinks().find(({ name }) => name === sink)?.connector ?? null,
        state,
        words: ticket?.ticket == null ? words : `${words} Ticket: ${ticket.ticket}.`,
        link: ticket?.link ?? null,
      };
    }),
  );
}

/** `last`: the newest event that passes the filter. `position`: how far the sink has read the log. */
function sinkDelivery(isLogged: boolean, last: LoggedEvent | undefined, position: number | undefined) {
  if (!isLogged || position === undefined)
    return { state: "unknown", words: "The event log no longer contains the events of this alarm." };
  if (last === undefined) return { state: "not for this sink", words: "The filter of this sink excludes this alarm." };
  return position >= last.position
    ? { state: "delivered", words: "The sink has received all events of this alarm." }
    : { state: "waiting", words: "The sink has not received the latest event of this alarm yet." };
}
