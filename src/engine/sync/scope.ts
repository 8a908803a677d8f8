import { ConfigError } from "../../core/errors/errors.ts";
import type { TokenInfo } from "../../core/model/building.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { createWakeup, loop, type Wakeup } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Source } from "../source/source.ts";
import type { Scope } from "./alarms/diff-alarms.ts";

/**
 * Scope of the token: visible sites and abilities, as `GET me` last stated. An object counts as missing only while its site is
 * visible before and after the list. Code that gets a rejection asks here for the cause.
 *
 * `GET me` is requested after a rejection, at most once a minute, and every minute while a known site is invisible, so that its
 * return is noticed. The result counts at once for all, in both directions.
 */
export interface TokenScope {
  /** Visible sites; null while unknown. */
  known(): ReadonlySet<number> | null;
  /** True when the site is visible, or while the scope is unknown. */
  sees(siteId: number): boolean;
  /** True when the token has the ability, such as `read:tags`, or while the scope is unknown. */
  may(ability: string): boolean;
  /** When the service last said what the token may, milliseconds since 1970; null when never. */
  askedAtMs(): number | null;
  /** The same on the monotonic clock; infinitely long ago when never. */
  saidAtMs(): number;
  /** Asks again, whatever was asked before. */
  refresh(signal: AbortSignal): Promise<Scope>;
  /** Like `refresh`, but null when the service does not respond; then nothing counts as missing. */
  tryRefresh(signal: AbortSignal): Promise<Scope | null>;
  /** Takes over the result of another `GET me`. */
  learn(info: Pick<TokenInfo, "sites" | "abilities">): void;
  /** Lost sites and abilities, with the time (UTC) at which the loss was noticed. */
  lost(): Readonly<Record<string, string>>;
  /** Restores `lost` of the last run, so that a return is noticed after a restart. */
  recall(lost: Readonly<Record<string, string>>): void;
  /**
   * Explains a rejection (403, or a 404 that may be one) at `atMs` on the monotonic clock. `unknown` while no newer scope is
   * available: then nothing is to blame yet.
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
/** Time after which a loss counts as final, in milliseconds. */
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
  /** Lost sites and abilities, and since when, on the monotonic clock. */
  const lost = new Map<string, number>();

  function learn(info: Pick<TokenInfo, "sites" | "abilities">): void {
    const next = { sites: new Set(info.sites.map(({ id }) => id)), abilities: new Set(info.abilities) };
    const names = (all: ReadonlySet<number | string> | null) => [...(all ?? [])].map(String);
    const had = [...names(sites), ...names(abilities)];
    const has = new Set([...names(next.sites), ...names(next.abilities)]);
    for (const name of had) if (!has.has(name)) lost.set(name, clock.monotonic());
    for (const [name, sinceMs] of lost) if (has.has(name) || clock.monotonic() - sinceMs > GONE_MS) lost.delete(name);
    const isFirst = sites === null;
    const same = sites !== null && abilities !== null && had.length === has.size && had.every((n) => has.has(n));
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
      // A future time is older than a clock step: it counts from now on.
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
      // A known lack explains a rejection even when the scope is older than it.
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
