import type { Store } from "../../store/store.ts";
import { AUDIT_LOG, type AuditRecord } from "./audit.ts";

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
