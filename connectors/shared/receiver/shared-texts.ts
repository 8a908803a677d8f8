import type { Incident } from "./incident.ts";
import type { Vocabulary } from "./phrases.ts";
import { type IncidentText, textOf } from "./text.ts";

/** Texts that are kept, about 2 kB each: receivers of different speeds send the same change at different times. */
const MOST_TEXTS = 1_000;

/** Texts by all that they are made of. */
type Texts = Map<string, IncidentText>;

/** The sinks of one worker have one picture of the building, and so one set of texts. */
const textsOf = new WeakMap<object, Texts>();

/**
 * The text of an incident, without its curves. It is made once for all receivers with the same words and time zone, and
 * only from what is in its key, so that the same key always means the same text. `owner`: what those receivers share.
 */
export function sharedText(
  owner: object,
  incident: Incident,
  words: Vocabulary,
  timeZone: string,
): IncidentText {
  const texts = textsOf.get(owner) ?? new Map<string, IncidentText>();
  textsOf.set(owner, texts);
  const { kind, status, site, priority, startedAt, endedAt, alarm, gateway, members } = incident;
  const { change } = incident;
  const doubt = change === "vanished" || change === "out-of-scope" ? change : null;
  const key = JSON.stringify([
    ...[keyOfWords(words), timeZone, kind, status, doubt, site, priority],
    ...[startedAt, endedAt, alarm, gateway, members],
  ]);
  const known = texts.get(key);
  if (known !== undefined) return known;
  const text = textOf(incident, words, timeZone);
  texts.set(key, text);
  const [oldest] = texts.keys();
  if (texts.size > MOST_TEXTS && oldest !== undefined) texts.delete(oldest);
  return text;
}

const wordKeys = new WeakMap<Vocabulary, string>();

function keyOfWords(words: Vocabulary): string {
  const known = wordKeys.get(words);
  if (known !== undefined) return known;
  const key = JSON.stringify(words);
  wordKeys.set(words, key);
  return key;
}
