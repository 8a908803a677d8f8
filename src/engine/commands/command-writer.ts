import { asFailure, errorText } from "../../core/errors/errors.ts";
import { isOrderlyStop } from "../../core/runtime/lifecycle.ts";
import { type CombinedSignal, combineSignals, createWakeup, runLoop, sleepFor } from "../../core/runtime/waiting.ts";
import { TAGS_PER_REQUEST, type TagWrite } from "../source/source.ts";
import { type CommandEnd, tagKey } from "./command.ts";
import type { CommandEndings } from "./command-endings.ts";
import type { CommandsConfig } from "./config.ts";
import type { FreshValues, SourceParts } from "./fresh-values.ts";
import { checkDispatch, freshValue, isSetAlready, sameValue, type WriteRefusal } from "./gate.ts";
import type { AcceptedCommand, SentCommand } from "./journal.ts";
import type { ReadBack, SendResult } from "./read-back.ts";

/**
 * Sends the accepted commands of one source:
 *
 *   add ─► queue ─ slot of the quota ─► checks ─ journal: sending ─► request ─► read-back ─► result
 *            │                            │                             └ the service refuses: rejected
 *            │                            └ a check fails, the value is set already, rehearsal
 *            └ a newer command for the tag, time to live over, writing closed
 *
 * From the journal's `sending` on, a command is never sent again. Reading back determines its outcome.
 */
export type CommandWriter = ReturnType<typeof createWriter>;

const EXPIRED_END: CommandEnd = {
  outcome: "expired",
  reason: "expired",
  message: "The time to live passed before the quota let it through; nothing was written.",
};
const NOT_SECONDED_END: CommandEnd = {
  outcome: "expired",
  reason: "not-seconded",
  message: "No second person agreed within the time to live; nothing was written.",
};
const RULES_CHANGED_END: CommandEnd = {
  outcome: "rejected",
  reason: "rules-changed",
  message: "What may be written to this tag was changed before the command left; nothing was written.",
};
export const STOPPED_END: CommandEnd = {
  outcome: "expired",
  reason: "stopped",
  message: "The worker stopped before the command left; nothing was written.",
};
const SEND_BACKOFF = { firstMs: 3_000, maxMs: 4_000 };
const NOTHING_SENDABLE_WAIT_MS = 100;
const OVERDUE_CHECK_INTERVAL_MS = 500;
const QUEUE_EMPTY = new Error("No command waits for the slot any more.");

export function createWriter(
  options: SourceParts & {
    readonly timeZone: string;
    readonly config: () => CommandsConfig;
    readonly values: FreshValues;
    readonly closed: () => WriteRefusal | null;
    readonly holds: (accepted: AcceptedCommand) => boolean;
    readonly readBack: Pick<ReadBack, "add">;
    readonly endings: CommandEndings;
  },
) {
  const { clock, config, endings, journal, log, source, values } = options;
  const queue = new Map<string, AcceptedCommand>();
  /** End of the time to live on the monotonic clock, so that setting the wall clock back prolongs none. */
  const deadlines = new WeakMap<AcceptedCommand, number>();
  /** Tags of a group that was refused as a whole: sent singly until one of them is answered. */
  const bisectionTags = new Set<string>();
  const backgroundTasks = new Set<Promise<void>>();
  let quotaSlot: CombinedSignal | null = null;
  const sendWakeup = createWakeup();
  const queueGrew = createWakeup();

  const isAwaitingSecond = ({ command }: AcceptedCommand) => journal.unseconded(command.id) !== undefined;
  const msUntilExpiry = ({ command }: AcceptedCommand) => Date.parse(command.expiresAt) - clock.now();
  const remainingLifetimeMs = (accepted: AcceptedCommand) =>
    Math.min(msUntilExpiry(accepted), (deadlines.get(accepted) ?? 0) - clock.monotonic());

  function add(accepted: AcceptedCommand): void {
    deadlines.set(accepted, clock.monotonic() + msUntilExpiry(accepted));
    const key = tagKey(accepted.command);
    const olderCommand = queue.get(key);
    queue.delete(key);
    queue.set(key, accepted);
    if (olderCommand !== undefined) supersede(olderCommand, accepted);
    queueGrew.wakeUp();
    sendWakeup.wakeUp();
  }

  function removeFromQueue(accepted: AcceptedCommand): boolean {
    const key = tagKey(accepted.command);
    return queue.get(key) === accepted && queue.delete(key);
  }

  function returnToQueue(accepted: AcceptedCommand): void {
    const newerCommand = queue.get(tagKey(accepted.command));
    if (newerCommand === undefined) queue.set(tagKey(accepted.command), accepted);
    else supersede(accepted, newerCommand);
    queueGrew.wakeUp();
  }

  function supersede(older: AcceptedCommand, newer: AcceptedCommand): void {
    const message = `Command ${newer.command.id} for the same tag came before this one was sent.`;
    const finish: CommandEnd = { outcome: "superseded", reason: "superseded", message };
    void endings.end(older.command, finish, new AbortController().signal).catch((error: unknown) => {
      log.error({ err: error }, "the result of a superseded command could not be recorded");
    });
  }

  function endInQueue(accepted: AcceptedCommand): CommandEnd | null {
    const closed = options.closed();
    if (closed !== null) return { outcome: "rejected", ...closed };
    if (!options.holds(accepted)) return RULES_CHANGED_END;
    if (remainingLifetimeMs(accepted) > 0) return null;
    return isAwaitingSecond(accepted) ? NOT_SECONDED_END : EXPIRED_END;
  }

  async function endBeforeSending(accepted: AcceptedCommand, others: number): Promise<CommandEnd | null> {
    const earlyEnd = endInQueue(accepted);
    if (earlyEnd !== null) return earlyEnd;
    const { command, entry } = accepted;
    const nowMs = clock.now();
    const latestValue = await values.findLatestValue(command);
    const valueBefore = freshValue(latestValue, nowMs);
    const refusal = checkDispatch({
      ...command,
      entry,
      current: latestValue,
      past: {
        ofTag: journal.writeCounts.ofTag(command.source, command.tagId),
        lastHour: journal.writeCounts.lastHour(command.source) + others,
      },
      maxPerHour: config().max_per_hour,
      gateways: await options.view.gateways(command.source, command.siteId),
      timeZone: options.timeZone,
      nowMs,
    });
    if (refusal !== null) return { outcome: "rejected", before: valueBefore, ...refusal };
    // After an unverified write, an offline gateway may still write the other value, so an older reading proves nothing.
    if (isSetAlready(valueBefore, command.value) && !journal.isUnproved(command)) {
      const message = `The tag held ${valueBefore} already; nothing was written.`;
      return { outcome: "confirmed", reason: "already-set", message, before: valueBefore, readBack: valueBefore };
    }
    if (!config().rehearsal) return null;
    const message = "Rehearsal: everything was checked, nothing was written.";
    return { outcome: "accepted-unverified", reason: "rehearsal", message, before: valueBefore, rehearsal: true };
  }

  /** Commands that may share a request: approved, no unverified write of the tag, a bisection tag only singly. */
  function sendableCommands(): readonly AcceptedCommand[] {
    const freeCommands = [...queue.values()].filter(
      (each) => !isAwaitingSecond(each) && !journal.isUnderWay(each.command),
    );
    const [first] = freeCommands;
    const maxGroupSize = config().group_window === 0 ? 1 : TAGS_PER_REQUEST;
    if (first === undefined || bisectionTags.has(first.command.tagId)) return freeCommands.slice(0, 1);
    return freeCommands.filter(({ command }) => !bisectionTags.has(command.tagId)).slice(0, maxGroupSize);
  }

  /** Selects and journals the commands that leave. Journaling may be slow, so expiry is checked again afterwards. */
  async function prepareGroup(cutting: AbortSignal): Promise<readonly SentCommand[]> {
    const sendable = sendableCommands();
    for (const accepted of sendable) removeFromQueue(accepted);
    const ready = new Map<AcceptedCommand, SentCommand>();
    const ends = new Map<AcceptedCommand, CommandEnd>();
    try {
      for (const accepted of sendable) {
        if (await values.isMissing(accepted)) continue;
        const end = await endBeforeSending(accepted, ready.size);
        const before = freshValue(await values.findLatestValue(accepted.command), clock.now());
        if (end !== null) ends.set(accepted, end);
        // Without a fresh value to put back, a timed write is checked again.
        else if (before !== null || accepted.command.forMs === null) ready.set(accepted, { ...accepted, before });
      }
      if (ready.size > 0) await journal.sending([...ready.values()]);
    } catch (error) {
      for (const accepted of sendable) returnToQueue(accepted);
      throw error;
    }
    for (const accepted of sendable) if (!ready.has(accepted) && !ends.has(accepted)) returnToQueue(accepted);
    for (const accepted of ready.keys()) {
      const end = endInQueue(accepted);
      if (end !== null && ready.delete(accepted)) ends.set(accepted, end);
    }
    runInBackground(async () => {
      for (const [accepted, end] of ends) await endings.end(accepted.command, end, cutting);
    });
    return [...ready.values()];
  }

  function runInBackground(work: () => Promise<void>): void {
    const backgroundTask = work().catch((error: unknown) => {
      if (!isOrderlyStop(error)) log.error({ err: error }, "the outcome of a command could not be recorded");
    });
    backgroundTasks.add(backgroundTask);
    void backgroundTask.then(() => backgroundTasks.delete(backgroundTask));
  }

  async function endWithoutSlot(cutting: AbortSignal): Promise<void> {
    for (const accepted of sendableCommands()) {
      if (await values.isMissing(accepted)) continue;
      const end = await endBeforeSending(accepted, 0);
      if (end !== null && removeFromQueue(accepted)) await endings.end(accepted.command, end, cutting);
    }
  }

  async function isAnySendable(): Promise<boolean> {
    for (const accepted of sendableCommands()) if (!(await values.isMissing(accepted))) return true;
    return false;
  }

  /** Sends one group; resolves when its request has left or is not needed. Returns the wait until the next group. */
  async function sendGroup(stopping: AbortSignal, cutting: AbortSignal): Promise<number> {
    await values.refresh(sendableCommands(), stopping);
    await endWithoutSlot(cutting);
    if (!(await isAnySendable())) return NOTHING_SENDABLE_WAIT_MS;
    const slot = combineSignals(stopping);
    quotaSlot = slot;
    const requestSent = Promise.withResolvers<void>();
    runInBackground(() => sendAll(slot, requestSent, cutting));
    try {
      await requestSent.promise;
    } catch (error) {
      if (!slot.signal.aborted) throw error;
    }
    return 0;
  }

  async function sendAll(slot: CombinedSignal, left: PromiseWithResolvers<void>, cutting: AbortSignal): Promise<void> {
    let leavingCommands: readonly SentCommand[] = [];
    function releaseSlot(): void {
      slot.end();
      if (quotaSlot === slot) quotaSlot = null;
    }
    async function writes(): Promise<readonly TagWrite[]> {
      releaseSlot();
      leavingCommands = await prepareGroup(cutting);
      left.resolve();
      return leavingCommands.map(({ command: { tagId, value } }) => ({ tagId, value }));
    }
    try {
      const readings = await source.write(writes, AbortSignal.any([slot.signal, cutting]));
      left.resolve();
      const written = new Map(readings.map(({ id, value }) => [id, value]));
      for (const { command } of leavingCommands) bisectionTags.delete(command.tagId);
      // The reply states the written value (interface, POST tags/write): null or 19 for 21 does not confirm 21.
      const isTaken = ({ tagId, value }: SentCommand["command"]) => sameValue(written.get(tagId) ?? null, value);
      startVerification(leavingCommands, ({ command }) => (isTaken(command) ? "answered" : "in-doubt"), null);
    } catch (error) {
      if (leavingCommands.length === 0) left.reject(error);
      else await judgeFailure(leavingCommands, error, cutting);
    } finally {
      releaseSlot();
    }
  }

  /** A refusal before execution ends a single command; after any other failure the read-back decides. */
  async function judgeFailure(leaving: readonly SentCommand[], error: unknown, cutting: AbortSignal): Promise<void> {
    if (cutting.aborted) return;
    const failure = asFailure(error);
    log.warn({ err: error, commands: leaving.length }, "a write was not answered as hoped");
    const isRefused = failure.kind === "config" || failure.kind === "rejected" || failure.kind === "no-log";
    const isThrottled = failure.kind === "throttled" && failure.isOwnWord;
    if (isThrottled || (isRefused && leaving.length === 1)) {
      // The service counted a throttled request without executing it. One id is one request, so it is not sent again.
      const reason = isThrottled ? "throttled" : "refused-by-service";
      const hint = isThrottled ? " Send a new command." : "";
      const message = `The service refused the write: ${errorText(failure)}${hint}`;
      for (const { command, before } of leaving)
        await endings.end(command, { outcome: "rejected", reason, message, before }, cutting);
      return;
    }
    if (isRefused) for (const { command } of leaving) bisectionTags.add(command.tagId);
    startVerification(leaving, () => (isRefused ? "group-refused" : "in-doubt"), errorText(failure));
  }

  function startVerification(
    leaving: readonly SentCommand[],
    sent: (each: SentCommand) => SendResult,
    complaint: string | null,
  ): void {
    const sentAtMs = clock.now();
    options.readBack.add(
      leaving.map((each) => ({ command: each.command, sent: sent(each), complaint, before: each.before, sentAtMs })),
    );
  }

  async function sendNextGroup(stopping: AbortSignal, cutting: AbortSignal): Promise<number> {
    if (sendableCommands().length === 0) return Number.POSITIVE_INFINITY;
    if (!(await sleepFor(clock, config().group_window, stopping))) return 0;
    try {
      return await sendGroup(stopping, cutting);
    } catch (error) {
      const failure = asFailure(error);
      // Without a token no command can leave until a person acts, and each attempt would cost a slot.
      const end: CommandEnd = { outcome: "rejected", reason: "no-ability", message: errorText(failure) };
      for (const accepted of failure.kind === "config" ? sendableCommands() : []) {
        if (removeFromQueue(accepted)) await endings.end(accepted.command, end, cutting);
      }
      throw error;
    }
  }

  /** Ends queued commands whose time is over, or all when writing closes. */
  async function endOverdue(cutting: AbortSignal): Promise<number> {
    for (const accepted of [...queue.values()]) {
      const end = endInQueue(accepted);
      if (end === null || !removeFromQueue(accepted)) continue;
      if (queue.size === 0) quotaSlot?.abort(QUEUE_EMPTY);
      await endings.end(accepted.command, end, cutting);
    }
    if (queue.size === 0) return Number.POSITIVE_INFINITY;
    return Math.max(1, Math.min(OVERDUE_CHECK_INTERVAL_MS, ...[...queue.values()].map(remainingLifetimeMs)));
  }

  return {
    add,
    wake: sendWakeup.wakeUp,
    waiting: () => queue.size,
    /** Works until `stopping` aborts; `cutting` aborts a running request. */
    async run(stopping: AbortSignal, cutting: AbortSignal): Promise<void> {
      endings.onEnd(sendWakeup.wakeUp);
      const overdueLoop = runLoop({
        clock,
        signal: stopping,
        wakeup: queueGrew,
        turn: () => endOverdue(cutting),
        fault: (error) => log.error({ err: error }, "overdue commands could not be ended"),
      });
      await runLoop({
        clock,
        signal: stopping,
        wakeup: sendWakeup,
        turn: () => sendNextGroup(stopping, cutting),
        fault: (error) => log.error({ err: error }, "commands could not be sent"),
        backoff: SEND_BACKOFF,
      });
      await overdueLoop;
      await Promise.all(backgroundTasks);
      const queued = [...queue.values()];
      queue.clear();
      for (const { command } of queued) await endings.end(command, STOPPED_END, cutting);
    },
  };
}
