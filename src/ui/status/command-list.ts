import type { Tag, TagValue } from "../../core/model/building.ts";
import { AUDIT_LOG, type AuditRecord } from "../../engine/commands/audit/audit-log.ts";
import { documentSet, type LogRecord, type Store } from "../../engine/store/store.ts";
import type { StoredObject } from "../../engine/sync/stored-documents.ts";
import type { CommandsQuery } from "./query-parameters.ts";

export interface CommandRow {
  readonly id: string;
  readonly tagId: string | null;
  readonly source: string | null;
  readonly tag: string | null;
  readonly requested: TagValue;
  readonly by: string;
  readonly at: string;
  /** State of the command, such as accepted, sending, confirmed, rejected or unknown. */
  readonly state: string;
  readonly words: string;
}

export type ListCommands = (query: CommandsQuery) => Promise<readonly CommandRow[]>;

const MAX_RECORDS = 2_000;

export function createCommandLister(store: Pick<Store, "document" | "lastRecord" | "records">): ListCommands {
  let cachedRows: { readonly sequence: number; readonly rows: readonly CommandRow[] } = { sequence: 0, rows: [] };
  async function addTagName(row: CommandRow): Promise<CommandRow> {
    if (row.source === null || row.tagId === null) return row;
    const storedTag = await store.document<StoredObject<Tag>>(documentSet("tag", row.source), row.tagId);
    return { ...row, tag: storedTag?.value.displayName ?? null };
  }
  return async ({ source, tag, limit }) => {
    const lastSequence = (await store.lastRecord<AuditRecord>(AUDIT_LOG))?.sequence ?? 0;
    if (lastSequence !== cachedRows.sequence) {
      const records = await store.records<AuditRecord>(AUDIT_LOG, Math.max(0, lastSequence - MAX_RECORDS), MAX_RECORDS);
      cachedRows = { sequence: lastSequence, rows: commandsFromAudit(records) };
    }
    const matchingCommands = cachedRows.rows.filter(
      (row) => (source === undefined || row.source === source) && (tag === undefined || row.tagId === tag),
    );
    return Promise.all(matchingCommands.slice(0, limit).map(addTagName));
  };
}

/** Fields of an audit record about a command; see `src/engine/commands/journal.ts`. */
interface AuditCommandDetail {
  readonly source?: string | null;
  readonly tagId?: string | null;
  readonly value?: TagValue;
  readonly requested?: TagValue;
  readonly by?: string;
  readonly receivedAt?: string;
  readonly needsSecond?: boolean;
  readonly message?: string;
}

/** Lists commands, newest first. Leaves out commands whose first audit record is older than `records`. */
function commandsFromAudit(records: readonly LogRecord<AuditRecord>[]): readonly CommandRow[] {
  const rowById = new Map<string, CommandRow>();
  for (const { body, damaged } of records) {
    if (damaged === true || body.commandId === "-") continue;
    const { at, commandId, step } = body;
    const detail = body.detail as AuditCommandDetail;
    const row = rowById.get(commandId);
    if (step === "accepted" || (row === undefined && detail.tagId !== undefined)) {
      rowById.set(commandId, {
        id: commandId,
        tagId: detail.tagId ?? null,
        source: detail.source ?? null,
        tag: null,
        requested: detail.value ?? detail.requested ?? null,
        by: detail.by ?? "unknown",
        at: detail.receivedAt ?? at,
        state: step,
        words: stateText(step, detail),
      });
    } else if (row !== undefined && step !== "not-restored" && step !== "duplicate") {
      // A record `duplicate` belongs to another command with the same id, which was rejected.
      rowById.set(commandId, { ...row, state: step === "seconded" ? row.state : step, words: stateText(step, detail) });
    }
  }
  return [...rowById.values()].reverse();
}

function stateText(step: string, { message, needsSecond, by }: AuditCommandDetail): string {
  if (step === "accepted")
    return needsSecond === true ? "It waits for a second person." : "It waits for its turn to be sent.";
  if (step === "seconded") return `${by ?? "A second person"} has agreed; it waits for its turn to be sent.`;
  if (step === "sending") return "It was sent; whether the building has taken it is not known yet.";
  return message ?? step;
}
