import { TAGS_PER_REQUEST } from "../../source/source.ts";
import type { StoredCut } from "../snapshot.ts";

/**
 * Whether an answer may end where it does because the service gives no more points at once, without an error. The
 * interface is silent on such a limit. Pure.
 *
 * Whoever gave 2,016 points of a series at once does not leave off at 1,000 or at 2,000: an answer is in doubt only where
 * it has more points, of one series or in all, than any before it, or as many. A sensor that was installed last week, a
 * logger that was off and a gateway that was away have fewer points than the series that went on, and are believed at
 * once. So an honest service is asked again only while the largest answer still grows, however long the backfill is: of
 * 200 tags, half of which have such ends, 134 requests for a month where it was 114 without any doubt, of 60 tags 167 for
 * 300 days where it was 143 (`test/sync/history-short.test.ts`). That is a minute of the quota.
 */
export interface Counts {
  /** Points of the longest series. */
  readonly series: number;
  /** Points of the whole answer. */
  readonly answer: number;
}

/** Counts that are no limit. */
export interface Known {
  /** The largest that are known to be none. */
  readonly none: Counts;
  /** Those of the last answer that was found to have ended by itself. */
  readonly once: Counts;
}

/** Points that any service gives at once: as many records as a page of a list has. */
const GIVEN = 99;

export const NOTHING_KNOWN: Known = {
  none: { series: GIVEN, answer: GIVEN },
  once: { series: 0, answer: 0 },
};

/** So long a proved limit is believed, in milliseconds: what was logged late looks like one, and services change. */
const BELIEVED_MS = 30 * 86_400_000;

/** Whoever gave so many points would have given one fewer. */
export function withResponse({ none, once }: Known, { series, answer }: Counts): Known {
  return {
    none: { series: Math.max(none.series, series - 1), answer: Math.max(none.answer, answer - 1) },
    once,
  };
}

/** The counts of an answer that may be limits, 0 for one that is none. */
export function unverified({ none }: Known, { series, answer }: Counts): Counts {
  return { series: series > none.series ? series : 0, answer: answer > none.answer ? answer : 0 };
}

/**
 * Nothing more was there where an answer with these counts left off. An end may fall on a limit by chance, but not twice;
 * and a count that nobody would choose, 4,108 say, is believed at once.
 */
export function withEnd({ none, once }: Known, { series, answer }: Counts): Known {
  const isNone = (count: number, before: number) => count === before || !isChosen(count);
  return {
    none: {
      series: isNone(series, once.series) ? Math.max(none.series, series) : none.series,
      answer: isNone(answer, once.answer) ? Math.max(none.answer, answer) : none.answer,
    },
    once: { series: series || once.series, answer: answer || once.answer },
  };
}

/** A number that people choose for a limit: 500, 1,440, 4,096. */
function isChosen(count: number): boolean {
  return count % 10 === 0 || Number.isInteger(Math.log2(count));
}

/** It was given later what an answer with these counts left out; what gave more before does not count any more. */
export function withLimit({ none }: Known, { series, answer }: Counts): Known {
  return {
    none: {
      series: series === 0 ? none.series : Math.min(none.series, series - 1),
      answer: answer === 0 ? none.answer : Math.min(none.answer, answer - 1),
    },
    once: NOTHING_KNOWN.once,
  };
}

/**
 * What is known of the limit, now that one of these counts is proved to be it. Of 20 series that end at 250 points each it
 * is not known whether it is 250 for each or 5,000 for all: the one that comes again with another number of tags is it.
 */
export function provedCut(before: StoredCut | null, { series, answer }: Counts, at: string): StoredCut {
  const isBoth = series > 0 && answer > 0;
  const isSeriesAgain = isBoth && before?.series === series && before.answer !== answer;
  const isAnswerAgain = isBoth && before?.answer === answer && before.series !== series;
  if (isBoth && !isSeriesAgain && !isAnswerAgain) return { series, answer, either: true, at };
  const isSeries = series > 0 && !isAnswerAgain;
  const firm = before === null || before.either ? { series: null, answer: null } : before;
  return isSeries
    ? { series, answer: firm.answer, either: false, at }
    : { series: firm.series, answer, either: false, at };
}

/**
 * Buckets that each of so many tags may be asked for at once. A reply may have the bucket before the range and the one at
 * its end too, and stays one below the limit, so that a full one is no cause for doubt.
 */
export function bucketsEach(cut: StoredCut | null, tags: number, nowMs: number): number {
  if (cut === null || Date.parse(cut.at) + BELIEVED_MS < nowMs) return Number.POSITIVE_INFINITY;
  const series = cut.series === null ? Number.POSITIVE_INFINITY : cut.series;
  const answer = cut.answer === null ? Number.POSITIVE_INFINITY : cut.answer / tags;
  const each = cut.either ? Math.max(series, answer) : Math.min(series, answer);
  return Math.max(1, Math.floor(each) - 3);
}

/** Values that one request of as many tags as it takes may ask for. */
export function valuesBelow(cut: StoredCut | null, nowMs: number): number {
  return TAGS_PER_REQUEST * bucketsEach(cut, TAGS_PER_REQUEST, nowMs);
}
