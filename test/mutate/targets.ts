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

/** `names`: separated by spaces. */
const testsIn = (folder: string, names: string) => names.split(" ").map((name) => `${folder}/${name}.test.ts`);

export const TARGETS: readonly Target[] = [
  { name: "gate", files: ["src/engine/commands/gate.ts"], tests: testsIn("test/commands", "gate boundaries") },
  {
    name: "diff",
    files: ["src/engine/sync/alarms/diff*.ts", "src/engine/sync/inventory/diff.ts"],
    tests: testsIn("test/sync", "diff-inventory diff-alarm-life diff-alarm-lists diff-alarms"),
  },
  {
    name: "planner",
    files: ["src/engine/sync/plan/*.ts"],
    tests: [...testsIn("test/sync", "plan-report plan-advice plan"), ...testsIn("test/sync/plans", "plans")],
  },
  {
    name: "ledger",
    files: ["src/engine/sync/history/{ledger,series,ledger-ranges,buckets}.ts"],
    tests: testsIn("test/sync", "history-spans history-ledger history-buckets"),
  },
  {
    name: "outbox",
    files: ["src/engine/store/{outbox*,event-log,redeliveries,lag,deferred-writes,retention,sink-cursors}.ts"],
    tests: [
      ...testsIn("test/store", "outbox-bounds sqlite-store one-damaged-row recent tail deferred-writes"),
      ...testsIn("test/delivery", "lag"),
    ],
  },
  {
    name: "stored",
    files: ["src/core/codec/{stored-event,history-event,points}.ts"],
    tests: testsIn("test", "stored-event history-event"),
  },
  {
    name: "quota",
    files: ["src/engine/source/quota/*.ts"],
    tests: testsIn("test/source", "quota-parts quota quota-sharing"),
  },
  {
    name: "receiver",
    files: ["connectors/shared/receiver/*.ts"],
    tests: testsIn("test/receiver", "text timing tickets dossier edges one-thing storm clocks dossier-told"),
  },
  {
    name: "lake",
    files: ["connectors/shared/lake/*.ts"],
    tests: testsIn("test/lake", "rows versions documentation"),
  },
  {
    name: "delta",
    files: ["connectors/parquet/delta/*.ts"],
    tests: testsIn("test/connectors/parquet/delta", "statistics table checkpoint other-writers races"),
  },
  {
    name: "kafka",
    files: ["connectors/kafka/*.ts"],
    tests: testsIn("test/connectors/kafka", "config outcome topics sink"),
  },
  {
    name: "parquet",
    files: ["connectors/parquet/*.ts"],
    tests: testsIn("test/connectors/parquet", "commits delta-parts parts compaction delta-sink stores parquet"),
  },
  {
    name: "sensors",
    files: ["src/engine/sync/sensors/*.ts"],
    tests: testsIn("test/sync/sensors", "sensor-table limits findings sensor-watch"),
  },
  {
    name: "dispatcher",
    files: ["src/engine/delivery/!(config).ts"],
    tests: [
      ...testsIn(
        "test/delivery",
        "filter skipped failure-policy offer back-pressure pruning lag dispatcher change deadline restart-watch memory gathered snapshot",
      ),
      ...testsIn("test/status", "notices"),
    ],
  },
  {
    name: "postgres-store",
    files: ["src/scale/postgres/*.ts"],
    tests: testsIn("test/store/postgres", "documents suite fencing lost-answers notices opening"),
  },
  {
    name: "fleet",
    files: ["src/scale/fleet/*.ts", "src/scale/{database-time,member-databases,member-file,member-guards}.ts"],
    tests: [
      ...testsIn("test/fleet", "timing holder-description restored-database kill-switch virtual-fleet virtual-faults"),
      ...testsIn("test/fleet", "assign-sources digest fleet-document"),
      ...testsIn("test/member", "database-time member-file guards"),
    ],
  },
  {
    name: "reload",
    files: ["src/app/reload/*.ts", "src/app/config/changes.ts"],
    tests: [...testsIn("test/config", "changes option-changes"), ...testsIn("test/reload", "file-watch reloader")],
  },
  {
    name: "silence",
    files: ["src/engine/silence/*.ts", "src/ui/status/silences.ts"],
    tests: [...testsIn("test", "silence"), ...testsIn("test/status", "server")],
  },
  {
    name: "completeness",
    files: ["src/engine/sync/completeness/*.ts"],
    tests: testsIn("test/sync", "day-account site-day day-counts complete-days"),
  },
  {
    name: "setup",
    files: ["src/ui/setup/*.ts"],
    tests: testsIn("test/setup", "address building messages choices new-files plenum-yaml server"),
  },
];

export const ROOT: string = join(import.meta.dirname, "..", "..");

export function filesOf(target: Target): readonly string[] {
  return globSync([...target.files], { cwd: ROOT }).toSorted();
}
