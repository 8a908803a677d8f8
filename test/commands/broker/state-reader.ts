import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Event } from "#src/core/model/event.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { AUDIT_LOG, type AuditRecord, verifyAudit } from "#src/engine/commands/audit/audit-log.ts";
import { openStore } from "#src/engine/store/open.ts";
import type { Store } from "#src/engine/store/store.ts";
import { FILES } from "./building.ts";

export async function withRunningState<T>(folder: string, inspect: (store: Store) => Promise<T>): Promise<T> {
  const store = await openStore({ folder, clock: systemClock, readOnly: true });
  try {
    return await inspect(store);
  } finally {
    await store.close();
  }
}

export async function finalRecords(store: Store) {
  const verdict = await verifyAudit(store);
  const audit = (await store.records<AuditRecord>(AUDIT_LOG, 0, 10_000_000)).map((record) => record.body);
  const results = await store.outbox.latest(10_000_000, ["command-result"]);
  return {
    verdict,
    audit,
    results: results.map(({ event }) => event as Event<"command-result">).toReversed(),
    waiting: new Set((await store.outbox.next(FILES, 10_000_000)).events.map(({ event }) => event.id)),
  };
}

export function eventsInFiles(folder: string): readonly Event<"command-result">[] {
  return readdirSync(folder).flatMap((name) =>
    readFileSync(join(folder, name), "utf8")
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as Event<"command-result">),
  );
}

export async function isSettled(store: Store): Promise<boolean> {
  const entries = await store.documents<{ readonly command?: unknown }>("command");
  const restores = await store.documents("command-restore");
  return restores.size === 0 && ![...entries.values()].some(({ command }) => command !== undefined);
}
