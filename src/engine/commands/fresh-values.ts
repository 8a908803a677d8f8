import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { endsWithin } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { type ReadReply, type Source, TAGS_PER_REQUEST } from "../source/source.ts";
import type { BuildingReader } from "./building-view.ts";
import type { Command } from "./command.ts";
import { type FreshValue, freshValue, isFromBefore, MAX_VALUE_AGE_MS, needsFreshValue } from "./gate.ts";
import type { AcceptedCommand, Journal } from "./journal.ts";

/** Current values of tags: from live reads when they are recent, otherwise from a request. */
export type FreshValues = ReturnType<typeof createFreshValues>;

/** Stop waiting for a slow reading, because other commands may be ready. */
const READING_LIMIT_MS = 3_000;

export function createFreshValues(options: {
  readonly source: Source;
  readonly view: BuildingReader;
  readonly journal: Journal;
  readonly clock: Clock;
  readonly log: Log;
}) {
  const { clock, journal, log, source } = options;
  const read = new Map<string, FreshValue>();
  const reading = new Set<string>();
  const triedAtMs = new WeakMap<AcceptedCommand, number>();

  /** Last live value; undefined when it cannot be loaded, which must not delay other commands. */
  async function live(tagId: string): Promise<FreshValue | undefined> {
    try {
      return await options.view.value(source.name, tagId);
    } catch (error) {
      log.warn({ err: error, tagId }, "the last live value could not be loaded");
      return undefined;
    }
  }

  async function latest({ tagId }: Pick<Command, "tagId">): Promise<FreshValue | undefined> {
    const polled = await live(tagId);
    const own = read.get(tagId);
    const isOwnLater = polled === undefined || isFromBefore(polled, clock.now()) || (own?.time ?? "") > polled.time;
    const reading = own !== undefined && isOwnLater ? own : polled;
    const writtenAtMs = journal.writeCounts.ofTag(source.name, tagId).at(-1) ?? Number.NEGATIVE_INFINITY;
    return reading === undefined || Date.parse(reading.time) <= writtenAtMs ? undefined : reading;
  }

  /** True when a command needs a reading that was not attempted within the last minute. */
  async function isMissing(accepted: AcceptedCommand): Promise<boolean> {
    const { command, entry } = accepted;
    if (!needsFreshValue(entry, command) || freshValue(await latest(command), clock.now()) !== null) return false;
    return clock.monotonic() - (triedAtMs.get(accepted) ?? Number.NEGATIVE_INFINITY) > MAX_VALUE_AGE_MS;
  }

  function learn(reply: ReadReply): void {
    const time = isoUtc(reply.receivedAtMs);
    for (const { id, value } of reply.readings) read.set(id, { value, quality: value === null ? "bad" : "good", time });
  }

  async function request(missing: readonly AcceptedCommand[], signal: AbortSignal): Promise<void> {
    const ids = missing.map(({ command }) => command.tagId);
    for (const id of ids) reading.add(id);
    try {
      learn(await source.read(ids, "on-demand", signal));
    } catch (error) {
      if (!signal.aborted) log.warn({ err: error }, "the present value could not be read before a write");
    } finally {
      for (const id of ids) reading.delete(id);
      for (const accepted of missing) triedAtMs.set(accepted, clock.monotonic());
    }
  }

  return {
    live,
    latest,
    learn,
    isMissing,
    async refresh(group: readonly AcceptedCommand[], signal: AbortSignal): Promise<void> {
      const missing: AcceptedCommand[] = [];
      for (const accepted of group.slice(0, TAGS_PER_REQUEST)) {
        if (!reading.has(accepted.command.tagId) && (await isMissing(accepted))) missing.push(accepted);
      }
      if (missing.length > 0) await endsWithin(clock, READING_LIMIT_MS, request(missing, signal));
    },
  };
}
