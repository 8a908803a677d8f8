import { hash } from "node:crypto";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import type { AnyEvent } from "#src/core/model/event.ts";
import { AUDIT_LOG, type AuditRecord, verifyAudit } from "#src/engine/commands/audit/audit-log.ts";
import { matchesFilter } from "#src/engine/delivery/filter.ts";
import type { Transport } from "#src/engine/source/transport.ts";
import type { CampaignResult, Problem } from "../campaign/campaign.ts";
import { type SeededRandom, seededRandom } from "../commands/seeded-random.ts";
import { lossWorld } from "../losses/building.ts";
import { anyFault } from "../losses/faults.ts";
import { noPointIsRepeated, nothingIsInvented } from "../losses/judge/history.ts";
import { reportedGaps } from "../losses/judge/reported-gaps.ts";
import { quotaIsMet } from "../losses/judge/requests.ts";
import { createLossHarness, type Harness, type LastingFault } from "../losses/loss-harness.ts";
import { createReceivedEvents } from "../losses/received-events.ts";
import { START_MS } from "../virtual-worker.ts";
import { createCommanders, RANGE } from "./commands.ts";
import { CONTRADICTIONS, type Contradiction, createContradictions } from "./contradictions.ts";
import {
  absenceIsTrue,
  alarmsAreTrue,
  type Committed,
  changedTypesAreUncertain,
  commandsEndOnce,
  type Deliveries,
  littleIsRepeated,
  noOldValueIsGood,
  nothingIsAltered,
  nothingIsLost,
  orderIsRight,
  unreadableIsFetchedOrNamed,
  viewIsRight,
  type WorkerStart,
} from "./judge.ts";
import { createSimulatedSink, isRejectedId, SINK_MOODS, type SimulatedSink } from "./simulated-sinks.ts";

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const UNREST_MS = 14 * MINUTE;
/** Longer than every back-off of sinks and jobs and the verification of a list. */
const REST_MS = 20 * MINUTE;
const BATCH = 50;
/** Maximum time range, in milliseconds, that a restarted server loses; less than the replay window. */
const SINK_FORGETS_MS = 5 * MINUTE;
const FILTERS = { steady: {}, moody: {}, alarms: { kinds: ["alarm-*", "command-*", "gateway-*"] } } as const;
/** Document sets that are never damaged: without this one the worker cannot detect a restarted server. */
const UNDAMAGED_SETS = new Set(["sink-life"]);

/** All faults at once; after a time without faults, compares what the sinks received with docs/promise.md. */
export async function playAllFaults(seed: number, random: SeededRandom): Promise<CampaignResult> {
  // The servers outlive the workers and use the clock of the harness, which is created below.
  const ends = Object.fromEntries(
    Object.keys(FILTERS).map((name) => [
      name,
      createSimulatedSink(name, () => harness.virtual.clock, seededRandom(random.below(2 ** 31))),
    ]),
  ) as Record<keyof typeof FILTERS, SimulatedSink>;
  const tags = writable(seed);
  const replied = new Map<string, Set<string>>();
  const readMs = new Map<string, number[]>();
  const commanders = createCommanders(
    tags.map(({ id }) => id),
    () => harness.virtual.clock,
    () => START_MS + Math.floor(harness.virtual.clock.monotonic()),
    (tag) => harness.virtual.simulator.truth.value(tag, START_MS + Math.floor(harness.virtual.clock.monotonic())),
    seededRandom(random.below(2 ** 31)),
  );
  const contradictions = createContradictions(seededRandom(random.below(2 ** 31)));
  const watched = (direct: Transport): Transport => {
    const transport = contradictions.around(direct);
    return async (request, signal) => {
      commanders.requestSent(request);
      const reply = await transport(request, signal);
      if (request.path.includes("/tags/read"))
        noteValues(replied, reply.body, (id) => noteReading(id, harness.virtual.clock.monotonic()));
      return reply;
    };
  };
  const noteReading = (id: string, atMs: number) => {
    const times = readMs.get(id);
    if (times === undefined) readMs.set(id, [atMs]);
    else times.push(atMs);
  };
  let flips: string[] = [];
  const damaged = { events: new Set<string>(), sets: new Set<string>() };
  let wantsDamage = false;
  const harness: Harness = await createLossHarness(seed, seededRandom(seed), {
    sinks: Object.fromEntries(
      Object.entries(ends).map(([name, end]) => [
        name,
        {
          delivery: { from: "beginning", filter: FILTERS[name as keyof typeof FILTERS], batch: BATCH },
          sink: end.sink,
        },
      ]),
    ),
    commands: {
      enabled: true,
      max_per_hour: 1_000,
      allow: tags.map(({ id, siteId }) => ({
        site_id: siteId,
        tag_id: id,
        type: "number",
        ...RANGE,
        min_interval: "1s",
        max_per_day: 1_000,
        restore: true,
      })),
    },
    serviceNow: (clock) => START_MS + Math.floor(clock.monotonic()),
    around: watched,
    onCrash(folder) {
      if (wantsDamage) flips = [...flips, ...flip(join(folder, "plenum.db"), random, damaged)];
      wantsDamage = false;
    },
  });
  const { virtual, world } = harness;
  const { clock, simulator } = virtual;
  const { control } = simulator;
  const committed = new Map<string, Committed>();
  const far = createReceivedEvents(harness, ({ event, position }) =>
    committed.set(event.id, { position, event: event as AnyEvent, json: JSON.stringify(event) }),
  );
  const { look } = far;
  const story: string[] = [];
  const logLine = (text: string) => story.push(`${Math.round(clock.monotonic() / SECOND)} s: ${text}`);
  const raised: string[] = [];
  const workerStarts: WorkerStart[] = [];
  let crashes = 0;

  const lasting: { readonly name: string; readonly endMs: number; end(): void }[] = [];
  const contradicting = new Set<Contradiction>();
  async function pass(ms: number): Promise<void> {
    const untilMs = clock.monotonic() + ms;
    while (clock.monotonic() < untilMs) {
      const dueMs = Math.min(untilMs, ...lasting.map(({ endMs }) => endMs));
      await clock.advance(Math.max(0, dueMs - clock.monotonic()));
      for (const each of lasting.splice(0)) {
        if (each.endMs > clock.monotonic()) lasting.push(each);
        else {
          each.end();
          logLine(`over: ${each.name}`);
        }
      }
    }
  }

  /** True if the clock was wrong at any time since the last start of the worker. */
  let wasClockWrong = false;
  const rightClock = () => clock.stepWall(START_MS + Math.floor(clock.monotonic()) - Math.floor(clock.now()));

  const actions: readonly (() => void | Promise<void>)[] = [
    () => {
      const fault = anyFault(world, random);
      const forMs = (20 + random.below(180)) * SECOND;
      logLine(`${fault.name}, for ${forMs / SECOND} s`);
      const started: LastingFault = harness.begin(fault);
      const endMs = clock.monotonic() + forMs;
      lasting.push({ name: fault.name, endMs, end: () => harness.end(started) });
    },
    contradict,
    contradict,
    raise,
    raise,
    () => {
      const id = random.pick(raised);
      if (id === undefined) return;
      raised.splice(raised.indexOf(id), 1);
      control.resolveAlarm(id);
      logLine(`alarm ${id} is over`);
    },
    changeSinkMood,
    changeSinkMood,
    changeSinkMood,
    () => {
      const end = random.pick([ends.moody, ends.alarms]);
      logLine(`${end.name} restarts and forgets ${end.restart(random.below(SINK_FORGETS_MS))} events`);
    },
    async () => {
      await look();
      logLine("a stop and a start");
      await restart("stop");
    },
    crash,
    crash,
    async () => {
      wantsDamage = true;
      await crash();
      for (const text of flips.splice(0)) logLine(text);
    },
    () => {
      const ms = Math.round(SECOND * (24 * 3_600) ** random());
      const byMs = random.chance(0.5) ? ms : -ms;
      logLine(`the clock is set by ${byMs / SECOND} s`);
      clock.stepWall(byMs);
      wasClockWrong = true;
    },
    () => {
      logLine("the clock is set right");
      rightClock();
    },
  ];

  function contradict(): void {
    const kind = random.pick(CONTRADICTIONS.filter((each) => !contradicting.has(each)));
    if (kind === undefined) return;
    const forMs = (20 + random.below(280)) * SECOND;
    logLine(`${kind}, for ${forMs / SECOND} s`);
    contradicting.add(kind);
    contradictions.begin(kind);
    const end = () => {
      contradicting.delete(kind);
      contradictions.end(kind);
    };
    lasting.push({ name: kind, endMs: clock.monotonic() + forMs, end });
  }

  function raise(): void {
    const id = control.raiseAlarm({ siteId: random.pick(world.siteIds) });
    raised.push(id);
    logLine(`alarm ${id}`);
  }

  function changeSinkMood(): void {
    const end = random.pick([ends.moody, ends.moody, ends.alarms]);
    end.mood = random.pick(SINK_MOODS);
    logLine(`${end.name} is ${end.mood}`);
  }

  async function crash(): Promise<void> {
    await look();
    crashes += 1;
    logLine("a kill and a start");
    await restart("crash");
  }

  async function restart(how: "stop" | "crash"): Promise<void> {
    await harness.restart(how);
    const offsetMs = clock.now() - START_MS - clock.monotonic();
    const isClockWrong = Math.abs(offsetMs) > SECOND;
    workerStarts.push({ atMs: clock.monotonic(), isClockWrong: isClockWrong || wasClockWrong });
    wasClockWrong = isClockWrong;
  }

  // Start with several alarms, because the worker verifies mass changes more slowly.
  for (let left = random.below(9); left > 0; left--) raise();
  if (random.chance(0.3)) contradict();
  await pass((1 + random.below(4)) * MINUTE);
  const unrestMs = clock.monotonic() + UNREST_MS;
  while (clock.monotonic() < unrestMs) {
    await random.pick(actions)();
    const untilMs = clock.monotonic() + random.below(90) * SECOND;
    while (clock.monotonic() < untilMs) {
      if (random.chance(0.4)) await commanders.send(virtual.worker.accept);
      await pass(random.below(20) * SECOND);
    }
  }
  rightClock();
  for (const end of Object.values(ends)) end.mood = "well";
  while (lasting.length > 0) await pass(MINUTE);
  logLine("everything is right again");
  await pass(REST_MS);
  await look();
  const due = new Set(committed.keys());
  await pass(10 * SECOND);
  await look();

  const problems: Problem[] = [];
  const note = (rule: string, texts: readonly string[]) => {
    for (const text of texts) problems.push({ rule, text });
  };
  const { store } = virtual.worker;
  const events = [...committed.values()].map(({ event }) => event);
  for (const [name, end] of Object.entries(ends)) {
    const filter = virtual.config.sinks[name]?.filter;
    const letters = await store.outbox.deadLetters(name, 100_000);
    const deadLetters = new Set(letters.flatMap(({ event }) => (event === null ? [] : [event.id])));
    const deliveries: Deliveries = {
      committed,
      due,
      end,
      passes: (event) => filter === undefined || matchesFilter(filter, event),
      deadLetters,
      damaged: damaged.events,
      repetitionsMax: (end.incidents() + crashes) * BATCH + replayedMost(end, damaged.sets, committed.size),
    };
    note("nothing is lost", nothingIsLost(deliveries));
    note("nothing is altered", nothingIsAltered(deliveries));
    note("order is kept", orderIsRight(deliveries));
    note("little is repeated", littleIsRepeated(deliveries));
    const unexpectedDeadLetters = [...deadLetters].filter((id) => !isRejectedId(id));
    if (unexpectedDeadLetters.length > 0)
      note("no dead letter without a refusal", [`${name}: ${unexpectedDeadLetters.join(", ")}`]);
  }
  // Damaged documents of values are lost, so the worker does not know that a sink has them.
  if (![...damaged.sets].some((set) => /value|tag|site/.test(set))) {
    const values = {
      readMs,
      promiseMs: (id: string) => staleAfterMs(harness, id),
      starts: workerStarts,
      endMs: clock.monotonic(),
    };
    note("no old value is good", noOldValueIsGood({ ...values, end: ends.steady }, { onlyAtEnd: false }));
    note("no old value is good", noOldValueIsGood({ ...values, end: ends.moody }, { onlyAtEnd: true }));
  }
  const lossyLags = (await store.outbox.lag()).filter(({ dropped }) => dropped > 0);
  note(
    "nothing is dropped",
    lossyLags.map(({ sink, dropped }) => `${sink}: ${dropped} events`),
  );

  const truth = simulator.truth.alarms;
  const nowMs = START_MS + Math.floor(clock.monotonic());
  const resolved = truth
    .transitions(START_MS, nowMs)
    .filter(({ kind }) => kind === "resolved")
    .map(({ alarmId }) => alarmId);
  const isAlarmDamaged = [...damaged.sets].some((set) => set.includes("alarm"));
  note("alarms are true", alarmsAreTrue(events, new Set(resolved), isAlarmDamaged));
  const active = new Set(truth.list(nowMs, { status: "active" }).map(({ id }) => id));
  note(
    "the picture is right",
    viewIsRight(events, active, () => isAlarmDamaged),
  );
  note("commands are lawful", commanders.problems);
  const isComplete = ![...damaged.sets].some((set) => set.startsWith("command"));
  note("commands end once", commandsEndOnce(events, commanders.acknowledged, isComplete));
  const verdict = await verifyAudit(store, null);
  if (verdict.brokenAt !== null) note("the audit is whole", [`it breaks at record ${verdict.brokenAt}`]);
  const last = await store.lastRecord<AuditRecord>(AUDIT_LOG);
  if (commanders.writes() > 0 && last === undefined) note("the audit is whole", ["it is empty"]);
  note("the quota is kept", quotaIsMet(harness));
  note("no value is invented", valuesAreReplies(events, replied));
  const isNumber = (tagId: string) => typeof simulator.truth.value(tagId, nowMs) === "number";
  note("a changed type is uncertain", changedTypesAreUncertain(events, isNumber));
  note("nothing is invented", nothingIsInvented(harness, far));
  // A damaged ledger or tag makes the worker fetch and deliver history again.
  if (![...damaged.sets].some((set) => /history|tag/.test(set))) {
    note("no point is told twice", noPointIsRepeated(far));
    note("absence is true", absenceIsTrue(harness, events));
    const gaps = await reportedGaps(harness);
    note(
      "unreadable history is fetched or named",
      unreadableIsFetchedOrNamed(contradictions.unreadable, harness, far, gaps),
    );
  }

  const result = {
    problems,
    story,
    counts: contradictions.counts,
    digest: digestOf(harness, ends),
    requests: simulator.truth.requests().length,
    simulatedMs: clock.monotonic(),
  };
  await virtual.clear();
  return result;
}

function writable(seed: number): readonly { readonly id: string; readonly siteId: number }[] {
  const { tags } = lossWorld(seed, seededRandom(seed));
  return [...tags].flatMap(([siteId, ids]) => ids.map((id) => ({ id, siteId }))).slice(0, 10);
}

/** Maximum events repeated by replays, after a restarted server or a damaged position. */
function replayedMost(end: SimulatedSink, damagedSets: ReadonlySet<string>, events: number): number {
  return end.name === "steady" && !damagedSets.has("sink") ? 0 : 20 * events;
}

/** Interval of the first class that selects the tag, plus two slots at half of the quota. */
function staleAfterMs({ world }: Harness, tagId: string): number {
  const readClass = world.read.find(({ select: { ids } }) => ids === undefined || ids.includes(tagId));
  return (readClass?.every ?? 0) + 12 * SECOND;
}

function noteValues(replied: Map<string, Set<string>>, body: Uint8Array, onReading: (id: string) => void): void {
  let parsed: unknown;
  try {
    parsed = JSON.parse(new TextDecoder().decode(body));
  } catch {
    return;
  }
  const { data } = parsed as { readonly data?: unknown };
  if (!Array.isArray(data)) return;
  const records = data as { readonly id?: unknown; readonly value?: unknown }[];
  for (const [id, own] of Map.groupBy(records, (each) => String(each.id))) {
    const [value, ...others] = own.map((each) => each.value);
    // Skip tags with contradictory values. Text counts if it is a number.
    if (others.some((other) => other !== value)) continue;
    const read = typeof value === "string" && value.trim() !== "" ? Number(value) : value;
    const values = replied.get(id) ?? new Set();
    replied.set(id, values.add(String(read)));
    if (typeof read === "boolean" || (typeof read === "number" && !Number.isNaN(read))) onReading(id);
  }
}

/** "Nothing is invented": every emitted value of a tag is one that the service returned. */
function valuesAreReplies(
  events: readonly AnyEvent[],
  replied: ReadonlyMap<string, ReadonlySet<string>>,
): readonly string[] {
  const invented = events.flatMap((event) => {
    if (event.type !== "tag-value") return [];
    const { tag, value } = event.data;
    return replied.get(tag.id)?.has(String(value)) === true || value === null ? [] : [`${tag.id} = ${value}`];
  });
  return invented.length === 0 ? [] : [`${invented.length} values, as ${invented[0]}`];
}

function flip(
  file: string,
  random: SeededRandom,
  damaged: { readonly events: Set<string>; readonly sets: Set<string> },
): readonly string[] {
  const database = new DatabaseSync(file);
  try {
    const table = random.pick(["event", "document"] as const);
    const key = table === "event" ? "position" : "set_name || char(31) || key";
    const rows = database
      .prepare(`select ${key} as key, ${table === "event" ? "id" : "set_name"} as name, body from ${table} order by 1`)
      .all() as { readonly key: string | number; readonly name: string; readonly body: string }[];
    const found = random.pick(rows);
    if (found === undefined || UNDAMAGED_SETS.has(found.name)) return [];
    const bytes = Buffer.from(found.body);
    const offset = random.below(bytes.length);
    bytes[offset] = (bytes[offset] ?? 0) ^ (1 << random.below(7));
    database.prepare(`update ${table} set body = ? where ${key} = ?`).run(bytes.toString(), found.key);
    if (table === "event") damaged.events.add(found.name);
    else damaged.sets.add(found.name);
    return [`a bit flips in ${table} ${found.name}, byte ${offset}`];
  } finally {
    database.close();
  }
}

function digestOf({ virtual }: Harness, ends: Readonly<Record<string, SimulatedSink>>): string {
  const request = virtual.simulator.truth.requests().map(({ atMs, path, query }) => `${atMs} ${path}?${query}`);

  const sent = Object.values(ends).flatMap(({ name, everAccepted: taken }) => [
    name,
    ...taken.map(({ atMs, json }) => `${atMs} ${json}`),
  ]);
  return hash("sha256", [...request, ...sent].join("\n")).slice(0, 16);
}
