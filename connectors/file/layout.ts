import { cloudEventTexts, historyText } from "../../src/core/codec/history-event.ts";
import { dayTexts } from "../../src/core/codec/point-text.ts";
import { type AnyEvent, type Event, toCloudEvent } from "../../src/core/model/event.ts";
import { type Sequence, sequenceAttributes } from "../../src/core/model/sequence.ts";

/** What a path is made of. */
export interface PathParts {
  readonly kind: string;
  /** Null for what is about no single site. */
  readonly site: string | null;
  /** `2026-11-02`, UTC. */
  readonly date: string;
}

/** What stands in a path for "belongs to no site", as in the topics of `mqtt`. */
const NO_SITE = "_";

const PLACEHOLDERS = ["kind", "site", "date"] as const;

/** What is wrong with a template of folders; null when nothing is. */
export function templateComplaint(template: string): string | null {
  const levels = template.split("/");
  if (levels.some((level) => !/^([A-Za-z0-9_=.-]|\{[a-z]+\})+$/.test(level) || /^\.+$/.test(level))) {
    return "Write folders with `/` between them, of letters, digits, `_`, `=`, `.`, `-` and {kind}, {site}, {date}.";
  }
  const names = [...template.matchAll(/\{([a-z]+)\}/g)].map(([, name]) => name);
  const unknown = names.find((name) => !PLACEHOLDERS.some((known) => known === name));
  if (unknown !== undefined) return `There is no {${unknown}}; use {kind}, {site} and {date}.`;
  return names.includes("date") ? null : "Put {date} into it, so that a day can be read by itself.";
}

/** The folder of a place: `{kind}/{site}/{date}` becomes `tag-value/1/2026-11-02`. */
export function folderOf(template: string, { kind, site, date }: PathParts): string {
  const parts = { kind, site: site === null ? NO_SITE : encodedId(site), date };
  return template.replaceAll(/\{(kind|site|date)\}/g, (_, name: keyof typeof parts) => parts[name]);
}

/** An id as a part of a path: what a file system may take for something else is written as `%XX` (UTF-8). */
function encodedId(id: string): string {
  const text = id.toWellFormed().slice(0, 100);
  const coded = encodeURIComponent(text).replaceAll(/[!'()*~]/g, (letter) => percent(letter));
  if (coded === "") return "~";
  return /^(\.+|_)$/.test(coded) ? [...coded].map(percent).join("") : coded;
}

function percent(letter: string): string {
  return `%${letter.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`;
}

/** The day that a time says; `unknown` where it is no time of the usual form. */
export function dayOf(time: string): string {
  return /^\d{4}-\d{2}-\d{2}/.exec(time)?.[0] ?? "unknown";
}

/** A line, and the day that it belongs to. */
interface DayLine {
  readonly date: string;
  /** Without its line break, in parts. */
  readonly texts: readonly string[];
}

/**
 * The lines of an event by the day (UTC) of what it tells: of a value the day of the reading, of a total the day on which its period
 * begins, of history the day of each point. History of several days becomes a line for each, with the same id, its place among them and their number
 * (`part`, `parts`); together they are the event.
 */
export function dayLines(event: Event, sequence: Sequence | null | undefined): readonly DayLine[] {
  const numbered = sequenceAttributes(sequence);
  const history = event.type === "tag-history" ? historyText(event as Event<"tag-history">) : null;
  const days = history === null ? new Map<string, string[]>() : pointsByDay(history.points);
  const [only] = days.keys();
  if (history === null || days.size <= 1) {
    return [{ date: only ?? dayOf(timeOf(event as AnyEvent)), texts: cloudEventTexts(event, numbered) }];
  }
  const { origin, revised, ...before } = history.fact;
  const attributes = toCloudEvent(withoutData(event), numbered);
  return [...days].map(([date, points], index) => {
    const head = JSON.stringify({ ...attributes, part: index + 1, parts: days.size });
    const texts = [
      `${head.slice(0, -1)},"data":${JSON.stringify(before).slice(0, -1)},"points":[`,
      points.join(","),
      `],${JSON.stringify({ origin, revised }).slice(1)}}`,
    ];
    return { date, texts };
  });
}

/** A total is about the period that begins then; its own time is the end of that, often midnight of the next day. */
function timeOf(event: AnyEvent): string {
  return event.type === "tag-total" ? event.data.from : event.time;
}

/** The points of each day as JSON, in their order. */
function pointsByDay(points: string): Map<string, string[]> {
  const days = new Map<string, string[]>();
  for (const { time, text } of dayTexts(points)) {
    const date = dayOf(time);
    const texts = days.get(date);
    if (texts === undefined) days.set(date, [text]);
    else texts.push(text);
  }
  return days;
}

/** The event without a look at its data, which may have to be parsed for it first. */
function withoutData(event: Event): Event {
  const names = Object.keys(event).filter((name) => name !== "data") as (keyof Event)[];
  return Object.fromEntries(names.map((name) => [name, event[name]])) as unknown as Event;
}
