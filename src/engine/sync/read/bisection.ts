import { ConfigError, type Failure, NoLog, Rejected } from "../../../core/errors/errors.ts";
import { createLastMedian } from "../../../core/runtime/last-median.ts";

/**
 * Finds the tags that make complete requests fail, without delaying other reads. Deterministic; times are monotonic
 * milliseconds.
 *
 * 1. A request for several sites fails: each of these sites is in doubt. Its tags share requests only with tags of the
 *    same site, at their usual intervals, until one such request succeeds. A refused site therefore costs the others
 *    one slot.
 * 2. A request for one site fails: its tags are suspects. They are read apart, in halves and in spare slots, until a
 *    group succeeds (its tags are cleared) or one tag is left. When one half succeeds, the other is divided at once
 *    because it probably contains the cause. When one half fails, the other half joins the probably clean tags.
 *    Neither proves anything.
 * 3. A tag is proven to be refused after two single refusals at least 62 s apart, if `GET me` says after each that the
 *    token may read it. A scope, a view or a service that is briefly unavailable therefore condemns no tag.
 */
export interface Bisection {
  /** Whether any tag, or any site, is suspected. */
  any(): boolean;
  /** Tags with the same label share requests, apart from the others; null for tags that are not suspected. */
  labelOf(id: string): string | null;
  /** `punctual`: only its site is in doubt. `patient`: the tag or its complete site is searched, in spare slots. */
  turnOf(id: string): "punctual" | "patient" | null;
  /** True if the tag itself is suspected, not only its site. */
  isSuspect(id: string): boolean;
  /** Before this a tag is not asked again; a tag that was refused alone waits for its second look. */
  notBeforeMs(id: string): number;
  /** A request for these tags succeeded: removes them from suspicion. */
  cleared(ids: readonly string[]): void;
  /** These failed together, for a reason that need not be theirs. */
  failed(ids: readonly string[]): void;
  /** These were refused together. Returns the tag that is proven now, or null. */
  refused(ids: readonly string[], refusal: RefusedRequest): string | null;
  /** Nothing is suspected of anybody. */
  forget(): void;
}

interface RefusedRequest {
  readonly atMs: number;
  /** When the service last said what the token may: before this request was refused, and by now. */
  readonly tokenSaidBeforeMs: number;
  readonly tokenSaidAtMs: number;
  /** The tag that the service itself blamed, if it did. */
  readonly named: string | null;
}

/**
 * Least time between two single requests for a refused tag, in milliseconds. `GET me` is sent at most once a minute,
 * so its response is available after each of them.
 */
const SECOND_LOOK_MS = 62_000;

/** Requests for tags of one site alone that fail in a row, after which it is likely to be the site. */
const SITE_FAILURES = 2;
const MANY_PARTS = 4;

interface Suspicion {
  readonly label: string;
  /** The label of the other half, where there is one. */
  readonly sibling: string | null;
  /** When it was first refused alone; null while it never was. */
  readonly aloneAtMs: number | null;
  /** When it was last. */
  readonly lookedAtMs: number | null;
}

export function createBisection(siteOf: (id: string) => number | undefined): Bisection {
  const suspicions = new Map<string, Suspicion>();
  /** Sites in doubt, and how many requests for their tags alone failed since one was answered. */
  const sitesInDoubt = new Map<number | undefined, number>();
  let groups = 0;

  const nextLabel = () => {
    groups += 1;
    return `suspects ${groups}`;
  };

  function part(ids: readonly string[], label: string, sibling: string | null): void {
    for (const id of ids) {
      const { aloneAtMs = null, lookedAtMs = null } = suspicions.get(id) ?? {};
      suspicions.set(id, { label, sibling, aloneAtMs, lookedAtMs });
    }
  }

  function divide(ids: readonly string[]): void {
    const middle = Math.ceil(ids.length / 2);
    const [first, second] = [nextLabel(), nextLabel()];
    part(ids.slice(0, middle), first, second);
    part(ids.slice(middle), second, first);
  }

  const members = (label: string) => [...suspicions].filter(([, each]) => each.label === label).map(([id]) => id);

  /** The other halves of these are likely to be clean. */
  function relieveSiblings(ids: readonly string[]): void {
    for (const sibling of new Set(ids.map((id) => suspicions.get(id)?.sibling ?? null))) {
      if (sibling === null) continue;
      const rest = members(sibling);
      part(rest, `likely clean, site ${siteOf(rest[0] ?? "")}`, null);
    }
  }

  /**
   * A site that answers again after it had failed in many parts: who was not refused alone is likely to be clean. One
   * culprit alone leaves no more than three parts at a time.
   */
  function gather(site: number | undefined): void {
    const parted = [...suspicions].filter(([id, each]) => each.aloneAtMs === null && siteOf(id) === site);
    if (new Set(parted.map(([, { label }]) => label)).size < MANY_PARTS) return;
    part(
      parted.map(([id]) => id),
      `likely clean, site ${site}`,
      null,
    );
  }

  function narrow(ids: readonly string[], named: string | null): void {
    const sites = new Set(ids.map(siteOf));
    for (const site of sites) sitesInDoubt.set(site, (sitesInDoubt.get(site) ?? 0) + (sites.size > 1 ? 0 : 1));
    if (sites.size > 1) return;
    relieveSiblings(ids);
    if (named !== null && ids.includes(named)) {
      const rest = ids.filter((id) => id !== named);
      part([named], nextLabel(), null);
      part(rest, nextLabel(), null);
    } else divide(ids);
  }

  return {
    any: () => suspicions.size > 0 || sitesInDoubt.size > 0,
    labelOf(id) {
      const own = suspicions.get(id)?.label;
      if (own !== undefined) return own;
      if (sitesInDoubt.size === 0) return null;
      const site = siteOf(id);
      return sitesInDoubt.has(site) ? `site ${site}` : null;
    },
    turnOf(id) {
      if (suspicions.has(id)) return "patient";
      if (sitesInDoubt.size === 0) return null;
      const failures = sitesInDoubt.get(siteOf(id));
      return failures === undefined ? null : failures < SITE_FAILURES ? "punctual" : "patient";
    },
    isSuspect: (id) => suspicions.has(id),
    notBeforeMs(id) {
      const lookedAtMs = suspicions.get(id)?.lookedAtMs ?? null;
      return lookedAtMs === null ? Number.NEGATIVE_INFINITY : lookedAtMs + SECOND_LOOK_MS;
    },
    cleared(ids) {
      // As nearly always, and asked with every reply.
      if (suspicions.size === 0 && sitesInDoubt.size === 0) return;
      const siblings = new Set(ids.map((id) => suspicions.get(id)?.sibling ?? null));
      for (const id of ids) {
        suspicions.delete(id);
        sitesInDoubt.delete(siteOf(id));
      }
      for (const sibling of siblings) {
        if (sibling === null) continue;
        const rest = members(sibling);
        if (rest.length > 1) divide(rest);
      }
      for (const site of new Set(ids.map(siteOf))) gather(site);
    },
    failed(ids) {
      if (ids.length > 1) narrow(ids, null);
    },
    refused(ids, { atMs, tokenSaidBeforeMs, tokenSaidAtMs, named }) {
      const [only] = ids;
      if (ids.length > 1 || only === undefined) {
        narrow(ids, named);
        return null;
      }
      const known = suspicions.get(only);
      const aloneAtMs = known?.aloneAtMs ?? null;
      const isSecond = aloneAtMs !== null && atMs - aloneAtMs >= SECOND_LOOK_MS;
      const saidBetween = aloneAtMs !== null && tokenSaidBeforeMs >= aloneAtMs;
      if (isSecond && saidBetween && tokenSaidAtMs >= atMs) {
        suspicions.delete(only);
        return only;
      }
      relieveSiblings(ids);
      // Without the token's word after it the first look does not count, and the second is not the last.
      const isFirst = aloneAtMs === null || (isSecond && !saidBetween);
      suspicions.set(only, {
        label: known?.label ?? nextLabel(),
        sibling: null,
        aloneAtMs: isFirst ? atMs : aloneAtMs,
        lookedAtMs: atMs,
      });
      return null;
    },
    forget() {
      suspicions.clear();
      sitesInDoubt.clear();
    },
  };
}

/**
 * Meaning of a refusal. `forbidden`: scope, ability or view (403). `not-found`: an unknown tag (404). `no-log`: a tag
 * without a log (404 of history). `invalid`: our request was wrong (422). Null: a failure that says nothing about the
 * tags.
 */
type GroupRefusal = "forbidden" | "not-found" | "no-log" | "invalid" | null;

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

/**
 * Finds the tags that make whole requests slow, because a request waits for its slowest gateway. Deterministic.
 *
 * Every tag of a slow request is under suspicion. A suspected group is read apart, in halves, until a half is fast
 * (its tags are cleared) or one tag is left (it is slow, and shares its requests with the other slow ones).
 */
interface SlowTags {
  /** Whether any tag is slow, or suspected of it. */
  any(): boolean;
  /** Tags with the same text travel together, apart from the others; null for ordinary tags. */
  labelOf(id: string): string | null;
  /** A request came back; no answer in time counts as `Infinity`. */
  replied(ids: readonly string[], latencyMs: number): void;
  /** Clears all slow and suspected tags. */
  forget(): void;
  /** The middle of the latest latencies, milliseconds; 0 before the first. */
  typicalMs(): number;
}

/** A request is slow when it takes this many times the typical time, and this long at least. */
const SLOW_FACTOR = 4;
const SLOW_MS = 3_000;
/** Replies that make up the typical time, and how many are needed before anything is called slow. */
const REMEMBERED = 50;
const NEEDED = 5;

const SLOW = "slow";

export function createSlowTags(): SlowTags {
  const labels = new Map<string, string>();
  const latencies = createLastMedian(REMEMBERED);
  let suspicions = 0;

  const typicalMs = () => latencies.value() ?? 0;
  const suspect = (ids: readonly string[]) => {
    suspicions++;
    for (const id of ids) labels.set(id, `suspects ${suspicions}`);
  };

  return {
    any: () => labels.size > 0,
    labelOf: (id) => labels.get(id) ?? null,
    typicalMs,
    forget: () => labels.clear(),
    replied(ids, latencyMs) {
      const isSlow = latencyMs > Math.max(SLOW_MS, SLOW_FACTOR * typicalMs()) && latencies.count() >= NEEDED;
      const wasApart = ids.some((id) => labels.has(id));
      // Slow tags do not make slow typical: only ordinary requests do, and an answer that never came has no time.
      if (!wasApart && Number.isFinite(latencyMs)) latencies.add(latencyMs);
      if (!isSlow) {
        for (const id of ids) labels.delete(id);
        return;
      }
      const [only] = ids;
      if (ids.length === 1 && only !== undefined) {
        labels.set(only, SLOW);
        return;
      }
      if (ids.every((id) => labels.get(id) === SLOW)) return;
      const middle = Math.ceil(ids.length / 2);
      suspect(ids.slice(0, middle));
      suspect(ids.slice(middle));
    },
  };
}
