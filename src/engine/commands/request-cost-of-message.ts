import type { Clock } from "../../core/runtime/clock.ts";
import { type Source, TAGS_PER_REQUEST } from "../source/source.ts";
import type { Command } from "./command.ts";
import type { AllowedTag, CommandsConfig } from "./config.ts";
import { msUntilNextWrite, needsFreshValue } from "./gate.ts";

export interface MessageCost {
  /** Longest expected wait of each command, in milliseconds. */
  readonly waitsMs: readonly number[];
  /** Maximum number of requests for the message: to read old values, to write, and to read back. */
  readonly requestCount: number;
  /** Seconds until the last tag is read back. */
  readonly totalSeconds: number;
}

interface CommandToSend {
  readonly command: Command;
  readonly allowedTag: AllowedTag;
}

export type EstimateCost = (commands: readonly CommandToSend[]) => MessageCost;

const MINUTE_MS = 60_000;

/** Estimates the requests and waits of a message: 50 writes without `max_step` need 3 requests to write, 3 to read. */
export function estimateCost(
  commands: readonly CommandToSend[],
  input: {
    readonly source: Source;
    /** Number of commands that already wait in the queue. */
    readonly queueSize: number;
    readonly config: CommandsConfig;
    readonly writeTimesMs: (source: string, tagId: string) => readonly number[];
    readonly clock: Clock;
  },
): MessageCost {
  const { clock, config, source, queueSize } = input;
  const groupSize = config.group_window === 0 ? 1 : TAGS_PER_REQUEST;
  const readCount = Math.ceil(
    commands.filter(({ command, allowedTag }) => needsFreshValue(allowedTag, command)).length / TAGS_PER_REQUEST,
  );
  // A message with over 20 writes needs the old values of all its tags before its first write.
  const earlyReadCount = commands.length > TAGS_PER_REQUEST ? readCount : 0;
  const waitsMs = commands.map(({ command, allowedTag }, index) => {
    const requestsBefore = Math.floor((queueSize + index) / groupSize) + earlyReadCount;
    const intervalMs = allowedTag.coalesce
      ? msUntilNextWrite(allowedTag, input.writeTimesMs(command.source, command.tagId), clock.now())
      : 0;
    const groupWaitMs = config.group_window * (Math.floor(index / groupSize) + 1);
    return groupWaitMs + Math.max(quotaWaitMs(source, requestsBefore, clock), intervalMs);
  });
  const writeCount = Math.ceil(commands.length / groupSize);
  const requestCount = readCount + writeCount + Math.ceil(commands.length / TAGS_PER_REQUEST);
  const lastWaitMs = quotaWaitMs(source, Math.floor(queueSize / groupSize) + requestCount - 1, clock);
  const totalSeconds = Math.ceil((Math.max(lastWaitMs, ...waitsMs) + config.read_back_after) / 1_000);
  return { waitsMs, requestCount, totalSeconds };
}

/** Returns the maximum wait for the quota of a request that has `requestCountBefore` write requests before it. */
export function quotaWaitMs(source: Source, requestCountBefore: number, clock: Clock): number {
  const { buckets, heldUntilMs } = source.quota();
  const msUntilQuotaSlot = (untilMs: number | null) => (untilMs === null ? 0 : untilMs - clock.now());
  const bucketWaitsMs = buckets.map((bucket) => {
    const freeSlots = bucket.perMinute - bucket.used;
    const slotWaitMs = freeSlots > 0 ? 0 : bucket.nextSlotInMs;
    // With 20 requests a minute, the 25th request leaves a minute after the first, even if all slots are free now.
    const fullMinutesBefore = Math.floor(requestCountBefore / bucket.perMinute);
    const queuedRequestCount = Math.max(0, requestCountBefore - Math.max(0, freeSlots - 1));
    const queuedWaitMs = Math.max(fullMinutesBefore * MINUTE_MS, queuedRequestCount * (MINUTE_MS / bucket.perMinute));
    return Math.max(msUntilQuotaSlot(bucket.heldUntilMs), slotWaitMs) + queuedWaitMs;
  });
  return Math.max(0, msUntilQuotaSlot(heldUntilMs), ...bucketWaitsMs);
}
