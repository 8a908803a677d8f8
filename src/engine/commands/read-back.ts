import { asFailure } from "../../core/errors/errors.ts";
import type { TagValue } from "../../core/model/building.ts";
import { createWakeup, runLoop } from "../../core/runtime/waiting.ts";
import { TAGS_PER_REQUEST } from "../source/source.ts";
import type { Command, CommandEnd } from "./command.ts";
import type { CommandEndings } from "./command-outcomes.ts";
import type { CommandSourceContext, FreshTagValues } from "./fresh-tag-values.ts";
import { isSameValue } from "./gate.ts";

/**
 * Reads written tags back and ends their commands.
 * | the write request    | tag holds the value | holds another | cannot be read        |
 * | -------------------- | ------------------- | ------------- | --------------------- |
 * | was answered         | `confirmed`         | `mismatch`    | `accepted-unverified` |
 * | failed (time-out…)   | `confirmed`         | `mismatch`    | `unknown`             |
 * | was refused as group | `confirmed`         | `rejected`    | `unknown`             |
 * Another value counts only if two readings return one, because readings lag behind by seconds.
 */
export type WriteReadBack = ReturnType<typeof createWriteReadBack>;
export type CommandSendResult = "answered" | "in-doubt" | "group-refused";

export interface UnverifiedWrite {
  readonly command: Command;
  readonly sendResult: CommandSendResult;
  readonly failureText: string | null;
  readonly before: TagValue;
  readonly sentAtMs: number;
}

/** Number of failed readings, over about a minute, after which a written tag counts as unreadable. */
const MAX_READ_BACK_ATTEMPTS = 5;
/** Longest time that a read-back waits for a live read while the request quota is busy. */
const MAX_POSTPONEMENT_MS = 10_000;
const READ_BACK_RETRY_MS = 1_000;

interface PendingWriteVerification {
  readonly write: UnverifiedWrite;
  readonly postponedUntilMs: number;
  dueMs: number;
  attempts: number;
  sawDifferentValue: boolean;
  mustReadSingly: boolean;
}

export function createWriteReadBack(
  options: Pick<CommandSourceContext, "source" | "clock" | "log"> & {
    readonly values: FreshTagValues;
    readonly endings: CommandEndings;
    readonly readBackAfterMs: () => number;
  },
) {
  const { clock, endings, log, readBackAfterMs, source, values } = options;
  const pendingVerifications = new Set<PendingWriteVerification>();
  const newCheckWakeup = createWakeup();

  async function endVerification(check: PendingWriteVerification, tagValue: TagValue, signal: AbortSignal) {
    await endings.end(check.write.command, endingOfReadBack(check.write, tagValue), signal);
    pendingVerifications.delete(check);
  }

  async function confirmWritesByLiveReads(dueChecks: readonly PendingWriteVerification[], signal: AbortSignal) {
    const unconfirmed: PendingWriteVerification[] = [];
    for (const check of dueChecks) {
      const { command, sentAtMs } = check.write;
      const liveValue = await values.loadLiveValue(command.tagId);
      const isWriteConfirmed =
        liveValue !== undefined && Date.parse(liveValue.time) > sentAtMs && isSameValue(liveValue.value, command.value);
      if (isWriteConfirmed) await endVerification(check, liveValue.value, signal);
      else unconfirmed.push(check);
    }
    return unconfirmed;
  }

  async function readWrittenTags(dueChecks: readonly PendingWriteVerification[], signal: AbortSignal): Promise<void> {
    const [firstCheck] = dueChecks;
    const checksToRead = firstCheck?.mustReadSingly
      ? [firstCheck]
      : dueChecks.filter((check) => !check.mustReadSingly).slice(0, TAGS_PER_REQUEST);
    let valuesByTag: ReadonlyMap<string, TagValue> = new Map();
    try {
      const ids = new Set(checksToRead.map(({ write }) => write.command.tagId));
      const reply = await source.read([...ids], "on-demand", signal);
      values.recordReadings(reply);
      valuesByTag = new Map(reply.readings.map((reading) => [reading.id, reading.value]));
    } catch (error) {
      if (signal.aborted) throw error;
      log.warn({ err: error }, "reading back failed");
      // The service refuses a request for several tags if the token cannot see one of them, so read the tags singly.
      if (checksToRead.length > 1 && ["rejected", "config"].includes(asFailure(error).kind)) {
        for (const check of checksToRead) check.mustReadSingly = true;
        return;
      }
    }
    for (const check of checksToRead) {
      const readBackValue = valuesByTag.get(check.write.command.tagId) ?? null;
      check.attempts += 1;
      const isSentValue = readBackValue !== null && isSameValue(readBackValue, check.write.command.value);
      const isDifferentValue = readBackValue !== null && !isSentValue;
      const isReadingCertain = isSentValue || (isDifferentValue && check.sawDifferentValue);
      check.sawDifferentValue ||= isDifferentValue;
      if (isReadingCertain || check.attempts >= MAX_READ_BACK_ATTEMPTS)
        await endVerification(check, readBackValue, signal);
      else check.dueMs = clock.monotonic() + Math.max(READ_BACK_RETRY_MS, readBackAfterMs()) * 2 ** check.attempts;
    }
  }

  async function verifyDueWrites(signal: AbortSignal): Promise<number> {
    const dueVerifications = [...pendingVerifications].filter((check) => check.dueMs <= clock.monotonic());
    const unconfirmed = await confirmWritesByLiveReads(dueVerifications, signal);
    const nowMs = clock.monotonic();
    // While other requests wait for the quota, do not take their slot: a live read may soon contain the value.
    const isQuotaBusy = source.quota().buckets.some(({ waiting }) => waiting.live + waiting.history > 0);
    const urgentVerifications = unconfirmed.filter((check) => !isQuotaBusy || nowMs >= check.postponedUntilMs);
    for (const check of unconfirmed) if (!urgentVerifications.includes(check)) check.dueMs = nowMs + READ_BACK_RETRY_MS;
    if (urgentVerifications.length > 0) await readWrittenTags(urgentVerifications, signal);
    return Math.min(...[...pendingVerifications].map((check) => check.dueMs)) - clock.monotonic();
  }

  return {
    add(writes: readonly UnverifiedWrite[]): void {
      const dueMs = clock.monotonic() + readBackAfterMs();
      const initialState = {
        postponedUntilMs: dueMs + MAX_POSTPONEMENT_MS,
        attempts: 0,
        sawDifferentValue: false,
        mustReadSingly: false,
      };
      for (const write of writes) pendingVerifications.add({ write, dueMs, ...initialState });
      newCheckWakeup.wakeUp();
    },
    /** Commands that are unverified when the signal aborts are verified after the next start. */
    runVerification: (signal: AbortSignal): Promise<void> =>
      runLoop({
        clock,
        signal,
        wakeup: newCheckWakeup,
        step: () => verifyDueWrites(signal),
        onFault: (error) => log.error({ err: error }, "a written tag could not be verified"),
      }),
  };
}

function endingOfReadBack(
  { command, sendResult: sent, before, failureText: complaint }: UnverifiedWrite,
  readBack: TagValue,
): CommandEnd {
  const commonFields = { before, readBack, answer: complaint ?? sent };
  if (readBack !== null && isSameValue(readBack, command.value))
    return { ...commonFields, outcome: "confirmed", reason: null, message: `The tag holds ${readBack}.` };
  if (readBack !== null) {
    const mismatchText = `The tag holds ${readBack}, not ${command.value}.`;
    if (sent !== "group-refused")
      return { ...commonFields, outcome: "mismatch", reason: "mismatch", message: mismatchText };
    const message = `${complaint ?? "Refused."} ${mismatchText}`;
    return { ...commonFields, outcome: "rejected", reason: "refused-by-service", message };
  }
  if (sent === "answered") {
    const message = "The service took the write; the tag could not be read back.";
    return { ...commonFields, outcome: "accepted-unverified", reason: "unreadable-device", message };
  }
  const message = "It is not known whether the write happened; it is not repeated.";
  return { ...commonFields, outcome: "unknown", reason: "in-doubt", message };
}
