import { durationText, formatDuration } from "../../../core/values/duration.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import {
  type ClassDemand,
  type FollowedHistory,
  followingPerMinute,
  learningPerMinute,
  liveQuotaShare,
  type Overload,
  overloadFactor,
  slotsPerSlot,
} from "./overload.ts";

/** Input of the plan; `facts-for-plan.ts` collects it from the state or from the service's lists. */
export interface PlanFacts {
  readonly source: string;
  readonly basis: "state" | "lists";
  readonly nowMs: number;
  readonly sites: number;
  readonly tags: number;
  readonly classes: readonly ClassFacts[];
  readonly history: readonly HistoryFacts[];
  /** Tags of which it is not known yet whether they have a log; none when left out. */
  readonly toLearn?: number;
  readonly backfill: {
    /** Requests that the past still takes, at the size that is known to work, probes included. */
    readonly requestsLeft: number;
    /** The same, should the service bear the largest replies that are read. */
    readonly requestsAtBest: number;
    readonly paused: boolean;
  };
  readonly quota: QuotaFacts;
  /** Absent where alarms are not polled. */
  readonly alarms?: AlarmPolling;
}

export interface ClassFacts extends ClassDemand {
  /** All its tags, also those that are read less often because they answer nothing. */
  readonly allTags: number;
  /** How old its values became at most lately; null while no worker has measured it. */
  readonly measuredMs: number | null;
}

export interface HistoryFacts extends FollowedHistory {
  readonly name: string;
  /** Tags of which the service says that they have no log. */
  readonly withoutLog: number;
}

export interface QuotaFacts {
  /** Requests per minute that the service allows, or the configuration if that is less. */
  readonly perMinute: number;
  readonly reserve: number;
  readonly polite: number;
  /** Requests per minute that polls get. */
  readonly polls: number;
  /** Whether live reads and history are counted together. */
  readonly shared: boolean;
  readonly size: number;
}

/** Figures that limit how often active alarms can be polled. */
export interface AlarmPolling {
  readonly alarms: number;
  readonly pages: number;
  /** Configured time from one poll to the next, in milliseconds. */
  readonly everyMs: number;
  readonly listsPerMinute: number;
}

/** The plan, for a person, as JSON and on the status page. Durations are seconds, times UTC. */
export interface PlanReport {
  readonly source: string;
  readonly madeAt: string;
  /** `state`: from the inventory that a worker keeps. `lists`: the service was asked, without a tag request. */
  readonly basis: PlanFacts["basis"];
  readonly sites: number;
  readonly tags: number;
  /** Tags that no class of live reads selects. */
  readonly tagsNotRead: number;
  readonly quota: QuotaFacts;
  readonly lanes: readonly LanePlan[];
  /** True if the number of requests suffices for the target intervals; each class states what was measured. */
  readonly fits: boolean;
  /** Requests that the target intervals need, divided by those that can be planned; above 1 they do not fit. */
  readonly load: number;
  readonly classes: readonly ClassPlan[];
  /** Reading every tag of every class once, with all that polls get. */
  readonly fullSweepSeconds: number;
  readonly history: readonly (HistoryFacts & { readonly requestsPerMinute: number })[];
  /** Learning which tags have a log; it ends, so the promises above are made without it. Null when all is known. */
  readonly learning: { readonly tags: number; readonly requestsPerMinute: number } | null;
  readonly backfill: BackfillPlan | null;
  /** Alternative changes that make the plan fit, the cheapest first; empty if it fits. */
  readonly changes: readonly PlanChange[];
  /** Message if the active alarms cannot be polled as often as configured. */
  readonly alarms?: string;
}

interface LanePlan {
  /** `spare` goes to the backfill first, then to fresher values. */
  readonly lane: "write" | "live" | "history" | "spare";
  readonly requestsPerMinute: number;
  /** Share of the requests that the service allows, 0 to 1. */
  readonly share: number;
}

interface ClassPlan {
  readonly name: string;
  readonly tags: number;
  readonly wishedSeconds: number;
  /** Greatest age of a value by plan: the target interval, stretched if the quota does not suffice. */
  readonly promisedSeconds: number;
  /** How old it becomes at most while nothing else wants the spare requests. */
  readonly atBestSeconds: number;
  readonly measuredSeconds: number | null;
  /** True if the measured age exceeds the target in the rounded figures; the plan may fit all the same. */
  readonly olderThanWished: boolean;
  readonly stretch: number;
  readonly requestsPerMinute: number;
}

interface BackfillPlan {
  readonly requestsLeft: number;
  readonly requestsPerMinute: number;
  readonly paused: boolean;
  /** UTC; null while it is paused. */
  readonly doneAt: string | null;
  /** The same, should the service bear the largest replies that are read. */
  readonly requestsAtBest: number;
  readonly atBestDoneAt: string | null;
}

/** Least share of the quota that the backfill gets however much is asked for, because a waiting lane is not starved. */
const BACKFILL_SHARE_MIN = 0.03;

/** Time for a response and the clock check before it, as planned; a worker uses measured times. */
const REPLY_MS = 200;

/**
 * Returns a message if the pages do not fit between two polls, or null. A running poll skips the next tick: 20 pages
 * at 30 lists a minute take 40 s, so every second poll of 30 s starts.
 */
function expectedInterval({ alarms, pages, everyMs, listsPerMinute }: AlarmPolling): string | null {
  const neededMs = (pages / listsPerMinute) * 60_000;
  if (neededMs <= everyMs) return null;
  const expectedMs = Math.ceil(neededMs / everyMs) * everyMs;
  return `${alarms} active alarms are ${pages} pages, and ${listsPerMinute} lists a minute are allowed: expect a poll of the alarms every ${durationText(expectedMs / 1_000)} instead of every ${durationText(everyMs / 1_000)}.`;
}

export function planReport(facts: PlanFacts): PlanReport {
  const { quota, classes, history, toLearn = 0 } = facts;
  const slotMs = 60_000 / quota.polls;
  const following = followingPerMinute(history, quota.size);
  const share = liveQuotaShare(quota.polls, following, quota.shared);
  const wishes = classes.filter(({ tags }) => tags > 0);
  const stretched = overloadFactor(wishes, slotMs, quota.size, share, REPLY_MS);
  const factorOf = (wish: ClassDemand) => stretched.factors.get(wish.name) ?? 1;
  const perMinuteOf = (wish: ClassDemand) =>
    slotsPerSlot(wish, factorOf(wish), slotMs, quota.size, REPLY_MS) * quota.polls;
  const live = wishes.reduce((sum, wish) => sum + perMinuteOf(wish), 0);
  const spare = Math.max(0, quota.polls - live - (quota.shared ? following : 0));
  const forPast = quota.shared ? spare : quota.polls - following;
  const pastPerMinute = Math.max(quota.polls * BACKFILL_SHARE_MIN, forPast);
  const lane = (name: LanePlan["lane"], requestsPerMinute: number): LanePlan => ({
    lane: name,
    requestsPerMinute: rounded(requestsPerMinute),
    share: rounded(requestsPerMinute / quota.perMinute, 4),
  });
  const { requestsLeft, requestsAtBest, paused } = facts.backfill;
  const pastDoneAt = (requests: number) => (paused ? null : isoUtc(facts.nowMs + (requests / pastPerMinute) * 60_000));
  const read = classes.reduce((sum, { allTags }) => sum + allTags, 0);
  const alarms = facts.alarms === undefined ? null : expectedInterval(facts.alarms);
  return {
    ...(alarms === null ? {} : { alarms }),
    source: facts.source,
    madeAt: isoUtc(facts.nowMs),
    basis: facts.basis,
    sites: facts.sites,
    tags: facts.tags,
    tagsNotRead: Math.max(0, facts.tags - read),
    quota,
    lanes: [lane("write", quota.reserve), lane("live", live), lane("history", following), lane("spare", spare)],
    fits: stretched.demand <= share,
    load: rounded(stretched.demand / share, 4),
    classes: classes.map((wish): ClassPlan => {
      const promisedMs = wish.everyMs * factorOf(wish);
      // With every slot at its service each age shrinks by the load; less than a slot it cannot be.
      const atBestMs = Math.min(promisedMs, Math.max(slotMs, (promisedMs * live) / Math.max(live, live + spare)));
      return {
        name: wish.name,
        tags: wish.allTags,
        wishedSeconds: wish.everyMs / 1_000,
        promisedSeconds: rounded(promisedMs / 1_000),
        atBestSeconds: rounded(atBestMs / 1_000),
        measuredSeconds: wish.measuredMs === null ? null : rounded(wish.measuredMs / 1_000),
        olderThanWished: isOlder(wish.measuredMs, wish.everyMs),
        stretch: rounded(factorOf(wish), 4),
        requestsPerMinute: rounded(wish.tags === 0 ? 0 : perMinuteOf(wish)),
      };
    }),
    fullSweepSeconds: rounded((Math.ceil(read / quota.size) * slotMs) / 1_000),
    history: history.map((each) => ({
      ...each,
      requestsPerMinute: rounded(followingPerMinute([each], quota.size), 3),
    })),
    learning:
      toLearn === 0 ? null : { tags: toLearn, requestsPerMinute: rounded(learningPerMinute(toLearn, quota.polls)) },
    backfill:
      requestsLeft === 0
        ? null
        : {
            requestsLeft,
            requestsPerMinute: rounded(pastPerMinute),
            paused,
            doneAt: pastDoneAt(requestsLeft),
            requestsAtBest,
            atBestDoneAt: pastDoneAt(requestsAtBest),
          },
    changes: changesThatFit({
      wishes,
      stretched,
      size: quota.size,
      share,
      replyMs: REPLY_MS,
      perMinute: quota.polls,
      unused: unusedQuota(quota),
    }),
  };
}

/** Compares ages as rounded for the reader: two ages with the same figure are equal. */
function isOlder(measuredMs: number | null, wishedMs: number): boolean {
  if (measuredMs === null || measuredMs <= wishedMs) return false;
  return durationText(rounded(measuredMs / 1_000)) !== durationText(wishedMs / 1_000);
}

/** Requests of the service's 20 that the configuration leaves unused. */
function unusedQuota({ perMinute, reserve, polite, size }: QuotaFacts) {
  const most = 20;
  const polls = (allowed: number, share: number, kept: number) => Math.max(1, allowed * share - kept);
  return [
    ...(polite < 1
      ? [
          {
            perMinute: polls(perMinute, 1, reserve),
            text: `Use the whole quota: quota.polite 1 instead of ${polite}.`,
            yaml: "quota: {polite: 1}",
          },
        ]
      : []),
    ...(perMinute < most
      ? [
          {
            perMinute: polls(most, polite, reserve),
            text: `Use the ${most} requests a minute, with ${size} tags each, that the interface allows, instead of ${perMinute}.`,
            yaml: `quota: {requests_per_minute: ${most}}`,
          },
        ]
      : []),
    ...(reserve > 0
      ? [
          {
            perMinute: polls(perMinute, polite, 0),
            text: `Keep no requests for writes alone: quota.reserve_for_writes 0 instead of ${reserve}.`,
            yaml: "quota: {reserve_for_writes: 0}",
          },
        ]
      : []),
  ];
}

function rounded(value: number, digits = 2): number {
  return Number(value.toFixed(digits));
}

/** One change of the configuration that makes the target intervals fit. */
interface PlanChange {
  /** For a person. */
  readonly text: string;
  /** The lines of the configuration, below the source. */
  readonly yaml: string;
  /** Cost: sum over the tags of (new interval / target interval - 1); 1 for one tag read half as often. */
  readonly cost: number;
}

export interface AdviceFacts {
  readonly wishes: readonly ClassDemand[];
  readonly stretched: Overload;
  readonly size: number;
  /** Share of the polls' requests that live reads may plan with. */
  readonly share: number;
  readonly replyMs: number;
  /** Requests per minute that polls get, now and at most; why not now, as a change. */
  readonly perMinute: number;
  readonly unused: readonly { readonly perMinute: number; readonly text: string; readonly yaml: string }[];
}

const MOST_FACTOR = 1_000;

/** Returns alternative changes that make the target intervals fit, cheapest first; empty if they fit. Pure. */
export function changesThatFit(facts: AdviceFacts): readonly PlanChange[] {
  const { wishes, size, share, replyMs, stretched, unused } = facts;
  const slotMs = 60_000 / facts.perMinute;
  const demandWith = (factorOf: (wish: ClassDemand) => number, slot = slotMs) =>
    wishes.reduce((sum, wish) => sum + slotsPerSlot(wish, factorOf(wish), slot, size, replyMs), 0);
  if (demandWith(() => 1) <= share) return [];

  const free = unused
    .filter(({ perMinute }) => demandWith(() => 1, 60_000 / perMinute) <= share)
    .map(({ text, yaml }) => ({ text, yaml, cost: 0 }));
  const single = wishes.flatMap((wish) => {
    const others = demandWith((each) => (each === wish ? MOST_FACTOR : 1));
    if (others > share) return [];
    const everyMs = smallestInterval(
      wish.everyMs,
      (ms) => demandWith((each) => (each === wish ? ms / wish.everyMs : 1)) <= share,
    );
    const every = formatDuration(everyMs);
    return {
      text: `Let the values of class ${wish.name} become ${every} old instead of ${formatDuration(wish.everyMs)}.`,
      yaml: `read: [{name: ${wish.name}, every: ${every}}]`,
      cost: wish.tags * (everyMs / wish.everyMs - 1) * wish.importance,
    };
  });
  const longer = wishes.map((wish) => ({ wish, factor: stretched.factors.get(wish.name) ?? 1 }));
  const everyOf = ({ wish, factor }: (typeof longer)[number]) => formatDuration(roundedUp(wish.everyMs * factor));
  const all = {
    text: `Let every class become ${Math.max(...longer.map(({ factor }) => factor)).toFixed(2)} times older, which is what happens without a change.`,
    yaml: `read: [${longer.map((each) => `{name: ${each.wish.name}, every: ${everyOf(each)}}`).join(", ")}]`,
    cost: longer.reduce((sum, { wish, factor }) => sum + wish.tags * (factor - 1) * wish.importance, 0),
  };
  return [...free, ...single, ...(wishes.length > 1 ? [all] : [])].toSorted((a, b) => a.cost - b.cost);
}

/** By bisection, then rounded up to what a person would write. */
function smallestInterval(fromMs: number, fits: (ms: number) => boolean): number {
  let low = fromMs;
  let high = fromMs * MOST_FACTOR;
  for (let step = 0; step < 50; step++) {
    const middle = (low + high) / 2;
    if (fits(middle)) high = middle;
    else low = middle;
  }
  return roundedUp(high);
}

const STEPS: readonly (readonly [below: number, stepMs: number])[] = [
  [60_000, 1_000],
  [600_000, 10_000],
  [3_600_000, 60_000],
  [Number.POSITIVE_INFINITY, 600_000],
];

function roundedUp(ms: number): number {
  const [, stepMs] = STEPS.find(([below]) => ms < below) ?? [0, 600_000];
  return Math.ceil((ms - 1e-6) / stepMs) * stepMs;
}
