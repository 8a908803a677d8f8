import type { TagScalar, TagValue } from "../../core/model/building.ts";
import type { Event } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { createSerialRunner } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { DocumentChange, Store } from "../store/store.ts";
import {
  AUDIT_LOG,
  AUDIT_START_HASH,
  type AuditLogEntry,
  type AuditRecord,
  buildAuditHeadEvent,
  hashEntry,
  openAuditLogSize,
} from "./audit/audit-log.ts";
import { type Command, type CommandEnd, tagKey, type WriteCommandState } from "./command.ts";
import type { AllowedTag } from "./config.ts";
import { isSameValue } from "./gate.ts";
import {
  buildNotRestoredEvent,
  buildSupersededRestore,
  createRestore,
  isCommandWritten,
  isUnrestored,
  listRestoreChain,
  RESTORE_SET,
  type Restore,
  restoreCommandId,
  restoresAfterCommand,
  toUnrestoredValue,
  UNRESTORED_SET,
  type UnrestoredValue,
} from "./pending-value-restores.ts";
import type { EstimateCost } from "./request-cost-of-message.ts";
import { buildAcceptedEvent, buildCommandResultEvent, buildResultEvent, type MessageResult } from "./result-event.ts";
import { createWriteCountLimit, WRITE_COUNT_SET, type WriteTimes } from "./write-count-limit.ts";

/**
 * Stores each step of a command before it happens, in one transaction with its audit record:
 *   accepted (before the broker is acknowledged) ─► sending (before the request) ─► outcome, with its event
 */
export type Journal = Awaited<ReturnType<typeof openCommandJournal>>;

export interface AcceptedCommand {
  readonly command: Command;
  readonly allowedTag: AllowedTag;
  /** All commands of the same message; absent for a command that puts an old value back. */
  readonly scene?: CommandScene;
}

/** The commands of one message. If the message has over 20 commands, all are checked before the first is sent. */
export interface CommandScene {
  isChecked: boolean;
}

export interface SentCommand extends AcceptedCommand {
  readonly before: TagValue;
}

export interface OpenCommandEntry {
  readonly command: Command;
  readonly state: "accepted" | "sending";
  readonly changedAt: string;
}

interface StoredCommandEntry {
  readonly state: WriteCommandState;
  readonly changedAt: string;
  readonly command?: Command;
  readonly sent?: { readonly tag: string; readonly value: TagScalar };
}

const COMMAND_SET = "command";
const COMMAND_RETENTION_MS = 7 * 86_400_000;

export async function openCommandJournal(options: {
  readonly store: Store;
  readonly clock: Clock;
  readonly rehearsal: boolean;
  readonly estimateCost: EstimateCost;
}) {
  const { store, clock, rehearsal, estimateCost } = options;
  const writeCountSet = rehearsal ? `${WRITE_COUNT_SET}-rehearsal` : WRITE_COUNT_SET;
  const openCommands = new Map<string, OpenCommandEntry>();
  const endTimeById = new Map<string, string>();
  const lastSentByTag = new Map<string, StoredCommandEntry>();
  for (const [id, stored] of await store.documents<StoredCommandEntry>(COMMAND_SET)) {
    const { state, changedAt, command, sent } = stored;
    const isCommandOpen = command !== undefined && (state === "accepted" || state === "sending");
    if (isCommandOpen) openCommands.set(id, { command, state, changedAt });
    else endTimeById.set(id, changedAt);
    if (sent !== undefined && changedAt > (lastSentByTag.get(sent.tag)?.changedAt ?? ""))
      lastSentByTag.set(sent.tag, stored);
  }
  for (const id of await store.damagedKeys(COMMAND_SET))
    if (!openCommands.has(id)) endTimeById.set(id, isoUtc(clock.now()));
  const approvedIds = new Set<string>();
  const writeCounts = createWriteCountLimit(await store.documents<WriteTimes>(writeCountSet), clock);
  const restoresByTag = await store.documents<Restore>(RESTORE_SET);
  const unrestoredValues = await store.documents<UnrestoredValue>(UNRESTORED_SET);
  const auditSize = await openAuditLogSize(store);
  let lastAuditHash = (await store.lastRecord<AuditRecord>(AUDIT_LOG))?.body.hash ?? AUDIT_START_HASH;
  /** Runs one step at a time, because each audit record contains the hash of the previous record. */
  const runSerially = createSerialRunner();

  async function commit(
    auditEntries: readonly AuditLogEntry[],
    documents: readonly DocumentChange[],
    buildEvents: (hashes: readonly string[]) => readonly Event[] = () => [],
  ): Promise<void> {
    const auditRecords: AuditRecord[] = [];
    for (const auditLogEntry of auditEntries)
      auditRecords.push(hashEntry(auditRecords.at(-1)?.hash ?? lastAuditHash, auditLogEntry));
    const hashes = auditRecords.map(({ hash }) => hash);
    await store.commit({
      documents,
      events: buildEvents(hashes),
      records: auditRecords.map((body) => ({ log: AUDIT_LOG, body })),
    });
    lastAuditHash = hashes.at(-1) ?? lastAuditHash;
    auditSize.add(auditRecords);
  }

  function findRestoreOfCommand(commandId: string): Restore | undefined {
    return [...restoresByTag.values()]
      .flatMap(listRestoreChain)
      .find(({ command }) => restoreCommandId(command.id) === commandId);
  }

  function findUnsecondedCommand(id: string): Command | undefined {
    const entry = openCommands.get(id);
    const isAwaitingSecondPerson = entry?.state === "accepted" && entry.command.needsSecond && !approvedIds.has(id);
    return isAwaitingSecondPerson ? entry.command : undefined;
  }

  function buildOpenEntries(commands: readonly Command[], state: OpenCommandEntry["state"], changedAt: string) {
    return commands.map((command) => [command.id, { command, state, changedAt }] as const);
  }

  return {
    accept: (commandsToAccept: readonly AcceptedCommand[]): Promise<readonly AcceptedCommand[]> =>
      runSerially(async () => {
        const changedAt = isoUtc(clock.now());
        const newCommands = commandsToAccept.filter(
          ({ command }) => !openCommands.has(command.id) && !endTimeById.has(command.id),
        );
        if (newCommands.length === 0) return newCommands;
        const commands = newCommands.map(({ command }) => command);
        const openEntries = buildOpenEntries(commands, "accepted", changedAt);
        const costEstimate = estimateCost(newCommands);
        await commit(
          newCommands.map(({ command, allowedTag }) => {
            const { replyTo: _replyTo, correlation: _correlation, id: _id, ...request } = command;
            return buildAuditEntry(command, "accepted", changedAt, { ...request, limits: allowedTag });
          }),
          [{ set: COMMAND_SET, insert: openEntries }],
          () => commands.map((command, index) => buildAcceptedEvent(command, costEstimate, index, changedAt)),
        );
        for (const [id, entry] of openEntries) openCommands.set(id, entry);
        return newCommands;
      }),
    recordSending: (commandsToSend: readonly SentCommand[]): Promise<void> =>
      runSerially(async () => {
        const changedAt = isoUtc(clock.now());
        const commands = commandsToSend.map(({ command }) => command);
        const group = commands.map(({ id }) => id);
        const openEntries = buildOpenEntries(commands, "sending", changedAt);
        const newWriteCounts = writeCounts.documentsForWrites(commands);
        const restoreEntries = commandsToSend.flatMap(({ command, before }) => {
          // A command that puts an old value back needs no restore of its own.
          if (command.forMs === null || before === null || findRestoreOfCommand(command.id) !== undefined) return [];
          const key = tagKey(command);
          return [[key, createRestore(command, before, restoresByTag.get(key), clock.now())] as const];
        });
        await commit(
          commandsToSend.map(({ command, before }) =>
            buildAuditEntry(command, "sending", changedAt, { before, group }),
          ),
          [
            { set: COMMAND_SET, put: openEntries },
            { set: writeCountSet, put: newWriteCounts },
            { set: RESTORE_SET, put: restoreEntries },
          ],
          (hashes) => [
            buildAuditHeadEvent(
              { records: auditSize.recordCount() + hashes.length, head: hashes.at(-1) ?? lastAuditHash },
              changedAt,
            ),
          ],
        );
        for (const [id, entry] of openEntries) openCommands.set(id, entry);
        writeCounts.applyCommittedWrites(newWriteCounts);
        for (const [key, restore] of restoreEntries) restoresByTag.set(key, restore);
      }),
    recordSecondApproval: (id: string, by: string): Promise<boolean> =>
      runSerially(async () => {
        const command = findUnsecondedCommand(id);
        if (command === undefined) return false;
        await commit([buildAuditEntry(command, "seconded", isoUtc(clock.now()), { by })], []);
        approvedIds.add(id);
        return true;
      }),
    findUnsecondedCommand,
    /** Records how a command ended. Returns false if the command had ended before. */
    recordEnding: (command: Command, ending: CommandEnd): Promise<boolean> =>
      runSerially(async () => {
        const restore = findRestoreOfCommand(command.id);
        if (!openCommands.has(command.id) && restore === undefined) return false;
        const changedAt = isoUtc(clock.now());
        const key = tagKey(command);
        const wasSent = openCommands.get(command.id)?.state === "sending";
        const sentValue = wasSent ? { sent: { tag: key, value: command.value } } : {};
        const endedEntry: StoredCommandEntry = { state: ending.outcome, changedAt, ...sentValue };
        const newWriteCounts = writeCounts.documentsForWrites(ending.rehearsal === true ? [command] : []);
        const storedRestore = restoresByTag.get(key);
        const { remainingRestore, endedRestores: replacedRestores } = restoresAfterCommand(
          command,
          ending,
          storedRestore,
          clock.now(),
        );
        const endedRestores = replacedRestores.map(buildSupersededRestore);
        const endedIds = endedRestores.map((each) => each.command.id).filter((id) => openCommands.has(id));
        const oldEntry: StoredCommandEntry = { state: "superseded", changedAt };
        const failure =
          restore !== undefined && isUnrestored(ending) ? toUnrestoredValue(restore, ending, changedAt) : null;
        const isResolved = failure === null && unrestoredValues.has(key) && isCommandWritten(ending);
        await commit(
          [
            ...endedRestores.map((each) => buildAuditEntry(each.command, "superseded", changedAt, { ...each.ending })),
            buildAuditEntry(command, ending.outcome, changedAt, { ...ending }),
            ...(failure === null ? [] : [buildAuditEntry(command, "not-restored", changedAt, { ...failure })]),
          ],
          [
            { set: COMMAND_SET, put: [[command.id, endedEntry], ...endedIds.map((id) => [id, oldEntry] as const)] },
            { set: writeCountSet, put: newWriteCounts },
            remainingRestore === null
              ? { set: RESTORE_SET, remove: storedRestore === undefined ? [] : [key] }
              : { set: RESTORE_SET, put: [[key, remainingRestore]] },
            { set: UNRESTORED_SET, put: failure === null ? [] : [[key, failure]], remove: isResolved ? [key] : [] },
          ],
          () => [
            ...endedRestores.map((each) => buildCommandResultEvent(each.command, each.ending, changedAt)),
            buildCommandResultEvent(command, ending, changedAt),
            ...(failure === null ? [] : [buildNotRestoredEvent(failure)]),
          ],
        );
        for (const id of [command.id, ...endedIds]) {
          openCommands.delete(id);
          endTimeById.set(id, changedAt);
        }
        approvedIds.delete(command.id);
        if (wasSent) lastSentByTag.set(key, endedEntry);
        writeCounts.applyCommittedWrites(newWriteCounts);
        if (remainingRestore === null) restoresByTag.delete(key);
        else restoresByTag.set(key, remainingRestore);
        if (failure !== null) unrestoredValues.set(key, failure);
        if (isResolved) unrestoredValues.delete(key);
        return true;
      }),
    recordResults: (results: readonly MessageResult[]): Promise<void> =>
      runSerially(async () => {
        const at = isoUtc(clock.now());
        await commit(
          results.map(({ replyTo: _replyTo, correlation: _correlation, ...detail }) => ({
            at,
            commandId: detail.commandId,
            step: detail.outcome,
            detail,
          })),
          [],
          (hashes) => results.map((result, index) => buildResultEvent(result, at, hashes[index] ?? at)),
        );
      }),
    recordAudit: (
      step: string,
      detail: Readonly<Record<string, unknown>>,
      documents: readonly DocumentChange[] = [],
    ): Promise<void> =>
      runSerially(() => commit([{ at: isoUtc(clock.now()), commandId: "-", step, detail }], documents)),
    isKnownId: (id: string): boolean => openCommands.has(id) || endTimeById.has(id),
    findKnownId: (idPrefix: string): string | undefined =>
      [...openCommands.keys(), ...endTimeById.keys()].find((id) => id.startsWith(idPrefix)),
    findOpenCommand: (id: string): OpenCommandEntry | undefined => openCommands.get(id),
    listOpenCommands: (): readonly OpenCommandEntry[] => [...openCommands.values()],
    /** Returns the keys of tags whose last write was sent and has no result yet. */
    tagsBeingWritten: (): ReadonlySet<string> =>
      new Set([...openCommands.values()].flatMap(({ command, state }) => (state === "sending" ? tagKey(command) : []))),
    /** True if the tag's last write of this week was another value that no reading has confirmed. */
    isLastWriteUnverified(command: Pick<Command, "source" | "tagId" | "value">): boolean {
      const lastSentWrite = lastSentByTag.get(tagKey(command));
      if (lastSentWrite?.sent === undefined || isSameValue(lastSentWrite.sent.value, command.value)) return false;
      return ["mismatch", "unknown", "accepted-unverified"].includes(lastSentWrite.state);
    },
    writeCounts: { timesOfTagMs: writeCounts.writeTimesOfTagMs, countLastHour: writeCounts.countLastHour },
    auditSize,
    listRestores: (): readonly Restore[] => [...restoresByTag.values()],
    findRestoreOfCommand,
    listUnrestoredValues: (): readonly UnrestoredValue[] => [...unrestoredValues.values()],
    forgetUnrestored: (unrestoredValue: UnrestoredValue): Promise<void> =>
      runSerially(async () => {
        const key = tagKey(unrestoredValue);
        if (unrestoredValues.get(key)?.commandId !== unrestoredValue.commandId) return;
        await store.commit({ documents: [{ set: UNRESTORED_SET, remove: [key] }] });
        unrestoredValues.delete(key);
      }),
    publishAuditHead: (): Promise<void> =>
      runSerially(async () => {
        const auditRecords = auditSize.recordCount();
        if (auditRecords === 0) return;
        await store.commit({
          events: [buildAuditHeadEvent({ records: auditRecords, head: lastAuditHash }, isoUtc(clock.now()))],
        });
      }),
    deleteOldCommands: (): Promise<void> =>
      runSerially(async () => {
        await auditSize.storeSize();
        const oldestRetainedTime = isoUtc(clock.now() - COMMAND_RETENTION_MS);
        const oldCommandIds = [...endTimeById].filter(([, endedAt]) => endedAt < oldestRetainedTime).map(([id]) => id);
        if (oldCommandIds.length === 0) return;
        await store.commit({ documents: [{ set: COMMAND_SET, remove: oldCommandIds }] });
        for (const id of oldCommandIds) endTimeById.delete(id);
        for (const [key, { changedAt }] of lastSentByTag) if (changedAt < oldestRetainedTime) lastSentByTag.delete(key);
      }),
  };
}

function buildAuditEntry(
  command: Command,
  step: WriteCommandState | "seconded" | "not-restored",
  at: string,
  detail: Readonly<Record<string, unknown>>,
): AuditLogEntry {
  return { at, commandId: command.id, step, detail };
}
