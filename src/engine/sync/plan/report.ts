import { formatDuration, secondsText } from "../../../core/values/duration.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import {
  bisectFit,
  type ClassDemand,
  computeOverload,
  discoveryPerMinute,
  type FollowedHistory,
  followingPerMinute,
  liveQuotaShare,
  type Overload,
  requestsPerSlot,
} from "./overload.ts";

export interface PlanFacts {
  readonly source: string;
  readonly basis: "state" | "lists";
  readonly nowMs: number;
  readonly sites: number;
  readonly tags: number;
  readonly classes: readonly ClassFacts[];
  readonly history: readonly HistoryFacts[];
  readonly toLearn?: number;
  readonly backfill: { readonly requestsLeft: number; readonly requestsAtBest: number; readonly paused: boolean };
  readonly quota: QuotaFacts;
  readonly alarms?: AlarmPolling;
}

export interface ClassFacts extends ClassDemand {
  readonly allTags: number;
  readonly measuredMs: number | null;
}

export interface HistoryFacts extends FollowedHistory {
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

export interface AlarmPolling {
  readonly alarms: number;
  readonly pages: number;
  readonly everyMs: number;
  readonly listsPerMinute: number;
}

/** Report of `plenum plan`; durations are seconds, times UTC. */
export type PlanReport = ReturnType<typeof reportPlan>;

const BACKFILL_SHARE_MIN = 0.03;
const ASSUMED_REPLY_MS = 200;

export function reportPlan(facts: PlanFacts) {
  const { source, basis, nowMs, sites, tags, quota, classes, history, toLearn = 0, backfill } = facts;
  const slotMs = 60_000 / quota.polls;
  const historyRate = followingPerMinute(history, quota.size);
  const liveShare = liveQuotaShare(quota.polls, historyRate, quota.shared);
  const classDemands = classes.filter((each) => each.tags > 0);
  const overload = computeOverload(classDemands, slotMs, quota.size, liveShare, ASSUMED_REPLY_MS);
  const classFactor = ({ name }: ClassDemand) => overload.factors.get(name) ?? 1;
  const classPerMinute = (each: ClassDemand) =>
    requestsPerSlot(each, classFactor(each), slotMs, quota.size, ASSUMED_REPLY_MS) * quota.polls;
  const liveRate = classDemands.reduce((sum, each) => sum + classPerMinute(each), 0);
  const idleRate = Math.max(0, quota.polls - liveRate - (quota.shared ? historyRate : 0));
  const freeRate = quota.shared ? idleRate : quota.polls - historyRate;
  const pastPerMinute = Math.max(quota.polls * BACKFILL_SHARE_MIN, freeRate);
  const lane = (name: "write" | "live" | "history" | "spare", requestsPerMinute: number) => ({
    lane: name,
    requestsPerMinute: round(requestsPerMinute),
    share: round(requestsPerMinute / quota.perMinute, 4),
  });
  const pastDoneAt = (requests: number) =>
    backfill.paused ? null : isoUtc(nowMs + (requests / pastPerMinute) * 60_000);
  const backfillPlan = {
    ...{ ...backfill, requestsPerMinute: round(pastPerMinute), doneAt: pastDoneAt(backfill.requestsLeft) },
    atBestDoneAt: pastDoneAt(backfill.requestsAtBest),
  };
  const readTags = classes.reduce((sum, { allTags }) => sum + allTags, 0);
  const alarmDelay = facts.alarms === undefined ? null : describeAlarmInterval(facts.alarms);
  return {
    ...(alarmDelay === null ? {} : { alarms: alarmDelay }),
    ...{ source, madeAt: isoUtc(nowMs), basis, sites, tags, quota },
    tagsNotRead: Math.max(0, tags - readTags),
    lanes: [
      lane("write", quota.reserve),
      lane("live", liveRate),
      lane("history", historyRate),
      lane("spare", idleRate),
    ],
    fits: overload.demand <= liveShare,
    /** Requests that the target intervals need, divided by the plannable requests; above 1 the intervals do not fit. */
    load: round(overload.demand / liveShare, 4),
    classes: classes.map((each) => {
      const promisedMs = each.everyMs * classFactor(each);
      // If spare slots are used, too, each age shrinks by the load, to one slot at least.
      const bestIntervalMs = Math.min(promisedMs, Math.max(slotMs, (promisedMs * liveRate) / (liveRate + idleRate)));
      return {
        name: each.name,
        tags: each.allTags,
        wishedSeconds: each.everyMs / 1_000,
        promisedSeconds: round(promisedMs / 1_000),
        atBestSeconds: round(bestIntervalMs / 1_000),
        measuredSeconds: each.measuredMs === null ? null : round(each.measuredMs / 1_000),
        olderThanWished: isValueOlder(each.measuredMs, each.everyMs),
        stretch: round(classFactor(each), 4),
        requestsPerMinute: round(each.tags === 0 ? 0 : classPerMinute(each)),
      };
    }),
    fullSweepSeconds: round((Math.ceil(readTags / quota.size) * slotMs) / 1_000),
    history: history.map((each) => ({
      ...each,
      requestsPerMinute: round(followingPerMinute([each], quota.size), 3),
    })),
    learning:
      toLearn > 0 ? { tags: toLearn, requestsPerMinute: round(discoveryPerMinute(toLearn, quota.polls)) } : null,
    backfill: backfill.requestsLeft > 0 ? backfillPlan : null,
    changes: proposeFittingChanges({
      ...{ demands: classDemands, overload, share: liveShare, size: quota.size, perMinute: quota.polls },
      replyMs: ASSUMED_REPLY_MS,
      quotaChanges: proposeQuotaChanges(quota),
    }),
  };
}

/** Describes skipped polls: 20 pages at 30 lists a minute take 40 s, so every second poll of 30 s starts. */
function describeAlarmInterval({ alarms, pages, everyMs, listsPerMinute }: AlarmPolling): string | null {
  const neededMs = (pages / listsPerMinute) * 60_000;
  if (neededMs <= everyMs) return null;
  const expectedMs = Math.ceil(neededMs / everyMs) * everyMs;
  return `${alarms} active alarms are ${pages} pages, and ${listsPerMinute} lists a minute are allowed: expect a poll of the alarms every ${secondsText(expectedMs / 1_000)} instead of every ${secondsText(everyMs / 1_000)}.`;
}

function isValueOlder(measuredMs: number | null, targetMs: number): boolean {
  if (measuredMs === null || measuredMs <= targetMs) return false;
  return secondsText(round(measuredMs / 1_000)) !== secondsText(targetMs / 1_000);
}

interface QuotaChange extends Pick<PlanChange, "text" | "yaml"> {
  readonly perMinute: number;
}

const REQUESTS_PER_MINUTE_MAX = 20;

function proposeQuotaChanges({ perMinute, reserve, polite, size }: QuotaFacts): readonly QuotaChange[] {
  const pollsPerMinute = (allowed: number, share: number, reserved: number) => Math.max(1, allowed * share - reserved);
  const quotaChanges: (QuotaChange & { readonly isUseful: boolean })[] = [
    {
      isUseful: polite < 1,
      perMinute: pollsPerMinute(perMinute, 1, reserve),
      text: `Use the whole quota: quota.polite 1 instead of ${polite}.`,
      yaml: "quota: {polite: 1}",
    },
    {
      isUseful: perMinute < REQUESTS_PER_MINUTE_MAX,
      perMinute: pollsPerMinute(REQUESTS_PER_MINUTE_MAX, polite, reserve),
      text: `Use the ${REQUESTS_PER_MINUTE_MAX} requests a minute, with ${size} tags each, that the interface allows, instead of ${perMinute}.`,
      yaml: `quota: {requests_per_minute: ${REQUESTS_PER_MINUTE_MAX}}`,
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

function round(value: number, digits = 2): number {
  return Number(value.toFixed(digits));
}

interface PlanChange {
  readonly text: string;
  readonly yaml: string;
  /** Sum over the tags of (new interval / target interval - 1): 1 for one tag read half as often. */
  readonly cost: number;
}

export interface AdviceFacts {
  readonly demands: readonly ClassDemand[];
  readonly overload: Overload;
  readonly size: number;
  readonly share: number;
  readonly replyMs: number;
  readonly perMinute: number;
  readonly quotaChanges: readonly QuotaChange[];
}

const STRETCH_FACTOR_MAX = 1_000;

/** Returns alternative changes that make the target intervals fit, cheapest first; empty if all intervals fit. */
export function proposeFittingChanges(facts: AdviceFacts): readonly PlanChange[] {
  const { demands, size, share, replyMs, overload } = facts;
  const demandWith = (factorOf: (each: ClassDemand) => number, perMinute = facts.perMinute) =>
    demands.reduce((sum, each) => sum + requestsPerSlot(each, factorOf(each), 60_000 / perMinute, size, replyMs), 0);
  if (demandWith(() => 1) <= share) return [];
  const quotaProposals = facts.quotaChanges
    .filter(({ perMinute }) => demandWith(() => 1, perMinute) <= share)
    .map(({ text, yaml }) => ({ text, yaml, cost: 0 }));
  const classProposals = demands.flatMap((changed) => {
    const fitsWithFactor = (factor: number) => demandWith((each) => (each === changed ? factor : 1)) <= share;
    if (!fitsWithFactor(STRETCH_FACTOR_MAX)) return [];
    const smallestMs = bisectFit(changed.everyMs, changed.everyMs * STRETCH_FACTOR_MAX, 50, (ms) =>
      fitsWithFactor(ms / changed.everyMs),
    );
    const fittingIntervalMs = roundUpInterval(smallestMs);
    const intervalText = formatDuration(fittingIntervalMs);
    return {
      text: `Let the values of class ${changed.name} become ${intervalText} old instead of ${formatDuration(changed.everyMs)}.`,
      yaml: `read: [{name: ${changed.name}, every: ${intervalText}}]`,
      cost: changed.tags * (fittingIntervalMs / changed.everyMs - 1) * changed.importance,
    };
  });
  if (demands.length < 2) return [...quotaProposals, ...classProposals].toSorted((a, b) => a.cost - b.cost);
  const stretchedClasses = demands.map((each) => ({ ...each, factor: overload.factors.get(each.name) ?? 1 }));
  const classEntries = stretchedClasses.map(
    ({ name, everyMs, factor }) => `{name: ${name}, every: ${formatDuration(roundUpInterval(everyMs * factor))}}`,
  );
  const stretchAll = {
    text: `Let every class become ${Math.max(...stretchedClasses.map(({ factor }) => factor)).toFixed(2)} times older, which is what happens without a change.`,
    yaml: `read: [${classEntries.join(", ")}]`,
    cost: stretchedClasses.reduce((sum, { tags, factor, importance }) => sum + tags * (factor - 1) * importance, 0),
  };
  return [...quotaProposals, ...classProposals, stretchAll].toSorted((a, b) => a.cost - b.cost);
}

function roundUpInterval(ms: number): number {
  const stepMs = ms < 60_000 ? 1_000 : ms < 600_000 ? 10_000 : ms < 3_600_000 ? 60_000 : 600_000;
  return Math.ceil((ms - 1e-6) / stepMs) * stepMs;
}
