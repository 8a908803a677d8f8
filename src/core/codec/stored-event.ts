import type { Event } from "../model/event.ts";
import { historyIn, storedHistory } from "./history-event.ts";
import { packedText, unpacked } from "./packed-value.ts";

export function eventText(event: Event): string {
  return storedHistory(event) ?? packedText(event) ?? JSON.stringify(event);
}

export function eventIn(text: string): Event {
  return historyIn(text) ?? unpacked(JSON.parse(text));
}
