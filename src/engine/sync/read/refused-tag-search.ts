import { ConfigError, type Failure, NoTagLog, Rejected } from "../../../core/errors/errors.ts";
import { createMovingMedian } from "../../../core/runtime/moving-median.ts";
import type { RequestIsolation } from "../plan/next-read-group.ts";

export interface TagIsolation extends RequestIsolation {
  readonly isSuspect?: boolean;
  readonly notBeforeMs?: number;
}

interface RefusedReadRequest {
  readonly refusedAtMs: number;
  /** Time of the last `GET me` before the refusal, and of the last `GET me` until now. */
  readonly getMeBeforeRefusalMs: number;
  readonly latestGetMeMs: number;
  readonly namedTag: string | null;
}

interface TagSuspicion {
  readonly label: string;
  readonly siblingGroupLabel: string | null;
  readonly firstSingleRefusalMs: number | null;
  readonly lastSingleRefusalMs: number | null;
}

/** Minimum time between two single requests for a refused tag, so that a `GET me` is sent in between. */
const SECOND_REFUSAL_MIN_MS = 62_000;
/** Failed requests in a row for one site after which the complete site is suspected. */
const SUSPECT_SITE_FAILURES_MIN = 2;
/** With this many suspected groups in one site, no single tag is the cause: one bad tag leaves at most three groups. */
const SUSPECT_TAG_GROUPS_MAX = 4;

/**
 * Finds the tags that make a request of up to 20 tags fail. Times are monotonic.
 * 1. After a failed request for several sites, tags share requests only within their site until one succeeds.
 * 2. After a failed request for one site, its tags are read in ever smaller halves until one tag is left.
 * 3. Two single refusals prove a tag refused, if `GET me` says after each that the token may read the tag.
 */
export function createBisection(siteOf: (id: string) => number | undefined) {
  const suspicions = new Map<string, TagSuspicion>();
  const failuresBySite = new Map<number | undefined, number>();
  let suspectGroupCount = 0;

  function nextSuspectGroupLabel(): string {
    suspectGroupCount += 1;
    return `suspects ${suspectGroupCount}`;
  }

  function moveToSuspectGroup(ids: readonly string[], label: string, siblingLabel: string | null = null): void {
    for (const id of ids) {
      const { firstSingleRefusalMs = null, lastSingleRefusalMs = null } = suspicions.get(id) ?? {};
      suspicions.set(id, { label, siblingGroupLabel: siblingLabel, firstSingleRefusalMs, lastSingleRefusalMs });
    }
  }

  function divideSuspects(ids: readonly string[]): void {
    const middleIndex = Math.ceil(ids.length / 2);
    const [firstLabel, secondLabel] = [nextSuspectGroupLabel(), nextSuspectGroupLabel()];
    moveToSuspectGroup(ids.slice(0, middleIndex), firstLabel, secondLabel);
    moveToSuspectGroup(ids.slice(middleIndex), secondLabel, firstLabel);
  }

  function findSiblingGroups(ids: readonly string[]): readonly (readonly string[])[] {
    const groupLabels = new Set(ids.flatMap((id) => suspicions.get(id)?.siblingGroupLabel ?? []));
    return [...groupLabels].map((label) =>
      [...suspicions].filter(([, suspicion]) => suspicion.label === label).map(([id]) => id),
    );
  }

  function markSiblingsLikelyClean(ids: readonly string[]): void {
    for (const siblings of findSiblingGroups(ids))
      moveToSuspectGroup(siblings, `likely clean, site ${siteOf(siblings[0] ?? "")}`);
  }

  function joinSuspectGroups(site: number | undefined): void {
    const unprovenSuspects = [...suspicions].filter(
      ([id, suspicion]) => suspicion.firstSingleRefusalMs === null && siteOf(id) === site,
    );
    if (new Set(unprovenSuspects.map(([, { label }]) => label)).size < SUSPECT_TAG_GROUPS_MAX) return;
    const ids = unprovenSuspects.map(([id]) => id);
    moveToSuspectGroup(ids, `likely clean, site ${site}`);
  }

  function narrowDownSuspects(ids: readonly string[], namedTag: string | null): void {
    const sites = new Set(ids.map(siteOf));
    for (const site of sites) failuresBySite.set(site, (failuresBySite.get(site) ?? 0) + (sites.size > 1 ? 0 : 1));
    if (sites.size > 1) return;
    markSiblingsLikelyClean(ids);
    if (namedTag !== null && ids.includes(namedTag)) {
      moveToSuspectGroup([namedTag], nextSuspectGroupLabel());
      const otherTagIds = ids.filter((id) => id !== namedTag);
      moveToSuspectGroup(otherTagIds, nextSuspectGroupLabel());
    } else divideSuspects(ids);
  }

  return {
    hasSuspects: () => suspicions.size > 0 || failuresBySite.size > 0,

    isolationOf(id: string): TagIsolation | null {
      const tagSuspicion = suspicions.get(id);
      if (tagSuspicion !== undefined) {
        const { label, lastSingleRefusalMs: lastMs } = tagSuspicion;
        const retryTime = lastMs === null ? {} : { notBeforeMs: lastMs + SECOND_REFUSAL_MIN_MS };
        return { label, timing: "patient", isSuspect: true, ...retryTime };
      }
      if (failuresBySite.size === 0) return null;
      const site = siteOf(id);
      const siteFailureCount = failuresBySite.get(site);
      if (siteFailureCount === undefined) return null;
      return { label: `site ${site}`, timing: siteFailureCount < SUSPECT_SITE_FAILURES_MIN ? "punctual" : "patient" };
    },

    requestSucceeded(ids: readonly string[]): void {
      if (suspicions.size === 0 && failuresBySite.size === 0) return;
      const siblingGroups = findSiblingGroups(ids);
      for (const id of ids) {
        suspicions.delete(id);
        failuresBySite.delete(siteOf(id));
      }
      for (const siblings of siblingGroups.map((siblingIds) => siblingIds.filter((id) => suspicions.has(id))))
        if (siblings.length > 1) divideSuspects(siblings);
      for (const site of new Set(ids.map(siteOf))) joinSuspectGroups(site);
    },

    requestFailed(ids: readonly string[]): void {
      if (ids.length > 1) narrowDownSuspects(ids, null);
    },

    requestRefused(ids: readonly string[], refusal: RefusedReadRequest): string | null {
      const { refusedAtMs, getMeBeforeRefusalMs, latestGetMeMs, namedTag } = refusal;
      const [singleId] = ids;
      if (ids.length > 1 || singleId === undefined) {
        narrowDownSuspects(ids, namedTag);
        return null;
      }
      const { label = nextSuspectGroupLabel(), firstSingleRefusalMs: firstMs = null } = suspicions.get(singleId) ?? {};
      const isSecondRefusal = firstMs !== null && refusedAtMs - firstMs >= SECOND_REFUSAL_MIN_MS;
      const wasGetMeSentBetween = firstMs !== null && getMeBeforeRefusalMs >= firstMs;
      if (isSecondRefusal && wasGetMeSentBetween && latestGetMeMs >= refusedAtMs) {
        suspicions.delete(singleId);
        return singleId;
      }
      markSiblingsLikelyClean(ids);
      // Two refusals without a `GET me` between them prove nothing: only the second one counts.
      const firstSingleRefusalMs =
        firstMs === null || (isSecondRefusal && !wasGetMeSentBetween) ? refusedAtMs : firstMs;
      const times = { firstSingleRefusalMs, lastSingleRefusalMs: refusedAtMs };
      suspicions.set(singleId, { label, siblingGroupLabel: null, ...times });
      return null;
    },

    clearSuspicions(): void {
      suspicions.clear();
      failuresBySite.clear();
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

const QUARANTINE_WAITS_MS = [600_000, 3_600_000, 21_600_000, 86_400_000] as const;

export function tagQuarantineMs(quarantineCount: number): number {
  return QUARANTINE_WAITS_MS[Math.min(quarantineCount, QUARANTINE_WAITS_MS.length) - 1] ?? QUARANTINE_WAITS_MS[0];
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

  const typicalLatencyMs = () => requestLatencies.median() ?? 0;
  function suspectSlowTags(ids: readonly string[]): void {
    suspectGroupCount += 1;
    for (const id of ids) groupLabels.set(id, `suspects ${suspectGroupCount}`);
  }

  return {
    hasSuspects: () => groupLabels.size > 0,
    labelOf: (id: string) => groupLabels.get(id) ?? null,
    typicalLatencyMs,
    clearAll: () => groupLabels.clear(),

    recordLatency(ids: readonly string[], latencyMs: number): void {
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
