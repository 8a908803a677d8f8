import { asFailure } from "../../core/errors/errors.ts";
import type { TagValue } from "../../core/model/building.ts";
import { createWakeup, runLoop } from "../../core/runtime/waiting.ts";
import { TAGS_PER_REQUEST } from "../source/source.ts";
import type { Command, CommandEnd } from "./command.ts";
import type { CommandEndings } from "./command-endings.ts";
import type { FreshValues, SourceParts } from "./fresh-values.ts";
import { sameValue } from "./gate.ts";

/**
 * Reads written tags back and ends their commands.
 *
 * | the POST was         | tag holds the value | holds another | cannot be read        |
 * | -------------------- | ------------------- | ------------- | --------------------- |
 * | answered             | `confirmed`         | `mismatch`    | `accepted-unverified` |
 * | in doubt (time-out…) | `confirmed`         | `mismatch`    | `unknown`             |
 * | refused as a group   | `confirmed`         | `rejected`    | `unknown`             |
 *
 * A live read that has the value confirms it without a request. Another value counts only after two requests in a row,
 * because readings lag behind by seconds and a refused group may have been written in part.
 */
export type ReadBack = ReturnType<typeof createReadBack>;
export type SendResult = "answered" | "in-doubt" | "group-refused";

export interface UnverifiedWrite {
  readonly command: Command;
  readonly sent: SendResult;
  readonly complaint: string | null;
  readonly before: TagValue;
  /** Wall time of the write: earlier readings prove nothing. */
  readonly sentAtMs: number;
}

/** Attempts before the value counts as unreadable: with 2 s to begin with, within about a minute. */
const MAX_READ_ATTEMPTS = 5;
/** How long a busy quota may postpone a reading, because a live read may arrive. */
const MAX_POSTPONEMENT_MS = 10_000;
const RETRY_MS = 1_000;

interface PendingVerification {
  readonly write: UnverifiedWrite;
  readonly postponedUntilMs: number;
  dueMs: number;
  attempts: number;
  sawOther: boolean;
  readsSingly: boolean;
}

export function createReadBack(
  options: Pick<SourceParts, "source" | "clock" | "log"> & {
    readonly values: FreshValues;
    readonly endings: CommandEndings;
    readonly settleMs: () => number;
  },
) {
  const { clock, endings, log, settleMs, source, values } = options;
  const pendingWrites = new Set<PendingVerification>();
  const writeAdded = createWakeup();

  async function end(check: PendingVerification, present: TagValue, signal: AbortSignal): Promise<void> {
    await endings.end(check.write.command, judgeReading(check.write, present), signal);
    pendingWrites.delete(check);
  }

  async function confirmByLiveReads(due: readonly PendingVerification[], signal: AbortSignal) {
    const remaining: PendingVerification[] = [];
    for (const check of due) {
      const { command, sentAtMs } = check.write;
      const liveValue = await values.loadLiveValue(command.tagId);
      const isConfirmed =
        liveValue !== undefined && Date.parse(liveValue.time) > sentAtMs && sameValue(liveValue.value, command.value);
      if (isConfirmed) await end(check, liveValue.value, signal);
      else remaining.push(check);
    }
    return remaining;
  }

  async function readGroup(due: readonly PendingVerification[], signal: AbortSignal): Promise<void> {
    const [first] = due;
    const group = first?.readsSingly ? [first] : due.filter((check) => !check.readsSingly).slice(0, TAGS_PER_REQUEST);
    let valuesByTag: ReadonlyMap<string, TagValue> = new Map();
    try {
      const ids = new Set(group.map(({ write }) => write.command.tagId));
      const reply = await source.read([...ids], "on-demand", signal);
      values.recordReadings(reply);
      valuesByTag = new Map(reply.readings.map((reading) => [reading.id, reading.value]));
    } catch (error) {
      if (signal.aborted) throw error;
      log.warn({ err: error }, "reading back failed");
      // One tag that the token cannot see makes the service refuse the whole group.
      if (group.length > 1 && ["rejected", "config"].includes(asFailure(error).kind)) {
        for (const check of group) check.readsSingly = true;
        return;
      }
    }
    for (const check of group) {
      const value = valuesByTag.get(check.write.command.tagId) ?? null;
      check.attempts += 1;
      const isSentValue = value !== null && sameValue(value, check.write.command.value);
      const isOtherValue = value !== null && !isSentValue;
      const isCertain = isSentValue || (isOtherValue && check.sawOther);
      check.sawOther ||= isOtherValue;
      if (isCertain || check.attempts >= MAX_READ_ATTEMPTS) await end(check, value, signal);
      else check.dueMs = clock.monotonic() + Math.max(RETRY_MS, settleMs()) * 2 ** check.attempts;
    }
  }

  async function checkDueWrites(signal: AbortSignal): Promise<number> {
    const dueWrites = [...pendingWrites].filter((check) => check.dueMs <= clock.monotonic());
    const remaining = await confirmByLiveReads(dueWrites, signal);
    const now = clock.monotonic();
    // While polls wait for the quota, a live read may soon have the value, and a request would cost them a slot.
    const isBusy = source.quota().buckets.some(({ waiting }) => waiting.live + waiting.history > 0);
    const urgent = remaining.filter((check) => !isBusy || now >= check.postponedUntilMs);
    for (const check of remaining) if (!urgent.includes(check)) check.dueMs = now + RETRY_MS;
    if (urgent.length > 0) await readGroup(urgent, signal);
    return Math.min(...[...pendingWrites].map((check) => check.dueMs)) - clock.monotonic();
  }

  return {
    add(writes: readonly UnverifiedWrite[]): void {
      const dueMs = clock.monotonic() + settleMs();
      const start = { postponedUntilMs: dueMs + MAX_POSTPONEMENT_MS, attempts: 0, sawOther: false, readsSingly: false };
      for (const write of writes) pendingWrites.add({ write, dueMs, ...start });
      writeAdded.wakeUp();
    },
    /** Pending commands stay `sending` when the signal aborts; the next start verifies them. */
    run: (signal: AbortSignal): Promise<void> =>
      runLoop({
        clock,
        signal,
        wakeup: writeAdded,
        turn: () => checkDueWrites(signal),
        fault: (error) => log.error({ err: error }, "a written tag could not be verified"),
      }),
  };
}

function judgeReading({ command, sent, before, complaint }: UnverifiedWrite, readBack: TagValue): CommandEnd {
  const common = { before, readBack, answer: complaint ?? sent };
  if (readBack !== null && sameValue(readBack, command.value))
    return { ...common, outcome: "confirmed", reason: null, message: `The tag holds ${readBack}.` };
  if (readBack !== null) {
    const mismatch = `The tag holds ${readBack}, not ${command.value}.`;
    if (sent !== "group-refused") return { ...common, outcome: "mismatch", reason: "mismatch", message: mismatch };
    const message = `${complaint ?? "Refused."} ${mismatch}`;
    return { ...common, outcome: "rejected", reason: "refused-by-service", message };
  }
  if (sent === "answered") {
    const message = "The service took the write; the tag could not be read back.";
    return { ...common, outcome: "accepted-unverified", reason: "unreadable-device", message };
  }
  const message = "It is not known whether the write happened; it is not repeated.";
  return { ...common, outcome: "unknown", reason: "in-doubt", message };
}
