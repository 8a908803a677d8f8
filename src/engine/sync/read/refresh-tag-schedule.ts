import { serialRunner, yieldIfManyObjects } from "../../../core/runtime/waiting.ts";
import { TAGS_PER_REQUEST } from "../../source/source.ts";
import { documentSet } from "../../store/store.ts";
import { loadRequestableTags, tagInventorySets } from "../inventory/requestable-tags.ts";
import { type HistoryDemand, liveQuotaShare, type QuotaOverload } from "../plan/overload.ts";
import { type StoredTagQuarantine, type StoredValue, syncSet } from "../stored-documents.ts";
import { createClassFinder } from "../tag-selection.ts";
import type { LiveReadCommitOptions } from "./commit.ts";
import type { ReadConfig } from "./config.ts";
import type { StaleValues } from "./stale-values.ts";
import type { TagSchedule } from "./tag-schedule.ts";

export interface RefreshOptions extends Pick<LiveReadCommitOptions, "source" | "store" | "clock" | "log" | "metrics"> {
  readonly classes: ReadConfig;
  readonly demand: HistoryDemand;
  readonly isFirstInventory?: () => boolean;
}

const SCHEDULE_REFRESH_INTERVAL_MS = 60_000;
export const EMPTY_WAIT_MS = 1_000;
/** Growth of the inventory after which tags are selected again before the next minute. */
const INVENTORY_GROWTH_FACTOR = 1.25;

/** Updates the tag schedule when the inventory, the read classes or the quota change. */
export function createScheduleRefresh(
  options: RefreshOptions,
  schedule: TagSchedule,
  typicalMs: () => number,
  staleValues: Pick<StaleValues, "watch" | "intervalsChanged">,
) {
  const { source, store, clock, log, metrics, demand } = options;
  let { classes } = options;
  let findReadClass = createClassFinder(classes);
  /** Inventory versions that the schedule contains (null: select tags again) and that the last check found. */
  const inventory = { scheduled: null as string | null, checked: null as string | null, tags: 0 };
  let scheduleRefreshedAtMs = Number.NEGATIVE_INFINITY;
  let overload: QuotaOverload | null = null;
  let loggedStretchFactor = 1;
  let shownFreshness = { shownAtMs: Number.NEGATIVE_INFINITY, classes: [] as readonly string[] };

  function findReadQuotaBucket() {
    const { buckets } = source.quota();
    return buckets.find((each) => each.name.includes("read")) ?? buckets[0];
  }
  const pacedSlotMs = () => 60_000 / Math.max(1, findReadQuotaBucket()?.pacedPerMinute ?? 20);
  const sustainedSlotMs = () => 60_000 / Math.max(1, findReadQuotaBucket()?.lastingPerMinute ?? 20);
  const quotaShare = () =>
    liveQuotaShare(60_000 / sustainedSlotMs(), demand.followingPerMinute(), source.quota().buckets.length === 1);
  const expectedReplyMs = (spacingMs: number) => Math.min(spacingMs, typicalMs());

  const oneRefresh = serialRunner();
  const run = () => oneRefresh(refreshSchedule);

  async function refreshSchedule(): Promise<void> {
    await selectWatchedTags();
    await yieldIfManyObjects(schedule.size());
    if (clock.monotonic() - scheduleRefreshedAtMs >= SCHEDULE_REFRESH_INTERVAL_MS - EMPTY_WAIT_MS) {
      schedule.startMinute();
      scheduleRefreshedAtMs = clock.monotonic();
    }
    overload = schedule.stretch(sustainedSlotMs(), TAGS_PER_REQUEST, quotaShare(), expectedReplyMs(pacedSlotMs()));
    const promisedMs = (each: ReadConfig[number]) =>
      each.every * (overload?.factors.get(each.name) ?? 1) + pacedSlotMs();
    staleValues.intervalsChanged(new Map(classes.map((each) => [each.name, promisedMs(each)])));
    if (options.isFirstInventory?.() !== true) logOverload(overload);
    await yieldIfManyObjects(schedule.size());
    setFreshnessMetrics();
  }

  async function refreshScheduleIfDue(): Promise<number> {
    const currentInventoryVersions = await readInventoryVersions();
    const isInventoryGrowing = currentInventoryVersions !== inventory.checked;
    inventory.checked = currentInventoryVersions;
    const msUntilRefresh = () => scheduleRefreshedAtMs + SCHEDULE_REFRESH_INTERVAL_MS - clock.monotonic();
    if (schedule.size() === 0 || inventory.scheduled === null || msUntilRefresh() <= EMPTY_WAIT_MS) await run();
    else if (currentInventoryVersions !== inventory.scheduled) {
      const { size } = await store.documents<unknown>(documentSet("tag", source.name));
      if (size >= INVENTORY_GROWTH_FACTOR * inventory.tags) await run();
    }
    return schedule.size() === 0 || isInventoryGrowing ? EMPTY_WAIT_MS : Math.max(EMPTY_WAIT_MS, msUntilRefresh());
  }

  async function readInventoryVersions(): Promise<string> {
    const documentSets = [...tagInventorySets(source.name), syncSet("quarantine", source.name)];
    return (await Promise.all(documentSets.map((set) => store.version(set)))).join(" ");
  }

  async function selectWatchedTags(): Promise<void> {
    const currentInventoryVersions = await readInventoryVersions();
    if (currentInventoryVersions === inventory.scheduled) return;
    const findReadClassBefore = findReadClass;
    const [tags, values, quarantines] = await Promise.all([
      loadRequestableTags(store, source.name),
      store.documents<StoredValue>(documentSet("value", source.name)),
      store.documents<StoredTagQuarantine>(syncSet("quarantine", source.name)),
    ]);
    const watchedTags = tags.flatMap((located) => {
      const readClass = findReadClass(located);
      // Tags of an invisible site stay scheduled, so that they are due as soon as the token sees the site.
      return readClass === undefined || located.outOfSight === "tag" ? [] : [{ ...located, readClass }];
    });
    await yieldIfManyObjects(watchedTags.length);
    const nowMs = clock.monotonic();
    const monotonicOffsetMs = nowMs - clock.now();
    const wallTimeToMonotonicMs = (time: string) => Date.parse(time) + monotonicOffsetMs;
    const storedReads = { values, quarantines, nowMs, toMonotonic: wallTimeToMonotonicMs };
    schedule.watch(watchedTags, storedReads);
    staleValues.watch(tags, storedReads);
    inventory.tags = tags.length;
    // The read classes may have changed while the documents were loaded.
    inventory.scheduled = findReadClassBefore === findReadClass ? currentInventoryVersions : null;
  }

  function setFreshnessMetrics(): void {
    const currentFreshness = schedule.freshness(clock.monotonic());
    for (const className of shownFreshness.classes) {
      const classFreshness = currentFreshness.find((each) => each.name === className);
      if (classFreshness === undefined) metrics.freshnessPromised.remove({ source: source.name, class: className });
      if ((classFreshness?.achievedMs ?? null) === null)
        metrics.freshnessAchieved.remove({ source: source.name, class: className });
    }
    for (const { name, promisedMs, achievedMs } of currentFreshness) {
      const metricLabels = { source: source.name, class: name };
      metrics.freshnessPromised.set(metricLabels, promisedMs / 1_000);
      if (achievedMs !== null) metrics.freshnessAchieved.set(metricLabels, achievedMs / 1_000);
    }
    shownFreshness = { shownAtMs: clock.monotonic(), classes: currentFreshness.map(({ name }) => name) };
  }

  /** Logs an overload once when it begins or changes by a fifth, and once when it ends. */
  function logOverload({ demand: needed, factors }: QuotaOverload): void {
    const stretchFactor = Math.max(1, ...factors.values());
    const isOverloadUnchanged =
      loggedStretchFactor === 1
        ? stretchFactor === 1
        : stretchFactor !== 1 && Math.abs(stretchFactor / loggedStretchFactor - 1) <= 0.2;
    if (isOverloadUnchanged) return;
    loggedStretchFactor = stretchFactor;
    if (stretchFactor === 1) log.info({ demand: needed }, "the live reads fit into the quota again");
    else {
      const logFields = { demand: needed, factors: Object.fromEntries(factors) };
      log.warn(logFields, "the live reads ask for more than the quota: intervals are stretched");
    }
  }

  return {
    ...{ run, ifDue: refreshScheduleIfDue, slotMs: pacedSlotMs, replyMs: expectedReplyMs, quotaShare },
    overload: () => overload,
    hasClasses: () => classes.length > 0,
    showFreshnessIfDue(): void {
      if (clock.monotonic() - shownFreshness.shownAtMs >= schedule.size()) setFreshnessMetrics();
    },
    changeClasses(next: ReadConfig): void {
      classes = next;
      findReadClass = createClassFinder(next);
      inventory.scheduled = null;
    },
  };
}
