import type { Alarm } from "../../core/model/building.ts";
import { type AlarmFact, type Event, KINDS, type Kind, sourceUri, subjectOf } from "../../core/model/event.ts";
import { documentSet, type LoggedEvent, type SinkLag, type Store, type Wanted } from "../../engine/store/store.ts";
import type { StoredAlarm } from "../../engine/sync/snapshot.ts";
import { ticketKey, ticketsOf, unsentBy } from "../../engine/views/tickets.ts";
import { tagOf } from "../../engine/views/time-series.ts";
import { briefly, briefOf } from "./alarm-briefs.ts";
import { type CachedDocuments, STEADY_MS, WATCHED_MS } from "./cached-documents.ts";
import type { AlarmBrief, AlarmResponse } from "./responses.ts";
import type { TagIndex } from "./tag-index.ts";

export interface AlarmParts {
  readonly store: Pick<Store, "document" | "documents" | "outbox">;
  readonly remembered: CachedDocuments;
  readonly tags: Pick<TagIndex, "ofSite">;
  /** The sinks that there are, with their connectors. */
  readonly sinks: () => readonly { readonly name: string; readonly connector: string | null }[];
  readonly wanted: ReadonlyMap<string, Wanted>;
}

type AlarmEvent = LoggedEvent & { readonly event: Event<"alarm-raised"> };

const ALARM_KINDS = KINDS.filter((kind) => kind.startsWith("alarm-"));
/** Number of events that are read of one alarm, and lifetime of the result in milliseconds. */
const EVENTS = 200;
const LOOKED_UP_MS = 5_000;
/** Number of dead letters that are searched per sink. */
const LETTERS = 500;

/** Null when the alarm, or this episode, is unknown. */
export async function alarmAnswer(
  parts: AlarmParts,
  asked: { readonly source: string; readonly id: string; readonly episode?: string | undefined },
): Promise<AlarmResponse | null> {
  const { store, remembered } = parts;
  const { source, id } = asked;
  const held = await store.document<StoredAlarm>(documentSet("alarm", source), id);
  const events = await eventsOf(parts, source, id, held);
  const episode = asked.episode ?? held?.episode ?? events[0]?.event.data.episode;
  const own = events.filter(({ event }) => event.data.episode === episode);
  const isHeld = held !== undefined && held.episode === episode;
  const alarm = isHeld ? held.alarm : own[0]?.event.data.alarm;
  if (alarm === undefined || episode === undefined) return null;
  const brief = isHeld ? briefOf(source, held) : endedBrief(source, own);
  if (brief === null) return null;
  const lags = await remembered.made("alarm lag", WATCHED_MS, () => store.outbox.lag(parts.wanted));
  return {
    brief,
    alarm,
    life: lifeOf(alarm, own),
    tag: await tagNamed(parts, source, alarm),
    sinks: await placesOf(parts, source, episode, own, lags),
    episodes: episodesOf(source, events, held === undefined ? brief : briefOf(source, held)),
  };
}

async function eventsOf(
  { store, remembered }: AlarmParts,
  source: string,
  id: string,
  held: StoredAlarm | undefined,
): Promise<readonly AlarmEvent[]> {
  const site = held?.alarm.site.id;
  const sites = await remembered.documents(documentSet("site", source), STEADY_MS);
  const found = await remembered.made(`alarm ${source} ${id} ${site}`, LOOKED_UP_MS, () =>
    store.outbox.latest(EVENTS, ALARM_KINDS, {
      source: sourceUri(source),
      // The site of an alarm that is no longer stored is unknown.
      subjects: (site === undefined ? [...sites.keys()] : [site]).map((each) => subjectOf("alarm", Number(each), id)),
    }),
  );
  return found.filter((each): each is AlarmEvent => (each.event.data as AlarmFact).alarm.id === id);
}

function endedBrief(source: string, newestFirst: readonly AlarmEvent[]): AlarmBrief | null {
  const [last] = newestFirst;
  if (last === undefined) return null;
  const { alarm, episode } = last.event.data;
  const state = ENDS.get(last.event.type as Kind) ?? "active";
  const brief = briefly(source, alarm, episode, state);
  return state === "active" ? brief : { ...brief, endedAt: brief.endedAt ?? last.event.time };
}

const ENDS: ReadonlyMap<Kind, string> = new Map([
  ["alarm-resolved", "resolved"],
  ["alarm-vanished", "vanished"],
  ["alarm-out-of-scope", "out-of-scope"],
]);

function episodesOf(source: string, newestFirst: readonly AlarmEvent[], latest: AlarmBrief): readonly AlarmBrief[] {
  const byEpisode = Map.groupBy(newestFirst, ({ event }) => event.data.episode);
  const before = [...byEpisode]
    .filter(([episode]) => episode !== latest.episode)
    .flatMap(([, events]) => endedBrief(source, events) ?? []);
  return [latest, ...before].sort((a, b) => Date.parse(b.raisedAt) - Date.parse(a.raisedAt));
}

/** Timeline from the log, completed from the alarm itself where the log is too short. */
export function lifeOf(alarm: Alarm, newestFirst: readonly AlarmEvent[]): AlarmResponse["life"] {
  const told = newestFirst
    .toReversed()
    .map(({ event }) => ({ at: event.time, what: event.type.slice("alarm-".length), words: wordsOf(event) }));
  const knows = (what: string) => told.some((each) => each.what === what);
  const { acknowledged, acknowledgedAt, resolvedAt, triggeredAt } = alarm;
  const life = [
    ...(knows("raised") ? [] : [{ at: triggeredAt, what: "raised", words: raised(alarm) }]),
    ...(knows("acknowledged") || !acknowledged || acknowledgedAt === null
      ? []
      : [{ at: acknowledgedAt, what: "acknowledged", words: acknowledgement(alarm) }]),
    ...told,
    ...(knows("resolved") || resolvedAt === null ? [] : [{ at: resolvedAt, what: "resolved", words: "Resolved." }]),
  ];
  return life.sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
}

function wordsOf({ data, type }: Event): string {
  const { alarm, late } = data as AlarmFact;
  const how = late ? " This was found afterwards." : "";
  switch (type) {
    case "alarm-raised":
      return `${raised(alarm)}${how}`;
    case "alarm-acknowledged":
      return acknowledgement(alarm);
    case "alarm-unacknowledged":
      return "The acknowledgement was taken back.";
    case "alarm-recovering":
      return alarm.recoveringUntil === null ? "Recovering." : `Recovering until ${alarm.recoveringUntil}.`;
    case "alarm-retriggered":
      return "Triggered again while it was active.";
    case "alarm-resolved":
      return `Resolved.${how}`;
    case "alarm-vanished":
      return "The lists of alarms do not show it any more, and nothing says that it was resolved.";
    case "alarm-out-of-scope":
      return "The token does not see its site any more, so its end will not be seen.";
    default:
      return `Changed: ${Object.keys((data as { readonly before?: object }).before ?? {}).join(", ")}.`;
  }
}

function raised({ trigger: { priority } }: Alarm): string {
  return `Raised with priority ${priority}.`;
}

function acknowledgement({ acknowledgedBy, acknowledgedMessage }: Alarm): string {
  const message = acknowledgedMessage === null ? "" : `: ${acknowledgedMessage}`;
  return `Acknowledged${acknowledgedBy === null ? "" : ` by ${acknowledgedBy}`}${message}`;
}

async function tagNamed({ tags }: AlarmParts, source: string, alarm: Alarm): Promise<AlarmResponse["tag"]> {
  const all = await tags.ofSite(source, alarm.site.id);
  const named = tagOf(
    alarm,
    all.map(({ siteId, tag }) => ({ siteId, name: tag.displayName, tag })),
  );
  return named === null ? null : { source, id: named.tag.id, displayName: named.tag.displayName };
}

async function placesOf(
  { store, remembered, sinks, wanted }: AlarmParts,
  source: string,
  episode: string,
  newestFirst: readonly AlarmEvent[],
  lags: readonly SinkLag[],
): Promise<AlarmResponse["sinks"]> {
  const all = sinks();
  const names = all.map(({ name }) => name);
  const tickets = (await ticketsOf((set) => remembered.documents(set, WATCHED_MS), names)).get(
    ticketKey(source, episode),
  );
  const documents = <T>(set: string) => remembered.documents<T>(set, WATCHED_MS);
  const unsent = await unsentBy(documents, names, ticketKey(source, episode));
  return Promise.all(
    all.map(async ({ name, connector }) => {
      const letters = await remembered.made(`dead ${name}`, WATCHED_MS, () => store.outbox.deadLetters(name, LETTERS));
      const dead = letters.find((letter) => newestFirst.some(({ event }) => event.id === letter.event?.id));
      const passes = wanted.get(name)?.matches ?? (() => true);
      const last = newestFirst.find(({ event }) => passes(event));
      const position = lags.find(({ sink }) => sink === name)?.position;
      const ticket = tickets?.find(({ sink }) => sink === name);
      const place =
        dead !== undefined
          ? { state: "dead letter", words: `Refused for good: ${dead.reason}` }
          : placeOf(newestFirst.length > 0, last, unsent.has(name) ? 0 : position);
      const called = ticket?.ticket == null ? "" : ` There it is ${ticket.ticket}.`;
      return {
        sink: name,
        connector,
        ...place,
        words: `${place.words}${called}`,
        link: ticket?.link ?? null,
      };
    }),
  );
}

function placeOf(isLogged: boolean, last: LoggedEvent | undefined, position: number | undefined) {
  if (!isLogged || position === undefined)
    return { state: "unknown", words: "The log no longer has what was told of it." };
  if (last === undefined) return { state: "not for this sink", words: "The filter of this sink leaves it out." };
  return position >= last.position
    ? { state: "delivered", words: "It has everything that was told of this alarm." }
    : { state: "waiting", words: "It still waits for the last that was told of this alarm." };
}
