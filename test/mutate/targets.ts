import { globSync } from "node:fs";
import { join } from "node:path";

/**
 * Source files to mutate and the tests that must detect the mutants. The tests start no server and no child process,
 * except those of `postgres-store`: each file starts a PostgreSQL server in about two seconds.
 */
export interface Target {
  readonly name: string;
  /** Glob patterns from the root of the repository. */
  readonly files: readonly string[];
  /** In the order of execution. The first failure ends the run, so put the fastest tests first. */
  readonly tests: readonly string[];
}

/** `files`: glob patterns separated by spaces. `tests`: names by folder, separated by spaces. */
const target = (name: string, files: string, tests: Readonly<Record<string, string>>): Target => ({
  name,
  files: files.split(" "),
  tests: Object.entries(tests).flatMap(([folder, names]) =>
    names.split(" ").map((test) => `${folder}/${test}.test.ts`),
  ),
});

export const TARGETS: readonly Target[] = [
  target("gate", "src/engine/commands/gate.ts", { "test/commands": "gate boundaries" }),
  target("diff", "src/engine/sync/alarms/diff*.ts src/engine/sync/inventory/diff.ts", {
    "test/sync": "diff-inventory diff-alarm-life diff-alarm-lists diff-alarms",
  }),
  target("planner", "src/engine/sync/plan/*.ts", {
    "test/sync": "plan-report plan-advice plan",
    "test/sync/plans": "plans",
  }),
  target("ledger", "src/engine/sync/history/{ledger,series,ledger-ranges,buckets}.ts", {
    "test/sync": "history-spans history-ledger history-buckets",
  }),
  target("outbox", "src/engine/store/{outbox*,event-log,redeliveries,lag,deferred-writes,retention,sink-cursors}.ts", {
    "test/store": "outbox-bounds sqlite-store one-damaged-row recent-events log-tail deferred-writes",
    "test/delivery": "lag",
  }),
  target("stored", "src/core/codec/{stored-event,history-event,points}.ts", { test: "stored-event history-event" }),
  target("quota", "src/engine/source/quota/*.ts", { "test/source": "quota-parts quota quota-sharing" }),
  target("receiver", "connectors/shared/receiver/*.ts", {
    "test/receiver": "text timing tickets dossier edges one-thing storm clocks dossier-told",
  }),
  target("lake", "connectors/shared/lake/*.ts", { "test/lake": "rows versions documentation" }),
  target("delta", "connectors/parquet/delta/*.ts", {
    "test/connectors/parquet/delta": "statistics table checkpoint other-writers races",
  }),
  target("kafka", "connectors/kafka/*.ts", { "test/connectors/kafka": "config outcome topics sink" }),
  target("parquet", "connectors/parquet/*.ts", {
    "test/connectors/parquet": "commits delta-parts parts compaction delta-sink stores parquet",
  }),
  target("sensors", "src/engine/sync/sensors/*.ts", {
    "test/sync/sensors": "sensor-table limits findings sensor-watch",
  }),
  target("dispatcher", "src/engine/delivery/!(config).ts", {
    "test/delivery":
      "filter filtered-events failure-policy batches back-pressure pruning lag dispatcher sink-changes deadline restart-watch sink-state buffered-events snapshot",
    "test/status": "notices",
  }),
  target("postgres-store", "src/scale/postgres/*.ts", {
    "test/store/postgres": "documents suite fencing lost-answers notices opening",
  }),
  target("fleet", "src/scale/fleet/*.ts src/scale/{database-time,member-databases,member-file,member-guards}.ts", {
    "test/fleet":
      "timing holder-description restored-database kill-switch virtual-fleet virtual-faults assign-sources digest fleet-document",
    "test/member": "database-time member-file guards",
  }),
  target("reload", "src/app/reload/*.ts src/app/config/changes.ts", {
    "test/config": "changes option-changes",
    "test/reload": "file-watch reloader",
  }),
  target("silence", "src/engine/silence/*.ts src/ui/status/silences.ts", { test: "silence", "test/status": "server" }),
  target("completeness", "src/engine/sync/completeness/*.ts", {
    "test/sync": "day-account site-day day-counts complete-days",
  }),
  target("setup", "src/ui/setup/*.ts", {
    "test/setup": "address building messages choices new-files plenum-yaml server",
  }),
];

export const ROOT: string = join(import.meta.dirname, "..", "..");

export function listTargetFiles(target: Target): readonly string[] {
  return globSync([...target.files], { cwd: ROOT }).toSorted();
}
