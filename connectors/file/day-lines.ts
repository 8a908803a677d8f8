import { type AnyEvent, type Event, toCloudEvent } from "../../src/event.ts";
import { cloudEventTexts, historyText } from "../../src/history-event.ts";
import { PointReader } from "../../src/point-reader.ts";
import { type Sequence, sequenceAttributes } from "../../src/sequence.ts";
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
  const days =
    event.type === "tag-history" ? pointsByDay(event as Event<"tag-history">) : new Map<string, string[]>();
  const [only] = days.keys();
  if (days.size <= 1) {
    return [{ date: only ?? dayOf(timeOf(event as AnyEvent)), texts: cloudEventTexts(event, numbered) }];
  }
  const { fact } = historyText(event as Event<"tag-history">);
  const { origin, revised, ...before } = fact;
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
function pointsByDay(event: Event<"tag-history">): Map<string, string[]> {
  const days = new Map<string, string[]>();
  let date = "";
  let points: string[] = [];
  for (const reader = new PointReader(historyText(event).points); reader.next(); ) {
    const { time, value } = reader;
    if (date === "" || !time.startsWith(date)) {
      date = dayOf(time);
      points = days.get(date) ?? [];
      days.set(date, points);
    }
    points.push(`{"time":${JSON.stringify(time)},"value":${value}}`);
  }
  return days;
}

/** The event without a look at its data, which may have to be parsed for it first. */
function withoutData(event: Event): Event {
  const names = Object.keys(event).filter((name) => name !== "data") as (keyof Event)[];
  return Object.fromEntries(names.map((name) => [name, event[name]])) as unknown as Event;
}
