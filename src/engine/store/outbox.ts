import type { Sequence } from "../../core/model/sequence.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Wakeup } from "../../core/runtime/waiting.ts";
import type { Damage } from "./damage.ts";
import type { DeferredWrites } from "./deferred-writes.ts";
import type { createDocuments } from "./documents.ts";
import type { EventLog } from "./event-log.ts";
import { sinkLags } from "./lag.ts";
import type { LogCheck } from "./log-repair.ts";
import { type Ahead, directlyFollows, IN_FLIGHT, joinMoves, laterCount, sinceMs } from "./outbox-rules.ts";
import { createDeadLetters, createRedeliveries } from "./redeliveries.ts";
import { createRetention } from "./retention.ts";
import { lagQueries, type Sinks } from "./sinks.ts";
import type { Database } from "./sqlite.ts";
import type { LoggedEvent, LogPressure, Offer, Outbox } from "./store.ts";

/**
 *   log:     … 4 5 6 7 8 9 10 11 12
 *                  ▲           ▲
 *            cursor of b   cursor of a        settle(a, through 12) moves a; nothing else does
 *
 * `next` reads after a cursor, or what is marked to be sent again; `settle` moves the cursor or takes marks off.
 * `nextUrgent` does the same for urgent events only; they have a second cursor (`sinks.ts`).
 *
 * A deferred cursor (`soon`) moves in memory at once, and on the disk with the next transaction.
 */
export function createOutbox(options: {
  readonly database: Database;
  readonly soon: DeferredWrites<() => void>;
  readonly documents: Pick<ReturnType<typeof createDocuments>, "change">;
  readonly log: EventLog;
  readonly sinks: Sinks;
  readonly damage: Damage;
  readonly clock: Clock;
  readonly changes: Wakeup;
  /** Compares the log with itself after each pruning; only the holder of the state has it. */
  readonly check?: LogCheck;
}): Outbox {
  const { database, soon, documents, log, sinks, damage, clock, changes } = options;
  const letters = createDeadLetters(database);
  const redeliveries = createRedeliveries(database, log, damage);
  const retention = createRetention(database, log, sinks, clock, options.check);
  /** Cursors on the disk, as far as they were read. */
  const durable = new Map<string, number>();
  /** Cursors of urgent events, which are never ahead of the disk. */
  const urgent = new Map<string, number>();
  const ahead = new Map<string, Ahead>();
  /** Position after which each sink read last. */
  const readFrom = new Map<string, number>();
  /** The last result of `pressure` and the change number it belongs to. */
  let cachedPressure: { readonly changes: number; readonly pressure: LogPressure } | null = null;

  function cursorOf(sink: string): number {
    const known = durable.get(sink) ?? sinks.find(sink)?.position;
    if (known === undefined) return log.end();
    durable.set(sink, known);
    return Math.max(known, ahead.get(sink)?.through ?? 0);
  }

  function urgentOf(sink: string): number {
    const known = urgent.get(sink) ?? sinks.find(sink)?.urgent ?? 0;
    urgent.set(sink, known);
    return known;
  }

  /** The sequence number at a sink's cursor, as this process knows it. */
  function countedOf(sink: string): Sequence | undefined {
    const known = sinks.counted(sink);
    return laterCount(known, ahead.get(sink)?.counted);
  }

  /** Forgets cursors and marks that another process or another part of this store may have changed. */
  function forgetKnown(): void {
    durable.clear();
    urgent.clear();
    redeliveries.forgetKnown();
  }

  function moveSoon(sink: string, through: number, counted: Sequence | undefined): void {
    ahead.set(sink, joinMoves(ahead.get(sink), { through, counted }));
    let moved = 0;
    const move = () => {
      const now = ahead.get(sink) ?? { through, counted };
      moved = now.through;
      sinks.moveTo(sink, moved, now.counted);
    };
    const onDisk = () => {
      durable.set(sink, Math.max(moved, durable.get(sink) ?? 0));
      if (moved >= (ahead.get(sink)?.through ?? 0)) ahead.delete(sink);
    };
    // On failure the cursor stays ahead; the next settlement writes it at once and reports the failure.
    soon.write(`cursor ${sink}`, move).then(onDisk, () => undefined);
  }

  database.watch({
    othersChanged() {
      forgetKnown();
      log.forgetKnown();
    },
  });

  function pressureNow(): LogPressure {
    const slowest = database.number("select coalesce(min(position), -1) from sink where ended is null");
    return {
      bytes: log.bytes(),
      pendingBytes: slowest < 0 ? 0 : log.bytesAfter(slowest),
      oldestTelemetry: log.oldestTelemetry(),
    };
  }

  /** Events that a sink would get again after a crash if its cursor moved there in memory only. */
  const repeatsAfterCrash = (sink: string, through: number) => through - (durable.get(sink) ?? 0);

  function offerOf(sink: string, events: readonly LoggedEvent[]): Offer {
    const last = events.at(-1)?.position ?? 0;
    if (ahead.has(sink) && repeatsAfterCrash(sink, last) > IN_FLIGHT) soon.flush();
    // Count after reading: a damaged event found by the read starts a new epoch.
    return { again: false, events, counted: events.length === 0 ? undefined : countedOf(sink) };
  }

  return {
    async register(sink, from) {
      forgetKnown();
      return database.transaction(() => sinks.register(sink, from));
    },

    async next(sink, limit, after = 0) {
      // Looks for marks of other processes.
      database.changes();
      const again = redeliveries.next(sink, limit);
      if (again.length > 0) return { again: true, events: again, counted: undefined };
      const position = Math.max(cursorOf(sink), after);
      if (readFrom.get(sink) !== position) {
        readFrom.set(sink, position);
        log.passed(Math.min(...readFrom.values()));
      }
      return { ...offerOf(sink, log.after(position, limit)), urgentThrough: urgentOf(sink) };
    },

    async nextUrgent(sink, limit, { after, looked } = { after: 0, looked: 0 }) {
      database.changes();
      const again = redeliveries.nextUrgent(sink, limit);
      if (again.length > 0) return { again: true, events: again, counted: undefined };
      const position = Math.max(cursorOf(sink), after);
      const events = log.urgentAfter(Math.max(position, urgentOf(sink), looked), limit);
      if (directlyFollows(events, position)) return offerOf(sink, events);
      return { again: false, urgent: true, events, counted: countedOf(sink) };
    },

    async settle(
      sink,
      { again, urgent: isUrgent = false, through, rejected, counted, documents: changed = [], soon: mayWait = false },
    ) {
      const isPlain = !again && !isUrgent && rejected.length === 0 && changed.length === 0;
      const isFew = repeatsAfterCrash(sink, through) <= IN_FLIGHT;
      if (mayWait && isPlain && isFew && redeliveries.isUnmarked(sink) && !soon.isBehind()) {
        moveSoon(sink, through, counted);
        return;
      }
      const before = Math.max(cursorOf(sink), isUrgent ? urgentOf(sink) : 0);
      database.transaction(() => {
        const at = clock.now();
        if (again) {
          const settled = redeliveries.settle(sink, through);
          letters.remove(sink, settled, new Set(rejected.map((each) => each.position)));
        } else {
          sinks.moveTo(sink, through, counted, isUrgent ? "urgent" : "position");
          redeliveries.markAfterReplay(sink, before, through, isUrgent);
        }
        for (const refusal of rejected) letters.add(sink, refusal, at);
        for (const change of changed) documents.change(change);
      });
      const moved = isUrgent ? urgent : durable;
      if (!again) moved.set(sink, Math.max(through, moved.get(sink) ?? 0));
    },

    async setEnded(sink, reason) {
      database.transaction(() => {
        sinks.setEnded(sink, reason);
        if (reason !== null) redeliveries.cancel(sink);
      });
      forgetKnown();
      changes.wakeUp();
    },

    async deadLetters(sink, limit = 100) {
      return letters.list(sink, limit);
    },

    async resendDeadLetters(sink, ids) {
      const marked = database.transaction(() => letters.resend(sink, ids));
      forgetKnown();
      changes.wakeUp();
      return marked;
    },

    async discardDeadLetters(sink, ids) {
      return database.transaction(() => letters.discard(sink, ids));
    },

    async replay(sink, since, kinds) {
      const marked = await redeliveries.mark(sink, sinceMs(since), kinds, log.end());
      changes.wakeUp();
      return marked;
    },

    async replayBetween(sink, after, through, urgentAfter = after) {
      const marked = await redeliveries.markBetween(sink, after, Math.min(through, log.end()), urgentAfter);
      if (marked > 0) changes.wakeUp();
      return marked;
    },

    async lag(wanted) {
      return sinkLags(lagQueries(database), wanted, ahead);
    },

    async pressure() {
      const changes = database.changes();
      if (cachedPressure?.changes !== changes) cachedPressure = { changes, pressure: pressureNow() };
      return cachedPressure.pressure;
    },

    async gaps(sink) {
      return retention.gaps(sink);
    },

    async prune(bounds) {
      const report = await retention.prune(bounds);
      if (report.told > 0) changes.wakeUp();
      return { removed: report.removed, gaps: report.gaps };
    },

    async latest(limit, kinds, about) {
      return log.latest(limit, kinds, about);
    },

    async after(position, limit) {
      return log.after(position, limit);
    },

    async recent(about, kinds, bounds) {
      return log.recent(about, kinds, bounds);
    },

    changed: (signal) => changes.nextWakeup(signal),
  };
}
