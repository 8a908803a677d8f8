import { createHash } from "node:crypto";
import type { AuditHead } from "../../../core/model/command-event-data.ts";
import { type Event, makeEvent } from "../../../core/model/event.ts";
import type { Store } from "../../store/store.ts";

/** The audit log: append-only records, each with the hash of the previous one, so an edit breaks the chain. */
export const AUDIT_LOG = "audit";

export interface AuditEntry {
  readonly at: string;
  readonly commandId: string;
  /** `accepted`, `seconded`, `sending`, an outcome, or without a command e.g. `writing-stopped`. */
  readonly step: string;
  readonly detail: Readonly<Record<string, unknown>>;
}

export interface AuditRecord extends AuditEntry {
  readonly previous: string;
  readonly hash: string;
}

export const CHAIN_START = "0".repeat(64);

export function hashEntry(previous: string, entry: AuditEntry): AuditRecord {
  const { at, commandId, step, detail } = entry;
  const hash = createHash("sha256")
    .update(JSON.stringify([previous, at, commandId, step, sortKeys(detail)]))
    .digest("hex");
  return { at, commandId, step, detail, previous, hash };
}

/** Sorts keys at every depth, so that the hash does not depend on how a record was stored. */
export function sortKeys(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sortKeys);
  if (typeof value !== "object" || value === null) return value;
  return Object.entries(value)
    .filter(([, inner]) => inner !== undefined)
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, inner]) => [key, sortKeys(inner)]);
}

export function auditHeadEvent({ records, head }: AuditHead, time: string): Event<"audit-head"> {
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
  /** Sequence number of the first invalid record; null when the chain is complete. */
  readonly brokenAt: number | null;
}

/** Checks the complete log. A removed end or a rewritten log is only detected with a head that was stored elsewhere. */
export async function verifyAudit(store: Store, expected: AuditHead | null = null): Promise<AuditVerdict> {
  let hasExpected = expected === null ? null : expected.records === 0;
  let previousHash = CHAIN_START;
  let records = 0;
  let lastSequence = 0;
  for (;;) {
    const page = await store.records<AuditRecord>(AUDIT_LOG, lastSequence, 1000);
    if (page.length === 0) return { records, head: previousHash, hasExpected, brokenAt: null };
    for (const { sequence, body } of page) {
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

export type AuditSize = Awaited<ReturnType<typeof openAuditSize>>;

const SIZE_SET = "command-audit";
const SIZE_KEY = "size";
const RECORDS_PER_READ = 1_000;

interface MeasuredSize {
  readonly bytes: number;
  readonly through: number;
}

export async function openAuditSize(store: Store) {
  let { bytes, through } = (await store.document<MeasuredSize>(SIZE_SET, SIZE_KEY)) ?? { bytes: 0, through: 0 };
  function add(records: readonly AuditRecord[]): void {
    for (const record of records) bytes += Buffer.byteLength(JSON.stringify(record));
    through += records.length;
  }
  for (;;) {
    const page = await store.records<AuditRecord>(AUDIT_LOG, through, RECORDS_PER_READ);
    if (page.length === 0) break;
    add(page.map(({ body }) => body));
    through = page.at(-1)?.sequence ?? through;
  }
  return {
    bytes: () => bytes,
    records: () => through,
    add,
    async remember(): Promise<void> {
      await store.commit({ documents: [{ set: SIZE_SET, put: [[SIZE_KEY, { bytes, through }]] }] });
    },
  };
}
