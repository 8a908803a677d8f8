import { globSync } from "node:fs";
import { join } from "node:path";

/**
 * Source files to mutate and the tests that must detect the mutants. The tests start no server and no child process,
 * except those of `postgres-store`: each file starts a PostgreSQL server in about two seconds.
 */
export interface MutationTarget {
  readonly name: string;
  /** Glob patterns from the root of the repository. */
  readonly files: readonly string[];
  /** In the order of execution. The first failure ends the run, so put the fastest tests first. */
  readonly tests: readonly string[];
}

/** `files`: glob patterns separated by spaces. `tests`: names by folder, separated by spaces. */
const mutate = (name: string, files: string, tests: Readonly<Record<string, string>>): MutationTarget => ({
  name,
  files: files.split(" "),
  tests: Object.entries(tests).flatMap(([folder, names]) =>
    names.split(" ").map((test) => `${folder}/${test}.test.ts`),
  ),
});

export const TARGETS: readonly MutationTarget[] = [
  mutate("gate", "src/engine/commands/gate.ts", { "test/commands": "gate boundaries" }),
  mutate("diff", "src/engine/sync/alarms/diff*.ts src/engine/sync/inventory/diff.ts", {
    "test/sync": "diff-inventory diff-alarm-life diff-alarm-lists diff-alarms",
  }),
  mutate("planner", "src/engine/sync/plan/*.ts", {
    "test/sync": "plan-report plan-advice plan",
    "test/sync/plans": "plans",
  }),
  mutate("ledger", "src/engine/sync/history/{ledger,series-registry,ledger-ranges,buckets}.ts", {
    "test/sync": "history-spans history-ledger history-buckets",
  }),
  mutate(
    "outbox",
    "src/engine/store/{outbox,event-log,event-log-rows,event-retention,redeliveries,sink-lag,deferred-writes,sink-cursors}.ts",
    {
      "test/store": "outbox-bounds sqlite-store one-damaged-row recent-events log-tail deferred-writes",
      "test/delivery": "lag",
    },
  ),
  mutate("stored", "src/core/codec/{stored-event,history-event,points}.ts", { test: "stored-event history-event" }),
  mutate("quota", "src/engine/source/quota/*.ts", { "test/source": "quota-parts quota quota-sharing" }),
  mutate("receiver", "connectors/shared/receiver/*.ts", {
    "test/receiver": "text timing tickets dossier edges one-thing storm clocks dossier-told",
  }),
  mutate("lake", "connectors/shared/lake/*.ts", { "test/lake": "rows versions documentation" }),
  mutate("delta", "connectors/parquet/delta/*.ts", {
    "test/connectors/parquet/delta": "statistics table checkpoint other-writers races",
  }),
  mutate("kafka", "connectors/kafka/*.ts", { "test/connectors/kafka": "config outcome topics sink" }),
  mutate("parquet", "connectors/parquet/*.ts", {
    "test/connectors/parquet": "commits parts compaction delta-sink stores parquet",
  }),
  mutate("sensors", "src/engine/sync/sensors/*.ts", {
    "test/sync/sensors": "sensor-table limits findings sensor-watch",
  }),
  mutate("dispatcher", "src/engine/delivery/!(config).ts", {
    "test/delivery":
      "filter filtered-events failure-policy batches back-pressure pruning lag dispatcher sink-changes deadline server-restart-watch sink-state buffered-events state-snapshot",
    "test/status": "notices",
  }),
  mutate("postgres-store", "src/scale/postgres/*.ts", {
    "test/store/postgres": "documents suite fencing lost-answers notices opening",
  }),
  mutate("fleet", "src/scale/fleet/*.ts src/scale/{database-time,fleet-*-{databases,file,guards}}.ts", {
    "test/fleet":
      "timing holder-description restored-database kill-switch virtual-fleet virtual-faults assign-sources digest fleet-document",
    "test/member": "database-time member-file guards",
  }),
  mutate("reload", "src/app/reload/*.ts src/app/config/config-changes.ts", {
    "test/config": "changes option-changes",
    "test/reload": "file-watch reloader",
  }),
  mutate("silence", "src/engine/silence/*.ts src/ui/status/silence-routes.ts", {
    test: "silence",
    "test/status": "server",
  }),
  mutate("completeness", "src/engine/sync/completeness/*.ts", {
    "test/sync": "site-day day-counts complete-days",
  }),
  mutate("setup", "src/ui/setup/*.ts", {
    "test/setup": "address building messages choices new-files plenum-yaml server",
  }),
];

export const ROOT: string = join(import.meta.dirname, "..", "..");

export function listTargetFiles(target: MutationTarget): readonly string[] {
  return globSync([...target.files], { cwd: ROOT }).toSorted();
}
