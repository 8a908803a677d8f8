import { asFailure, errorText } from "../../core/errors/errors.ts";
import { isOrderlyStop } from "../../core/runtime/lifecycle.ts";
import { type CombinedSignal, combineSignals, createWakeup, runLoop, sleepFor } from "../../core/runtime/waiting.ts";
import { TAGS_PER_REQUEST, type TagWrite } from "../source/source.ts";
import { type CommandEnd, tagKey } from "./command.ts";
import type { CommandEndings } from "./command-outcomes.ts";
import type { CommandsConfig } from "./config.ts";
import type { CommandSourceContext, FreshTagValues } from "./fresh-tag-values.ts";
import {
  checkDispatch,
  isSameValue,
  isValueSetAlready,
  msUntilNextWrite,
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
 *     └ a newer command for the tag, command expired, writing disabled
 */
export type CommandWriter = ReturnType<typeof createCommandWriter>;

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
  message: "The write rules of this tag changed before the command was sent; nothing was written.",
};
export const WORKER_STOPPED_ENDING: CommandEnd = {
  outcome: "expired",
  reason: "stopped",
  message: "The worker stopped before the command was sent; nothing was written.",
};
const COMMAND_SEND_BACKOFF = { firstMs: 3_000, maxMs: 4_000 };
const NO_COMMAND_TO_SEND_WAIT_MS = 100;
const OVERDUE_COMMAND_CHECK_MS = 500;
const COMMAND_QUEUE_EMPTY_ERROR = new Error("No command waits for the slot any more.");

export function createCommandWriter(
  options: CommandSourceContext & {
    readonly timeZone: string;
    readonly config: () => CommandsConfig;
    readonly values: FreshTagValues;
    readonly findWritingRefusal: () => WriteRefusal | null;
    readonly isStillAllowed: (acceptedCommand: AcceptedCommand) => boolean;
    readonly locks: Pick<WriteLocks, "findRefusal">;
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
  const queueGrowthWakeup = createWakeup();

  const isAwaitingSecondPerson = ({ command }: AcceptedCommand) =>
    journal.findUnsecondedCommand(command.id) !== undefined;
  const msUntilCommandExpiry = ({ command }: AcceptedCommand) => Date.parse(command.expiresAt) - clock.now();
  const remainingLifetimeMs = (acceptedCommand: AcceptedCommand) =>
    Math.min(msUntilCommandExpiry(acceptedCommand), (commandDeadlinesMs.get(acceptedCommand) ?? 0) - clock.monotonic());

  function add(acceptedCommand: AcceptedCommand): void {
    commandDeadlinesMs.set(acceptedCommand, clock.monotonic() + msUntilCommandExpiry(acceptedCommand));
    const key = tagKey(acceptedCommand.command);
    const olderCommand = commandQueue.get(key);
    commandQueue.delete(key);
    commandQueue.set(key, acceptedCommand);
    if (olderCommand !== undefined) supersedeCommand(olderCommand, acceptedCommand);
    queueGrowthWakeup.wakeUp();
    commandSendWakeup.wakeUp();
  }

  function removeFromQueue(acceptedCommand: AcceptedCommand): boolean {
    const key = tagKey(acceptedCommand.command);
    return commandQueue.get(key) === acceptedCommand && commandQueue.delete(key);
  }

  function returnToQueue(acceptedCommand: AcceptedCommand): void {
    const newerCommand = commandQueue.get(tagKey(acceptedCommand.command));
    if (newerCommand === undefined) commandQueue.set(tagKey(acceptedCommand.command), acceptedCommand);
    else supersedeCommand(acceptedCommand, newerCommand);
    queueGrowthWakeup.wakeUp();
  }

  function supersedeCommand(older: AcceptedCommand, newer: AcceptedCommand): void {
    const message = `Command ${newer.command.id} for the same tag came before this one was sent.`;
    const supersededEnding: CommandEnd = { outcome: "superseded", reason: "superseded", message };
    void endings.end(older.command, supersededEnding, new AbortController().signal).catch((error: unknown) => {
      log.error({ err: error }, "the result of a superseded command could not be recorded");
    });
  }

  function findEndingInQueue(acceptedCommand: AcceptedCommand): CommandEnd | null {
    const writingClosedRefusal = options.findWritingRefusal();
    if (writingClosedRefusal !== null) return { outcome: "rejected", ...writingClosedRefusal };
    if (!options.isStillAllowed(acceptedCommand)) return RULES_CHANGED_ENDING;
    if (remainingLifetimeMs(acceptedCommand) > 0) return null;
    return isAwaitingSecondPerson(acceptedCommand) ? NOT_SECONDED_ENDING : EXPIRED_COMMAND_ENDING;
  }

  async function findEndingBeforeSending(
    acceptedCommand: AcceptedCommand,
    otherWriteCount: number,
  ): Promise<CommandEnd | null> {
    const endingInQueue = findEndingInQueue(acceptedCommand);
    if (endingInQueue !== null) return endingInQueue;
    const { command, allowedTag } = acceptedCommand;
    const lockRefusal = await options.locks.findRefusal(command);
    if (lockRefusal !== null) return { outcome: "rejected", ...lockRefusal };
    const nowMs = clock.now();
    const latestValue = await values.findLatestValue(command);
    const valueBefore = tagValueIfFresh(latestValue, nowMs);
    const refusal = checkDispatch({
      ...command,
      allowedTag,
      currentReading: latestValue,
      pastWrites: {
        writeTimesMs: journal.writeCounts.timesOfTagMs(command.source, command.tagId),
        writesLastHour: journal.writeCounts.countLastHour(command.source) + otherWriteCount,
      },
      maxPerHour: config().max_per_hour,
      gateways: await options.view.gateways(command.source, command.siteId),
      timeZone: options.timeZone,
      nowMs,
    });
    if (refusal !== null) return { outcome: "rejected", before: valueBefore, ...refusal };
    // Write even an equal value if the last write is unverified: an offline gateway may still deliver its value later.
    if (isValueSetAlready(valueBefore, command.value) && !journal.isLastWriteUnverified(command)) {
      const message = `The tag held ${valueBefore} already; nothing was written.`;
      return { outcome: "confirmed", reason: "already-set", message, before: valueBefore, readBack: valueBefore };
    }
    if (!config().rehearsal) return null;
    const message = "Rehearsal: everything was checked, nothing was written.";
    return { outcome: "accepted-unverified", reason: "rehearsal", message, before: valueBefore, rehearsal: true };
  }

  /** Returns how long a command with `coalesce` still has to wait for the end of `min_interval`. */
  function msUntilIntervalEnds({ command: { source: name, tagId }, allowedTag }: AcceptedCommand): number {
    return allowedTag.coalesce
      ? msUntilNextWrite(allowedTag, journal.writeCounts.timesOfTagMs(name, tagId), clock.now())
      : 0;
  }

  /** Returns approved commands whose tag has no write in progress. A scene (over 20 writes) waits for all its tags. */
  function listAllowedCommands(): readonly AcceptedCommand[] {
    const tagsBeingWritten = journal.tagsBeingWritten();
    const maySend = (each: AcceptedCommand) =>
      !isAwaitingSecondPerson(each) && !tagsBeingWritten.has(tagKey(each.command)) && msUntilIntervalEnds(each) === 0;
    const commands = [...commandQueue.values()];
    const blockedScenes = new Set<CommandScene | undefined>();
    for (const each of commands) if (isUncheckedScene(each) && !maySend(each)) blockedScenes.add(each.scene);
    return commands.filter((each) => maySend(each) && !blockedScenes.has(each.scene));
  }

  /** Returns commands that may share one request; a command for a tag in `tagsSentSingly` gets its own request. */
  function listSendableCommands(): readonly AcceptedCommand[] {
    const groupableCommands = listAllowedCommands().filter((each) => !isUncheckedScene(each));
    const [first] = groupableCommands;
    const maxGroupSize = config().group_window === 0 ? 1 : TAGS_PER_REQUEST;
    if (first === undefined || tagsSentSingly.has(first.command.tagId)) return groupableCommands.slice(0, 1);
    return groupableCommands.filter(({ command }) => !tagsSentSingly.has(command.tagId)).slice(0, maxGroupSize);
  }

  /** Checks all commands of the first complete scene (message with over 20 writes). Ends all if one is refused. */
  async function checkWholeScene(gracefulStop: AbortSignal, forcedStop: AbortSignal): Promise<void> {
    const allAllowedCommands = listAllowedCommands();
    const scene = allAllowedCommands.find(isUncheckedScene)?.scene;
    if (scene === undefined) return;
    const commands = allAllowedCommands.filter((each) => each.scene === scene);
    const commandsWithoutValue: AcceptedCommand[] = [];
    for (const accepted of commands) if (await values.isValueMissing(accepted)) commandsWithoutValue.push(accepted);
    // Read at most 20 tags at once, so that other commands do not wait for all values.
    if (commandsWithoutValue.length > 0) return values.readMissingValues(commandsWithoutValue, gracefulStop);
    let writeCount = 0;
    let firstRefusal: { readonly tagId: string; readonly ending: CommandEnd } | null = null;
    for (const accepted of commands) {
      const ending = await findEndingBeforeSending(accepted, writeCount);
      if (ending === null || ending.rehearsal === true) writeCount += accepted.command.forMs === null ? 1 : 2;
      else if (ending.outcome !== "confirmed") firstRefusal ??= { tagId: accepted.command.tagId, ending };
    }
    scene.isChecked = firstRefusal === null;
    if (firstRefusal === null) return;
    const { ending, tagId } = firstRefusal;
    const message = `Nothing of the message was written, because of tag ${tagId}: ${ending.message}`;
    const sceneEnding: CommandEnd = { outcome: "rejected", reason: "scene-refused", message };
    for (const accepted of commands)
      if (removeFromQueue(accepted))
        await endings.end(accepted.command, accepted.command.tagId === tagId ? ending : sceneEnding, forcedStop);
  }

  /** Selects and journals the commands to send. Journaling may be slow, so expiry is checked again afterwards. */
  async function prepareCommandGroup(forcedStop: AbortSignal): Promise<readonly SentCommand[]> {
    const sendableGroup = listSendableCommands();
    for (const accepted of sendableGroup) removeFromQueue(accepted);
    const readyGroup = new Map<AcceptedCommand, SentCommand>();
    const endingsByCommand = new Map<AcceptedCommand, CommandEnd>();
    try {
      for (const accepted of sendableGroup) {
        if (await values.isValueMissing(accepted)) continue;
        const ending = await findEndingBeforeSending(accepted, readyGroup.size);
        const before = tagValueIfFresh(await values.findLatestValue(accepted.command), clock.now());
        if (ending !== null) endingsByCommand.set(accepted, ending);
        // A timed write needs a fresh old value to put back later; without this value, check the command again.
        else if (before !== null || accepted.command.forMs === null) readyGroup.set(accepted, { ...accepted, before });
      }
      if (readyGroup.size > 0) await journal.recordSending([...readyGroup.values()]);
    } catch (error) {
      for (const accepted of sendableGroup) returnToQueue(accepted);
      throw error;
    }
    for (const accepted of sendableGroup)
      if (!readyGroup.has(accepted) && !endingsByCommand.has(accepted)) returnToQueue(accepted);
    for (const accepted of readyGroup.keys()) {
      const ending = findEndingInQueue(accepted);
      if (ending !== null && readyGroup.delete(accepted)) endingsByCommand.set(accepted, ending);
    }
    runInBackground(async () => {
      for (const [accepted, ending] of endingsByCommand) await endings.end(accepted.command, ending, forcedStop);
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

  async function endWithoutSending(forcedStop: AbortSignal): Promise<void> {
    for (const accepted of listSendableCommands()) {
      if (await values.isValueMissing(accepted)) continue;
      const ending = await findEndingBeforeSending(accepted, 0);
      if (ending !== null && removeFromQueue(accepted)) await endings.end(accepted.command, ending, forcedStop);
    }
  }

  async function isAnyCommandSendable(): Promise<boolean> {
    for (const accepted of listSendableCommands()) if (!(await values.isValueMissing(accepted))) return true;
    return false;
  }

  /** Sends one group of commands; resolves when the request has left or is not needed. Returns the wait afterwards. */
  async function sendCommandGroup(gracefulStop: AbortSignal, forcedStop: AbortSignal): Promise<number> {
    await values.readMissingValues(listSendableCommands(), gracefulStop);
    await endWithoutSending(forcedStop);
    if (!(await isAnyCommandSendable())) return NO_COMMAND_TO_SEND_WAIT_MS;
    const slotSignal = combineSignals(gracefulStop);
    quotaSlotSignal = slotSignal;
    const requestSent = Promise.withResolvers<void>();
    runInBackground(() => sendCommands(slotSignal, requestSent, forcedStop));
    try {
      await requestSent.promise;
    } catch (error) {
      if (!slotSignal.signal.aborted) throw error;
    }
    return 0;
  }

  async function sendCommands(
    slotSignal: CombinedSignal,
    requestSent: PromiseWithResolvers<void>,
    forcedStop: AbortSignal,
  ): Promise<void> {
    let sentCommands: readonly SentCommand[] = [];
    function releaseSlot(): void {
      slotSignal[Symbol.dispose]();
      if (quotaSlotSignal === slotSignal) quotaSlotSignal = null;
    }
    async function prepareTagWrites(): Promise<readonly TagWrite[]> {
      releaseSlot();
      sentCommands = await prepareCommandGroup(forcedStop);
      requestSent.resolve();
      return sentCommands.map(({ command: { tagId, value } }) => ({ tagId, value }));
    }
    try {
      const writeReplies = await source.write(prepareTagWrites, AbortSignal.any([slotSignal.signal, forcedStop]));
      requestSent.resolve();
      const writtenValues = new Map(writeReplies.map(({ id, value }) => [id, value]));
      for (const { command } of sentCommands) tagsSentSingly.delete(command.tagId);
      // A reply contains the written value (interface, POST tags/write): null or 19 does not confirm a write of 21.
      const isWrittenValueSame = ({ tagId, value }: SentCommand["command"]) =>
        isSameValue(writtenValues.get(tagId) ?? null, value);
      startReadBack(sentCommands, ({ command }) => (isWrittenValueSame(command) ? "answered" : "in-doubt"), null);
    } catch (error) {
      if (sentCommands.length === 0) requestSent.reject(error);
      else await handleSendFailure(sentCommands, error, forcedStop);
    } finally {
      releaseSlot();
    }
  }

  /** Ends throttled commands and a single refused command. After other failures, the read-back decides the outcome. */
  async function handleSendFailure(sentCommands: readonly SentCommand[], error: unknown, forcedStop: AbortSignal) {
    if (forcedStop.aborted) return;
    const failure = asFailure(error);
    log.warn({ err: error, commands: sentCommands.length }, "a write request failed");
    const isWriteRefused = failure.kind === "config" || failure.kind === "rejected" || failure.kind === "no-log";
    const isWriteThrottled = failure.kind === "throttled" && failure.isFromServer;
    if (isWriteThrottled || (isWriteRefused && sentCommands.length === 1)) {
      // The service counts a throttled write without executing it. Plenum sends each command id only once.
      const reason = isWriteThrottled ? "throttled" : "refused-by-service";
      const hint = isWriteThrottled ? " Send a new command." : "";
      const message = `The service refused the write: ${errorText(failure)}${hint}`;
      for (const { command, before } of sentCommands)
        await endings.end(command, { outcome: "rejected", reason, message, before }, forcedStop);
      return;
    }
    if (isWriteRefused) for (const { command } of sentCommands) tagsSentSingly.add(command.tagId);
    startReadBack(sentCommands, () => (isWriteRefused ? "group-refused" : "in-doubt"), errorText(failure));
  }

  function startReadBack(
    sentCommands: readonly SentCommand[],
    sendResultOf: (each: SentCommand) => CommandSendResult,
    failureText: string | null,
  ): void {
    const sentAtMs = clock.now();
    options.readBack.add(
      sentCommands.map((each) => ({
        command: each.command,
        sendResult: sendResultOf(each),
        failureText,
        before: each.before,
        sentAtMs,
      })),
    );
  }

  async function sendNextCommandGroup(gracefulStop: AbortSignal, forcedStop: AbortSignal): Promise<number> {
    if (listAllowedCommands().length === 0)
      return Math.min(...[...commandQueue.values()].map(msUntilIntervalEnds).filter((ms) => ms > 0));
    if (!(await sleepFor(clock, config().group_window, gracefulStop))) return 0;
    try {
      await checkWholeScene(gracefulStop, forcedStop);
      return await sendCommandGroup(gracefulStop, forcedStop);
    } catch (error) {
      const failure = asFailure(error);
      // Reject the waiting commands: only a person can repair the token, and each attempt would cost a request.
      const ending: CommandEnd = { outcome: "rejected", reason: "no-ability", message: errorText(failure) };
      for (const accepted of failure.kind === "config" ? listSendableCommands() : []) {
        if (removeFromQueue(accepted)) await endings.end(accepted.command, ending, forcedStop);
      }
      throw error;
    }
  }

  async function endOverdueCommands(forcedStop: AbortSignal): Promise<number> {
    for (const accepted of [...commandQueue.values()]) {
      const ending = findEndingInQueue(accepted);
      if (ending === null || !removeFromQueue(accepted)) continue;
      if (commandQueue.size === 0) quotaSlotSignal?.abort(COMMAND_QUEUE_EMPTY_ERROR);
      await endings.end(accepted.command, ending, forcedStop);
    }
    if (commandQueue.size === 0) return Number.POSITIVE_INFINITY;
    return Math.max(1, Math.min(OVERDUE_COMMAND_CHECK_MS, ...[...commandQueue.values()].map(remainingLifetimeMs)));
  }

  return {
    add,
    wake: commandSendWakeup.wakeUp,
    waiting: () => commandQueue.size,
    /** Sends commands until `gracefulStop` aborts; `forcedStop` also aborts a running request. */
    async runSending(gracefulStop: AbortSignal, forcedStop: AbortSignal): Promise<void> {
      endings.onEnd(commandSendWakeup.wakeUp);
      const overdueLoop = runLoop({
        clock,
        signal: gracefulStop,
        wakeup: queueGrowthWakeup,
        step: () => endOverdueCommands(forcedStop),
        onFault: (error) => log.error({ err: error }, "overdue commands could not be ended"),
      });
      await runLoop({
        clock,
        signal: gracefulStop,
        wakeup: commandSendWakeup,
        step: () => sendNextCommandGroup(gracefulStop, forcedStop),
        onFault: (error) => log.error({ err: error }, "commands could not be sent"),
        backoff: COMMAND_SEND_BACKOFF,
      });
      await overdueLoop;
      await Promise.all(backgroundTasks);
      const queuedCommands = [...commandQueue.values()];
      commandQueue.clear();
      for (const { command } of queuedCommands) await endings.end(command, WORKER_STOPPED_ENDING, forcedStop);
    },
  };
}

function isUncheckedScene({ scene }: AcceptedCommand): boolean {
  return scene?.isChecked === false;
}
