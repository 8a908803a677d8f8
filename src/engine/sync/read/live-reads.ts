import { type Failure, LocalFailure, meaningOf } from "../../../core/errors/errors.ts";
import { Stopping } from "../../../core/runtime/lifecycle.ts";
import type { Log } from "../../../core/runtime/log.ts";
import { createWakeup, loop, WOKEN, yieldIfMany } from "../../../core/runtime/waiting.ts";
import { type Lane, type SlotOffer, TAGS_PER_REQUEST } from "../../source/source.ts";
import { documentSet } from "../../store/store.ts";
import type { Follower, RunContext } from "../follower.ts";
import { expectedTags, inventorySets } from "../inventory/held.ts";
import { type HistoryDemand, liveQuotaShare, type Overload } from "../plan/overload.ts";
import type { TokenScope } from "../scope.ts";
import { firstMatch } from "../select.ts";
import { type StoredLeftOut, type StoredQuarantine, type StoredValue, syncSet } from "../snapshot.ts";
import { standInLine } from "../standing.ts";
import { createBisection, createSlowTags, namedMember, refusalOf } from "./bisection.ts";
import { createReadCommit, type ReadCommit, type ReadCommitOptions } from "./commit.ts";
import type { ReadConfig } from "./config.ts";
import { createControls, createNextGroup } from "./next-group.ts";
import { type ClassFreshness, createTagSchedule, type TagSchedule, type TagState } from "./tag-schedule.ts";

/**
 * Reads the live values of one source.
 *
 * A request waits in the quota's lane `live`. When a slot is free, `next-group.ts` picks up to 20 tags, or none: then
 * history gets the slot. A second request waits in the last lane, `spare`, and reads the stalest tags when no other
 * lane wants the slot. Life of a request:
 *
 *   waiting ── slot free ──► sent ── reply ────► committed ──────────────► waiting
 *      ▲  └─ no tag due: pass ┘└─── failure ──► settle ─ some tags ──────► waiting
 *      │                                          └──── all tags: throw ─► trying
 *      └──────────────── a control tag is read ◄─────────────────────────────┘
 *
 * While `trying`, one request at a time reads one control tag (`Controls`). The other states allow six requests at a
 * time.
 */
export interface LiveReads extends Follower, Pick<ReadCommit, "lastRead" | "suddenChanges"> {
  status(): LiveReadStatus;
  /** Tags without a usable value in the replies; null before the first reply. */
  leftOut(): ReadonlyMap<string, StoredLeftOut> | null;
  /** Sets the gauges of freshness; with 50,000 tags as it was within the last 50 s, because each tag has its own age. */
  showFreshness(): void;
  /** Returns the state of one tag, or undefined if it is not read. */
  known(id: string): KnownTag | undefined;
  /** Other classes, from the next request on; of what was read, and of what is on its way, nothing is lost. */
  change(classes: ReadConfig): void;
}

export interface KnownTag extends TagState {
  readonly apart: string | null;
  /** Why the replies have no usable value of it, and since when; undefined while they have one. */
  readonly leftOut: StoredLeftOut | undefined;
}

export interface LiveReadStatus {
  readonly tags: number;
  /** Tags that were proven to make their requests fail; each is asked alone now and then. */
  readonly aside: readonly string[];
  /** Tags of sites that the token does not see. */
  readonly outOfSight: number;
  /** How the target intervals fit into the quota; null before the first check. */
  readonly stretch: Overload | null;
  /** Promised and achieved, by class, now. */
  readonly freshness: readonly ClassFreshness[];
}

export interface LiveReadOptions extends ReadCommitOptions {
  readonly log: Pick<Log, "info" | "warn" | "error">;
  readonly classes: ReadConfig;
  readonly scope: Pick<TokenScope, "sees" | "explain" | "saidAtMs">;
  /** Requests that following history takes from the same quota. */
  readonly demand: HistoryDemand;
  /** Whether the lists are being read for the first time, so that most tags may be unknown; never unless given. */
  readonly isFirstInventory?: () => boolean;
}

/** The ability that it takes (interface, GET tags/read). */
const ABILITY = "read:tags";
/** How often the choice of tags is made again from the inventory, in milliseconds. */
const REFRESH_MS = 60_000;
/** How often it is looked whether more tags are known, while there are none or more come, in milliseconds. */
const GROWTH_LOOK_MS = 1_000;
/**
 * So many times the tags that are on the board must be known before the choice is made again within the minute. 50,000 tags
 * that come page by page are then chosen from about 30 times, and not 500 times.
 */
const GROWTH = 1.25;
const UNDER_WAY_MAX = 6;
/** The same after a failure that concerned all, until something is read: the next request only tries. */
const TRYING_MAX = 1;
/** A reply that took longer than this, or never came, puts its tags under suspicion of being slow, in milliseconds. */
const SUSPICIOUS_MS = 15_000;

export function createLiveReads(options: LiveReadOptions): LiveReads {
  const { source, store, clock, log, scope, demand } = options;
  let { classes } = options;
  let classOf = firstMatch(classes);
  /** Rings when there are other classes. */
  const changed = createWakeup();
  /** Ends the work that goes on, because no class is left. */
  let stopRun: () => void = () => undefined;
  const slow = createSlowTags();
  const suspects = createBisection((id) => schedule.watched(id)?.siteId);
  const labelOf = (id: string) => suspects.labelOf(id) ?? slow.labelOf(id) ?? leftOut.labelOf(id);
  const schedule: TagSchedule = createTagSchedule({
    gatewayOffline: (siteId) => options.offlineGatewayOf?.(siteId) != null,
    sees: (siteId) => scope.sees(siteId),
    anyApart: () => slow.any() || searched.any(),
    labelOf,
    turnOf: (id) => suspects.turnOf(id) ?? (leftOut.labelOf(id) === null ? null : "patient"),
    isSuspect: (id) => suspects.isSuspect(id),
    notBeforeMs: (id) => suspects.notBeforeMs(id),
  });
  const commit = createReadCommit(options, schedule);
  const { leftOut } = commit;
  const searched = { any: () => suspects.any() || leftOut.any() };
  const controls = createControls((tried) => schedule.control(tried));
  /** Versions of the inventory that the schedule was made from. */
  let watchedVersions: string | null = null;
  /** Versions of the inventory at the last check. */
  let seenVersions: string | null = null;
  /** Tags that were stored when the board was made, also those that no class selects. */
  let storedTags = 0;
  /** When the choice of tags was last made, on the monotonic clock. */
  let refreshedAtMs = Number.NEGATIVE_INFINITY;
  let lastOverload: Overload | null = null;
  /** The largest factor that the log knows of. */
  let loggedFactor = 1;
  /** Slots that first readings of tags took of the share that the plan leaves to history. */
  let owedToHistory = 0;
  let shownClasses: readonly string[] = [];
  let freshnessShownMs = Number.NEGATIVE_INFINITY;

  const bucket = () => {
    const { buckets } = source.quota();
    return buckets.find((each) => each.name.includes("read")) ?? buckets[0];
  };
  /** The spacing now, which may be wider for a minute after a start; promises are made for what lasts. */
  const slotMs = () => 60_000 / Math.max(1, bucket()?.pacedPerMinute ?? 20);
  const lastingSlotMs = () => 60_000 / Math.max(1, bucket()?.lastingPerMinute ?? 20);
  const share = () => {
    const { buckets } = source.quota();
    return liveQuotaShare(60_000 / lastingSlotMs(), demand.followingPerMinute(), buckets.length === 1);
  };
  const replyMs = (spacingMs: number) => Math.min(spacingMs, slow.typicalMs());
  /** Clears all suspicions: the failure was not about tags. */
  const clearSuspicions = () => {
    suspects.forget();
    slow.forget();
  };
  const nextGroup = createNextGroup({ clock, schedule, controls, suspects: searched, replyMs });

  async function refresh(): Promise<void> {
    await watchTags();
    await yieldIfMany(schedule.size());
    const isMinute = clock.monotonic() - refreshedAtMs >= REFRESH_MS - GROWTH_LOOK_MS;
    if (isMinute) schedule.turnPage();
    if (isMinute) refreshedAtMs = clock.monotonic();
    logOverload(schedule.stretch(lastingSlotMs(), TAGS_PER_REQUEST, share(), replyMs(slotMs())));
    await yieldIfMany(schedule.size());
    showFreshness();
  }

  /** Refreshes when it is time, or when so many more tags are known; after how many milliseconds to look again. */
  async function refreshIfDue(): Promise<number> {
    const versions = await inventoryVersions();
    const isGrowing = versions !== seenVersions;
    seenVersions = versions;
    const leftMs = () => refreshedAtMs + REFRESH_MS - clock.monotonic();
    // Turns that look may come a second early.
    if (schedule.size() === 0 || watchedVersions === null || leftMs() <= GROWTH_LOOK_MS) await refresh();
    else if (versions !== watchedVersions) {
      const { size } = await store.documents<unknown>(documentSet("tag", source.name));
      if (size >= GROWTH * storedTags) await refresh();
    }
    return schedule.size() === 0 || isGrowing ? GROWTH_LOOK_MS : Math.max(GROWTH_LOOK_MS, leftMs());
  }

  async function inventoryVersions(): Promise<string> {
    const sets = [...inventorySets(source.name), syncSet("quarantine", source.name)];
    return (await Promise.all(sets.map((set) => store.version(set)))).join(" ");
  }

  /** Takes the tags on the board as the inventory has them; where that is as it was, nothing is read. */
  async function watchTags(): Promise<void> {
    const versions = await inventoryVersions();
    if (versions === watchedVersions) return;
    const asOf = classOf;
    // Tags of a site that the token does not see stay on the board, so that they are due when it does, not a minute later.
    const [tags, values, aside] = await Promise.all([
      expectedTags(store, source.name),
      store.documents<StoredValue>(documentSet("value", source.name)),
      store.documents<StoredQuarantine>(syncSet("quarantine", source.name)),
    ]);
    const watched = tags.flatMap((placed) => {
      const readClass = classOf(placed);
      if (readClass === undefined || placed.outOfSight === "tag") return [];
      const { tag, siteId, systemIds, outOfSight } = placed;
      const watchedTag = { tag, siteId, systemIds, readClass };
      return [outOfSight === undefined ? watchedTag : { ...watchedTag, outOfSight }];
    });
    await yieldIfMany(watched.length);
    const nowMs = clock.monotonic();
    const offsetMs = nowMs - clock.now();
    const toMonotonic = (time: string) => Date.parse(time) + offsetMs;
    schedule.watch(watched, { values, aside, nowMs, toMonotonic });
    storedTags = tags.length;
    // While it was read, other classes may have come.
    watchedVersions = asOf === classOf ? versions : null;
  }

  function showFreshness(): void {
    freshnessShownMs = clock.monotonic();
    const { freshnessPromised, freshnessAchieved } = options.metrics;
    const classes = schedule.freshness(clock.monotonic());
    for (const name of shownClasses) {
      if (!classes.some((each) => each.name === name)) freshnessPromised.remove({ source: source.name, class: name });
      // Remove the gauge of an unknown age; any number would be wrong.
      if (!classes.some((each) => each.name === name && each.achievedMs !== null))
        freshnessAchieved.remove({ source: source.name, class: name });
    }
    for (const { name, promisedMs, achievedMs } of classes) {
      const labels = { source: source.name, class: name };
      freshnessPromised.set(labels, promisedMs / 1_000);
      if (achievedMs !== null) freshnessAchieved.set(labels, achievedMs / 1_000);
    }
    shownClasses = classes.map(({ name }) => name);
  }

  /** Logs it once when it begins or changes much, and once when it is over; not while the building is being listed. */
  function logOverload(next: Overload): void {
    lastOverload = next;
    if (options.isFirstInventory?.() === true) return;
    const before = loggedFactor;
    const now = worstFactor(next);
    const changed = before === 1 ? now > 1 : now === 1 || Math.abs(now / before - 1) > 0.2;
    if (changed) loggedFactor = now;
    if (changed && now > 1) {
      log.warn(
        { demand: next.demand, factors: Object.fromEntries(next.factors) },
        "the live reads ask for more than the quota: intervals are stretched",
      );
    } else if (changed) {
      log.info({ demand: next.demand }, "the live reads fit into the quota again");
    }
  }

  /**
   * Whether a slot is left to history though tags wait for their first reading. No promise needs it: of 6,000 tags the first
   * readings take 15 minutes, and in each of them history gets the share that the plan leaves it.
   */
  function leavesToHistory(group: readonly string[]): boolean {
    if (!group.every((id) => schedule.known(id)?.lastMs === null)) return false;
    const left = 1 - share();
    owedToHistory += left / (1 - left);
    if (owedToHistory < 1) return false;
    owedToHistory -= 1;
    return true;
  }

  /**
   * Waits in a lane for a slot, reads the tags that are due, and settles the reply. Throws a failure that concerns all
   * tags.
   */
  async function readOnce(
    lane: Lane,
    begun: () => void,
    signal: AbortSignal,
    { draining, well }: Pick<RunContext, "draining" | "well">,
  ) {
    let group: readonly string[] = [];
    let startedAtMs = 0;
    const giveBack = () => {
      controls.returned(group);
      schedule.returned(group);
    };
    const choose = (_offer: SlotOffer) => {
      // Should it be asked once more, what it said before has not left.
      giveBack();
      const spacingMs = slotMs();
      group = nextGroup(lane === "spare", spacingMs);
      if (group.length > 0 && lane === "live" && leavesToHistory(group)) group = [];
      if (group.length === 0) {
        const isEmpty = schedule.size() === 0;
        return { passMs: isEmpty ? Math.min(spacingMs, GROWTH_LOOK_MS) : spacingMs };
      }
      startedAtMs = clock.monotonic();
      schedule.sent(group, startedAtMs);
      begun();
      return { ask: group };
    };
    try {
      const reply = await source.read(choose, lane, signal);
      slow.replied(group, reply.latencyMs);
      await commit.values(group, reply, draining);
      suspects.cleared(group);
      controls.answered();
      well();
    } catch (error) {
      signal.throwIfAborted();
      await settle(group, startedAtMs, meaningOf(error), signal);
    } finally {
      giveBack();
    }
  }

  /** Settles a failed request. Throws the failure if it concerns all tags, not only those of the request. */
  async function settle(group: readonly string[], startedAtMs: number, failure: Failure, signal: AbortSignal) {
    // No tag and no gateway has anything to do with it.
    if (failure instanceof LocalFailure) throw failure;
    const atMs = clock.monotonic();
    const refusal = refusalOf(failure);
    if (refusal === null || group.length === 0) {
      if (controls.mayBlame(failure) && controls.isTrial(group)) clearSuspicions();
      else if (controls.mayBlame(failure)) {
        schedule.failed(group, atMs);
        suspects.failed(group);
        if (atMs - startedAtMs > SUSPICIOUS_MS) slow.replied(group, Number.POSITIVE_INFINITY);
      }
      if (controls.failed(failure)) throw failure;
      log.warn({ err: failure }, "a live read failed");
      return;
    }
    const siteOf = (id: string) => schedule.watched(id)?.siteId;
    const siteIds = new Set(group.flatMap((id) => siteOf(id) ?? []));
    const tokenSaidBeforeMs = scope.saidAtMs();
    const why = await scope.explain({ siteIds, ability: ABILITY, atMs }, signal);
    // Tags of a site that the token does not see have left the plan by now; the others are as due as they were.
    if (why === "site") return;
    if (why === "ability") throw failure;
    if (refusal === "invalid") log.error({ tags: group.length, err: failure }, "the service calls a read invalid");
    if (controls.refused(group)) {
      suspects.forget();
      throw failure;
    }
    const named = namedMember(group, failure);
    const proven = suspects.refused(group, {
      atMs,
      tokenSaidBeforeMs,
      tokenSaidAtMs: scope.saidAtMs(),
      named,
    });
    // One that was set aside and asked again alone needs no further proof.
    const again = group.length === 1 && schedule.aside().includes(group[0] ?? "") ? (group[0] ?? null) : null;
    const guilty = proven ?? (why === "unexplained" ? again : null);
    if (guilty === null) return;
    await commit.setAside(guilty, failure);
    log.warn({ tag: guilty, err: failure }, "a tag that cannot be read is set aside");
  }

  return {
    name: "live",
    ability: ABILITY,

    async follow({ draining, forced, afterOutage, well }: RunContext) {
      if (afterOutage === true) clearSuspicions();
      const ending = AbortSignal.any([draining, forced]);
      await refresh();
      // Request no slot while no class is configured.
      while (classes.length === 0 && !ending.aborted) await changed.nextWakeup(ending);
      if (ending.aborted) return;
      const emptied = new AbortController();
      stopRun = () => emptied.abort(new Stopping());
      const leaving = AbortSignal.any([draining, emptied.signal]);
      controls.begin();
      await refresh();
      const over = new AbortController();
      const refreshing = loop({
        clock,
        signal: AbortSignal.any([leaving, forced, over.signal]),
        bell: changed,
        looks: true,
        turn: refreshIfDue,
        fault: (error) => log.warn({ err: error }, "the tags to be read could not be looked up"),
      });
      try {
        await standInLine(
          (["live", "spare"] as const).map(
            (lane) => (begun, signal) => readOnce(lane, begun, signal, { draining, well }),
          ),
          { most: () => (controls.isTrying() ? TRYING_MAX : UNDER_WAY_MAX), draining: leaving, forced },
        );
      } finally {
        over.abort(WOKEN);
        await refreshing;
      }
    },

    status: () => ({
      tags: schedule.size(),
      aside: schedule.aside(),
      outOfSight: schedule.outOfSight(),
      stretch: lastOverload,
      freshness: schedule.freshness(clock.monotonic()),
    }),
    lastRead: commit.lastRead,
    leftOut: commit.leftOut.all,
    suddenChanges: commit.suddenChanges,
    showFreshness() {
      if (clock.monotonic() - freshnessShownMs >= schedule.size()) showFreshness();
    },
    change(next) {
      classes = next;
      classOf = firstMatch(classes);
      watchedVersions = null;
      changed.wakeUp();
      if (classes.length === 0) stopRun();
    },
    known(id) {
      const state = schedule.known(id);
      return state && { ...state, apart: labelOf(id), leftOut: leftOut.of(id) };
    },
  };
}

function worstFactor(stretch: Overload | null): number {
  return Math.max(1, ...(stretch?.factors.values() ?? []));
}
