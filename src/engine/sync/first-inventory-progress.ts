import { ConfigError } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { formatCount } from "../../core/values/plural.ts";
import type { ListPage } from "../source/source.ts";
import type { JobOutcome, SyncJob } from "./job.ts";

interface PageCounts {
  readonly pagesRead: number;
  readonly pagesTotal: number;
}

export type FirstInventory = ReturnType<FirstInventoryProgress["getProgress"]>;

export interface FirstInventoryReport extends Omit<FirstInventory, "others"> {
  readonly message: string | null;
}

const JOBS_WITH_SHORT_LISTS = ["gateways", "hosts", "systems"] as const;

interface InventoryListProgress {
  site: number;
  sites: number;
  before: number;
  number: number;
  lastPage: number;
}

export type FirstInventoryProgress = ReturnType<typeof createFirstInventoryProgress>;

/** Counts pages of the first inventory lists. `isKnown`: an earlier run of the worker has read the list. */
export function createFirstInventoryProgress(isKnown: (job: string) => boolean, clock: Pick<Clock, "monotonic">) {
  const jobsLeft = new Set<string>([...JOBS_WITH_SHORT_LISTS, "tags"].filter((job) => !isKnown(job)));
  const listsByJob = new Map<string, InventoryListProgress>();
  let lastPageMs: number | null = null;

  function countListPages(job: string): PageCounts {
    const list = listsByJob.get(job);
    // A list that was not begun has at least one page for each site.
    const pagesRead = list === undefined ? 0 : list.before + list.number;
    if (!jobsLeft.has(job)) return { pagesRead, pagesTotal: pagesRead };
    return { pagesRead, pagesTotal: list === undefined ? (listsByJob.get("tags")?.sites ?? 0) : estimatePages(list) };
  }

  async function runInventoryJob({ name, run }: SyncJob, signal: AbortSignal): Promise<JobOutcome> {
    let isSettled = false;
    try {
      const jobOutcome = await run(signal);
      isSettled = jobOutcome.kind === "ok";
      return jobOutcome;
    } catch (error) {
      isSettled = error instanceof ConfigError;
      throw error;
    } finally {
      if (isSettled || listsByJob.has(name)) jobsLeft.delete(name);
    }
  }

  return {
    getProgress() {
      const tags = listsByJob.get("tags");
      const pagesOfShortLists = JOBS_WITH_SHORT_LISTS.map(countListPages);
      const sumPages = (field: keyof PageCounts) => pagesOfShortLists.reduce((sum, pages) => sum + pages[field], 0);
      return {
        pagesRead: tags === undefined ? 0 : tags.before + tags.number,
        /** Estimated pages of tags. Unlisted sites count with the average: 2 pages each give 600 for 300 sites. */
        pagesTotal: tags === undefined ? null : estimatePages(tags),
        /** True if each list was read or refused, in this or an earlier run. */
        done: jobsLeft.size === 0,
        others: { pagesRead: sumPages("pagesRead"), pagesTotal: sumPages("pagesTotal") },
      };
    },
    lastPageMs: () => lastPageMs,
    page(job: string, { site, sites }: { site: number; sites: number }, { number, lastPage }: ListPage<unknown>): void {
      if (jobsLeft.size > 0) lastPageMs = clock.monotonic();
      if (!jobsLeft.has(job)) return;
      const listProgress = listsByJob.get(job) ?? { site: 0, sites, before: 0, number: 0, lastPage: 0 };
      if (site !== listProgress.site) listProgress.before = site === 1 ? 0 : listProgress.before + listProgress.number;
      listsByJob.set(job, Object.assign(listProgress, { site, sites, number, lastPage: Math.max(number, lastPage) }));
    },
    watch: (job: SyncJob): SyncJob => ({ ...job, run: (signal) => runInventoryJob(job, signal) }),
    waitOnlyFor(jobs: readonly SyncJob[]): void {
      for (const unfinishedJob of jobsLeft)
        if (!jobs.some((job) => job.name === unfinishedJob && job.schedule !== false)) jobsLeft.delete(unfinishedJob);
    },
  };
}

function estimatePages({ site, sites, before, lastPage }: InventoryListProgress): number {
  const knownPageCount = before + lastPage;
  return knownPageCount + Math.ceil((knownPageCount / site) * (sites - site));
}

/** Returns `Reading the building: 34 of 60 pages of tags, about 1 minute left.`, or null when the lists are read. */
export function inventoryMessage({ done, pagesRead, pagesTotal, others }: FirstInventory, listsPerMinute: number) {
  if (done) return null;
  const tagPagesLeft = pagesTotal === null ? 0 : pagesTotal - pagesRead;
  const otherListsLeft = others.pagesTotal - others.pagesRead;
  if (tagPagesLeft === 0 && otherListsLeft === 0) return "Reading the building.";
  const requestsLeft = tagPagesLeft === 0 ? otherListsLeft : tagPagesLeft + Math.min(2 * tagPagesLeft, otherListsLeft);
  const minutesToRead = estimateMinutesLeft(pagesRead + others.pagesRead, requestsLeft, listsPerMinute);
  const timeLeftText = minutesToRead < 1 ? "less than a minute" : `about ${formatCount(minutesToRead, "minute")}`;
  const pagesReadText =
    tagPagesLeft === 0
      ? `${others.pagesRead} of ${others.pagesTotal} pages of gateways, hosts and systems`
      : `${pagesRead} of ${formatCount(pagesTotal ?? 0, "page")} of tags`;
  return `Reading the building: ${pagesReadText}, ${timeLeftText} left.`;
}

/** Share of the list rate for polls of gateways, hosts, systems and tags. Other polls use the rest. */
const INVENTORY_RATE_SHARE = 0.8;

/** Estimates minutes left. A minute's requests are sent at once: of 60 pages at 24 a minute, 12 wait two minutes. */
export function estimateMinutesLeft(pages: number, pagesLeft: number, listsPerMinute: number): number {
  const pagesPerMinute = Math.max(1, Math.ceil(listsPerMinute * INVENTORY_RATE_SHARE));
  return Math.floor((pages + pagesLeft - 1) / pagesPerMinute) - Math.floor((pages - 1) / pagesPerMinute);
}
