import { ConfigError, Rejected } from "../../core/errors/errors.ts";
import { describeTimeZoneProblem } from "../../core/values/time-zone.ts";
import { formatRequestTime } from "./records.ts";
import {
  type Chooser,
  type HistoryQuery,
  isRequestableId,
  type SlotOffer,
  TAGS_PER_REQUEST,
  type TagWrite,
} from "./source.ts";

export function chooseContent<T extends object, C>(requested: T | Chooser<T>, check: (requested: T) => C) {
  if (!isChooser(requested)) {
    const checkedContent = check(requested);
    return { choose: undefined, chosen: () => checkedContent };
  }
  let chosenContent: { readonly content: C } | undefined;
  return {
    choose(offer: SlotOffer): number | null {
      const contentChoice = requested(offer);
      if ("passMs" in contentChoice) return contentChoice.passMs;
      chosenContent = { content: check(contentChoice.ask) };
      return null;
    },
    chosen(): C {
      if (chosenContent === undefined) throw new Error("A request left before its content was chosen.");
      return chosenContent.content;
    },
  };
}

export function observeContent<T extends object>(
  requested: T | Chooser<T>,
  observe: (requested: T) => void,
): T | Chooser<T> {
  if (!isChooser(requested)) {
    observe(requested);
    return requested;
  }
  return (offer) => {
    const contentChoice = requested(offer);
    if ("ask" in contentChoice) observe(contentChoice.ask);
    return contentChoice;
  };
}

function isChooser<T extends object>(requested: T | Chooser<T>): requested is Chooser<T> {
  return typeof requested === "function";
}

export class TagIdError extends Error {}

/** Throws `Misuse` for ids that cannot be requested together. */
export function checkIds(ids: readonly string[]): string[] {
  const tagIds = [...new Set(ids)];
  if (tagIds.length === 0) throw new TagIdError("A request needs at least one tag.");
  if (tagIds.length > TAGS_PER_REQUEST)
    throw new TagIdError(`A request takes at most ${TAGS_PER_REQUEST} tags, not ${tagIds.length} (interface, Limits).`);
  const invalidId = tagIds.find((id) => !isRequestableId(id));
  if (invalidId !== undefined) throw new TagIdError(`\`${invalidId.slice(0, 60)}\` cannot be the id of a tag.`);
  return tagIds;
}

/** Throws `Rejected` unless the writes are 1 to 20 distinct tags with finite numbers or booleans. */
export function checkWrites(writes: readonly TagWrite[]): void {
  try {
    const ids = checkIds(writes.map(({ tagId }) => tagId));
    if (ids.length < writes.length) throw new Rejected("One request must not write the same tag twice.");
  } catch (error) {
    throw error instanceof TagIdError ? new Rejected(error.message) : error;
  }
  for (const { tagId, value } of writes) {
    if (typeof value !== "boolean" && !Number.isFinite(value))
      throw new Rejected(`Tag ${tagId}: only a finite number or a boolean can be written.`);
  }
}

const SEARCH_LENGTH_MAX = 255;

export type Filters = Readonly<Record<string, string | number | boolean | undefined>>;

export function filterQuery(filters: Filters): Record<string, string> {
  const query: Record<string, string> = {};
  for (const [name, value] of Object.entries(filters)) {
    if (value === undefined || value === "") continue;
    // Laravel's check of booleans accepts only 1 and 0 (interface, GET alarms).
    query[name] = typeof value === "boolean" ? String(Number(value)) : String(value);
  }
  if ((query.search ?? "").length > SEARCH_LENGTH_MAX) {
    const options = { reason: "validation", field: "search" } as const;
    throw new ConfigError(`A search text has at most ${SEARCH_LENGTH_MAX} characters.`, options);
  }
  return query;
}

export function readQuery(ids: readonly string[]): string {
  return `tags=${ids.map(encodeURIComponent).join("%2C")}`;
}

/** Throws `Rejected` for an invalid range and `ConfigError` for an invalid zone. */
export function historyQuery(query: HistoryQuery, ids: readonly string[], isTotal: boolean): string {
  const from = formatRequestTime(query.from);
  const to = formatRequestTime(query.to);
  if (from === null || to === null || from >= to) {
    throw new Rejected(
      `History from ${query.from} to ${query.to} cannot be asked for: two times in UTC with a trailing Z are needed, the earlier first.`,
    );
  }
  const zoneProblem = describeTimeZoneProblem(query.timeZone);
  if (zoneProblem !== null) throw new ConfigError(zoneProblem, { field: "tz" });
  const { resolution, timeZone: tz } = query;
  return String(
    new URLSearchParams({ tags: ids.join(","), from, to, resolution, tz, ...(isTotal ? { scalar: "1" } : {}) }),
  );
}
