import { type Failure, Malformed, meaningOf, Retryable } from "../../errors.ts";
import type { Log } from "../../log.ts";
import { TAGS_PER_REQUEST } from "../../source/source.ts";
import { documentSet } from "../../store/store.ts";
import { heldTags } from "../inventory/held.ts";
import { type JobOutcome, OK } from "../job.ts";
import { type Plan, planGroup } from "../plan/group.ts";
import { liveShare } from "../plan/share.ts";
import type { Stretch } from "../plan/stretch.ts";
import { firstMatch } from "../select.ts";
import { type HeldQuarantine, type HeldValue, syncSet } from "../snapshot.ts";
import { type ClassFreshness, createBoard, type TagState } from "./board.ts";
import { createReadCommit, type ReadCommitOptions } from "./commit.ts";
import type { ReadConfig } from "./config.ts";
import { isMemberRefusal, searchRefused } from "./refused.ts";
import { createSlowTags } from "./slow.ts";

/**
 * The live reads of one source: one loop that asks the planner which 20 tags come next, and keeps at most one read
 * waiting in the quota's live lane. What the plan leaves free goes to history.
 */
export interface LiveReads {
  /** Reads what is due, for some minutes, then returns; nothing that it learned is lost between two runs. */
  run(signal: AbortSignal): Promise<JobOutcome>;
  status(): LiveReadStatus;
  /** Whether a slot is free now that no promise needs: the past may be fetched. */
  leavesRoom(): boolean;
  /** What is known of one tag, and whether it travels apart; undefined when it is not read. */
  known(id: string): (TagState & { readonly apart: string | null }) | undefined;
}

export interface LiveReadStatus {
  readonly tags: number;
  /** Tags that made their group fail; each is asked alone once a day. */
  readonly quarantined: readonly string[];
  /** How the wishes fit into the quota; null before the first run. */
  readonly stretch: Stretch | null;
  /** Promised and achieved, by class, as of the last minute. */
  readonly freshness: readonly ClassFreshness[];
}

export interface LiveReadOptions extends ReadCommitOptions {
  readonly log: Pick<Log, "info" | "warn">;
  readonly classes: ReadConfig;
  /** Whether history has work for the slots that the promises to live values leave free. */
  readonly historyWants?: () => boolean;
  /** Requests per minute that following history needs of the same quota. */
  readonly historyPerMinute?: () => number;
}

/** How long one run goes on, so that its state is told now and then, in milliseconds. */
const RUN_MS = 300_000;
/** How often the choice of tags is made anew from the inventory, in milliseconds. */
const REFRESH_MS = 60_000;
/** How often it is looked whether the lane is free again, in milliseconds. */
const PEEK_MS = 100;
/** How long it is not planned again at least after nothing was found to be due, in milliseconds. */
const LEAST_PAUSE_MS = 250;
/** Longer than the next run is away usually, in milliseconds. */
const BETWEEN_RUNS_MS = 15_000;
/** How much longer a run may take until it finds a good moment to end, in milliseconds. */
const LONGEST_DELAY_MS = 60_000;
const UNDER_WAY_MAX = 6;
/** Failures in a row after which it is the service, not a gateway. */
const FAILURES_MAX = 3;
/** A reply that took longer than this, or never came, puts its tags under suspicion, in milliseconds. */
const SUSPICIOUS_MS = 15_000;

export function createLiveReads(options: LiveReadOptions): LiveReads {
  const { source, store, clock, log, classes } = options;
  const classOf = firstMatch(classes);
  const board = createBoard((tag) => options.offlineGatewayOf?.(tag) != null);
  const slow = createSlowTags();
  const commit = createReadCommit(options, board);
  let refreshedAtMs = Number.NEGATIVE_INFINITY;
  let lastStretch: Stretch | null = null;
  let failures = 0;
  let freshness: readonly ClassFreshness[] = [];
  let running = false;
  let endedAtMs = Number.NEGATIVE_INFINITY;
  let roomUntilMs = Number.NEGATIVE_INFINITY;
  let planAtMs = Number.NEGATIVE_INFINITY;
  const underWay = new Set<Promise<void>>();

  const bucket = () => {
    const { buckets } = source.quota();
    return buckets.find((each) => each.name.includes("read")) ?? buckets[0];
  };
  /** The spacing now, which may be wider for a minute after a start; promises are made for what lasts. */
  const slotMs = () => 60_000 / Math.max(1, bucket()?.pacedPerMinute ?? 20);
  const lastingSlotMs = () => 60_000 / Math.max(1, bucket()?.lastingPerMinute ?? 20);
  const share = () => {
    const { buckets } = source.quota();
    return liveShare(60_000 / lastingSlotMs(), options.historyPerMinute?.() ?? 0, buckets.length === 1);
  };
  const isWaiting = () => source.quota().buckets.some((bucket) => bucket.waiting.live > 0);
  /** Until the next slot; a hold makes everything late anyway. */
  const nextSlotMs = () => {
    const waits = source.quota().buckets.map((bucket) => bucket.nextSlotInMs);
    return Math.min(slotMs(), Math.max(0, ...waits));
  };
  /** Until the next slot is gone, or, where it is free already, until it is planned again. */
  const roomMs = () => (nextSlotMs() > 0 ? nextSlotMs() : LEAST_PAUSE_MS);
  const historyWants = () => options.historyWants?.() ?? false;
  const replyMs = () => Math.min(slotMs(), slow.typicalMs());

  async function refresh(): Promise<void> {
    const [tags, values, quarantine] = await Promise.all([
      heldTags(store, source.name),
      store.documents<HeldValue>(documentSet("value", source.name)),
      store.documents<HeldQuarantine>(syncSet("quarantine", source.name)),
    ]);
    const watched = tags.flatMap((placed) => {
      const readClass = classOf(placed);
      return readClass === undefined ? [] : [{ ...placed, readClass }];
    });
    const offsetMs = clock.monotonic() - clock.now();
    const toMonotonic = (time: string) => Date.parse(time) + offsetMs;
    board.watch(watched, { values, quarantine, toMonotonic });
    refreshedAtMs = clock.monotonic();
    tellStretch(board.stretch(lastingSlotMs(), TAGS_PER_REQUEST, share(), PEEK_MS + replyMs()));
    freshness = board.freshness(clock.monotonic());
    for (const { name, promisedMs, achievedMs } of freshness) {
      const labels = { source: source.name, class: name };
      options.metrics.freshnessPromised.set(labels, promisedMs / 1_000);
      if (achievedMs !== null) options.metrics.freshnessAchieved.set(labels, achievedMs / 1_000);
    }
  }

  /** Once when it begins or changes much, and once when it is over. */
  function tellStretch(next: Stretch): void {
    const before = worstFactor(lastStretch);
    const now = worstFactor(next);
    const changed = before === 1 ? now > 1 : now === 1 || Math.abs(now / before - 1) > 0.2;
    if (changed && now > 1) {
      log.warn(
        { demand: next.demand, factors: Object.fromEntries(next.factors) },
        "the live reads ask for more than the quota: intervals are stretched",
      );
    } else if (changed) {
      log.info({ demand: next.demand }, "the live reads fit into the quota again");
    }
    lastStretch = next;
  }

  /** Reads one group and settles it: committed, searched for culprits, or left for later. Throws what concerns all. */
  async function readGroup(ids: readonly string[], signal: AbortSignal): Promise<void> {
    board.sent(ids);
    const startedAtMs = clock.monotonic();
    const one = async (group: readonly string[]) => {
      const reply = await source.read(group, "live", signal);
      slow.replied(group, reply.latencyMs);
      await commit.values(group, reply);
      failures = 0;
    };
    try {
      try {
        await one(ids);
      } catch (error) {
        signal.throwIfAborted();
        if (!isMemberRefusal(error)) throw error;
        const refused = await searchRefused(ids, error, one, () => commit.lastSuccessMs() > startedAtMs);
        await commit.quarantine(refused, error);
        log.warn({ tags: refused, err: error }, "tags that cannot be read are set aside");
      }
    } catch (error) {
      signal.throwIfAborted();
      const failure = meaningOf(error);
      for (const id of ids) board.answered(id, "one more", clock.monotonic());
      if (clock.monotonic() - startedAtMs > SUSPICIOUS_MS) slow.replied(ids, Number.POSITIVE_INFINITY);
      failures++;
      if (!mayBeOneGateway(failure) || failures >= FAILURES_MAX) throw failure;
      log.warn({ err: failure }, "a live read failed");
    } finally {
      board.returned(ids);
    }
  }

  /** Whether no promise needs the next slot; after a while it is over all the same. */
  const mayPause = (sinceMs: number) =>
    clock.monotonic() < roomUntilMs || clock.monotonic() >= sinceMs + LONGEST_DELAY_MS || !historyWants();

  function nextPlan(): Plan {
    const nowMs = clock.monotonic();
    const probe = board.nextProbe(nowMs);
    const plan = planGroup(
      board.planned((id) => slow.labelOf(id)),
      nowMs,
      {
        slotMs: slotMs(),
        size: TAGS_PER_REQUEST,
        leadMs: nextSlotMs() + replyMs(),
        jitterMs: PEEK_MS + replyMs(),
        // Right after the next slot is gone: what is decided then leaves one slot later, as the plan supposes.
        againMs: Math.max(LEAST_PAUSE_MS, nextSlotMs() + PEEK_MS / 2),
        eager: probe === undefined && !historyWants(),
      },
    );
    return plan.group.length === 0 && probe !== undefined ? { ...plan, group: [probe] } : plan;
  }

  return {
    async run(signal) {
      await refresh();
      if (board.size() === 0) return OK;
      const endAtMs = clock.monotonic() + RUN_MS;
      let failure: unknown;
      failures = 0;
      running = true;
      const start = (group: readonly string[]) => {
        const reading = readGroup(group, signal)
          .catch((error: unknown) => {
            failure ??= error;
          })
          .finally(() => underWay.delete(reading));
        underWay.add(reading);
      };
      try {
        // It ends where a slot may be left out, because the next run takes a moment to begin.
        while (failure === undefined && (clock.monotonic() < endAtMs || !mayPause(endAtMs))) {
          if (clock.monotonic() - refreshedAtMs >= REFRESH_MS) await refresh();
          if (clock.monotonic() >= planAtMs && underWay.size < UNDER_WAY_MAX && !isWaiting()) {
            const { group, againAtMs } = nextPlan();
            planAtMs = againAtMs;
            // Room for one request: the slot after that is planned anew.
            roomUntilMs = group.length === 0 ? clock.monotonic() + roomMs() : Number.NEGATIVE_INFINITY;
            if (group.length > 0) start(group);
          }
          await clock.sleep(PEEK_MS, signal);
        }
      } finally {
        await Promise.all(underWay);
        running = false;
        endedAtMs = clock.monotonic();
      }
      if (failure !== undefined) throw failure;
      return OK;
    },
    status: () => ({
      tags: board.size(),
      quarantined: board.quarantined(),
      stretch: lastStretch,
      freshness,
    }),
    leavesRoom() {
      const nowMs = clock.monotonic();
      // Between two runs a plan holds as well; what follows soon would have to wait for what was let in.
      const rests = !running && nowMs - endedAtMs > BETWEEN_RUNS_MS;
      return rests || nowMs < roomUntilMs || underWay.size >= UNDER_WAY_MAX;
    },
    known(id) {
      const state = board.known(id);
      return state && { ...state, apart: slow.labelOf(id) };
    },
  };
}

function worstFactor(stretch: Stretch | null): number {
  return Math.max(1, ...(stretch?.factors.values() ?? []));
}

/** Trouble that a single gateway or a single reply can cause; the rest concerns the token, the quota, the service. */
function mayBeOneGateway(failure: Failure): boolean {
  return failure instanceof Retryable || failure instanceof Malformed;
}
