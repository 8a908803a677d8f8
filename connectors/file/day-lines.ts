import { cloudEventTexts, historyText } from "../../src/core/codec/history-event.ts";
import { dayTexts } from "../../src/core/codec/point-text.ts";
import { type AnyEvent, type Event, toCloudEvent } from "../../src/core/model/event.ts";
import { type Sequence, sequenceAttributes } from "../../src/core/model/sequence.ts";
import { dayOf } from "./layout.ts";

/** A line, and the day that it belongs to. */
export interface DayLine {
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
  const told = event.type === "tag-history" ? historyText(event as Event<"tag-history">) : null;
  const days = told === null ? new Map<string, string[]>() : pointsByDay(told.points);
  const [only] = days.keys();
  if (told === null || days.size <= 1) {
    return [{ date: only ?? dayOf(timeOf(event as AnyEvent)), texts: cloudEventTexts(event, numbered) }];
  }
  const { origin, revised, ...before } = told.fact;
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
