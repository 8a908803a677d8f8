import { type AnyEvent, type Event, eventSourceName } from "../../core/model/event.ts";
import { type Store, type StoreChange, sinkStateSet } from "../store/store.ts";

/** Sink state of an alarm receiver, as `connectors/shared/receiver` writes it. */
interface IncidentState {
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

export type Tickets = ReadonlyMap<string, readonly Ticket[]>;

type ReadDocuments = <T>(set: string) => Promise<ReadonlyMap<string, T>>;

export const ticketKey = (source: string, episode: string): string => `${source} ${episode}`;

export async function readTickets(documents: ReadDocuments, sinks: readonly string[]): Promise<Tickets> {
  const tickets = new Map<string, Ticket[]>();
  for (const sink of sinks) {
    const incidents = await documents<Partial<IncidentState>>(sinkStateSet(sink));
    for (const { kind, source, episode, into, told } of incidents.values()) {
      // Other connectors store other documents.
      if (kind !== "alarm" || source === undefined || episode === undefined) continue;
      const group = into == null ? undefined : incidents.get(into);
      const incidentRecord = group?.told ?? told;
      if (incidentRecord == null) continue;
      const { ticket, link } = incidentRecord.place;
      const key = ticketKey(source, episode);
      const isWeb = link !== null && /^https?:\/\//.test(link);
      tickets.set(key, [
        ...(tickets.get(key) ?? []),
        { sink, ticket, link: isWeb ? link : null, isOpen: !incidentRecord.isClosed, isFolded: group !== undefined },
      ]);
    }
  }
  return tickets;
}

/** Names of the sinks that still have to send a message about the alarm with this `ticketKey`. */
export async function findSinksBehind(
  documents: ReadDocuments,
  sinks: readonly string[],
  key: string,
): Promise<ReadonlySet<string>> {
  const sinksBehind = new Set<string>();
  for (const sink of sinks) {
    const incidents = await documents<Partial<IncidentState>>(sinkStateSet(sink));
    for (const { kind, source, episode, into, status, told, refused } of incidents.values()) {
      if (kind !== "alarm" || ticketKey(source ?? "", episode ?? "") !== key) continue;
      if (into != null || refused !== undefined) continue;
      const isBehind = told == null || told.isInDoubt === true || told.isClosed !== (status === "resolved");
      if (isBehind) sinksBehind.add(sink);
    }
  }
  return sinksBehind;
}

/**
 * Adds the tickets to each alarm event that is committed, so that a lake or another ticket system can be joined. `sinks`:
 * names of the sinks that create tickets.
 */
export function withTickets(store: Store, sinks: () => readonly string[]): Store {
  return {
    ...store,
    async commit(change: StoreChange) {
      const { events = [] } = change;
      const ticketSinks = sinks();
      if (ticketSinks.length === 0 || !events.some(mayHaveTickets)) return store.commit(change);
      const tickets = await readTickets((set) => store.documents(set), ticketSinks);
      return store.commit({ ...change, events: events.map((event) => addTickets(event, tickets)) });
    },
  };
}

/** False for `alarm-raised`, which comes before every ticket. */
function mayHaveTickets({ type }: Event): boolean {
  return type.startsWith("alarm-") && type !== "alarm-raised";
}

function addTickets(event: Event, all: Tickets): Event {
  const alarmEvent = event as AnyEvent;
  if (!mayHaveTickets(event) || !("episode" in alarmEvent.data)) return event;
  const foundTickets = all.get(ticketKey(eventSourceName(event) ?? "", alarmEvent.data.episode)) ?? [];
  if (foundTickets.length === 0) return event;
  const tickets = foundTickets.map(({ sink, ticket, link }) => ({ sink, ticket, link }));
  return { ...event, data: { ...alarmEvent.data, tickets } };
}
