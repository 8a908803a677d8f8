const TYPES_ONLY = "Only the type checker needs it.";
const ANY_BOUND = "Its exact value does not matter.";
const FIRST_CHECK = "The first check runs at another moment of the same second.";

/**
 * Mutants that no test can detect because the program behaves the same; `npm run mutate` leaves them out of the sample.
 * By file: a part of the mutated line as `main.ts` prints it, with `«before → after»`, and the reason.
 */
export const EQUIVALENTS: Readonly<Record<string, readonly (readonly [change: string, reason: string])[]>> = {
  "connectors/kafka/cluster-metadata.ts": [
    ['name: name« ?? "" → »,', TYPES_ONLY],
    ["create_topics, «false → true»)) {", "The response then also holds permissions, which `topics` does not read."],
    ["PRODUCER_ID_REQUEST_VERSIONS, null, «0 → 1»)", "The transaction time-out: the producer has no transactions."],
  ],
  "connectors/kafka/config.ts": [["exec(text)?.[2]« ?? 0 → »);", "NaN is no port, as 0 is none."]],
  "connectors/kafka/broker-connections.ts": [
    ["«connectionByBroker.clear(); → ;»", "A connection that has ended is not used again."],
    ["maxInflights: «1 → (1 * 2)»,", "A broker gets the next request after the response to the last."],
  ],
  "connectors/kafka/broker-failures.ts": [
    ["GenericError «&& → ||» typeof error", "An undefined code is compared with names only."],
  ],
  "connectors/kafka/producer.ts": [
    ['host: "", port: «0 → 1» } }] = queues', TYPES_ONLY],
    ["queue.batches.shift()« ?? [] → » }));", TYPES_ONLY],
  ],
  "connectors/kafka/sink.ts": [
    ["=== undefined «&& → ||» !deliveryKeys.some", "A settled batch covers all keys."],
    ['keysToSkip.has(deliveryKeys[n]« ?? "" → »);', TYPES_ONLY],
    ["receipt.retry?.from« ?? batch.length → »;", "`n >= undefined` is false, as is `n >= batch.length`."],
    ['error« ?? new Retryable("The Kafka cluster did not acknowledge it.") → »;', TYPES_ONLY],
  ],
  "connectors/parquet/staged-commits.ts": [
    ["buffer.characterCount «>= → >» MAX_BUFFERED_CHARACTERS", "One character of a bound of 16 million."],
  ],
  "connectors/parquet/delta-table-format.ts": [
    ["column, content.rows[n]« ?? 0 → »));", TYPES_ONLY],
    ["= randomBytes(«4 → (4 * 2)»).toString", "A random name; its length does not matter."],
    ["(let attempt = «0 → 1»; attempt <", ANY_BOUND],
  ],
  "connectors/parquet/delta/log-reader.ts": [
    [
      "signal, false))) return loadDeltaSnapshot(signal, «false → true»);",
      "The statistics stay in memory and are not read.",
    ],
  ],
  "connectors/parquet/delta/statistics.ts": [
    ["text.length «<= → <» MAX_COLUMN_BOUND_LENGTH ? text", "Both branches return a text of that length unchanged."],
    ["value !== min «&& → ||» value !==", "A value that equals a bound moves neither bound."],
    ["SURROGATE.test(b))) return a «< → <=» b;", "A value that equals a bound is not compared with it."],
    ["compareInUtf8Order(a, b) «< → <=» 0;", "A value that equals a bound is not compared with it."],
    ["(text.length «<= → <» MAX_COLUMN_BOUND_LENGTH) return", "Both branches return a text of that length unchanged."],
    ["=== CELLS_BETWEEN_YIELDS - «1 → (1 * 2)») await yieldToEventLoop", "The yield to other work moves by one cell."],
    ["const CELLS_BETWEEN_YIELDS = «20_000 → (20_000 * 2)»;", ANY_BOUND],
  ],
  "connectors/parquet/delta/table.ts": [
    ["const MAX_COMMIT_ATTEMPTS = «100 → (100 * 2)»;", ANY_BOUND],
    ['deletedFileRetentionDuration"]« ?? "" → »;', 'The pattern matches neither "undefined" nor "null".'],
    ["version, commitActions, «false → true»);", "Read again without statistics, which only stay in memory."],
    ["MAX_COMMIT_ATTEMPTS; attempt += «1 → (1 * 2)») {", ANY_BOUND],
  ],
  "connectors/parquet/folder-store.ts": [["draftPath, { force: «true → false» });", "The draft file always exists."]],
  "connectors/parquet/row-buffer.ts": [
    ["columns.characterCount, «0 → 1»);", "One character of a bound of 16 million."],
    ["eventCount += «1 → (1 * 2)»;", "The counter is only compared with 0."],
  ],
  "connectors/parquet/s3-store.ts": [
    ["const MAX_S3_CONFLICT_ATTEMPTS = «3 → (3 * 2)»;", ANY_BOUND],
    ["CONNECT_TIMEOUT_MS = «10_000 → (10_000 * 2)»;", ANY_BOUND],
  ],
  "connectors/parquet/sink-state.ts": [
    ["b.day ? -1 : «1 → (1 * 2)»)),", "A sort uses only the sign."],
    ["b) => (a.day «< → <=» b.day ? -", "Of two sites with the same day, either is finalized first."],
  ],
  "connectors/parquet/sink.ts": [
    ["batchInfo.positions[n]« ?? 0 → », batchInfo.committedAt", TYPES_ONLY],
    ["positions[n] ?? «0 → 1», batchInfo.committedAt", TYPES_ONLY],
  ],
  "connectors/shared/lake/event-rows.ts": [
    ['d\\d$/.exec(rawTime« ?? "" → »)?.[0] ??', 'The pattern does not match "null".'],
  ],
  "connectors/shared/lake/table-model.ts": [
    ['"valid_from")]« ?? null → »,', TYPES_ONLY],
    ["index, endingRow[index]« ?? null → »);", TYPES_ONLY],
    ['is_current") : -«1 → (1 * 2)»;', "Only tables of versions read it."],
  ],
  "connectors/shared/receiver/apply-event.ts": [
    ["get(key)?.into« ?? null → »;", "`refreshIncidentGroup` finds no incident under an undefined key."],
  ],
  "connectors/shared/receiver/stored-incident.ts": [
    ["priority)].sort()[«0 → 1»] ?? stored", "Both are the priority of the most urgent alarm."],
  ],
  "connectors/shared/receiver/incident-queue.ts": [
    ["end = setTimeOfDay(to «< → <=» from ? day", "The configuration rejects equal times."],
    ["return currentSilences.length «> → >=» 0 && alarms", "Without a silence no alarm is covered."],
  ],
  "src/app/reload/file-watch.ts": [["alignSleeps: «true → false»,", FIRST_CHECK]],
  "src/core/codec/history-event.ts": [
    ["< 0 || kindMarkerIndex «> → >=» dataMarkerIndex", "The kind and the points never begin at the same index."],
    ["MAX_QUOTED_POINT_BYTES + 4 + «2 → (2 * 2)» * BUFFER_MARGIN_BYTES", ANY_BOUND],
    ["BUFFER_MARGIN_BYTES = «200_000 → (200_000 * 2)»;", "Initial size of a buffer that grows."],
    ["MAX_QUOTED_POINT_BYTES = «84 → (84 * 2)»;", ANY_BOUND],
    ["MAX_QUOTED_POINT_BYTES + «4 → (4 * 2)» + 2 * BUFFER_MARGIN_BYTES", ANY_BOUND],
    ["allocUnsafeSlow(«0 → 1») };", "Either size is too small for the first event, so the buffer grows."],
    ["if (kindMarkerIndex < «0 → 1» ||", "The stored text begins with a brace, so the kind is never at 0."],
    ["if (kindMarkerIndex «< → <=» 0 ||", "The stored text begins with a brace, so the kind is never at 0."],
    ["(packedPointsStart «< → <=»", "The packed text never starts exactly at the end of its marker."],
    ["&& tailBytes «=== → !==» tail.length", "ASCII text reads the same as UTF-8."],
  ],
  "src/core/codec/points.ts": [
    ["MAX_POINT_BYTES = «60 → (60 * 2)»;", ANY_BOUND],
    ["if (index > «0 → 1») bytes[writeOffset", "The first two points are always one interval apart."],
  ],
  "src/engine/delivery/event-log-pruning.ts": [
    ["MAX_RUN_MS) : «0 → 1»;", "One millisecond of a minute."],
    ["MAX_RUN_MS = «2 → (2 * 2)» * EVENT_LOG_PRUNE_INTERVAL_MS", ANY_BOUND],
    ["alignSleeps: «true → false»,", FIRST_CHECK],
  ],
  "src/engine/delivery/server-restart-watch.ts": [
    ["findLast(({ atMs }) => atMs «<= → <» sinceMs) ?? points", "One millisecond of a window of at least a minute."],
    ["atMs }) => atMs «> → >=» windowStartMs).", "One millisecond of a window of at least a minute."],
    ["const MAX_CURSOR_POINTS = «500 → (500 * 2)»;", ANY_BOUND],
    ["const MAX_MERGED_POSITION_GAP = «1_000 → (1_000 * 2)»;", ANY_BOUND],
    ["- lastRedeliveredRange.last «<= → <» MAX_MERGED_POSITION_GAP;", "Two outages are never exactly that far apart."],
    ["storedState?.nowMs ?? «0 → 1»;", "One millisecond of a window of at least a minute."],
    ["null, seenMs: «0 → 1», points:", "One millisecond of a window of at least a minute."],
    ["let failedChecks = «0 → 1»;", "The check at the opening of the sink sets it first."],
  ],
  "src/engine/delivery/sink-loop.ts": [
    ["return «0 → 1»;", "The next check runs one millisecond later."],
    ["return Math.max(«0 → 1», Math.min", "A due task waits one millisecond."],
    ["lastPosition: «0 → 1»,", "A snapshot is not in the log, so its position settles nothing."],
  ],
  "src/engine/delivery/send-state-snapshot.ts": [
    ["parse(askedAt) «> → >=» MAX_COMPLETE_LISTS_WAIT_MS |", "One millisecond of ten minutes."],
  ],
  "src/engine/silence/alarm-silences.ts": [["alignSleeps: «true → false»,", FIRST_CHECK]],
  "src/engine/source/quota/refusal-slowdown.ts": [
    ["&& windowMarginMs > «0 → 1» && nowMs -", "The margin is 0 or at least 52 ms."],
  ],
  "src/engine/source/quota/quota.ts": [
    ["allRateLimiters().length > «1 → (1 * 2)») return;", "There is one limiter, or three."],
  ],
  "src/engine/source/quota/sent-request-store.ts": [
    ["clockJumps += «1 → (1 * 2)»;", "The counter is only compared with its earlier value."],
    ["const CLOCK_STEP_MIN_MS = «100 → (100 * 2)»;", ANY_BOUND],
  ],
  "src/engine/store/event-log-rows.ts": [["value }).slice(«1 → (1 * 2)», -1);", "No other field ends in this word."]],
  "src/engine/sync/completeness/daily-bucket-counts.ts": [
    ["else if (pending «> → >=» 0 && ledger", "With no bucket, none is refused."],
  ],
  "src/engine/sync/completeness/finalized-days.ts": [
    ["% SERIES_COUNTED_PER_YIELD === «0 → 1») await yieldToEventLoop", "The yield to other work moves by one series."],
  ],
  "src/engine/sync/history/buckets.ts": [
    [
      "if (takenRange.toMs «<= → <» fromMs) continue",
      "A range that ends where the next begins removes nothing from it.",
    ],
  ],
  "src/engine/sync/plan/next-read-group.ts": [
    ["if (missingRowCount «<= → <» 0) continue", "With nothing missing, nothing is chosen."],
    ["periodOfOtherTag ? tagIdOfRow(a) «< → <=» tagIdOfRow(b) :", "No two tags have the same id."],
    ["PLANNED_REQUEST_SLOTS && maxExcess «< → <=» rules.tagsPerRequest", "Slots after a full request add nothing."],
    ["if (count «<= → <» 0) return", "With no free position the list stays empty."],
    ["0]?.[1].timing« ?? null → »;", "The value is only compared with strings."],
    ["(a, b) ? -1 : «1 → (1 * 2)»));", "A sort uses only the sign."],
    ["a] as number) «> → >=» (relativeAge[b] as", "Two tags never have the same age here."],
  ],
  "src/engine/sync/plan/overload.ts": [
    ["quotaShare && highScale < «1e6 → (1e6 * 2)») highScale *=", ANY_BOUND],
    ["highScale, «40 → (40 * 2)», (scale)", "Bisection has converged long before."],
  ],
  "src/engine/sync/plan/report.ts": [
    ["Math.ceil((ms - «1e-6 → (1e-6 * 2)») / intervalStepMs", "Tolerance for the rest that bisection leaves."],
    ["«50 → (50 * 2)»,", "Bisection has converged long before."],
  ],
  "src/engine/sync/sensors/sensor-findings.ts": [
    ['side = unusualLagMs «> → >=» 0 ? "behind', "A lag of 0 is no finding."],
  ],
  "src/engine/sync/sensors/sensor-statistics.ts": [
    ["round(shiftedValue)) «< → <=» 1e-6) return", "A tolerance; no measured value is exactly at its edge."],
  ],
  "src/scale/fleet/shared-json-document.ts": [
    ["let appliedRequestNumber = «0 → 1»;", "The first revision is 1."],
    ["deleteResult?.rows.length« ?? 0 → ») > 0;", TYPES_ONLY],
    ["readRequestCount += «1 → (1 * 2)»;", "The numbers only have to increase."],
  ],
  "src/scale/fleet/kill-switch.ts": [["alignSleeps: «true → false»,", FIRST_CHECK]],
  "src/scale/fleet/assign-sources.ts": [[": a > b ? 1 : «0 → 1»);", "No two names are the same."]],
  "src/scale/fleet/fleet-status.ts": [["updateResult?.rows.length« ?? 0 → ») > 0) return", TYPES_ONLY]],
  "src/scale/fleet/fleet-tables.ts": [
    ["from === null «|| → &&» from ===", "Only a log line contains it."],
    ["from: from «=== → !==» null || from", "Only a log line contains it."],
    ["= randomBytes(«8 → (8 * 2)»).toString", "A unique name; its length does not matter."],
    ["sourceRows] = (rows[0]« ?? [] → »).map((cell", TYPES_ONLY],
  ],
  "src/scale/fleet-member-databases.ts": [['String(currentIdentityRows[0]?.[0]« ?? "" → »));', TYPES_ONLY]],
  "src/scale/fleet-tag-write-guards.ts": [["stats.isFile() «|| → &&» stats.size", "The content is compared as well."]],
  "src/scale/postgres/open-state-database.ts": [
    ["MIGRATION_TIMEOUT_MS = «10 → (10 * 2)» * 60_000;", ANY_BOUND],
    ["MIGRATION_TIMEOUT_MS = 10 * «60_000 → (60_000 * 2)»;", ANY_BOUND],
    ["const TRANSACTION_TIMEOUT_MS = «10_000 → (10_000 * 2)»;", ANY_BOUND],
    ["isReplica] = rows[0]« ?? [] → »;", TYPES_ONLY],
  ],
  "src/scale/postgres/schema.ts": [["versionRows[0]?.[0]« ?? 0 → »);", TYPES_ONLY]],
  "src/scale/postgres/transaction-writer.ts": [
    ["commitCount += «1 → (1 * 2)»;", "The counter is only compared with its earlier value."],
    ["= { firstMs: «100 → (100 * 2)», maxMs: 2_000", ANY_BOUND],
  ],
  "src/ui/setup/setup-choices.ts": [["=== undefined «|| → &&» entry ===", TYPES_ONLY]],
  "src/ui/setup/setup-server.ts": [["changes[0]?.text« ?? null → »);", TYPES_ONLY]],
  "src/ui/status/silence-routes.ts": [['issues[0]?.message« ?? "" → » }, 400);', TYPES_ONLY]],
};
