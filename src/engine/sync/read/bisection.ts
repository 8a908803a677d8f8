import { ConfigError, type Failure, NoLog, Rejected } from "../../../core/errors/errors.ts";
import { createMovingMedian } from "../../../core/runtime/moving-median.ts";
import type { RequestIsolation } from "../plan/group.ts";

export interface TagIsolation extends RequestIsolation {
  readonly isSuspect?: boolean;
  readonly notBeforeMs?: number;
}

interface RefusedRequest {
  readonly atMs: number;
  /** Time of the last `GET me` before this request was refused, and of the last until now. */
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

/** Least time between two single requests for a refused tag: `GET me` is sent once a minute, so also between them. */
const SECOND_REFUSAL_MIN_MS = 62_000;
/** Failed requests in a row for tags of one site after which the site itself is the likely cause. */
const SITE_FAILURES_MIN = 2;
/** Groups of unproven suspects of a site when the cause is not one tag: one tag leaves three at most. */
const SUSPECT_GROUPS_MAX = 4;

/**
 * Finds the tags that make complete requests fail. Times are monotonic.
 * 1. A request for several sites fails: their tags share requests only within their site until one succeeds.
 * 2. A request for one site fails: its tags are read in halves in spare slots until one is left. If one half succeeds,
 * the other is divided at once; if one half fails, the other joins the clean tags.
 * 3. Two single refusals 62 s apart prove a tag refused if `GET me` says after each that the token may read it.
 */
export function createBisection(siteOf: (id: string) => number | undefined) {
  const suspicions = new Map<string, TagSuspicion>();
  const sitesInDoubt = new Map<number | undefined, number>();
  let groups = 0;

  function nextLabel(): string {
    groups += 1;
    return `suspects ${groups}`;
  }

  function regroup(ids: readonly string[], label: string, sibling: string | null = null): void {
    for (const id of ids) {
      const { firstSingleMs = null, lastSingleMs = null } = suspicions.get(id) ?? {};
      suspicions.set(id, { label, sibling, firstSingleMs, lastSingleMs });
    }
  }

  function divideSuspects(ids: readonly string[]): void {
    const middleIndex = Math.ceil(ids.length / 2);
    const [firstLabel, secondLabel] = [nextLabel(), nextLabel()];
    regroup(ids.slice(0, middleIndex), firstLabel, secondLabel);
    regroup(ids.slice(middleIndex), secondLabel, firstLabel);
  }

  function findSiblingGroups(ids: readonly string[]): readonly (readonly string[])[] {
    const labels = new Set(ids.flatMap((id) => suspicions.get(id)?.sibling ?? []));
    return [...labels].map((label) => [...suspicions].filter(([, each]) => each.label === label).map(([id]) => id));
  }

  function relieveSiblings(ids: readonly string[]): void {
    for (const siblings of findSiblingGroups(ids)) regroup(siblings, `likely clean, site ${siteOf(siblings[0] ?? "")}`);
  }

  function joinGroups(site: number | undefined): void {
    const unprovenSuspects = [...suspicions].filter(([id, each]) => each.firstSingleMs === null && siteOf(id) === site);
    if (new Set(unprovenSuspects.map(([, { label }]) => label)).size < SUSPECT_GROUPS_MAX) return;
    const ids = unprovenSuspects.map(([id]) => id);
    regroup(ids, `likely clean, site ${site}`);
  }

  function narrowSuspects(ids: readonly string[], namedTag: string | null): void {
    const sites = new Set(ids.map(siteOf));
    for (const site of sites) sitesInDoubt.set(site, (sitesInDoubt.get(site) ?? 0) + (sites.size > 1 ? 0 : 1));
    if (sites.size > 1) return;
    relieveSiblings(ids);
    if (namedTag !== null && ids.includes(namedTag)) {
      regroup([namedTag], nextLabel());
      const otherIds = ids.filter((id) => id !== namedTag);
      regroup(otherIds, nextLabel());
    } else divideSuspects(ids);
  }

  return {
    any: () => suspicions.size > 0 || sitesInDoubt.size > 0,

    isolationOf(id: string): TagIsolation | null {
      const suspicion = suspicions.get(id);
      if (suspicion !== undefined) {
        const { label, lastSingleMs } = suspicion;
        const retryNotBefore = lastSingleMs === null ? {} : { notBeforeMs: lastSingleMs + SECOND_REFUSAL_MIN_MS };
        return { label, timing: "patient", isSuspect: true, ...retryNotBefore };
      }
      if (sitesInDoubt.size === 0) return null;
      const site = siteOf(id);
      const failures = sitesInDoubt.get(site);
      if (failures === undefined) return null;
      return { label: `site ${site}`, timing: failures < SITE_FAILURES_MIN ? "punctual" : "patient" };
    },

    cleared(ids: readonly string[]): void {
      if (suspicions.size === 0 && sitesInDoubt.size === 0) return;
      const siblingGroups = findSiblingGroups(ids);
      for (const id of ids) {
        suspicions.delete(id);
        sitesInDoubt.delete(siteOf(id));
      }
      for (const siblings of siblingGroups.map((each) => each.filter((id) => suspicions.has(id))))
        if (siblings.length > 1) divideSuspects(siblings);
      for (const site of new Set(ids.map(siteOf))) joinGroups(site);
    },

    failed(ids: readonly string[]): void {
      if (ids.length > 1) narrowSuspects(ids, null);
    },

    refused(ids: readonly string[], { atMs, scopeBeforeMs, scopeAtMs, namedTag }: RefusedRequest): string | null {
      const [singleId] = ids;
      if (ids.length > 1 || singleId === undefined) {
        narrowSuspects(ids, namedTag);
        return null;
      }
      const { label = nextLabel(), firstSingleMs: firstMs = null } = suspicions.get(singleId) ?? {};
      const isSecondRefusal = firstMs !== null && atMs - firstMs >= SECOND_REFUSAL_MIN_MS;
      const isScopeBetween = firstMs !== null && scopeBeforeMs >= firstMs;
      if (isSecondRefusal && isScopeBetween && scopeAtMs >= atMs) {
        suspicions.delete(singleId);
        return singleId;
      }
      relieveSiblings(ids);
      // Without `GET me` after the first refusal, the first does not count and the second proves nothing yet.
      const firstSingleMs = firstMs === null || (isSecondRefusal && !isScopeBetween) ? atMs : firstMs;
      suspicions.set(singleId, { label, sibling: null, firstSingleMs, lastSingleMs: atMs });
      return null;
    },

    forget(): void {
      suspicions.clear();
      sitesInDoubt.clear();
    },
  };
}

/** `refused`: scope, view or log (403, 404). `invalid`: wrong request (422). Null: not about the tags. */
export function classifyRefusal(failure: Failure): "refused" | "invalid" | null {
  if (failure instanceof NoLog || failure instanceof Rejected) return "refused";
  if (!(failure instanceof ConfigError)) return null;
  if (failure.reason === "validation") return "invalid";
  return failure.reason === "forbidden" ? "refused" : null;
}

/** The tag that a validation error names by its index: `tags.3`, `tags[3]`, `tags.3.id`. */
export function findNamedTag(ids: readonly string[], failure: Failure): string | null {
  if (!(failure instanceof ConfigError) || failure.field === undefined) return null;
  const index = /^tags(?:\.|\[)(\d+)/.exec(failure.field)?.[1];
  return index === undefined ? null : (ids[Number(index)] ?? null);
}

const QUARANTINE_WAITS_MS = [600_000, 3_600_000, 21_600_000, 86_400_000] as const;

export function quarantineMs(times: number): number {
  return QUARANTINE_WAITS_MS[Math.min(times, QUARANTINE_WAITS_MS.length) - 1] ?? QUARANTINE_WAITS_MS[0];
}

/** A request is slow when it takes 4 times the typical time, and 3 s at least. */
const SLOW_FACTOR = 4;
const SLOW_MIN_MS = 3_000;
const LATENCIES_MAX = 50;
const LATENCIES_MIN = 5;
const SLOW_LABEL = "slow";

/** Finds slow tags, which delay their request: divides a suspected group until a half is fast or one tag is left. */
export function createSlowTagSearch() {
  const labels = new Map<string, string>();
  const latencies = createMovingMedian(LATENCIES_MAX);
  let groups = 0;

  const typicalMs = () => latencies.value() ?? 0;
  function suspect(ids: readonly string[]): void {
    groups += 1;
    for (const id of ids) labels.set(id, `suspects ${groups}`);
  }

  return {
    any: () => labels.size > 0,
    labelOf: (id: string) => labels.get(id) ?? null,
    typicalMs,
    forget: () => labels.clear(),

    replied(ids: readonly string[], latencyMs: number): void {
      const isSlow = latencyMs > Math.max(SLOW_MIN_MS, SLOW_FACTOR * typicalMs()) && latencies.count() >= LATENCIES_MIN;
      // The typical time comes only from requests with a response and without suspected tags.
      if (Number.isFinite(latencyMs) && !ids.some((id) => labels.has(id))) latencies.add(latencyMs);
      const [singleId] = ids;
      if (!isSlow) for (const id of ids) labels.delete(id);
      else if (ids.length === 1 && singleId !== undefined) labels.set(singleId, SLOW_LABEL);
      else if (!ids.every((id) => labels.get(id) === SLOW_LABEL)) {
        const middleIndex = Math.ceil(ids.length / 2);
        suspect(ids.slice(0, middleIndex));
        suspect(ids.slice(middleIndex));
      }
    },
  };
}
