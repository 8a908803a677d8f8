import { type EventKind, isUrgentKind } from "#src/core/model/event.ts";
import {
  ENDS,
  type Evidence,
  type LoggedEvent,
  type ReceivedEvent,
  summarizeTexts,
  type Verdict,
} from "../evidence.ts";

export function judgeEvents(evidence: Evidence): Verdict {
  const places = new Map(evidence.log.map((event) => [event.id, event]));
  const problems: string[] = [];
  const figures: [string, string][] = [["events in the log", String(evidence.log.length)]];
  for (const end of ENDS) {
    const told = evidence.told.filter((each) => each.end === end);
    const ids = new Set(told.map(({ id }) => id));
    const lost = evidence.log
      .filter(({ id, source, position }) => position <= (evidence.due.get(source) ?? 0) && !ids.has(id))
      .map(({ id, source, position }) => `${source} ${position} ${id}`);
    if (lost.length > 0) problems.push(`${lost.length} events never reached the ${end}: ${summarizeTexts(lost)}`);
    const strange = [...ids].filter((id) => !places.has(id));
    if (strange.length > 0)
      problems.push(`${strange.length} events at the ${end} were never committed: ${summarizeTexts(strange)}`);
    const { again, altered } = repetitions(told);
    if (altered.length > 0)
      problems.push(`${altered.length} came again at the ${end} with another content: ${summarizeTexts(altered)}`);
    const disorder = outOfOrder(told, places);
    if (disorder.length > 0)
      problems.push(`${disorder.length} events out of order at the ${end}: ${summarizeTexts(disorder)}`);
    figures.push([`events at the ${end}, and again`, `${ids.size}, ${again}`]);
  }
  return { problems, figures };
}

function repetitions(told: readonly ReceivedEvent[]): { readonly again: number; readonly altered: readonly string[] } {
  const seen = new Map<string, string>();
  const altered: string[] = [];
  let repeatedCount = 0;
  for (const { id, key, digest } of told) {
    const one = `${key} ${id}`;
    const before = seen.get(one);
    if (before === undefined) seen.set(one, digest);
    else {
      repeatedCount += 1;
      if (before !== digest) altered.push(one);
    }
  }
  return { again: repeatedCount, altered };
}

function outOfOrder(told: readonly ReceivedEvent[], places: ReadonlyMap<string, LoggedEvent>): readonly string[] {
  const seen = new Set<string>();
  const last = new Map<string, number>();
  const wrong: string[] = [];
  for (const { id, key } of told) {
    const one = `${key} ${id}`;
    const place = places.get(id);
    if (seen.has(one) || place === undefined) continue;
    seen.add(one);
    const [type = ""] = id.split(".");
    const order = `${place.source} ${key} ${isUrgentKind(type as EventKind)}`;
    const before = last.get(order) ?? 0;
    if (place.position < before) wrong.push(`${one} (${place.position} after ${before})`);
    last.set(order, Math.max(place.position, before));
  }
  return wrong;
}
