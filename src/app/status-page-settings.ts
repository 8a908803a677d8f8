import { lagFiltersBySink } from "../engine/delivery/filter.ts";
import type { Source } from "../engine/source/source.ts";
import type { Store } from "../engine/store/store.ts";
import { cronMatcher } from "../engine/sync/cron-schedule.ts";
import type { SourceActivity } from "../ui/operator/quota-plan-routes.ts";
import type { PageCredentials } from "../ui/status/access-control.ts";
import type { JobDueTime, JobDueTimes } from "../ui/status/job-reports.ts";

import type { RunningSource } from "../ui/status/source-reports.ts";
import type { Config, SourceConfigEntry } from "./config/config.ts";

export type StatusPageConfig = ReturnType<typeof toPageConfig>;

export interface StatusPageSettings extends StatusPageConfig {
  readonly credentials: PageCredentials | null;
  readonly areWritesEnabled: boolean;
  readonly sinkEntries: Config["sinks"];
  changeConfig(config: Config, credentials: PageCredentials | null): void;
}

export function createStatusPageSettings(config: Config, credentials: PageCredentials | null): StatusPageSettings {
  const buildSettings = (nextConfig: Config, pageCredentials: PageCredentials | null) => ({
    ...toPageConfig(nextConfig),
    credentials: pageCredentials,
    areWritesEnabled: nextConfig.commands.enabled,
    sinkEntries: nextConfig.sinks,
  });
  const pageSettings = {
    ...buildSettings(config, credentials),
    changeConfig: (nextConfig: Config, pageCredentials: PageCredentials | null) =>
      void Object.assign(pageSettings, buildSettings(nextConfig, pageCredentials)),
  };
  return pageSettings;
}

export function toPageConfig({ sources, sinks }: Pick<Config, "sources" | "sinks">) {
  const enabledSinks = Object.entries(sinks).filter(([, sinkConfig]) => sinkConfig.enabled);
  return {
    sources: Object.entries(sources).map(([name, sourceConfig]) => ({
      name,
      origin: new URL(sourceConfig.base_url).origin,
      dueTimes: listPollDueTimes(sourceConfig),
    })),
    sinks: enabledSinks.map(([name]) => name),
    filterBySink: lagFiltersBySink(enabledSinks.map(([name, sinkConfig]) => [name, sinkConfig.filter])),
  };
}

const POLL_LATENESS_GRACE_MS = 3 * 60_000;
/** A poll may be late by this fraction of the poll interval before the status page reports the poll as late. */
const POLL_LATENESS_GRACE_SHARE = 0.1;
/** History may be this late: a request waits until a time bucket of history has ended and a quota slot is free. */
const HISTORY_LATENESS_GRACE_MS = 30 * 60_000;

function listPollDueTimes({ schedules, read, history, spread }: SourceConfigEntry): JobDueTimes {
  const dueTimesByJob = new Map(
    Object.entries(schedules).map(([job, schedule]): [string, JobDueTime | "off"] => [
      job,
      schedule === false ? "off" : dueTimeOfCronSchedule(cronMatcher(schedule), spread),
    ]),
  );
  dueTimesByJob.set("live", read.length === 0 ? "off" : dueTimeOfShortestInterval(read, POLL_LATENESS_GRACE_MS));
  if (history.length > 0) dueTimesByJob.set("history", dueTimeOfShortestInterval(history, HISTORY_LATENESS_GRACE_MS));
  return dueTimesByJob;
}

function dueTimeOfShortestInterval(classes: readonly { readonly every: number }[], graceMs: number): JobDueTime {
  const shortestIntervalMs = Math.min(...classes.map(({ every }) => every));
  return (lastRunMs) => lastRunMs + shortestIntervalMs + graceMs;
}

function dueTimeOfCronSchedule(nextMatch: (afterMs: number) => number, spreadMs: number): JobDueTime {
  return (lastRunMs) => {
    const nextDueMs = nextMatch(lastRunMs);
    const scheduleIntervalMs = nextMatch(nextDueMs) - nextDueMs;
    return nextDueMs + spreadMs + Math.max(POLL_LATENESS_GRACE_MS, scheduleIntervalMs * POLL_LATENESS_GRACE_SHARE);
  };
}

export function readLiveSourceStatus(
  source: Source | undefined,
  activity: SourceActivity | undefined,
): RunningSource | null {
  if (source === undefined || activity === undefined) return null;
  const { plan, historyStarvesSince, suddenChanges, firstInventory, counts } = activity;
  const sourceActivity = { plan, historyStarvesSince, suddenChanges, firstInventory, counts };
  return { quota: source.quota(), clockSkewMs: source.clockSkewMs(), ...sourceActivity };
}

export async function readStateWarnings(store: Store): Promise<readonly string[]> {
  const { recoveryMessage, lostLogMessage } = await store.describe();
  return [
    ...(recoveryMessage === undefined ? [] : [`The state file was damaged. ${recoveryMessage}`]),
    ...(lostLogMessage ? [lostLogMessage] : []),
  ];
}
