import { sentence } from "../../../core/errors/errors.ts";
import type { TagValue } from "../../../core/model/building.ts";
import type { Quality } from "../../../core/model/tag-facts.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import type { Metrics } from "../../../core/runtime/metrics.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { ReadReply, Source } from "../../source/source.ts";
import { documentSet, type Store } from "../../store/store.ts";
import type { PollTime } from "../job.ts";
import { type StoredQuarantine, type StoredValue, syncSet } from "../snapshot.ts";
import { quarantineMs } from "../tag-group/refusal.ts";
import type { GroupCommit } from "./group-commit.ts";
import { createLeftOutTags, type LeftOutTags } from "./left-out.ts";
import { createSuddenChanges, isTypeUpset, type JudgedReading, type SuddenChange } from "./sudden-change.ts";
import type { TagSchedule } from "./tag-schedule.ts";
import { type ValueOutcome, valueEvent, valuesById } from "./value-event.ts";
import { judgeType } from "./value-type.ts";

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
  /** Is told of each value that was read, once it is committed. */
  readonly onRead?: (id: string, value: TagValue, atMs: number) => void;
  /** Called when many values of a site have turned null at once. */
  readonly onSuddenNulls?: (siteId: number) => void;
  /** Shared by all sources. */
  readonly together: GroupCommit;
}

/** What is held of so many tags of a source is kept at hand, about 300 bytes each; of more, each is read from the store. */
const AT_HAND_MAX = 1_000;
/** Our clock is off by more than this: times are in doubt, in milliseconds. */
const SKEW_IN_DOUBT_MS = 300_000;

export function createReadCommit(options: ReadCommitOptions, board: TagSchedule): ReadCommit {
  const { source, store, clock, metrics } = options;
  const valueSet = documentSet("value", source.name);
  const quarantineSet = syncSet("quarantine", source.name);
  const leftOut = createLeftOutTags({ store, source: source.name, log: options.log, clock });
  const sudden = createSuddenChanges(clock, options.log, (id) => board.watched(id) !== undefined);
  /** As it was committed last; nobody else writes it. */
  const atHand = new Map<string, StoredValue>();

  /** What is held of tags and not at hand. */
  async function fetched(ids: readonly string[]): Promise<ReadonlyMap<string, StoredValue | undefined>> {
    const away = ids.filter((id) => !atHand.has(id));
    const held = away.map(async (id) => [id, await store.document<StoredValue>(valueSet, id)] as const);
    return new Map(await Promise.all(held));
  }

  function keepAtHand(id: string, held: StoredValue): void {
    if (atHand.size >= AT_HAND_MAX && !atHand.has(id)) atHand.clear();
    atHand.set(id, held);
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
        const away = await fetched(asked);
        const judged = asked.flatMap((id) => {
          const watched = board.watched(id);
          const value = values.get(id);
          if (watched === undefined || value === undefined) return [];
          const before = atHand.get(id) ?? away.get(id);
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
        const told = judged.map(
          ({ id, watched, value, before, type }): { readonly id: string } & ValueOutcome => {
            const behindGateway =
              value === null ? (options.offlineGatewayOf?.(watched.siteId) ?? null) : null;
            const context = { source: source.name, inDoubt, behindGateway };
            return { id, ...valueEvent(watched, value, before, reply, type, context) };
          },
        );
        const left = await leftOut.change(asked, values, reply);
        // A request that is answered is not refused, whatever it says of the tag.
        const freed = board.aside().filter((id) => asked.includes(id));
        settled = () => {
          left.settled();
          for (const id of freed) board.release(id);
          const counts = new Map<Quality, number>();
          for (const { id, held } of told) {
            keepAtHand(id, held);
            counts.set(held.quality, (counts.get(held.quality) ?? 0) + 1);
          }
          for (const [quality, count] of counts)
            metrics.tagsRead.inc({ source: source.name, quality }, count);
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
        board.answered(id, value === undefined ? "absent" : value === null ? "null" : "value", nowMs);
      }
    },

    async setAside(id, reason) {
      const before = await store.document<StoredQuarantine>(quarantineSet, id);
      const times = (before?.times ?? 0) + 1;
      const waitMs = quarantineMs(times);
      const until = isoUtc(clock.now() + waitMs);
      const held: StoredQuarantine = { until, reason: sentence(reason), at: isoUtc(clock.now()), times };
      await store.commit({ documents: [{ set: quarantineSet, put: [[id, held]] }] });
      board.setAside(id, clock.monotonic() + waitMs);
    },
  };
}
