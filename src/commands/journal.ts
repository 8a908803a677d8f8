import type { TagValue } from "../building.ts";
import { type Clock, isoUtc } from "../clock.ts";
import { COMMAND_OUTCOMES, type CommandOutcome, type Event, makeEvent, sourceUri } from "../event.ts";
import { Conflict, type DocumentChange, type Store } from "../store/store.ts";
import { AUDIT_LOG, type AuditEntry, type AuditRecord, CHAIN_START, chain } from "./audit.ts";
import type { Command, CommandState } from "./command.ts";

/**
 * The life of every command, on disk before anything happens: `accepted` before the broker is acknowledged,
 * `sending` before the request leaves, and one terminal outcome with its event. Each step is one transaction of
 * the entry, its audit record and, at the end, the `command-result` event.
 */
export interface JournalEntry {
  readonly command: Command;
  readonly state: CommandState;
  readonly changedAt: string;
}

/** What a finished command has to say besides its outcome. */
export interface Finish {
  readonly outcome: CommandOutcome;
  readonly reason: string | null;
  readonly message: string;
  readonly before?: TagValue;
  readonly readBack?: TagValue;
  readonly rehearsal?: boolean;
}

export interface Journal {
  /** False when the id is known already: then nothing was written. */
  accept(command: Command): Promise<boolean>;
  /** `sent` times per tag are kept for the limits on wear; false keeps them as they are (rehearsal). */
  sending(commands: readonly Command[]): Promise<void>;
  finish(command: Command, finish: Finish): Promise<void>;
  /** A refusal of something that never became a command; it is told and audited, and its id stays free. */
  refuse(refusal: RefusalRecord): Promise<void>;
  knows(id: string): boolean;
  /** Entries that have no outcome yet, e.g. after a crash. */
  open(): readonly JournalEntry[];
  /** Wall times, milliseconds since 1970, of this tag's writes within the last 24 hours. */
  writesOf(source: string, tagId: string): readonly number[];
  /** Forgets finished entries that are older than a week: far beyond any time to live. */
  tidy(): Promise<void>;
}

export interface RefusalRecord {
  readonly commandId: string;
  readonly source: string;
  readonly siteId: number | null;
  readonly tagId: string | null;
  readonly requested: TagValue;
  readonly outcome: "rejected" | "duplicate" | "expired";
  readonly reason: string;
  readonly message: string;
  readonly by: string;
  readonly replyTo: string | null;
  readonly correlation: string | null;
  readonly receivedAtMs: number;
}

const COMMANDS = "command";
const WEAR = "command-wear";
const DAY_MS = 86_400_000;
const KEEP_MS = 7 * DAY_MS;

interface Wear {
  readonly sentAtMs: readonly number[];
}

export async function openJournal(store: Store, clock: Clock): Promise<Journal> {
  const entries = await store.documents<JournalEntry>(COMMANDS);
  const wear = await store.documents<Wear>(WEAR);
  let tip = (await store.lastRecord<AuditRecord>(AUDIT_LOG))?.body.hash ?? CHAIN_START;
  let turn: Promise<unknown> = Promise.resolve();

  /** One step at a time: the audit chain has one tip. */
  function inTurn<T>(step: () => Promise<T>): Promise<T> {
    const mine = turn.then(step, step);
    turn = mine.then(
      () => undefined,
      () => undefined,
    );
    return mine;
  }

  async function commit(
    audits: readonly AuditEntry[],
    documents: readonly DocumentChange[],
    events: readonly Event[],
  ): Promise<void> {
    let last = tip;
    const records = audits.map((audit) => {
      const record = chain(last, audit);
      last = record.hash;
      return { log: AUDIT_LOG, body: record };
    });
    await store.commit({ documents, events, records });
    tip = last;
  }

  function entry(command: Command, state: CommandState): JournalEntry {
    return { command, state, changedAt: isoUtc(clock.now()) };
  }

  return {
    accept: (command) =>
      inTurn(async () => {
        const accepted = entry(command, "accepted");
        try {
          await commit(
            [audit(accepted, { ...describe(command) })],
            [{ set: COMMANDS, insert: [[command.id, accepted]] }],
            [],
          );
        } catch (error) {
          if (error instanceof Conflict) return false;
          throw error;
        }
        entries.set(command.id, accepted);
        return true;
      }),

    sending: (commands) =>
      inTurn(async () => {
        const now = clock.now();
        const changed = commands.map((command) => entry(command, "sending"));
        const worn = commands.map((command): [string, Wear] => {
          const key = wearKey(command.source, command.tagId);
          const recent = (wear.get(key)?.sentAtMs ?? []).filter((at) => at > now - DAY_MS);
          return [key, { sentAtMs: [...recent, now] }];
        });
        await commit(
          changed.map((each) => audit(each, { with: commands.length })),
          [
            { set: COMMANDS, put: changed.map((each) => [each.command.id, each] as const) },
            { set: WEAR, put: worn },
          ],
          [],
        );
        for (const each of changed) entries.set(each.command.id, each);
        for (const [key, value] of worn) wear.set(key, value);
      }),

    finish: (command, finish) =>
      inTurn(async () => {
        const known = entries.get(command.id);
        if (known !== undefined && isTerminal(known.state)) return;
        const done = entry(command, finish.outcome);
        await commit(
          [audit(done, { ...finish })],
          [{ set: COMMANDS, put: [[command.id, done]] }],
          [resultEvent(command, finish, done.changedAt)],
        );
        entries.set(command.id, done);
      }),

    refuse: (refusal) =>
      inTurn(async () => {
        const at = isoUtc(clock.now());
        const { replyTo: _replyTo, correlation: _correlation, ...told } = refusal;
        await commit(
          [{ at, commandId: refusal.commandId, step: refusal.outcome, detail: told }],
          [],
          [refusalEvent(refusal, at)],
        );
      }),

    knows: (id) => entries.has(id),
    open: () => [...entries.values()].filter((each) => !isTerminal(each.state)),
    writesOf: (source, tagId) =>
      (wear.get(wearKey(source, tagId))?.sentAtMs ?? []).filter((at) => at > clock.now() - DAY_MS),

    tidy: () =>
      inTurn(async () => {
        const limit = isoUtc(clock.now() - KEEP_MS);
        const old = [...entries]
          .filter(([, e]) => isTerminal(e.state) && e.changedAt < limit)
          .map(([id]) => id);
        if (old.length === 0) return;
        await store.commit({ documents: [{ set: COMMANDS, remove: old }] });
        for (const id of old) entries.delete(id);
      }),
  };
}

function wearKey(source: string, tagId: string): string {
  return `${source}/${tagId}`;
}

function isTerminal(state: CommandState): boolean {
  return (COMMAND_OUTCOMES as readonly string[]).includes(state);
}

function describe(command: Command): Record<string, unknown> {
  const { source, siteId, tagId, value, by, receivedAt, expiresAt } = command;
  return { source, siteId, tagId, value, by, receivedAt, expiresAt };
}

function audit(entry: JournalEntry, detail: Record<string, unknown>): AuditEntry {
  return { at: entry.changedAt, commandId: entry.command.id, step: entry.state, detail };
}

function resultEvent(command: Command, finish: Finish, time: string): Event {
  return makeEvent({
    type: "command-result",
    source: sourceUri(command.source),
    subject: `site/${command.siteId}/tag/${command.tagId}`,
    time,
    siteId: command.siteId,
    facts: [command.id],
    data: {
      commandId: command.id,
      tagId: command.tagId,
      outcome: finish.outcome,
      reason: finish.reason,
      message: finish.message,
      requested: command.value,
      before: finish.before ?? null,
      readBack: finish.readBack ?? null,
      rehearsal: finish.rehearsal ?? false,
      correlation: command.correlation,
      replyTo: command.replyTo,
    },
  });
}

function refusalEvent(refusal: RefusalRecord, time: string): Event {
  return makeEvent({
    type: "command-result",
    source: sourceUri(refusal.source),
    subject: refusal.tagId === null ? "commands" : `site/${refusal.siteId ?? "-"}/tag/${refusal.tagId}`,
    time,
    siteId: refusal.siteId,
    // The arrival is part of the fact: the same id may be refused more than once.
    facts: [refusal.commandId, refusal.reason, refusal.receivedAtMs],
    data: {
      commandId: refusal.commandId,
      tagId: refusal.tagId,
      outcome: refusal.outcome,
      reason: refusal.reason,
      message: refusal.message,
      requested: refusal.requested,
      before: null,
      readBack: null,
      rehearsal: false,
      correlation: refusal.correlation,
      replyTo: refusal.replyTo,
    },
  });
}
