import { computeIncidentKey } from "#connectors/shared/receiver/receiver-interface.ts";
import type { Clock } from "#src/core/runtime/clock.ts";
import { seededRandom } from "../commands/seeded-random.ts";
import { contextFor } from "../connectors/context.ts";
import { START, sampleAlarm } from "../receiver/receiver-harness.ts";
import { createMemoryStore } from "../sync/memory-store.ts";
import type { ServerFailure } from "./receiver-server.ts";
import { createSink, type ReceiverCase } from "./receivers.ts";

export interface StormOptions {
  readonly seed: number;
  readonly alarms: number;
  /** Share of the requests that go wrong, of those that change something; half of them are carried out. */
  readonly wrong: number;
}

export interface StormResult {
  readonly usedRate: number;
  /** Requests that the receiver told to wait, as a share of all. */
  readonly refused: number;
  /** Pairs of alarms of which the less urgent came first, as a share of all pairs of different priorities. */
  readonly inversions: number;
  readonly seconds: number;
  readonly requests: number;
  readonly problems: readonly string[];
}

const REQUEST_MS = 100;
const MAX_DURATION_MS = 6 * 3_600_000;
const EVENTS_PER_BATCH = 100;

const RATE_LIMITS: Readonly<Record<string, { readonly count: number; readonly inMs: number }>> = {
  slack: { count: 1, inMs: 1_000 },
  email: { count: Number.POSITIVE_INFINITY, inMs: 1_000 },
  alertmanager: { count: Number.POSITIVE_INFINITY, inMs: 1_000 },
};
const OTHER_LIMIT = { count: 50, inMs: 10_000 };

export async function playStorm(receiverCase: ReceiverCase, options: StormOptions): Promise<StormResult> {
  const { alarms, seed, wrong } = options;
  const random = seededRandom(seed);
  let nowMs = START;
  const clock: Clock = {
    now: () => nowMs,
    monotonic: () => nowMs - START,
    sleep: async (ms) => {
      nowMs += ms;
    },
  };
  const limit = RATE_LIMITS[receiverCase.name] ?? OTHER_LIMIT;
  const server = await receiverCase.start(clock.now);
  const recentRequestsMs: number[] = [];
  let requests = 0;
  let refused = 0;
  let lastRequestMs = START;

  function drawFailure(isLimited: boolean): ServerFailure | null {
    const atMs = nowMs;
    nowMs += REQUEST_MS;
    while (recentRequestsMs[0] !== undefined && recentRequestsMs[0] <= atMs - limit.inMs) recentRequestsMs.shift();
    if (isLimited && recentRequestsMs.length >= limit.count) {
      refused += 1;
      return { waitSeconds: Math.ceil(((recentRequestsMs[0] ?? atMs) + limit.inMs - atMs) / 1_000) };
    }
    if (isLimited) recentRequestsMs.push(atMs);
    requests += 1;
    lastRequestMs = nowMs;
    if (!random.chance(wrong)) return null;
    return random.chance(0.5) ? "lost" : "failed";
  }
  server.failBy?.(drawFailure);
  const store = createMemoryStore(clock.now);
  const context = { ...contextFor("people", clock, store), random: seededRandom(seed + 1) };
  const sink = await createSink(receiverCase, server, context, { dossier: false });
  const { pendingRequests, write } = sink;
  const alarmCases = Array.from({ length: alarms }, (_, n) => ({
    sample: sampleAlarm(n, { priority: random.pick(["A", "B", "C"]) }),
    isOver: random.chance(0.2),
  }));
  const keys = new Map(alarmCases.map(({ sample }, n) => [computeIncidentKey("main", "alarm", sample.episode), n]));
  const { signal } = new AbortController();
  const problems: string[] = [];

  async function offer(events: Parameters<typeof write>[0], from: number): Promise<void> {
    const positions = events.map((_, index) => from + index);
    const committedAt = events.map(() => new Date(START).toISOString());
    const receipt = await write(events, signal, undefined, { positions, committedAt, isRedelivery: false });
    if (receipt.rejected.length !== 0 || receipt.retry !== undefined) problems.push("an event was not settled");
  }

  async function until(isDone: () => boolean): Promise<boolean> {
    while (!isDone()) {
      if (nowMs - START > MAX_DURATION_MS) return false;
      const ticked = await sink.tick?.(signal);
      nowMs += Math.max(100, ticked?.tickInMs ?? 0);
    }
    return true;
  }

  const listPresentKeys = () =>
    new Set(server.incidents().flatMap(({ key }) => (key !== null && keys.has(key) ? [key] : [])));
  try {
    nowMs += 60_000;
    const startMs = nowMs;
    for (let n = 0; n < alarmCases.length; n += EVENTS_PER_BATCH) {
      await offer(
        alarmCases.slice(n, n + EVENTS_PER_BATCH).map(({ sample }) => sample.raised()),
        n + 1,
      );
    }
    await until(() => requests >= alarms);
    const perSecond = Math.min((limit.count / limit.inMs) * 1_000, 1_000 / REQUEST_MS);
    const usedRate = requests / (((lastRequestMs - startMs) / 1_000) * perSecond);
    const ranks = [...listPresentKeys()].map(
      (key) => alarmCases[keys.get(key) ?? 0]?.sample.record.trigger.priority ?? "",
    );
    const inversions = shareOfInversions(ranks);
    await offer(
      alarmCases.filter(({ isOver }) => isOver).map(({ sample }) => sample.resolved(5)),
      alarms + 1,
    );
    // Plenum sends all active alerts to Alertmanager every minute. If many requests fail, some are always pending.
    const isIdle = () => receiverCase.connector === "alertmanager" || pendingRequests?.() === 0;
    if (!(await until(() => isIdle() && matchesServer()))) problems.push("not all incidents reached their final state");
    const settledMs = nowMs + 600_000;
    await until(() => nowMs >= settledMs);
    problems.push(...judge());
    const all = requests + refused;
    const seconds = (settledMs - 600_000 - startMs) / 1_000;
    return { usedRate, refused: refused / all, inversions, seconds, requests: all, problems };
  } finally {
    await sink.close();
    await server.stop();
    await store.close();
  }

  function matchesServer(): boolean {
    const open = new Map(server.incidents().map(({ key, isOpen }) => [key, isOpen]));
    return [...keys].every(([key, n]) => open.get(key) === (alarmCases[n]?.isOver === false));
  }

  function judge(): readonly string[] {
    const incidents = server.incidents();
    return [...keys].flatMap(([key, n]) => {
      const own = incidents.filter((incident) => incident.key === key);
      const isOver = alarmCases[n]?.isOver === true;
      const found: string[] = [];
      if (own.length === 0) found.push(`alarm ${n} is missing`);
      if (own.length > (receiverCase.most?.(0) ?? 1)) found.push(`alarm ${n} is there ${own.length} times`);
      if (own.some(({ isOpen }) => isOpen === isOver)) found.push(`alarm ${n} is ${isOver ? "open" : "closed"}`);
      return found;
    });
  }
}

/** Pairs of which the less urgent comes first, as a share of all pairs that differ. */
function shareOfInversions(priorities: readonly string[]): number {
  let pairs = 0;
  let wrong = 0;
  for (const [n, first] of priorities.entries()) {
    for (const second of priorities.slice(n + 1)) {
      if (first === second) continue;
      pairs += 1;
      if (first > second) wrong += 1;
    }
  }
  return pairs === 0 ? 0 : wrong / pairs;
}

export function findProblems(result: StormResult, receiverCase: ReceiverCase): readonly string[] {
  const { inversions, problems, refused, usedRate } = result;
  const percent = (share: number) => `${(share * 100).toFixed(1)} %`;
  return [
    ...problems,
    ...(usedRate < 0.8 ? [`it used ${percent(usedRate)} of the receiver's rate`] : []),
    ...(inversions > 0.1 ? [`${percent(inversions)} of the pairs came in the wrong order`] : []),
    ...(refused > (receiverCase.name === "slack" ? 0.05 : 0.25) ? [`${percent(refused)} were told to wait`] : []),
  ];
}
