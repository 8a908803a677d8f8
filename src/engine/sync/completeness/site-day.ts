import type { Site, Tag } from "../../../core/model/building.ts";
import type {
  DayAccount,
  DaySealedFact,
  SeriesAccount,
  SeriesStatement,
} from "../../../core/model/history-facts.ts";
import {
  type AccountedSeries,
  accountOf,
  addAccounts,
  NOTHING,
  type SeriesDay,
  type Word,
} from "./account.ts";
import type { DayCount } from "./counts.ts";
import { dateOf } from "./days.ts";

/** A series of a site, as its account needs it. */
export interface SiteSeries extends AccountedSeries {
  readonly total: boolean;
  readonly placed: AccountedSeries["placed"] & { readonly tag: Tag; readonly siteId: number };
}

/** What is known of one UTC day of a site. */
export interface SiteDay {
  readonly account: DayAccount;
  readonly series: number;
  readonly byResolution: readonly SeriesAccount[];
  readonly withoutLog: readonly SeriesStatement[];
  readonly refused: readonly SeriesStatement[];
}

/** Series that are named at most, of each kind. */
const NAMED_MAX = 200;

/** Gathers the accounts of the series of a site, one after the other. */
export interface SiteDayLedger {
  add(series: SiteSeries, count: DayCount | undefined, nowMs: number): SeriesDay;
  done(): SiteDay;
}

export function createSiteDay(day: number): SiteDayLedger {
  let account = NOTHING;
  let all = 0;
  const groups = new Map<string, SeriesAccount>();
  const withoutLog: SeriesStatement[] = [];
  const refused: SeriesStatement[] = [];
  return {
    add(series, count, nowMs) {
      const own = accountOf(series, day, count, nowMs);
      const { held, total, placed } = series;
      if (own.expected === 0) return own;
      account = addAccounts(account, own);
      all++;
      const { resolution, timeZone } = held;
      const key = `${resolution} ${timeZone} ${total}`;
      const group = groups.get(key) ?? { ...NOTHING, resolution, timeZone, total, series: 0 };
      groups.set(key, { ...group, ...addAccounts(group, own), series: group.series + 1 });
      const named = (buckets: number, word: Word | null): SeriesStatement => ({
        ...{ tagId: placed.tag.id, resolution, total, buckets },
        ...{ said: word?.said ?? null, at: word?.at ?? null },
      });
      if (own.withoutLog > 0) withoutLog.push(named(own.withoutLog, own.noLog));
      if (own.refused > 0) refused.push(named(own.refused, own.refusal));
      return own;
    },
    done: () => ({ account, series: all, byResolution: [...groups.values()], withoutLog, refused }),
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
    revision,
    revised,
    series,
    ...account,
    byResolution,
    seriesWithoutLog: withoutLog.slice(0, NAMED_MAX),
    seriesWithoutLogCount: withoutLog.length,
    seriesRefused: refused.slice(0, NAMED_MAX),
    seriesRefusedCount: refused.length,
  };
}
