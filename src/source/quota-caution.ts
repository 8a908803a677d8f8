/**
 * What refusals teach. A request that our own log allowed was refused all the same: the service counts in some
 * other way than a window, a packet took longer than believed, or somebody else uses the token.
 *
 * - Each refusal doubles a margin on the pace, 0.25 s to 4 s per window.
 * - A second one within 30 minutes takes one slot away (a weighted counter bears 19 even requests, not 20).
 * - A refusal while two or more slots are unused cannot come from a window: the service limits the spacing (a
 *   leaky bucket). Then the full margin and one slot away at once, and urgent requests keep the spacing too: for
 *   an hour, because it may have been a stranger's passing visit, and for a day when it happens again.
 * - A third within 30 minutes means a stranger: the rate is cut by a third, and comes back by one request per
 *   minute every ten minutes.
 *
 * The margin shrinks by a fifth in three clean hours; the slot is tried again after a clean day.
 */
export interface Caution {
  /** A refusal at `now`, with `used` slots occupied besides the refused one; `known`: there can be no others. */
  refused(now: number, used: number, known: boolean): void;
  /** What to keep to at `now`. */
  terms(now: number): CautionTerms;
}

export interface CautionTerms {
  readonly marginMs: number;
  /** Requests per window, possibly not a whole number. */
  readonly perWindow: number;
  readonly throttled: boolean;
  /** Urgent requests keep the pace as well. */
  readonly spaced: boolean;
  /** Refusals go on although everything else was tried: somebody else must be using the token. */
  readonly stranger: boolean;
}

const LEAST_MARGIN_MS = 250;
const GREATEST_MARGIN_MS = 4_000;
const FORGOTTEN_MARGIN_MS = 50;
const MARGIN_DECAY = 0.8;
const MARGIN_DECAY_EVERY_MS = 3 * 3_600_000;
const REPEATED_WITHIN_MS = 30 * 60_000;
const LESSON_LASTS_MS = 24 * 3_600_000;
/** One slot may be misjudged when a packet is late; two are not. */
const UNUSED_SLOTS = 2;
const FIRST_SPACING_LASTS_MS = 3_600_000;
const RATE_CUT = 2 / 3;
const LEAST_PER_WINDOW = 2;
const RATE_STEP_EVERY_MS = 10 * 60_000;

export function createCaution(limit: number): Caution {
  let refusals: number[] = [];
  let marginMs = 0;
  let slotsAway = 0;
  let spacedUntil = Number.NEGATIVE_INFINITY;
  let spacings = 0;
  let spaced = false;
  let perWindow = limit;
  let settledAt = Number.NEGATIVE_INFINITY;
  let rateSettledAt = Number.NEGATIVE_INFINITY;

  /** Applies the clean time that has passed. */
  const settle = (now: number) => {
    const last = refusals.at(-1);
    if (last === undefined) return;
    if (now - last >= LESSON_LASTS_MS) {
      slotsAway = 0;
      refusals = [];
    }
    if (spaced && now >= spacedUntil) {
      spaced = false;
      slotsAway = 0;
      marginMs = 0;
    }
    while (!spaced && marginMs > 0 && now - settledAt >= MARGIN_DECAY_EVERY_MS) {
      settledAt += MARGIN_DECAY_EVERY_MS;
      marginMs = marginMs * MARGIN_DECAY < FORGOTTEN_MARGIN_MS ? 0 : marginMs * MARGIN_DECAY;
    }
    while (perWindow < limit && now - rateSettledAt >= RATE_STEP_EVERY_MS) {
      rateSettledAt += RATE_STEP_EVERY_MS;
      perWindow = Math.min(limit, perWindow + 1);
    }
  };

  return {
    refused(now, used, known) {
      settle(now);
      refusals = refusals.filter((at) => now - at < LESSON_LASTS_MS);
      const recent = refusals.filter((at) => now - at < REPEATED_WITHIN_MS).length;
      if (perWindow < limit || recent >= 2) {
        perWindow = Math.max(LEAST_PER_WINDOW, Math.min(perWindow, limit - slotsAway) * RATE_CUT);
      } else if (known && used <= limit - UNUSED_SLOTS) {
        spaced = true;
        spacedUntil = now + (spacings === 0 ? FIRST_SPACING_LASTS_MS : LESSON_LASTS_MS);
        spacings += 1;
        slotsAway = 1;
        marginMs = GREATEST_MARGIN_MS;
      } else {
        marginMs = Math.min(GREATEST_MARGIN_MS, Math.max(LEAST_MARGIN_MS, marginMs * 2));
        if (recent >= 1) slotsAway = 1;
      }
      refusals.push(now);
      settledAt = now;
      rateSettledAt = now;
    },
    terms(now) {
      settle(now);
      return {
        marginMs,
        perWindow: Math.max(1, Math.min(limit - slotsAway, perWindow)),
        throttled: refusals.length > 0,
        spaced,
        stranger: perWindow < limit,
      };
    },
  };
}
