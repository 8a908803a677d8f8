import type { Clock } from "../clock.ts";
import { ConfigError } from "../errors.ts";
import type { Source } from "../source/source.ts";
import type { Scope } from "./alarms/diff-alarms.ts";

/**
 * Which sites the token sees. A thing that is missing is missing only while its site is seen: what `before` and
 * `after` both name was seen all along, as far as the service says.
 *
 * `GET me` is asked only when something is missing: what a list does show is there, whatever the scope. `before` is
 * what was known from the last time, so that one request brackets a whole poll.
 */
export interface TokenScope {
  known(): ReadonlySet<number> | null;
  /** When it was last asked, milliseconds since 1970; null when never. */
  askedAtMs(): number | null;
  /** Asks again. */
  refresh(signal: AbortSignal): Promise<Scope>;
  /** As `refresh`, but null when the service does not answer: then nothing is said about what is missing. */
  tryRefresh(signal: AbortSignal): Promise<Scope | null>;
  learn(sites: Iterable<number>): void;
}

export function createScope(source: Source, clock: Clock): TokenScope {
  let known: ReadonlySet<number> | null = null;
  let askedAtMs: number | null = null;

  const scope: TokenScope = {
    known: () => known,
    askedAtMs: () => askedAtMs,
    learn(sites) {
      known = new Set(sites);
    },
    async refresh(signal) {
      const info = await source.me(signal);
      const after = new Set(info.sites.map((site) => site.id));
      const before = known ?? after;
      known = after;
      askedAtMs = clock.now();
      return { before, after };
    },
    async tryRefresh(signal) {
      try {
        return await scope.refresh(signal);
      } catch (error) {
        signal.throwIfAborted();
        if (error instanceof ConfigError && error.reason === "unauthenticated") throw error;
        return null;
      }
    },
  };
  return scope;
}
