import { type AnyEvent, type Event, eventSourceName } from "../../core/model/event.ts";
import { type Store, type StoreChange, sinkStateSet } from "../store/store.ts";

/** Incident as `connectors/shared/receiver` stores it. */
interface StoredIncident {
  readonly kind: string;
  readonly source: string;
  readonly episode: string;
  /** Key of the incident that contains this incident; null if this incident is sent alone. */
  readonly into: string | null;
  readonly status: string;
  readonly told: {
    readonly place: { readonly ticket: string | null; readonly link: string | null };
    readonly isClosed: boolean;
    readonly isInDoubt?: true;
  } | null;
  readonly refused?: string;
}

export interface Ticket {
  readonly sink: string;
  readonly ticket: string | null;
  readonly link: string | null;
  readonly isOpen: boolean;
  /** True if the alarm is part of a larger incident, e.g. an offline gateway. */
  readonly isFolded: boolean;
}

export type TicketsByKey = ReadonlyMap<string, readonly Ticket[]>;

type ReadDocuments = <T>(setName: string) => Promise<ReadonlyMap<string, T>>;

export const alarmTicketKey = (source: string, episode: string): string => `${source} ${episode}`;

export async function readAlarmTickets(readDocuments: ReadDocuments, sinks: readonly string[]): Promise<TicketsByKey> {
  const tickets = new Map<string, Ticket[]>();
  for (const sink of sinks) {
    const incidentByKey = await readDocuments<Partial<StoredIncident>>(sinkStateSet(sink));
    for (const { kind, source, episode, into, told } of incidentByKey.values()) {
      // Other connectors store documents of other kinds.
      if (kind !== "alarm" || source === undefined || episode === undefined) continue;
      const parent = into == null ? undefined : incidentByKey.get(into);
      const sentIncident = parent?.told ?? told;
      if (sentIncident == null) continue;
      const { ticket, link } = sentIncident.place;
      const ticketKey = alarmTicketKey(source, episode);
      const isWebLink = link !== null && /^https?:\/\//.test(link);
      tickets.set(ticketKey, [
        ...(tickets.get(ticketKey) ?? []),
        { sink, ticket, link: isWebLink ? link : null, isOpen: !sentIncident.isClosed, isFolded: parent !== undefined },
      ]);
    }
  }
  return tickets;
}

export async function findPendingSinks(
  readDocuments: ReadDocuments,
  sinks: readonly string[],
  key: string,
): Promise<ReadonlySet<string>> {
  const pendingSinks = new Set<string>();
  for (const sink of sinks) {
    const incidentByKey = await readDocuments<Partial<StoredIncident>>(sinkStateSet(sink));
    for (const { kind, source, episode, into, status, told, refused } of incidentByKey.values()) {
      if (kind !== "alarm" || alarmTicketKey(source ?? "", episode ?? "") !== key) continue;
      if (into != null || refused !== undefined) continue;
      const hasUnsentMessage = told == null || told.isInDoubt === true || told.isClosed !== (status === "resolved");
      if (hasUnsentMessage) pendingSinks.add(sink);
    }
  }
  return pendingSinks;
}

/** Adds tickets to each alarm event that is committed. `sinks`: names of the sinks that create tickets. */
export function addTicketsOnCommit(store: Store, sinks: () => readonly string[]): Store {
  return {
    ...store,
    async commit(change: StoreChange) {
      const { events = [] } = change;
      const ticketSinkNames = sinks();
      if (ticketSinkNames.length === 0 || !events.some(mayEventHaveTickets)) return store.commit(change);
      const tickets = await readAlarmTickets((setName) => store.documents(setName), ticketSinkNames);
      return store.commit({ ...change, events: events.map((event) => addTicketsToEvent(event, tickets)) });
    },
  };
}

/** Returns false for `alarm-raised`, because no ticket exists yet when it is emitted. */
function mayEventHaveTickets({ type }: Event): boolean {
  return type.startsWith("alarm-") && type !== "alarm-raised";
}

function addTicketsToEvent(event: Event, ticketsByKey: TicketsByKey): Event {
  const alarmEvent = event as AnyEvent;
  if (!mayEventHaveTickets(event) || !("episode" in alarmEvent.data)) return event;
  const ticketsOfAlarm = ticketsByKey.get(alarmTicketKey(eventSourceName(event) ?? "", alarmEvent.data.episode)) ?? [];
  if (ticketsOfAlarm.length === 0) return event;
  const tickets = ticketsOfAlarm.map(({ sink, ticket, link }) => ({ sink, ticket, link }));
  return { ...event, data: { ...alarmEvent.data, tickets } };
}
