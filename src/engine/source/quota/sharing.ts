import type { QuotaEndpoint } from "./limiter.ts";

/**
 * Finds out from `X-RateLimit-Remaining` whether read, write and history share one count. The interface does not
 * say; believing in one shared count cannot be punished, so it takes clear evidence to leave that belief.
 *
 * One pair (a read leaves 19, the first history leaves 19 too) is not clear: the minute may have turned between
 * them, or an allowance has refilled. Three requests one after the other are, each sent after the reply to the one before:
 * endpoint A, endpoint B, A again, where A's count has risen by exactly one, so nothing was reset between, and B's count
 * is far from A's, so B is counted elsewhere. Of requests under way together nobody knows which was counted first:
 *
 *   read sent, counted 20th; the window turns; history counted 1st, and answered; the read is answered: 20
 */
export interface SharingEvidence {
  /**
   * A reply of `endpoint`, whose request left at `sentMs`, says now that the service has counted `taken` requests
   * (milliseconds on the monotonic clock). True once two findings agree.
   */
  separate(endpoint: QuotaEndpoint, taken: number, sentMs: number, now: number): boolean;
}

interface Count {
  readonly endpoint: QuotaEndpoint;
  readonly taken: number;
  readonly sentMs: number;
  readonly at: number;
}

const FINDINGS = 2;
const FAR_APART = 3;
const WITHIN_MS = 45_000;

export function createSharingEvidence(): SharingEvidence {
  let last: Count | undefined;
  let beforeLast: Count | undefined;
  let findings = 0;
  return {
    separate(endpoint, taken, sentMs, now) {
      const [first, middle] = [beforeLast, last];
      beforeLast = last;
      last = { endpoint, taken, sentMs, at: now };
      if (first === undefined || middle === undefined || now - first.at > WITHIN_MS) return false;
      if (middle.sentMs < first.at || sentMs < middle.at) return false;
      if (first.endpoint !== endpoint || middle.endpoint === endpoint) return false;
      if (taken === first.taken + 1 && Math.abs(middle.taken - first.taken) >= FAR_APART) findings += 1;
      if (taken === first.taken + 2 && middle.taken === first.taken + 1) findings = 0;
      return findings >= FINDINGS;
    },
  };
}
