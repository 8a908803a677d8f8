import { ConfigError } from "../../core/errors/errors.ts";
import { formatCount } from "../../core/values/plural.ts";
import type { Page } from "../source/source.ts";
import type { Job, JobOutcome } from "./job.ts";

interface InventoryPages {
  readonly pagesRead: number;
  readonly pagesTotal: number;
}

export type FirstInventory = ReturnType<FirstInventoryProgress["now"]>;

export interface FirstInventoryReport extends Omit<FirstInventory, "others"> {
  readonly message: string | null;
}

const SHORT_LIST_JOBS = ["gateways", "hosts", "systems"] as const;

interface ListProgress {
  site: number;
  sites: number;
  before: number;
  number: number;
  lastPage: number;
}

export type FirstInventoryProgress = ReturnType<typeof createFirstInventory>;

/** Counts pages of the first inventory lists. `isKnown`: an earlier run of the worker has read the list. */
export function createFirstInventory(isKnown: (job: string) => boolean) {
  const openJobs = new Set<string>([...SHORT_LIST_JOBS, "tags"].filter((job) => !isKnown(job)));
  const lists = new Map<string, ListProgress>();

  function countPages(job: string): InventoryPages {
    const list = lists.get(job);
    // A list that was not begun has at least one page for each site.
    const pagesRead = list === undefined ? 0 : list.before + list.number;
    if (!openJobs.has(job)) return { pagesRead, pagesTotal: pagesRead };
    return { pagesRead, pagesTotal: list === undefined ? (lists.get("tags")?.sites ?? 0) : estimatePages(list) };
  }

  async function runWatched({ name, run }: Job, signal: AbortSignal): Promise<JobOutcome> {
    let isSettled = false;
    try {
      const jobOutcome = await run(signal);
      isSettled = jobOutcome.kind === "ok";
      return jobOutcome;
    } catch (error) {
      isSettled = error instanceof ConfigError;
      throw error;
    } finally {
      if (isSettled || lists.has(name)) openJobs.delete(name);
    }
  }

  return {
    now() {
      const tags = lists.get("tags");
      const otherPages = SHORT_LIST_JOBS.map(countPages);
      const sumPages = (field: keyof InventoryPages) => otherPages.reduce((sum, pages) => sum + pages[field], 0);
      return {
        pagesRead: tags === undefined ? 0 : tags.before + tags.number,
        /** Estimated pages of tags; sites not yet listed count with the average: 2 pages each give 600 for 300 sites. */
        pagesTotal: tags === undefined ? null : estimatePages(tags),
        /** True once each list was read or refused, also before an earlier restart. */
        done: openJobs.size === 0,
        others: { pagesRead: sumPages("pagesRead"), pagesTotal: sumPages("pagesTotal") },
      };
    },
    page(job: string, { site, sites }: { site: number; sites: number }, { number, lastPage }: Page<unknown>): void {
      if (!openJobs.has(job)) return;
      const listProgress = lists.get(job) ?? { site: 0, sites, before: 0, number: 0, lastPage: 0 };
      if (site !== listProgress.site) listProgress.before = site === 1 ? 0 : listProgress.before + listProgress.number;
      lists.set(job, Object.assign(listProgress, { site, sites, number, lastPage: Math.max(number, lastPage) }));
    },
    watch: (job: Job): Job => ({ ...job, run: (signal) => runWatched(job, signal) }),
    waitOnlyFor(jobs: readonly Job[]): void {
      for (const pendingJob of openJobs)
        if (!jobs.some((job) => job.name === pendingJob && job.schedule !== false)) openJobs.delete(pendingJob);
    },
  };
}

function estimatePages({ site, sites, before, lastPage }: ListProgress): number {
  const knownPages = before + lastPage;
  return knownPages + Math.ceil((knownPages / site) * (sites - site));
}

/** Returns `Reading the building: 34 of 60 pages of tags, about 1 minute left.`, or null when the lists are read. */
export function inventoryMessage({ done, pagesRead, pagesTotal, others }: FirstInventory, listsPerMinute: number) {
  if (done) return null;
  const tagsLeft = pagesTotal === null ? 0 : pagesTotal - pagesRead;
  const otherListsLeft = others.pagesTotal - others.pagesRead;
  if (tagsLeft === 0 && otherListsLeft === 0) return "Reading the building.";
  const requestsLeft = tagsLeft === 0 ? otherListsLeft : tagsLeft + Math.min(2 * tagsLeft, otherListsLeft);
  const minutesToRead = minutesLeft(pagesRead + others.pagesRead, requestsLeft, listsPerMinute);
  const timeLeft = minutesToRead < 1 ? "less than a minute" : `about ${formatCount(minutesToRead, "minute")}`;
  const pages =
    tagsLeft === 0
      ? `${others.pagesRead} of ${others.pagesTotal} pages of gateways, hosts and systems`
      : `${pagesRead} of ${formatCount(pagesTotal ?? 0, "page")} of tags`;
  return `Reading the building: ${pages}, ${timeLeft} left.`;
}

/** Share of the list rate for inventories: 24 of 30 requests a minute. Alarms, sites and the token take the rest. */
const INVENTORY_RATE_SHARE = 0.8;

/** Estimates minutes left. A minute's requests leave at once: of 60 pages at 30 a minute, 12 wait two minutes. */
export function minutesLeft(pages: number, pagesLeft: number, listsPerMinute: number): number {
  const listsAtOnce = Math.max(1, Math.ceil(listsPerMinute * INVENTORY_RATE_SHARE));
  return Math.floor((pages + pagesLeft - 1) / listsAtOnce) - Math.floor((pages - 1) / listsAtOnce);
}
