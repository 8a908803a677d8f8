import { resolve } from "node:path";
import { cloudEventParts, splitHistoryEvent, splitPackedPointsByDay } from "../../src/core/codec/history-event.ts";
import { type EventNumber, sequenceAttributes } from "../../src/core/model/delivery-sequence.ts";
import { type AnyEvent, type Event, toCloudEvent } from "../../src/core/model/event.ts";

/** Folder name for events without a site, as in the topics of `mqtt`. */
const NO_SITE_FOLDER = "_";

const PATH_PLACEHOLDERS = ["kind", "site", "date"] as const;

export function findTemplateError(template: string): string | null {
  const levels = template.split("/");
  if (levels.some((level) => !/^([A-Za-z0-9_=.-]|\{[a-z]+\})+$/.test(level) || /^\.+$/.test(level)))
    return "Write folders with `/` between them, of letters, digits, `_`, `=`, `.`, `-` and {kind}, {site}, {date}.";
  const placeholderNames = [...template.matchAll(/\{([a-z]+)\}/g)].map(([, name]) => name);
  const unknownName = placeholderNames.find((name) => !PATH_PLACEHOLDERS.some((known) => known === name));
  if (unknownName !== undefined) return `There is no {${unknownName}}; use {kind}, {site} and {date}.`;
  return placeholderNames.includes("date") ? null : "Put {date} into it, so that a day can be read by itself.";
}

export function buildFolderPath(
  template: string,
  { kind, site, date }: { readonly kind: string; readonly site: string | null; readonly date: string },
): string {
  const values = { kind, site: site === null ? NO_SITE_FOLDER : encodeSiteId(site), date };
  return template.replaceAll(/\{(kind|site|date)\}/g, (_, name: keyof typeof values) => values[name]);
}

/** Returns e.g. `zgrep -hF '"subject":"site/1/tag/10042"' '/srv/events'/events-*`, also for compressed files. */
export function buildSearchCommand(
  { folder, name, path }: { readonly folder: string; readonly name: string; readonly path?: string | undefined },
  { subject, type, siteid }: Event,
): string {
  const pathParts = { kind: type, site: siteid ?? null, date: "*" };
  const subfolder = path === undefined ? "" : `${buildFolderPath(path, pathParts)}/`;
  const shellQuote = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;
  return `zgrep -hF ${shellQuote(`"subject":${JSON.stringify(subject)}`)} ${shellQuote(resolve(folder))}/${subfolder}${name}-*`;
}

function encodeSiteId(id: string): string {
  const wellFormedId = id.toWellFormed().slice(0, 100);
  const encodedId = encodeURIComponent(wellFormedId).replaceAll(/[!'()*~]/g, (letter) => percentEncode(letter));
  if (encodedId === "") return "~";
  return /^(\.+|_)$/.test(encodedId) ? [...encodedId].map(percentEncode).join("") : encodedId;
}

const percentEncode = (letter: string): string =>
  `%${letter.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`;

const parseDay = (time: string): string => /^\d{4}-\d{2}-\d{2}/.exec(time)?.[0] ?? "unknown";

/** Splits an event into lines by UTC day. History of several days becomes one line a day with `part` and `parts`. */
export function splitIntoDayLines(event: Event, sequence: EventNumber | null | undefined) {
  const sequenceFields = sequenceAttributes(sequence);
  const history = event.type === "tag-history" ? splitHistoryEvent(event as Event<"tag-history">) : null;
  const days = history === null ? new Map<string, string[]>() : groupPointsByDay(history.points);
  const [firstDay] = days.keys();
  if (history === null || days.size <= 1) {
    const { type, data, time } = event as AnyEvent;
    // The time of a total is the end of its period, often midnight of the next day.
    const date = firstDay ?? parseDay(type === "tag-total" ? data.from : time);
    return [{ date, texts: cloudEventParts(event, sequenceFields) }];
  }
  const { origin, revised, ...seriesFields } = history.fact;
  const eventAttributes = toCloudEvent(copyWithoutData(event), sequenceFields);
  return [...days].map(([date, points], index) => {
    const attributesJson = JSON.stringify({ ...eventAttributes, part: index + 1, parts: days.size });
    const lineStart = `${attributesJson.slice(0, -1)},"data":${JSON.stringify(seriesFields).slice(0, -1)},"points":[`;
    return { date, texts: [lineStart, points.join(","), `],${JSON.stringify({ origin, revised }).slice(1)}}`] };
  });
}

function groupPointsByDay(points: string): Map<string, string[]> {
  const days = new Map<string, string[]>();
  for (const { time, text } of splitPackedPointsByDay(points)) {
    const date = parseDay(time);
    const texts = days.get(date) ?? [];
    texts.push(text);
    days.set(date, texts);
  }
  return days;
}

/** Copies an event without `data`, whose getter may have to parse. */
function copyWithoutData(event: Event): Event {
  const names = Object.keys(event).filter((name) => name !== "data") as (keyof Event)[];
  return Object.fromEntries(names.map((name) => [name, event[name]])) as unknown as Event;
}
