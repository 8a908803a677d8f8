import type { TagScalar, TagValue } from "../../core/model/building.ts";
import type { Event } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { oneAtATime } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { DocumentChange, Store } from "../store/store.ts";
import { AUDIT_LOG, type AuditEntry, type AuditRecord, auditHeadEvent, CHAIN_START, chain } from "./audit/audit.ts";
import { type AuditSize, openAuditSize } from "./audit/size.ts";
import { type Command, type CommandState, type Finish, tagKey } from "./command.ts";
import type { AllowedTag } from "./config.ts";
import { sameValue } from "./gate.ts";
import { acceptedEvent, resultEvent, type Warning, warningEvent } from "./result-event.ts";
import {
  isLost,
  isWritten,
  notRestoredEvent,
  promiseOf,
  promisesAfter,
  RESTORES,
  type Restore,
  restoreId,
  takenOver,
  UNRESTORED,
  type Unrestored,
  unrestored,
  withOlder,
} from "./timed.ts";
import { createWriteCountLimit, WRITE_COUNT, type WriteCount, type WriteCountLimit } from "./write-count-limit.ts";

/**
 * The life of every command, on disk before anything happens: `accepted` before the broker is acknowledged,
 * `sending` before the request leaves, and one terminal outcome with its event. Each step is one transaction of
 * the entry, its audit record and, at the end, the `command-result` event: whatever cannot be recorded does not
 * happen.
 */
export interface Journal {
  /** Journals the new ones among them and answers which these are; a known id is left out. */
  accept(accepted: readonly Accepted[]): Promise<readonly Accepted[]>;
  /** Says that these are about to leave together, and counts them as writes. */
  sending(leaving: readonly Leaving[]): Promise<void>;
  /** A second person agrees; false when the command does not wait for that (any more), and then nothing is changed. */
  second(id: string, by: string): Promise<boolean>;
  /** A command that waits for a second person. */
  unseconded(id: string): Command | undefined;
  /**
   * Records the one final outcome; false when the command had ended before. The end of a restore also ends its promise and
   * emits `command-not-restored` when the old value does not hold again. The end of a written command ends earlier promises
   * of its tag.
   */
  finish(command: Command, finish: Finish): Promise<boolean>;
  /** Tells and audits what never became a command; its id stays free. */
  tell(notices: readonly Warning[]): Promise<void>;
  /** Audits a step that belongs to no command, together with what it changes. */
  note(step: string, detail: Readonly<Record<string, unknown>>, documents?: readonly DocumentChange[]): Promise<void>;
  knows(id: string): boolean;
  /** An entry that has no outcome yet. */
  entry(id: string): OpenEntry | undefined;
  /** Commands that have no outcome yet. */
  open(): readonly OpenEntry[];
  /** Whether a write of this tag is under way: from `sending` to its outcome. */
  isUnderWay(tag: { readonly source: string; readonly tagId: string }): boolean;
  /** Whether the last write of this tag was of another value, and has ended, within a week, without the tag showing it. */
  isUnproved(command: Pick<Command, "source" | "tagId" | "value">): boolean;
  readonly wear: Pick<WriteCountLimit, "ofTag" | "lastHour">;
  readonly auditSize: AuditSize;
  /** Old values that wait to be put back: each until its restore has ended, so that a stop forgets none. */
  restores(): readonly Restore[];
  /** The promise that a command is to keep. */
  restoreBy(commandId: string): Restore | undefined;
  /** Values that were meant for a time and could not be taken back, until they are known to be over. */
  unrestored(): readonly Unrestored[];
  forgetUnrestored(lost: Unrestored): Promise<void>;
  /** Remembers the audit log's size, and forgets finished entries that are older than a week: far beyond any time to live. */
  tidy(): Promise<void>;
  /** Tells how far the audit log reaches, once there is anything in it. */
  publishHead(): Promise<void>;
}

/** A command with the entry that let it through. */
export interface Accepted {
  readonly command: Command;
  readonly entry: AllowedTag;
}

export interface Leaving extends Accepted {
  /** The value that the tag held last, where it is known. */
  readonly before: TagValue;
}

export interface OpenEntry {
  readonly command: Command;
  readonly state: "accepted" | "sending";
  readonly changedAt: string;
}

/** As stored: an open entry with its command, a finished one without. */
interface StoredEntry {
  readonly state: CommandState;
  readonly changedAt: string;
  readonly command?: Command;
  /** Value that a finished command has sent. */
  readonly sent?: { readonly tag: string; readonly value: TagScalar };
}

const COMMANDS = "command";
const KEEP_MS = 7 * 86_400_000;

export interface JournalOptions {
  readonly store: Store;
  readonly clock: Clock;
  /** A rehearsal wears out nothing, so it counts for itself. */
  readonly rehearsal: boolean;
  /** How long the quota would make a write to a source wait that is accepted now, in milliseconds. */
  readonly expectedWaitMs: (source: string) => number;
}

export async function openJournal({ store, clock, rehearsal, expectedWaitMs }: JournalOptions): Promise<Journal> {
  const wearSet = rehearsal ? `${WRITE_COUNT}-rehearsal` : WRITE_COUNT;
  const open = new Map<string, OpenEntry>();
  /** Times at which finished commands ended, by id. */
  const finished = new Map<string, string>();
  /** By tag, how its last write that left has ended. */
  const lastSent = new Map<string, StoredEntry>();
  for (const [id, stored] of await store.documents<StoredEntry>(COMMANDS)) {
    const { state, changedAt, command, sent } = stored;
    const isOpen = command !== undefined && (state === "accepted" || state === "sending");
    if (isOpen) open.set(id, { command, state, changedAt });
    else finished.set(id, changedAt);
    if (sent !== undefined && changedAt > (lastSent.get(sent.tag)?.changedAt ?? "")) lastSent.set(sent.tag, stored);
  }
  // The outcome of a damaged entry is unknown, but its id was used.
  for (const id of await store.damagedKeys(COMMANDS)) if (!open.has(id)) finished.set(id, isoUtc(clock.now()));
  const seconded = new Set<string>();
  const wear = createWriteCountLimit(await store.documents<WriteCount>(wearSet), clock);
  const restores = await store.documents<Restore>(RESTORES);
  const lost = await store.documents<Unrestored>(UNRESTORED);
  const auditSize = await openAuditSize(store);
  let tip = (await store.lastRecord<AuditRecord>(AUDIT_LOG))?.body.hash ?? CHAIN_START;
  /** One step at a time: the audit chain has one tip. */
  const inTurn = oneAtATime();

  /** `events` are made from the hashes of the records, in their order. */
  async function commit(
    audits: readonly AuditEntry[],
    documents: readonly DocumentChange[],
    events: (hashes: readonly string[]) => readonly Event[] = () => [],
  ): Promise<void> {
    let last = tip;
    const records = audits.map((audit) => {
      const record = chain(last, audit);
      last = record.hash;
      return { log: AUDIT_LOG, body: record };
    });
    await store.commit({ documents, events: events(records.map(({ body }) => body.hash)), records });
    tip = last;
    auditSize.add(records.map(({ body }) => body));
  }

  function restoreBy(commandId: string): Restore | undefined {
    return [...restores.values()].flatMap(withOlder).find(({ command }) => restoreId(command.id) === commandId);
  }

  function unseconded(id: string): Command | undefined {
    const entry = open.get(id);
    const isWaiting = entry?.state === "accepted" && entry.command.needsSecond && !seconded.has(id);
    return isWaiting ? entry.command : undefined;
  }

  return {
    accept: (all) =>
      inTurn(async () => {
        const changedAt = isoUtc(clock.now());
        const fresh = all.filter(({ command }) => !open.has(command.id) && !finished.has(command.id));
        if (fresh.length === 0) return fresh;
        const entries = fresh.map(({ command }) => ({ command, state: "accepted" as const, changedAt }));
        await commit(
          fresh.map((accepted) => audited(accepted.command, "accepted", changedAt, asked(accepted))),
          [{ set: COMMANDS, insert: entries.map((entry) => [entry.command.id, entry] as const) }],
          () => fresh.map(({ command }) => acceptedEvent(command, expectedWaitMs(command.source), changedAt)),
        );
        for (const entry of entries) open.set(entry.command.id, entry);
        return fresh;
      }),

    sending: (leaving) =>
      inTurn(async () => {
        const changedAt = isoUtc(clock.now());
        const commands = leaving.map(({ command }) => command);
        const entries = commands.map((command) => ({ command, state: "sending" as const, changedAt }));
        const wearing = wear.writing(commands);
        const promised = leaving.flatMap(({ command, before }) => {
          // A command that restores a value keeps its promise until it has ended.
          if (command.forMs === null || before === null || restoreBy(command.id) !== undefined) return [];
          const key = tagKey(command);
          return [[key, promiseOf(command, before, restores.get(key), clock.now())] as const];
        });
        await commit(
          leaving.map(({ command, before }) =>
            audited(command, "sending", changedAt, { before, group: commands.map(({ id }) => id) }),
          ),
          [
            { set: COMMANDS, put: entries.map((entry) => [entry.command.id, entry] as const) },
            { set: wearSet, put: wearing.map(([key, worn]) => [key, worn] as const) },
            { set: RESTORES, put: promised },
          ],
          (hashes) => [
            auditHeadEvent({ records: auditSize.records() + hashes.length, head: hashes.at(-1) ?? tip }, changedAt),
          ],
        );
        for (const entry of entries) open.set(entry.command.id, entry);
        wear.remember(wearing);
        for (const [key, promise] of promised) restores.set(key, promise);
      }),

    second: (id, by) =>
      inTurn(async () => {
        const command = unseconded(id);
        if (command === undefined) return false;
        await commit([audited(command, "seconded", isoUtc(clock.now()), { by })], []);
        seconded.add(id);
        return true;
      }),
    unseconded,

    finish: (command, finish) =>
      inTurn(async () => {
        const promise = restoreBy(command.id);
        if (!open.has(command.id) && promise === undefined) return false;
        const changedAt = isoUtc(clock.now());
        const key = tagKey(command);
        const hasLeft = open.get(command.id)?.state === "sending";
        const sent = hasLeft ? { sent: { tag: key, value: command.value } } : {};
        const done: StoredEntry = { state: finish.outcome, changedAt, ...sent };
        const wearing = wear.writing(finish.rehearsal === true ? [command] : []);
        const held = restores.get(key);
        const { kept, over } = promisesAfter(command, finish, held, clock.now());
        const ended = over.map(takenOver);
        const endedIds = ended.map((each) => each.command.id).filter((id) => open.has(id));
        const news = promise !== undefined && isLost(finish) ? unrestored(promise, finish, changedAt) : null;
        const isSettled = news === null && lost.has(key) && isWritten(finish);
        await commit(
          [
            ...ended.map((each) => audited(each.command, "superseded", changedAt, { ...each.finish })),
            audited(command, finish.outcome, changedAt, { ...finish }),
            ...(news === null ? [] : [audited(command, "not-restored", changedAt, { ...news })]),
          ],
          [
            {
              set: COMMANDS,
              put: [[command.id, done], ...endedIds.map((id) => [id, supersededAt(changedAt)] as const)],
            },
            { set: wearSet, put: wearing.map(([key, worn]) => [key, worn] as const) },
            {
              set: RESTORES,
              put: kept === null ? [] : [[key, kept]],
              remove: kept === null && held !== undefined ? [key] : [],
            },
            { set: UNRESTORED, put: news === null ? [] : [[key, news]], remove: isSettled ? [key] : [] },
          ],
          () => [
            ...ended.map((each) => resultEvent(each.command, each.finish, changedAt)),
            resultEvent(command, finish, changedAt),
            ...(news === null ? [] : [notRestoredEvent(news)]),
          ],
        );
        for (const id of [command.id, ...endedIds]) {
          open.delete(id);
          finished.set(id, changedAt);
        }
        seconded.delete(command.id);
        if (hasLeft) lastSent.set(key, done);
        wear.remember(wearing);
        if (kept === null) restores.delete(key);
        else restores.set(key, kept);
        if (news !== null) lost.set(key, news);
        if (isSettled) lost.delete(key);
        return true;
      }),

    tell: (notices) =>
      inTurn(async () => {
        const at = isoUtc(clock.now());
        await commit(
          notices.map(({ replyTo: _replyTo, correlation: _correlation, ...told }) => ({
            at,
            commandId: told.commandId,
            step: told.outcome,
            detail: told,
          })),
          [],
          (hashes) => notices.map((notice, index) => warningEvent(notice, at, hashes[index] ?? at)),
        );
      }),

    note: (step, detail, documents = []) =>
      inTurn(() => commit([{ at: isoUtc(clock.now()), commandId: "-", step, detail }], documents)),

    entry: (id) => open.get(id),
    knows: (id) => open.has(id) || finished.has(id),
    open: () => [...open.values()],
    isUnderWay(tag) {
      const key = tagKey(tag);
      return [...open.values()].some((entry) => entry.state === "sending" && tagKey(entry.command) === key);
    },
    isUnproved(command) {
      const last = lastSent.get(tagKey(command));
      // Any later reading of the sent value proves the write.
      if (last?.sent === undefined || sameValue(last.sent.value, command.value)) return false;
      return ["mismatch", "unknown", "accepted-unverified"].includes(last.state);
    },
    wear,
    auditSize,
    restores: () => [...restores.values()],
    restoreBy,
    unrestored: () => [...lost.values()],
    forgetUnrestored: (known) =>
      inTurn(async () => {
        const key = tagKey(known);
        if (lost.get(key)?.commandId !== known.commandId) return;
        await store.commit({ documents: [{ set: UNRESTORED, remove: [key] }] });
        lost.delete(key);
      }),

    publishHead: () =>
      inTurn(async () => {
        const records = auditSize.records();
        if (records === 0) return;
        await store.commit({ events: [auditHeadEvent({ records, head: tip }, isoUtc(clock.now()))] });
      }),
    tidy: () =>
      inTurn(async () => {
        await auditSize.remember();
        const limit = isoUtc(clock.now() - KEEP_MS);
        const old = [...finished].filter(([, endedAt]) => endedAt < limit).map(([id]) => id);
        if (old.length === 0) return;
        await store.commit({ documents: [{ set: COMMANDS, remove: old }] });
        for (const id of old) finished.delete(id);
        for (const [key, { changedAt }] of lastSent) if (changedAt < limit) lastSent.delete(key);
      }),
  };
}

function supersededAt(changedAt: string): StoredEntry {
  return { state: "superseded", changedAt };
}

/** Request, requester and limits of an accepted command. */
function asked({ command, entry }: Accepted): Readonly<Record<string, unknown>> {
  const { replyTo: _replyTo, correlation: _correlation, id: _id, ...told } = command;
  return { ...told, limits: entry };
}

function audited(
  command: Command,
  step: CommandState | "seconded" | "not-restored",
  at: string,
  detail: Readonly<Record<string, unknown>>,
): AuditEntry {
  return { at, commandId: command.id, step, detail };
}
