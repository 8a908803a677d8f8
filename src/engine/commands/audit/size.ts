import type { Store } from "../../store/store.ts";
import { AUDIT_LOG, type AuditRecord } from "./audit.ts";

/** How many bytes the records of the audit log have. Nothing is ever taken out of it, so it only grows. */
export interface AuditSize {
  bytes(): number;
  /** How many records there are. */
  records(): number;
  add(records: readonly AuditRecord[]): void;
  /** Spares the next start from measuring again. */
  remember(): Promise<void>;
}

const SET = "command-audit";
const KEY = "size";
const PAGE = 1_000;

interface Measured {
  readonly bytes: number;
  /** Sequence number of the last record that is counted. */
  readonly through: number;
}

/** Measures what was written since it was last remembered. */
export async function openAuditSize(store: Store): Promise<AuditSize> {
  let { bytes, through } = (await store.document<Measured>(SET, KEY)) ?? { bytes: 0, through: 0 };
  for (;;) {
    const page = await store.records<AuditRecord>(AUDIT_LOG, through, PAGE);
    if (page.length === 0) break;
    for (const { sequence, body } of page) {
      bytes += bytesOf(body);
      through = sequence;
    }
  }
  return {
    bytes: () => bytes,
    records: () => through,
    add(records) {
      for (const record of records) bytes += bytesOf(record);
      through += records.length;
    },
    remember: async () => {
      await store.commit({ documents: [{ set: SET, put: [[KEY, { bytes, through }]] }] });
    },
  };
}

function bytesOf(record: AuditRecord): number {
  return Buffer.byteLength(JSON.stringify(record));
}
