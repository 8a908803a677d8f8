import { statSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { AUDIT_LOG, type AuditRecord } from "#src/engine/commands/audit/audit-log.ts";
import { isSameValue } from "#src/engine/commands/gate.ts";
import { KILL_SWITCH_FILE } from "#src/engine/commands/kill-switch.ts";
import type { ServiceReply, ServiceRequest } from "#src/simulator/reply-bodies.ts";
import type { Simulator } from "#src/simulator/simulator.ts";
import { type Arrival, kindOf, type Ledger } from "./ledger.ts";
import { RANGE } from "./messages.ts";

export interface TagLimits {
  readonly minIntervalMs: number;
  readonly maxPerDay: number;
  readonly maxStep: number | null;
  readonly isClosed: boolean;
}

interface Promised {
  readonly id: string;
  readonly value: number;
  readonly before: readonly number[];
  readonly dueMs: number;
}

interface TagState {
  readonly writtenAtMs: number[];
  promised: Promised | null;
}

const LOOK_BACK = 200;
const SWITCH_MS = 1_000;

export type PostJudge = ReturnType<typeof postJudge>;

/** Judges each write when it reaches the service, by what was sent, delivered and audited before. */
export function postJudge(options: {
  readonly simulator: Simulator;
  readonly stateFolder: string;
  readonly ledger: Ledger;
  readonly limits: ReadonlyMap<string, TagLimits>;
  readonly wayMs: number;
}) {
  const { ledger, limits, simulator, stateFolder, wayMs } = options;
  const violations: string[] = [];
  const writes = new Map<string, number>();
  const states = new Map<string, TagState>();
  let database: DatabaseSync | null = null;
  let posts = 0;

  const present = (tag: string) => Number(simulator.truth.value(tag, simulator.now()));
  const addViolation = (text: string) => violations.push(`${new Date(simulator.now()).toISOString()} ${text}`);

  function audited(): ReadonlyMap<string, number> {
    database ??= new DatabaseSync(join(stateFolder, "plenum.db"), { readOnly: true });
    const rows = database
      .prepare(
        `select body from record where log = ? and body like '%"step":"sending"%' order by sequence desc limit ?`,
      )
      .all(AUDIT_LOG, LOOK_BACK);
    const records = rows.map(({ body }) => JSON.parse(String(body)) as AuditRecord);
    return new Map(records.map(({ commandId, at }) => [commandId, Date.parse(at)]));
  }

  function isStopped(): boolean {
    const stat = statSync(join(stateFolder, KILL_SWITCH_FILE), { throwIfNoEntry: false });
    return stat !== undefined && Date.now() - stat.mtimeMs > SWITCH_MS;
  }

  function judge(tag: string, value: unknown, sending: ReadonlyMap<string, number>): void {
    const now = simulator.now();
    const limit = limits.get(tag);
    const state = states.get(tag) ?? { writtenAtMs: [], promised: null };
    states.set(tag, state);
    if (limit === undefined || typeof value !== "number")
      return void addViolation(`${tag} = ${String(value)} is not open`);
    const owner = ledger.byValue(value);
    const { promised } = state;
    const isRestore = promised?.before.includes(value) === true && (owner === undefined || writes.has(owner.unit.id));
    if (!isRestore && owner === undefined) return void addViolation(`${tag} = ${value} belongs to no command`);
    const id = isRestore ? `${promised.id}/restore` : (owner?.unit.id ?? "");
    const count = (writes.get(id) ?? 0) + 1;
    writes.set(id, count);
    if (count > 1) addViolation(`${id} was written ${count} times`);
    if (!sending.has(id)) addViolation(`${id} was written before it was audited`);

    if (isRestore) {
      if (now < promised.dueMs) addViolation(`${id} came ${promised.dueMs - now} ms too early`);
    } else if (owner !== undefined) {
      const { unit } = owner;
      const lawful = ledger
        .arrivals(id)
        .filter((arrival) => arrival.unit.value === value && kindOf(arrival) === "lawful");
      if (lawful.length === 0) addViolation(`${id} (${owner.message.kind}) was not lawful, or never arrived`);
      const latest = Math.max(...lawful.map((arrival) => lastMoment(arrival, now))) + wayMs;
      if (now > latest) addViolation(`${id} was written ${now - latest} ms too late`);
      if (unit.tag !== tag) addViolation(`${id} was for ${unit.tag}, not ${tag}`);
      if (unit.expect !== null && !isSameValue(present(tag), unit.expect))
        addViolation(`${id} expected ${unit.expect}, and ${tag} held ${present(tag)}`);
    }
    if (value < RANGE.min || value > RANGE.max) addViolation(`${id} is out of range: ${value}`);
    if (limit.isClosed) addViolation(`${id} was written outside the hours of ${tag}`);
    if (limit.maxStep !== null && Math.abs(value - present(tag)) > limit.maxStep)
      addViolation(`${id} moved ${tag} from ${present(tag)} to ${value}`);
    const lastMs = state.writtenAtMs.at(-1) ?? Number.NEGATIVE_INFINITY;
    if (now - lastMs < limit.minIntervalMs - wayMs) addViolation(`${tag} was written again after ${now - lastMs} ms`);
    state.writtenAtMs.push(now);
    if (state.writtenAtMs.length > limit.maxPerDay)
      addViolation(`${tag} was written more than ${limit.maxPerDay} times`);

    const forMs = isRestore ? null : (owner?.unit.forMs ?? null);
    const stored = present(tag);
    const isOver = promised !== null && !isRestore && isSameValue(stored, promised.value);
    const before = isOver ? [...promised.before, stored] : [stored];
    state.promised = forMs === null ? null : { id, value, before, dueMs: (sending.get(id) ?? now) + forMs };
  }

  return {
    violations,
    writes: writes as ReadonlyMap<string, number>,
    get posts() {
      return posts;
    },
    handle(request: ServiceRequest): ServiceReply {
      if (request.method !== "POST") return simulator.handle(request);
      posts += 1;
      const { tags = [] } = JSON.parse(request.body ?? "{}") as {
        readonly tags?: readonly { readonly tag_id: string; readonly value: unknown }[];
      };
      if (tags.length > 20) addViolation(`${tags.length} tags in one request`);
      if (isStopped()) addViolation("written although the kill switch is thrown");
      const sending = audited();
      const promisedBefore = new Map([...states].map(([id, { promised }]) => [id, promised]));
      for (const { tag_id, value } of tags) judge(tag_id, value, sending);
      const reply = simulator.handle(request);
      for (const { tag_id, value } of tags) {
        const state = states.get(tag_id);
        if (state !== undefined && !isSameValue(present(tag_id), Number(value)))
          state.promised = promisedBefore.get(tag_id) ?? null;
      }
      return reply;
    },
  };
}

function lastMoment({ delivery, unit }: Arrival, nowMs: number): number {
  return (unit.issuedAtMs ?? delivery.acknowledgedAtMs ?? nowMs) + unit.ttlMs;
}
