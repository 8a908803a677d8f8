import type { Clock } from "../clock.ts";
import type { Bell } from "../waiting.ts";
import type { Damage } from "./damage.ts";
import { createDeadLetters } from "./dead-letters.ts";
import type { createDocuments } from "./documents.ts";
import type { EventLog } from "./event-log.ts";
import { sinkLags } from "./lag.ts";
import { createRedeliveries } from "./redeliveries.ts";
import { createRetention } from "./retention.ts";
import type { Sinks } from "./sinks.ts";
import type { Database } from "./sqlite.ts";
import type { Outbox } from "./store.ts";

/**
 *   log:     … 4 5 6 7 8 9 10 11 12
 *                  ▲           ▲
 *            cursor of b   cursor of a        settle(a, through 12) moves a; nothing else does
 *
 * `next` reads after a cursor, or what is marked to be sent again; `settle` moves the cursor or takes marks off.
 */
export function createOutbox(options: {
  readonly database: Database;
  readonly documents: Pick<ReturnType<typeof createDocuments>, "change">;
  readonly log: EventLog;
  readonly sinks: Sinks;
  readonly damage: Damage;
  readonly clock: Clock;
  readonly changes: Bell;
}): Outbox {
  const { database, documents, log, sinks, damage, clock, changes } = options;
  const letters = createDeadLetters(database);
  const redeliveries = createRedeliveries(database, log, damage);
  const retention = createRetention(database, log, sinks, clock);

  return {
    async register(sink, from) {
      return database.transaction(() => sinks.register(sink, from));
    },

    async next(sink, limit, after = 0) {
      const again = redeliveries.next(sink, limit);
      if (again.length > 0) return { again: true, events: again };
      const cursor = sinks.find(sink)?.position ?? log.end();
      return { again: false, events: log.after(Math.max(cursor, after), limit) };
    },

    async settle(sink, { again, through, rejected, documents: changed = [] }) {
      database.transaction(() => {
        const at = clock.now();
        if (again) {
          const settled = redeliveries.settle(sink, through);
          letters.remove(sink, settled, new Set(rejected.map((each) => each.position)));
        } else {
          sinks.moveTo(sink, through);
        }
        for (const { position: refused, reason } of rejected) letters.add(sink, refused, reason, at);
        for (const change of changed) documents.change(change);
      });
    },

    async setEnded(sink, reason) {
      database.transaction(() => {
        sinks.setEnded(sink, reason);
        if (reason !== null) redeliveries.cancel(sink);
      });
      changes.ring();
    },

    async deadLetters(sink, limit = 100) {
      return letters.list(sink, limit);
    },

    async resendDeadLetters(sink, ids) {
      const marked = database.transaction(() => letters.resend(sink, ids));
      changes.ring();
      return marked;
    },

    async discardDeadLetters(sink, ids) {
      return database.transaction(() => letters.discard(sink, ids));
    },

    async replay(sink, since, kinds) {
      const marked = await redeliveries.mark(sink, sinceMs(since), kinds, log.end());
      changes.ring();
      return marked;
    },

    async replayBetween(sink, after, through) {
      const marked = await redeliveries.markBetween(sink, after, through);
      if (marked > 0) changes.ring();
      return marked;
    },

    async lag(wanted) {
      return sinkLags(database, wanted);
    },

    async pressure() {
      const slowest = database.number("select coalesce(min(position), -1) from sink where ended is null");
      return {
        bytes: log.bytes(),
        pendingBytes: slowest < 0 ? 0 : log.bytesAfter(slowest),
        oldestTelemetry: log.oldestTelemetry(),
      };
    },

    async gaps(sink) {
      return retention.gaps(sink);
    },

    async prune(bounds) {
      const report = await retention.prune(bounds);
      if (report.told > 0) changes.ring();
      return { removed: report.removed, gaps: report.gaps };
    },

    async latest(limit, kinds, about) {
      return log.latest(limit, kinds, about);
    },

    async recent(about, kinds, bounds) {
      return log.recent(about, kinds, bounds);
    },

    changed: (signal) => changes.heard(signal),
  };
}

function sinceMs(since: string): number {
  const ms = Date.parse(since);
  if (Number.isNaN(ms)) throw new RangeError(`${since} is not a time; write it as 2026-11-02T06:00:00Z.`);
  return ms;
}
