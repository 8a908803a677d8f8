import type { TagScalar, TagValue } from "../../core/model/building.ts";
import type { Event } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { serialRunner } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { DocumentChange, Store } from "../store/store.ts";
import {
  AUDIT_LOG,
  type AuditEntry,
  type AuditRecord,
  auditHeadEvent,
  CHAIN_START,
  hashEntry,
  openAuditSize,
} from "./audit/audit-log.ts";
import { type Command, type CommandEnd, type CommandState, tagKey } from "./command.ts";
import type { AllowedTag } from "./config.ts";
import { sameValue } from "./gate.ts";
import { acceptedEvent, type MessageResult, messageEvent, resultEvent } from "./result-event.ts";
import {
  createPromise,
  endTakenOver,
  isUnrestored,
  isWritten,
  notRestoredEvent,
  RESTORE_SET,
  type Restore,
  restoreChain,
  restoreId,
  restoresAfter,
  toUnrestored,
  UNRESTORED_SET,
  type UnrestoredValue,
} from "./timed-writes.ts";
import { createWriteCountLimit, WRITE_COUNT_SET, type WriteCount } from "./write-count-limit.ts";

/**
 * Stores each step of a command before it happens:
 *
 *   accepted (before the broker is acknowledged) ─► sending (before the request) ─► outcome, with its event
 *
 * A step is one transaction with its audit record. When it cannot be recorded, it does not happen.
 */
export type Journal = Awaited<ReturnType<typeof openJournal>>;

export interface AcceptedCommand {
  readonly command: Command;
  readonly entry: AllowedTag;
}

export interface SentCommand extends AcceptedCommand {
  readonly before: TagValue;
}

export interface OpenEntry {
  readonly command: Command;
  readonly state: "accepted" | "sending";
  readonly changedAt: string;
}

interface StoredEntry {
  readonly state: CommandState;
  readonly changedAt: string;
  readonly command?: Command;
  readonly sent?: { readonly tag: string; readonly value: TagScalar };
}

const COMMAND_SET = "command";
const ENTRY_RETENTION_MS = 7 * 86_400_000;

export async function openJournal(options: {
  readonly store: Store;
  readonly clock: Clock;
  /** A rehearsal has its own write counts. */
  readonly rehearsal: boolean;
  readonly expectedWaitMs: (source: string) => number;
}) {
  const { store, clock, rehearsal, expectedWaitMs } = options;
  const writeCountSet = rehearsal ? `${WRITE_COUNT_SET}-rehearsal` : WRITE_COUNT_SET;
  const openById = new Map<string, OpenEntry>();
  const finished = new Map<string, string>();
  /** Last finished write of each tag, for `isUnproved`. */
  const lastSent = new Map<string, StoredEntry>();
  for (const [id, stored] of await store.documents<StoredEntry>(COMMAND_SET)) {
    const { state, changedAt, command, sent } = stored;
    const isOpen = command !== undefined && (state === "accepted" || state === "sending");
    if (isOpen) openById.set(id, { command, state, changedAt });
    else finished.set(id, changedAt);
    if (sent !== undefined && changedAt > (lastSent.get(sent.tag)?.changedAt ?? "")) lastSent.set(sent.tag, stored);
  }
  for (const id of await store.damagedKeys(COMMAND_SET)) if (!openById.has(id)) finished.set(id, isoUtc(clock.now()));
  const secondedIds = new Set<string>();
  const writeCounts = createWriteCountLimit(await store.documents<WriteCount>(writeCountSet), clock);
  const restores = await store.documents<Restore>(RESTORE_SET);
  const unrestoredValues = await store.documents<UnrestoredValue>(UNRESTORED_SET);
  const auditSize = await openAuditSize(store);
  let tip = (await store.lastRecord<AuditRecord>(AUDIT_LOG))?.body.hash ?? CHAIN_START;
  /** The audit chain has one tip, so steps run one at a time. */
  const runInTurn = serialRunner();

  async function commit(
    audits: readonly AuditEntry[],
    documents: readonly DocumentChange[],
    events: (hashes: readonly string[]) => readonly Event[] = () => [],
  ): Promise<void> {
    const records: AuditRecord[] = [];
    for (const audit of audits) records.push(hashEntry(records.at(-1)?.hash ?? tip, audit));
    const hashes = records.map(({ hash }) => hash);
    await store.commit({
      documents,
      events: events(hashes),
      records: records.map((body) => ({ log: AUDIT_LOG, body })),
    });
    tip = hashes.at(-1) ?? tip;
    auditSize.add(records);
  }

  function findRestore(commandId: string): Restore | undefined {
    return [...restores.values()].flatMap(restoreChain).find(({ command }) => restoreId(command.id) === commandId);
  }

  function unseconded(id: string): Command | undefined {
    const entry = openById.get(id);
    const isWaiting = entry?.state === "accepted" && entry.command.needsSecond && !secondedIds.has(id);
    return isWaiting ? entry.command : undefined;
  }

  function putEntries(commands: readonly Command[], state: OpenEntry["state"], changedAt: string) {
    return commands.map((command) => [command.id, { command, state, changedAt }] as const);
  }

  return {
    accept: (all: readonly AcceptedCommand[]): Promise<readonly AcceptedCommand[]> =>
      runInTurn(async () => {
        const changedAt = isoUtc(clock.now());
        const newCommands = all.filter(({ command }) => !openById.has(command.id) && !finished.has(command.id));
        if (newCommands.length === 0) return newCommands;
        const commands = newCommands.map(({ command }) => command);
        const entries = putEntries(commands, "accepted", changedAt);
        await commit(
          newCommands.map(({ command, entry }) => {
            const { replyTo: _replyTo, correlation: _correlation, id: _id, ...request } = command;
            return buildAuditEntry(command, "accepted", changedAt, { ...request, limits: entry });
          }),
          [{ set: COMMAND_SET, insert: entries }],
          () => commands.map((command) => acceptedEvent(command, expectedWaitMs(command.source), changedAt)),
        );
        for (const [id, entry] of entries) openById.set(id, entry);
        return newCommands;
      }),
    sending: (leaving: readonly SentCommand[]): Promise<void> =>
      runInTurn(async () => {
        const changedAt = isoUtc(clock.now());
        const commands = leaving.map(({ command }) => command);
        const group = commands.map(({ id }) => id);
        const entries = putEntries(commands, "sending", changedAt);
        const counts = writeCounts.writing(commands);
        const restoreEntries = leaving.flatMap(({ command, before }) => {
          // A command that restores a value keeps its promise until it has ended.
          if (command.forMs === null || before === null || findRestore(command.id) !== undefined) return [];
          const key = tagKey(command);
          return [[key, createPromise(command, before, restores.get(key), clock.now())] as const];
        });
        await commit(
          leaving.map(({ command, before }) => buildAuditEntry(command, "sending", changedAt, { before, group })),
          [
            { set: COMMAND_SET, put: entries },
            { set: writeCountSet, put: counts },
            { set: RESTORE_SET, put: restoreEntries },
          ],
          (hashes) => [
            auditHeadEvent({ records: auditSize.records() + hashes.length, head: hashes.at(-1) ?? tip }, changedAt),
          ],
        );
        for (const [id, entry] of entries) openById.set(id, entry);
        writeCounts.remember(counts);
        for (const [key, promise] of restoreEntries) restores.set(key, promise);
      }),
    second: (id: string, by: string): Promise<boolean> =>
      runInTurn(async () => {
        const command = unseconded(id);
        if (command === undefined) return false;
        await commit([buildAuditEntry(command, "seconded", isoUtc(clock.now()), { by })], []);
        secondedIds.add(id);
        return true;
      }),
    unseconded,
    /** Records the outcome; returns false when the command had ended before. Also ends the restores that it settles. */
    finish: (command: Command, finish: CommandEnd): Promise<boolean> =>
      runInTurn(async () => {
        const restore = findRestore(command.id);
        if (!openById.has(command.id) && restore === undefined) return false;
        const changedAt = isoUtc(clock.now());
        const key = tagKey(command);
        const wasSent = openById.get(command.id)?.state === "sending";
        const sent = wasSent ? { sent: { tag: key, value: command.value } } : {};
        const endEntry: StoredEntry = { state: finish.outcome, changedAt, ...sent };
        const counts = writeCounts.writing(finish.rehearsal === true ? [command] : []);
        const storedRestore = restores.get(key);
        const { current, over } = restoresAfter(command, finish, storedRestore, clock.now());
        const endedRestores = over.map(endTakenOver);
        const endedIds = endedRestores.map((each) => each.command.id).filter((id) => openById.has(id));
        const oldEntry: StoredEntry = { state: "superseded", changedAt };
        const failure = restore !== undefined && isUnrestored(finish) ? toUnrestored(restore, finish, changedAt) : null;
        const isPromiseOver = failure === null && unrestoredValues.has(key) && isWritten(finish);
        await commit(
          [
            ...endedRestores.map((each) => buildAuditEntry(each.command, "superseded", changedAt, { ...each.finish })),
            buildAuditEntry(command, finish.outcome, changedAt, { ...finish }),
            ...(failure === null ? [] : [buildAuditEntry(command, "not-restored", changedAt, { ...failure })]),
          ],
          [
            { set: COMMAND_SET, put: [[command.id, endEntry], ...endedIds.map((id) => [id, oldEntry] as const)] },
            { set: writeCountSet, put: counts },
            current === null
              ? { set: RESTORE_SET, remove: storedRestore === undefined ? [] : [key] }
              : { set: RESTORE_SET, put: [[key, current]] },
            { set: UNRESTORED_SET, put: failure === null ? [] : [[key, failure]], remove: isPromiseOver ? [key] : [] },
          ],
          () => [
            ...endedRestores.map((each) => resultEvent(each.command, each.finish, changedAt)),
            resultEvent(command, finish, changedAt),
            ...(failure === null ? [] : [notRestoredEvent(failure)]),
          ],
        );
        for (const id of [command.id, ...endedIds]) {
          openById.delete(id);
          finished.set(id, changedAt);
        }
        secondedIds.delete(command.id);
        if (wasSent) lastSent.set(key, endEntry);
        writeCounts.remember(counts);
        if (current === null) restores.delete(key);
        else restores.set(key, current);
        if (failure !== null) unrestoredValues.set(key, failure);
        if (isPromiseOver) unrestoredValues.delete(key);
        return true;
      }),
    report: (results: readonly MessageResult[]): Promise<void> =>
      runInTurn(async () => {
        const at = isoUtc(clock.now());
        await commit(
          results.map(({ replyTo: _replyTo, correlation: _correlation, ...detail }) => ({
            at,
            commandId: detail.commandId,
            step: detail.outcome,
            detail,
          })),
          [],
          (hashes) => results.map((result, index) => messageEvent(result, at, hashes[index] ?? at)),
        );
      }),
    note: (
      step: string,
      detail: Readonly<Record<string, unknown>>,
      documents: readonly DocumentChange[] = [],
    ): Promise<void> => runInTurn(() => commit([{ at: isoUtc(clock.now()), commandId: "-", step, detail }], documents)),
    knows: (id: string): boolean => openById.has(id) || finished.has(id),
    entry: (id: string): OpenEntry | undefined => openById.get(id),
    open: (): readonly OpenEntry[] => [...openById.values()],
    /** True from `sending` to the outcome of a write of the tag. */
    isUnderWay(tag: { readonly source: string; readonly tagId: string }): boolean {
      const key = tagKey(tag);
      return [...openById.values()].some((entry) => entry.state === "sending" && tagKey(entry.command) === key);
    },
    /** True when the tag's last write, within a week, was of another value that the tag never had. */
    isUnproved(command: Pick<Command, "source" | "tagId" | "value">): boolean {
      const lastWrite = lastSent.get(tagKey(command));
      // Any later reading of the sent value proves the write.
      if (lastWrite?.sent === undefined || sameValue(lastWrite.sent.value, command.value)) return false;
      return ["mismatch", "unknown", "accepted-unverified"].includes(lastWrite.state);
    },
    writeCounts: { ofTag: writeCounts.ofTag, lastHour: writeCounts.lastHour },
    auditSize,
    restores: (): readonly Restore[] => [...restores.values()],
    restoreBy: findRestore,
    unrestored: (): readonly UnrestoredValue[] => [...unrestoredValues.values()],
    forgetUnrestored: (past: UnrestoredValue): Promise<void> =>
      runInTurn(async () => {
        const key = tagKey(past);
        if (unrestoredValues.get(key)?.commandId !== past.commandId) return;
        await store.commit({ documents: [{ set: UNRESTORED_SET, remove: [key] }] });
        unrestoredValues.delete(key);
      }),
    publishHead: (): Promise<void> =>
      runInTurn(async () => {
        const records = auditSize.records();
        if (records === 0) return;
        await store.commit({ events: [auditHeadEvent({ records, head: tip }, isoUtc(clock.now()))] });
      }),
    tidy: (): Promise<void> =>
      runInTurn(async () => {
        await auditSize.remember();
        const limit = isoUtc(clock.now() - ENTRY_RETENTION_MS);
        const oldIds = [...finished].filter(([, endedAt]) => endedAt < limit).map(([id]) => id);
        if (oldIds.length === 0) return;
        await store.commit({ documents: [{ set: COMMAND_SET, remove: oldIds }] });
        for (const id of oldIds) finished.delete(id);
        for (const [key, { changedAt }] of lastSent) if (changedAt < limit) lastSent.delete(key);
      }),
  };
}

function buildAuditEntry(
  command: Command,
  step: CommandState | "seconded" | "not-restored",
  at: string,
  detail: Readonly<Record<string, unknown>>,
): AuditEntry {
  return { at, commandId: command.id, step, detail };
}
