import type { CommandMessage } from "#src/core/connector.ts";
import { AUDIT_LOG, type AuditRecord } from "#src/engine/commands/audit/audit.ts";
import { countBy } from "./broker/final-judge.ts";
import { createRig, type Rig, type Written } from "./rig.ts";
import { seededRandom } from "./seeded-random.ts";

const PLANNED_RESTARTS = 5;

interface Sent {
  readonly id: string;
  readonly tag: string;
  readonly isLawful: boolean;
  expiresAtMs: number;
}

interface TagState {
  held: number;
  readonly writtenAtMs: number[];
}

const RANGE = { min: 0, max: 1000 };
const MIN_INTERVAL_MS = 5_000;
const MAX_PER_DAY = 500;
const MAX_STEP = 300;
const SITES = [10, 11, 12, 13];

/** Sends random commands to gate, journal and writer in virtual time; an oracle judges each write by its value. */
export async function runCampaign(options: { readonly seed: number; readonly commands: number }) {
  const random = seededRandom(options.seed);
  const { chance, pick } = random;
  const violations: string[] = [];
  const byValue = new Map<number, Sent>();
  const writesOf = new Map<string, number>();
  const states = new Map<string, TagState>();
  let serial = 0;
  let restarts = 0;

  const rig: Rig = await createRig({ simulator: { sites: SITES, seed: options.seed }, onPost: judgeWrites });
  const world = [...rig.simulator.world.tags.values()].filter((tag) => tag.kind === "analog");
  const tags = world.map((tag) => tag.id);
  const stepped = new Set(tags.filter((_tag, index) => index % 5 === 0));
  for (const tag of tags) {
    rig.simulator.control.setTag(tag, 500);
    states.set(tag, { held: 500, writtenAtMs: [] });
  }
  const config = {
    max_per_hour: 100_000,
    allow: world.map((tag) => ({
      site_id: tag.site.id,
      tag_id: tag.id,
      type: "number" as const,
      ...RANGE,
      min_interval: `${MIN_INTERVAL_MS}ms`,
      max_per_day: MAX_PER_DAY,
      ...(stepped.has(tag.id) ? { max_step: MAX_STEP } : {}),
    })),
  };
  await rig.restart(config);

  async function judgeWrites(writes: readonly Written[]): Promise<void> {
    const now = rig.clock.now();
    const complain = (text: string) => violations.push(`${new Date(now).toISOString()} ${text}`);
    if (writes.length > 20) complain(`${writes.length} tags in one request`);
    if (rig.killSwitch.isThrown()) complain("written although the kill switch is thrown");
    const last = (await rig.store.lastRecord<AuditRecord>(AUDIT_LOG))?.sequence ?? 0;
    const recent = await rig.store.records<AuditRecord>(AUDIT_LOG, Math.max(0, last - 60), 60);
    for (const { tag_id, value } of writes) {
      const sent = byValue.get(Number(value));
      const state = states.get(tag_id);
      if (sent === undefined || state === undefined) {
        complain(`${tag_id} = ${value} belongs to no command`);
        continue;
      }
      const count = (writesOf.get(sent.id) ?? 0) + 1;
      writesOf.set(sent.id, count);
      if (count > 1) complain(`${sent.id} was written ${count} times`);
      if (!sent.isLawful) complain(`${sent.id} was not lawful`);
      if (sent.tag !== tag_id) complain(`${sent.id} was for ${sent.tag}, not ${tag_id}`);
      if (now > sent.expiresAtMs) complain(`${sent.id} was written ${now - sent.expiresAtMs} ms too late`);
      if (!recent.some(({ body }) => body.commandId === sent.id && body.step === "sending"))
        complain(`${sent.id} was written before it was audited`);
      const before = state.writtenAtMs.at(-1) ?? Number.NEGATIVE_INFINITY;
      if (now - before < MIN_INTERVAL_MS) complain(`${tag_id} was written twice within ${now - before} ms`);
      if (state.writtenAtMs.filter((at) => at > now - 86_400_000).length >= MAX_PER_DAY)
        complain(`${tag_id} was written more than ${MAX_PER_DAY} times`);
      const present = rig.simulator.truth.value(tag_id, now);
      if (stepped.has(tag_id) && Math.abs(Number(value) - Number(present)) > MAX_STEP)
        complain(`${tag_id} was moved from ${present} to ${value}`);
      state.writtenAtMs.push(now);
    }
  }

  function freshValue(): number {
    serial += 1;
    // Repeats no value, because 7919 and a million have no common factor.
    return ((serial * 7919) % 1_000_000) / 1000;
  }

  function newCommand(more: Partial<Sent> & { readonly value?: number } = {}) {
    const value = more.value ?? freshValue();
    const id = more.id ?? `c${serial}-${options.seed}`;
    const tag = more.tag ?? pick(tags);
    const ttlS = pick([2, 10, 30, 120, 300]);
    const expiresAtMs = more.expiresAtMs ?? rig.clock.now() + ttlS * 1000;
    byValue.set(value, { id, tag, isLawful: more.isLawful ?? true, expiresAtMs });
    return { id, tag, value, ttl_s: ttlS };
  }

  type Message = readonly [payload: unknown, changes?: Partial<CommandMessage>];
  const history: Message[] = [];

  function unlawful(): Message {
    const no = { isLawful: false };
    const issued_at = new Date(rig.clock.now() - 400_000).toISOString();
    const changes: readonly (() => Message)[] = [
      () => [newCommand(no), { retained: true }],
      () => [{ ...newCommand(no), issued_at }],
      () => [newCommand(no), { expirySeconds: 0 }],
      () => [newCommand({ ...no, value: pick([-5e-324, 1000.0000000000001, 1e300, -1]) })],
      () => [newCommand({ ...no, tag: `stranger-${random.below(100)}` })],
      () => [{ ...newCommand(no), value: pick([true, "21", null, [1], {}]) }],
      () => [mutate(JSON.stringify(newCommand(no)))],
      () => [{ ...newCommand(no), source: "elsewhere" }],
      () => [{ ...newCommand(no), for_s: 60 }],
      () => [{ ...newCommand(no), quality: "good" }],
      () => [newCommand(no), { properties: { "plenum-event-id": "x" } }],
    ];
    return pick(changes)();
  }

  function mutate(text: string): Uint8Array {
    const bytes = [...Buffer.from(text)];
    bytes.shift();
    for (let n = 0; n < 3; n += 1) bytes[Math.floor(random() * bytes.length)] = Math.floor(random() * 256);
    return Uint8Array.from(bytes);
  }

  function group(): Message {
    const chosen = new Set(Array.from({ length: 1 + Math.floor(random() * 20) }, () => pick(tags)));
    const id = `g${serial}-${options.seed}`;
    const expiresAtMs = rig.clock.now() + 30_000;
    const writes = [...chosen].map((tag) => {
      const { value } = newCommand({ id: `${id}/${tag}`, tag, expiresAtMs });
      return { tag, value };
    });
    return [{ id, writes }];
  }

  function anotherValue([payload]: Message): Message {
    return [newCommand({ id: (payload as { readonly id: string }).id })];
  }

  function sendAgain(payload: unknown): void {
    type Sendable = { value?: unknown; writes?: readonly { readonly value: number }[]; ttl_s?: number };
    const { value, writes, ttl_s = 30 } = payload as Sendable;
    for (const each of writes?.map((write) => write.value) ?? [Number(value)]) {
      const sent = byValue.get(each);
      if (sent !== undefined) sent.expiresAtMs = Math.max(sent.expiresAtMs, rig.clock.now() + ttl_s * 1000);
    }
  }

  function next(): readonly Message[] {
    if (history.length > 0 && chance(0.3)) {
      const old = pick(history);
      return [chance(0.2) ? anotherValue(old) : [old[0], { ...old[1], duplicate: chance(0.5) }]];
    }
    if (chance(0.25)) return [unlawful()];
    if (chance(0.05)) return [group()];
    if (chance(0.005)) {
      const tag = pick(tags);
      return Array.from({ length: 200 }, (): Message => [newCommand({ tag })]);
    }
    return [[newCommand()]];
  }

  async function disturb(): Promise<void> {
    const { control } = rig.simulator;
    const write = { endpoints: ["write"] };
    const faults = [
      null,
      { match: write, when: { count: 2 }, fault: { kind: "throttled", retry_after_s: 5 } },
      { match: write, when: { probability: 0.5 }, fault: { kind: "cut", after_bytes: 3 } },
      { match: write, when: { probability: 0.5 }, fault: { kind: "reset", effect: pick(["none", "applied"]) } },
      { match: { endpoints: ["write", "read"] }, when: { count: 3 }, fault: { kind: "slow", delay_ms: 70_000 } },
      { match: write, when: { probability: 0.3 }, fault: { kind: "error", status: pick([401, 403, 404, 422, 500]) } },
    ];
    const kind = random.below(faults.length + 3);
    const fault = faults[kind];
    if (fault !== undefined) return control.setFaults(fault === null ? [] : [fault]);
    if (kind === faults.length) return restart();
    const isKill = kind === faults.length + 1;
    if (isKill) rig.killSwitch.throwIt("the campaign", "now");
    else rig.breakStore(true);
    await rig.clock.advance(isKill ? 5_000 * random() : 0);
    await say(next());
    await rig.clock.advance(5_000 * random());
    if (isKill) rig.killSwitch.release();
    else rig.breakStore(false);
  }

  async function restart(): Promise<void> {
    restarts += 1;
    await rig.restart(config);
  }

  async function say(messages: readonly Message[]): Promise<void> {
    for (const message of messages) {
      const [payload, changes] = message;
      if (!(payload instanceof Uint8Array) && history.length < 5_000) history.push(message);
      else if (!(payload instanceof Uint8Array)) history[Math.floor(random() * 5_000)] = message;
      if (!(payload instanceof Uint8Array)) sendAgain(payload);
      await rig.send(payload, changes).catch(() => undefined);
    }
  }

  let said = 0;
  while (said < options.commands) {
    const messages = next();
    said += messages.length;
    await say(messages);
    if (chance(0.5)) await rig.clock.advance(random() * 1_000);
    if (chance(0.01)) await disturb();
    if (restarts < Math.floor((PLANNED_RESTARTS * said) / options.commands)) await restart();
  }
  rig.simulator.control.setFaults([]);
  await rig.clock.advance(30 * 60_000);

  const audit = await rig.audit();
  const results = await rig.results();
  const accepts = countBy(
    audit.filter(({ step }) => step === "accepted"),
    (record) => record.commandId,
  );
  const accepted = new Set(accepts.keys());
  const isEnd = (step: string) => !["accepted", "sending", "writing-stopped", "writing-released"].includes(step);
  const endings = audit.filter(({ step }) => isEnd(step));
  const audited = countBy(endings, (record) => `${record.commandId} ${record.step}`);
  const told = countBy(results, (result) => `${result.commandId} ${result.outcome}`);
  const endsById = countBy(
    endings.filter(({ detail }) => detail.by === undefined),
    (record) => record.commandId,
  );
  for (const id of accepted) {
    if (accepts.get(id) !== 1) violations.push(`${id} was accepted ${accepts.get(id)} times`);
    if (endsById.get(id) !== 1) violations.push(`${id} has ${endsById.get(id) ?? 0} ends in the audit log`);
  }
  for (const key of new Set([...audited.keys(), ...told.keys()])) {
    if (audited.get(key) !== told.get(key))
      violations.push(`${key} was audited ${audited.get(key) ?? 0} times and told ${told.get(key) ?? 0} times`);
  }
  for (const id of writesOf.keys()) if (!accepted.has(id)) violations.push(`${id} was never accepted`);
  await rig.close();
  const reasons = countBy(results, (result) => result.reason ?? result.outcome);
  return {
    commands: said,
    writes: writesOf.size,
    restarts,
    reasons: Object.fromEntries([...reasons].toSorted(([, a], [, b]) => b - a)),
    violations,
  };
}
