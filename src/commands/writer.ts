import type { TagValue } from "../building.ts";
import type { Clock } from "../clock.ts";
import { meaningOf, sentence } from "../errors.ts";
import { isStopping } from "../lifecycle.ts";
import type { Log } from "../log.ts";
import { type Source, TAGS_PER_REQUEST, type TagWrite } from "../source/source.ts";
import type { BuildingView } from "./building-view.ts";
import type { CommandsConfig } from "./config.ts";
import { checkDispatch, type FreshValue, freshValue, needsFreshValue, type Refusing } from "./gate.ts";
import type { AcceptedCommand } from "./intake.ts";
import type { Finish, Journal } from "./journal.ts";
import type { KillSwitch } from "./kill-switch.ts";
import { type AwaitingProof, type ReadBack, type Sent, sameValue } from "./read-back.ts";

/**
 * The second half of a command's way, per source: from the journal to the building.
 *
 * Accepted commands wait in `pending`, one per tag: a later one supersedes. When a slot of the quota is free, and
 * only then, what goes is decided: everything is checked again, written to the journal as `sending`, and sent.
 * From that line on a command is never sent again, whatever happens; reading back tells what became of it.
 */
export interface Writer {
  add(accepted: AcceptedCommand): void;
  run(signal: AbortSignal): Promise<void>;
  /** Commands that have not left yet. */
  waiting(): number;
}

export interface WriterOptions {
  readonly source: Source;
  readonly timeZone: string;
  readonly config: CommandsConfig;
  readonly view: BuildingView;
  readonly journal: Journal;
  readonly killSwitch: KillSwitch;
  readonly readBack: ReadBack;
  readonly clock: Clock;
  readonly log: Log;
  readonly onFinished: (outcome: string, reason: string | null) => void;
}

interface Ready {
  readonly accepted: AcceptedCommand;
  readonly before: TagValue;
}

export function createWriter(options: WriterOptions): Writer {
  const { clock, config, journal, source } = options;
  const pending = new Map<string, AcceptedCommand>();
  const fresh = new Map<string, FreshValue>();
  let wake = (): void => {};

  async function finish(accepted: AcceptedCommand, end: Finish): Promise<void> {
    await journal.finish(accepted.command, end);
    options.onFinished(end.outcome, end.reason);
  }

  /** Present values for the checks that need one; what cannot be read stays unknown, and those are refused. */
  async function refreshValues(group: readonly AcceptedCommand[], signal: AbortSignal): Promise<void> {
    const now = clock.now();
    const wanted: string[] = [];
    for (const { command, entry, expect } of group) {
      const held = fresh.get(command.tagId) ?? (await options.view.value(command.source, command.tagId));
      if (held !== undefined) fresh.set(command.tagId, held);
      if (needsFreshValue(entry, expect) && freshValue(held, now) === null) wanted.push(command.tagId);
    }
    if (wanted.length === 0) return;
    try {
      const reply = await source.read(wanted, "on-demand", signal);
      const time = new Date(reply.receivedAtMs).toISOString();
      for (const { id, value } of reply.readings) {
        const quality = value === null ? "bad" : "good";
        fresh.set(id, { value, quality, time });
      }
    } catch (error) {
      if (signal.aborted) throw error;
      options.log.warn({ err: error }, "the present value could not be read before a write");
    }
  }

  /** Whether a command may go now; ends it when it may not. */
  async function ready(accepted: AcceptedCommand): Promise<Ready | null> {
    const { command, entry, expect } = accepted;
    const nowMs = clock.now();
    if (Date.parse(command.expiresAt) <= nowMs) {
      const message = "The time to live passed before the quota let it through; nothing was written.";
      await finish(accepted, { outcome: "expired", reason: "expired", message });
      return null;
    }
    const current = fresh.get(command.tagId);
    const before = freshValue(current, nowMs);
    const refusing: Refusing | null = options.killSwitch.thrown()
      ? { reason: "killed", message: "Writing was stopped before the command left." }
      : checkDispatch({
          value: command.value,
          expect,
          entry,
          current,
          writesAtMs: journal.writesOf(command.source, command.tagId),
          gateways: await options.view.gateways(command.source, command.siteId),
          timeZone: options.timeZone,
          nowMs,
        });
    if (refusing !== null) {
      await finish(accepted, { outcome: "rejected", before, ...refusing });
      return null;
    }
    if (before !== null && sameValue(before, command.value)) {
      const message = `The tag held ${before} already; nothing was written.`;
      await finish(accepted, {
        outcome: "confirmed",
        reason: "already-set",
        message,
        before,
        readBack: before,
      });
      return null;
    }
    if (config.rehearsal) {
      const message = "Rehearsal: everything was checked, nothing was written.";
      await finish(accepted, {
        outcome: "accepted-unverified",
        reason: "rehearsal",
        message,
        before,
        rehearsal: true,
      });
      return null;
    }
    return { accepted, before };
  }

  /**
   * Decides what leaves and makes it durable. Commands are taken off `pending` first, so that a newer one for the
   * same tag queues up behind instead of superseding what is about to leave. What fails before the journal says
   * `sending` goes back.
   */
  async function prepare(size: number): Promise<readonly Ready[]> {
    const taken = [...pending.values()].slice(0, size);
    for (const { command } of taken) pending.delete(command.tagId);
    const leaving: Ready[] = [];
    let judged = 0;
    try {
      for (const accepted of taken) {
        const each = await ready(accepted);
        judged += 1;
        if (each !== null) leaving.push(each);
      }
      if (leaving.length > 0) await journal.sending(leaving.map((each) => each.accepted.command));
      return leaving;
    } catch (error) {
      for (const accepted of [...leaving.map((each) => each.accepted), ...taken.slice(judged)]) {
        if (!pending.has(accepted.command.tagId)) pending.set(accepted.command.tagId, accepted);
        else await supersede(accepted, pending.get(accepted.command.tagId) ?? accepted);
      }
      throw error;
    }
  }

  async function sendGroup(signal: AbortSignal): Promise<void> {
    const size = config.group_window === 0 ? 1 : TAGS_PER_REQUEST;
    await refreshValues([...pending.values()].slice(0, size), signal);
    let leaving: readonly Ready[] = [];
    try {
      const reply = await source.write(async () => {
        leaving = await prepare(size);
        return leaving.map(
          ({ accepted: { command } }): TagWrite => ({ tagId: command.tagId, value: command.value }),
        );
      }, signal);
      const listed = new Set(reply.written.map((reading) => reading.id));
      prove(leaving, (each) => (listed.has(each.accepted.command.tagId) ? "answered" : "in-doubt"), null);
    } catch (error) {
      if (leaving.length === 0) throw error;
      await judgeFailure(leaving, error, signal);
    } finally {
      fresh.clear();
    }
  }

  /** A refusal before execution ends the command; anything else leaves its fate to the read-back. */
  async function judgeFailure(leaving: readonly Ready[], error: unknown, signal: AbortSignal): Promise<void> {
    const failure = meaningOf(error);
    // Aborted in mid-flight: the journal says `sending`, and the next start reads back.
    if (signal.aborted || isStopping(error)) return;
    options.log.warn({ err: error, commands: leaving.length }, "a write was not answered as hoped");
    if (failure.kind === "throttled") {
      // The service counted the request and did nothing. It is not sent again: one id, one request.
      const message = `The service refused the write: ${sentence(failure)} Send a new command.`;
      for (const { accepted, before } of leaving) {
        await finish(accepted, { outcome: "rejected", reason: "throttled", message, before });
      }
      return;
    }
    const refused = failure.kind === "config" || failure.kind === "rejected" || failure.kind === "no-log";
    if (refused && leaving.length === 1) {
      for (const { accepted, before } of leaving) {
        await finish(accepted, {
          outcome: "rejected",
          reason: "refused-by-service",
          message: sentence(failure),
          before,
        });
      }
      return;
    }
    prove(leaving, () => (refused ? "group-refused" : "in-doubt"), sentence(failure));
  }

  function prove(leaving: readonly Ready[], sent: (each: Ready) => Sent, complaint: string | null): void {
    options.readBack.add(
      leaving.map(
        (each): AwaitingProof => ({
          command: each.accepted.command,
          sent: sent(each),
          complaint,
          before: each.before,
        }),
      ),
    );
  }

  async function supersede(older: AcceptedCommand, newer: AcceptedCommand): Promise<void> {
    const message = `Command ${newer.command.id} for the same tag came before this one was sent.`;
    await finish(older, { outcome: "superseded", reason: "superseded", message });
  }

  return {
    add(accepted) {
      const older = pending.get(accepted.command.tagId);
      pending.delete(accepted.command.tagId);
      pending.set(accepted.command.tagId, accepted);
      if (older !== undefined) {
        void supersede(older, accepted).catch((error: unknown) => {
          options.log.error({ err: error }, "a command result could not be recorded");
        });
      }
      wake();
    },
    waiting: () => pending.size,
    async run(signal) {
      signal.addEventListener("abort", () => wake(), { once: true });
      while (!signal.aborted) {
        if (pending.size === 0) {
          await new Promise<void>((resolve) => {
            wake = resolve;
          });
          continue;
        }
        try {
          await clock.sleep(config.group_window, signal);
          await sendGroup(signal);
        } catch (error) {
          if (signal.aborted) return;
          options.log.error({ err: error }, "commands could not be sent");
          await clock.sleep(1000, signal).catch(() => undefined);
        }
      }
    },
  };
}
