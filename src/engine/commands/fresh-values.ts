import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { endsWithin } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { type ReadReply, type Source, TAGS_PER_REQUEST } from "../source/source.ts";
import type { BuildingReader } from "./building-reader.ts";
import type { Command } from "./command.ts";
import { type FreshValue, freshValue, isFromFuture, MAX_VALUE_AGE_MS, needsFreshValue } from "./gate.ts";
import type { AcceptedCommand, Journal } from "./journal.ts";

/** Current values of tags: from live reads when they are recent, otherwise from a request. */
export type FreshValues = ReturnType<typeof createFreshValues>;

/** Stop waiting for a slow reading, because other commands may be ready. */
const READING_LIMIT_MS = 3_000;

export interface SourceParts {
  readonly source: Source;
  readonly view: BuildingReader;
  readonly journal: Journal;
  readonly clock: Clock;
  readonly log: Log;
}

export function createFreshValues(options: SourceParts) {
  const { clock, journal, log, source } = options;
  const lastReadings = new Map<string, FreshValue>();
  const tagsBeingRead = new Set<string>();
  const triedAtMs = new WeakMap<AcceptedCommand, number>();

  /** Last live value; undefined when it cannot be loaded, which must not delay other commands. */
  async function loadLiveValue(tagId: string): Promise<FreshValue | undefined> {
    try {
      return await options.view.value(source.name, tagId);
    } catch (error) {
      log.warn({ err: error, tagId }, "the last live value could not be loaded");
      return undefined;
    }
  }

  async function findLatestValue({ tagId }: Pick<Command, "tagId">): Promise<FreshValue | undefined> {
    const polled = await loadLiveValue(tagId);
    const ownRead = lastReadings.get(tagId);
    const isOwnLater = polled === undefined || isFromFuture(polled, clock.now()) || (ownRead?.time ?? "") > polled.time;
    const latestReading = ownRead !== undefined && isOwnLater ? ownRead : polled;
    const writtenAtMs = journal.writeCounts.ofTag(source.name, tagId).at(-1) ?? Number.NEGATIVE_INFINITY;
    return latestReading === undefined || Date.parse(latestReading.time) <= writtenAtMs ? undefined : latestReading;
  }

  /** True when a command needs a reading that was not attempted within the last minute. */
  async function isMissing(accepted: AcceptedCommand): Promise<boolean> {
    const { command, entry } = accepted;
    if (!needsFreshValue(entry, command) || freshValue(await findLatestValue(command), clock.now()) !== null)
      return false;
    return clock.monotonic() - (triedAtMs.get(accepted) ?? Number.NEGATIVE_INFINITY) > MAX_VALUE_AGE_MS;
  }

  function recordReadings(reply: ReadReply): void {
    const time = isoUtc(reply.receivedAtMs);
    for (const { id, value } of reply.readings)
      lastReadings.set(id, { value, quality: value === null ? "bad" : "good", time });
  }

  async function requestValues(missing: readonly AcceptedCommand[], signal: AbortSignal): Promise<void> {
    const ids = missing.map(({ command }) => command.tagId);
    for (const id of ids) tagsBeingRead.add(id);
    try {
      recordReadings(await source.read(ids, "on-demand", signal));
    } catch (error) {
      if (!signal.aborted) log.warn({ err: error }, "the present value could not be read before a write");
    } finally {
      for (const id of ids) tagsBeingRead.delete(id);
      for (const accepted of missing) triedAtMs.set(accepted, clock.monotonic());
    }
  }

  return {
    loadLiveValue,
    findLatestValue,
    recordReadings,
    isMissing,
    async refresh(group: readonly AcceptedCommand[], signal: AbortSignal): Promise<void> {
      const missingCommands: AcceptedCommand[] = [];
      for (const accepted of group.slice(0, TAGS_PER_REQUEST)) {
        if (!tagsBeingRead.has(accepted.command.tagId) && (await isMissing(accepted))) missingCommands.push(accepted);
      }
      if (missingCommands.length > 0) await endsWithin(clock, READING_LIMIT_MS, requestValues(missingCommands, signal));
    },
  };
}
