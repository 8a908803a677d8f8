import { DateTime } from "luxon";
import { z } from "zod";
import type { Incident, IncidentGroupMember, IncidentText } from "./receiver-interface.ts";

const ENGLISH_MESSAGE_PHRASES = {
  active: "Active",
  acknowledged: "Acknowledged",
  recovering: "Recovering",
  unknown: "State unknown",
  resolved: "Resolved",
  test: "Test",
  site: "Site",
  priority: "Priority",
  since: "Since",
  ended: "Ended",
  lasted: "Lasted",
  description: "Description",
  acknowledgedBy: "Acknowledged by",
  message: "Message",
  gateway: "Gateway offline",
  value: "Value",
  valuesUntil: "Values until {time}",
  last: "last {value}",
  gatewayOffline: "Gateway {gateway} is offline: {active} of {total} alarms active",
  storm: "{total} alarms at {site}, {active} active",
  severalSites: "several sites",
  more: "and {count} more",
  vanished: "The service does not show the alarm any more and does not say that it is over.",
  outOfScope: "The token no longer sees the site, so it is unknown whether the alarm is over.",
  openPage: "Open in Plenum",
  testTitle: "Test alarm from Plenum; no building is concerned",
};

export type MessagePhraseName = keyof typeof ENGLISH_MESSAGE_PHRASES;
export type MessagePhrases = Readonly<Record<MessagePhraseName, string>>;

const NORWEGIAN_MESSAGE_PHRASES: MessagePhrases = {
  active: "Aktiv",
  acknowledged: "Kvittert",
  recovering: "Normaliseres",
  unknown: "Tilstand ukjent",
  resolved: "Løst",
  test: "Test",
  site: "Bygg",
  priority: "Prioritet",
  since: "Siden",
  ended: "Slutt",
  lasted: "Varighet",
  description: "Beskrivelse",
  acknowledgedBy: "Kvittert av",
  message: "Melding",
  gateway: "Gateway frakoblet",
  value: "Verdi",
  valuesUntil: "Verdier til {time}",
  last: "sist {value}",
  gatewayOffline: "Gateway {gateway} er frakoblet: {active} av {total} alarmer aktive",
  storm: "{total} alarmer i {site}, {active} aktive",
  severalSites: "flere bygg",
  more: "og {count} til",
  vanished: "Tjenesten viser ikke alarmen lenger og sier ikke at den er over.",
  outOfScope: "Bygget er ikke synlig, så ingen vet om alarmen er over.",
  openPage: "Åpne i Plenum",
  testTitle: "Testalarm fra Plenum; ingen bygg er berørt",
};

export const MESSAGE_LANGUAGES = ["en", "no"] as const;
type MessageLanguage = (typeof MESSAGE_LANGUAGES)[number];

const PHRASES_BY_LANGUAGE: Readonly<Record<MessageLanguage, MessagePhrases>> = {
  en: ENGLISH_MESSAGE_PHRASES,
  no: NORWEGIAN_MESSAGE_PHRASES,
};

const MESSAGE_PHRASE_NAMES = Object.keys(ENGLISH_MESSAGE_PHRASES) as [MessagePhraseName, ...MessagePhraseName[]];

export const CustomMessagePhrases = z
  .partialRecord(z.enum(MESSAGE_PHRASE_NAMES), z.string().min(1).max(200))
  .superRefine((phrases, context) => {
    for (const [name, text] of Object.entries(phrases)) {
      const placeholders = listPlaceholders(ENGLISH_MESSAGE_PHRASES[name as MessagePhraseName]);
      const unknownPlaceholder = listPlaceholders(text).find((placeholder) => !placeholders.includes(placeholder));
      if (unknownPlaceholder === undefined) continue;
      const names = placeholders.map((placeholder) => `{${placeholder}}`).join(", ") || "none";
      const message = `There is no {${unknownPlaceholder}} in this text; it has ${names}.`;
      context.addIssue({ code: "custom", path: [name], message });
    }
  });

export function chooseMessagePhrases(
  language: MessageLanguage,
  customPhrases: Readonly<Partial<Record<MessagePhraseName, string>>>,
): MessagePhrases {
  return { ...PHRASES_BY_LANGUAGE[language], ...customPhrases };
}

export const fillPlaceholders = (text: string, values: Readonly<Record<string, string | number>>): string =>
  text.replaceAll(/\{(\w+)\}/g, (placeholder, name: string) => String(values[name] ?? placeholder));

const listPlaceholders = (text: string) => [...text.matchAll(/\{(\w+)\}/g)].map(([, name]) => name ?? "");

export function buildIncidentText(incident: Incident, phrases: MessagePhrases, timeZone: string): IncidentText {
  const formatLocalTime = (time: string) => formatTimeInZone(time, timeZone);
  const { alarm, gateway, members } = incident;
  const labelledFields: IncidentText["fields"][number][] = [];
  const addTextField = (label: string, text: string | null | undefined) => {
    const lines = (text ?? "").split(LINE_BREAK_PATTERN).map(toOneLine);
    const cleanedText = lines.filter((line) => line !== "").join("\n");
    if (cleanedText !== "") labelledFields.push({ label: toOneLine(label), text: cleanedText });
  };
  if (incident.site !== null) addTextField(phrases.site, incident.site.displayName);
  addTextField(phrases.priority, incident.priority);
  addTextField(phrases.since, formatLocalTime(incident.startedAt));
  if (incident.status === "resolved" && incident.endedAt !== null) {
    addTextField(phrases.ended, formatLocalTime(incident.endedAt));
    addTextField(phrases.lasted, formatDuration(incident.startedAt, incident.endedAt));
  }
  if (alarm !== null) {
    if (alarm.description !== formatAlarmTitle(alarm)) addTextField(phrases.description, alarm.description);
    const { description } = alarm.trigger;
    // The alarm's description often contains the description of its trigger already.
    if (description !== null && !alarm.description.includes(description))
      addTextField(phrases.description, description);
    const { lastActiveEvent } = alarm;
    const value = lastActiveEvent?.textlistValue ?? lastActiveEvent?.value;
    if (lastActiveEvent !== null && value !== null && value !== undefined)
      addTextField(phrases.value, `${lastActiveEvent.triggeredOn}: ${value}`);
    if (alarm.acknowledged) {
      addTextField(phrases.acknowledgedBy, alarm.acknowledgedBy ?? "?");
      addTextField(phrases.message, alarm.acknowledgedMessage);
    }
    if (gateway !== null) addTextField(phrases.gateway, gateway.displayName);
  }
  if (incident.change === "vanished") addTextField(phrases.unknown, phrases.vanished);
  if (incident.change === "out-of-scope") addTextField(phrases.unknown, phrases.outOfScope);
  const hiddenMemberCount = members.total - members.shown.length;
  return {
    title: formatIncidentTitle(incident, phrases),
    status: toOneLine(phrases[incident.status]),
    fields: labelledFields,
    list: [
      ...members.shown.map((member) => formatMemberLine(member, phrases, formatLocalTime)),
      ...(hiddenMemberCount > 0 ? [toOneLine(fillPlaceholders(phrases.more, { count: hiddenMemberCount }))] : []),
    ],
    timeSeriesLines: [],
    linkText: toOneLine(phrases.openPage),
  };
}

function formatIncidentTitle(incident: Incident, phrases: MessagePhrases): string {
  const { alarm, gateway, members, site } = incident;
  if (incident.kind === "test") return toOneLine(phrases.testTitle);
  const { active, total } = members;
  if (incident.kind === "gateway")
    return toOneLine(fillPlaceholders(phrases.gatewayOffline, { gateway: gateway?.displayName ?? "?", active, total }));
  const siteName = site?.displayName ?? phrases.severalSites;
  if (alarm === null) return toOneLine(fillPlaceholders(phrases.storm, { site: siteName, active, total }));
  return toOneLine(`${formatAlarmTitle(alarm)}, ${alarm.site.displayName}`);
}

const formatAlarmTitle = (alarm: NonNullable<Incident["alarm"]>): string =>
  toOneLine(alarm.trigger.displayName || alarm.description || alarm.id);

function formatMemberLine(
  member: IncidentGroupMember,
  phrases: MessagePhrases,
  formatTime: (time: string) => string,
): string {
  const timeSpan = [member.startedAt, member.endedAt]
    .filter((time) => time !== null)
    .map(formatTime)
    .join(" – ");
  return toOneLine(`${member.priority} ${member.title} (${phrases[member.status]}, ${timeSpan})`);
}

export function formatTimeInZone(time: string, timeZone: string): string {
  if (!time.endsWith("Z")) return time;
  const localTime = DateTime.fromISO(time, { zone: timeZone });
  return localTime.isValid ? localTime.toFormat("yyyy-MM-dd HH:mm:ss ZZ") : time;
}

/** Formats a duration, e.g. `2 d 3 h`, `3 h 12 min`, `48 s`; empty if a time has no offset. */
export function formatDuration(from: string, to: string): string {
  const durationSeconds = Math.round((Date.parse(to) - Date.parse(from)) / 1_000);
  if (!from.endsWith("Z") || !to.endsWith("Z") || !(durationSeconds >= 0)) return "";
  const durationUnitCounts = [
    [Math.floor(durationSeconds / 86_400), "d"],
    [Math.floor(durationSeconds / 3_600) % 24, "h"],
    [Math.floor(durationSeconds / 60) % 60, "min"],
    [durationSeconds % 60, "s"],
  ] as const;
  const firstNonZeroUnitIndex = durationUnitCounts.findIndex(([count]) => count > 0);
  if (firstNonZeroUnitIndex < 0) return "0 s";
  return durationUnitCounts
    .slice(firstNonZeroUnitIndex, firstNonZeroUnitIndex + 2)
    .filter(([count]) => count > 0)
    .map(([count, unit]) => `${count} ${unit}`)
    .join(" ");
}

const LINE_BREAK_PATTERN = /\r\n|[\n\v\f\r\u0085\u2028\u2029]/;

/** Invisible characters and those that change the reading direction, except the joiner and selector of emoji. */
const INVISIBLE_CHARACTERS = /(?![\u200d\ufe0f])[\p{Cf}\p{Default_Ignorable_Code_Point}]/gu;

export function toOneLine(text: string): string {
  const printableText = text.toWellFormed().replaceAll(/[\p{Cc}\p{Zl}\p{Zp}]+/gu, " ");
  return printableText.replaceAll(INVISIBLE_CHARACTERS, "").trim();
}

/** Returns copies of a text with fewer and fewer time series, from all to none. The last copy has no heading. */
export function listTextsWithFewerTimeSeries<T extends Pick<IncidentText, "timeSeriesLines">>(text: T): readonly T[] {
  const shorterTexts = text.timeSeriesLines
    .slice(1)
    .map((_, n) => ({ ...text, timeSeriesLines: text.timeSeriesLines.slice(0, n + 2) }));
  return [...shorterTexts.toReversed(), { ...text, timeSeriesLines: [] }];
}

/** Minimum length of a shortened text in UTF-16 units. Shorter texts are omitted. */
const MIN_SHORTENED_TEXT_LENGTH = 30;

/** Drops time series line by line until the message fits, then halves all texts: 4,000, 2,000, 1,000, … 31, 0. */
export function shortenUntilFits<T>(
  text: IncidentText,
  maxLength: number,
  render: (text: IncidentText) => T,
  isShortEnough: (rendered: T) => boolean,
): T {
  for (const textWithFewerTimeSeries of listTextsWithFewerTimeSeries(text)) {
    const renderedMessage = render(shortenTexts(textWithFewerTimeSeries, maxLength));
    if (isShortEnough(renderedMessage)) return renderedMessage;
  }
  const textWithoutTimeSeries = { ...text, timeSeriesLines: [] };
  for (let length = maxLength / 2; length > MIN_SHORTENED_TEXT_LENGTH; length /= 2) {
    const renderedMessage = render(shortenTexts(textWithoutTimeSeries, Math.floor(length)));
    if (isShortEnough(renderedMessage)) return renderedMessage;
  }
  return render(shortenTexts(textWithoutTimeSeries, 0));
}

function shortenTexts(text: IncidentText, maxLength: number): IncidentText {
  const shortenLabel = (label: string) => cutText(label, Math.max(maxLength, 50));
  return {
    title: shortenLabel(text.title),
    status: shortenLabel(text.status),
    fields: text.fields.map((field) => ({ label: shortenLabel(field.label), text: cutText(field.text, maxLength) })),
    list: text.list.map((line) => cutText(line, maxLength)),
    timeSeriesLines: text.timeSeriesLines,
    linkText: shortenLabel(text.linkText),
  };
}

/** Text segmenter, created on first use: creating it takes 10 ms, which would delay every CLI command. */
let graphemeSegmenter: Intl.Segmenter | undefined;

/** Shortens a text to a number of UTF-16 units, between visible characters, and adds … if shortened. */
export const cutText = (text: string, maxLength: number): string =>
  shortenToSize(text, maxLength, (textPart) => textPart.length);

export const cutTextToBytes = (text: string, maxBytes: number): string =>
  shortenToSize(text, maxBytes, (textPart) => Buffer.byteLength(textPart));

export const escapeHtml = (text: string): string =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

function shortenToSize(text: string, maxTextSize: number, measureSize: (textPart: string) => number): string {
  if (measureSize(text) <= maxTextSize) return text;
  const maxSize = maxTextSize - measureSize("…");
  let shortenedText = "";
  let shortenedSize = 0;
  graphemeSegmenter ??= new Intl.Segmenter(undefined, { granularity: "grapheme" });
  // Segment only the part that can remain; a text may have megabytes.
  for (const { segment } of graphemeSegmenter.segment(text.slice(0, maxTextSize + 64))) {
    shortenedSize += measureSize(segment);
    if (shortenedSize > maxSize) break;
    shortenedText += segment;
  }
  return maxSize < 0 ? "" : `${shortenedText}…`;
}

/** Maximum number of texts in one cache. A text has about 2 kB. */
const MAX_CACHED_TEXTS = 1_000;

/** Creates a cache that all sinks of a worker share, because they share the building view. */
export function createSharedTextCache<T>() {
  const textCacheByBuildingView = new WeakMap<object, Map<string, T>>();
  return (buildingView: object, key: string, create: () => T, isCurrent: (cached: T) => boolean = () => true): T => {
    const texts = textCacheByBuildingView.get(buildingView) ?? new Map<string, T>();
    textCacheByBuildingView.set(buildingView, texts);
    const cachedText = texts.get(key);
    if (cachedText !== undefined && isCurrent(cachedText)) return cachedText;
    const text = create();
    texts.set(key, text);
    const [oldestKey] = texts.keys();
    if (texts.size > MAX_CACHED_TEXTS && oldestKey !== undefined) texts.delete(oldestKey);
    return text;
  };
}

const getSharedIncidentText = createSharedTextCache<IncidentText>();

export function getCachedIncidentText(
  buildingView: object,
  incident: Incident,
  phrases: MessagePhrases,
  timeZone: string,
) {
  const { change, kind, status, site, priority, startedAt, endedAt, alarm, gateway, members } = incident;
  const unknownStatusReason = change === "vanished" || change === "out-of-scope" ? change : null;
  const key = JSON.stringify([
    ...[phrases, timeZone, kind, status, unknownStatusReason, site, priority],
    ...[startedAt, endedAt, alarm, gateway, members],
  ]);
  return getSharedIncidentText(buildingView, key, () => buildIncidentText(incident, phrases, timeZone));
}
