import { meaningOf, sentence } from "../../core/errors/errors.ts";
import type { TagValue } from "../../core/model/building.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { isStopping } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import { loop, sleepFor } from "../../core/runtime/waiting.ts";
import { type Source, TAGS_PER_REQUEST, type TagWrite } from "../source/source.ts";
import { createBacklog } from "./backlog.ts";
import type { BuildingView } from "./building-view.ts";
import type { Finish } from "./command.ts";
import type { CommandsConfig } from "./config.ts";
import type { Endings } from "./endings.ts";
import type { FreshValues } from "./fresh-values.ts";
import { checkDispatch, freshValue, isSetAlready, type Refusing, sameValue } from "./gate.ts";
import type { Accepted, Journal, Leaving } from "./journal.ts";
import type { ReadBack, SendResult } from "./read-back.ts";

/**
 * The second half of a command's way, per source: from the journal to the building.
 *
 * Accepted commands wait in the backlog, one per tag: a later one supersedes. When a slot of the quota is free,
 * and only then, what goes is decided: everything is checked again, written to the journal as `sending`, and sent.
 * From that line on a command is never sent again, whatever happens; reading back tells what became of it.
 */
export interface Writer {
  add(accepted: Accepted): void;
  /** Looks again what may leave: a second person has agreed. */
  wake(): void;
  /** Works until `stopping` aborts; `cutting` breaks off a request that is under way then. */
  run(stopping: AbortSignal, cutting: AbortSignal): Promise<void>;
  /** Commands that have not left yet. */
  waiting(): number;
}

export interface WriterOptions {
  readonly source: Source;
  readonly timeZone: string;
  /** The current configuration. */
  readonly config: () => CommandsConfig;
  readonly view: BuildingView;
  readonly values: FreshValues;
  readonly journal: Journal;
  /** Why nothing at all may be written to this source. */
  readonly closed: () => Refusing | null;
  /** Whether what a command was accepted by still counts. */
  readonly holds: (accepted: Accepted) => boolean;
  readonly readBack: ReadBack;
  readonly endings: Endings;
  readonly clock: Clock;
  readonly log: Log;
}

const STOPPED: Finish = {
  outcome: "expired",
  reason: "stopped",
  message: "The worker stopped before the command left; nothing was written.",
};
/** Commands live for seconds to minutes: what could not be sent is not left alone for longer. */
const BACKOFF = { firstMs: 3_000, maxMs: 4_000 };
/** A moment's rest while all that wait need a reading that takes its time. */
const LOOK_AGAIN_MS = 100;

export function createWriter(options: WriterOptions): Writer {
  const { clock, config, endings, journal, log, source, values } = options;
  const backlog = createBacklog({
    clock,
    log,
    endings,
    closed: options.closed,
    isUnseconded,
    holds: options.holds,
  });
  const size = () => (config().group_window === 0 ? 1 : TAGS_PER_REQUEST);
  /** Requests that have left and are not judged yet. */
  const underWay = new Set<Promise<void>>();
  /** Tags of a group that was refused as a whole: they travel alone until one of them is answered. */
  const suspects = new Set<string>();

  function isUnseconded({ command }: Accepted): boolean {
    return journal.unseconded(command.id) !== undefined;
  }

  /**
   * Commands that may be sent together: approved, no tag with an unverified write, and no bisection tag among others.
   */
  function candidates(): readonly Accepted[] {
    const free = backlog.all().filter((each) => !isUnseconded(each) && !journal.isUnderWay(each.command));
    const [first] = free;
    if (first === undefined || suspects.has(first.command.tagId)) return free.slice(0, 1);
    return free.filter(({ command }) => !suspects.has(command.tagId)).slice(0, size());
  }

  /** Why a command ends here instead of leaving together with so many others; null when it may leave. */
  async function endOf({ command, entry }: Accepted, others: number): Promise<Finish | null> {
    const nowMs = clock.now();
    const current = await values.of(command);
    const before = freshValue(current, nowMs);
    const refusing: Refusing | null = checkDispatch({
      ...command,
      entry,
      current,
      past: {
        ofTag: journal.wear.ofTag(command.source, command.tagId),
        lastHour: journal.wear.lastHour(command.source) + others,
      },
      maxPerHour: config().max_per_hour,
      gateways: await options.view.gateways(command.source, command.siteId),
      timeZone: options.timeZone,
      nowMs,
    });
    if (refusing !== null) return { outcome: "rejected", before, ...refusing };
    // An older reading proves nothing after an unverified write, which an offline gateway may execute later: the sender wants
    // the value written after the other one.
    if (isSetAlready(before, command.value) && !journal.isUnproved(command)) {
      const message = `The tag held ${before} already; nothing was written.`;
      return { outcome: "confirmed", reason: "already-set", message, before, readBack: before };
    }
    if (config().rehearsal) {
      const message = "Rehearsal: everything was checked, nothing was written.";
      return { outcome: "accepted-unverified", reason: "rehearsal", message, before, rehearsal: true };
    }
    return null;
  }

  /**
   * Decides what leaves and makes it durable. Commands leave the backlog first, so that a newer one for the same tag
   * queues up behind instead of superseding what is about to leave. What fails before the journal says `sending`,
   * or has to be looked at first, goes back. Nothing waits between the last look at the time and the request but
   * the journal, and if that took long, there is one more look.
   */
  async function prepare(signal: AbortSignal): Promise<readonly Leaving[]> {
    const taken = candidates();
    for (const accepted of taken) backlog.take(accepted);
    const ready = new Map<Accepted, Leaving>();
    const ends = new Map<Accepted, Finish>();
    try {
      for (const accepted of taken) {
        if (await values.isMissing(accepted)) continue;
        const end = backlog.endOf(accepted) ?? (await endOf(accepted, ready.size));
        const before = await presentValue(accepted);
        if (end !== null) ends.set(accepted, end);
        // A restore may have become too old since the last check; then it is checked again.
        else if (before !== null || accepted.command.forMs === null) ready.set(accepted, { ...accepted, before });
      }
      if (ready.size > 0) await journal.sending([...ready.values()]);
    } catch (error) {
      for (const accepted of taken) backlog.putBack(accepted);
      throw error;
    }
    for (const accepted of taken) if (!ready.has(accepted) && !ends.has(accepted)) backlog.putBack(accepted);
    for (const accepted of ready.keys()) {
      const end = backlog.endOf(accepted);
      if (end !== null && ready.delete(accepted)) ends.set(accepted, end);
    }
    track(endAll(ends, signal));
    return [...ready.values()];
  }

  async function endAll(ends: ReadonlyMap<Accepted, Finish>, signal: AbortSignal): Promise<void> {
    for (const [accepted, end] of ends) await endings.end(accepted.command, end, signal);
  }

  /** Keeps hold of what goes on in the background, so that a stop can wait for it. */
  function track(work: Promise<void>): void {
    const settled = work.catch((error: unknown) => {
      if (!isStopping(error)) log.error({ err: error }, "the outcome of a command could not be recorded");
    });
    underWay.add(settled);
    void settled.then(() => underWay.delete(settled));
  }

  /** Ends commands that need not or may not be sent, without using a slot of the quota. */
  async function endEarly(signal: AbortSignal): Promise<void> {
    for (const accepted of candidates()) {
      if (await values.isMissing(accepted)) continue;
      const end = backlog.endOf(accepted) ?? (await endOf(accepted, 0));
      if (end !== null && backlog.take(accepted)) await endings.end(accepted.command, end, signal);
    }
  }

  async function mayAnyLeave(): Promise<boolean> {
    for (const accepted of candidates()) if (!(await values.isMissing(accepted))) return true;
    return false;
  }

  async function presentValue({ command }: Accepted): Promise<TagValue> {
    return freshValue(await values.of(command), clock.now());
  }

  /**
   * Resolves when the request has left or turned out to be needless; its outcome is judged in the background. Answers
   * after how many milliseconds to look again.
   */
  async function sendGroup(stopping: AbortSignal, cutting: AbortSignal): Promise<number> {
    await values.refresh(candidates(), stopping);
    await endEarly(cutting);
    if (!(await mayAnyLeave())) return LOOK_AGAIN_MS;
    const slot = backlog.slotWait(stopping);
    const left = Promise.withResolvers<void>();
    const whole = (async () => {
      let leaving: readonly Leaving[] = [];
      try {
        const reply = await source.write(
          async () => {
            slot.over();
            leaving = await prepare(cutting);
            left.resolve();
            return leaving.map(({ command: { tagId, value } }): TagWrite => ({ tagId, value }));
          },
          AbortSignal.any([slot.signal, cutting]),
        );
        left.resolve();
        const written = new Map(reply.written.map(({ id, value }) => [id, value]));
        for (const { command } of leaving) suspects.delete(command.tagId);
        // The answer has the written value (interface, POST tags/write): null or 19 for our 21 is no word that 21 was.
        const isTaken = ({ tagId, value }: Leaving["command"]) => sameValue(written.get(tagId) ?? null, value);
        prove(leaving, ({ command }) => (isTaken(command) ? "answered" : "in-doubt"), null);
      } catch (error) {
        if (leaving.length === 0) left.reject(error);
        else await judgeFailure(leaving, error, cutting);
      } finally {
        slot.over();
      }
    })();
    track(whole);
    try {
      await left.promise;
    } catch (error) {
      if (!slot.isNeedless(error)) throw error;
    }
    return 0;
  }

  async function turn(stopping: AbortSignal, cutting: AbortSignal): Promise<number> {
    if (candidates().length === 0) return Number.POSITIVE_INFINITY;
    if (!(await sleepFor(clock, config().group_window, stopping))) return 0;
    try {
      return await sendGroup(stopping, cutting);
    } catch (error) {
      await refuseUnsendable(error, cutting);
      throw error;
    }
  }

  /** Without a token nothing can leave until a person has acted, and each try would cost a slot. */
  async function refuseUnsendable(error: unknown, signal: AbortSignal): Promise<void> {
    const failure = meaningOf(error);
    if (failure.kind !== "config") return;
    const end: Finish = { outcome: "rejected", reason: "no-ability", message: sentence(failure) };
    for (const accepted of candidates()) {
      if (backlog.take(accepted)) await endings.end(accepted.command, end, signal);
    }
  }

  /** A refusal before execution ends the command; anything else leaves its fate to the read-back. */
  async function judgeFailure(leaving: readonly Leaving[], error: unknown, cutting: AbortSignal) {
    // Cut in mid-flight: the journal says `sending`, and the next start reads back.
    if (cutting.aborted) return;
    const failure = meaningOf(error);
    log.warn({ err: error, commands: leaving.length }, "a write was not answered as hoped");
    const isRefused = failure.kind === "config" || failure.kind === "rejected" || failure.kind === "no-log";
    const isThrottled = failure.kind === "throttled" && failure.isOwnWord;
    if (isThrottled || (isRefused && leaving.length === 1)) {
      // A throttled request was counted and not carried out. It is not sent again: one id, one request.
      const reason = isThrottled ? "throttled" : "refused-by-service";
      const hint = isThrottled ? " Send a new command." : "";
      const message = `The service refused the write: ${sentence(failure)}${hint}`;
      for (const { command, before } of leaving) {
        await endings.end(command, { outcome: "rejected", reason, message, before }, cutting);
      }
      return;
    }
    if (isRefused) for (const { command } of leaving) suspects.add(command.tagId);
    prove(leaving, () => (isRefused ? "group-refused" : "in-doubt"), sentence(failure));
  }

  function prove(leaving: readonly Leaving[], sent: (each: Leaving) => SendResult, complaint: string | null): void {
    options.readBack.add(
      leaving.map((each) => {
        const { command, before } = each;
        return { command, sent: sent(each), complaint, before, sentAtMs: clock.now() };
      }),
    );
  }

  return {
    add: (accepted) => backlog.add(accepted),
    wake: () => backlog.bell.wakeUp(),
    waiting: () => backlog.all().length,
    async run(stopping, cutting) {
      endings.onEnd(() => backlog.bell.wakeUp());
      const watching = backlog.watch(stopping, cutting);
      await loop({
        clock,
        signal: stopping,
        bell: backlog.bell,
        turn: () => turn(stopping, cutting),
        fault: (error) => log.error({ err: error }, "commands could not be sent"),
        backoff: BACKOFF,
      });
      await watching;
      await Promise.all(underWay);
      for (const { command } of backlog.empty()) await endings.end(command, STOPPED, cutting);
    },
  };
}
