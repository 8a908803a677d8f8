import type { Event } from "../model/event.ts";
import { historyIn, storedHistory } from "./history-event.ts";
import { packedText, unpacked } from "./packed-value.ts";

/** Converts events to the text that the log stores, and back. Frequent kinds are packed. */

/** Stored text of an event: JSON, with packed points of history and packed good values. */
export function eventText(event: Event): string {
  return storedHistory(event) ?? packedText(event) ?? JSON.stringify(event);
}

/** Parses a stored event. The data of a history event are parsed at the first access. */
export function eventIn(text: string): Event {
  return historyIn(text) ?? unpacked(JSON.parse(text));
}
