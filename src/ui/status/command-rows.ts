import type { Tag, TagValue } from "../../core/model/building.ts";
import { AUDIT_LOG, type AuditRecord } from "../../engine/commands/audit/audit.ts";
import { documentSet, type LogRecord, type Store } from "../../engine/store/store.ts";
import type { Listed } from "../../engine/sync/snapshot.ts";
import type { CommandRow } from "./responses.ts";

/** The last commands and what became of each, as the audit log says, which outlives the log of events. */
export interface CommandRows {
  /** Newest first. */
  list(asked: {
    readonly source?: string | undefined;
    readonly tag?: string | undefined;
    readonly limit: number;
  }): Promise<readonly CommandRow[]>;
}

/** Number of records of the audit log that are read: about 500 commands. */
const RECORDS = 2_000;

export function createCommandRows(store: Pick<Store, "document" | "lastRecord" | "records">): CommandRows {
  let known: { readonly sequence: number; readonly rows: readonly CommandRow[] } = { sequence: 0, rows: [] };

  async function rows(): Promise<readonly CommandRow[]> {
    const sequence = (await store.lastRecord<AuditRecord>(AUDIT_LOG))?.sequence ?? 0;
    if (sequence !== known.sequence) {
      const records = await store.records<AuditRecord>(AUDIT_LOG, Math.max(0, sequence - RECORDS), RECORDS);
      known = { sequence, rows: commandsIn(records) };
    }
    return known.rows;
  }

  async function named(row: CommandRow): Promise<CommandRow> {
    if (row.source === null || row.tagId === null) return row;
    const held = await store.document<Listed<Tag>>(documentSet("tag", row.source), row.tagId);
    return { ...row, tag: held?.value.displayName ?? null };
  }

  return {
    async list({ source, tag, limit }) {
      const fitting = (await rows()).filter(
        (row) => (source === undefined || row.source === source) && (tag === undefined || row.tagId === tag),
      );
      return Promise.all(fitting.slice(0, limit).map(named));
    },
  };
}

/** Fields of an audit record about a command; see `src/engine/commands/journal.ts`. */
interface Detail {
  readonly source?: string | null;
  readonly tagId?: string | null;
  readonly value?: TagValue;
  readonly requested?: TagValue;
  readonly by?: string;
  readonly receivedAt?: string;
  readonly needsSecond?: boolean;
  readonly message?: string;
}

/** One row per command, newest first; commands whose beginning is not in the records are left out. */
export function commandsIn(records: readonly LogRecord<AuditRecord>[]): readonly CommandRow[] {
  const rows = new Map<string, CommandRow>();
  for (const { body, damaged } of records) {
    if (damaged === true || body.commandId === "-") continue;
    const { at, commandId, step } = body;
    const detail = body.detail as Detail;
    const before = rows.get(commandId);
    if (step === "accepted" || (before === undefined && detail.tagId !== undefined)) {
      rows.set(commandId, {
        id: commandId,
        tagId: detail.tagId ?? null,
        source: detail.source ?? null,
        tag: null,
        requested: detail.value ?? detail.requested ?? null,
        by: detail.by ?? "unknown",
        at: detail.receivedAt ?? at,
        state: step,
        words: wordsOf(step, detail),
      });
    } else if (before !== undefined && step !== "not-restored") {
      // A rejected duplicate id is no step of the first command.
      if (step === "duplicate") continue;
      const state = step === "seconded" ? before.state : step;
      rows.set(commandId, { ...before, state, words: wordsOf(step, detail) });
    }
  }
  return [...rows.values()].reverse();
}

function wordsOf(step: string, { message, needsSecond, by }: Detail): string {
  if (step === "accepted")
    return needsSecond === true ? "It waits for a second person." : "It waits for its turn to be sent.";
  if (step === "seconded") return `${by ?? "A second person"} has agreed; it waits for its turn to be sent.`;
  if (step === "sending") return "It was sent; whether the building has taken it is not known yet.";
  return message ?? step;
}
