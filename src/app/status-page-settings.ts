import { lagFiltersBySink } from "../engine/delivery/filter.ts";
import type { Source } from "../engine/source/source.ts";
import type { LagFilter, Store } from "../engine/store/store.ts";
import { cronMatcher } from "../engine/sync/cron-schedule.ts";
import type { SourceActivity } from "../ui/operator/source-plan-routes.ts";
import type { PageCredentials } from "../ui/status/access-control.ts";
import type { JobDueTime, JobDueTimes } from "../ui/status/job-reports.ts";

import type { ConfiguredSource, RunningSource } from "../ui/status/source-reports.ts";
import type { Config, SourceEntry } from "./config/config.ts";

export interface ConfigView {
  readonly sources: readonly ConfiguredSource[];
  readonly sinks: readonly string[];
  readonly filterBySink: ReadonlyMap<string, LagFilter>;
}

export interface PageSettings extends ConfigView {
  readonly credentials: PageCredentials | null;
  readonly writes: boolean;
  readonly entries: Config["sinks"];
  change(config: Config, credentials: PageCredentials | null): void;
}

export function createPageSettings(config: Config, credentials: PageCredentials | null): PageSettings {
  const currentSettings = (next: Config, login: PageCredentials | null) => ({
    ...{ ...configView(next), credentials: login, writes: next.commands.enabled, entries: next.sinks },
  });
  const settings = {
    ...currentSettings(config, credentials),
    change: (next: Config, login: PageCredentials | null) => void Object.assign(settings, currentSettings(next, login)),
  };
  return settings;
}

export function configView({ sources, sinks }: Pick<Config, "sources" | "sinks">): ConfigView {
  const enabledSinks = Object.entries(sinks).filter(([, entry]) => entry.enabled);
  return {
    sources: Object.entries(sources).map(([name, entry]) => ({
      name,
      origin: new URL(entry.base_url).origin,
      dueTimes: listDueTimes(entry),
    })),
    sinks: enabledSinks.map(([name]) => name),
    filterBySink: lagFiltersBySink(enabledSinks.map(([name, entry]) => [name, entry.filter])),
  };
}

/** Tolerance for a slow poll or a busy machine before a poll counts as late. */
const LATENESS_GRACE_MS = 3 * 60_000;
/** Tolerance for rare polls before they count as late, as a share of their interval. */
const LATENESS_GRACE_SHARE = 0.1;
/** Tolerance for history, whose requests wait until a bucket has closed and a quota slot is free. */
const HISTORY_LATENESS_GRACE_MS = 30 * 60_000;

function listDueTimes({ schedules, read, history, spread }: SourceEntry): JobDueTimes {
  const dueTimes = new Map(
    Object.entries(schedules).map(([job, schedule]): [string, JobDueTime | "off"] => [
      job,
      schedule === false ? "off" : scheduledDueTime(cronMatcher(schedule), spread),
    ]),
  );
  dueTimes.set("live", read.length === 0 ? "off" : shortestDueTime(read, LATENESS_GRACE_MS));
  // Without history classes only `plenum backfill` fetches history; the status then shows history after the first run.
  if (history.length > 0) dueTimes.set("history", shortestDueTime(history, HISTORY_LATENESS_GRACE_MS));
  return dueTimes;
}

function shortestDueTime(classes: readonly { readonly every: number }[], graceMs: number): JobDueTime {
  const shortestIntervalMs = Math.min(...classes.map(({ every }) => every));
  return (lastMs) => lastMs + shortestIntervalMs + graceMs;
}

function scheduledDueTime(nextMatch: (afterMs: number) => number, spreadMs: number): JobDueTime {
  return (lastMs) => {
    const dueMs = nextMatch(lastMs);
    const scheduleIntervalMs = nextMatch(dueMs) - dueMs;
    return dueMs + spreadMs + Math.max(LATENESS_GRACE_MS, scheduleIntervalMs * LATENESS_GRACE_SHARE);
  };
}

/** Reads the live part of a source's status; null for an unknown source. */
export function readLiveSource(source: Source | undefined, work: SourceActivity | undefined): RunningSource | null {
  if (source === undefined || work === undefined) return null;
  const { plan, historyStarvesSince, suddenChanges, firstInventory, counts } = work;
  const liveSource = { plan, historyStarvesSince, suddenChanges, firstInventory, counts };
  return { quota: source.quota(), clockSkewMs: source.clockSkewMs(), ...liveSource };
}

export async function readStateWarnings(store: Store): Promise<readonly string[]> {
  const { recoveryMessage, lostLogMessage } = await store.describe();
  return [
    ...(recoveryMessage === undefined ? [] : [`The state file was damaged. ${recoveryMessage}`]),
    ...(lostLogMessage ? [lostLogMessage] : []),
  ];
}
