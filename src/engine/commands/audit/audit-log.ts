import { createHash } from "node:crypto";
import type { AuditHead } from "../../../core/model/command-event-data.ts";
import { type Event, makeEvent } from "../../../core/model/event.ts";
import type { Store } from "../../store/store.ts";

/** Each record of the audit log contains the hash of the previous record, so that a changed record is detected. */
export const AUDIT_LOG = "audit";

export interface AuditLogEntry {
  readonly at: string;
  readonly commandId: string;
  readonly step: string;
  readonly detail: Readonly<Record<string, unknown>>;
}

export interface AuditRecord extends AuditLogEntry {
  readonly previous: string;
  readonly hash: string;
}

export const AUDIT_START_HASH = "0".repeat(64);

export function hashEntry(previous: string, entry: AuditLogEntry): AuditRecord {
  const { at, commandId, step, detail } = entry;
  const auditRecordHash = createHash("sha256")
    .update(JSON.stringify([previous, at, commandId, step, sortKeysDeeply(detail)]))
    .digest("hex");
  return { at, commandId, step, detail, previous, hash: auditRecordHash };
}

/** Sorts the keys of nested objects, so that the hash of a record does not depend on their order. */
export function sortKeysDeeply(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sortKeysDeeply);
  if (typeof value !== "object" || value === null) return value;
  return Object.entries(value)
    .filter(([, inner]) => inner !== undefined)
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, inner]) => [key, sortKeysDeeply(inner)]);
}

export function buildAuditHeadEvent({ records, head }: AuditHead, time: string): Event<"audit-head"> {
  return makeEvent({
    type: "audit-head",
    source: "/plenum",
    subject: "audit",
    time,
    facts: [records, head, time],
    data: { records, head },
  });
}

export interface AuditVerdict {
  readonly records: number;
  readonly head: string;
  readonly hasExpected: boolean | null;
  /** Sequence number of the first invalid audit record; null if all records are valid. */
  readonly brokenAt: number | null;
}

/** Checks the complete audit log. Detects removed last records only with `expected`, an earlier count and hash. */
export async function verifyAudit(store: Store, expected: AuditHead | null = null): Promise<AuditVerdict> {
  let hasExpected = expected === null ? null : expected.records === 0;
  let previousHash = AUDIT_START_HASH;
  let records = 0;
  let lastSequence = 0;
  for (;;) {
    const auditRecordPage = await store.records<AuditRecord>(AUDIT_LOG, lastSequence, 1000);
    if (auditRecordPage.length === 0) return { records, head: previousHash, hasExpected, brokenAt: null };
    for (const { sequence, body } of auditRecordPage) {
      const expectedRecord = hashEntry(previousHash, body);
      if (body.previous !== previousHash || body.hash !== expectedRecord.hash || sequence !== lastSequence + 1)
        return { records, head: previousHash, hasExpected, brokenAt: sequence };
      previousHash = body.hash;
      lastSequence = sequence;
      records += 1;
      if (records === expected?.records) hasExpected = body.hash === expected.head;
    }
  }
}

export type AuditLogSize = Awaited<ReturnType<typeof openAuditLogSize>>;

const AUDIT_SIZE_SET = "command-audit";
const AUDIT_SIZE_KEY = "size";
const AUDIT_RECORDS_PER_READ = 1_000;

export async function openAuditLogSize(store: Store) {
  const storedSize = await store.document<{ bytes: number; through: number }>(AUDIT_SIZE_SET, AUDIT_SIZE_KEY);
  let { bytes, through } = storedSize ?? { bytes: 0, through: 0 };
  function add(records: readonly AuditRecord[]): void {
    for (const record of records) bytes += Buffer.byteLength(JSON.stringify(record));
    through += records.length;
  }
  for (;;) {
    const auditRecordPage = await store.records<AuditRecord>(AUDIT_LOG, through, AUDIT_RECORDS_PER_READ);
    if (auditRecordPage.length === 0) break;
    add(auditRecordPage.map(({ body }) => body));
    through = auditRecordPage.at(-1)?.sequence ?? through;
  }
  return {
    bytes: () => bytes,
    recordCount: () => through,
    add,
    async storeSize(): Promise<void> {
      await store.commit({ documents: [{ set: AUDIT_SIZE_SET, put: [[AUDIT_SIZE_KEY, { bytes, through }]] }] });
    },
  };
}
