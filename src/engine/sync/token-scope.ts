import { ConfigError } from "../../core/errors/errors.ts";
import type { TokenInfo } from "../../core/model/building.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { createWakeup, runLoop } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Source } from "../source/source.ts";
import type { ScopeChange } from "./alarms/diff-alarms.ts";

export type TokenScope = ReturnType<typeof createTokenScope>;

interface RefusedRequest {
  readonly siteIds: Iterable<number>;
  readonly ability: string | null;
  readonly atMs: number;
}

/** Cause of a rejection. `unexplained`: a later `GET me` allows the request. `unknown`: no later `GET me` yet. */
export type RefusalCause = "site" | "ability" | "unexplained" | "unknown";

/** Least time between two `GET me` requests, in milliseconds; longer for losses older than an hour. */
const SCOPE_REFRESH_MS = 60_000;
const NEVER_MS = Number.NEGATIVE_INFINITY;
const RECENT_LOSS_MS = 3_600_000;
const OLD_LOSS_REFRESH_MS = 300_000;
const LOSS_RETENTION_MS = 7 * 86_400_000;

/**
 * Visible sites and abilities of the token, as `GET me` last stated. `GET me` is requested after a rejection, at most
 * once a minute, and every minute while a known site is invisible. `explain` returns the cause of a rejection.
 */
export function createTokenScope(source: Source, clock: Clock) {
  const changes = createWakeup();
  const watchChanged = createWakeup();
  let sites: ReadonlySet<number> | null = null;
  let abilities: ReadonlySet<string> | null = null;
  let respondedWallMs: number | null = null;
  const times = { requestMs: NEVER_MS, responseMs: NEVER_MS, refusalMs: NEVER_MS };
  const losses = new Map<string, number>();

  function learnScope(info: Pick<TokenInfo, "sites" | "abilities">): void {
    const oldNames = new Set([...(sites ?? []), ...(abilities ?? [])].map(String));
    const isFirstScope = sites === null;
    sites = new Set(info.sites.map(({ id }) => id));
    abilities = new Set(info.abilities);
    const names = new Set([...sites, ...abilities].map(String));
    const nowMs = clock.monotonic();
    for (const lostName of oldNames) if (!names.has(lostName)) losses.set(lostName, nowMs);
    for (const [name, sinceMs] of losses)
      if (names.has(name) || nowMs - sinceMs > LOSS_RETENTION_MS) losses.delete(name);
    const isScopeSame = oldNames.size === names.size && oldNames.isSubsetOf(names);
    if (!isScopeSame && !isFirstScope) changes.wakeUp();
    if (losses.size > 0) watchChanged.wakeUp();
  }

  async function refreshScope(signal: AbortSignal): Promise<ScopeChange> {
    const sitesBefore = sites;
    times.requestMs = clock.monotonic();
    const info = await source.me(signal);
    learnScope(info);
    times.responseMs = clock.monotonic();
    respondedWallMs = clock.now();
    const sitesAfter = new Set(info.sites.map((site) => site.id));
    return { before: sitesBefore ?? sitesAfter, after: sitesAfter };
  }

  async function tryRefresh(signal: AbortSignal): Promise<ScopeChange | null> {
    try {
      return await refreshScope(signal);
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof ConfigError && error.reason === "unauthenticated") throw error;
      return null;
    }
  }

  /** Time between two `GET me` requests, milliseconds; infinite while no request is refused and no site is lost. */
  function refreshEveryMs(): number {
    if (times.refusalMs > times.responseMs) return SCOPE_REFRESH_MS;
    const nowMs = clock.monotonic();
    if ([...losses.values()].some((sinceMs) => nowMs - sinceMs < RECENT_LOSS_MS)) return SCOPE_REFRESH_MS;
    return losses.size > 0 ? OLD_LOSS_REFRESH_MS : Number.POSITIVE_INFINITY;
  }

  const seesSite = (siteId: number) => sites === null || sites.has(siteId);
  const hasAbility = (ability: string) => abilities === null || abilities.has(ability);
  return {
    ...{ sees: seesSite, hasAbility, learn: learnScope, refresh: refreshScope, tryRefresh, changes },
    known: () => sites,
    respondedWallMs: () => respondedWallMs,
    respondedAtMs: () => times.responseMs,
    lost(): Readonly<Record<string, string>> {
      const wallMs = clock.now() - clock.monotonic();
      return Object.fromEntries([...losses].map(([name, sinceMs]) => [name, isoUtc(wallMs + sinceMs)]));
    },
    /** Restores the lost sites and abilities of the last run, so that their return is noticed after a restart. */
    restoreLost(known: Readonly<Record<string, string>>): void {
      // A time in the future was stored before a clock step: the loss counts from now on.
      const agoMs = (since: string) => Math.max(0, clock.now() - Date.parse(since));
      for (const [name, since] of Object.entries(known)) losses.set(name, clock.monotonic() - agoMs(since));
      if (losses.size > 0) watchChanged.wakeUp();
    },
    async explain({ siteIds, ability, atMs }: RefusedRequest, signal: AbortSignal): Promise<RefusalCause> {
      times.refusalMs = Math.max(times.refusalMs, atMs);
      watchChanged.wakeUp();
      if (times.responseMs < atMs && clock.monotonic() - times.requestMs >= SCOPE_REFRESH_MS) await tryRefresh(signal);
      // A known lack of an ability explains a rejection, even if the scope is older than the rejection.
      if (ability !== null && !hasAbility(ability)) return "ability";
      for (const siteId of siteIds) if (!seesSite(siteId)) return "site";
      return times.responseMs >= atMs ? "unexplained" : "unknown";
    },
    /** Requests `GET me` every minute after a recent rejection, or while a site is invisible. Ends with the signal. */
    async watch(signal: AbortSignal): Promise<void> {
      await runLoop({
        clock,
        signal,
        wakeup: watchChanged,
        async turn() {
          const nextRequestInMs = times.requestMs + refreshEveryMs() - clock.monotonic();
          if (nextRequestInMs > 0) return nextRequestInMs;
          await tryRefresh(signal);
          return refreshEveryMs();
        },
        fault: () => undefined,
        backoff: { firstMs: SCOPE_REFRESH_MS, maxMs: SCOPE_REFRESH_MS },
      });
    },
  };
}
