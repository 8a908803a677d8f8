import { yieldIfManyObjects } from "../../../core/runtime/waiting.ts";
import { TAGS_PER_REQUEST } from "../../source/source.ts";
import { documentSet } from "../../store/store.ts";
import { loadRequestableTags, tagInventorySets } from "../inventory/requestable-tags.ts";
import { type HistoryDemand, liveQuotaShare, type QuotaOverload } from "../plan/overload.ts";
import { type StoredTagQuarantine, type StoredValue, syncSet } from "../snapshot.ts";
import { createClassFinder } from "../tag-selection.ts";
import type { ReadCommitOptions } from "./commit.ts";
import type { ReadConfig } from "./config.ts";
import type { TagSchedule } from "./tag-schedule.ts";

export interface RefreshOptions extends Pick<ReadCommitOptions, "source" | "store" | "clock" | "log" | "metrics"> {
  readonly classes: ReadConfig;
  readonly demand: HistoryDemand;
  readonly isFirstInventory?: () => boolean;
}

const REFRESH_INTERVAL_MS = 60_000;
export const EMPTY_WAIT_MS = 1_000;
/** Growth of the inventory that selects tags again within the minute: 50,000 new tags take 30 selections, not 500. */
const INVENTORY_GROWTH_FACTOR = 1.25;

/** Keeps the tag schedule in step with the inventory, the classes and the quota; reports overload and freshness. */
export function createScheduleRefresh(options: RefreshOptions, schedule: TagSchedule, typicalMs: () => number) {
  const { source, store, clock, log, metrics, demand } = options;
  let { classes } = options;
  let findClass = createClassFinder(classes);
  /** Inventory versions in the schedule (null: select tags again) and at the last check, and the number of tags. */
  const inventory = { scheduled: null as string | null, checked: null as string | null, tags: 0 };
  let refreshedAtMs = Number.NEGATIVE_INFINITY;
  let overload: QuotaOverload | null = null;
  let loggedFactor = 1;
  let freshness = { shownAtMs: Number.NEGATIVE_INFINITY, classes: [] as readonly string[] };

  function readBucket() {
    const { buckets } = source.quota();
    return buckets.find((each) => each.name.includes("read")) ?? buckets[0];
  }
  const slotMs = () => 60_000 / Math.max(1, readBucket()?.pacedPerMinute ?? 20);
  const lastingSlotMs = () => 60_000 / Math.max(1, readBucket()?.lastingPerMinute ?? 20);
  const quotaShare = () =>
    liveQuotaShare(60_000 / lastingSlotMs(), demand.followingPerMinute(), source.quota().buckets.length === 1);
  const replyMs = (spacingMs: number) => Math.min(spacingMs, typicalMs());

  async function run(): Promise<void> {
    await selectTags();
    await yieldIfManyObjects(schedule.size());
    if (clock.monotonic() - refreshedAtMs >= REFRESH_INTERVAL_MS - EMPTY_WAIT_MS) {
      schedule.startMinute();
      refreshedAtMs = clock.monotonic();
    }
    overload = schedule.stretch(lastingSlotMs(), TAGS_PER_REQUEST, quotaShare(), replyMs(slotMs()));
    if (options.isFirstInventory?.() !== true) logOverload(overload);
    await yieldIfManyObjects(schedule.size());
    showFreshness();
  }

  async function ifDue(): Promise<number> {
    const currentVersions = await inventoryVersions();
    const isGrowing = currentVersions !== inventory.checked;
    inventory.checked = currentVersions;
    const msUntilRefresh = () => refreshedAtMs + REFRESH_INTERVAL_MS - clock.monotonic();
    if (schedule.size() === 0 || inventory.scheduled === null || msUntilRefresh() <= EMPTY_WAIT_MS) await run();
    else if (currentVersions !== inventory.scheduled) {
      const { size } = await store.documents<unknown>(documentSet("tag", source.name));
      if (size >= INVENTORY_GROWTH_FACTOR * inventory.tags) await run();
    }
    return schedule.size() === 0 || isGrowing ? EMPTY_WAIT_MS : Math.max(EMPTY_WAIT_MS, msUntilRefresh());
  }

  async function inventoryVersions(): Promise<string> {
    const documentSets = [...tagInventorySets(source.name), syncSet("quarantine", source.name)];
    return (await Promise.all(documentSets.map((set) => store.version(set)))).join(" ");
  }

  async function selectTags(): Promise<void> {
    const currentVersions = await inventoryVersions();
    if (currentVersions === inventory.scheduled) return;
    const findClassBefore = findClass;
    const [tags, values, quarantines] = await Promise.all([
      loadRequestableTags(store, source.name),
      store.documents<StoredValue>(documentSet("value", source.name)),
      store.documents<StoredTagQuarantine>(syncSet("quarantine", source.name)),
    ]);
    const watchedTags = tags.flatMap((located) => {
      const readClass = findClass(located);
      // Tags of an invisible site stay scheduled, so that they are due as soon as the token sees it.
      return readClass === undefined || located.outOfSight === "tag" ? [] : [{ ...located, readClass }];
    });
    await yieldIfManyObjects(watchedTags.length);
    const nowMs = clock.monotonic();
    const offsetMs = nowMs - clock.now();
    const toMonotonic = (time: string) => Date.parse(time) + offsetMs;
    schedule.watch(watchedTags, { values, quarantines, nowMs, toMonotonic });
    inventory.tags = tags.length;
    // The classes may have changed during the reads above.
    inventory.scheduled = findClassBefore === findClass ? currentVersions : null;
  }

  function showFreshness(): void {
    const currentFreshness = schedule.freshness(clock.monotonic());
    for (const className of freshness.classes) {
      const classFreshness = currentFreshness.find((each) => each.name === className);
      if (classFreshness === undefined) metrics.freshnessPromised.remove({ source: source.name, class: className });
      if ((classFreshness?.achievedMs ?? null) === null)
        metrics.freshnessAchieved.remove({ source: source.name, class: className });
    }
    for (const { name, promisedMs, achievedMs } of currentFreshness) {
      const labels = { source: source.name, class: name };
      metrics.freshnessPromised.set(labels, promisedMs / 1_000);
      if (achievedMs !== null) metrics.freshnessAchieved.set(labels, achievedMs / 1_000);
    }
    freshness = { shownAtMs: clock.monotonic(), classes: currentFreshness.map(({ name }) => name) };
  }

  /** Logs an overload once when it begins or changes by a fifth, and once when it ends. */
  function logOverload({ demand: needed, factors }: QuotaOverload): void {
    const factor = Math.max(1, ...factors.values());
    const isSame = loggedFactor === 1 ? factor === 1 : factor !== 1 && Math.abs(factor / loggedFactor - 1) <= 0.2;
    if (isSame) return;
    loggedFactor = factor;
    if (factor === 1) log.info({ demand: needed }, "the live reads fit into the quota again");
    else {
      const logFields = { demand: needed, factors: Object.fromEntries(factors) };
      log.warn(logFields, "the live reads ask for more than the quota: intervals are stretched");
    }
  }

  return {
    ...{ run, ifDue, slotMs, replyMs, quotaShare },
    overload: () => overload,
    hasClasses: () => classes.length > 0,
    showFreshnessIfDue(): void {
      if (clock.monotonic() - freshness.shownAtMs >= schedule.size()) showFreshness();
    },
    changeClasses(next: ReadConfig): void {
      classes = next;
      findClass = createClassFinder(next);
      inventory.scheduled = null;
    },
  };
}
