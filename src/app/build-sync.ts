import { isDeepStrictEqual } from "node:util";
import type { TagValue } from "../core/model/building.ts";
import type { ClockCheck } from "../core/runtime/clock-check.ts";
import { readSecretFileStamp } from "../core/runtime/secret.ts";
import { type BackPressure, maxHistoryResponseBytes } from "../engine/delivery/back-pressure.ts";
import { createServiceClock } from "../engine/source/clock-skew.ts";
import type { StateConfig } from "../engine/store/state-config.ts";
import { inventoryMessage } from "../engine/sync/first-inventory-progress.ts";
import { createHeartbeat } from "../engine/sync/heartbeat.ts";
import { createHistoryPull } from "../engine/sync/history/pull.ts";
import { valuesThatFitBytes } from "../engine/sync/history/request-size.ts";
import { describeLiveTag, findTagReadClass } from "../engine/sync/live-tag-state.ts";
import { createHistoryDemand } from "../engine/sync/plan/overload.ts";
import { reportPlan } from "../engine/sync/plan/report.ts";
import { loadPlanFacts, type PlanSettings } from "../engine/sync/quota-plan-inputs.ts";
import type { GroupCommit } from "../engine/sync/read/commit-readings.ts";
import { createLiveReads } from "../engine/sync/read/live-reads.ts";
import { openSync, type SyncOptions } from "../engine/sync/sync.ts";
import { createEmptyClassLogger, type TagClassLists } from "../engine/sync/visible-building.ts";
import type { SourceActivity } from "../ui/operator/quota-plan-routes.ts";
import type { BuiltSource } from "./build-source.ts";
import type { SourceConfigEntry } from "./config/config.ts";
import { createTagNamesFileWatch } from "./reload/tag-names-file-watch.ts";

export type BuiltSourceSync = Awaited<ReturnType<typeof buildSourceSync>>;

export async function buildSourceSync(
  options: Pick<SyncOptions, "store" | "clock" | "log" | "metrics" | "ticker"> & {
    readonly built: BuiltSource;
    readonly clockCheck: Pick<ClockCheck, "latestStep">;
    readonly groupCommit: GroupCommit;
    readonly state: StateConfig;
    readonly backPressure: Pick<BackPressure, "mayFetchHistory">;
    readonly onValueRead: (source: string, tagId: string, value: TagValue, atMs: number) => void;
  },
) {
  const { backPressure, built, clock, groupCommit, metrics, ticker } = options;
  const { name, source } = built;
  let { sourceConfig } = built;
  const log = options.log.child({ source: name });
  let settings = buildPlanSettings(name, sourceConfig, options.state);
  const { token } = sourceConfig;
  const createEmptyTagClassWarning = (config: SourceConfigEntry) =>
    createEmptyClassLogger({
      source: name,
      classLists: listTagClasses(config),
      followedSiteIds: config.inventory.sites ?? null,
      log,
    });
  let warnOfEmptyTagClasses = createEmptyTagClassWarning(sourceConfig);
  const sourceSync = await openSync({
    ...{ source, store: options.store, config: sourceConfig, clock, log, metrics, ticker },
    onTagsListed: () => warnOfEmptyTagClasses(sourceSync.store),
    ...("file" in token ? { tokenStamp: async () => readSecretFileStamp(token.file) } : {}),
  });
  const { scope, store } = sourceSync;
  const tagNamesFileWatch = createTagNamesFileWatch({
    ...{ source: name, file: sourceConfig.names, clock, log },
    ...{ knownTagIds: sourceSync.listedTagIds, changeNames: sourceSync.changeTagNames },
    commitNames: sourceSync.commitTagNames,
  });
  const heartbeat = createHeartbeat({ source: name, everyMs: sourceConfig.heartbeat, store, clock, log });
  const historyDemand = createHistoryDemand();
  const historyPull = createHistoryPull({
    ...{ source, store, log, metrics, scope, historyDemand },
    clock: createServiceClock(clock, () => source.clockSkewMs(), options.clockCheck),
    ...{ historyClasses: sourceConfig.history, timeZone: sourceConfig.time_zone, valuesMax: settings.valuesMax },
    mayFetchHistory: backPressure.mayFetchHistory,
    knowsTagsOf: sourceSync.knowsTagsOfSite,
  });
  const liveReads = createLiveReads({
    ...{ source, store, clock, log, metrics, groupCommit, readClasses: sourceConfig.read, scope, historyDemand },
    isFirstInventory: () => !sourceSync.firstInventory().done,
    clockSkewMs: () => source.clockSkewMs(),
    offlineGatewayOf: (siteId) => sourceSync.offlineGatewayOf(siteId),
    isServiceDown: sourceSync.isServiceDown,
    onSuddenNulls: (siteId) => sourceSync.recheckGateways(siteId),
    onRead: (id, value, atMs) => options.onValueRead(name, id, value, atMs),
  });
  // Start live reads and history even if no read class is configured, because a reload may add a class.
  const sourceService = sourceSync.createService([liveReads, historyPull], liveReads);
  const createRequestPlanReport = async () => {
    const { buckets } = source.quota();
    const readQuotaBucket = buckets.find((quotaBucket) => quotaBucket.name.includes("read")) ?? buckets[0];
    const readRequestsPerMinute = readQuotaBucket?.lastingPerMinute ?? sourceConfig.quota.requests_per_minute;
    const { freshness } = liveReads.status();
    const quotaForPlan = { polls: readRequestsPerMinute, shared: buckets.length < 2 };
    return reportPlan(await loadPlanFacts(store, settings, clock, { quota: quotaForPlan, freshness }));
  };
  const countTagsWithoutValue = () => {
    const tagsWithoutValue = liveReads.getLeftOutTags();
    if (tagsWithoutValue === null) return null;
    const reasons = [...tagsWithoutValue].flatMap(([id, { kind }]) => (sourceSync.knowsTag(id) ? [kind] : []));
    const unreadableTagCount = reasons.filter((kind) => kind === "unreadable").length;
    return { unreadable: unreadableTagCount, unanswered: reasons.length - unreadableTagCount };
  };
  const sourceActivity: SourceActivity = {
    plan: createRequestPlanReport,
    liveTagState: (id) => describeLiveTag(liveReads, id, clock),
    tagReadClass: (id) => findTagReadClass(liveReads, id),
    requests: () => built.trace.latest(),
    counts() {
      const lastLiveRead = liveReads.lastRead();
      const lastPollByJob = new Map(sourceSync.lastPolls);
      lastPollByJob.delete("live");
      if (lastLiveRead !== null) lastPollByJob.set("live", lastLiveRead);
      return {
        ...{ activeAlarms: sourceSync.activeAlarms, siteIds: sourceSync.siteIds(), lastPolls: lastPollByJob },
        tagsWithoutValue: countTagsWithoutValue(),
        inventoryPageMs: sourceSync.inventoryPageMs(),
      };
    },
    suddenChanges: liveReads.suddenChanges,
    historyStarvesSince: () => historyPull.progress().starving?.since ?? null,
    firstInventory() {
      const progress = sourceSync.firstInventory();
      const { pagesRead, pagesTotal, done } = progress;
      return {
        pagesRead,
        pagesTotal,
        done,
        message: inventoryMessage(progress, sourceConfig.quota.list_requests_per_minute),
      };
    },
  };
  return {
    service: sourceService,
    /** Emits the event `worker-alive`. Starts after all other services. */
    heartbeat,
    /** Reads the names file. Starts before `service`, so that even the first list of tags has names. */
    tagNamesFileWatch,
    activity: sourceActivity,
    refreshGauges: () => liveReads.updateFreshnessMetrics(),
    /** Applies a changed configuration, except for options of the connection to the service. */
    async applyConfig(newSourceConfig: SourceConfigEntry, state: StateConfig): Promise<void> {
      const previousConfig = sourceConfig;
      const { valuesMax } = settings;
      sourceConfig = newSourceConfig;
      settings = buildPlanSettings(name, sourceConfig, state);
      const { requests_per_minute: perMinute, polite, reserve_for_writes: reserve } = sourceConfig.quota;
      if (!isDeepStrictEqual(previousConfig.quota, sourceConfig.quota))
        built.quota.setShare({ perMinute, polite, reserve });
      if (!isDeepStrictEqual(previousConfig.read, sourceConfig.read)) liveReads.changeClasses(sourceConfig.read);
      if (!isDeepStrictEqual(previousConfig.history, sourceConfig.history) || settings.valuesMax !== valuesMax)
        historyPull.changeOptions({ historyClasses: sourceConfig.history, valuesMax: settings.valuesMax });
      sourceSync.changeConfig(sourceConfig);
      await tagNamesFileWatch.changeFile(sourceConfig.names);
      heartbeat.changeInterval(sourceConfig.heartbeat);
      warnOfEmptyTagClasses = createEmptyTagClassWarning(sourceConfig);
      await warnOfEmptyTagClasses(store);
    },
  };
}

function listTagClasses({ read, history }: SourceConfigEntry): TagClassLists {
  const historyClasses = Map.groupBy(history, ({ resolution, total }) =>
    total ? `history ${resolution} totals` : `history ${resolution}`,
  );
  return new Map<string, SourceConfigEntry["read"] | SourceConfigEntry["history"]>([["read", read], ...historyClasses]);
}

export function buildPlanSettings(source: string, sourceConfig: SourceConfigEntry, state: StateConfig): PlanSettings {
  const { read, history, quota, time_zone: timeZone } = sourceConfig;
  const maxHistoryValues = valuesThatFitBytes(
    Math.min(sourceConfig.max_body_bytes, maxHistoryResponseBytes(state.max_bytes)),
  );
  const { alarms: schedule } = sourceConfig.schedules;
  const alarmListSettings = { pageSize: sourceConfig.page_size.alarms, listsPerMinute: quota.list_requests_per_minute };
  return {
    ...{ source, read, history, quota, timeZone, valuesMax: maxHistoryValues },
    ...(schedule === false ? {} : { alarms: { ...alarmListSettings, schedule } }),
  };
}
