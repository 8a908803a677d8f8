import { resolve } from "node:path";
import { cloudEventParts, splitHistoryEvent, splitPackedPointsByDay } from "../../src/core/codec/history-event.ts";
import { type EventNumber, sequenceAttributes } from "../../src/core/model/delivery-sequence.ts";
import { type AnyEvent, type Event, toCloudEvent } from "../../src/core/model/event.ts";

const NO_SITE_FOLDER = "_";

const PATH_PLACEHOLDERS = ["kind", "site", "date"] as const;

export function findPathTemplateError(template: string): string | null {
  const pathLevels = template.split("/");
  if (pathLevels.some((level) => !/^([A-Za-z0-9_=.-]|\{[a-z]+\})+$/.test(level) || /^\.+$/.test(level)))
    return "Write folders with `/` between them, of letters, digits, `_`, `=`, `.`, `-` and {kind}, {site}, {date}.";
  const placeholderNames = [...template.matchAll(/\{([a-z]+)\}/g)].map(([, name]) => name);
  const unknownPlaceholder = placeholderNames.find(
    (name) => !PATH_PLACEHOLDERS.some((placeholder) => placeholder === name),
  );
  if (unknownPlaceholder !== undefined) return `There is no {${unknownPlaceholder}}; use {kind}, {site} and {date}.`;
  return placeholderNames.includes("date") ? null : "Put {date} into it, so that a day can be read by itself.";
}

export function buildEventFolderPath(
  template: string,
  { kind, site, date }: { readonly kind: string; readonly site: string | null; readonly date: string },
): string {
  const pathValues = { kind, site: site === null ? NO_SITE_FOLDER : encodeSiteId(site), date };
  return template.replaceAll(/\{(kind|site|date)\}/g, (_, name: keyof typeof pathValues) => pathValues[name]);
}

/** Returns a command that searches the files (also `.gz`): `zgrep -hF '"subject":"site/1/tag/7"' '/srv'/events-*`. */
export function buildSearchCommand(
  { folder, name, path }: { readonly folder: string; readonly name: string; readonly path?: string | undefined },
  { subject, type, siteid }: Event,
): string {
  const pathValues = { kind: type, site: siteid ?? null, date: "*" };
  const subfolder = path === undefined ? "" : `${buildEventFolderPath(path, pathValues)}/`;
  const shellQuote = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;
  return `zgrep -hF ${shellQuote(`"subject":${JSON.stringify(subject)}`)} ${shellQuote(resolve(folder))}/${subfolder}${name}-*`;
}

function encodeSiteId(id: string): string {
  const wellFormedSiteId = id.toWellFormed().slice(0, 100);
  const encodedSiteId = encodeURIComponent(wellFormedSiteId).replaceAll(/[!'()*~]/g, (char) => percentEncode(char));
  if (encodedSiteId === "") return "~";
  return /^(\.+|_)$/.test(encodedSiteId) ? [...encodedSiteId].map(percentEncode).join("") : encodedSiteId;
}

const percentEncode = (char: string): string => `%${char.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`;

const parseUtcDay = (time: string): string => /^\d{4}-\d{2}-\d{2}/.exec(time)?.[0] ?? "unknown";

/** Splits an event into lines by UTC day. A history event of several days becomes one numbered line per day. */
export function splitEventIntoDayLines(event: Event, sequence: EventNumber | null | undefined) {
  const sequenceFields = sequenceAttributes(sequence);
  const history = event.type === "tag-history" ? splitHistoryEvent(event as Event<"tag-history">) : null;
  const points = history === null ? [] : splitPackedPointsByDay(history.points);
  const pointsByDay = Map.groupBy(points, ({ time }) => parseUtcDay(time));
  const [firstDay] = pointsByDay.keys();
  if (history === null || pointsByDay.size <= 1) {
    const { type, data, time } = event as AnyEvent;
    // The time of a `tag-total` event is the end of its period, often midnight of the next day. Use the start.
    const date = firstDay ?? parseUtcDay(type === "tag-total" ? data.from : time);
    return [{ date, texts: cloudEventParts(event, sequenceFields) }];
  }
  const { origin, revised, ...seriesFields } = history.fact;
  const eventAttributes = toCloudEvent(copyEventWithoutData(event), sequenceFields);
  return [...pointsByDay].map(([date, points], index) => {
    const attributesJson = JSON.stringify({ ...eventAttributes, part: index + 1, parts: pointsByDay.size });
    const jsonLineStart = `${attributesJson.slice(0, -1)},"data":${JSON.stringify(seriesFields).slice(0, -1)},"points":[`;
    const pointsJson = points.map((each) => each.pointsJson).join(",");
    return { date, texts: [jsonLineStart, pointsJson, `],${JSON.stringify({ origin, revised }).slice(1)}}`] };
  });
}

/** Copies an event without reading `data`, whose getter may parse JSON. */
function copyEventWithoutData(event: Event): Event {
  const attributeNames = Object.keys(event).filter((name) => name !== "data") as (keyof Event)[];
  return Object.fromEntries(attributeNames.map((name) => [name, event[name]])) as unknown as Event;
}
