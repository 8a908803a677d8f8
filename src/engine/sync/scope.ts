import { ConfigError } from "../../core/errors/errors.ts";
import type { TokenInfo } from "../../core/model/building.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { createWakeup, loop, type Wakeup } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Source } from "../source/source.ts";
import type { Scope } from "./alarms/diff-alarms.ts";

/**
 * What the token may: the sites that it sees and its abilities, as `GET me` last said. A thing that is missing is
 * missing only while its site is seen: what `before` and `after` both name was seen all along, as far as the service
 * says; and whoever was refused asks here before anything else is blamed.
 *
 * `GET me` is asked when something is missing or refused, at most once a minute for refusals, and every minute while
 * something that was there is out of sight, so that its return is noticed. Whatever it says counts at once, for
 * everybody, in both directions.
 */
export interface TokenScope {
  /** The sites that the token sees; null while nobody knows. */
  known(): ReadonlySet<number> | null;
  /** Whether the token sees a site; true while nobody knows. */
  sees(siteId: number): boolean;
  /** Whether the token has an ability, such as `read:tags`; true while nobody knows. */
  may(ability: string): boolean;
  /** When the service last said what the token may, milliseconds since 1970; null when never. */
  askedAtMs(): number | null;
  /** The same on the monotonic clock; infinitely long ago when never. */
  saidAtMs(): number;
  /** Asks again, whatever was asked before. */
  refresh(signal: AbortSignal): Promise<Scope>;
  /** As `refresh`, but null when the service does not answer: then nothing is said about what is missing. */
  tryRefresh(signal: AbortSignal): Promise<Scope | null>;
  /** What somebody else was told by `GET me`. */
  learn(info: Pick<TokenInfo, "sites" | "abilities">): void;
  /** What the token had and has not now, a site's id or an ability, with the time (UTC) at which that was noticed. */
  lost(): Readonly<Record<string, string>>;
  /** What `lost` said when the worker ran last: also after a restart its return is looked for. */
  recall(lost: Readonly<Record<string, string>>): void;
  /**
   * A request was refused (403, or a 404 that may be one) at `atMs`, on the monotonic clock; why? `unknown` where the
   * token's word from after the refusal is not to be had yet: then nobody is to blame so far.
   */
  explain(refusal: Refused, signal: AbortSignal): Promise<Explanation>;
  /** Rings when the sites or the abilities are others than before. */
  readonly changes: Wakeup;
  /** Asks every minute while something was refused lately or is out of sight. Ends with the signal. */
  watch(signal: AbortSignal): Promise<void>;
}

export interface Refused {
  readonly siteIds: Iterable<number>;
  /** Null where any would do. */
  readonly ability: string | null;
  /** Monotonic time at which the refusal came. */
  readonly atMs: number;
}

/**
 * `site`: the token does not see one of the sites (any more). `ability`: it lacks the ability. `unexplained`: it may
 * all of it, and said so after the refusal.
 */
export type Explanation = "site" | "ability" | "unexplained" | "unknown";

/** `GET me` is asked for refusals at most this often, in milliseconds. */
const ASK_EVERY_MS = 60_000;
/** For what was lost longer ago than this, every five minutes are enough, in milliseconds. */
const LOST_LATELY_MS = 3_600_000;
const SELDOM_MS = 300_000;
/** What was lost longer ago than this is taken for gone, in milliseconds. */
const GONE_MS = 7 * 86_400_000;

export function createScope(source: Source, clock: Clock): TokenScope {
  const changes = createWakeup();
  const news = createWakeup();
  let sites: ReadonlySet<number> | null = null;
  let abilities: ReadonlySet<string> | null = null;
  let askedAtMs: number | null = null;
  let triedMs = Number.NEGATIVE_INFINITY;
  let answeredMs = Number.NEGATIVE_INFINITY;
  let refusedMs = Number.NEGATIVE_INFINITY;
  /** What the token had and has not now, and since when, on the monotonic clock. */
  const lost = new Map<string, number>();

  function learn(info: Pick<TokenInfo, "sites" | "abilities">): void {
    const next = { sites: new Set(info.sites.map(({ id }) => id)), abilities: new Set(info.abilities) };
    const names = (all: ReadonlySet<number | string> | null) => [...(all ?? [])].map(String);
    const had = [...names(sites), ...names(abilities)];
    const has = new Set([...names(next.sites), ...names(next.abilities)]);
    for (const name of had) if (!has.has(name)) lost.set(name, clock.monotonic());
    for (const [name, sinceMs] of lost)
      if (has.has(name) || clock.monotonic() - sinceMs > GONE_MS) lost.delete(name);
    const isFirst = sites === null;
    const same =
      sites !== null && abilities !== null && had.length === has.size && had.every((n) => has.has(n));
    sites = next.sites;
    abilities = next.abilities;
    if (!same && !isFirst) changes.wakeUp();
    if (lost.size > 0) news.wakeUp();
  }

  async function refresh(signal: AbortSignal): Promise<Scope> {
    const before = sites;
    triedMs = clock.monotonic();
    const info = await source.me(signal);
    learn(info);
    answeredMs = clock.monotonic();
    askedAtMs = clock.now();
    const after = new Set(info.sites.map((site) => site.id));
    return { before: before ?? after, after };
  }

  const scope: TokenScope = {
    known: () => sites,
    sees: (siteId) => sites === null || sites.has(siteId),
    may: (ability) => abilities === null || abilities.has(ability),
    askedAtMs: () => askedAtMs,
    saidAtMs: () => answeredMs,
    learn,
    lost() {
      const wallMs = clock.now() - clock.monotonic();
      return Object.fromEntries([...lost].map(([name, sinceMs]) => [name, isoUtc(wallMs + sinceMs)]));
    },
    recall(known) {
      // A time ahead of the clock is from before the clock was set back: then it counts from now on.
      const agoMs = (since: string) => Math.max(0, clock.now() - Date.parse(since));
      for (const [name, since] of Object.entries(known)) lost.set(name, clock.monotonic() - agoMs(since));
      if (lost.size > 0) news.wakeUp();
    },
    refresh,
    changes,
    async tryRefresh(signal) {
      try {
        return await refresh(signal);
      } catch (error) {
        signal.throwIfAborted();
        if (error instanceof ConfigError && error.reason === "unauthenticated") throw error;
        return null;
      }
    },
    async explain({ siteIds, ability, atMs }, signal) {
      refusedMs = Math.max(refusedMs, atMs);
      news.wakeUp();
      if (answeredMs < atMs && clock.monotonic() - triedMs >= ASK_EVERY_MS) await scope.tryRefresh(signal);
      // What the token is known to lack explains a refusal also where the word is older.
      if (ability !== null && !scope.may(ability)) return "ability";
      for (const siteId of siteIds) if (!scope.sees(siteId)) return "site";
      return answeredMs >= atMs ? "unexplained" : "unknown";
    },
    async watch(signal) {
      await loop({
        clock,
        signal,
        bell: news,
        async turn() {
          const nowMs = clock.monotonic();
          const everyMs = pauseMs(nowMs);
          const inMs = triedMs + everyMs - nowMs;
          if (inMs > 0) return inMs;
          await scope.tryRefresh(signal);
          return pauseMs(clock.monotonic());
        },
        fault: () => undefined,
        backoff: { firstMs: ASK_EVERY_MS, maxMs: ASK_EVERY_MS },
      });
    },
  };
  return scope;

  /** How long after the last asking the next is due; infinite while nothing is refused or out of sight. */
  function pauseMs(nowMs: number): number {
    if (refusedMs > answeredMs) return ASK_EVERY_MS;
    const lately = [...lost.values()].some((sinceMs) => nowMs - sinceMs < LOST_LATELY_MS);
    return lately ? ASK_EVERY_MS : lost.size > 0 ? SELDOM_MS : Number.POSITIVE_INFINITY;
  }
}
