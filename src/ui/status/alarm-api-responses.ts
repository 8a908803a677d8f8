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
import type { StoredAlarm } from "../../engine/sync/stored-documents.ts";
import { alarmTicketKey, findPendingSinks, readAlarmTickets, type Ticket } from "../../engine/views/alarm-tickets.ts";
import { findTag } from "../../engine/views/tag-values-around-alarm.ts";
import { type CachedDocuments, SLOW_DATA_AGE_MS, WATCHED_DATA_AGE_MS } from "./cache-of-stored-documents.ts";
import type { AlarmQuery, AlarmsQuery } from "./query-parameters.ts";
import type { ResponseContext } from "./response-context.ts";
import { type AppliedSilence, longestSilenceFor } from "./silence-routes.ts";
import { countBy } from "./source-reports.ts";

export interface AlarmRow {
  readonly source: string;
  readonly alarm: Alarm;
  readonly state: StoredAlarm["state"];
  readonly tickets: readonly Ticket[];
  readonly silenced: AppliedSilence | null;
}

export type AlarmList = ReturnType<typeof filterAlarmRows>;
export type AlarmSummary = ReturnType<typeof summarizeAlarm>;
export type AlarmResponse = NonNullable<Awaited<ReturnType<typeof alarmResponse>>>;

type AlarmEvent = LoggedEvent & { readonly event: Event<"alarm-raised"> };

const ALARM_EVENT_KINDS = EVENT_KINDS.filter((kind) => kind.startsWith("alarm-"));
const MAX_ALARM_EVENTS = 200;
const ALARM_EVENTS_CACHE_MS = 5_000;
const MAX_DEAD_LETTERS = 500;

function mayAlarmBeActive({ state }: Pick<StoredAlarm, "state">): boolean {
  return state !== "resolved" && state !== "vanished";
}

/** Lists alarms that are active or may be active, most urgent first. `silences`: the active silences. */
export async function activeAlarmRows(
  cache: CachedDocuments,
  sources: readonly string[],
  sinks: readonly string[],
  silences: readonly Silence[],
): Promise<readonly AlarmRow[]> {
  const tickets = await readAlarmTickets((set) => cache.documents(set, WATCHED_DATA_AGE_MS), sinks);
  const rows: AlarmRow[] = [];
  for (const source of sources) {
    const alarms = await cache.documents<StoredAlarm>(documentSet("alarm", source), WATCHED_DATA_AGE_MS);
    for (const { alarm, episode, state } of alarms.values()) {
      if (!mayAlarmBeActive({ state })) continue;
      const silenced = longestSilenceFor(silences, source, alarm);
      rows.push({ source, alarm, state, tickets: tickets.get(alarmTicketKey(source, episode)) ?? [], silenced });
    }
  }
  return rows.sort(compareAlarmUrgency);
}

function compareAlarmUrgency({ alarm: a }: { readonly alarm: Alarm }, { alarm: b }: { readonly alarm: Alarm }): number {
  return a.trigger.priority.localeCompare(b.trigger.priority) || Date.parse(b.triggeredAt) - Date.parse(a.triggeredAt);
}

/** GET /api/alarms?source&site&priority&limit: up to `limit` alarms of the priority, and counts of all priorities. */
export function filterAlarmRows(allRows: readonly AlarmRow[], { limit, priority, site, source }: AlarmsQuery) {
  const alarmsInScope = allRows.filter(
    (row) => (source ?? row.source) === row.source && (site ?? row.alarm.site.id) === row.alarm.site.id,
  );
  const priorities = Object.fromEntries(countBy(alarmsInScope, ({ alarm }) => alarm.trigger.priority));
  const rows = alarmsInScope.filter(({ alarm }) => (priority ?? alarm.trigger.priority) === alarm.trigger.priority);
  return { priorities, rows: rows.slice(0, limit) };
}

export async function activeAlarms(cache: CachedDocuments, source: string, matches: (alarm: Alarm) => boolean) {
  const alarms = await cache.documents<StoredAlarm>(documentSet("alarm", source), WATCHED_DATA_AGE_MS);
  return [...alarms.values()]
    .filter((storedAlarm) => mayAlarmBeActive(storedAlarm) && matches(storedAlarm.alarm))
    .sort(compareAlarmUrgency)
    .map((storedAlarm) => storedAlarmSummary(source, storedAlarm));
}

function storedAlarmSummary(source: string, storedAlarm: StoredAlarm): AlarmSummary {
  const { alarm, episode, state, since } = storedAlarm;
  return {
    ...summarizeAlarm(source, alarm, episode, state),
    endedAt: mayAlarmBeActive(storedAlarm) ? null : (alarm.resolvedAt ?? since),
  };
}

function summarizeAlarm(source: string, alarm: Alarm, episode: string, state: string) {
  return {
    ...{ source, id: alarm.id, episode, state },
    name: alarm.trigger.displayName,
    site: alarm.site.displayName,
    priority: alarm.trigger.priority,
    raisedAt: alarm.triggeredAt,
    endedAt: alarm.resolvedAt,
  };
}

/** GET /api/alarm?source&id&episode: one alarm with its timeline, tag, deliveries and other episodes. */
export async function alarmResponse(context: ResponseContext, query: AlarmQuery) {
  const { source, id } = query;
  const storedAlarm = await context.store.document<StoredAlarm>(documentSet("alarm", source), id);
  const events = await findAlarmEvents(context, source, id, storedAlarm);
  const episode = query.episode ?? storedAlarm?.episode ?? events[0]?.event.data.episode;
  const episodeEvents = events.filter(({ event }) => event.data.episode === episode);
  const isStoredEpisode = storedAlarm !== undefined && storedAlarm.episode === episode;
  const alarm = isStoredEpisode ? storedAlarm.alarm : episodeEvents[0]?.event.data.alarm;
  const summary = isStoredEpisode ? storedAlarmSummary(source, storedAlarm) : loggedAlarmSummary(source, episodeEvents);
  if (alarm === undefined || episode === undefined || summary === null) return null;
  const latestSummary = storedAlarm === undefined ? summary : storedAlarmSummary(source, storedAlarm);
  return {
    brief: summary,
    alarm,
    life: alarmTimeline(alarm, episodeEvents),
    tag: await findTagNamedByAlarm(context, source, alarm),
    sinks: await alarmDeliveryBySink(context, alarmTicketKey(source, episode), episodeEvents),
    episodes: listEpisodes(source, events, latestSummary),
  };
}

async function findAlarmEvents(
  { cache, store }: ResponseContext,
  source: string,
  id: string,
  storedAlarm: StoredAlarm | undefined,
): Promise<readonly AlarmEvent[]> {
  const site = storedAlarm?.alarm.site.id;
  // The site of an alarm that is no longer stored is unknown, so search the events of all sites.
  const sites =
    site === undefined ? (await cache.documents(documentSet("site", source), SLOW_DATA_AGE_MS)).keys() : [site];
  const events = await cache.memoize(`alarm ${source} ${id} ${site}`, ALARM_EVENTS_CACHE_MS, () =>
    store.outbox.latest(MAX_ALARM_EVENTS, ALARM_EVENT_KINDS, {
      source: sourceUri(source),
      subjects: [...sites].map((siteId) => eventSubject("alarm", Number(siteId), id)),
    }),
  );
  return events.filter(
    (loggedEvent): loggedEvent is AlarmEvent => (loggedEvent.event.data as AlarmFact).alarm.id === id,
  );
}

const ALARM_END_STATES: ReadonlyMap<EventKind, string> = new Map([
  ["alarm-resolved", "resolved"],
  ["alarm-vanished", "vanished"],
  ["alarm-out-of-scope", "out-of-scope"],
]);

function loggedAlarmSummary(source: string, newestFirst: readonly AlarmEvent[]): AlarmSummary | null {
  const [lastEvent] = newestFirst;
  if (lastEvent === undefined) return null;
  const { alarm, episode } = lastEvent.event.data;
  const alarmEndState = ALARM_END_STATES.get(lastEvent.event.type as EventKind);
  const summary = summarizeAlarm(source, alarm, episode, alarmEndState ?? "active");
  return alarmEndState === undefined ? summary : { ...summary, endedAt: summary.endedAt ?? lastEvent.event.time };
}

function listEpisodes(
  source: string,
  newestFirst: readonly AlarmEvent[],
  latestEpisode: AlarmSummary,
): readonly AlarmSummary[] {
  const earlierSummaries = [...Map.groupBy(newestFirst, ({ event }) => event.data.episode)]
    .filter(([episode]) => episode !== latestEpisode.episode)
    .flatMap(([, events]) => loggedAlarmSummary(source, events) ?? []);
  return [latestEpisode, ...earlierSummaries].sort((a, b) => Date.parse(b.raisedAt) - Date.parse(a.raisedAt));
}

/** Lists the steps of an alarm. For steps that the event log no longer contains, uses the times in the alarm. */
export function alarmTimeline(alarm: Alarm, newestFirst: readonly AlarmEvent[]) {
  const loggedTimelineSteps = newestFirst
    .toReversed()
    .map(({ event }) => ({ at: event.time, what: event.type.slice("alarm-".length), words: alarmEventText(event) }));
  const stepOfAlarm = (at: string | null, what: string, words: string) =>
    at === null || loggedTimelineSteps.some((step) => step.what === what) ? [] : [{ at, what, words }];
  return [
    ...stepOfAlarm(alarm.triggeredAt, "raised", raisedAlarmText(alarm)),
    ...stepOfAlarm(alarm.acknowledged ? alarm.acknowledgedAt : null, "acknowledged", acknowledgementText(alarm)),
    ...loggedTimelineSteps,
    ...stepOfAlarm(alarm.resolvedAt, "resolved", "Resolved."),
  ].sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
}

const ALARM_EVENT_TEXTS: Readonly<Record<string, (alarm: Alarm, suffix: string) => string>> = {
  "alarm-raised": (alarm, suffix) => `${raisedAlarmText(alarm)}${suffix}`,
  "alarm-acknowledged": acknowledgementText,
  "alarm-unacknowledged": () => "The acknowledgement was withdrawn.",
  "alarm-recovering": ({ recoveringUntil: until }) => `Recovering${until === null ? "" : ` until ${until}`}.`,
  "alarm-retriggered": () => "Triggered again while it was active.",
  "alarm-resolved": (_, suffix) => `Resolved.${suffix}`,
  "alarm-vanished": () => "The alarm disappeared from the lists of the service, which did not report its end.",
  "alarm-out-of-scope": () => "The token can no longer see the site, so Plenum cannot see the end of the alarm.",
};

function alarmEventText({ data, type }: Event): string {
  const { alarm, late } = data as AlarmFact;
  const alarmEventWords = ALARM_EVENT_TEXTS[type]?.(alarm, late ? " Plenum found this afterwards." : "");
  return alarmEventWords ?? `Changed: ${Object.keys((data as { readonly before?: object }).before ?? {}).join(", ")}.`;
}

const raisedAlarmText = ({ trigger: { priority } }: Alarm): string => `Raised with priority ${priority}.`;

function acknowledgementText({ acknowledgedBy, acknowledgedMessage }: Alarm): string {
  const message = acknowledgedMessage === null ? "" : `: ${acknowledgedMessage}`;
  return `Acknowledged${acknowledgedBy === null ? "" : ` by ${acknowledgedBy}`}${message}`;
}

/** Finds the tag that an alarm names; null if no tag or several tags have this name. */
async function findTagNamedByAlarm({ tags }: Pick<ResponseContext, "tags">, source: string, alarm: Alarm) {
  const matchingTag = findTag(alarm, await tags.tagsOfSite(source, alarm.site.id));
  return matchingTag && { source, id: matchingTag.tag.id, displayName: matchingTag.name };
}

async function alarmDeliveryBySink(
  { store, cache, live, sinksAndFilters }: ResponseContext,
  ticketKey: string,
  newestFirst: readonly AlarmEvent[],
) {
  const { sinks, filterBySink } = sinksAndFilters();
  const sinkLags = await cache.memoize("alarm lag", WATCHED_DATA_AGE_MS, () => store.outbox.lag(filterBySink));
  const readCachedSet = <T>(set: string) => cache.documents<T>(set, WATCHED_DATA_AGE_MS);
  const tickets = (await readAlarmTickets(readCachedSet, sinks)).get(ticketKey);
  const sinksBehind = await findPendingSinks(readCachedSet, sinks, ticketKey);
  return Promise.all(
    sinks.map(async (sink) => {
      const deadLetters = await cache.memoize(`dead ${sink}`, WATCHED_DATA_AGE_MS, () =>
        store.outbox.deadLetters(sink, MAX_DEAD_LETTERS),
      );
      const deadLetter = deadLetters.find((letter) => newestFirst.some(({ event }) => event.id === letter.event?.id));
      const sinkFilter = filterBySink.get(sink);
      const lastEvent = newestFirst.find(({ event }) => sinkFilter?.matches(event) ?? true);
      const sinkPosition = sinksBehind.has(sink) ? 0 : sinkLags.find((lag) => lag.sink === sink)?.position;
      const { state, words } =
        deadLetter === undefined
          ? sinkDeliveryState(newestFirst.length > 0, lastEvent, sinkPosition)
          : { state: "dead letter", words: `Rejected permanently: ${deadLetter.reason}` };
      const ticket = tickets?.find((sinkTicket) => sinkTicket.sink === sink);
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

/** `lastEvent`: the alarm's newest event for this sink. `position`: the sink has received events up to this one. */
function sinkDeliveryState(isLogged: boolean, lastEvent: LoggedEvent | undefined, position: number | undefined) {
  if (!isLogged || position === undefined)
    return { state: "unknown", words: "The event log no longer contains the events of this alarm." };
  if (lastEvent === undefined)
    return { state: "not for this sink", words: "The filter of this sink excludes this alarm." };
  return position >= lastEvent.position
    ? { state: "delivered", words: "The sink has received all events of this alarm." }
    : { state: "waiting", words: "The sink has not received the latest event of this alarm yet." };
}
