import { meaningOf } from "../../../core/errors/errors.ts";
import type { Alarm } from "../../../core/model/building.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import type { AlarmFilter } from "../../source/source.ts";
import { fingerprint, type Listing, listedCoverage, union } from "../listing.ts";
import { concernsAll } from "../per-site.ts";
import { episodeOf } from "./episode.ts";

/** The filters of the interface that cut the list of one site into parts. */
type Part = Pick<AlarmFilter, "priority" | "acknowledged">;

export interface SiteListOptions {
  /** Reads one part of the active alarms of a site, at most so many pages; `twice`: until two readings agree. */
  readonly read: (siteId: number, part: Part, how: ReadHow) => Promise<Listing<Alarm>>;
  /** Whether the pages of the uncut list are known to lead nowhere. */
  readonly isBroken: () => boolean;
  readonly clock: Clock;
  readonly log: Pick<Log, "info" | "warn">;
}

export interface ReadHow {
  readonly maxPages: number;
  readonly twice: boolean;
  readonly signal: AbortSignal;
}

export interface SiteList {
  read(siteId: number, careful: boolean, signal: AbortSignal): Promise<SiteReading>;
}

export interface SiteReading {
  readonly listing: Listing<Alarm>;
  /** One sentence where the list is read in parts. */
  readonly remark: string | null;
}

/**
 * Most pages of one list of active alarms: 10,000 alarms at 500 a page. Read twice, that is more than a minute of the
 * gentle pace of lists (30 a minute); a longer list is read in parts, which say more when they do not all come.
 */
export const PAGES = 20;
/** How often in a row, and for how long at least, a later page has to fail before it counts as one that never comes. */
const FAILURES = 3;
const FAILING_MS = 120_000;
/** After this a list whose pages could not be walked is tried whole again, in milliseconds. */
const FORGET_MS = 3_600_000;

interface Trouble {
  readonly sinceMs: number;
  readonly failures: number;
  /** Since when it is read in parts; null while it is tried whole. */
  readonly splitMs: number | null;
}

/**
 * The active alarms of one site. While its pages can be walked: one list. Where they cannot, it is cut by priority,
 * and what still cannot be walked by acknowledgement, until each part comes whole; which cut works is remembered, so
 * that no poll tries what failed before. The first page of the uncut list is read with the parts: it says how many
 * there are, and so whether the parts show all, those of an unknown priority too.
 */
export function createSiteList({ read, isBroken, clock, log }: SiteListOptions): SiteList {
  const troubles = new Map<string, Trouble>();
  const lastIds = new Map<number, ReadonlySet<string>>();

  const isSplit = (key: string) => {
    const splitMs = troubles.get(key)?.splitMs ?? null;
    return splitMs !== null && clock.monotonic() - splitMs < FORGET_MS;
  };

  /** True when this list is to be read in parts from now on. A part of a list whose pages never come gets no grace. */
  function note(key: string, brokenBy: "pages" | "trouble", isPart: boolean, reason: string): boolean {
    const nowMs = clock.monotonic();
    const { sinceMs, failures, splitMs } = troubles.get(key) ?? {
      sinceMs: nowMs,
      failures: 0,
      splitMs: null,
    };
    const often = failures + 1 >= FAILURES && nowMs - sinceMs >= FAILING_MS;
    const split = brokenBy === "pages" || isPart || often || isBroken();
    troubles.set(key, { sinceMs, failures: failures + 1, splitMs: split ? nowMs : null });
    if (split && splitMs === null) {
      log.warn({ list: key, reason }, "a list of alarms cannot be read to its end: it is read in parts");
    }
    return split;
  }

  async function readPart(siteId: number, part: Part, twice: boolean, signal: AbortSignal): Promise<Listing<Alarm>> {
    const key = nameOf(siteId, part);
    if (!isSplit(key)) {
      const whole = await read(siteId, part, { maxPages: PAGES, twice, signal });
      if (whole.complete || whole.brokenBy === undefined) {
        const before = troubles.get(key);
        troubles.delete(key);
        if (before !== undefined && before.splitMs !== null)
          log.info({ list: key }, "a list of alarms can be read whole again");
        return whole;
      }
      if (!note(key, whole.brokenBy, part.priority !== undefined, whole.reason)) {
        // A page that failed once or twice is a temporary failure: the list does not count.
        if (whole.failure !== undefined) throw whole.failure;
        return whole;
      }
    }
    return inParts(siteId, part, signal);
  }

  async function inParts(siteId: number, part: Part, signal: AbortSignal): Promise<Listing<Alarm>> {
    const first = await read(siteId, part, { maxPages: 1, twice: false, signal });
    const smaller = partsOf(part);
    if (first.complete) return first;
    if (smaller.length === 0) {
      const reason = `The active alarms of ${nameOf(siteId, part)} cannot be read beyond their first page.`;
      return { ...first, reason };
    }
    let items = listedCoverage(first);
    const ids = new Set<string>();
    const reasons: string[] = [];
    for (const each of smaller) {
      const listing = await readOr(() => readPart(siteId, each, false, signal), signal);
      for (const { id } of listedCoverage(listing)) ids.add(id);
      items = union(items, listedCoverage(listing), idOf);
      if (!listing.complete) reasons.push(listing.reason);
    }
    const { total } = first;
    const count = items.length;
    if (reasons.length === 0 && total === ids.size && total === count) return { complete: true, items, pages: 1 };
    const [reason = `The list says ${total} records and its parts show ${ids.size}.`] = reasons;
    return { complete: false, reason, shown: items, count, total };
  }

  return {
    async read(siteId, careful, signal) {
      const key = nameOf(siteId, {});
      const first = await readPart(siteId, {}, true, signal);
      if (!isSplit(key)) return { listing: first, remark: null };
      const remark = `The pages of the active alarms of site ${siteId} cannot be walked: they are read by priority and acknowledgement.`;
      // The parts come one after the other, so an alarm may slip between them: what seems gone is looked for again.
      const before = lastIds.get(siteId);
      const ids = new Set(listedCoverage(first).map(idOf));
      const lacks = before === undefined || !before.isSubsetOf(ids);
      lastIds.set(siteId, ids);
      if (!first.complete || !(careful || lacks)) return { listing: first, remark };
      const second = await readPart(siteId, {}, true, signal);
      const items = union(first.items, listedCoverage(second), idOf);
      lastIds.set(siteId, new Set(items.map(idOf)));
      if (second.complete && fingerprint(first.items, sameAs) === fingerprint(second.items, sameAs)) {
        return { listing: second, remark };
      }
      const reason = "Two readings of the parts of a list differ.";
      const count = items.length;
      return { listing: { complete: false, reason, shown: items, count, total: count }, remark };
    },
  };
}

/** A part that does not come at all shows nothing; what concerns every request is thrown. */
async function readOr(readIt: () => Promise<Listing<Alarm>>, signal: AbortSignal): Promise<Listing<Alarm>> {
  try {
    return await readIt();
  } catch (error) {
    signal.throwIfAborted();
    const failure = meaningOf(error);
    if (concernsAll(failure)) throw failure;
    return { complete: false, reason: failure.message, shown: null, count: 0, total: null };
  }
}

function partsOf(part: Part): readonly Part[] {
  if (part.priority === undefined) return (["A", "B", "C"] as const).map((priority) => ({ priority }));
  if (part.acknowledged === undefined) return [true, false].map((acknowledged) => ({ ...part, acknowledged }));
  return [];
}

function nameOf(siteId: number, { priority, acknowledged }: Part): string {
  const acknowledgement = acknowledged === undefined ? null : acknowledged ? "acknowledged" : "not acknowledged";
  return [`site ${siteId}`, priority, acknowledgement].filter((word) => word != null).join(", ");
}

const idOf = (alarm: Alarm) => alarm.id;

/** Key by which two readings of an active alarm are equal. */
export function sameAs(alarm: Alarm): string {
  return `${alarm.id} ${episodeOf(alarm)} ${alarm.status}`;
}
