import { globSync } from "node:fs";
import { join } from "node:path";

/**
 * What is mutated, and the tests that have to notice. They need no server and no child process, except those of
 * `postgres-store`: each of their files starts a PostgreSQL server, in about two seconds.
 */
export interface Room {
  readonly name: string;
  /** Patterns from the root. */
  readonly files: readonly string[];
  /** In the order in which they run; the first that fails ends the run, so the quickest come first. */
  readonly tests: readonly string[];
}

export const ROOMS: readonly Room[] = [
  {
    name: "gate",
    files: ["src/engine/commands/gate.ts", "src/engine/commands/step.ts"],
    tests: ["test/commands/gate.test.ts", "test/commands/boundaries.test.ts"],
  },
  {
    name: "diff",
    files: ["src/engine/sync/alarms/diff*.ts", "src/engine/sync/inventory/diff.ts"],
    tests: [
      "test/sync/diff-inventory.test.ts",
      "test/sync/diff-alarm-life.test.ts",
      "test/sync/diff-alarm-lists.test.ts",
      "test/sync/diff-alarms.test.ts",
    ],
  },
  {
    name: "planner",
    files: ["src/engine/sync/plan/*.ts"],
    tests: [
      "test/sync/plan-report.test.ts",
      "test/sync/plan-advice.test.ts",
      "test/sync/plan.test.ts",
      "test/sync/plans/plans.test.ts",
    ],
  },
  {
    name: "ledger",
    files: [
      "src/engine/sync/history/ledger.ts",
      "src/engine/sync/history/series.ts",
      "src/engine/sync/history/ledger-ranges.ts",
      "src/engine/sync/history/buckets.ts",
    ],
    tests: ["test/sync/history-spans.test.ts", "test/sync/history-ledger.test.ts", "test/sync/history-buckets.test.ts"],
  },
  {
    name: "outbox",
    files: ["outbox", "outbox-rules", "event-log", "redeliveries", "lag", "deferred-writes", "retention", "sinks"].map(
      (name) => `src/engine/store/${name}.ts`,
    ),
    tests: [
      "test/store/outbox-bounds.test.ts",
      "test/store/sqlite-store.test.ts",
      "test/store/one-damaged-row.test.ts",
      "test/store/recent.test.ts",
      "test/store/soon.test.ts",
      "test/store/deferred-writes.test.ts",
      "test/delivery/lag.test.ts",
    ],
  },
  {
    name: "stored",
    files: ["stored-event", "history-event", "packed-points", "packed-value"].map(
      (name) => `src/core/codec/${name}.ts`,
    ),
    tests: ["test/stored-event.test.ts", "test/history-event.test.ts"],
  },
  {
    name: "quota",
    files: ["src/engine/source/quota/*.ts"],
    tests: ["test/source/quota-parts.test.ts", "test/source/quota.test.ts", "test/source/quota-sharing.test.ts"],
  },
  {
    name: "receiver",
    files: ["connectors/shared/receiver/*.ts"],
    tests: [
      "test/receiver/text.test.ts",
      "test/receiver/timing.test.ts",
      "test/receiver/tickets.test.ts",
      "test/receiver/dossier.test.ts",
      "test/receiver/edges.test.ts",
      "test/receiver/one-thing.test.ts",
      "test/receiver/storm.test.ts",
      "test/receiver/clocks.test.ts",
      "test/receiver/dossier-told.test.ts",
    ],
  },
  {
    name: "lake",
    files: ["connectors/shared/lake/*.ts"],
    tests: [
      "test/lake/rows.test.ts",
      "test/lake/cells.test.ts",
      "test/lake/versions.test.ts",
      "test/lake/documentation.test.ts",
    ],
  },
  {
    name: "delta",
    files: ["connectors/parquet/delta/*.ts"],
    tests: [
      "test/connectors/parquet/delta/statistics.test.ts",
      "test/connectors/parquet/delta/table.test.ts",
      "test/connectors/parquet/delta/checkpoint.test.ts",
      "test/connectors/parquet/delta/other-writers.test.ts",
      "test/connectors/parquet/delta/races.test.ts",
    ],
  },
  {
    name: "kafka",
    files: ["connectors/kafka/*.ts"],
    tests: [
      "test/connectors/kafka/config.test.ts",
      "test/connectors/kafka/outcome.test.ts",
      "test/connectors/kafka/topics.test.ts",
      "test/connectors/kafka/sink.test.ts",
    ],
  },
  {
    name: "parquet",
    files: ["connectors/parquet/*.ts"],
    tests: [
      "test/connectors/parquet/commits.test.ts",
      "test/connectors/parquet/delta-parts.test.ts",
      "test/connectors/parquet/parts.test.ts",
      "test/connectors/parquet/compaction.test.ts",
      "test/connectors/parquet/delta-sink.test.ts",
      "test/connectors/parquet/stores.test.ts",
      "test/connectors/parquet/parquet.test.ts",
    ],
  },
  {
    name: "sensors",
    files: ["src/engine/sync/sensors/*.ts"],
    tests: [
      "test/sync/sensors/sensor-table.test.ts",
      "test/sync/sensors/limits.test.ts",
      "test/sync/sensors/findings.test.ts",
      "test/sync/sensors/sensor-watch.test.ts",
    ],
  },
  {
    name: "dispatcher",
    files: ["src/engine/delivery/!(config).ts"],
    tests: [
      "test/delivery/filter.test.ts",
      "test/delivery/skipped.test.ts",
      "test/delivery/setbacks.test.ts",
      "test/delivery/offer.test.ts",
      "test/delivery/back-pressure.test.ts",
      "test/delivery/pruning.test.ts",
      "test/delivery/lag.test.ts",
      "test/delivery/dispatcher.test.ts",
      "test/delivery/change.test.ts",
      "test/delivery/deadline.test.ts",
      "test/delivery/restart-watch.test.ts",
      "test/delivery/memory.test.ts",
      "test/delivery/gathered.test.ts",
      "test/delivery/snapshot.test.ts",
      "test/status/notices.test.ts",
    ],
  },
  {
    name: "postgres-store",
    files: ["src/scale/postgres/*.ts"],
    tests: ["documents", "suite", "fencing", "lost-answers", "notices", "opening"].map(
      (name) => `test/store/postgres/${name}.test.ts`,
    ),
  },
  {
    name: "fleet",
    files: ["src/scale/fleet/*.ts", "src/member-{file,guards,time}.ts"],
    tests: [
      "test/fleet/trust.test.ts",
      "test/fleet/unable.test.ts",
      "test/fleet/whereabouts.test.ts",
      "test/fleet/restored.test.ts",
      "test/fleet/kill-switch.test.ts",
      "test/fleet/virtual-fleet.test.ts",
      "test/fleet/virtual-faults.test.ts",
      "test/fleet/share.test.ts",
      "test/fleet/digest.test.ts",
      "test/member/time.test.ts",
      "test/member/member-file.test.ts",
      "test/fleet/memory-documents.test.ts",
      "test/member/guards.test.ts",
    ],
  },
  {
    name: "reload",
    files: ["src/app/reload/*.ts", "src/app/config/changes.ts"],
    tests: [
      "test/config/changes.test.ts",
      "test/config/option-changes.test.ts",
      "test/reload/file-watch.test.ts",
      "test/reload/reloader.test.ts",
    ],
  },
  {
    name: "silence",
    files: ["src/engine/silence/*.ts", "src/ui/status/silences.ts"],
    tests: ["test/silence.test.ts", "test/status/server.test.ts"],
  },
  {
    name: "completeness",
    files: ["src/engine/sync/completeness/*.ts"],
    tests: [
      "test/sync/day-account.test.ts",
      "test/sync/site-day.test.ts",
      "test/sync/day-counts.test.ts",
      "test/sync/complete-days.test.ts",
    ],
  },
  {
    name: "setup",
    files: ["src/ui/setup/*.ts"],
    tests: [
      "address",
      "entry-code",
      "seen",
      "seen-lines",
      "plan",
      "write",
      "look",
      "plenum-yaml",
      "page-setup",
      "server",
    ].map((name) => `test/setup/${name}.test.ts`),
  },
];

export const ROOT: string = join(import.meta.dirname, "..", "..");

export function filesOf(room: Room): readonly string[] {
  return globSync([...room.files], { cwd: ROOT }).toSorted();
}
