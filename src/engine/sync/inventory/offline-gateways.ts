import type { Gateway } from "../../../core/model/building.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Page } from "../../source/source.ts";
import type { Listed } from "../snapshot.ts";
import { offlineGateways } from "./behind-gateway.ts";

/**
 * Offline gateways of each site while their list is recent. An old list proves nothing: the gateway may be back, and its tags
 * must be read at their interval.
 */
export interface OfflineGateways {
  /** The site's list, which notes that it was read to its end. */
  noting(siteId: number, pages: AsyncIterable<Page<Gateway>>): AsyncIterable<Page<Gateway>>;
  /** The offline gateway behind which every tag of a site is; null where none is known. */
  of(siteId: number): string | null;
}

/** For so long it is not looked again which gateways are offline, in milliseconds. */
const LOOK_MS = 1_000;
/** A list may come so much later than its schedule says, in milliseconds. */
const LATE_MS = 60_000;

/** When a list is due after a moment (both milliseconds since 1970); null when lists are not read. */
type NextList = ((afterMs: number) => number) | null;

export function createOfflineGateways(
  held: () => ReadonlyMap<string, Listed<Gateway>>,
  nextList: () => NextList,
  clock: Clock,
): OfflineGateways {
  /** Until when its list counts, on the monotonic clock: until the next two are due and neither came. */
  const countsUntilMs = new Map<number, number>();
  const fromNowMs = () => {
    const nextListMs = nextList();
    if (nextListMs === null) return Number.NEGATIVE_INFINITY;
    const nowMs = clock.now();
    return clock.monotonic() + nextListMs(nextListMs(nowMs)) - nowMs + LATE_MS;
  };
  /** Gateways stored at the start count as listed at the start. */
  const atStartMs = fromNowMs();
  let lookedAtMs = Number.NEGATIVE_INFINITY;
  let offline: ReadonlyMap<number, string> = new Map();

  return {
    async *noting(siteId, pages) {
      for await (const page of pages) {
        if (!page.more) countsUntilMs.set(siteId, fromNowMs());
        yield page;
      }
    },
    of(siteId) {
      const nowMs = clock.monotonic();
      if (nowMs > (countsUntilMs.get(siteId) ?? atStartMs)) return null;
      if (nowMs - lookedAtMs >= LOOK_MS) {
        offline = offlineGateways(held());
        lookedAtMs = nowMs;
      }
      return offline.get(siteId) ?? null;
    },
  };
}
