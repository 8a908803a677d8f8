import { ConfigError } from "../../core/errors/errors.ts";
import { counted } from "../../core/values/plural.ts";
import type { Page } from "../source/source.ts";
import type { Job, JobOutcome } from "./job.ts";

/** How far the first reading of a building's lists is. */
export interface FirstInventory {
  /** Pages of the lists of tags. */
  readonly pagesRead: number;
  /**
   * Null before the first page. A site that was not listed yet counts with as many pages as the others have on average:
   * after 10 of 300 sites with 2 pages each, 600.
   */
  readonly pagesTotal: number | null;
  /**
   * True once the lists of gateways, hosts, systems and tags were read at least once, or cannot be: a run of each has ended
   * that brought a page or was refused. What an earlier start has read counts.
   */
  readonly done: boolean;
  /** The same pages for the lists of gateways, hosts and systems together. */
  readonly others: { readonly pagesRead: number; readonly pagesTotal: number };
}

/** The same for the status; `message` is for a person, null when it is done. */
export interface FirstInventoryReport extends Pick<FirstInventory, "pagesRead" | "pagesTotal" | "done"> {
  readonly message: string | null;
}

/** Follows the first runs of the lists. Each answer costs the same, however large the building is. */
export interface FirstInventoryProgress {
  now(): FirstInventory;
  /** A page of one site's list came; `site` counts from 1. */
  page(job: string, at: { readonly site: number; readonly sites: number }, page: Page<unknown>): void;
  /** The same job, watched until its first run has ended. */
  watched(job: Job): Job;
  /** Jobs that are switched off are not waited for. */
  only(jobs: readonly Job[]): void;
}

/** The lists that make up an inventory; of the last one most pages come. */
const LISTS = ["gateways", "hosts", "systems", "tags"] as const;

interface ListPages {
  site: number;
  sites: number;
  /** Pages of the sites before this one. */
  before: number;
  number: number;
  lastPage: number;
}

/** `isKnown`: whether the list was read before this start. */
export function createFirstInventory(isKnown: (job: string) => boolean): FirstInventoryProgress {
  const pending = new Set<string>(LISTS.filter((job) => !isKnown(job)));
  const lists = new Map<string, ListPages>();

  return {
    now() {
      const tags = lists.get("tags");
      let pagesRead = 0;
      let pagesTotal = 0;
      for (const job of LISTS) {
        if (job === "tags") continue;
        const list = lists.get(job);
        // One that has not begun has at least a page for each site.
        if (list === undefined) pagesTotal += pending.has(job) ? (tags?.sites ?? 0) : 0;
        else {
          const read = list.before + list.number;
          pagesRead += read;
          pagesTotal += pending.has(job) ? totalOf(list) : read;
        }
      }
      return {
        pagesRead: tags === undefined ? 0 : tags.before + tags.number,
        pagesTotal: tags === undefined ? null : totalOf(tags),
        done: pending.size === 0,
        others: { pagesRead, pagesTotal },
      };
    },
    page(job, { site, sites }, { number, lastPage }) {
      if (!pending.has(job)) return;
      const list = lists.get(job) ?? { site: 0, sites, before: 0, number: 0, lastPage: 0 };
      // A list that is read again starts over, so that no page counts twice.
      if (site !== list.site) list.before = site === 1 ? 0 : list.before + list.number;
      lists.set(job, Object.assign(list, { site, sites, number, lastPage: Math.max(number, lastPage) }));
    },
    watched(job) {
      return { ...job, run: (signal) => noted(job, job.run(signal)) };
    },
    only(jobs) {
      const on = new Set(jobs.filter(({ schedule }) => schedule !== false).map(({ name }) => name));
      for (const job of pending) if (!on.has(job)) pending.delete(job);
    },
  };

  async function noted({ name }: Job, run: Promise<JobOutcome>): Promise<JobOutcome> {
    let isRefused = false;
    let isGood = false;
    try {
      const outcome = await run;
      isGood = outcome.kind === "ok";
      return outcome;
    } catch (error) {
      isRefused = error instanceof ConfigError;
      throw error;
    } finally {
      if (isGood || isRefused || lists.has(name)) pending.delete(name);
    }
  }
}

function totalOf({ site, sites, before, lastPage }: ListPages): number {
  const known = before + lastPage;
  return known + Math.ceil((known / site) * (sites - site));
}

/**
 * For a person, `Reading the building: 34 of 60 pages of tags, about 1 minute left.`; null when it is done. Two
 * requests for short lists leave for each page of tags, so a page of tags takes three requests while short lists are left.
 */
export function inventoryMessage(
  { done, pagesRead, pagesTotal, others }: FirstInventory,
  listsPerMinute: number,
): string | null {
  if (done) return null;
  const tagsLeft = pagesTotal === null ? 0 : pagesTotal - pagesRead;
  const othersLeft = others.pagesTotal - others.pagesRead;
  if (tagsLeft === 0 && othersLeft === 0) return "Reading the building.";
  const requestsLeft = tagsLeft === 0 ? othersLeft : tagsLeft + Math.min(2 * tagsLeft, othersLeft);
  const minutes = minutesLeft(pagesRead + others.pagesRead, requestsLeft, listsPerMinute);
  const time = minutes < 1 ? "less than a minute" : `about ${counted(minutes, "minute")}`;
  const pages =
    tagsLeft === 0
      ? `${others.pagesRead} of ${others.pagesTotal} pages of gateways, hosts and systems`
      : `${pagesRead} of ${counted(pagesTotal ?? 0, "page")} of tags`;
  return `Reading the building: ${pages}, ${time} left.`;
}

/** Share of the rate of lists that inventories get: at 30 requests a minute 24. Alarms, sites and the token take the rest. */
const SHARE_OF_INVENTORY = 0.8;

/**
 * Whole minutes until so many more pages have come, after those that have. As many pages leave at once as the rate of lists
 * allows in a minute, and as many in each further minute: of 60 pages at 30 requests a minute the last 12 wait two minutes.
 */
export function minutesLeft(pages: number, pagesLeft: number, listsPerMinute: number): number {
  const atOnce = Math.max(1, Math.ceil(listsPerMinute * SHARE_OF_INVENTORY));
  return Math.floor((pages + pagesLeft - 1) / atOnce) - Math.floor((pages - 1) / atOnce);
}
