import type { Sequence } from "../../core/model/sequence.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Wakeup } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { sinkLags } from "../../engine/store/lag.ts";
import {
  type Ahead,
  directlyFollows,
  IN_FLIGHT,
  joinMoves,
  laterCount,
  sinceMs,
} from "../../engine/store/outbox-rules.ts";
import type { LoggedEvent, LogPressure, Offer, Outbox, SinkPosition } from "../../engine/store/store.ts";
import { changeDocuments, type RunQuery } from "./documents.ts";
import type { EventLog } from "./event-log.ts";
import type { DeadLetters, Redeliveries } from "./redeliveries.ts";
import type { createRetention } from "./retention.ts";
import { lagQueries, type Sinks } from "./sinks.ts";
import type { Writer } from "./writer.ts";

export interface OutboxOptions {
  readonly source: string;
  readonly query: RunQuery;
  readonly writer: Writer;
  readonly log: EventLog;
  readonly sinks: Sinks;
  readonly letters: DeadLetters;
  readonly redeliveries: Redeliveries;
  readonly retention: ReturnType<typeof createRetention>;
  readonly clock: Pick<Clock, "now">;
  readonly news: Wakeup;
  /** Notes that documents of these sets have changed. */
  changed(sets: Iterable<string>): void;
  /** Returns a number that changes when anything may have changed. */
  changes(): Promise<number>;
}

/**
 * The outbox of one source, with the rules of the embedded one (`engine/store/outbox.ts`). A sink that keeps up reads
 * nothing from the database: the tail has its events, and its cursor and the absence of marks are known.
 */
export function createOutbox(options: OutboxOptions): Outbox {
  const { source, query, writer, log, sinks, letters, redeliveries, retention, clock, news } = options;
  /** Cursors that have moved in memory and not yet in the database. */
  const ahead = new Map<string, Ahead>();
  /** The last result of `pressure` and the change number it belongs to. */
  let cachedPressure: { readonly changes: number; readonly pressure: LogPressure } | null = null;

  function forgetKnown(): void {
    sinks.forget();
    redeliveries.forget();
  }

  /** The sequence number at a sink's cursor, as this process knows it. */
  async function countedOf(sink: string): Promise<Sequence | undefined> {
    const known = (await sinks.find(sink))?.counted;
    return laterCount(known, ahead.get(sink)?.counted);
  }

  /** Events that a sink would get again after a crash if its cursor moved there in memory only. */
  async function repeatsAfterCrash(sink: string, through: number): Promise<number> {
    return through - ((await sinks.find(sink))?.position ?? 0);
  }

  function moveSoon(sink: string, through: number, counted: Sequence | undefined): void {
    ahead.set(sink, joinMoves(ahead.get(sink), { through, counted }));
    let moved: Ahead = { through, counted };
    const move = () => {
      moved = ahead.get(sink) ?? moved;
      return sinks.moveTo(sink, moved.through, moved.counted);
    };
    const durable = async () => {
      await sinks.moved(sink, moved.through, moved.counted);
      if (moved.through >= (ahead.get(sink)?.through ?? 0)) ahead.delete(sink);
    };
    // On failure the cursor stays ahead; the next settlement writes it at once and reports the failure.
    writer.soon.write(`cursor ${sink}`, move).then(durable, () => undefined);
  }

  async function pressureNow(): Promise<LogPressure> {
    const { rows } = await query(
      `select bytes::double precision,
         coalesce((select source.written - event.written + event.bytes from event
           where event.source = $1 and event.position >
             (select min(sink.position) from sink where sink.source = $1 and ended is null)
           order by event.position limit 1), 0)::double precision,
         (select committed_ms::double precision from event where event.source = $1 and telemetry
          order by position limit 1)
       from source where name = $1`,
      [source],
    );
    const [bytes = 0, pendingBytes = 0, oldestMs = null] = rows[0] ?? [];
    return {
      bytes: Number(bytes),
      pendingBytes: Number(pendingBytes),
      oldestTelemetry: oldestMs === null ? null : isoUtc(Number(oldestMs)),
    };
  }

  async function cursorOf(sink: string): Promise<number> {
    const durable = (await sinks.find(sink))?.position;
    return durable === undefined ? log.end() : Math.max(durable, ahead.get(sink)?.through ?? 0);
  }

  async function offerOf(sink: string, events: readonly LoggedEvent[]): Promise<Offer> {
    const last = events.at(-1);
    if (last === undefined) return { again: false, events, counted: undefined };
    if (ahead.has(sink) && (await repeatsAfterCrash(sink, last.position)) > IN_FLIGHT) await writer.soon.flush();
    return { again: false, events, counted: await countedOf(sink) };
  }

  return {
    async register(sink, from) {
      forgetKnown();
      if ((await sinks.find(sink)) === undefined) {
        await writer.commit([sinks.register(sink, from)]);
        sinks.forget();
      }
      return positionOf(sink, await sinks.find(sink));
    },

    async next(sink, limit, after = 0) {
      const again = await redeliveries.next(sink, limit);
      if (again.length > 0) return { again: true, events: again, counted: undefined };
      const events = await log.after(Math.max(await cursorOf(sink), after), limit);
      return { ...(await offerOf(sink, events)), urgentThrough: (await sinks.find(sink))?.urgent ?? 0 };
    },

    async nextUrgent(sink, limit, { after, looked } = { after: 0, looked: 0 }) {
      const again = await redeliveries.nextUrgent(sink, limit);
      if (again.length > 0) return { again: true, events: again, counted: undefined };
      const position = Math.max(await cursorOf(sink), after);
      const urgent = (await sinks.find(sink))?.urgent ?? 0;
      const events = await log.urgentAfter(Math.max(position, urgent, looked), limit);
      if (directlyFollows(events, position)) return offerOf(sink, events);
      return { again: false, urgent: true, events, counted: await countedOf(sink) };
    },

    async settle(sink, settlement) {
      const { again, through, rejected, counted, documents = [], soon = false } = settlement;
      const which = settlement.urgent === true ? "urgent" : "position";
      const isPlain = !again && which === "position" && rejected.length === 0 && documents.length === 0;
      if (
        soon &&
        isPlain &&
        redeliveries.isUnmarked(sink) &&
        !writer.soon.isBehind() &&
        (await repeatsAfterCrash(sink, through)) <= IN_FLIGHT
      ) {
        moveSoon(sink, through, counted);
        return;
      }
      const before = Math.max(await cursorOf(sink), which === "urgent" ? ((await sinks.find(sink))?.urgent ?? 0) : 0);
      const settled = again ? redeliveries.offeredThrough(sink, through) : [];
      const refused = new Set(rejected.map(({ position }) => position));
      const accepted = settled.filter((position) => !refused.has(position));
      await writer.commit([
        ...(again
          ? [redeliveries.settle(sink, settled), ...letters.remove(sink, accepted)]
          : [
              sinks.moveTo(sink, through, counted, which),
              ...redeliveries.markAfterReplay(sink, before, through, which === "urgent"),
            ]),
        ...letters.add(sink, rejected, clock.now()),
        ...changeDocuments(source, documents),
      ]);
      options.changed(documents.map(({ set }) => set));
      if (!again) await sinks.moved(sink, through, counted, which);
    },

    async setEnded(sink, reason) {
      await writer.commit([
        sinks.setEnded(sink, reason),
        // A sink that continues may have missed events that left the log while it was ended.
        ...(reason === null ? [sinks.beginEpoch(sink)] : redeliveries.cancel(sink)),
      ]);
      forgetKnown();
      news.wakeUp();
    },

    deadLetters: (sink, limit = 100) => letters.list(sink, limit),

    async resendDeadLetters(sink, ids) {
      const marked = await writer.work((session) => letters.resend(session, sink, ids));
      forgetKnown();
      news.wakeUp();
      return marked;
    },

    discardDeadLetters: (sink, ids) => writer.work((session) => letters.discard(session, sink, ids)),

    async replay(sink, since, kinds) {
      const marked = await redeliveries.mark(sink, sinceMs(since), kinds, await log.end());
      news.wakeUp();
      return marked;
    },

    async replayBetween(sink, after, through, urgentAfter = after) {
      const last = Math.min(through, await log.end());
      const marked = await redeliveries.markBetween(sink, after, last, urgentAfter);
      if (marked > 0) news.wakeUp();
      return marked;
    },

    lag: (wanted) => sinkLags(lagQueries(source, query), wanted, ahead),

    async pressure() {
      const changes = await options.changes();
      if (cachedPressure?.changes !== changes) cachedPressure = { changes, pressure: await pressureNow() };
      return cachedPressure.pressure;
    },

    gaps: (sink) => retention.gaps(sink),

    async prune(bounds) {
      const { told, ...report } = await retention.prune(bounds);
      if (told > 0) news.wakeUp();
      return report;
    },

    latest: (limit, kinds, about) => log.latest(limit, kinds, about),
    after: (position, limit) => log.after(position, limit),
    recent: (about, kinds, bounds) => log.recent(about, kinds, bounds),
    changed: (signal) => news.nextWakeup(signal),
  };
}

function positionOf(sink: string, found: SinkPosition | undefined): SinkPosition {
  return { sink, position: found?.position ?? 0, urgent: found?.urgent ?? 0, ended: found?.ended ?? null };
}
