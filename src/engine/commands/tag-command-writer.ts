import { asFailure, errorText } from "../../core/errors/errors.ts";
import { isOrderlyStop } from "../../core/runtime/lifecycle.ts";
import { type CombinedSignal, combineSignals, createWakeup, runLoop, sleepFor } from "../../core/runtime/waiting.ts";
import { TAGS_PER_REQUEST, type TagWrite } from "../source/source.ts";
import { type CommandEnd, tagKey } from "./command.ts";
import type { CommandEndings } from "./command-endings.ts";
import type { CommandsConfig } from "./config.ts";
import type { CommandSourceContext, FreshTagValues } from "./fresh-tag-values.ts";
import {
  checkDispatch,
  isValueSetAlready,
  msUntilNextWrite,
  sameValue,
  tagValueIfFresh,
  type WriteRefusal,
} from "./gate.ts";
import type { AcceptedCommand, CommandScene, SentCommand } from "./journal.ts";
import type { CommandSendResult, WriteReadBack } from "./read-back.ts";
import type { WriteLocks } from "./write-locks.ts";

/**
 * Sends the accepted commands of one source, each at most once:
 *   queue ─ slot of the quota ─► checks ─ journal: sending ─► request ─► read-back ─► result
 *     │                            │                             └ the service refuses: rejected
 *     │                            └ a check fails, the value is set already, rehearsal
 *     └ a newer command for the tag, time to live over, writing closed
 */
export type CommandWriter = ReturnType<typeof createWriter>;

const EXPIRED_COMMAND_ENDING: CommandEnd = {
  outcome: "expired",
  reason: "expired",
  message: "The time to live passed before the quota or min_interval let it through; nothing was written.",
};
const NOT_SECONDED_ENDING: CommandEnd = {
  outcome: "expired",
  reason: "not-seconded",
  message: "No second person agreed within the time to live; nothing was written.",
};
const RULES_CHANGED_ENDING: CommandEnd = {
  outcome: "rejected",
  reason: "rules-changed",
  message: "What may be written to this tag was changed before the command left; nothing was written.",
};
export const WORKER_STOPPED_ENDING: CommandEnd = {
  outcome: "expired",
  reason: "stopped",
  message: "The worker stopped before the command left; nothing was written.",
};
const COMMAND_SEND_BACKOFF = { firstMs: 3_000, maxMs: 4_000 };
const NO_COMMAND_TO_SEND_WAIT_MS = 100;
const OVERDUE_COMMAND_CHECK_MS = 500;
const COMMAND_QUEUE_EMPTY_ERROR = new Error("No command waits for the slot any more.");

export function createWriter(
  options: CommandSourceContext & {
    readonly timeZone: string;
    readonly config: () => CommandsConfig;
    readonly values: FreshTagValues;
    readonly closed: () => WriteRefusal | null;
    readonly holds: (accepted: AcceptedCommand) => boolean;
    readonly locks: Pick<WriteLocks, "refusing">;
    readonly readBack: Pick<WriteReadBack, "add">;
    readonly endings: CommandEndings;
  },
) {
  const { clock, config, endings, journal, log, source, values } = options;
  const commandQueue = new Map<string, AcceptedCommand>();
  /** Expiry of each command on the monotonic clock, which a change of the wall clock does not postpone. */
  const commandDeadlinesMs = new WeakMap<AcceptedCommand, number>();
  /** Tags of a refused request for several tags: their commands are sent singly until the service accepts one. */
  const tagsSentSingly = new Set<string>();
  const backgroundTasks = new Set<Promise<void>>();
  let quotaSlotSignal: CombinedSignal | null = null;
  const commandSendWakeup = createWakeup();
  const commandQueueGrew = createWakeup();

  const isAwaitingSecondPerson = ({ command }: AcceptedCommand) => journal.unseconded(command.id) !== undefined;
  const msUntilCommandExpiry = ({ command }: AcceptedCommand) => Date.parse(command.expiresAt) - clock.now();
  const remainingLifetimeMs = (accepted: AcceptedCommand) =>
    Math.min(msUntilCommandExpiry(accepted), (commandDeadlinesMs.get(accepted) ?? 0) - clock.monotonic());

  function add(accepted: AcceptedCommand): void {
    commandDeadlinesMs.set(accepted, clock.monotonic() + msUntilCommandExpiry(accepted));
    const key = tagKey(accepted.command);
    const olderCommand = commandQueue.get(key);
    commandQueue.delete(key);
    commandQueue.set(key, accepted);
    if (olderCommand !== undefined) supersedeCommand(olderCommand, accepted);
    commandQueueGrew.wakeUp();
    commandSendWakeup.wakeUp();
  }

  function removeFromQueue(accepted: AcceptedCommand): boolean {
    const key = tagKey(accepted.command);
    return commandQueue.get(key) === accepted && commandQueue.delete(key);
  }

  function returnToQueue(accepted: AcceptedCommand): void {
    const newerCommand = commandQueue.get(tagKey(accepted.command));
    if (newerCommand === undefined) commandQueue.set(tagKey(accepted.command), accepted);
    else supersedeCommand(accepted, newerCommand);
    commandQueueGrew.wakeUp();
  }

  function supersedeCommand(older: AcceptedCommand, newer: AcceptedCommand): void {
    const message = `Command ${newer.command.id} for the same tag came before this one was sent.`;
    const supersededEnding: CommandEnd = { outcome: "superseded", reason: "superseded", message };
    void endings.end(older.command, supersededEnding, new AbortController().signal).catch((error: unknown) => {
      log.error({ err: error }, "the result of a superseded command could not be recorded");
    });
  }

  function findEndingInQueue(accepted: AcceptedCommand): CommandEnd | null {
    const writingClosedRefusal = options.closed();
    if (writingClosedRefusal !== null) return { outcome: "rejected", ...writingClosedRefusal };
    if (!options.holds(accepted)) return RULES_CHANGED_ENDING;
    if (remainingLifetimeMs(accepted) > 0) return null;
    return isAwaitingSecondPerson(accepted) ? NOT_SECONDED_ENDING : EXPIRED_COMMAND_ENDING;
  }

  async function findEndingBeforeSending(accepted: AcceptedCommand, others: number): Promise<CommandEnd | null> {
    const endingInQueue = findEndingInQueue(accepted);
    if (endingInQueue !== null) return endingInQueue;
    const { command, entry } = accepted;
    const lockRefusal = await options.locks.refusing(command);
    if (lockRefusal !== null) return { outcome: "rejected", ...lockRefusal };
    const nowMs = clock.now();
    const latestValue = await values.findLatestValue(command);
    const valueBefore = tagValueIfFresh(latestValue, nowMs);
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
    // Do not trust the reading after an unverified write: an offline gateway may write the other value later.
    if (isValueSetAlready(valueBefore, command.value) && !journal.isUnproved(command)) {
      const message = `The tag held ${valueBefore} already; nothing was written.`;
      return { outcome: "confirmed", reason: "already-set", message, before: valueBefore, readBack: valueBefore };
    }
    if (!config().rehearsal) return null;
    const message = "Rehearsal: everything was checked, nothing was written.";
    return { outcome: "accepted-unverified", reason: "rehearsal", message, before: valueBefore, rehearsal: true };
  }

  /** With `coalesce`, a command waits for the end of `min_interval`. */
  function msUntilIntervalEnds({ command: { source: name, tagId }, entry }: AcceptedCommand): number {
    return entry.coalesce ? msUntilNextWrite(entry, journal.writeCounts.ofTag(name, tagId), clock.now()) : 0;
  }

  /** Returns approved commands whose tag has no unverified write. A scene waits until all of its commands may leave. */
  function allowedCommands(): readonly AcceptedCommand[] {
    const tagsUnderWay = journal.tagsUnderWay();
    const maySend = (each: AcceptedCommand) =>
      !isAwaitingSecondPerson(each) && !tagsUnderWay.has(tagKey(each.command)) && msUntilIntervalEnds(each) === 0;
    const commands = [...commandQueue.values()];
    const blockedScenes = new Set<CommandScene | undefined>();
    for (const each of commands) if (isUncheckedScene(each) && !maySend(each)) blockedScenes.add(each.scene);
    return commands.filter((each) => maySend(each) && !blockedScenes.has(each.scene));
  }

  /** Returns commands that may share one request; a command for a tag in `tagsSentSingly` gets its own request. */
  function sendableCommands(): readonly AcceptedCommand[] {
    const groupableCommands = allowedCommands().filter((each) => !isUncheckedScene(each));
    const [first] = groupableCommands;
    const maxGroupSize = config().group_window === 0 ? 1 : TAGS_PER_REQUEST;
    if (first === undefined || tagsSentSingly.has(first.command.tagId)) return groupableCommands.slice(0, 1);
    return groupableCommands.filter(({ command }) => !tagsSentSingly.has(command.tagId)).slice(0, maxGroupSize);
  }

  /** Checks all commands of the first complete scene (message with over 20 writes). Ends all if one is refused. */
  async function checkWholeScene(stopping: AbortSignal, cutting: AbortSignal): Promise<void> {
    const allAllowedCommands = allowedCommands();
    const scene = allAllowedCommands.find(isUncheckedScene)?.scene;
    if (scene === undefined) return;
    const commands = allAllowedCommands.filter((each) => each.scene === scene);
    const commandsWithoutValue: AcceptedCommand[] = [];
    for (const accepted of commands) if (await values.isMissing(accepted)) commandsWithoutValue.push(accepted);
    // Read at most 20 tags at once, so that other commands do not wait for all values.
    if (commandsWithoutValue.length > 0) return values.refresh(commandsWithoutValue, stopping);
    let writeCount = 0;
    let firstRefused: { readonly tagId: string; readonly end: CommandEnd } | null = null;
    for (const accepted of commands) {
      const end = await findEndingBeforeSending(accepted, writeCount);
      if (end === null || end.rehearsal === true) writeCount += accepted.command.forMs === null ? 1 : 2;
      else if (end.outcome !== "confirmed") firstRefused ??= { tagId: accepted.command.tagId, end };
    }
    scene.isChecked = firstRefused === null;
    if (firstRefused === null) return;
    const { end, tagId } = firstRefused;
    const message = `Nothing of the message was written, because of tag ${tagId}: ${end.message}`;
    const otherEnding: CommandEnd = { outcome: "rejected", reason: "scene-refused", message };
    for (const accepted of commands)
      if (removeFromQueue(accepted))
        await endings.end(accepted.command, accepted.command.tagId === tagId ? end : otherEnding, cutting);
  }

  /** Selects and journals the commands that leave. Journaling may be slow, so expiry is checked again afterwards. */
  async function prepareCommandGroup(cutting: AbortSignal): Promise<readonly SentCommand[]> {
    const sendableGroup = sendableCommands();
    for (const accepted of sendableGroup) removeFromQueue(accepted);
    const readyGroup = new Map<AcceptedCommand, SentCommand>();
    const ended = new Map<AcceptedCommand, CommandEnd>();
    try {
      for (const accepted of sendableGroup) {
        if (await values.isMissing(accepted)) continue;
        const end = await findEndingBeforeSending(accepted, readyGroup.size);
        const before = tagValueIfFresh(await values.findLatestValue(accepted.command), clock.now());
        if (end !== null) ended.set(accepted, end);
        // A timed write needs a fresh old value to put back later; without this value, check the command again.
        else if (before !== null || accepted.command.forMs === null) readyGroup.set(accepted, { ...accepted, before });
      }
      if (readyGroup.size > 0) await journal.sending([...readyGroup.values()]);
    } catch (error) {
      for (const accepted of sendableGroup) returnToQueue(accepted);
      throw error;
    }
    for (const accepted of sendableGroup)
      if (!readyGroup.has(accepted) && !ended.has(accepted)) returnToQueue(accepted);
    for (const accepted of readyGroup.keys()) {
      const end = findEndingInQueue(accepted);
      if (end !== null && readyGroup.delete(accepted)) ended.set(accepted, end);
    }
    runInBackground(async () => {
      for (const [accepted, end] of ended) await endings.end(accepted.command, end, cutting);
    });
    return [...readyGroup.values()];
  }

  function runInBackground(work: () => Promise<void>): void {
    const backgroundTask = work().catch((error: unknown) => {
      if (!isOrderlyStop(error)) log.error({ err: error }, "the outcome of a command could not be recorded");
    });
    backgroundTasks.add(backgroundTask);
    void backgroundTask.then(() => backgroundTasks.delete(backgroundTask));
  }

  async function endWithoutSending(cutting: AbortSignal): Promise<void> {
    for (const accepted of sendableCommands()) {
      if (await values.isMissing(accepted)) continue;
      const end = await findEndingBeforeSending(accepted, 0);
      if (end !== null && removeFromQueue(accepted)) await endings.end(accepted.command, end, cutting);
    }
  }

  async function isAnyCommandSendable(): Promise<boolean> {
    for (const accepted of sendableCommands()) if (!(await values.isMissing(accepted))) return true;
    return false;
  }

  /** Sends one group; resolves when its request has left or is not needed. Returns the wait until the next group. */
  async function sendCommandGroup(stopping: AbortSignal, cutting: AbortSignal): Promise<number> {
    await values.refresh(sendableCommands(), stopping);
    await endWithoutSending(cutting);
    if (!(await isAnyCommandSendable())) return NO_COMMAND_TO_SEND_WAIT_MS;
    const slotSignal = combineSignals(stopping);
    quotaSlotSignal = slotSignal;
    const requestSent = Promise.withResolvers<void>();
    runInBackground(() => sendCommands(slotSignal, requestSent, cutting));
    try {
      await requestSent.promise;
    } catch (error) {
      if (!slotSignal.signal.aborted) throw error;
    }
    return 0;
  }

  async function sendCommands(
    slot: CombinedSignal,
    left: PromiseWithResolvers<void>,
    cutting: AbortSignal,
  ): Promise<void> {
    let sentCommands: readonly SentCommand[] = [];
    function releaseSlot(): void {
      slot.end();
      if (quotaSlotSignal === slot) quotaSlotSignal = null;
    }
    async function prepareTagWrites(): Promise<readonly TagWrite[]> {
      releaseSlot();
      sentCommands = await prepareCommandGroup(cutting);
      left.resolve();
      return sentCommands.map(({ command: { tagId, value } }) => ({ tagId, value }));
    }
    try {
      const writeReplies = await source.write(prepareTagWrites, AbortSignal.any([slot.signal, cutting]));
      left.resolve();
      const writtenValues = new Map(writeReplies.map(({ id, value }) => [id, value]));
      for (const { command } of sentCommands) tagsSentSingly.delete(command.tagId);
      // The reply states the written value (interface, POST tags/write): null or 19 for 21 does not confirm 21.
      const isSame = ({ tagId, value }: SentCommand["command"]) => sameValue(writtenValues.get(tagId) ?? null, value);
      startReadBack(sentCommands, ({ command }) => (isSame(command) ? "answered" : "in-doubt"), null);
    } catch (error) {
      if (sentCommands.length === 0) left.reject(error);
      else await handleFailure(sentCommands, error, cutting);
    } finally {
      releaseSlot();
    }
  }

  /** A refusal before execution ends a single command; after any other failure the read-back decides. */
  async function handleFailure(leaving: readonly SentCommand[], error: unknown, cutting: AbortSignal): Promise<void> {
    if (cutting.aborted) return;
    const failure = asFailure(error);
    log.warn({ err: error, commands: leaving.length }, "a write was not answered as hoped");
    const isWriteRefused = failure.kind === "config" || failure.kind === "rejected" || failure.kind === "no-log";
    const isWriteThrottled = failure.kind === "throttled" && failure.isFromServer;
    if (isWriteThrottled || (isWriteRefused && leaving.length === 1)) {
      // The service counted a throttled request without executing it. One id is one request, so it is not sent again.
      const reason = isWriteThrottled ? "throttled" : "refused-by-service";
      const hint = isWriteThrottled ? " Send a new command." : "";
      const message = `The service refused the write: ${errorText(failure)}${hint}`;
      for (const { command, before } of leaving)
        await endings.end(command, { outcome: "rejected", reason, message, before }, cutting);
      return;
    }
    if (isWriteRefused) for (const { command } of leaving) tagsSentSingly.add(command.tagId);
    startReadBack(leaving, () => (isWriteRefused ? "group-refused" : "in-doubt"), errorText(failure));
  }

  function startReadBack(
    leaving: readonly SentCommand[],
    sent: (each: SentCommand) => CommandSendResult,
    complaint: string | null,
  ): void {
    const sentAtMs = clock.now();
    options.readBack.add(
      leaving.map((each) => ({ command: each.command, sent: sent(each), complaint, before: each.before, sentAtMs })),
    );
  }

  async function sendNextCommandGroup(stopping: AbortSignal, cutting: AbortSignal): Promise<number> {
    if (allowedCommands().length === 0)
      return Math.min(...[...commandQueue.values()].map(msUntilIntervalEnds).filter((ms) => ms > 0));
    if (!(await sleepFor(clock, config().group_window, stopping))) return 0;
    try {
      await checkWholeScene(stopping, cutting);
      return await sendCommandGroup(stopping, cutting);
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

  async function endOverdueCommands(cutting: AbortSignal): Promise<number> {
    for (const accepted of [...commandQueue.values()]) {
      const end = findEndingInQueue(accepted);
      if (end === null || !removeFromQueue(accepted)) continue;
      if (commandQueue.size === 0) quotaSlotSignal?.abort(COMMAND_QUEUE_EMPTY_ERROR);
      await endings.end(accepted.command, end, cutting);
    }
    if (commandQueue.size === 0) return Number.POSITIVE_INFINITY;
    return Math.max(1, Math.min(OVERDUE_COMMAND_CHECK_MS, ...[...commandQueue.values()].map(remainingLifetimeMs)));
  }

  return {
    add,
    wake: commandSendWakeup.wakeUp,
    waiting: () => commandQueue.size,
    /** Sends commands until `stopping` aborts; `cutting` also aborts a running request. */
    async run(stopping: AbortSignal, cutting: AbortSignal): Promise<void> {
      endings.onEnd(commandSendWakeup.wakeUp);
      const overdueLoop = runLoop({
        clock,
        signal: stopping,
        wakeup: commandQueueGrew,
        turn: () => endOverdueCommands(cutting),
        fault: (error) => log.error({ err: error }, "overdue commands could not be ended"),
      });
      await runLoop({
        clock,
        signal: stopping,
        wakeup: commandSendWakeup,
        turn: () => sendNextCommandGroup(stopping, cutting),
        fault: (error) => log.error({ err: error }, "commands could not be sent"),
        backoff: COMMAND_SEND_BACKOFF,
      });
      await overdueLoop;
      await Promise.all(backgroundTasks);
      const queuedCommands = [...commandQueue.values()];
      commandQueue.clear();
      for (const { command } of queuedCommands) await endings.end(command, WORKER_STOPPED_ENDING, cutting);
    },
  };
}

function isUncheckedScene({ scene }: AcceptedCommand): boolean {
  return scene?.isChecked === false;
}
