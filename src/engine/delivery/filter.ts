import { z } from "zod";
import { type AnyEvent, EVENT_KINDS, type Event, type EventKind } from "../../core/model/event.ts";
import { globMatches } from "../../core/values/glob.ts";
import { findClosestWord } from "../../core/values/spelling-suggestion.ts";
import type { LagFilter } from "../store/store.ts";

const EventKindPattern = z.string().refine((pattern) => EVENT_KINDS.some((kind) => matchesKindPattern(pattern, kind)), {
  error: ({ input }) => `No event kind is called ${String(input)}. ${suggestEventKind(String(input))}`,
});

function suggestEventKind(text: string): string {
  const normalizedKind = text.toLowerCase().replaceAll(/[_. ]/g, "-");
  const kindPrefix = normalizedKind.replace(/s?-?\*?$/, "");
  if (EVENT_KINDS.some((kind) => kind.startsWith(`${kindPrefix}-`))) return `Write ${kindPrefix}-* for all of them.`;
  const closestKind = findClosestWord(normalizedKind, EVENT_KINDS);
  if (closestKind !== undefined) return `Did you mean ${closestKind}? A pattern such as alarm-* is fine too.`;
  return `Write a kind or a pattern such as alarm-*; the kinds are ${EVENT_KINDS.join(", ")}.`;
}

/** Selects the events of a sink. An empty or missing field of the filter passes all events. */
export const SinkEventFilter = z
  .strictObject({
    kinds: z
      .array(EventKindPattern)
      .default([])
      .meta({ description: "Event kinds, or patterns: alarm-raised, alarm-*, tag-*." }),
    sites: z
      .array(
        z
          .union([z.int(), z.string().regex(/^\d+$/, "Write the site's id, a number; `plenum sites` lists them.")])
          .transform(String),
      )
      .prefault([])
      .meta({ description: "Site ids. Excludes events that belong to no single site." }),
    priorities: z
      .array(z.string().regex(/^[A-Z]$/, "Write a priority as one capital letter: A, B or C."))
      .default([])
      .meta({ description: "Alarm priorities: A, B, C. Excludes events without a priority." }),
    sources: z
      .array(z.string())
      .default([])
      .meta({ description: "Names of sources. Excludes the worker's own events." }),
  })
  .meta({ description: "Events that the sink receives." });

export type SinkEventFilter = z.infer<typeof SinkEventFilter>;

export function matchesFilter(filter: SinkEventFilter, event: Event): boolean {
  return (
    matchesEventKinds(filter, event.type) &&
    isEmptyOrSome(filter.sites, (site) => event.siteid === site) &&
    isEmptyOrSome(filter.priorities, (priority) => event.priority === priority) &&
    isEmptyOrSome(filter.sources, (name) => event.source === `/sources/${name}`)
  );
}

/** True for a heartbeat older than its interval: after a day, a sink gets one heartbeat and not 1,440. */
export function isOutdatedHeartbeat(event: Event, nowMs: number): boolean {
  const { type, data, time } = event as AnyEvent;
  return type === "worker-alive" && nowMs - Date.parse(time) > data.intervalSeconds * 1_000;
}

export function passesAllEvents(filter: SinkEventFilter): boolean {
  return Object.values(filter).every((list) => list.length === 0);
}

export function lagFiltersBySink(
  sinks: Iterable<readonly [name: string, filter: SinkEventFilter]>,
): ReadonlyMap<string, LagFilter> {
  const restrictingFilters = [...sinks].filter(([, filter]) => !passesAllEvents(filter));
  return new Map(restrictingFilters.map(([name, filter]) => [name, buildLagFilter(filter)]));
}

function buildLagFilter(filter: SinkEventFilter): LagFilter {
  const hasPriority = (kind: EventKind) => kind.startsWith("alarm-");
  return {
    kinds: EVENT_KINDS.filter(
      (kind) => matchesEventKinds(filter, kind) && (filter.priorities.length === 0 || hasPriority(kind)),
    ),
    kindsOnly: passesAllEvents({ ...filter, kinds: [] }),
    matches: (event) => matchesFilter(filter, event),
  };
}

function isEmptyOrSome<T>(list: readonly T[], predicate: (entry: T) => boolean): boolean {
  return list.length === 0 || list.some(predicate);
}

const kindMatchCache = new WeakMap<SinkEventFilter["kinds"], Map<EventKind, boolean>>();

function matchesEventKinds({ kinds }: SinkEventFilter, kind: EventKind): boolean {
  const matchByKind = kindMatchCache.get(kinds) ?? new Map<EventKind, boolean>();
  kindMatchCache.set(kinds, matchByKind);
  const isKindSelected = matchByKind.get(kind) ?? isEmptyOrSome(kinds, (pattern) => matchesKindPattern(pattern, kind));
  matchByKind.set(kind, isKindSelected);
  return isKindSelected;
}

/** Only `*` is special in a pattern; a kind has small letters and hyphens only. */
function matchesKindPattern(pattern: string, kind: EventKind): boolean {
  return /^[a-z*-]+$/.test(pattern) && globMatches(pattern, kind);
}
