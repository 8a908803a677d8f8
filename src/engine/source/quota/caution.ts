/**
 * What refusals teach. A request that our own count allowed was refused all the same: the service counts in some
 * other way than a window, a packet took longer than believed, or somebody else uses the token.
 *
 * - The first takes one slot away (a weighted counter bears 19 even requests, not 20) and adds a margin of 0.25 s
 *   per window to the pace. Each further one doubles the margin, up to 4 s.
 * - If two or more slots were unused, no window can have refused: the service limits the spacing (a leaky bucket).
 *   Then the full margin at once, and urgent requests keep the spacing too.
 * - One that comes within 30 minutes of such a lesson means a stranger: the rate is cut by a third each time, and
 *   comes back by one request per minute every ten minutes.
 *
 * A lesson lasts an hour, because it may have been a passing thing, and a day when it comes again. The margin
 * shrinks by a fifth in three clean hours.
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
const MARGIN_DECAY = 0.8;
const MARGIN_DECAY_EVERY_MS = 3 * 3_600_000;
const REPEATED_WITHIN_MS = 30 * 60_000;
const FIRST_LESSON_MS = 3_600_000;
const LESSON_MS = 24 * 3_600_000;
/** One slot may be misjudged when a packet is late; two are not. */
const UNUSED_SLOTS = 2;
const RATE_CUT = 2 / 3;
const LEAST_PER_WINDOW = 2;
const RATE_STEP_EVERY_MS = 10 * 60_000;

export function createCaution(limit: number): Caution {
  let lastRefusal = Number.NEGATIVE_INFINITY;
  let lesson: "none" | "one slot less" | "spacing" = "none";
  let lessonEnds = Number.NEGATIVE_INFINITY;
  let lessons = 0;
  let marginMs = 0;
  let marginSettledAt = 0;
  let perWindow = limit;
  let rateSettledAt = 0;

  const most = () => (lesson === "none" ? limit : limit - 1);

  /** Applies the clean time that has passed. */
  const settle = (now: number) => {
    if (lesson !== "none" && now >= lessonEnds) {
      lesson = "none";
      marginMs = 0;
    }
    while (lesson !== "spacing" && marginMs > 0 && now - marginSettledAt >= MARGIN_DECAY_EVERY_MS) {
      marginSettledAt += MARGIN_DECAY_EVERY_MS;
      marginMs *= MARGIN_DECAY;
    }
    while (perWindow < limit && now - rateSettledAt >= RATE_STEP_EVERY_MS) {
      rateSettledAt += RATE_STEP_EVERY_MS;
      perWindow = Math.min(limit, perWindow + 1);
    }
  };

  return {
    refused(now, used, known) {
      settle(now);
      if (perWindow < limit || now - lastRefusal < REPEATED_WITHIN_MS) {
        perWindow = Math.max(LEAST_PER_WINDOW, Math.min(perWindow, most()) * RATE_CUT);
      } else {
        const spacing = known && used <= limit - UNUSED_SLOTS;
        lesson = spacing || lesson === "spacing" ? "spacing" : "one slot less";
        lessonEnds = now + (lessons === 0 ? FIRST_LESSON_MS : LESSON_MS);
        lessons += 1;
        marginMs = spacing ? GREATEST_MARGIN_MS : Math.max(LEAST_MARGIN_MS, marginMs * 2);
        marginMs = Math.min(GREATEST_MARGIN_MS, marginMs);
      }
      lastRefusal = now;
      marginSettledAt = now;
      rateSettledAt = now;
    },
    terms(now) {
      settle(now);
      return {
        marginMs,
        perWindow: Math.max(1, Math.min(most(), perWindow)),
        throttled: lesson !== "none" || perWindow < limit,
        spaced: lesson === "spacing",
        stranger: perWindow < limit,
      };
    },
  };
}
