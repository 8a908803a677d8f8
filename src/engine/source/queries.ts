import { ConfigError, Rejected } from "../../core/errors/errors.ts";
import { describeTimeZoneProblem } from "../../core/values/time-zone.ts";
import { formatRequestTime } from "./service-records.ts";
import {
  type HistoryQuery,
  isRequestableTagId,
  type OfferedSlot,
  type RequestChooser,
  type RequestContent,
  TAGS_PER_REQUEST,
  type TagWrite,
} from "./source.ts";

export function resolveRequestContent<T extends object, C>(content: RequestContent<T>, check: (content: T) => C) {
  if (!isRequestChooser(content)) {
    const checkedRequestContent = check(content);
    return { onSlotOffered: undefined, chosenContent: () => checkedRequestContent };
  }
  let chosenRequestContent: { readonly content: C } | undefined;
  return {
    onSlotOffered(offer: OfferedSlot): number | null {
      const requestChoice = content(offer);
      if ("declineForMs" in requestChoice) return requestChoice.declineForMs;
      chosenRequestContent = { content: check(requestChoice.content) };
      return null;
    },
    chosenContent(): C {
      if (chosenRequestContent === undefined) throw new Error("A request left before its content was chosen.");
      return chosenRequestContent.content;
    },
  };
}

export function observeRequestContent<T extends object>(
  content: RequestContent<T>,
  observeContent: (content: T) => void,
): RequestContent<T> {
  if (!isRequestChooser(content)) {
    observeContent(content);
    return content;
  }
  return (offer) => {
    const requestChoice = content(offer);
    if ("content" in requestChoice) observeContent(requestChoice.content);
    return requestChoice;
  };
}

function isRequestChooser<T extends object>(content: RequestContent<T>): content is RequestChooser<T> {
  return typeof content === "function";
}

export class TagIdError extends Error {}

export function checkTagIds(ids: readonly string[]): string[] {
  const tagIds = [...new Set(ids)];
  if (tagIds.length === 0) throw new TagIdError("A request needs at least one tag.");
  if (tagIds.length > TAGS_PER_REQUEST)
    throw new TagIdError(`A request takes at most ${TAGS_PER_REQUEST} tags, not ${tagIds.length} (interface, Limits).`);
  const invalidTagId = tagIds.find((id) => !isRequestableTagId(id));
  if (invalidTagId !== undefined) throw new TagIdError(`\`${invalidTagId.slice(0, 60)}\` cannot be the id of a tag.`);
  return tagIds;
}

export function checkTagWrites(writes: readonly TagWrite[]): void {
  try {
    const ids = checkTagIds(writes.map(({ tagId }) => tagId));
    if (ids.length < writes.length) throw new Rejected("One request must not write the same tag twice.");
  } catch (error) {
    throw error instanceof TagIdError ? new Rejected(error.message) : error;
  }
  for (const { tagId, value } of writes) {
    if (typeof value !== "boolean" && !Number.isFinite(value))
      throw new Rejected(`Tag ${tagId}: only a finite number or a boolean can be written.`);
  }
}

const SEARCH_TEXT_LENGTH_MAX = 255;

export type ListFilters = Readonly<Record<string, string | number | boolean | undefined>>;

export function listFilterQuery(filters: ListFilters): Record<string, string> {
  const query: Record<string, string> = {};
  for (const [name, value] of Object.entries(filters)) {
    if (value === undefined || value === "") continue;
    // The service is a Laravel application, which accepts only 1 and 0 as booleans (interface, GET alarms).
    query[name] = typeof value === "boolean" ? String(Number(value)) : String(value);
  }
  if ((query.search ?? "").length > SEARCH_TEXT_LENGTH_MAX) {
    const options = { reason: "validation", field: "search" } as const;
    throw new ConfigError(`A search text has at most ${SEARCH_TEXT_LENGTH_MAX} characters.`, options);
  }
  return query;
}

export function tagReadQuery(ids: readonly string[]): string {
  return `tags=${ids.map(encodeURIComponent).join("%2C")}`;
}

export function historyQuery(query: HistoryQuery, ids: readonly string[], isTotal: boolean): string {
  const from = formatRequestTime(query.from);
  const to = formatRequestTime(query.to);
  if (from === null || to === null || from >= to) {
    throw new Rejected(
      `History from ${query.from} to ${query.to} cannot be asked for: two times in UTC with a trailing Z are needed, the earlier first.`,
    );
  }
  const timeZoneProblem = describeTimeZoneProblem(query.timeZone);
  if (timeZoneProblem !== null) throw new ConfigError(timeZoneProblem, { field: "tz" });
  const { resolution, timeZone: tz } = query;
  return String(
    new URLSearchParams({ tags: ids.join(","), from, to, resolution, tz, ...(isTotal ? { scalar: "1" } : {}) }),
  );
}
