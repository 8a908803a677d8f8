import { formatDuration, formatSeconds } from "../../../core/values/duration.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import { cadenceRequestsPerMinute } from "./cadence.ts";
import {
  computeQuotaOverload,
  type FollowedHistory,
  findSmallestFit,
  historyRequestsPerMinute,
  liveQuotaShare,
  logDiscoveryPerMinute,
  type QuotaOverload,
  type ReadClassDemand,
  requestsPerSlot,
} from "./overload.ts";

export interface PollingPlanFacts {
  readonly source: string;
  readonly basis: "state" | "lists";
  readonly nowMs: number;
  readonly sites: number;
  readonly tags: number;
  readonly classes: readonly ReadClassFacts[];
  readonly history: readonly HistoryClassFacts[];
  readonly tagsWithoutKnownLog?: number;
  readonly backfill: { readonly requestsLeft: number; readonly requestsAtBest: number; readonly paused: boolean };
  readonly quota: QuotaFacts;
  readonly alarms?: AlarmPollingFacts;
}

export interface ReadClassFacts extends ReadClassDemand {
  readonly allTagCount: number;
  readonly valueAgeMs: number | null;
}

export interface HistoryClassFacts extends FollowedHistory {
  readonly name: string;
  readonly withoutLog: number;
}

export interface QuotaFacts {
  readonly perMinute: number;
  readonly reserve: number;
  readonly polite: number;
  readonly polls: number;
  readonly shared: boolean;
  readonly size: number;
}

export interface AlarmPollingFacts {
  readonly alarms: number;
  readonly pages: number;
  readonly everyMs: number;
  readonly listsPerMinute: number;
}

/** Report of `plenum plan`; durations are seconds, times UTC. */
export type PlanReport = ReturnType<typeof reportPlan>;

const MIN_BACKFILL_QUOTA_SHARE = 0.03;
const ASSUMED_REPLY_MS = 200;
const DAY_MS = 86_400_000;
/** Request slots by which the age of a live value may exceed its interval, because slots vary in length. */
const MAX_EXTRA_AGE_SLOTS = 1.5;

export function reportPlan(facts: PollingPlanFacts) {
  const { source, basis, nowMs, sites, tags, quota, classes, history, tagsWithoutKnownLog = 0, backfill } = facts;
  const slotMs = 60_000 / quota.polls;
  const historyRequestRate = historyRequestsPerMinute(history, quota.size);
  const liveShare = liveQuotaShare(quota.polls, historyRequestRate, quota.shared);
  const classDemands = classes.filter((readClass) => readClass.tags > 0);
  const overload = computeQuotaOverload(classDemands, slotMs, quota.size, liveShare, ASSUMED_REPLY_MS);
  const classFactor = ({ name }: ReadClassDemand) => overload.factors.get(name) ?? 1;
  const isReadEarly = (readClass: ReadClassDemand) => readClass.fresher || classFactor(readClass) > 1;
  const fractionalRequestsPerMinute = (readClass: ReadClassDemand) =>
    requestsPerSlot(readClass, classFactor(readClass), slotMs, quota.size, ASSUMED_REPLY_MS) * quota.polls;
  const cadenceRates = cadenceRequestsPerMinute(
    classDemands
      .filter((readClass) => !isReadEarly(readClass))
      .map(({ name, everyMs, tags: tagCount }) => ({ name, intervalMs: everyMs, tags: Math.ceil(tagCount) })),
    quota.size,
  );
  const sumRates = (rateOf: (readClass: ReadClassDemand) => number) =>
    classDemands.reduce((sum, readClass) => sum + rateOf(readClass), 0);
  const requestRateOfGroups = (readClass: ReadClassDemand) =>
    cadenceRates.get(readClass.name) ?? fractionalRequestsPerMinute(readClass);
  // If there are more groups of tags than slots, late tags fill each request completely.
  const areGroupsTooMany = sumRates(requestRateOfGroups) > quota.polls * liveShare;
  const classRequestsPerMinute = areGroupsTooMany ? fractionalRequestsPerMinute : requestRateOfGroups;
  const liveRate = sumRates(classRequestsPerMinute);
  const readEarlyRate = sumRates((readClass) => (isReadEarly(readClass) ? classRequestsPerMinute(readClass) : 0));
  const idleRate = Math.max(0, quota.polls - liveRate - (quota.shared ? historyRequestRate : 0));
  const freeBackfillRate = quota.shared ? idleRate : quota.polls - historyRequestRate;
  const backfillRequestRate = Math.max(quota.polls * MIN_BACKFILL_QUOTA_SHARE, freeBackfillRate);
  const describeQuotaLane = (name: "write" | "live" | "history" | "spare", requestsPerMinute: number) => ({
    lane: name,
    requestsPerMinute: roundTo(requestsPerMinute),
    share: roundTo(requestsPerMinute / quota.perMinute, 4),
  });
  const backfillDoneAt = (requestCount: number) =>
    backfill.paused ? null : isoUtc(nowMs + (requestCount / backfillRequestRate) * 60_000);
  const backfillPlan = {
    ...{ ...backfill, requestsPerMinute: roundTo(backfillRequestRate), doneAt: backfillDoneAt(backfill.requestsLeft) },
    atBestDoneAt: backfillDoneAt(backfill.requestsAtBest),
  };
  const discoveryRate = roundTo(logDiscoveryPerMinute(tagsWithoutKnownLog, quota.polls));
  const readTagCount = classes.reduce((sum, { allTagCount }) => sum + allTagCount, 0);
  const alarmPollDelayText = facts.alarms === undefined ? null : describeAlarmInterval(facts.alarms);
  return {
    ...(alarmPollDelayText === null ? {} : { alarms: alarmPollDelayText }),
    ...{ source, madeAt: isoUtc(nowMs), basis, sites, tags, quota },
    tagsNotRead: Math.max(0, tags - readTagCount),
    lanes: [
      describeQuotaLane("write", quota.reserve),
      describeQuotaLane("live", liveRate),
      describeQuotaLane("history", historyRequestRate),
      describeQuotaLane("spare", idleRate),
    ],
    fits: overload.demand <= liveShare,
    /** Requests that the target intervals need, divided by the plannable requests; above 1 the intervals do not fit. */
    load: roundTo(overload.demand / liveShare, 4),
    classes: classes.map((readClass) => {
      const promisedMs = readClass.everyMs * classFactor(readClass);
      // Read classes with `fresher: true` also use requests that nothing else needs, so their values are younger.
      const earlyMs = (promisedMs * readEarlyRate) / (readEarlyRate + idleRate);
      const bestIntervalMs = Math.min(promisedMs, Math.max(earlyMs, readClass.fresher ? slotMs : readClass.everyMs));
      return {
        name: readClass.name,
        tags: readClass.allTagCount,
        targetSeconds: readClass.everyMs / 1_000,
        promisedSeconds: roundTo(promisedMs / 1_000),
        atBestSeconds: roundTo(bestIntervalMs / 1_000),
        measuredSeconds: readClass.valueAgeMs === null ? null : roundTo(readClass.valueAgeMs / 1_000),
        olderThanTarget: isMeasuredAgeTooHigh(readClass.valueAgeMs, readClass.everyMs, readClass.fresher ? 0 : slotMs),
        stretch: roundTo(classFactor(readClass), 4),
        requestsPerMinute: roundTo(readClass.tags === 0 ? 0 : classRequestsPerMinute(readClass)),
        /** Rows that a lake stores, one per value: 20 tags every 30 s are 57,600. Less with `on_change`. */
        rowsPerDay: Math.round((readClass.allTagCount * DAY_MS) / bestIntervalMs),
      };
    }),
    fullSweepSeconds: roundTo((Math.ceil(readTagCount / quota.size) * slotMs) / 1_000),
    history: history.map((historyClass) => ({
      ...historyClass,
      requestsPerMinute: roundTo(historyRequestsPerMinute([historyClass], quota.size), 3),
    })),
    learning: tagsWithoutKnownLog > 0 ? { tags: tagsWithoutKnownLog, requestsPerMinute: discoveryRate } : null,
    backfill: backfill.requestsLeft > 0 ? backfillPlan : null,
    changes: proposePlanChanges({
      ...{ demands: classDemands, overload, share: liveShare, size: quota.size, perMinute: quota.polls },
      replyMs: ASSUMED_REPLY_MS,
      quotaChanges: proposeQuotaChanges(quota),
    }),
  };
}

/** Describes skipped polls: 20 pages at 30 lists a minute take 40 s, so only every second poll of 30 s starts. */
function describeAlarmInterval({ alarms, pages, everyMs, listsPerMinute }: AlarmPollingFacts): string | null {
  const alarmListNeededMs = (pages / listsPerMinute) * 60_000;
  if (alarmListNeededMs <= everyMs) return null;
  const expectedPollIntervalMs = Math.ceil(alarmListNeededMs / everyMs) * everyMs;
  return `${alarms} active alarms are ${pages} pages, and ${listsPerMinute} lists a minute are allowed: expect a poll of the alarms every ${formatSeconds(expectedPollIntervalMs / 1_000)} instead of every ${formatSeconds(everyMs / 1_000)}.`;
}

/** True if the measured age exceeds the target by more than 1.5 slots, and the rounded texts of both differ. */
function isMeasuredAgeTooHigh(valueAgeMs: number | null, targetMs: number, slotMs: number): boolean {
  if (valueAgeMs === null || valueAgeMs <= targetMs + slotMs * MAX_EXTRA_AGE_SLOTS) return false;
  return formatSeconds(roundTo(valueAgeMs / 1_000)) !== formatSeconds(targetMs / 1_000);
}

interface ProposedQuotaChange extends Pick<ProposedPlanChange, "text" | "yaml"> {
  readonly perMinute: number;
}

const MAX_REQUESTS_PER_MINUTE = 20;

function proposeQuotaChanges({ perMinute, reserve, polite, size }: QuotaFacts): readonly ProposedQuotaChange[] {
  const pollsPerMinute = (allowed: number, share: number, reserved: number) => Math.max(1, allowed * share - reserved);
  const quotaChanges: (ProposedQuotaChange & { readonly isUseful: boolean })[] = [
    {
      isUseful: polite < 1,
      perMinute: pollsPerMinute(perMinute, 1, reserve),
      text: `Use the whole quota: quota.polite 1 instead of ${polite}.`,
      yaml: "quota: {polite: 1}",
    },
    {
      isUseful: perMinute < MAX_REQUESTS_PER_MINUTE,
      perMinute: pollsPerMinute(MAX_REQUESTS_PER_MINUTE, polite, reserve),
      text: `Use the ${MAX_REQUESTS_PER_MINUTE} requests a minute, with ${size} tags each, that the interface allows, instead of ${perMinute}.`,
      yaml: `quota: {requests_per_minute: ${MAX_REQUESTS_PER_MINUTE}}`,
    },
    {
      isUseful: reserve > 0,
      perMinute: pollsPerMinute(perMinute, polite, 0),
      text: `Keep no requests for writes alone: quota.reserve_for_writes 0 instead of ${reserve}.`,
      yaml: "quota: {reserve_for_writes: 0}",
    },
  ];
  return quotaChanges.filter(({ isUseful }) => isUseful);
}

function roundTo(value: number, digits = 2): number {
  return Number(value.toFixed(digits));
}

interface ProposedPlanChange {
  readonly text: string;
  readonly yaml: string;
  /** Sum over the tags of (new interval / target interval - 1): 1 for one tag read half as often. */
  readonly cost: number;
}

export interface PlanAdviceFacts {
  readonly demands: readonly ReadClassDemand[];
  readonly overload: QuotaOverload;
  readonly size: number;
  readonly share: number;
  readonly replyMs: number;
  readonly perMinute: number;
  readonly quotaChanges: readonly ProposedQuotaChange[];
}

const MAX_INTERVAL_STRETCH_FACTOR = 1_000;

/** Returns alternative changes that make the target intervals fit, cheapest first; empty if all intervals fit. */
export function proposePlanChanges(facts: PlanAdviceFacts): readonly ProposedPlanChange[] {
  const { demands, size, share, replyMs, overload } = facts;
  const requestsPerSlotWith = (factorOf: (readClass: ReadClassDemand) => number, perMinute = facts.perMinute) =>
    demands
      .map((readClass) => ({ ...readClass, everyMs: readClass.everyMs * factorOf(readClass) }))
      .reduce((sum, readClass) => sum + requestsPerSlot(readClass, 1, 60_000 / perMinute, size, replyMs), 0);
  if (requestsPerSlotWith(() => 1) <= share) return [];
  const quotaProposals = facts.quotaChanges
    .filter(({ perMinute }) => requestsPerSlotWith(() => 1, perMinute) <= share)
    .map(({ text, yaml }) => ({ text, yaml, cost: 0 }));
  const intervalProposals = demands.flatMap((changedClass) => {
    const fitsWithFactor = (factor: number) =>
      requestsPerSlotWith((readClass) => (readClass === changedClass ? factor : 1)) <= share;
    if (!fitsWithFactor(MAX_INTERVAL_STRETCH_FACTOR)) return [];
    const { name, everyMs, tags, importance } = changedClass;
    const longestMs = everyMs * MAX_INTERVAL_STRETCH_FACTOR;
    const fittingMs = roundUpInterval(findSmallestFit(everyMs, longestMs, 50, (ms) => fitsWithFactor(ms / everyMs)));
    const intervalText = formatDuration(fittingMs);
    return {
      text: `Let the values of class ${name} become ${intervalText} old instead of ${formatDuration(everyMs)}.`,
      yaml: `read: [{name: ${name}, every: ${intervalText}}]`,
      cost: tags * (fittingMs / everyMs - 1) * importance,
    };
  });
  if (demands.length < 2) return [...quotaProposals, ...intervalProposals].toSorted((a, b) => a.cost - b.cost);
  const stretchedClasses = demands.map((demand) => ({ ...demand, factor: overload.factors.get(demand.name) ?? 1 }));
  const classYamlEntries = stretchedClasses.map(
    ({ name, everyMs, factor }) => `{name: ${name}, every: ${formatDuration(roundUpInterval(everyMs * factor))}}`,
  );
  const stretchAllProposal = {
    text: `Let every class become ${Math.max(...stretchedClasses.map(({ factor }) => factor)).toFixed(2)} times older, which is what happens without a change.`,
    yaml: `read: [${classYamlEntries.join(", ")}]`,
    cost: stretchedClasses.reduce((sum, { tags, factor, importance }) => sum + tags * (factor - 1) * importance, 0),
  };
  return [...quotaProposals, ...intervalProposals, stretchAllProposal].toSorted((a, b) => a.cost - b.cost);
}

function roundUpInterval(ms: number): number {
  const intervalStepMs = ms < 60_000 ? 1_000 : ms < 600_000 ? 10_000 : ms < 3_600_000 ? 60_000 : 600_000;
  return Math.ceil((ms - 1e-6) / intervalStepMs) * intervalStepMs;
}
