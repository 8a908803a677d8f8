import { ConfigError, type Failure, NoTagLog, Rejected } from "../../../core/errors/errors.ts";
import { createMovingMedian } from "../../../core/runtime/moving-median.ts";
import type { RequestIsolation } from "../plan/next-read-group.ts";

export interface TagIsolation extends RequestIsolation {
  readonly isSuspect?: boolean;
  readonly notBeforeMs?: number;
}

interface RefusedReadRequest {
  readonly atMs: number;
  /** Time of the last `GET me` before the refusal, and of the last `GET me` until now. */
  readonly scopeBeforeMs: number;
  readonly scopeAtMs: number;
  readonly namedTag: string | null;
}

interface TagSuspicion {
  readonly label: string;
  readonly sibling: string | null;
  readonly firstSingleMs: number | null;
  readonly lastSingleMs: number | null;
}

/** Minimum time between two single requests for a refused tag, so that a `GET me` is sent in between. */
const SECOND_REFUSAL_MIN_MS = 62_000;
/** Failed requests in a row for one site after which the complete site is suspected. */
const SUSPECT_SITE_FAILURES_MIN = 2;
/** Suspected groups of a site from which the cause is not a single tag, because a single tag leaves at most three. */
const SUSPECT_TAG_GROUPS_MAX = 4;

/**
 * Finds the tags that make complete requests fail. Times are monotonic.
 * 1. After a failed request for several sites, tags share requests only within their site until one succeeds.
 * 2. After a failed request for one site, its tags are read in ever smaller halves until one tag is left.
 * 3. Two single refusals prove a tag refused, if `GET me` says after each that the token may read the tag.
 */
export function createBisection(siteOf: (id: string) => number | undefined) {
  const suspicions = new Map<string, TagSuspicion>();
  const suspectSites = new Map<number | undefined, number>();
  let suspectGroupCount = 0;

  function nextSuspectGroupLabel(): string {
    suspectGroupCount += 1;
    return `suspects ${suspectGroupCount}`;
  }

  function regroup(ids: readonly string[], label: string, sibling: string | null = null): void {
    for (const id of ids) {
      const { firstSingleMs = null, lastSingleMs = null } = suspicions.get(id) ?? {};
      suspicions.set(id, { label, sibling, firstSingleMs, lastSingleMs });
    }
  }

  function divideSuspects(ids: readonly string[]): void {
    const middleIndex = Math.ceil(ids.length / 2);
    const [firstLabel, secondLabel] = [nextSuspectGroupLabel(), nextSuspectGroupLabel()];
    regroup(ids.slice(0, middleIndex), firstLabel, secondLabel);
    regroup(ids.slice(middleIndex), secondLabel, firstLabel);
  }

  function findSiblingGroups(ids: readonly string[]): readonly (readonly string[])[] {
    const groupLabels = new Set(ids.flatMap((id) => suspicions.get(id)?.sibling ?? []));
    return [...groupLabels].map((label) =>
      [...suspicions].filter(([, each]) => each.label === label).map(([id]) => id),
    );
  }

  function markSiblingsLikelyClean(ids: readonly string[]): void {
    for (const siblings of findSiblingGroups(ids)) regroup(siblings, `likely clean, site ${siteOf(siblings[0] ?? "")}`);
  }

  function joinSuspectGroups(site: number | undefined): void {
    const unprovenSuspects = [...suspicions].filter(([id, each]) => each.firstSingleMs === null && siteOf(id) === site);
    if (new Set(unprovenSuspects.map(([, { label }]) => label)).size < SUSPECT_TAG_GROUPS_MAX) return;
    const ids = unprovenSuspects.map(([id]) => id);
    regroup(ids, `likely clean, site ${site}`);
  }

  function narrowDownSuspects(ids: readonly string[], namedTag: string | null): void {
    const sites = new Set(ids.map(siteOf));
    for (const site of sites) suspectSites.set(site, (suspectSites.get(site) ?? 0) + (sites.size > 1 ? 0 : 1));
    if (sites.size > 1) return;
    markSiblingsLikelyClean(ids);
    if (namedTag !== null && ids.includes(namedTag)) {
      regroup([namedTag], nextSuspectGroupLabel());
      const otherTagIds = ids.filter((id) => id !== namedTag);
      regroup(otherTagIds, nextSuspectGroupLabel());
    } else divideSuspects(ids);
  }

  return {
    any: () => suspicions.size > 0 || suspectSites.size > 0,

    isolationOf(id: string): TagIsolation | null {
      const tagSuspicion = suspicions.get(id);
      if (tagSuspicion !== undefined) {
        const { label, lastSingleMs } = tagSuspicion;
        const retryNotBefore = lastSingleMs === null ? {} : { notBeforeMs: lastSingleMs + SECOND_REFUSAL_MIN_MS };
        return { label, timing: "patient", isSuspect: true, ...retryNotBefore };
      }
      if (suspectSites.size === 0) return null;
      const site = siteOf(id);
      const siteFailureCount = suspectSites.get(site);
      if (siteFailureCount === undefined) return null;
      return { label: `site ${site}`, timing: siteFailureCount < SUSPECT_SITE_FAILURES_MIN ? "punctual" : "patient" };
    },

    cleared(ids: readonly string[]): void {
      if (suspicions.size === 0 && suspectSites.size === 0) return;
      const siblingGroups = findSiblingGroups(ids);
      for (const id of ids) {
        suspicions.delete(id);
        suspectSites.delete(siteOf(id));
      }
      for (const siblings of siblingGroups.map((each) => each.filter((id) => suspicions.has(id))))
        if (siblings.length > 1) divideSuspects(siblings);
      for (const site of new Set(ids.map(siteOf))) joinSuspectGroups(site);
    },

    failed(ids: readonly string[]): void {
      if (ids.length > 1) narrowDownSuspects(ids, null);
    },

    refused(ids: readonly string[], { atMs, scopeBeforeMs, scopeAtMs, namedTag }: RefusedReadRequest): string | null {
      const [singleId] = ids;
      if (ids.length > 1 || singleId === undefined) {
        narrowDownSuspects(ids, namedTag);
        return null;
      }
      const { label = nextSuspectGroupLabel(), firstSingleMs: firstMs = null } = suspicions.get(singleId) ?? {};
      const isSecondRefusal = firstMs !== null && atMs - firstMs >= SECOND_REFUSAL_MIN_MS;
      const wasScopeReadBetween = firstMs !== null && scopeBeforeMs >= firstMs;
      if (isSecondRefusal && wasScopeReadBetween && scopeAtMs >= atMs) {
        suspicions.delete(singleId);
        return singleId;
      }
      markSiblingsLikelyClean(ids);
      // Without a `GET me` in between, the second refusal counts as the first one.
      const firstSingleMs = firstMs === null || (isSecondRefusal && !wasScopeReadBetween) ? atMs : firstMs;
      suspicions.set(singleId, { label, sibling: null, firstSingleMs, lastSingleMs: atMs });
      return null;
    },

    forget(): void {
      suspicions.clear();
      suspectSites.clear();
    },
  };
}

/** `refused`: the token may not read a tag (403, 404). `invalid`: wrong request (422). Null: no tag is the cause. */
export function classifyRefusal(failure: Failure): "refused" | "invalid" | null {
  if (failure instanceof NoTagLog || failure instanceof Rejected) return "refused";
  if (!(failure instanceof ConfigError)) return null;
  if (failure.reason === "validation") return "invalid";
  return failure.reason === "forbidden" ? "refused" : null;
}

/** Finds the tag that a validation error names by its index, e.g. `tags.3` or `tags[3]`. */
export function findNamedTag(ids: readonly string[], failure: Failure): string | null {
  if (!(failure instanceof ConfigError) || failure.field === undefined) return null;
  const namedTagIndex = /^tags(?:\.|\[)(\d+)/.exec(failure.field)?.[1];
  return namedTagIndex === undefined ? null : (ids[Number(namedTagIndex)] ?? null);
}

const TAG_QUARANTINE_WAITS_MS = [600_000, 3_600_000, 21_600_000, 86_400_000] as const;

export function tagQuarantineMs(times: number): number {
  return TAG_QUARANTINE_WAITS_MS[Math.min(times, TAG_QUARANTINE_WAITS_MS.length) - 1] ?? TAG_QUARANTINE_WAITS_MS[0];
}

const SLOW_REQUEST_FACTOR = 4;
const SLOW_REQUEST_MIN_MS = 3_000;
const REQUEST_LATENCIES_MAX = 50;
const REQUEST_LATENCIES_MIN = 5;
const SLOW_TAG_LABEL = "slow";

/** Finds tags that delay their read requests, by dividing slow requests until one tag is left. */
export function createSlowTagSearch() {
  const groupLabels = new Map<string, string>();
  const requestLatencies = createMovingMedian(REQUEST_LATENCIES_MAX);
  let suspectGroupCount = 0;

  const typicalLatencyMs = () => requestLatencies.value() ?? 0;
  function suspectSlowTags(ids: readonly string[]): void {
    suspectGroupCount += 1;
    for (const id of ids) groupLabels.set(id, `suspects ${suspectGroupCount}`);
  }

  return {
    any: () => groupLabels.size > 0,
    labelOf: (id: string) => groupLabels.get(id) ?? null,
    typicalMs: typicalLatencyMs,
    forget: () => groupLabels.clear(),

    replied(ids: readonly string[], latencyMs: number): void {
      const isSlowRequest =
        latencyMs > Math.max(SLOW_REQUEST_MIN_MS, SLOW_REQUEST_FACTOR * typicalLatencyMs()) &&
        requestLatencies.count() >= REQUEST_LATENCIES_MIN;
      // The typical time excludes failed requests and requests with suspected tags.
      if (Number.isFinite(latencyMs) && !ids.some((id) => groupLabels.has(id))) requestLatencies.add(latencyMs);
      const [singleId] = ids;
      if (!isSlowRequest) for (const id of ids) groupLabels.delete(id);
      else if (ids.length === 1 && singleId !== undefined) groupLabels.set(singleId, SLOW_TAG_LABEL);
      else if (!ids.every((id) => groupLabels.get(id) === SLOW_TAG_LABEL)) {
        const middleIndex = Math.ceil(ids.length / 2);
        suspectSlowTags(ids.slice(0, middleIndex));
        suspectSlowTags(ids.slice(middleIndex));
      }
    },
  };
}
