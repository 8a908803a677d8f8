/**
 * Notices that somebody else spends the same quota: the service's count of remaining requests is lower than our
 * own requests can explain, or refusals go on although our count allows every request.
 */
export interface OtherClientUse {
  /** `remaining`: the service's own count says so. `refusals`: nothing else explains them. */
  readonly evidence: "remaining" | "refusals";
  /** The most requests in one window that were not ours; null when the service does not say. */
  readonly perWindow: number | null;
  /** When it was first noticed, milliseconds since 1970. */
  readonly sinceMs: number;
}

export interface OtherClientWatch {
  /** The service has counted so many requests beyond ours (0 or less: none that we know of). */
  excess(now: number, wallMs: number, requests: number): void;
  refusals(now: number, wallMs: number): void;
  /** Slots that somebody else seems to occupy now. */
  occupied(now: number): number;
  /** What is known, until half an hour has passed without new evidence. */
  use(now: number): OtherClientUse | null;
}

/** One odd count may be left over from before a start; only what goes on longer than two windows is told. */
const SEEN_TIMES = 3;
const SEEN_FOR_MS = 120_000;
const REMEMBER_MS = 30 * 60_000;

export function createOtherClientWatch(
  windowMs: number,
  tell: (use: OtherClientUse) => void,
): OtherClientWatch {
  let seen: { readonly at: number; readonly requests: number }[] = [];
  let use: (OtherClientUse & { readonly confirmedAt: number }) | null = null;

  const confirm = (now: number, wallMs: number, evidence: OtherClientUse["evidence"]) => {
    const known = current(now);
    const most = seen.reduce((most, { requests }) => Math.max(most, requests), 0);
    use = {
      evidence: known?.evidence === "remaining" ? "remaining" : evidence,
      perWindow: most > 0 ? most : null,
      sinceMs: known?.sinceMs ?? wallMs,
      confirmedAt: now,
    };
    if (known === null) tell({ evidence: use.evidence, perWindow: use.perWindow, sinceMs: use.sinceMs });
  };
  const current = (now: number) => (use !== null && now - use.confirmedAt < REMEMBER_MS ? use : null);

  return {
    excess(now, wallMs, requests) {
      seen = seen.filter(({ at }) => now - at < REMEMBER_MS);
      if (requests <= 0) return;
      seen.push({ at: now, requests });
      const first = seen[0]?.at ?? now;
      if (seen.length >= SEEN_TIMES && now - first >= SEEN_FOR_MS) confirm(now, wallMs, "remaining");
    },
    refusals: (now, wallMs) => confirm(now, wallMs, "refusals"),
    occupied(now) {
      return seen.reduce(
        (most, { at, requests }) => (now - at < windowMs ? Math.max(most, requests) : most),
        0,
      );
    },
    use(now) {
      const known = current(now);
      return known && { evidence: known.evidence, perWindow: known.perWindow, sinceMs: known.sinceMs };
    },
  };
}
