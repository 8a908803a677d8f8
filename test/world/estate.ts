import { hash } from "node:crypto";
import { EVENTS_ACCEPTED, type Sink } from "#src/core/connector.ts";
import type { AnyEvent, Event } from "#src/core/model/event.ts";
import type { CampaignResult } from "../campaign/campaign.ts";
import type { SeededRandom } from "../commands/seeded-random.ts";
import { START_MS, startVirtualWorker } from "../virtual-worker.ts";
import { alarmsAreTrue, viewIsRight } from "./judge.ts";

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const PAGE = 500;
const POLL_MS = 30 * SECOND;
/** One poll runs up to 5 s after its time (`spread`), and a reply needs up to a second on its way. */
const SLACK_MS = 6 * SECOND;
const TAKEOVER_MS = 15 * SECOND;
/** The health check is requested every minute; two good replies in a row permit one request. */
const CAREFUL_MS = 3 * MINUTE + 10 * SECOND;
const MONTH_S = 30 * 86_400;
const UNREST_MS = 20 * MINUTE;
const REST_MS = 12 * MINUTE;
/** Ends of alarms in shuffled pages are found site by site: 300 sites take 30 minutes at 15 lists a minute. */
const SHUFFLED_REST_MS = 30 * MINUTE;
const SHUFFLED_SLOW_REST_MS = 40 * MINUTE;
const LIST_REFUSED = "one 429 of a list with a wait of 30 days";
const FAILING_RECORD = "a record of an alarm makes each page with it fail";
/** Requests that find the record in a page of 500 alarms. */
const REQUESTS_IN_PARTS = 20;

const SIZES = [
  { name: "300 sites, 200 to 900 alarms", copies: 19, sites: null, alarms: [200, 900] },
  { name: "one site, 2,000 to 10,000 alarms", copies: 1, sites: [7], alarms: [2_000, 10_000] },
  { name: "3 sites, 10 to 50 alarms", copies: 1, sites: [2, 3, 4], alarms: [10, 50] },
] as const;

interface Fault {
  readonly name: string;
  readonly rules?: (random: SeededRandom, alarmIds: readonly string[]) => readonly object[];
  readonly isUnhealthy?: boolean;
  readonly lastsMs: readonly [number, number];
  /** The service hides alarms during the fault, so the promise counts from its end. */
  readonly hidesAlarms?: boolean;
  readonly allowsMs?: number;
}

const list = (random: SeededRandom) => random.pick(["alarms", "tags", "gateways", "hosts", "sites"]);
const throttled = (retry_after_s: number) => ({ kind: "throttled", retry_after_s });

const FAULTS: readonly Fault[] = [
  {
    name: "list refusals with a wait of 0 s",
    rules: (random) => [{ match: { endpoints: [list(random)] }, when: { count: 3 }, fault: throttled(0) }],
    lastsMs: [60 * SECOND, 90 * SECOND],
    // Each of the three refusals can affect a poll of the alarms.
    allowsMs: POLL_MS,
  },
  {
    name: "one 503 with a wait of 30 days",
    rules: () => [{ when: { count: 1 }, fault: { kind: "maintenance", retry_after: MONTH_S } }],
    lastsMs: [10 * SECOND, 20 * SECOND],
    allowsMs: CAREFUL_MS,
  },
  {
    name: LIST_REFUSED,
    rules: (random) => [{ match: { endpoints: [list(random)] }, when: { count: 1 }, fault: throttled(MONTH_S) }],
    lastsMs: [10 * SECOND, 60 * SECOND],
    allowsMs: CAREFUL_MS,
  },
  {
    name: "one 429 of a read with a wait of 30 days",
    rules: () => [{ match: { endpoints: ["read"] }, when: { count: 1 }, fault: throttled(MONTH_S) }],
    lastsMs: [10 * SECOND, 60 * SECOND],
  },
  {
    name: "maintenance",
    rules: () => [{ fault: { kind: "maintenance" } }],
    isUnhealthy: true,
    lastsMs: [20 * SECOND, 4 * MINUTE],
    hidesAlarms: true,
    allowsMs: MINUTE,
  },
  {
    name: FAILING_RECORD,
    rules: (random, alarmIds) => {
      const id = random.pick(alarmIds);
      return id === undefined ? [] : [{ match: { endpoints: ["alarms"] }, fault: { kind: "failing_record", id } }];
    },
    lastsMs: [2 * MINUTE, 8 * MINUTE],
  },
  {
    name: "a page of alarms fails",
    rules: (random) => [
      {
        match: { endpoints: ["alarms"], page: 1 + random.below(2) },
        when: { probability: random.pick([0.3, 1]) },
        fault: { kind: "error", status: 500 },
      },
    ],
    lastsMs: [30 * SECOND, 2 * MINUTE],
    hidesAlarms: true,
    allowsMs: MINUTE,
  },
  {
    name: "other lists fail",
    rules: (random) => [
      {
        match: { endpoints: [random.pick(["tags", "gateways", "hosts", "sites", "systems", "me"])] },
        fault: random.pick([
          { kind: "error", status: 500 },
          { kind: "error", status: 403 },
          { kind: "reset" },
          { kind: "slow", delay_ms: 8_000 },
        ]),
      },
    ],
    lastsMs: [30 * SECOND, 3 * MINUTE],
  },
  { name: "the health check fails", isUnhealthy: true, lastsMs: [30 * SECOND, 3 * MINUTE] },
  {
    name: "connections break",
    rules: () => [{ when: { probability: 0.7 }, fault: { kind: "reset" } }],
    lastsMs: [20 * SECOND, 90 * SECOND],
    hidesAlarms: true,
    allowsMs: MINUTE,
  },
];
const RESTARTS = ["stop", "crash"] as const;

/** One fault at a time; each listed alarm must be emitted within two poll intervals plus one takeover. */
export async function playEstate(seed: number, random: SeededRandom): Promise<CampaignResult> {
  const counts: Record<string, number> = {};
  for (const { name } of [...FAULTS, ...SIZES]) counts[name] = 0;
  for (const how of RESTARTS) counts[`estate: ${how}`] = 0;
  const size = random.pick(SIZES);
  const order = random.pick(["id", "triggered_desc", "shuffled"] as const);
  counts[size.name] = 1;
  const emittedMs = new Map<string, number>();
  const raisedMs = new Map<string, number>();
  const sums: string[] = [];
  const virtual = await startVirtualWorker({
    simulator: {
      seed,
      replicate: size.copies,
      ...(size.sites === null ? {} : { sites: [...size.sites] }),
      alarms: { recorded: false, order },
      request_log: 100_000,
    },
    source: { read: [{ name: "all", every: "15m" }] },
    eventsFolder: null,
    serviceNow: ({ monotonic }) => START_MS + Math.floor(monotonic()),
    sinks: { steady: { delivery: { from: "beginning" }, sink: () => notingSink(note) } },
    way: { thereMs: () => 20 + random() * 200, deadlineMs: 30_000 },
  });
  const { clock, simulator } = virtual;
  const { control, truth, world } = simulator;
  const triggers = [...world.triggers.keys()];
  const story: string[] = [];
  const logLine = (text: string) => story.push(`${Math.round(clock.monotonic() / SECOND)} s: ${text}`);
  /** Times without listed alarms or without a worker, and the additional time allowed afterwards. */
  const excuses: { readonly name: string; readonly fromMs: number; toMs: number; readonly allowsMs: number }[] = [];

  const timesInParts: { readonly fromMs: number; readonly toMs: number }[] = [];

  function note(event: Event): void {
    sums.push(`${event.id} ${event.subject}`);
    if (event.type !== "alarm-raised") return;
    const { alarm } = (event as AnyEvent & { readonly type: "alarm-raised" }).data;
    if (!emittedMs.has(alarm.id)) emittedMs.set(alarm.id, clock.monotonic());
  }

  function raise(): string {
    const id = control.raiseAlarm({ triggerId: random.pick(triggers) });
    raisedMs.set(id, clock.monotonic());
    return id;
  }

  const [fewest, most] = size.alarms;
  for (let left = fewest + random.below(most - fewest); left > 0; left -= 1) raise();
  logLine(`${size.name}: ${raisedMs.size} alarms`);
  const pages = Math.max(1, Math.ceil(raisedMs.size / PAGE));
  const allowedMs = 2 * intervalMs(pages) + SLACK_MS;
  let settlesMs = 0;
  const unrestMs = clock.monotonic() + UNREST_MS;
  while (clock.monotonic() < unrestMs) {
    await advanceWithoutFaults(settlesMs);
    if (random.chance(0.15)) await restart();
    else await fault();
  }
  await advanceWithoutFaults(0);
  const refusals = counts[LIST_REFUSED] ?? 0;
  const slowRestMs = SHUFFLED_SLOW_REST_MS * 2 ** Math.max(0, refusals - 1);
  await clock.advance(order !== "shuffled" ? REST_MS : refusals > 0 ? slowRestMs : SHUFFLED_REST_MS);

  async function advanceWithoutFaults(ms: number): Promise<void> {
    await clock.advance(ms);
    for (let left = 1 + random.below(4); left > 0; left -= 1) {
      await clock.advance(random.below(40) * SECOND);
      change();
    }
  }

  function change(): void {
    if (random.chance(0.7)) {
      logLine(`alarm ${raise()}`);
      return;
    }
    const known = [...emittedMs.keys()].filter((id) => truth.alarms.find(id, virtual.simulator.now()));
    const id = random.pick(known);
    if (id === undefined) return;
    control.resolveAlarm(id);
    logLine(`alarm ${id} is over`);
  }

  async function fault(): Promise<void> {
    const { name, rules, isUnhealthy = false, lastsMs, hidesAlarms = false, allowsMs = 0 } = random.pick(FAULTS);
    counts[name] = (counts[name] ?? 0) + 1;
    const [shortest, longest] = lastsMs;
    const forMs = shortest + random.below(longest - shortest);
    const text = rules?.(random, [...emittedMs.keys()]) ?? [];
    logLine(`${name}, for ${Math.round(forMs / SECOND)} s: ${JSON.stringify(text)}`);
    control.setFaults(text);
    if (isUnhealthy) control.setHealth("failing_503");
    const fromMs = clock.monotonic();
    const untilMs = fromMs + forMs;
    while (clock.monotonic() < untilMs) {
      await clock.advance(Math.min(untilMs - clock.monotonic(), (5 + random.below(30)) * SECOND));
      change();
    }
    control.setFaults([]);
    control.setHealth("healthy");
    logLine(`over: ${name}`);
    settlesMs = allowsMs + allowedMs;
    if (name === FAILING_RECORD) timesInParts.push({ fromMs: fromMs - allowedMs, toMs: clock.monotonic() + allowedMs });
    if (hidesAlarms || allowsMs > 0)
      excuses.push({ name, fromMs, toMs: hidesAlarms ? clock.monotonic() : fromMs, allowsMs });
  }

  async function restart(): Promise<void> {
    const how = random.pick(RESTARTS);
    counts[`estate: ${how}`] = (counts[`estate: ${how}`] ?? 0) + 1;
    logLine(`a ${how} and a start`);
    const fromMs = clock.monotonic();
    await virtual.restart(how);
    excuses.push({ name: how, fromMs, toMs: clock.monotonic(), allowsMs: TAKEOVER_MS });
  }

  const events = await virtual.events();
  const nowMs = simulator.now();
  const active = new Set(truth.alarms.list(nowMs, { status: "active" }).map(({ id }) => id));
  // With shuffled pages an alarm can be missing from several polls.
  const isTimely = order !== "shuffled" || raisedMs.size <= PAGE;
  const late = !isTimely
    ? []
    : [...raisedMs].flatMap(([id, atMs]) => {
        const emitted = emittedMs.get(id);
        const refusedBefore = excuses.filter(
          ({ name, fromMs }) => name === LIST_REFUSED && fromMs <= atMs + CAREFUL_MS,
        );
        const isInParts = timesInParts.some(({ fromMs, toMs }) => fromMs <= atMs && atMs <= toMs);
        if (isInParts && order === "shuffled") return [];
        const requests = pages + (isInParts ? REQUESTS_IN_PARTS : 0);
        // The first page is read in parts from its second failure on.
        const polls = isInParts ? 3 : 2;
        const dueMs = dueAfter(atMs, polls * intervalMs(requests, refusedBefore.length) + SLACK_MS, excuses);
        if (emitted !== undefined && emitted <= dueMs) return [];
        // The list of resolved alarms finds alarms that ended before the second poll.
        if (emitted === undefined && !active.has(id)) return [];
        const delayText = emitted === undefined ? "never" : `after ${Math.round((emitted - atMs) / SECOND)} s`;
        return [
          `${id}, raised at ${Math.round(atMs / SECOND)} s, ${delayText}, at most ${Math.round((dueMs - atMs) / SECOND)} s`,
        ];
      });
  const resolved = truth.alarms.transitions(START_MS, nowMs).filter(({ kind }) => kind === "resolved");
  const rules: readonly (readonly [string, readonly string[]])[] = [
    ["an alarm is emitted in time", late.length === 0 ? [] : [`${late.length} alarms, as ${late[0]}`]],
    ["alarms are true", alarmsAreTrue(events, new Set(resolved.map(({ alarmId }) => alarmId)), false)],
    ["the picture is right", viewIsRight(events, active, () => false).slice(0, 3)],
  ];
  const result = {
    problems: rules.flatMap(([rule, texts]) => texts.map((text) => ({ rule, text }))),
    story,
    counts,
    digest: hash("sha256", sums.join("\n")).slice(0, 12),
    requests: truth.requests().length,
    simulatedMs: clock.monotonic(),
  };
  await virtual.clear();
  return result;
}

/**
 * The interval that the promise counts with: 30 s, or what the list rate permits with a quarter for other lists. The rate
 * is 30 lists a minute; each refusal of a list halves it, to 3 at least.
 */
function intervalMs(pages: number, refusals = 0): number {
  return Math.max(POLL_MS, (pages / Math.max(3, 30 / 2 ** refusals)) * MINUTE * 1.33);
}

function dueAfter(
  raisedMs: number,
  allowedMs: number,
  excuses: readonly { readonly fromMs: number; readonly toMs: number; readonly allowsMs: number }[],
): number {
  let dueMs = raisedMs + allowedMs;
  for (const { fromMs, toMs, allowsMs } of excuses)
    if (fromMs <= dueMs && toMs >= raisedMs - allowsMs)
      dueMs = Math.max(dueMs, Math.max(raisedMs, toMs) + allowedMs) + allowsMs;
  return dueMs;
}

function notingSink(note: (event: Event) => void): Sink {
  return {
    maxBatch: PAGE,
    async open() {},
    async write(batch) {
      for (const event of batch) note(event);
      return EVENTS_ACCEPTED;
    },
    async close() {},
  };
}
