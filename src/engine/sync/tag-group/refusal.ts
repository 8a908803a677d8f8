import { ConfigError, type Failure, NoLog, Rejected } from "../../../core/errors/errors.ts";

/**
 * What the service's refusal of a group of tags is about. `forbidden`: scope, ability or view (403). `not-found`: a tag
 * that it does not know (404). `no-log`: a tag without a log (404 of history). `invalid`: a request that we should not
 * have made (422). Null for anything else: trouble that says nothing about the tags.
 */
export type GroupRefusal = "forbidden" | "not-found" | "no-log" | "invalid" | null;

export function refusalOf(failure: Failure): GroupRefusal {
  if (failure instanceof NoLog) return "no-log";
  if (failure instanceof Rejected) return "not-found";
  if (!(failure instanceof ConfigError)) return null;
  if (failure.reason === "forbidden") return "forbidden";
  return failure.reason === "validation" ? "invalid" : null;
}

/** The tag that a validation error names by its place in the request: `tags.3`, `tags[3]`, `tags.3.id`. */
export function namedMember(ids: readonly string[], failure: Failure): string | null {
  if (!(failure instanceof ConfigError) || failure.field === undefined) return null;
  const place = /^tags(?:\.|\[)(\d+)/.exec(failure.field)?.[1];
  return place === undefined ? null : (ids[Number(place)] ?? null);
}

/** How long what was refused alone is left alone, by how often in a row: 10 minutes, 1, 6 and 24 hours. */
const WAITS_MS = [600_000, 3_600_000, 21_600_000, 86_400_000] as const;

export function quarantineMs(times: number): number {
  return WAITS_MS[Math.min(times, WAITS_MS.length) - 1] ?? WAITS_MS[0];
}
