import { DateTime } from "luxon";
import { filled, type Vocabulary } from "./phrases.ts";
import type { Incident, IncidentText, Member } from "./receiver.ts";

/** Returns the text of an incident with times in the time zone of the site. */
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
    // The service often repeats the description after the name of the trigger.
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
  const when = member.endedAt === null ? at(member.startedAt) : `${at(member.startedAt)} – ${at(member.endedAt)}`;
  return oneLine(`${member.priority} ${member.title} (${words[member.status]}, ${when})`);
}

/** Formats a time with its offset. Returns a time without an offset unchanged. */
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

/** Returns variants of the text with all time series, with fewer, and with none. */
export function withFewerTimeSeries<T extends Pick<IncidentText, "curves">>(text: T): readonly T[] {
  return text.curves
    .map((_, gone) => text.curves.slice(0, text.curves.length - gone))
    .filter((curves) => curves.length > 1)
    .concat([[]])
    .map((curves) => ({ ...text, curves }));
}

/** Created on first use, because it takes 10 ms that every CLI command would pay. */
let segmenter: Intl.Segmenter | undefined;

/**
 * Shortens to at most `most` UTF-16 units between visible characters and adds … when something is missing.
 */
export function cut(text: string, most: number): string {
  return cutTo(text, most, (part) => part.length);
}

/** Like `cut`, in bytes of UTF-8. */
export function cutBytes(text: string, most: number): string {
  return cutTo(text, most, (part) => Buffer.byteLength(part));
}

function cutTo(text: string, most: number, sizeOf: (part: string) => number): string {
  if (sizeOf(text) <= most) return text;
  const room = most - sizeOf("…");
  let kept = "";
  let size = 0;
  segmenter ??= new Intl.Segmenter(undefined, { granularity: "grapheme" });
  // Segment only the part that can remain; a text may have megabytes.
  for (const { segment } of segmenter.segment(text.slice(0, most + 64))) {
    size += sizeOf(segment);
    if (size > room) break;
    kept += segment;
  }
  return room < 0 ? "" : `${kept}…`;
}

/** Most cached texts, about 2 kB each: receivers send the same change at different times. */
const MOST_TEXTS = 1_000;

/** Texts by the data they were made from. */
type Texts = Map<string, IncidentText>;

/** Sinks of one worker share the building view, and therefore the cache. */
const textsOf = new WeakMap<object, Texts>();

/**
 * Returns the text of an incident without time series. All receivers with the same phrases and time zone share it. The
 * key contains everything that the text depends on. `owner`: the object that these receivers share.
 */
export function cachedTextOf(owner: object, incident: Incident, words: Vocabulary, timeZone: string): IncidentText {
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
