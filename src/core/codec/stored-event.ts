import type { Event } from "../model/event.ts";
import { historyIn, storedHistory } from "./history-event.ts";
import { packedText, unpacked } from "./packed-value.ts";

/** Converts events to the text that the log stores, and back. Frequent kinds are packed. */

/** The event as it is stored: JSON, in which points of history and good values are packed. */
export function eventText(event: Event): string {
  return storedHistory(event) ?? packedText(event) ?? JSON.stringify(event);
}

/** The event that was stored. Of history the data are left as text until somebody looks at them. */
export function eventIn(text: string): Event {
  return historyIn(text) ?? unpacked(JSON.parse(text));
}
