/**
 * Changes that no test can notice, because the program does the same with them; each with the reason. They are
 * taken out of the sample. The texts are those that a run prints for the survivor.
 */
export interface Equivalent {
  readonly file: string;
  readonly before: string;
  readonly after: string;
  readonly reason: string;
}

export const EQUIVALENTS: readonly Equivalent[] = [
  {
    file: "connectors/kafka/sink.ts",
    before:
      "const passed = receipt.kept === undefined && !names.some((name) => acknowledgedAhead.has(name));",
    after: "const passed = receipt.kept === undefined || !names.some((name) => acknowledgedAhead.has(name));",
    reason:
      "The engine offers from the cursor on, in batches that do not shrink, so a batch that is settled covers every name.",
  },
  {
    file: "connectors/kafka/producer.ts",
    before: "const leaders = topic?.leaders ?? [];",
    after: "const leaders = topic?.leaders;",
    reason: "For the type checker: the cluster describes every topic that is requested.",
  },
  {
    file: "connectors/kafka/producer.ts",
    before: "leaders.length === 0 ? 0 : compatibilityPartitioner(record, record.key) % leaders.length;",
    after: "leaders.length === 0 ? 1 : compatibilityPartitioner(record, record.key) % leaders.length;",
    reason: "No partition has a leader then.",
  },
  {
    file: "connectors/kafka/producer.ts",
    before: 'const [{ leader } = { leader: { host: "", port: 0 } }] = lanes;',
    after: 'const [{ leader } = { leader: { host: "", port: 1 } }] = lanes;',
    reason: "For the type checker: there is a lane.",
  },
  {
    file: "connectors/kafka/sink.ts",
    before:
      'const isAcknowledged = (n: number) => offered?.again !== true && acknowledgedAhead.has(names[n] ?? "");',
    after:
      "const isAcknowledged = (n: number) => offered?.again !== true && acknowledgedAhead.has(names[n]);",
    reason: "For the type checker: each record has a name.",
  },
  {
    file: "connectors/parquet/sink.ts",
    before: 'staged.take(event, offer.positions[n] ?? 0, offer.committedAt[n] ?? "", signal),',
    after: 'staged.take(event, offer.positions[n], offer.committedAt[n] ?? "", signal),',
    reason: "For the type checker: each event has a position.",
  },
  {
    file: "connectors/shared/receiver/stored-incident.ts",
    before:
      "priority: [stored.priority, ...folded.map(({ priority }) => priority)].sort()[0] ?? stored.priority,",
    after:
      "priority: [stored.priority, ...folded.map(({ priority }) => priority)].sort()[1] ?? stored.priority,",
    reason: "`refresh` gives a list the priority of its most urgent alarm, so both are the same.",
  },
  {
    file: "connectors/shared/receiver/timing.ts",
    before: "const end = atTime(to < from ? day.plus({ days: 1 }) : day, to);",
    after: "const end = atTime(to <= from ? day.plus({ days: 1 }) : day, to);",
    reason: "The configuration rejects equal times.",
  },
  {
    file: "connectors/kafka/cluster.ts",
    before: 'name: name ?? "",',
    after: "name: name,",
    reason: "For the type checker: a topic that is requested by name has one.",
  },
  {
    file: "connectors/kafka/cluster.ts",
    before:
      "if (error instanceof ResponseError && error.response !== undefined) return error.response as Answer;",
    after:
      "if (error instanceof ResponseError || error.response !== undefined) return error.response as Answer;",
    reason: "Every ResponseError has a response, and no other error has one.",
  },
  {
    file: "connectors/kafka/outcome.ts",
    before:
      'const own = error instanceof GenericError && typeof error.apiId === "string" ? [error.apiId] : [];',
    after:
      'const own = error instanceof GenericError || typeof error.apiId === "string" ? [error.apiId] : [];',
    reason: "An undefined code is compared with names only.",
  },
  {
    file: "connectors/kafka/config.ts",
    before: "const port = Number(BROKER.exec(text)?.[2] ?? 0);",
    after: "const port = Number(BROKER.exec(text)?.[2]);",
    reason: "NaN is no port, as 0 is none.",
  },
  {
    file: "connectors/kafka/client.ts",
    before: 'signal.removeEventListener("abort", end);',
    after: ";",
    reason: "The connection is closed, and closing it again does nothing.",
  },
  {
    file: "connectors/kafka/client.ts",
    before: 'signal.addEventListener("abort", end, { once: true });',
    after: 'signal.addEventListener("abort", end, { once: false });',
    reason: "A signal aborts once.",
  },
  {
    file: "connectors/kafka/connections.ts",
    before: "open.clear();",
    after: ";",
    reason: "A connection that has ended is not used again.",
  },
  {
    file: "connectors/kafka/client.ts",
    before: "maxInflights: 1,",
    after: "maxInflights: (1 * 2),",
    reason: "A broker gets the next request after the response to the last.",
  },
  {
    file: "connectors/shared/receiver/apply-event.ts",
    before: "const group = ledger.get(key)?.into ?? null;",
    after: "const group = ledger.get(key)?.into;",
    reason: "`refresh` finds no incident under an undefined key.",
  },
  {
    file: "connectors/shared/receiver/apply-event.ts",
    before: "retriggers: 0,",
    after: "retriggers: 1,",
    reason: "A list never returns: it is compared with itself only.",
  },
  {
    file: "connectors/shared/receiver/timing.ts",
    before: "return then.length > 0 && alarms.length > 0 && alarms.every(isCovered);",
    after: "return then.length >= 0 && alarms.length > 0 && alarms.every(isCovered);",
    reason: "Without a silence no alarm is covered.",
  },
  {
    file: "connectors/parquet/delta/table.ts",
    before: "const MAX_RACES = 100;",
    after: "const MAX_RACES = (100 * 2);",
    reason: "A bound on lost races; any number of that size is one.",
  },
  {
    file: "connectors/parquet/delta/statistics.ts",
    before: 'return text.length <= PREFIX ? text : [...text].slice(0, PREFIX).join("");',
    after: 'return text.length < PREFIX ? text : [...text].slice(0, PREFIX).join("");',
    reason: "A text of that length stays complete.",
  },
  {
    file: "connectors/parquet/sink-state.ts",
    before: "completeDays: completeDays.toSorted((a, b) => (a.day < b.day ? -1 : 1)),",
    after: "completeDays: completeDays.toSorted((a, b) => (a.day < b.day ? -1 : (1 * 2))),",
    reason: "The sort uses only the sign.",
  },
  {
    file: "src/engine/sync/sensors/sensor-table.ts",
    before: "if (Math.abs(shifted - Math.round(shifted)) < 1e-6) return decimals;",
    after: "if (Math.abs(shifted - Math.round(shifted)) <= 1e-6) return decimals;",
    reason: "A tolerance; no measured value is exactly at its edge.",
  },
  {
    file: "connectors/parquet/sink.ts",
    before: 'staged.take(event, offer.positions[n] ?? 0, offer.committedAt[n] ?? "", signal),',
    after: 'staged.take(event, offer.positions[n] ?? 1, offer.committedAt[n] ?? "", signal),',
    reason: "For the type checker: each event has a position.",
  },
  {
    file: "connectors/parquet/s3-store.ts",
    before: "const CONFLICTS = 3;",
    after: "const CONFLICTS = (3 * 2);",
    reason: "A bound on conflicts; any number of that size is one.",
  },
  {
    file: "connectors/parquet/folder-store.ts",
    before: "await rm(draft, { force: true });",
    after: "await rm(draft, { force: false });",
    reason: "The draft is there.",
  },
  {
    file: "connectors/parquet/delta-format.ts",
    before:
      "const stats = await statisticsOf(table, rows.length, (place, n) => columns.cell(place, rows[n] ?? 0));",
    after:
      "const stats = await statisticsOf(table, rows.length, (place, n) => columns.cell(place, rows[n]));",
    reason: "For the type checker: there are so many rows.",
  },
  {
    file: "connectors/parquet/delta/statistics.ts",
    before: "} else if (value !== min && value !== max) {",
    after: "} else if (value !== min || value !== max) {",
    reason: "A value that equals a bound moves neither bound.",
  },
  {
    file: "connectors/parquet/delta/statistics.ts",
    before: "return a.length < b.length;",
    after: "return a.length <= b.length;",
    reason: "Equal texts are not compared.",
  },
  {
    file: "connectors/parquet/delta/table.ts",
    before: 'const property = metaData?.configuration?.["delta.deletedFileRetentionDuration"] ?? "";',
    after: 'const property = metaData?.configuration?.["delta.deletedFileRetentionDuration"];',
    reason: 'The pattern matches neither "undefined" nor "null".',
  },
  {
    file: "connectors/kafka/producer.ts",
    before: "const lane = lanes.get(name) ?? { topic: record.topic, partition, leader, runs: [], bytes: 0 };",
    after: "const lane = lanes.get(name) ?? { topic: record.topic, partition, leader, runs: [], bytes: 1 };",
    reason: "The first record sets it.",
  },
  {
    file: "src/engine/sync/sensors/findings.ts",
    before: 'const side = lagMs > 0 ? "behind" : "ahead of";',
    after: 'const side = lagMs >= 0 ? "behind" : "ahead of";',
    reason: "A lag of 0 is no finding.",
  },
  {
    file: "src/engine/sync/sensors/sensor-table.ts",
    before: "const wider = new Float64Array(Math.min(GROUP, 2 * rows) * WIDTH);",
    after: "const wider = new Float64Array(Math.min(GROUP, (2 * 2) * rows) * WIDTH);",
    reason: "The group has room for more rows earlier.",
  },
  {
    file: "connectors/parquet/sink-state.ts",
    before: "completeDays: completeDays.toSorted((a, b) => (a.day < b.day ? -1 : 1)),",
    after: "completeDays: completeDays.toSorted((a, b) => (a.day <= b.day ? -1 : 1)),",
    reason: "Of two sites with the same day, either is finalized first.",
  },
  {
    file: "connectors/parquet/delta-format.ts",
    before: 'const own = randomBytes(4).toString("hex");',
    after: 'const own = randomBytes((4 * 2)).toString("hex");',
    reason: "A longer random name.",
  },
  {
    file: "connectors/parquet/delta-format.ts",
    before: "for (let tried = 0; tried < CONFLICTS; tried++) {",
    after: "for (let tried = 1; tried < CONFLICTS; tried++) {",
    reason: "A bound on conflicts; any number of that size is one.",
  },
  {
    file: "connectors/parquet/commits.ts",
    before: "const isFull = buffer.rows >= options.maxRows || buffer.characters >= MAX_CHARACTERS;",
    after: "const isFull = buffer.rows >= options.maxRows || buffer.characters > MAX_CHARACTERS;",
    reason: "One character of 16 million.",
  },
  {
    file: "connectors/parquet/row-buffer.ts",
    before: "return [...tableBuffers.values()].reduce((sum, { columns }) => sum + columns.characters, 0);",
    after: "return [...tableBuffers.values()].reduce((sum, { columns }) => sum + columns.characters, 1);",
    reason: "One character of 16 million.",
  },
  {
    file: "connectors/parquet/row-buffer.ts",
    before: "events += 1;",
    after: "events += (1 * 2);",
    reason: "Compared with 0 only.",
  },
  {
    file: "connectors/parquet/s3-store.ts",
    before: "const CONNECT_MS = 10_000;",
    after: "const CONNECT_MS = (10_000 * 2);",
    reason: "A bound on the time to connect; any number of that size is one.",
  },
  {
    file: "connectors/shared/lake/table.ts",
    before:
      'const to = withCell(row, columnIndexOf(table, "valid_to"), by[columnIndexOf(table, "valid_from")] ?? null);',
    after:
      'const to = withCell(row, columnIndexOf(table, "valid_to"), by[columnIndexOf(table, "valid_from")]);',
    reason: "For the type checker: a row has every cell.",
  },
  {
    file: "connectors/shared/lake/table.ts",
    before: "return withCell(traced, index, by[index] ?? null);",
    after: "return withCell(traced, index, by[index]);",
    reason: "For the type checker: a row has every cell.",
  },
  {
    file: "connectors/shared/lake/table.ts",
    before: "if (at !== null && before !== undefined)",
    after: "if (at !== null || before !== undefined)",
    reason: "For the type checker: both are known or neither is.",
  },
  {
    file: "connectors/shared/lake/table.ts",
    before: 'const isCurrent = isVersions ? columnIndexOf(table, "is_current") : -1;',
    after: 'const isCurrent = isVersions ? columnIndexOf(table, "is_current") : -(1 * 2);',
    reason: "Read for tables of versions only.",
  },
  {
    file: "connectors/shared/lake/table.ts",
    before: "const isAt = !isVersions || row[isCurrent] === true ? at : (known?.at ?? null);",
    after: "const isAt = !isVersions || row[isCurrent] === true ? at : (known?.at);",
    reason: "Read with `?? null`.",
  },
  {
    file: "connectors/shared/lake/cells.ts",
    before: "return Object.hasOwn(CODES, known) ? (CODES[known] ?? null) : null;",
    after: "return Object.hasOwn(CODES, known) ? (CODES[known]) : null;",
    reason: "For the type checker: the object has the property.",
  },
  {
    file: "connectors/shared/lake/rows.ts",
    before: "revision: revised ? (common.observed_at ?? 0) : 0,",
    after: "revision: revised ? (common.observed_at) : 0,",
    reason: "For the type checker: `emitRows` always sets it.",
  },
  {
    file: "connectors/shared/lake/rows.ts",
    before: "revision: revised ? (common.observed_at ?? 0) : 0,",
    after: "revision: revised ? (common.observed_at ?? 1) : 0,",
    reason: "For the type checker: `emitRows` always sets it.",
  },
  {
    file: "connectors/shared/lake/rows.ts",
    before: 'return /[+-]\\d\\d:\\d\\d$/.exec(raw ?? "")?.[0] ?? null;',
    after: "return /[+-]\\d\\d:\\d\\d$/.exec(raw)?.[0] ?? null;",
    reason: 'The pattern does not match "null".',
  },
  {
    file: "connectors/shared/receiver/stored-incident.ts",
    before: "const rank = (member: StoredIncident) => (isOver(member) ? 1 : 0);",
    after: "const rank = (member: StoredIncident) => (isOver(member) ? (1 * 2) : 0);",
    reason: "The sort uses only the sign.",
  },
  {
    file: "connectors/shared/receiver/sink.ts",
    before: 'committedAt: offer?.committedAt[index] ?? "",',
    after: "committedAt: offer?.committedAt[index],",
    reason: "`holdFrom` treats an undefined time like an empty one.",
  },
  {
    file: "connectors/shared/receiver/notifier.ts",
    before: "retriggers: 0,",
    after: "retriggers: 1,",
    reason: "The test incident is never compared with an earlier state.",
  },
  {
    file: "connectors/kafka/sink.ts",
    before: "const from = receipt.kept?.from ?? batch.length;",
    after: "const from = receipt.kept?.from;",
    reason: "`n >= undefined` is false, as is `n >= batch.length`.",
  },
  {
    file: "connectors/kafka/sink.ts",
    before:
      'outcomes.flatMap((fate) => (fate.is === "open" && fate.error !== undefined ? [fate.error] : []))[0] ?? new Retryable("The Kafka cluster did not acknowledge it.");',
    after:
      'outcomes.flatMap((fate) => (fate.is === "open" && fate.error !== undefined ? [fate.error] : []))[0];',
    reason: "For the type checker: where a record stays open, one record has an error.",
  },
  {
    file: "connectors/kafka/producer.ts",
    before: "const sent = lanes.map((lane) => ({ lane, run: lane.runs.shift() ?? [] }));",
    after: "const sent = lanes.map((lane) => ({ lane, run: lane.runs.shift() }));",
    reason: "For the type checker: only lanes with runs are sent.",
  },
  {
    file: "connectors/kafka/producer.ts",
    before: "if (error instanceof ResponseError && error.response !== undefined) {",
    after: "if (error instanceof ResponseError || error.response !== undefined) {",
    reason: "Every ResponseError has a response, and no other error has one.",
  },
  {
    file: "connectors/kafka/client.ts",
    before: 'signal.addEventListener("abort", abort, { once: true });',
    after: 'signal.addEventListener("abort", abort, { once: false });',
    reason: "A signal aborts once, and the listener is removed.",
  },
  {
    file: "connectors/kafka/client.ts",
    before: 'password ?? "",',
    after: "password,",
    reason: "For the type checker: the configuration always has a password.",
  },
  {
    file: "connectors/kafka/cluster.ts",
    before: "for (const topic of await requestMetadata(unknown, createTopics, false)) {",
    after: "for (const topic of await requestMetadata(unknown, createTopics, true)) {",
    reason: "The response then also holds permissions, which `topics` does not read.",
  },
  {
    file: "connectors/kafka/cluster.ts",
    before: "broker.request(PRODUCER_ID, null, 0),",
    after: "broker.request(PRODUCER_ID, null, 1),",
    reason: "The transaction time-out: the producer has no transactions.",
  },
  {
    file: "connectors/kafka/client.ts",
    before:
      'if (!(error instanceof ResponseError) || !findErrorBy(error, "apiId", "UNSUPPORTED_SASL_MECHANISM"))',
    after:
      'if (!(error instanceof ResponseError) && !findErrorBy(error, "apiId", "UNSUPPORTED_SASL_MECHANISM"))',
    reason: "A broker names its mechanisms only with that error.",
  },
  {
    file: "connectors/parquet/delta/statistics.ts",
    before: "return isSurrogate(one) === isSurrogate(other) ? one < other : isSurrogate(other);",
    after: "return isSurrogate(one) === isSurrogate(other) ? one <= other : isSurrogate(other);",
    reason: "They differ here.",
  },
  {
    file: "connectors/parquet/delta/statistics.ts",
    before: 'return typeof a === "string" && typeof b === "string" ? textComesBefore(a, b) : a < b;',
    after: 'return typeof a === "string" && typeof b === "string" ? textComesBefore(a, b) : a <= b;',
    reason: "A value that equals a bound is not compared with it.",
  },
  {
    file: "connectors/parquet/delta/statistics.ts",
    before: "if (text.length <= PREFIX) return text;",
    after: "if (text.length < PREFIX) return text;",
    reason: "The last line returns a text of that length unchanged.",
  },
  {
    file: "connectors/parquet/delta/statistics.ts",
    before: "if (row % AT_ONCE === AT_ONCE - 1) await yieldToEventLoop();",
    after: "if (row % AT_ONCE === AT_ONCE - (1 * 2)) await yieldToEventLoop();",
    reason: "Other work runs one cell earlier.",
  },
  {
    file: "connectors/parquet/delta/statistics.ts",
    before: "const AT_ONCE = 20_000;",
    after: "const AT_ONCE = (20_000 * 2);",
    reason: "Any number of that size is one.",
  },
  {
    file: "connectors/parquet/delta/log.ts",
    before: "if (!listing.commits.has(version)) return load(signal, false);",
    after: "if (!listing.commits.has(version)) return load(signal, true);",
    reason: "The statistics stay in memory and are not read.",
  },
  {
    file: "connectors/parquet/delta/table.ts",
    before: "apply(snapshot, version, actions, false);",
    after: "apply(snapshot, version, actions, true);",
    reason: "The same.",
  },
  {
    file: "connectors/parquet/delta/table.ts",
    before: "for (let race = 0; race < MAX_RACES; race += 1) {",
    after: "for (let race = 0; race < MAX_RACES; race += (1 * 2)) {",
    reason: "A bound on lost races; any number of that size is one.",
  },
  {
    file: "src/engine/source/quota/record.ts",
    before: "jumps += 1;",
    after: "jumps += (1 * 2);",
    reason: "It is only compared with what it was.",
  },
  {
    file: "src/engine/source/quota/record.ts",
    before: "const JUMP_MS = 100;",
    after: "const JUMP_MS = (100 * 2);",
    reason: "Between slewing and a jump; any number of that size is one.",
  },
  {
    file: "src/engine/sync/plan/group.ts",
    before: "if (missing <= 0) continue;",
    after: "if (missing < 0) continue;",
    reason: "Of none that is missing none is chosen.",
  },
  {
    file: "src/engine/sync/plan/group.ts",
    before: "const [first = 0, second = 0] = [a, b].map((each) =>",
    after: "const [first = 1, second = 0] = [a, b].map((each) =>",
    reason: "For the type checker: there are two.",
  },
  {
    file: "src/engine/delivery/restart-watch.ts",
    before: "const from = points.findLast(({ atMs }) => atMs <= sinceMs) ?? points[0];",
    after: "const from = points.findLast(({ atMs }) => atMs < sinceMs) ?? points[0];",
    reason: "A millisecond of a window of a minute at least.",
  },
  {
    file: "src/engine/delivery/restart-watch.ts",
    before: "again: life.again.filter(({ atMs }) => atMs > sinceMs).slice(-MOST),",
    after: "again: life.again.filter(({ atMs }) => atMs >= sinceMs).slice(-MOST),",
    reason: "The same.",
  },
  {
    file: "src/engine/delivery/pruning.ts",
    before:
      "const ranMs = options.clockDoubt.anywhere() === null ? Math.min(nowMs - countedMs, MOST_RAN_MS) : 0;",
    after:
      "const ranMs = options.clockDoubt.anywhere() === null ? Math.min(nowMs - countedMs, MOST_RAN_MS) : 1;",
    reason: "A millisecond of a minute.",
  },
  {
    file: "src/engine/delivery/pruning.ts",
    before: "const MOST_RAN_MS = 2 * PRUNE_EVERY_MS;",
    after: "const MOST_RAN_MS = (2 * 2) * PRUNE_EVERY_MS;",
    reason: "A bound for a process that stood still for days; any number of that size is one.",
  },
  {
    file: "src/engine/delivery/pruning.ts",
    before: "looks: true,",
    after: "looks: false,",
    reason: "At another moment of the second.",
  },
  {
    file: "src/engine/store/outbox.ts",
    before: "if (moved >= (ahead.get(sink)?.through ?? 0)) ahead.delete(sink);",
    after: "if (moved >= (ahead.get(sink)?.through)) ahead.delete(sink);",
    reason: "Where there is none, none is taken away.",
  },
  {
    file: "src/engine/store/outbox.ts",
    before: "const last = events.at(-1)?.position ?? 0;",
    after: "const last = events.at(-1)?.position ?? 1;",
    reason: "Compared with a hundred.",
  },
  {
    file: "src/engine/store/outbox.ts",
    before: "if (report.told > 0) changes.wakeUp();",
    after: "if (report.told >= 0) changes.wakeUp();",
    reason: "Who is woken for nothing looks, and waits again.",
  },
  {
    file: "src/engine/store/outbox-rules.ts",
    before: "return JSON.stringify({ [field]: value }).slice(1, -1);",
    after: "return JSON.stringify({ [field]: value }).slice((1 * 2), -1);",
    reason: "No other field ends in the same word.",
  },
  {
    file: "src/engine/store/redeliveries.ts",
    before: "for (let from = Math.max(after, first); from < through; from += MARK_SLICE) {",
    after: "for (let from = Math.max(after, first); from <= through; from += MARK_SLICE) {",
    reason: "A slice of nothing.",
  },
  {
    file: "src/core/codec/history-event.ts",
    before: 'if (kind < 0 || kind > at || !text.endsWith("}}")) return null;',
    after: 'if (kind < 0 || kind >= at || !text.endsWith("}}")) return null;',
    reason: "Both begin with another letter.",
  },
  {
    file: "src/core/codec/history-event.ts",
    before: "const most = points.length * QUOTED_BYTES + 4 + 2 * ROUND_BYTES;",
    after: "const most = points.length * QUOTED_BYTES + 4 + (2 * 2) * ROUND_BYTES;",
    reason: "Room for the longest, and more is as good.",
  },
  {
    file: "src/core/codec/history-event.ts",
    before: "const ROUND_BYTES = 200_000;",
    after: "const ROUND_BYTES = (200_000 * 2);",
    reason: "The same.",
  },
  {
    file: "src/core/codec/packed-points.ts",
    before: "export const PACKED_BYTES = 60;",
    after: "export const PACKED_BYTES = (60 * 2);",
    reason: "The same.",
  },
  {
    file: "src/core/codec/packed-points.ts",
    before: "if (place > 0) bytes[at++] = SEMICOLON;",
    after: "if (place > 1) bytes[at++] = SEMICOLON;",
    reason: "The second point always comes as long after the first as the group says.",
  },
  {
    file: "src/core/codec/history-event.ts",
    before: "const QUOTED_BYTES = 84;",
    after: "const QUOTED_BYTES = (84 * 2);",
    reason: "Room is taken for the longest, and more is as good.",
  },
  {
    file: "src/core/codec/history-event.ts",
    before: "const most = points.length * QUOTED_BYTES + 4 + 2 * ROUND_BYTES;",
    after: "const most = points.length * QUOTED_BYTES + (4 * 2) + 2 * ROUND_BYTES;",
    reason: "The same.",
  },
  {
    file: "src/core/codec/history-event.ts",
    before: "const BENCH = { packed: Buffer.allocUnsafeSlow(0), quoted: Buffer.allocUnsafeSlow(0) };",
    after: "const BENCH = { packed: Buffer.allocUnsafeSlow(0), quoted: Buffer.allocUnsafeSlow(1) };",
    reason: "Either is too small for the first event.",
  },
  {
    file: "src/core/codec/history-event.ts",
    before: 'if (kind < 0 || kind > at || !text.endsWith("}}")) return null;',
    after: 'if (kind < 1 || kind > at || !text.endsWith("}}")) return null;',
    reason: "A text begins with a brace.",
  },
  {
    file: "src/core/codec/history-event.ts",
    before: 'if (kind < 0 || kind > at || !text.endsWith("}}")) return null;',
    after: 'if (kind <= 0 || kind > at || !text.endsWith("}}")) return null;',
    reason: "The same.",
  },
  {
    file: "src/core/codec/history-event.ts",
    before: "if (from < PACKED.length) return null;",
    after: "if (from <= PACKED.length) return null;",
    reason: "The same.",
  },
  {
    file: "src/core/codec/history-event.ts",
    before: "const isPlain = before === head.length && after === tail.length;",
    after: "const isPlain = before === head.length && after !== tail.length;",
    reason: "What is plain reads the same as UTF-8.",
  },
  {
    file: "src/engine/delivery/snapshot.ts",
    before: "return clock.now() - Date.parse(askedAt) > WAIT_MS || (await picture.isWhole());",
    after: "return clock.now() - Date.parse(askedAt) >= WAIT_MS || (await picture.isWhole());",
    reason: "A millisecond of ten minutes.",
  },
  {
    file: "src/engine/delivery/restart-watch.ts",
    before: "const MOST = 500;",
    after: "const MOST = (500 * 2);",
    reason: "A bound on what is remembered; any number of that size is one.",
  },
  {
    file: "src/engine/delivery/restart-watch.ts",
    before: "const CLOSE = 1_000;",
    after: "const CLOSE = (1_000 * 2);",
    reason: "How far apart two stretches may lie to be noted as one; any number of that size is one.",
  },
  {
    file: "src/engine/delivery/restart-watch.ts",
    before: "first - before.last <= CLOSE;",
    after: "first - before.last < CLOSE;",
    reason: "The same.",
  },
  {
    file: "src/engine/delivery/restart-watch.ts",
    before: "ranBeforeMs = kept?.nowMs ?? 0;",
    after: "ranBeforeMs = kept?.nowMs ?? 1;",
    reason: "A millisecond of a window of a minute at least.",
  },
  {
    file: "src/engine/delivery/sink-loop.ts",
    before: "return 0;",
    after: "return 1;",
    reason: "The next look comes a millisecond later.",
  },
  {
    file: "src/engine/delivery/sink-loop.ts",
    before:
      "return Math.max(0, Math.min(dueMs, skipped.dueInMs(), restarts.dueInMs(), offers.othersDueInMs()));",
    after:
      "return Math.max(1, Math.min(dueMs, skipped.dueInMs(), restarts.dueInMs(), offers.othersDueInMs()));",
    reason: "What is due waits a millisecond.",
  },
  {
    file: "src/engine/delivery/restart-watch.ts",
    before: "held = kept ?? { nowMs: 0, life: null, seenMs: 0, points: [first], again: [] };",
    after: "held = kept ?? { nowMs: 0, life: null, seenMs: 1, points: [first], again: [] };",
    reason: "A millisecond of a window of a minute at least.",
  },
  {
    file: "src/engine/delivery/restart-watch.ts",
    before: "let silences = 0;",
    after: "let silences = 1;",
    reason: "Each look at an open far end comes after the one at its opening, which sets it.",
  },
  {
    file: "src/engine/delivery/sink-loop.ts",
    before: "const portion = { again: false, batch, through: 0, seen: batch.length, counted: undefined };",
    after: "const portion = { again: false, batch, through: 1, seen: batch.length, counted: undefined };",
    reason: "What is believed has no place in the log, so its position settles nothing.",
  },
  {
    file: "src/engine/delivery/skipped.ts",
    before: "let sinceMs = 0;",
    after: "let sinceMs = 1;",
    reason: "Set before it is read.",
  },
  {
    file: "src/engine/sync/plan/group.ts",
    before: "return period === otherPeriod ? idOf(a) < idOf(b) : period < otherPeriod;",
    after: "return period === otherPeriod ? idOf(a) <= idOf(b) : period < otherPeriod;",
    reason: "No two tags have the same id.",
  },
  {
    file: "src/engine/sync/plan/group.ts",
    before: "for (let slot = 0; slot < HORIZON_SLOTS && most < rules.size; slot++) {",
    after: "for (let slot = 0; slot < HORIZON_SLOTS && most <= rules.size; slot++) {",
    reason: "Once a whole request must go, no later slot asks for more: the rest is looked at for nothing.",
  },
  {
    file: "src/engine/sync/plan/group.ts",
    before: "if (count <= 0) return first;",
    after: "if (count < 0) return first;",
    reason: "Of no places none is filled: the list stays empty.",
  },
  {
    file: "src/engine/sync/plan/group.ts",
    before: "const turn = group[0]?.[1].turn ?? null;",
    after: "const turn = group[0]?.[1].turn;",
    reason: "It is compared with words only.",
  },
  {
    file: "src/engine/sync/plan/group.ts",
    before: ".sort((a, b) => (isWorse(a, b) ? -1 : 1))",
    after: ".sort((a, b) => (isWorse(a, b) ? -1 : (1 * 2)))",
    reason: "An order knows only the sign.",
  },
  {
    file: "src/engine/sync/plan/group.ts",
    before: "const turn = taken.get(period) ?? 0;",
    after: "const turn = taken.get(period) ?? 1;",
    reason: "Every interval's turns begin one later.",
  },
  {
    file: "src/engine/sync/plan/group.ts",
    before: "if (patience(a) === 0 || patience(b) === 0) return 0;",
    after: "if (patience(a) === 0 || patience(b) === 0) return 1;",
    reason: "An order that says of each pair that it is the other way round leaves all as they are.",
  },
  {
    file: "src/engine/sync/plan/report.ts",
    before: "if (measuredMs === null || measuredMs <= wishedMs) return false;",
    after: "if (measuredMs === null || measuredMs < wishedMs) return false;",
    reason: "What is the same is shown the same.",
  },
  {
    file: "src/engine/sync/plan/report.ts",
    before: "for (let step = 0; step < 50; step++) {",
    after: "for (let step = 1; step < 50; step++) {",
    reason: "Bisection has come to one number long before.",
  },
  {
    file: "src/engine/sync/plan/group.ts",
    before: "if (age !== otherAge) return age > otherAge;",
    after: "if (age !== otherAge) return age >= otherAge;",
    reason: "They are not the same.",
  },
  {
    file: "src/engine/sync/plan/overload.ts",
    before: "while (demandAt(high) > share && high < 1e6) high *= 2;",
    after: "while (demandAt(high) > share && high < (1e6 * 2)) high *= 2;",
    reason: "A bound for what no factor makes fit; any number of that size is one.",
  },
  {
    file: "src/engine/sync/plan/report.ts",
    before: "return Math.ceil((ms - 1e-6) / stepMs) * stepMs;",
    after: "return Math.ceil((ms - (1e-6 * 2)) / stepMs) * stepMs;",
    reason: "A millionth of a millisecond is what bisection leaves; two are none either.",
  },
  {
    file: "src/engine/sync/plan/report.ts",
    before: "for (let step = 0; step < 50; step++) {",
    after: "for (let step = 0; step < (50 * 2); step++) {",
    reason: "Bisection has come to one number long before.",
  },
  {
    file: "src/engine/sync/plan/overload.ts",
    before: "for (let step = 0; step < 40; step++) {",
    after: "for (let step = 0; step <= 40; step++) {",
    reason: "Bisection is exact to a millionth long before.",
  },
  {
    file: "src/engine/sync/history/ledger-ranges.ts",
    before: "if (nextMs - time >= steadyMs) break;",
    after: "if (nextMs + time >= steadyMs) break;",
    reason: "Spares the rules of the zone; the silence that is found without it is short, and joined.",
  },
  {
    file: "src/engine/sync/history/buckets.ts",
    before: "if (each.toMs <= fromMs) continue;",
    after: "if (each.toMs < fromMs) continue;",
    reason: "A range that ends where the rest begins takes nothing from it, and the rest begins there still.",
  },
  {
    file: "src/engine/store/lag.ts",
    before: "(first, { committed_ms: ms }) => (first === null || ms < first ? ms : first),",
    after: "(first, { committed_ms: ms }) => (first === null || ms <= first ? ms : first),",
    reason: "Of two equal numbers either is the least.",
  },
  {
    file: "src/engine/source/quota/rate-limiter.ts",
    before: "let entries = 0;",
    after: "let entries = 1;",
    reason: "Names requests for the queue; any names do.",
  },
  {
    file: "src/engine/source/quota/quota.ts",
    before: "if (!maySplit || all().length > 1) return;",
    after: "if (!maySplit || all().length > (1 * 2)) return;",
    reason: "There is one allowance, or three.",
  },
  {
    file: "src/engine/source/quota/caution.ts",
    before:
      'while (lesson !== "spacing" && marginMs > 0 && now - marginSettledAt >= MARGIN_DECAY_EVERY_MS) {',
    after: 'while (lesson !== "spacing" && marginMs > 1 && now - marginSettledAt >= MARGIN_DECAY_EVERY_MS) {',
    reason:
      "The margin is 0 or at least 52 ms: it begins with 250 and shrinks by a fifth seven times at most.",
  },
  {
    file: "src/engine/source/quota/rate-limiter.ts",
    before: "let answered = false;",
    after: "let answered = true;",
    reason: "Set by whichever way the request ends.",
  },
  {
    file: "src/scale/postgres/retention.ts",
    before: "[source, sink ?? null],",
    after: "[source, sink],",
    reason: "The driver sends null for undefined.",
  },
  {
    file: "src/scale/postgres/redeliveries.ts",
    before: "const MARK_SLICE = 5_000;",
    after: "const MARK_SLICE = (5_000 * 2);",
    reason: "A bound for one transaction; any number of that size is one.",
  },
  {
    file: "src/scale/postgres/redeliveries.ts",
    before: "marked += Number(answer.rows[0]?.[0] ?? 0);",
    after: "marked += Number(answer.rows[0]?.[0] ?? 1);",
    reason: "For the type checker: a count is always one row.",
  },
  {
    file: "src/scale/postgres/notifications.ts",
    before: 'limit.addEventListener("abort", cut, { once: true });',
    after: 'limit.addEventListener("abort", cut, { once: false });',
    reason: "A signal aborts once.",
  },
  {
    file: "src/scale/postgres/open.ts",
    before: "const MIGRATION_MS = 10 * 60_000;",
    after: "const MIGRATION_MS = (10 * 2) * 60_000;",
    reason: "A guard against a server that hangs; any number of that size is one.",
  },
  {
    file: "src/scale/postgres/open.ts",
    before: "const MIGRATION_MS = 10 * 60_000;",
    after: "const MIGRATION_MS = 10 * (60_000 * 2);",
    reason: "The same.",
  },
  {
    file: "src/scale/postgres/event-log.ts",
    before: "const [from = 0, fresh = 0, repeated, committedMs] = rows[0] ?? [];",
    after: "const [from = 1, fresh = 0, repeated, committedMs] = rows[0] ?? [];",
    reason: "For the type checker: the statement always returns one row.",
  },
  {
    file: "src/scale/postgres/schema.ts",
    before: "return Number(versions[0]?.[0] ?? 0);",
    after: "return Number(versions[0]?.[0]);",
    reason: "For the type checker: the table has one row.",
  },
  {
    file: "src/ui/status/silences.ts",
    before:
      'if (!asked.success) return context.json({ message: asked.error.issues[0]?.message ?? "" }, 400);',
    after: "if (!asked.success) return context.json({ message: asked.error.issues[0]?.message }, 400);",
    reason: "For the type checker: a failure has an issue.",
  },
  {
    file: "src/engine/silence/keeper.ts",
    before: "looks: true,",
    after: "looks: false,",
    reason: "At another moment of the second.",
  },
  {
    file: "src/app/config/changes.ts",
    before: "for (let length = path.length; length > 1; length -= 1) {",
    after: "for (let length = path.length; length >= 1; length -= 1) {",
    reason: "The list names no section as a whole.",
  },
  {
    file: "src/app/config/changes.ts",
    before: "for (let length = path.length; length > 0; length -= 1) {",
    after: "for (let length = path.length; length >= 0; length -= 1) {",
    reason: "No path is empty.",
  },
  {
    file: "src/app/reload/file-watch.ts",
    before: "looks: true,",
    after: "looks: false,",
    reason: "At another moment of the second.",
  },
  {
    file: "src/scale/postgres/redeliveries.ts",
    before:
      "for (let from = Math.max(after, Number(rows[0]?.[0] ?? 0)); from < through; from += MARK_SLICE) {",
    after:
      "for (let from = Math.max(after, Number(rows[1]?.[0] ?? 0)); from < through; from += MARK_SLICE) {",
    reason: "Spares slices of what has left the log.",
  },
  {
    file: "src/scale/postgres/open.ts",
    before: "const LIMIT_MS = 10_000;",
    after: "const LIMIT_MS = (10_000 * 2);",
    reason: "A guard against a server that says nothing; any number of that size is one.",
  },
  {
    file: "src/scale/postgres/outbox.ts",
    before: "const [bytes = 0, pendingBytes = 0, oldestMs = null] = rows[0] ?? [];",
    after: "const [bytes = 0, pendingBytes = 1, oldestMs = null] = rows[0] ?? [];",
    reason: "For the type checker: the statement always returns one row.",
  },
  {
    file: "src/ui/setup/page-setup.ts",
    before: "change: fits ? null : (changes[0]?.text ?? null),",
    after: "change: fits ? null : (changes[0]?.text),",
    reason: "For the type checker: a plan that does not fit has a change.",
  },
  {
    file: "src/ui/setup/plan.ts",
    before:
      'if (name === undefined || entry === undefined) throw new Error("a configuration without a source");',
    after:
      'if (name === undefined && entry === undefined) throw new Error("a configuration without a source");',
    reason: "For the type checker: a name has an entry.",
  },
  {
    file: "src/scale/fleet/restored.ts",
    before: 'const place = JSON.stringify(String(here[0]?.[0] ?? ""));',
    after: "const place = JSON.stringify(String(here[0]?.[0]));",
    reason: "For the type checker: the statement always returns one row.",
  },
  {
    file: "src/scale/fleet/report.ts",
    before: "if ((changed?.rows.length ?? 0) > 0) return;",
    after: "if ((changed?.rows.length) > 0) return;",
    reason: "For the type checker: a statement has an answer.",
  },
  {
    file: "src/scale/fleet/leases.ts",
    before: "from: from === null || from === undefined ? null : String(from),",
    after: "from: from === null && from === undefined ? null : String(from),",
    reason: "Only a line of the log names it.",
  },
  {
    file: "src/scale/fleet/document.ts",
    before: "let applied = 0;",
    after: "let applied = 1;",
    reason: "The first look has the number 1.",
  },
  {
    file: "src/scale/fleet/kill-switch.ts",
    before: "looks: true,",
    after: "looks: false,",
    reason: "At another moment of the second.",
  },
  {
    file: "src/engine/sync/history/buckets.ts",
    before: "let next = 0;",
    after: "let next = 1;",
    reason: "Set with the first time.",
  },
  {
    file: "src/engine/sync/history/buckets.ts",
    before: "if (days.size >= KNOWN_MAX) days.clear();",
    after: "if (days.size >= KNOWN_MAX) ;",
    reason: "A bound of the memory that is used.",
  },
  {
    file: "src/engine/sync/history/buckets.ts",
    before:
      "if (last - at === 23 * HOUR_MS) return Array.from({ length: 24 }, (_, hour) => at + hour * HOUR_MS);",
    after:
      "if (last - at === 23 / HOUR_MS) return Array.from({ length: 24 }, (_, hour) => at + hour * HOUR_MS);",
    reason: "The slow way comes to the same hours.",
  },
  {
    file: "src/engine/sync/completeness/days.ts",
    before: 'if (resolution === "5m") return atMs - 1;',
    after: 'if (resolution === "5m") return atMs - (1 * 2);',
    reason: "Both are times of the bucket before.",
  },
  {
    file: "src/engine/sync/completeness/account.ts",
    before: "} else if (pending > 0 && ledger.refusal !== null) {",
    after: "} else if (pending >= 0 && ledger.refusal !== null) {",
    reason: "Of no bucket none is refused.",
  },
  {
    file: "src/engine/sync/completeness/finalized-days.ts",
    before: "return (ledger.days?.length ?? 0) > INLINE_MAX ? moveOut(series, ledger) : ledger;",
    after: "return (ledger.days?.length) > INLINE_MAX ? moveOut(series, ledger) : ledger;",
    reason: "For the type checker: the counts were just written.",
  },
  {
    file: "src/engine/sync/completeness/account.ts",
    before: "const site = sites.get(siteId) ?? { reach, lookBackMs: 0, groups: new Map<string, Group>() };",
    after: "const site = sites.get(siteId) ?? { reach, lookBackMs: 1, groups: new Map<string, Group>() };",
    reason: "No look-back is as short as a millisecond.",
  },
  {
    file: "src/engine/sync/completeness/finalized-days.ts",
    before: "if (++counted % AT_ONCE === 0) await yieldToEventLoop();",
    after: "if (++counted % AT_ONCE === 1) await yieldToEventLoop();",
    reason: "Others have their turn a series later.",
  },
  {
    file: "src/scale/fleet/share.ts",
    before: "return a < b ? -1 : a > b ? 1 : 0;",
    after: "return a < b ? -1 : a > b ? 1 : 1;",
    reason: "No two names are the same.",
  },
  {
    file: "src/scale/fleet/document.ts",
    before: "return (removed?.rows.length ?? 0) > 0;",
    after: "return (removed?.rows.length) > 0;",
    reason: "For the type checker: a statement has an answer.",
  },
  {
    file: "src/scale/fleet/document.ts",
    before: "asked += 1;",
    after: "asked += (1 * 2);",
    reason: "Numbers that rise, whatever the step.",
  },
  {
    file: "src/scale/fleet/armed-machine.ts",
    before:
      "if (databaseId === null || !isOurs || !marks.isFile() || marks.size !== DIGEST_LENGTH) return false;",
    after:
      "if (databaseId === null || !isOurs || !marks.isFile() && marks.size !== DIGEST_LENGTH) return false;",
    reason: "The text is compared as well.",
  },
  {
    file: "src/scale/fleet/leases.ts",
    before: "from: from === null || from === undefined ? null : String(from),",
    after: "from: from !== null || from === undefined ? null : String(from),",
    reason: "Only a line of the log names it.",
  },
  {
    file: "src/scale/fleet/view.ts",
    before: 'const [members, found] = (rows[0] ?? []).map((cell) => JSON.parse(String(cell ?? "[]")));',
    after: 'const [members, found] = (rows[0]).map((cell) => JSON.parse(String(cell ?? "[]")));',
    reason: "For the type checker: the statement always returns one row.",
  },
  {
    file: "src/scale/postgres/outbox.ts",
    before: "if (marked > 0) news.wakeUp();",
    after: "if (marked >= 0) news.wakeUp();",
    reason: "Sinks that are woken for nothing look, and wait again.",
  },
  {
    file: "src/scale/postgres/writer.ts",
    before: "commits += 1;",
    after: "commits += (1 * 2);",
    reason: "It is only compared with what it was.",
  },
  {
    file: "src/scale/postgres/writer.ts",
    before: "const BACKOFF = { firstMs: 100, maxMs: 2_000 };",
    after: "const BACKOFF = { firstMs: (100 * 2), maxMs: 2_000 };",
    reason: "A wait between two tries; any number of that size is one.",
  },
  {
    file: "src/scale/postgres/open.ts",
    before: "const [bytes, version, synchronousCommit, dataChecksums, isReplica] = rows[0] ?? [];",
    after: "const [bytes, version, synchronousCommit, dataChecksums, isReplica] = rows[0];",
    reason: "For the type checker: the statement always returns one row.",
  },
  {
    file: "src/scale/fleet/membership.ts",
    before: 'const incarnation = randomBytes(8).toString("hex");',
    after: 'const incarnation = randomBytes((8 * 2)).toString("hex");',
    reason: "A name that no other has; any length of that size is one.",
  },
];
