import { createSerialRunner, yieldIfManyObjects } from "../../../core/runtime/waiting.ts";
import { documentSet } from "../../store/store.ts";
import { loadRequestableTags, tagInventorySets } from "../inventory/requestable-tags.ts";
import { type HistoryDemand, liveQuotaShare, type QuotaOverload } from "../plan/overload.ts";
import { type StoredTagQuarantine, type StoredValue, syncSet } from "../stored-documents.ts";
import { createClassFinder } from "../tag-selection.ts";
import type { LiveReadCommitOptions } from "./commit-readings.ts";
import type { ReadConfig } from "./config.ts";
import type { StaleValues } from "./stale-values.ts";
import type { TagSchedule } from "./tag-schedule.ts";

export interface RefreshOptions extends Pick<LiveReadCommitOptions, "source" | "store" | "clock" | "log" | "metrics"> {
  readonly readClasses: ReadConfig;
  readonly historyDemand: HistoryDemand;
  readonly isFirstInventory?: () => boolean;
}

const SCHEDULE_REFRESH_INTERVAL_MS = 60_000;
export const RECHECK_MS = 1_000;
/** Growth of the number of tags, 25 %, after which Plenum selects the tags again before the minute ends. */
const INVENTORY_GROWTH_FACTOR = 1.25;

/** Updates the tag schedule when the inventory, the read classes or the quota change. */
export function createScheduleRefresh(
  options: RefreshOptions,
  schedule: TagSchedule,
  typicalLatencyMs: () => number,
  staleValues: Pick<StaleValues, "setTags" | "intervalsChanged">,
) {
  const { source, store, clock, log, metrics, historyDemand } = options;
  let { readClasses } = options;
  let findReadClass = createClassFinder(readClasses);
  /** Inventory versions that the schedule contains (null: select tags again) and that the last check found. */
  const inventory = { scheduledVersions: null as string | null, checkedVersions: null as string | null, tagCount: 0 };
  let scheduleRefreshedAtMs = Number.NEGATIVE_INFINITY;
  let overload: QuotaOverload | null = null;
  let loggedOverloadFactor = 1;
  let publishedFreshness = { publishedAtMs: Number.NEGATIVE_INFINITY, classes: [] as readonly string[] };

  function findReadQuotaBucket() {
    const { buckets } = source.quota();
    return buckets.find((bucket) => bucket.name.includes("read")) ?? buckets[0];
  }
  const pacedSlotMs = () => 60_000 / Math.max(1, findReadQuotaBucket()?.pacedPerMinute ?? 20);
  const sustainedSlotMs = () => 60_000 / Math.max(1, findReadQuotaBucket()?.lastingPerMinute ?? 20);
  const quotaShare = () =>
    liveQuotaShare(60_000 / sustainedSlotMs(), historyDemand.requestsPerMinute(), source.quota().buckets.length === 1);
  const expectedReplyMs = (slotMs: number) => Math.min(slotMs, typicalLatencyMs());

  const runSerially = createSerialRunner();
  const run = () => runSerially(refreshSchedule);

  async function refreshSchedule(): Promise<void> {
    await selectWatchedTags();
    await yieldIfManyObjects(schedule.size());
    if (clock.monotonic() - scheduleRefreshedAtMs >= SCHEDULE_REFRESH_INTERVAL_MS - RECHECK_MS) {
      schedule.startFreshnessMinute();
      scheduleRefreshedAtMs = clock.monotonic();
    }
    overload = schedule.updateOverloadFactors(sustainedSlotMs(), quotaShare(), expectedReplyMs(pacedSlotMs()));
    const promisedMs = (readClass: ReadConfig[number]) =>
      readClass.every * (overload?.factors.get(readClass.name) ?? 1) + pacedSlotMs();
    staleValues.intervalsChanged(new Map(readClasses.map((readClass) => [readClass.name, promisedMs(readClass)])));
    if (options.isFirstInventory?.() !== true) logOverload(overload);
    await yieldIfManyObjects(schedule.size());
    setFreshnessMetrics();
  }

  async function refreshScheduleIfDue(): Promise<number> {
    const currentInventoryVersions = await readInventoryVersions();
    const isInventoryGrowing = currentInventoryVersions !== inventory.checkedVersions;
    inventory.checkedVersions = currentInventoryVersions;
    const msUntilRefresh = () => scheduleRefreshedAtMs + SCHEDULE_REFRESH_INTERVAL_MS - clock.monotonic();
    if (schedule.size() === 0 || inventory.scheduledVersions === null || msUntilRefresh() <= RECHECK_MS) await run();
    else if (currentInventoryVersions !== inventory.scheduledVersions) {
      const { size } = await store.documents<unknown>(documentSet("tag", source.name));
      if (size >= INVENTORY_GROWTH_FACTOR * inventory.tagCount) await run();
    }
    return schedule.size() === 0 || isInventoryGrowing ? RECHECK_MS : Math.max(RECHECK_MS, msUntilRefresh());
  }

  async function readInventoryVersions(): Promise<string> {
    const documentSets = [...tagInventorySets(source.name), syncSet("quarantine", source.name)];
    return (await Promise.all(documentSets.map((set) => store.version(set)))).join(" ");
  }

  async function selectWatchedTags(): Promise<void> {
    const currentInventoryVersions = await readInventoryVersions();
    if (currentInventoryVersions === inventory.scheduledVersions) return;
    const findReadClassBefore = findReadClass;
    const [tags, values, quarantines] = await Promise.all([
      loadRequestableTags(store, source.name),
      store.documents<StoredValue>(documentSet("value", source.name)),
      store.documents<StoredTagQuarantine>(syncSet("quarantine", source.name)),
    ]);
    const watchedTags = tags.flatMap((siteTag) => {
      const readClass = findReadClass(siteTag);
      // Tags of an invisible site stay scheduled, so that they are due as soon as the token sees the site.
      return readClass === undefined || siteTag.missing === "tag" ? [] : [{ ...siteTag, readClass }];
    });
    await yieldIfManyObjects(watchedTags.length);
    const nowMs = clock.monotonic();
    const monotonicOffsetMs = nowMs - clock.now();
    const wallTimeToMonotonicMs = (time: string) => Date.parse(time) + monotonicOffsetMs;
    const storedReads = { values, quarantines, nowMs, toMonotonic: wallTimeToMonotonicMs };
    schedule.setWatchedTags(watchedTags, storedReads);
    staleValues.setTags(tags, storedReads);
    inventory.tagCount = tags.length;
    // The read classes may have changed while the documents were loaded.
    inventory.scheduledVersions = findReadClassBefore === findReadClass ? currentInventoryVersions : null;
  }

  function setFreshnessMetrics(): void {
    const currentFreshness = schedule.freshness(clock.monotonic());
    for (const className of publishedFreshness.classes) {
      const metricLabels = { source: source.name, class: className };
      const classFreshness = currentFreshness.find((freshness) => freshness.name === className);
      if (classFreshness === undefined) metrics.freshnessPromised.remove(metricLabels);
      if ((classFreshness?.achievedMs ?? null) === null) metrics.freshnessAchieved.remove(metricLabels);
    }
    for (const { name, promisedMs, achievedMs } of currentFreshness) {
      const metricLabels = { source: source.name, class: name };
      metrics.freshnessPromised.set(metricLabels, promisedMs / 1_000);
      if (achievedMs !== null) metrics.freshnessAchieved.set(metricLabels, achievedMs / 1_000);
    }
    publishedFreshness = { publishedAtMs: clock.monotonic(), classes: currentFreshness.map(({ name }) => name) };
  }

  /** Logs an overload once when it begins or changes by a fifth, and once when it ends. */
  function logOverload({ demand: neededRequestsPerSlot, factors }: QuotaOverload): void {
    const overloadFactor = Math.max(1, ...factors.values());
    const isOverloadUnchanged =
      loggedOverloadFactor === 1
        ? overloadFactor === 1
        : overloadFactor !== 1 && Math.abs(overloadFactor / loggedOverloadFactor - 1) <= 0.2;
    if (isOverloadUnchanged) return;
    loggedOverloadFactor = overloadFactor;
    if (overloadFactor === 1) log.info({ demand: neededRequestsPerSlot }, "the live reads fit into the quota again");
    else {
      const logFields = { demand: neededRequestsPerSlot, factors: Object.fromEntries(factors) };
      log.warn(logFields, "the live reads need more requests than the quota: intervals are extended");
    }
  }

  return {
    ...{ run, refreshIfDue: refreshScheduleIfDue, slotMs: pacedSlotMs, expectedReplyMs, quotaShare },
    overload: () => overload,
    hasReadClasses: () => readClasses.length > 0,
    updateMetricsIfDue(): void {
      if (clock.monotonic() - publishedFreshness.publishedAtMs >= schedule.size()) setFreshnessMetrics();
    },
    changeClasses(newClasses: ReadConfig): void {
      readClasses = newClasses;
      findReadClass = createClassFinder(newClasses);
      inventory.scheduledVersions = null;
    },
  };
}
