import { createHash } from "node:crypto";
import type { Store } from "../../store/store.ts";

/**
 * The audit log: one record for every step of every command, append-only, each holding the hash of the one
 * before. Whoever edits, removes or reorders a record breaks the chain at that place.
 *
 * A record is committed in the same transaction as the step it tells of, and before any write leaves. When it
 * cannot be written, the step does not happen.
 */
export const AUDIT_LOG = "audit";

export interface AuditEntry {
  readonly at: string;
  readonly commandId: string;
  /** `accepted`, `seconded`, `sending`, or a terminal outcome; of no command, what happened to writing as a whole. */
  readonly step: string;
  readonly detail: Readonly<Record<string, unknown>>;
}

export interface AuditRecord extends AuditEntry {
  readonly previous: string;
  readonly hash: string;
}

/** What the first record holds in place of a previous hash. */
export const CHAIN_START = "0".repeat(64);

export function chain(previous: string, entry: AuditEntry): AuditRecord {
  const { at, commandId, step, detail } = entry;
  const hash = createHash("sha256")
    .update(JSON.stringify([previous, at, commandId, step, canonical(detail)]))
    .digest("hex");
  return { at, commandId, step, detail, previous, hash };
}

/** Keys in a fixed order at every depth, so that a record hashes alike however it was stored. */
export function canonical(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(canonical);
  if (typeof value !== "object" || value === null) return value;
  return Object.entries(value)
    .filter(([, inner]) => inner !== undefined)
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, inner]) => [key, canonical(inner)]);
}

export interface AuditVerdict {
  readonly records: number;
  /** Sequence number of the first record that does not fit; null when the chain is whole. */
  readonly brokenAt: number | null;
}

/** Walks the whole log. A missing tail cannot be seen from inside: compare `records` with a copy kept elsewhere. */
export async function verifyAudit(store: Store): Promise<AuditVerdict> {
  let previous = CHAIN_START;
  let records = 0;
  let after = 0;
  for (;;) {
    const page = await store.records<AuditRecord>(AUDIT_LOG, after, 1000);
    if (page.length === 0) return { records, brokenAt: null };
    for (const { sequence, body } of page) {
      const expected = chain(previous, body);
      if (body.previous !== previous || body.hash !== expected.hash || sequence !== after + 1) {
        return { records, brokenAt: sequence };
      }
      previous = body.hash;
      after = sequence;
      records += 1;
    }
  }
}
