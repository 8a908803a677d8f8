import { hash } from "node:crypto";
import { EVENTS_ACCEPTED, type Receipt, type Sink } from "#src/core/connector.ts";
import { ConfigError, Rejected, Retryable, Throttled } from "#src/core/errors/errors.ts";
import type { Event } from "#src/core/model/event.ts";
import type { Clock } from "#src/core/runtime/clock.ts";
import type { SeededRandom } from "../commands/seeded-random.ts";

export const SINK_MOODS = [
  "well",
  "down",
  /** Refuses with a wait time. */
  "busy",
  /** Accepts everything, but the response is lost. */
  "deaf",
  /** Accepts a part, one event after the other. */
  "halting",
  /** Accepts a part and reports that in its receipt. */
  "partly",
  /** Always rejects events of some ids. */
  "picky",
  /** Never responds. */
  "stuck",
  /** Fails until a person changes the configuration. */
  "closed",
  /** Responds and keeps the complete batch for later. */
  "unwilling",
  /** Returns a receipt that does not fit the batch. */
  "muddled",
] as const;
export type SinkMood = (typeof SINK_MOODS)[number];

export interface Delivered {
  readonly id: string;
  readonly subject: string;
  readonly json: string;
  readonly atMs: number;
}

export type SimulatedSink = ReturnType<typeof createSimulatedSink>;

export function isRejectedId(id: string): boolean {
  return hash("sha256", id, "buffer").readUInt8(0) < 8;
}

export function createSimulatedSink(
  name: string,
  clock: () => Pick<Clock, "sleep" | "monotonic">,
  random: SeededRandom,
) {
  const taken: Delivered[] = [];
  let kept: Delivered[] = [];
  let incidents = 0;
  let run = 1;

  const take = (batch: readonly Event[]) => {
    const atMs = clock().monotonic();
    for (const event of batch) {
      const one = { id: event.id, subject: event.subject, json: JSON.stringify(event), atMs };
      taken.push(one);
      kept.push(one);
    }
  };

  async function write(
    batch: readonly Event[],
    signal: AbortSignal,
    accepted: (count: number) => void,
  ): Promise<Receipt> {
    await clock().sleep(10 + random.below(200), signal);
    const { mood } = end;
    if (mood !== "well") incidents += 1;
    const acceptedCount = random.below(batch.length + 1);
    switch (mood) {
      case "well":
        take(batch);
        return EVENTS_ACCEPTED;
      case "down":
        throw new Retryable("The server cannot be reached.");
      case "busy":
        throw new Throttled("Too many requests.", (1 + random.below(60)) * 1_000);
      case "deaf":
        take(batch);
        throw new Retryable("The connection was reset.");
      case "halting":
        for (const [index, event] of batch.slice(0, acceptedCount).entries()) {
          take([event]);
          accepted(index + 1);
          await clock().sleep(5, signal);
        }
        throw new Retryable("The connection was reset.");
      case "partly":
        take(batch.slice(0, acceptedCount));
        return acceptedCount === batch.length
          ? EVENTS_ACCEPTED
          : { rejected: [], retry: { from: acceptedCount, error: new Retryable("Later.") } };
      case "picky": {
        take(batch.filter(({ id }) => !isRejectedId(id)));
        const rejected = batch.flatMap(({ id }, index) =>
          isRejectedId(id) ? [{ index, reason: "It is not wanted here." }] : [],
        );
        return { rejected };
      }
      case "stuck":
        await clock().sleep(24 * 3_600_000, signal);
        throw new Retryable("It never answered.");
      case "closed":
        throw new ConfigError("The server refuses the password.", { reason: "unauthenticated" });
      case "unwilling":
        return { rejected: [], retry: { from: 0, error: new Rejected("Not now.") } };
      case "muddled":
        take(batch);
        return { rejected: [{ index: batch.length + 3, reason: "?" }] };
    }
  }

  const end = {
    name,
    mood: "well" as SinkMood,
    /** All accepted events in order, with repetitions. */
    everAccepted: taken as readonly Delivered[],
    /** Accepted events without those lost in restarts. */
    get stillStored(): readonly Delivered[] {
      return kept;
    },
    incidents: () => incidents,
    /** Restarts and loses the events of the last `latelyMs`, as a broker without persistence. Returns their number. */
    restart(latelyMs: number): number {
      run += 1;
      incidents += 1;
      const sinceMs = clock().monotonic() - latelyMs;
      const before = kept.length;
      kept = kept.filter(({ atMs }) => atMs < sinceMs);
      return before - kept.length;
    },
    sink: (): Sink => ({
      maxBatch: 50,
      async open(signal) {
        await clock().sleep(10, signal);
        if (end.mood === "down") throw new Retryable("The server cannot be reached.");
      },
      write: (batch, signal, accepted = () => undefined) => write(batch, signal, accepted),
      async close() {},
      async detectRestart(before) {
        if (end.mood === "down" || end.mood === "stuck") throw new Retryable("It does not answer.");
        return { instanceId: String(run), isNew: before !== null && before !== String(run) };
      },
    }),
  };
  return end;
}
