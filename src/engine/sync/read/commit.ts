import { sentence } from "../../../core/errors/errors.ts";
import type { TagValue } from "../../../core/model/building.ts";
import type { Quality } from "../../../core/model/tag-facts.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import type { Metrics } from "../../../core/runtime/metrics.ts";
import { sleepFor, yieldToEventLoop } from "../../../core/runtime/waiting.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { LeftOut, ReadReply, Source } from "../../source/source.ts";
import { type Change, type DocumentChange, documentSet, type Store } from "../../store/store.ts";
import type { PollTime } from "../job.ts";
import { type StoredLeftOut, type StoredQuarantine, type StoredValue, syncSet } from "../snapshot.ts";
import { quarantineMs } from "./bisection.ts";
import type { TagSchedule } from "./tag-schedule.ts";
import {
  createSuddenChanges,
  isTypeUpset,
  type JudgedReading,
  judgeType,
  type SuddenChange,
  type ValueOutcome,
  valueEvent,
  valuesById,
} from "./value-event.ts";

/** Settles what live reads brought: one transaction for all of a reply, and the board after it. */
export interface ReadCommit {
  values(asked: readonly string[], reply: ReadReply, hurry: AbortSignal): Promise<void>;
  /** Sets a tag aside that was proven to make its requests fail; the longer, the more often in a row. */
  setAside(id: string, reason: unknown): Promise<void>;
  /** Values that changed at once and are not settled yet. */
  suddenChanges(): readonly SuddenChange[];
  /** Tags that the replies had no usable value of. */
  readonly leftOut: Pick<LeftOutTags, "of" | "all" | "any" | "labelOf">;
  /** When a reply last had a value, since the start; null before the first. */
  lastRead(): PollTime | null;
}

export interface ReadCommitOptions {
  readonly source: Source;
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Pick<Log, "info" | "warn">;
  readonly metrics: Pick<Metrics, "tagsRead" | "freshnessPromised" | "freshnessAchieved">;
  /** The offline gateway that all tags of a site are behind, where the building says so; the interface links no tag to one. */
  readonly offlineGatewayOf?: (siteId: number) => string | null;
  /** Our clock minus the service's, milliseconds; null when unknown. */
  readonly clockSkewMs?: () => number | null;
  /** Called with each value after its commit. */
  readonly onRead?: (id: string, value: TagValue, atMs: number) => void;
  /** Called when many values of a site have turned null at once. */
  readonly onSuddenNulls?: (siteId: number) => void;
  /** Shared by all sources. */
  readonly together: GroupCommit;
}

/** Stored values cached per source, about 300 bytes each; beyond this number they are read from the store. */
const CACHED_MAX = 1_000;
/** Our clock is off by more than this: times are in doubt, in milliseconds. */
const SKEW_IN_DOUBT_MS = 300_000;

export function createReadCommit(options: ReadCommitOptions, schedule: TagSchedule): ReadCommit {
  const { source, store, clock, metrics } = options;
  const valueSet = documentSet("value", source.name);
  const quarantineSet = syncSet("quarantine", source.name);
  const leftOut = createLeftOutTags({ store, source: source.name, log: options.log, clock });
  const sudden = createSuddenChanges(clock, options.log, (id) => schedule.watched(id) !== undefined);
  /** Stored values as of the last commit; only this module writes them. */
  const cached = new Map<string, StoredValue>();

  /** Reads stored values that are not cached. */
  async function fetched(ids: readonly string[]): Promise<ReadonlyMap<string, StoredValue | undefined>> {
    const uncached = ids.filter((id) => !cached.has(id));
    const held = uncached.map(async (id) => [id, await store.document<StoredValue>(valueSet, id)] as const);
    return new Map(await Promise.all(held));
  }

  function cache(id: string, held: StoredValue): void {
    if (cached.size >= CACHED_MAX && !cached.has(id)) cached.clear();
    cached.set(id, held);
  }

  let lastRead: PollTime | null = null;

  return {
    leftOut,
    lastRead: () => lastRead,
    suddenChanges: sudden.current,

    async values(asked, reply, hurry) {
      // When it came; the transaction may follow up to a second later.
      const nowMs = clock.monotonic();
      const values = valuesById(asked, reply.readings);
      const isClockInDoubt = Math.abs(options.clockSkewMs?.() ?? 0) > SKEW_IN_DOUBT_MS;
      let settled = () => {};
      const change = async () => {
        const uncached = await fetched(asked);
        const judged = asked.flatMap((id) => {
          const watched = schedule.watched(id);
          const value = values.get(id);
          if (watched === undefined || value === undefined) return [];
          const before = cached.get(id) ?? uncached.get(id);
          return [{ id, watched, value, before, type: judgeType(watched.tag.unit, before, value) }];
        });
        const readings = judged.map(
          ({ id, watched, value, before, type }): JudgedReading => ({
            ...{ id, siteId: watched.siteId, isNull: value === null },
            turnedNull: value === null && before !== undefined && before.value !== null,
            ...{ wasKnown: value !== null && type.wasKnown, isNewType: type.isNew },
            isTypeInDoubt: type.doubt !== null,
          }),
        );
        const inDoubt = isClockInDoubt || isTypeUpset(readings);
        const told = judged.map(({ id, watched, value, before, type }): { readonly id: string } & ValueOutcome => {
          const behindGateway = value === null ? (options.offlineGatewayOf?.(watched.siteId) ?? null) : null;
          const context = { source: source.name, inDoubt, behindGateway };
          return { id, ...valueEvent(watched, value, before, reply, type, context) };
        });
        const left = await leftOut.change(asked, values, reply);
        // A request that is answered is not refused, whatever it says of the tag.
        const freed = schedule.aside().filter((id) => asked.includes(id));
        settled = () => {
          left.settled();
          for (const id of freed) schedule.release(id);
          const counts = new Map<Quality, number>();
          for (const { id, held } of told) {
            cache(id, held);
            counts.set(held.quality, (counts.get(held.quality) ?? 0) + 1);
          }
          for (const [quality, count] of counts) metrics.tagsRead.inc({ source: source.name, quality }, count);
          for (const siteId of sudden.committed(readings)) options.onSuddenNulls?.(siteId);
        };
        return {
          documents: [
            { set: valueSet, put: told.map(({ id, held }) => [id, held] as const) },
            { set: quarantineSet, remove: freed },
            left.documents,
          ],
          events: told.flatMap(({ event }) => event ?? []),
        };
      };
      await options.together.commit(source.name, change, hurry);
      settled();
      if (values.size > 0) lastRead = { atMs: reply.receivedAtMs, monotonicMs: nowMs };
      for (const id of asked) {
        const value = values.get(id);
        if (value !== undefined) options.onRead?.(id, value, reply.receivedAtMs);
        schedule.answered(id, value === undefined ? "absent" : value === null ? "null" : "value", nowMs);
      }
    },

    async setAside(id, reason) {
      const before = await store.document<StoredQuarantine>(quarantineSet, id);
      const times = (before?.times ?? 0) + 1;
      const waitMs = quarantineMs(times);
      const until = isoUtc(clock.now() + waitMs);
      const held: StoredQuarantine = { until, reason: sentence(reason), at: isoUtc(clock.now()), times };
      await store.commit({ documents: [{ set: quarantineSet, put: [[id, held]] }] });
      schedule.setAside(id, clock.monotonic() + waitMs);
    },
  };
}

/**
 * Requested tags without a usable value in a reply: the reply does not list them, or has an unreadable value of them. They
 * have no event, because unknown is not bad: what is stored of them stays as it was. `status` and `explain` name them, the
 * log says when it begins and ends, and they are requested less and less often, as tags that answer null.
 *
 * A tag that is unreadable in a reply of several tags is requested singly next, because the company may be the cause: a reply
 * that has a tag twice, say. Where it is readable then, it stays single for 10 minutes, then 1, 6 and 24 hours. Where it is
 * not, the company is not the cause, and it shares requests with others again.
 */
interface LeftOutTags {
  /** Prepares what one reply changes, to be committed with its values; `settled` is called after that. */
  change(
    asked: readonly string[],
    values: ReadonlyMap<string, unknown>,
    reply: Pick<ReadReply, "leftOut" | "receivedAtMs">,
  ): Promise<{ readonly documents: DocumentChange; settled(): void }>;
  /** Since when, and why, a tag has no usable value; undefined for any other. */
  of(id: string): StoredLeftOut | undefined;
  /** All of them; null before the first reply. */
  all(): ReadonlyMap<string, StoredLeftOut> | null;
  /** Whether any tag is requested singly. */
  any(): boolean;
  /** Tags with a label of their own are requested singly; null for all others. */
  labelOf(id: string): string | null;
}

/** Tags that one line of the log names. */
const NAMED = 20;
/** Number of unreadable tags from which, with a third of the response, the format of the values is the cause. */
const MANY = 5;

/** A tag that is requested singly; monotonic milliseconds. */
interface Single {
  /** Times in a row that it was unreadable in company and readable singly. */
  times: number;
  /** Infinite until the first single reply has come. */
  untilMs: number;
}

function createLeftOutTags(options: {
  readonly store: Pick<Store, "documents">;
  readonly source: string;
  readonly log: Pick<Log, "info" | "warn">;
  readonly clock: Pick<Clock, "monotonic">;
}): LeftOutTags {
  const { store, log, clock } = options;
  const set = syncSet("left-out", options.source);
  let known: Map<string, StoredLeftOut> | null = null;
  const singles = new Map<string, Single>();

  const isSingle = (id: string) => clock.monotonic() < (singles.get(id)?.untilMs ?? 0);

  function noteSingles(asked: readonly string[], unreadable: readonly string[], before: ReadonlySet<string>) {
    const [only] = asked;
    if (asked.length === 1 && only !== undefined) {
      const single = singles.get(only);
      if (unreadable.length > 0) singles.delete(only);
      else if (single?.untilMs === Number.POSITIVE_INFINITY) {
        single.times += 1;
        single.untilMs = clock.monotonic() + quarantineMs(single.times);
      }
      return;
    }
    for (const id of asked) if (!unreadable.includes(id)) singles.delete(id);
    if (unreadable.length >= MANY && 3 * unreadable.length > asked.length) return;
    for (const id of unreadable) {
      if (before.has(id)) continue;
      const single = singles.get(id) ?? { times: 0, untilMs: 0 };
      single.untilMs = Number.POSITIVE_INFINITY;
      singles.set(id, single);
    }
  }

  return {
    async change(asked, values, reply) {
      known ??= new Map(await store.documents<StoredLeftOut>(set));
      const held = known;
      const reasons = new Map((reply.leftOut ?? []).map((one) => [one.id, one]));
      const at = isoUtc(reply.receivedAtMs);
      const missing = asked.filter((id) => !values.has(id));
      const put = missing.flatMap((id): [string, StoredLeftOut][] => {
        const { kind, reason } = reasons.get(id) ?? unanswered(id);
        const before = held.get(id);
        if (before?.kind === kind && before.reason === reason) return [];
        return [[id, { since: before?.since ?? at, kind, reason }]];
      });
      const remove = asked.filter((id) => values.has(id) && held.has(id));
      return {
        documents: { set, put, remove },
        settled() {
          const unreadable = missing.filter((id) => reasons.get(id)?.kind === "unreadable");
          noteSingles(asked, unreadable, new Set(held.keys()));
          const begun = put.filter(([id, { kind }]) => held.get(id)?.kind !== kind);
          for (const [id, one] of put) held.set(id, one);
          for (const id of remove) held.delete(id);
          if (begun.length > 0) {
            const tags = Object.fromEntries(begun.slice(0, NAMED).map(([id, { reason }]) => [id, reason]));
            log.warn({ tags, count: begun.length }, "tags that were asked for have no value in the reply");
          }
          if (remove.length > 0) log.info({ tags: remove }, "tags that had no value in the replies have one again");
        },
      };
    },
    of: (id) => known?.get(id),
    all: () => known,
    any: () => singles.size > 0,
    labelOf: (id) => (isSingle(id) ? `single ${id}` : null),
  };
}

function unanswered(id: string): LeftOut {
  return { id, kind: "unanswered", reason: "The reply does not list it." };
}

/**
 * Puts what the replies of several sources brought into one transaction, because each is a sync of the disk, a write of
 * every index and an offer to each sink. 20 sources at their full quota bring 7 replies a second, and with them a
 * transaction each second holds 140 values instead of 20. A source that is the only one never waits: each of its replies
 * is committed as it comes.
 */
export interface GroupCommit {
  /**
   * Resolves when the change is durable. `change` is called at that moment, so that it builds on what was committed
   * before; of one source there is never more than one in a transaction. Rejects with what the change itself rejects
   * with, or with the trouble of the transaction, which is everybody's.
   */
  commit(source: string, change: () => Promise<Change>, hurry: AbortSignal): Promise<void>;
}

/**
 * Time between two transactions, in milliseconds. A value is seconds old when it is read, so one second more is
 * acceptable.
 */
const GATHER_MS = 1_000;
/**
 * From the first reply after a pause to its transaction, in milliseconds. Sources that were started together ask together
 * for as long as they live, every 3 s, and so their replies come within the time that the service takes: without this
 * wait the first of 20 had a transaction for itself, and the others another one a second later.
 */
const COMPANY_MS = 250;
/**
 * Replies in one transaction at most: a transaction stops the event loop, and sources that were started together are
 * answered together. 200 replies of 20 values at once stopped it for 140 ms; so many take a fifth of that.
 */
const REPLIES_MAX = 20;

interface Waiting {
  readonly source: string;
  readonly change: () => Promise<Change>;
  readonly hurry: AbortSignal;
  readonly done: PromiseWithResolvers<void>;
}

interface GroupCommitOptions {
  readonly store: Pick<Store, "commit">;
  readonly clock: Clock;
  /** How many share it. */
  readonly sources: number;
}

export function createGroupCommit({ store, clock, sources }: GroupCommitOptions): GroupCommit {
  /** Shortened in place: one that is given up would keep its changes from the collector once it is old, as in tail.ts. */
  const waiting: Waiting[] = [];
  let isRunning = false;
  let lastMs = Number.NEGATIVE_INFINITY;

  async function run(): Promise<void> {
    isRunning = true;
    for (let [first] = waiting; first !== undefined; [first] = waiting) {
      const restMs = lastMs + GATHER_MS - clock.monotonic();
      const companyMs = sources > 1 ? COMPANY_MS : 0;
      const waitMs = Math.max(restMs, companyMs);
      if (waitMs > 0) await sleepFor(clock, waitMs, first.hurry);
      lastMs = clock.monotonic();
      // Commit a second reply of the same source after the first, without another wait.
      for (let [next] = waiting; next !== undefined; [next] = waiting) {
        await commitAll(takeOneOfEach());
        if (waiting.length > 0) await yieldToEventLoop();
      }
    }
    isRunning = false;
  }

  function takeOneOfEach(): readonly Waiting[] {
    const among = new Set<string>();
    const taken: Waiting[] = [];
    let left = 0;
    for (const each of waiting) {
      if (taken.length === REPLIES_MAX || among.has(each.source)) waiting[left++] = each;
      else taken.push(each);
      among.add(each.source);
    }
    waiting.length = left;
    return taken;
  }

  return {
    commit(source, change, hurry) {
      const done = Promise.withResolvers<void>();
      waiting.push({ source, change, hurry, done });
      if (!isRunning) void run();
      return done.promise;
    },
  };

  async function commitAll(taken: readonly Waiting[]): Promise<void> {
    const made = await Promise.all(
      taken.map(async (each) => {
        try {
          return { each, change: await each.change() };
        } catch (error) {
          each.done.reject(error);
          return null;
        }
      }),
    );
    const sound = made.filter((one) => one !== null);
    try {
      if (sound.length > 0) await store.commit(merged(sound.map(({ change }) => change)));
      for (const { each } of sound) each.done.resolve();
    } catch (error) {
      for (const { each } of sound) each.done.reject(error);
    }
  }
}

function merged(changes: readonly Change[]): Change {
  const [only] = changes;
  if (only !== undefined && changes.length === 1) return only;
  return {
    documents: changes.flatMap(({ documents = [] }) => documents),
    events: changes.flatMap(({ events = [] }) => events),
    records: changes.flatMap(({ records = [] }) => records),
  };
}
