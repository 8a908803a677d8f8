import type { Site, Tag } from "../../../core/model/building.ts";
import { type Event, eventSubject, makeEvent, sourceUri } from "../../../core/model/event.ts";
import type {
  DayAccount,
  DaySealedFact,
  SeriesAccount,
  SeriesStatement,
  WaitingSeries,
} from "../../../core/model/history-facts.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import { countBuckets, DAY_MS, parseTime, type Range } from "../history/buckets.ts";
import { closedUntilMs } from "../history/ledger.ts";
import { type LedgerRange, toRanges } from "../history/ledger-ranges.ts";
import type { Series } from "../history/series.ts";
import { type CountedSeries, type DayCount, type DayCounts, type Days, dateOf, isWanted, wantedFrom } from "./days.ts";

export interface Statement {
  readonly said: string | null;
  readonly at: string | null;
}

const NO_STATEMENT: Statement = { said: null, at: null };

function statementOf({ said, at }: Pick<LedgerRange, "said" | "at">): Statement {
  return { said: said ?? null, at: at ?? null };
}

export interface SeriesDay extends DayAccount {
  readonly why: WaitingSeries["why"] | null;
  readonly noLog: Statement | null;
  readonly refusal: Statement | null;
}

const EMPTY_ACCOUNT = {
  expected: 0,
  had: 0,
  null: 0,
  absent: 0,
  withoutLog: 0,
  refused: 0,
  pending: 0,
  notWanted: 0,
};

function addAccounts(a: DayAccount, b: DayAccount): DayAccount {
  const sum: { -readonly [name in keyof DayAccount]: number } = { ...EMPTY_ACCOUNT };
  for (const name of Object.keys(sum) as (keyof DayAccount)[]) sum[name] = a[name] + b[name];
  return sum;
}

export function accountOf(series: CountedSeries, day: number, count: DayCount | undefined, nowMs: number): SeriesDay {
  const { ledger, rules } = series;
  const dayRange: Range = { fromMs: day * DAY_MS, toMs: (day + 1) * DAY_MS };
  const buckets = (range: Range) => countBuckets(day, ledger, range);
  const opensAt = isWanted(series) ? wantedFrom(ledger) : Number.POSITIVE_INFINITY;
  const wantedBuckets = ({ fromMs, toMs }: Range) => buckets({ fromMs: Math.max(fromMs, opensAt), toMs });
  let [answered, withoutLog, refused] = [0, 0, 0];
  let pending = wantedBuckets(dayRange);
  let noLog: Statement | null = null;
  let refusal: Statement | null = null;
  for (const span of toRanges(ledger.spans)) {
    const covered = span.toMs <= dayRange.fromMs || span.fromMs >= dayRange.toMs ? 0 : buckets(span);
    if (covered === 0) continue;
    pending -= wantedBuckets(span);
    if (span.why === "no-log") {
      withoutLog += covered;
      noLog = statementOf(span);
    } else if (span.why === "refused") {
      refused += covered;
      refusal = statementOf(span);
    } else answered += covered;
  }
  const watermarkMs = parseTime(ledger.watermark);
  if (pending > 0 && ledger.state === "no-log") {
    withoutLog += pending;
    noLog = ledger.refusal === null ? (noLog ?? NO_STATEMENT) : statementOf(ledger.refusal);
    pending = 0;
  } else if (pending > 0 && ledger.refusal !== null) {
    // Following or log discovery was refused; the past before it may still be fetched.
    const fromMs = ledger.state === "following" ? Math.max(dayRange.fromMs, watermarkMs) : dayRange.fromMs;
    const atFront = Math.min(
      pending,
      wantedBuckets({ fromMs, toMs: Math.min(dayRange.toMs, closedUntilMs(rules, nowMs)) }),
    );
    refused += atFront;
    pending -= atFront;
    if (atFront > 0) refusal = statementOf(ledger.refusal);
  }
  // A service that samples may have more points than there are buckets.
  const had = Math.min(answered, count?.had ?? 0);
  const nulls = Math.min(answered - had, count?.null ?? 0);
  const expected = answered + withoutLog + refused + pending;
  return {
    ...{ expected, had, null: nulls, absent: answered - had - nulls, withoutLog, refused, pending },
    notWanted: buckets(dayRange) - expected,
    why: pending === 0 ? null : pendingReason(series, dayRange, watermarkMs, nowMs),
    ...{ noLog, refusal },
  };
}

function pendingReason(
  { ledger, rules, located }: CountedSeries,
  { fromMs, toMs }: Range,
  watermarkMs: number,
  nowMs: number,
): WaitingSeries["why"] {
  if (located.outOfSight === "site") return "out-of-scope";
  if (ledger.state === "unproven") return "unproven";
  if (watermarkMs >= toMs) return "backfill";
  const closedMs = closedUntilMs(rules, nowMs);
  if (closedMs > watermarkMs) return "behind";
  return watermarkMs < fromMs || closedMs < toMs ? "open" : "backfill";
}

export interface SiteSeries extends CountedSeries {
  readonly total: boolean;
  readonly located: CountedSeries["located"] & { readonly tag: Tag; readonly siteId: number };
}

export interface SiteDay {
  readonly account: DayAccount;
  readonly series: number;
  readonly byResolution: readonly SeriesAccount[];
  readonly withoutLog: readonly SeriesStatement[];
  readonly refused: readonly SeriesStatement[];
}

const NAMED_MAX = 200;

export function createSiteDay(day: number) {
  let account: DayAccount = EMPTY_ACCOUNT;
  let count = 0;
  const groups = new Map<string, SeriesAccount>();
  const withoutLog: SeriesStatement[] = [];
  const refused: SeriesStatement[] = [];
  return {
    add(series: SiteSeries, counted: DayCount | undefined, nowMs: number): SeriesDay {
      const own = accountOf(series, day, counted, nowMs);
      if (own.expected === 0) return own;
      const { ledger, total, located } = series;
      const { resolution, timeZone } = ledger;
      account = addAccounts(account, own);
      count++;
      const name = groupName(series);
      const group = groups.get(name) ?? { ...EMPTY_ACCOUNT, resolution, timeZone, total, series: 0 };
      groups.set(name, { ...group, ...addAccounts(group, own), series: group.series + 1 });
      const named = (buckets: number, statement: Statement | null): SeriesStatement => ({
        ...{ tagId: located.tag.id, resolution, total, buckets },
        ...(statement ?? NO_STATEMENT),
      });
      if (own.withoutLog > 0) withoutLog.push(named(own.withoutLog, own.noLog));
      if (own.refused > 0) refused.push(named(own.refused, own.refusal));
      return own;
    },
    done: (): SiteDay => ({ account, series: count, byResolution: [...groups.values()], withoutLog, refused }),
  };
}

export function dayFinalized(
  site: Site,
  day: number,
  { account, series, byResolution, withoutLog, refused }: SiteDay,
  revision: number,
  revised: number,
): DaySealedFact {
  return {
    site,
    date: dateOf(day),
    timeZones: [...new Set(byResolution.map(({ timeZone }) => timeZone))],
    ...{ revision, revised, series },
    ...account,
    byResolution,
    seriesWithoutLog: withoutLog.slice(0, NAMED_MAX),
    seriesWithoutLogCount: withoutLog.length,
    seriesRefused: refused.slice(0, NAMED_MAX),
    seriesRefusedCount: refused.length,
  };
}

/** Returns null if no bucket begins in these days, as on six of seven days of a weekly series. */
export function seriesCompleteEvent(
  series: Series,
  source: string,
  { from, until }: Days,
  counts: DayCounts,
  nowMs: number,
): Event<"history-complete"> | null {
  const { located, ledger, total } = series;
  const { resolution, timeZone } = ledger;
  let sum: DayAccount = EMPTY_ACCOUNT;
  for (let day = from; day < until; day++) sum = addAccounts(sum, accountOf(series, day, counts.get(day), nowMs));
  if (sum.expected === 0) return null;
  const days = { firstDate: dateOf(from), lastDate: dateOf(until - 1) };
  // The subject of the history itself, so that sinks which order by subject deliver it after the history.
  const subject = `${eventSubject("tag", located.siteId, located.tag.id)}/${total ? "total" : "history"}/${resolution}`;
  const data = { tag: located.tag, resolution, timeZone, total, ...days, ...sum };
  const facts = [resolution, timeZone, days.firstDate, days.lastDate, sum.had, sum.null, sum.withoutLog];
  const about = { source: sourceUri(source), subject, siteId: located.siteId, time: isoUtc(nowMs) };
  return makeEvent({ ...about, type: "history-complete", data, facts });
}

export function groupName({ rules, total }: Pick<Series, "rules" | "total">): string {
  return `${rules.resolution} ${rules.timeZone}${total ? " total" : ""}`;
}
