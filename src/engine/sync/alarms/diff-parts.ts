import type { AlarmFact } from "../../../core/model/event.ts";
import type { AlarmDiff } from "./diff-alarms.ts";

/**
 * Cuts a difference into parts of so many alarms. The document and the events of an alarm stay together, and events keep
 * their order. There is always a last part.
 */
export function* inParts({ put, events }: AlarmDiff, size: number) {
  const toldOf = Map.groupBy(events, (event) => (event.data as AlarmFact).alarm.id);
  const ids = [...new Set([...toldOf.keys(), ...put.keys()])];
  for (let from = 0; from === 0 || from < ids.length; from += size) {
    const part = ids.slice(from, from + size);
    const held = part.flatMap((id) => {
      const known = put.get(id);
      return known === undefined ? [] : [[id, known] as const];
    });
    const told = part.flatMap((id) => toldOf.get(id) ?? []);
    yield { put: held, events: told, isLast: from + size >= ids.length };
  }
}
