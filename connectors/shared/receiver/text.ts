import { DateTime } from "luxon";
import { filled, type Vocabulary } from "./phrases.ts";
import type { Incident, Member } from "./receiver.ts";

/**
 * What is to be read of an incident: plain text, neither escaped nor cut. A receiver escapes it as its format asks, so
 * that a name with markup or mentions in it is shown and never carried out, and cuts it with `cut`.
 */
export interface IncidentText {
  /** One line, without the status: it stays the same for as long as the thing is the same. */
  readonly title: string;
  /** The status in words. */
  readonly status: string;
  /** Label and text, in the order in which they are read; the texts may have several lines. */
  readonly fields: readonly { readonly label: string; readonly text: string }[];
  /** One line for each member, where there are any. */
  readonly list: readonly string[];
  /**
   * How the values went, where that is known: a line that says until when, and one for each tag. Blocks are drawn in
   * them, which stand best in letters of one width. Where something has to be left out, these are.
   */
  readonly curves: readonly string[];
  /** Words for the link. */
  readonly linkText: string;
}

/** The text of an incident; times in a zone (IANA), because people at the building read them. */
export function textOf(
  incident: Incident,
  words: Vocabulary,
  timeZone: string,
  curves: readonly string[] = [],
): IncidentText {
  const at = (time: string) => timeText(time, timeZone);
  const { alarm, gateway, members } = incident;
  const fields: IncidentText["fields"][number][] = [];
  const add = (label: string, text: string | null | undefined) => {
    const plain = text?.trim() ?? "";
    if (plain !== "") fields.push({ label, text: plain });
  };
  if (incident.site !== null) add(words.site, incident.site.displayName);
  add(words.priority, incident.priority);
  add(words.since, at(incident.startedAt));
  if (incident.status === "resolved" && incident.endedAt !== null) {
    add(words.ended, at(incident.endedAt));
    add(words.lasted, durationText(incident.startedAt, incident.endedAt));
  }
  if (alarm !== null) {
    if (alarm.description !== titleOfAlarm(alarm)) add(words.description, alarm.description);
    const { description } = alarm.trigger;
    // The service often repeats it behind the trigger's name.
    if (description !== null && !alarm.description.includes(description)) add(words.description, description);
    const { lastActiveEvent } = alarm;
    const value = lastActiveEvent?.textlistValue ?? lastActiveEvent?.value;
    if (lastActiveEvent !== null && value !== null && value !== undefined)
      add(words.value, `${lastActiveEvent.triggeredOn}: ${value}`);
    if (alarm.acknowledged) {
      add(words.acknowledgedBy, alarm.acknowledgedBy ?? "?");
      add(words.message, alarm.acknowledgedMessage);
    }
    if (gateway !== null) add(words.gateway, gateway.displayName);
  }
  if (incident.change === "vanished") add(words.unknown, words.vanished);
  if (incident.change === "out-of-scope") add(words.unknown, words.outOfScope);
  const hidden = members.total - members.shown.length;
  return {
    title: titleOf(incident, words),
    status: words[incident.status],
    fields,
    list: [
      ...members.shown.map((member) => lineOf(member, words, at)),
      ...(hidden > 0 ? [filled(words.more, { count: hidden })] : []),
    ],
    curves,
    linkText: words.openPage,
  };
}

function titleOf(incident: Incident, words: Vocabulary): string {
  const { alarm, gateway, members, site } = incident;
  if (incident.kind === "test") return words.testTitle;
  const { active, total } = members;
  if (incident.kind === "gateway")
    return oneLine(filled(words.gatewayOffline, { gateway: gateway?.displayName ?? "?", active, total }));
  if (alarm === null)
    return oneLine(filled(words.storm, { site: site?.displayName ?? words.severalSites, active, total }));
  return oneLine(`${titleOfAlarm(alarm)}, ${alarm.site.displayName}`);
}

function titleOfAlarm(alarm: NonNullable<Incident["alarm"]>): string {
  return oneLine(alarm.trigger.displayName || alarm.description || alarm.id);
}

function lineOf(member: Member, words: Vocabulary, at: (time: string) => string): string {
  const when =
    member.endedAt === null ? at(member.startedAt) : `${at(member.startedAt)} – ${at(member.endedAt)}`;
  return oneLine(`${member.priority} ${member.title} (${words[member.status]}, ${when})`);
}

/** A time as people write it, with its zone; a time without an offset as it came. */
export function timeText(time: string, timeZone: string): string {
  if (!time.endsWith("Z")) return time;
  const local = DateTime.fromISO(time, { zone: timeZone });
  return local.isValid ? local.toFormat("yyyy-MM-dd HH:mm:ss ZZ") : time;
}

/** `2 d 3 h`, `3 h 12 min`, `48 s`: the two largest parts; empty where a time has no offset. */
export function durationText(from: string, to: string): string {
  const seconds = Math.round((Date.parse(to) - Date.parse(from)) / 1_000);
  if (!from.endsWith("Z") || !to.endsWith("Z") || !(seconds >= 0)) return "";
  const parts = [
    [Math.floor(seconds / 86_400), "d"],
    [Math.floor(seconds / 3_600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"],
    [seconds % 60, "s"],
  ] as const;
  const first = parts.findIndex(([count]) => count > 0);
  if (first < 0) return "0 s";
  return parts
    .slice(first, first + 2)
    .filter(([count]) => count > 0)
    .map(([count, unit]) => `${count} ${unit}`)
    .join(" ");
}

/** Line breaks and other control characters become spaces. */
export function oneLine(text: string): string {
  return text.replaceAll(/[\p{Cc}\p{Zl}\p{Zp}]+/gu, " ").trim();
}

/** The text with all its curves, with fewer and fewer of them, and with none: they go first where there is no room. */
export function withFewerTimeSeries<T extends Pick<IncidentText, "curves">>(text: T): readonly T[] {
  return text.curves
    .map((_, gone) => text.curves.slice(0, text.curves.length - gone))
    .filter((curves) => curves.length > 1)
    .concat([[]])
    .map((curves) => ({ ...text, curves }));
}

/** Made for the first text that is cut: it takes 10 ms, which every command would need at its start. */
let segmenter: Intl.Segmenter | undefined;

/** At most so many UTF-16 units, cut between characters as people see them, with … at the end where something is missing. */
export function cut(text: string, most: number): string {
  return cutTo(text, most, (part) => part.length);
}

/** The same for bytes of UTF-8. */
export function cutBytes(text: string, most: number): string {
  return cutTo(text, most, (part) => Buffer.byteLength(part));
}

function cutTo(text: string, most: number, sizeOf: (part: string) => number): string {
  if (sizeOf(text) <= most) return text;
  const room = most - sizeOf("…");
  let kept = "";
  let size = 0;
  segmenter ??= new Intl.Segmenter(undefined, { granularity: "grapheme" });
  // Nobody cuts at more than `most` units, so the rest of a text of megabytes need not be looked at.
  for (const { segment } of segmenter.segment(text.slice(0, most + 64))) {
    size += sizeOf(segment);
    if (size > room) break;
    kept += segment;
  }
  return room < 0 ? "" : `${kept}…`;
}

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
export function cachedTextOf(
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
