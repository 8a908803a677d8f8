import { ConfigError, Rejected } from "../../core/errors/errors.ts";
import { zoneComplaint } from "../../core/values/time-zone.ts";
import { requestTime } from "./iso-time.ts";
import type { HistoryQuery } from "./source.ts";

/** Longest `search` text (interface, Limits). */
const LONGEST_SEARCH = 255;

export type Filters = Readonly<Record<string, string | number | boolean | undefined>>;

/** The filters that are set, as the interface spells them. Throws `ConfigError` for a search that is too long. */
export function filterQuery(filters: Filters): Record<string, string> {
  const query: Record<string, string> = {};
  for (const [name, value] of Object.entries(filters)) {
    if (value === undefined || value === "") continue;
    // Both true/false and 1/0 are accepted (interface, GET alarms); the framework's own check knows 1/0 only.
    query[name] = typeof value === "boolean" ? String(Number(value)) : String(value);
  }
  if ((query.search ?? "").length > LONGEST_SEARCH) {
    throw new ConfigError(`A search text has at most ${LONGEST_SEARCH} characters.`, {
      reason: "validation",
      field: "search",
    });
  }
  return query;
}

/** The query of tags/read. */
export function readQuery(ids: readonly string[]): string {
  return `tags=${ids.map(encodeURIComponent).join("%2C")}`;
}

/** The query of tags/history. Throws `Rejected` for a range, `ConfigError` for a zone, that would be refused. */
export function historyQuery(query: HistoryQuery, ids: readonly string[], scalar: boolean): string {
  const from = requestTime(query.from);
  const to = requestTime(query.to);
  if (from === null || to === null || from >= to) {
    throw new Rejected(
      `History from ${query.from} to ${query.to} cannot be asked for: two times in UTC with a trailing Z are needed, the earlier first.`,
    );
  }
  const complaint = zoneComplaint(query.timeZone);
  if (complaint !== null) throw new ConfigError(complaint, { field: "tz" });
  const asked = new URLSearchParams({
    tags: ids.join(","),
    from,
    to,
    resolution: query.resolution,
    tz: query.timeZone,
    ...(scalar ? { scalar: "1" } : {}),
  });
  return asked.toString();
}
