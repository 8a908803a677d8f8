import { writeSync } from "node:fs";
import { systemClock } from "#src/core/runtime/clock.ts";
import { AUDIT_LOG, AUDIT_START_HASH, hashEntry } from "#src/engine/commands/audit/audit-log.ts";
import { openStore } from "#src/engine/store/open.ts";
import { valueEvent } from "../../sample-events.ts";

/**
 * Records a state from its creation on: closed and opened again, with commits, settlements, pruning, and a write-ahead
 * log that is copied back in between. Reports each commit once it has returned.
 */
const [folder = ""] = process.argv.slice(2);
/** SQLite writes the log back from 1,000 pages on. */
const FILLER = "x".repeat(150_000);
let n = 0;
let tip = AUDIT_START_HASH;
for (let round = 0; round < 3; round += 1) {
  const store = await openStore({ folder, clock: systemClock });
  await store.outbox.register("sink", "beginning");
  for (let commit = 0; commit < 14; commit += 1, n += 1) {
    const put = [["n", n] as const, ...(round === 1 ? [["filler", `${FILLER}${n}`] as const] : [])];
    const body = hashEntry(tip, { at: "2026-11-01T00:00:00.000Z", commandId: `c${n}`, step: "note", detail: {} });
    tip = body.hash;
    await store.commit({
      documents: [{ set: "last", put }],
      events: [valueEvent(n)],
      records: [{ log: AUDIT_LOG, body }],
    });
    writeSync(1, `said ${n}\n`);
    if (commit % 5 === 4) await store.outbox.settle("sink", { isRepeat: false, through: n, rejected: [] });
  }
  await store.outbox.prune({ maxBytes: 2 ** 30, maxAgeMs: 2 ** 40, ranMs: 60_000, replayMs: 2 ** 40 });
  await store.close();
}
