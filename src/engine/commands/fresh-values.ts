import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { within } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { type ReadReply, type Source, TAGS_PER_REQUEST } from "../source/source.ts";
import type { BuildingView } from "./building-view.ts";
import type { Command } from "./command.ts";
import { FRESH_MS, type FreshValue, freshValue, isFromBefore, needsFreshValue } from "./gate.ts";
import type { Accepted, Journal } from "./journal.ts";

/**
 * Current values of tags for checks: from live reads when they are recent, otherwise from a request. A reading before
 * Plenum's last write of the tag does not count.
 */
export interface FreshValues {
  of(command: Command): Promise<FreshValue | undefined>;
  /**
   * Reads what the checks of these commands need and do not know; what cannot be read stays unknown. A slow reading
   * is not waited for long, because others may leave without it.
   */
  refresh(group: readonly Accepted[], signal: AbortSignal): Promise<void>;
  /** Whether a command has to wait for a reading that was not tried yet. */
  isMissing(accepted: Accepted): Promise<boolean>;
  /** Takes over what somebody else read. */
  learn(reply: ReadReply): void;
}

const PATIENCE_MS = 3_000;

export function createFreshValues(options: {
  readonly source: Source;
  readonly view: BuildingView;
  readonly journal: Journal;
  readonly clock: Clock;
  readonly log: Log;
}): FreshValues {
  const { clock, journal, log, source, view } = options;
  const read = new Map<string, FreshValue>();
  const reading = new Set<string>();
  const triedAtMs = new WeakMap<Accepted, number>();

  async function of({ tagId }: Command): Promise<FreshValue | undefined> {
    const held = await heldValue(tagId);
    const own = read.get(tagId);
    const isOwnLater = held === undefined || isFromBefore(held, clock.now()) || (own?.time ?? "") > held.time;
    const latest = own !== undefined && isOwnLater ? own : held;
    const writtenAtMs = journal.wear.ofTag(source.name, tagId).at(-1) ?? Number.NEGATIVE_INFINITY;
    return latest === undefined || Date.parse(latest.time) <= writtenAtMs ? undefined : latest;
  }

  /** A value that cannot be loaded is read again; it must not delay other commands. */
  async function heldValue(tagId: string) {
    try {
      return await view.value(source.name, tagId);
    } catch (error) {
      log.warn({ err: error, tagId }, "what a live read showed is not known");
      return undefined;
    }
  }

  async function isUnknown({ command, entry }: Accepted): Promise<boolean> {
    return needsFreshValue(entry, command) && freshValue(await of(command), clock.now()) === null;
  }

  async function isMissing(accepted: Accepted): Promise<boolean> {
    if (!(await isUnknown(accepted))) return false;
    const triedAt = triedAtMs.get(accepted) ?? Number.NEGATIVE_INFINITY;
    return clock.monotonic() - triedAt > FRESH_MS;
  }

  async function ask(asked: readonly Accepted[], signal: AbortSignal): Promise<void> {
    const ids = asked.map(({ command }) => command.tagId);
    for (const id of ids) reading.add(id);
    try {
      learn(await source.read(ids, "on-demand", signal));
    } catch (error) {
      if (!signal.aborted) log.warn({ err: error }, "the present value could not be read before a write");
    } finally {
      for (const id of ids) reading.delete(id);
      for (const accepted of asked) triedAtMs.set(accepted, clock.monotonic());
    }
  }

  function learn(reply: ReadReply): void {
    const time = isoUtc(reply.receivedAtMs);
    for (const { id, value } of reply.readings) {
      read.set(id, { value, quality: value === null ? "bad" : "good", time });
    }
  }

  return {
    of,
    learn,
    isMissing,
    async refresh(group, signal) {
      const asked: Accepted[] = [];
      for (const accepted of group.slice(0, TAGS_PER_REQUEST)) {
        if (!reading.has(accepted.command.tagId) && (await isMissing(accepted))) asked.push(accepted);
      }
      if (asked.length === 0) return;
      await within(clock, PATIENCE_MS, ask(asked, signal));
    },
  };
}
