import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { endsWithin } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { type Source, TAGS_PER_REQUEST, type TagReadReply } from "../source/source.ts";
import type { Command } from "./command.ts";
import { isFromFuture, MAX_TAG_VALUE_AGE_MS, needsFreshValue, type TimedTagValue, tagValueIfFresh } from "./gate.ts";
import type { AcceptedCommand, Journal } from "./journal.ts";
import type { StoredBuildingReader } from "./stored-building-reader.ts";

/** Provides tag values that are at most one minute old: from live reads or, if these are older, by a request. */
export type FreshTagValues = ReturnType<typeof createFreshTagValues>;

const READ_TIMEOUT_MS = 3_000;

export interface CommandSourceContext {
  readonly source: Source;
  readonly view: StoredBuildingReader;
  readonly journal: Journal;
  readonly clock: Clock;
  readonly log: Log;
}

export function createFreshTagValues(options: CommandSourceContext) {
  const { clock, journal, log, source } = options;
  const lastReadings = new Map<string, TimedTagValue>();
  const tagsBeingRead = new Set<string>();
  const lastReadAttemptMs = new WeakMap<AcceptedCommand, number>();

  async function loadLiveTagValue(tagId: string): Promise<TimedTagValue | undefined> {
    try {
      return await options.view.value(source.name, tagId);
    } catch (error) {
      log.warn({ err: error, tagId }, "the last live value could not be loaded");
      return undefined;
    }
  }

  async function findLatestTagValue({ tagId }: Pick<Command, "tagId">): Promise<TimedTagValue | undefined> {
    const liveValue = await loadLiveTagValue(tagId);
    const lastReading = lastReadings.get(tagId);
    const isReadingLater =
      liveValue === undefined || isFromFuture(liveValue, clock.now()) || (lastReading?.time ?? "") > liveValue.time;
    const latestReading = lastReading !== undefined && isReadingLater ? lastReading : liveValue;
    const writtenAtMs = journal.writeCounts.timesOfTagMs(source.name, tagId).at(-1) ?? Number.NEGATIVE_INFINITY;
    return latestReading === undefined || Date.parse(latestReading.time) <= writtenAtMs ? undefined : latestReading;
  }

  /** True if a command needs a tag value and no reading was attempted within the last minute. */
  async function isValueMissing(acceptedCommand: AcceptedCommand): Promise<boolean> {
    const { command, allowedTag } = acceptedCommand;
    if (
      !needsFreshValue(allowedTag, command) ||
      tagValueIfFresh(await findLatestTagValue(command), clock.now()) !== null
    )
      return false;
    return (
      clock.monotonic() - (lastReadAttemptMs.get(acceptedCommand) ?? Number.NEGATIVE_INFINITY) > MAX_TAG_VALUE_AGE_MS
    );
  }

  function recordReadings(reply: TagReadReply): void {
    const readingTime = isoUtc(reply.receivedAtMs);
    for (const { id, value } of reply.readings)
      lastReadings.set(id, { value, quality: value === null ? "bad" : "good", time: readingTime });
  }

  async function requestValues(commandsWithoutValue: readonly AcceptedCommand[], signal: AbortSignal): Promise<void> {
    const ids = commandsWithoutValue.map(({ command }) => command.tagId);
    for (const id of ids) tagsBeingRead.add(id);
    try {
      recordReadings(await source.read(ids, "on-demand", signal));
    } catch (error) {
      if (!signal.aborted) log.warn({ err: error }, "the present value could not be read before a write");
    } finally {
      for (const id of ids) tagsBeingRead.delete(id);
      for (const acceptedCommand of commandsWithoutValue) lastReadAttemptMs.set(acceptedCommand, clock.monotonic());
    }
  }

  return {
    loadLiveValue: loadLiveTagValue,
    findLatestValue: findLatestTagValue,
    recordReadings,
    isValueMissing,
    async readMissingValues(commands: readonly AcceptedCommand[], signal: AbortSignal): Promise<void> {
      const commandsToRead: AcceptedCommand[] = [];
      for (const acceptedCommand of commands.slice(0, TAGS_PER_REQUEST)) {
        if (!tagsBeingRead.has(acceptedCommand.command.tagId) && (await isValueMissing(acceptedCommand)))
          commandsToRead.push(acceptedCommand);
      }
      if (commandsToRead.length > 0) await endsWithin(clock, READ_TIMEOUT_MS, requestValues(commandsToRead, signal));
    },
  };
}
