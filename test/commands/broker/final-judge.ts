import { COMMAND_OUTCOMES, type CommandResult } from "#src/core/model/command-event-data.ts";
import type { Event } from "#src/core/model/event.ts";
import type { AuditRecord } from "#src/engine/commands/audit/audit-log.ts";
import { kindOf, type Ledger } from "./ledger.ts";
import { type Kind, REASONS } from "./messages.ts";
import type { Connection, Delivery } from "./wire-tap.ts";
import type { WorkerRun } from "./worker-run.ts";

/** Checks at the end that each message was delivered in order, answered once, audited once and written at most once. */
export interface RunRecords {
  readonly ledger: Ledger;
  readonly deliveries: readonly Delivery[];
  readonly connections: readonly Connection[];
  /** By message, the last publish that had begun when the broker acknowledged it. */
  readonly published: ReadonlyMap<number, number>;
  readonly workerRuns: readonly WorkerRun[];
  readonly audit: readonly AuditRecord[];
  readonly results: readonly Event<"command-result">[];
  /** Ids of outbox events that the file sink has not received yet. */
  readonly waiting: ReadonlySet<string>;
  readonly downstream: readonly Event<"command-result">[];
  readonly writes: ReadonlyMap<string, number>;
  readonly secondMs: number;
}

const OUTCOMES: ReadonlySet<string> = new Set(COMMAND_OUTCOMES);
const LAWFUL_REASONS = ["flood", "too-soon", "too-many", "expired"];
const FLUSH_MS = 60_000;
const SERVICE_REASONS = new Set(["throttled", "refused-by-service"]);

export function judgeRun(records: RunRecords): readonly string[] {
  return [
    ...lostMessages(records),
    ...tracesWithoutDelivery(records),
    ...unitsPerRun(records),
    ...wrongReasons(records),
    ...commandEnds(records),
    ...differentResults(records),
  ];
}

function* lostMessages({ connections, deliveries, ledger, published }: RunRecords): Generator<string> {
  for (const [number, connection] of connections.entries()) {
    const since = connection.subscribedAfter;
    if (since === null) continue;
    const serialsOfConnection = new Set<number>();
    for (const each of deliveries) if (each.connection === connection) serialsOfConnection.add(each.serial);
    const last = [...serialsOfConnection].reduce((a, b) => Math.max(a, b), 0);
    const { run, protocol } = connection;
    const place = `connection ${number} (life ${run}, MQTT ${protocol}, granted after ${since}, heard ${last})`;
    for (const [serial, acknowledgedAt] of published) {
      const mayExpire = ledger.message(serial)?.mqtt5Properties?.messageExpiryInterval !== undefined;
      if (serial > since && acknowledgedAt < last && !serialsOfConnection.has(serial) && !mayExpire)
        yield `message ${serial}, acknowledged before ${acknowledgedAt + 1}, was not delivered over ${place}`;
    }
  }
}

function* tracesWithoutDelivery({ audit, deliveries, ledger, published, writes }: RunRecords): Generator<string> {
  for (const { connection, retained, serial } of deliveries) {
    const wasOver = (published.get(serial) ?? Number.POSITIVE_INFINITY) < connection.connectedAfter;
    if (wasOver && !retained) yield `message ${serial} was kept for the worker while it was away`;
  }
  const named = new Set([...audit.map((record) => record.commandId), ...writes.keys()]);
  for (const id of named) {
    if (/^[cg]\d/.test(id) && ledger.arrivals(id.replace(/\/restore$/, "")).length === 0)
      yield `${id} never arrived and left a trace`;
  }
}

function unitsOf({ ledger }: RunRecords, { serial }: Delivery): number {
  return ledger.message(serial)?.units.length ?? 0;
}

function* unitsPerRun(records: RunRecords): Generator<string> {
  for (const run of records.workerRuns) {
    const arrived = records.deliveries.filter(({ connection }) => connection.run === run.number);
    const taken = arrived.filter(({ acknowledgedAtMs }) => acknowledgedAtMs !== null);
    const sum = (all: readonly Delivery[]) => all.reduce((total, each) => total + unitsOf(records, each), 0);
    const reportedUnits = records.audit
      .filter(({ at }) => Date.parse(at) >= run.startMs && Date.parse(at) <= run.endMs)
      .reduce((total, record) => total + handledBy(record), 0);
    if (reportedUnits > sum(arrived))
      yield `life ${run.number}: ${reportedUnits} units told, ${sum(arrived)} delivered`;
    const sentWithinMs = FLUSH_MS + Math.max(records.secondMs, run.maxDelayMs);
    const surelyMs = run.how === "killed" ? run.endMs - sentWithinMs : run.endMs;
    const certainUnits = sum(taken.filter(({ atMs }) => atMs <= surelyMs));
    if (reportedUnits < certainUnits)
      yield `life ${run.number} (${run.how}): ${certainUnits} units taken, ${reportedUnits} accepted or told`;
    if (run.how === "failed") yield `life ${run.number} ended by itself`;
  }
}

const isRefusal = ({ detail, step }: AuditRecord) =>
  OUTCOMES.has(step) && typeof detail.by === "string" && !detail.by.startsWith("the end of ");
const isCountedRefusal = ({ commandId }: AuditRecord) => commandId.startsWith("many-");

function handledBy(record: AuditRecord): number {
  if (record.step === "accepted") return String(record.detail.by).startsWith("the end of ") ? 0 : 1;
  if (!isRefusal(record)) return 0;
  return isCountedRefusal(record) ? Number(/^\d+/.exec(String(record.detail.message))?.[0]) : 1;
}

function* wrongReasons({ audit, ledger }: RunRecords): Generator<string> {
  const accepted = new Set<string>();
  for (const record of audit) {
    const { commandId: id, detail, step } = record;
    if (step === "accepted") accepted.add(id);
    const arrivals = ledger.arrivals(id);
    if (!isRefusal(record) || isCountedRefusal(record) || arrivals.length === 0) continue;
    const reason = String(detail.reason);
    const allowed = new Set(arrivals.flatMap((arrival) => reasonsFor(kindOf(arrival))));
    const isAllowedReason = reason === "duplicate" ? accepted.has(id) : reason === "killed" || allowed.has(reason);
    if (!isAllowedReason) yield `${id} was refused as ${reason}, not as ${[...allowed].join(" or ")}`;
  }
}

function reasonsFor(kind: Kind): readonly string[] {
  return kind === "lawful" ? LAWFUL_REASONS : REASONS[kind];
}

function* commandEnds({ audit, ledger, writes }: RunRecords): Generator<string> {
  const histories = new Map<string, AuditRecord[]>();
  for (const record of audit) {
    if (isRefusal(record)) continue;
    const steps = histories.get(record.commandId) ?? [];
    histories.set(record.commandId, steps);
    steps.push(record);
  }
  for (const [id, steps] of histories) {
    const count = (wanted: (step: string) => boolean) => steps.filter(({ step }) => wanted(step)).length;
    const accepted = count((step) => step === "accepted");
    const sending = steps.find(({ step }) => step === "sending");
    const end = steps.find(({ step }) => OUTCOMES.has(step));
    if (end === undefined && accepted === 0) continue;
    const isPutBack = id.endsWith("/restore");
    if (accepted !== 1 && !(isPutBack && accepted === 0)) yield `${id} was accepted ${accepted} times`;
    if (count((step) => OUTCOMES.has(step)) !== 1)
      yield `${id} has ${count((step) => OUTCOMES.has(step))} ends in the audit log`;
    if (count((step) => step === "sending") > 1) yield `${id} was sent more than once`;
    if (sending === undefined && writes.has(id)) yield `${id} was written without a record of it`;
    const expiresAt = steps[0]?.detail.expiresAt;
    const isLate = sending !== undefined && typeof expiresAt === "string" && sending.at > expiresAt;
    if (isLate && writes.has(id)) yield `${id} left at ${sending.at}, after ${expiresAt}`;
    if (end !== undefined) yield* endMatchesWrites(id, end, writes.get(id) ?? 0);
    const taken = ledger.arrivals(id).find(({ unit }) => unit.value === steps[0]?.detail.value);
    const forMs = taken?.unit.forMs ?? null;
    const mustEnd = forMs !== null && end?.step === "confirmed" && end.detail.reason === null;
    if (mustEnd && !histories.has(`${id}/restore`) && !audit.some(({ commandId }) => commandId === `${id}/restore`))
      yield `${id} was for a time, and nothing tells of its end`;
  }
  for (const id of writes.keys()) if (!histories.has(id)) yield `${id} was written and never accepted`;
}

function* endMatchesWrites(id: string, { detail, step }: AuditRecord, writes: number): Generator<string> {
  const { reason } = detail;
  if (step === "confirmed" && reason === null && writes !== 1) yield `${id} is confirmed and was not written`;
  const isUnwritten =
    step === "expired" ||
    step === "superseded" ||
    (step === "rejected" && !SERVICE_REASONS.has(String(reason))) ||
    reason === "already-set";
  if (isUnwritten && writes > 0) yield `${id} was written, and its end is ${step} (${String(reason)})`;
}

function* differentResults({ audit, results, downstream, waiting }: RunRecords): Generator<string> {
  const key = ({ commandId, outcome, reason }: CommandResult) => `${commandId} ${outcome} ${reason}`;
  const audited = countBy(
    audit.filter(({ step }) => OUTCOMES.has(step)),
    ({ commandId, detail, step }) => `${commandId} ${step} ${String(detail.reason)}`,
  );
  const reportedUnits = countBy(results, ({ data }) => key(data));
  const received = new Map<string, Event<"command-result">>();
  for (const event of downstream) {
    const before = received.get(event.id);
    if (before !== undefined && JSON.stringify(before.data) !== JSON.stringify(event.data))
      yield `${event.id} came twice with different content`;
    received.set(event.id, event);
  }
  for (const event of results) if (waiting.has(event.id) && !received.has(event.id)) received.set(event.id, event);
  const heard = countBy([...received.values()], ({ data }) => key(data));
  for (const each of new Set([...audited.keys(), ...reportedUnits.keys(), ...heard.keys()])) {
    const counts = [audited, reportedUnits, heard].map((map) => map.get(each) ?? 0);
    if (new Set(counts).size > 1) yield `${each}: ${counts.join(", ")} times in audit log, outbox and sink`;
  }
}

export function countBy<T>(items: Iterable<T>, key: (item: T) => string): Map<string, number> {
  const counts = new Map<string, number>();
  for (const item of items) counts.set(key(item), (counts.get(key(item)) ?? 0) + 1);
  return counts;
}
