import { ConfigError } from "../../core/errors/errors.ts";
import type { TokenInfo } from "../../core/model/building.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { createWakeup, runLoop } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Source } from "../source/source.ts";
import type { TokenScopeChange } from "./alarms/diff-alarms.ts";

export type TokenScope = ReturnType<typeof createTokenScope>;

interface RefusedRequest {
  readonly siteIds: Iterable<number>;
  readonly ability: string | null;
  readonly atMs: number;
}

/** Cause of a rejection. `unexplained`: a later `GET me` allows the request. `unknown`: no later `GET me` yet. */
export type RefusalCause = "site" | "ability" | "unexplained" | "unknown";

/** Minimum time between two `GET me` requests; 5 minutes if the token lost its missing sites over an hour ago. */
const SCOPE_REFRESH_MS = 60_000;
const NEVER_REQUESTED_MS = Number.NEGATIVE_INFINITY;
const RECENT_SCOPE_LOSS_MS = 3_600_000;
const OLD_SCOPE_LOSS_REFRESH_MS = 300_000;
const SCOPE_LOSS_RETENTION_MS = 7 * 86_400_000;

/**
 * Visible sites and permissions (abilities) of the token, as `GET me` last stated. Plenum sends `GET me` after a
 * rejection, at most once a minute, and while a known site is invisible. `explain` returns the cause of a rejection.
 */
export function createTokenScope(source: Source, clock: Clock) {
  const changes = createWakeup();
  const scopeWatchChanged = createWakeup();
  let visibleSites: ReadonlySet<number> | null = null;
  let tokenAbilities: ReadonlySet<string> | null = null;
  let respondedWallMs: number | null = null;
  const times = { requestMs: NEVER_REQUESTED_MS, responseMs: NEVER_REQUESTED_MS, refusalMs: NEVER_REQUESTED_MS };
  const lostAt = new Map<string, number>();

  /** Returns the sites that are visible now. */
  function learnTokenScope(info: Pick<TokenInfo, "sites" | "abilities">): ReadonlySet<number> {
    const formerScopeNames = new Set([...(visibleSites ?? []), ...(tokenAbilities ?? [])].map(String));
    const isFirstScope = visibleSites === null;
    visibleSites = new Set(info.sites.map(({ id }) => id));
    tokenAbilities = new Set(info.abilities);
    const scopeNames = new Set([...visibleSites, ...tokenAbilities].map(String));
    const nowMs = clock.monotonic();
    for (const lostScopeName of formerScopeNames) if (!scopeNames.has(lostScopeName)) lostAt.set(lostScopeName, nowMs);
    for (const [name, sinceMs] of lostAt)
      if (scopeNames.has(name) || nowMs - sinceMs > SCOPE_LOSS_RETENTION_MS) lostAt.delete(name);
    const isScopeSame = formerScopeNames.size === scopeNames.size && formerScopeNames.isSubsetOf(scopeNames);
    if (!isScopeSame && !isFirstScope) changes.wakeUp();
    if (lostAt.size > 0) scopeWatchChanged.wakeUp();
    return visibleSites;
  }

  async function refreshTokenScope(signal: AbortSignal): Promise<TokenScopeChange> {
    const sitesBefore = visibleSites;
    times.requestMs = clock.monotonic();
    const after = learnTokenScope(await source.me(signal));
    times.responseMs = clock.monotonic();
    respondedWallMs = clock.now();
    return { before: sitesBefore ?? after, after };
  }

  async function tryRefresh(signal: AbortSignal): Promise<TokenScopeChange | null> {
    try {
      return await refreshTokenScope(signal);
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof ConfigError && error.reason === "unauthenticated") throw error;
      return null;
    }
  }

  /** Returns infinity while no request is refused and no site is lost. */
  function scopeRefreshIntervalMs(): number {
    if (times.refusalMs > times.responseMs) return SCOPE_REFRESH_MS;
    const nowMs = clock.monotonic();
    if ([...lostAt.values()].some((sinceMs) => nowMs - sinceMs < RECENT_SCOPE_LOSS_MS)) return SCOPE_REFRESH_MS;
    return lostAt.size > 0 ? OLD_SCOPE_LOSS_REFRESH_MS : Number.POSITIVE_INFINITY;
  }

  const isSiteVisible = (siteId: number) => visibleSites === null || visibleSites.has(siteId);
  const hasAbility = (ability: string) => tokenAbilities === null || tokenAbilities.has(ability);
  return {
    ...{ sees: isSiteVisible, hasAbility, learn: learnTokenScope, refresh: refreshTokenScope, tryRefresh, changes },
    known: () => visibleSites,
    respondedWallMs: () => respondedWallMs,
    respondedAtMs: () => times.responseMs,
    lost(): Readonly<Record<string, string>> {
      const wallMinusMonotonicMs = clock.now() - clock.monotonic();
      return Object.fromEntries([...lostAt].map(([name, sinceMs]) => [name, isoUtc(wallMinusMonotonicMs + sinceMs)]));
    },
    /** Restores the lost sites and abilities of the last run, so that their return is noticed after a restart. */
    restoreLostScope(stored: Readonly<Record<string, string>>): void {
      // A time in the future was stored before a clock step: the loss counts from now on.
      const elapsedSinceMs = (since: string) => Math.max(0, clock.now() - Date.parse(since));
      for (const [name, since] of Object.entries(stored)) lostAt.set(name, clock.monotonic() - elapsedSinceMs(since));
      if (lostAt.size > 0) scopeWatchChanged.wakeUp();
    },
    async explain({ siteIds, ability, atMs }: RefusedRequest, signal: AbortSignal): Promise<RefusalCause> {
      times.refusalMs = Math.max(times.refusalMs, atMs);
      scopeWatchChanged.wakeUp();
      if (times.responseMs < atMs && clock.monotonic() - times.requestMs >= SCOPE_REFRESH_MS) await tryRefresh(signal);
      // A missing permission explains a rejection, even if the last `GET me` is older than the rejection.
      if (ability !== null && !hasAbility(ability)) return "ability";
      for (const siteId of siteIds) if (!isSiteVisible(siteId)) return "site";
      return times.responseMs >= atMs ? "unexplained" : "unknown";
    },
    /** Requests `GET me` at the intervals above after a rejection and while a site is invisible. Ends with the signal. */
    async watch(signal: AbortSignal): Promise<void> {
      await runLoop({
        clock,
        signal,
        wakeup: scopeWatchChanged,
        async step() {
          const msUntilNextGetMe = times.requestMs + scopeRefreshIntervalMs() - clock.monotonic();
          if (msUntilNextGetMe > 0) return msUntilNextGetMe;
          await tryRefresh(signal);
          return scopeRefreshIntervalMs();
        },
        onFault: () => undefined,
        backoff: { firstMs: SCOPE_REFRESH_MS, maxMs: SCOPE_REFRESH_MS },
      });
    },
  };
}
