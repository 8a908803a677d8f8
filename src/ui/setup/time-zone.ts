import { DateTime } from "luxon";
import { type Message, message } from "./messages.ts";
import type { SeenBuilding } from "./seen.ts";

/**
 * Guesses the buildings' time zone, which the service does not state. Proposes this machine's zone when the offsets of alarm times do
 * not contradict it; a person has to confirm.
 */
export interface ZoneGuess {
  /** Null where there is none that could be right. */
  readonly proposed: string | null;
  /** A sentence, where the alarms say something about it; otherwise null. */
  readonly note: Message | null;
}

export function guessZone(seen: Pick<SeenBuilding, "offsets">, machineZone: string): ZoneGuess {
  const { offsets } = seen;
  const isPlace = machineZone.includes("/") && !machineZone.startsWith("Etc/");
  if (offsets.length === 0) return { proposed: isPlace ? machineZone : null, note: null };
  const wrong = offsets.find(({ time, minutes }) => DateTime.fromISO(time, { zone: machineZone }).offset !== minutes);
  if (wrong === undefined)
    return {
      proposed: machineZone,
      note: message("The times of the alarms fit {zone}, as this machine.", { zone: machineZone }),
    };
  const values = { day: wrong.time.slice(0, 10), offset: offsetText(wrong.minutes) };
  const note = isPlace
    ? message("An alarm of {day} has a time at {offset}, which {zone}, this machine's zone, does not have then.", {
        ...values,
        zone: machineZone,
      })
    : message("An alarm of {day} has a time at {offset}.", values);
  return { proposed: null, note };
}

function offsetText(minutes: number): string {
  const two = (number: number) => String(number).padStart(2, "0");
  const size = Math.abs(minutes);
  return `${minutes < 0 ? "-" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
}
