import { Throttled } from "#src/core/errors/errors.ts";
import { createQuota, type QuotaOptions } from "#src/engine/source/quota/quota.ts";
import type { QueueLane } from "#src/engine/source/source.ts";
import { createVirtualClock, type VirtualClock } from "../../virtual-clock.ts";
import {
  createDiskQuotaStore,
  createKillableProcess,
  forEver,
  type KillableProcess,
  type QuotaDisk,
} from "./killable-process.ts";
import { LIMITERS, type LimiterName, type LimiterVerdict } from "./limiters.ts";
import { type Network, ordinary } from "./network.ts";
import { createRandom, type Random } from "./random.ts";

/** A simulation of the real quota against a limiter that it does not know. */
export interface Scenario {
  readonly limiter: LimiterName;
  readonly hours: number;
  readonly seed: number;
  readonly network?: Network;
  readonly urgentEveryMs?: number;
  readonly reserve?: number;
  readonly killEveryMs?: number;
  readonly clockStepEveryMs?: number;
  readonly otherPerMinute?: number;
  readonly otherFromMs?: number;
  readonly headers?: boolean;
  readonly client?: ClientMaker;
  /** Replaces the date and timers of the runtime, which the client uses. */
  readonly globalTimers?: boolean;
}

export interface SimulationResult {
  readonly utilisation: number;
  readonly refused: number;
  readonly refusedPerHour: number;
  readonly kills: number;
  readonly urgentWaitsMs: readonly number[];
  readonly otherReportedMs: number | null;
  readonly otherCountedMs: number | null;
}

export interface Client {
  run(lane: QueueLane, send: () => Promise<LimiterVerdict>): Promise<void>;
}
export type ClientMaker = (life: KillableProcess, disk: QuotaDisk, random: Random, onOtherClient: () => void) => Client;

const START_MS = 1_704_067_200_000;
const BACKLOG = 24;
const DOWN_MS = 3_000;

export async function simulate(scenario: Scenario): Promise<SimulationResult> {
  const trueClock = createVirtualClock(START_MS);
  if (scenario.globalTimers !== true) return simulateWith(trueClock, scenario);
  const restore = installGlobalTimers(trueClock);
  try {
    return await simulateWith(trueClock, scenario);
  } finally {
    restore();
  }
}

async function simulateWith(truth: VirtualClock, scenario: Scenario): Promise<SimulationResult> {
  const random = createRandom(scenario.seed);
  const limiter = LIMITERS[scenario.limiter]();
  const network = scenario.network ?? ordinary;
  const makeClient = scenario.client ?? quotaClient({ reserve: scenario.reserve ?? 0 }, scenario);
  const endMs = scenario.hours * 3_600_000;
  const disk: QuotaDisk = { slots: new Map(), pauses: new Map() };
  const urgentWaitsMs: number[] = [];
  let acceptedCount = 0;
  let refusedCount = 0;
  let kills = 0;
  let otherReportedMs: number | null = null;
  let otherCountedMs: number | null = null;

  const exchange = async (life: KillableProcess): Promise<LimiterVerdict> => {
    if (life.dead()) return forEver();
    const way = network(random);
    await truth.sleep(way.upMs);
    const limiterVerdict = limiter.arrive(truth.monotonic());
    if (limiterVerdict.ok) acceptedCount += 1;
    else refusedCount += 1;
    await life.clock.sleep(way.downMs);
    return limiterVerdict;
  };

  const startClient = (): KillableProcess => {
    const life = createKillableProcess(truth, random.between(-100, 100));
    const client = makeClient(life, disk, random, () => {
      otherReportedMs ??= truth.monotonic();
    });
    const callForEver = async () => {
      while (!life.dead()) await client.run("live", () => exchange(life));
    };
    const sendUrgent = async () => {
      const sinceMs = life.clock.monotonic();
      await client.run("write", () => {
        urgentWaitsMs.push(life.clock.monotonic() - sinceMs);
        return exchange(life);
      });
    };
    const urgentForEver = async (everyMs: number) => {
      while (!life.dead()) {
        await life.clock.sleep(random.after(everyMs));
        void sendUrgent();
      }
    };
    for (let callerIndex = 0; callerIndex < BACKLOG; callerIndex += 1) void callForEver();
    if (scenario.urgentEveryMs !== undefined) void urgentForEver(scenario.urgentEveryMs);
    return life;
  };

  const otherClient = async (perMinute: number) => {
    await truth.sleep(scenario.otherFromMs ?? 0);
    for (;;) {
      await truth.sleep(random.after(60_000 / perMinute));
      if (limiter.arrive(truth.monotonic()).counted) otherCountedMs ??= truth.monotonic();
    }
  };
  const stepClock = async (everyMs: number) => {
    for (;;) {
      await truth.sleep(random.after(everyMs));
      truth.stepWall(random.between(-2_000, 2_000));
    }
  };
  if (scenario.otherPerMinute !== undefined) void otherClient(scenario.otherPerMinute);
  if (scenario.clockStepEveryMs !== undefined) void stepClock(scenario.clockStepEveryMs);

  let killableProcess = startClient();
  while (scenario.killEveryMs !== undefined) {
    const nextKillMs = truth.monotonic() + random.after(scenario.killEveryMs);
    if (nextKillMs >= endMs) break;
    await truth.run(nextKillMs);
    killableProcess.kill();
    kills += 1;
    await truth.advance(DOWN_MS);
    killableProcess = startClient();
  }
  await truth.run(endMs);
  killableProcess.kill();
  const [utilisation, refusedPerHour] = [acceptedCount / (20 * 60 * scenario.hours), refusedCount / scenario.hours];
  const otherTimes = { otherReportedMs, otherCountedMs };
  return { utilisation, refused: refusedCount, refusedPerHour, kills, urgentWaitsMs, ...otherTimes };
}

/** The worker's quota with a small decoder: a refusal pauses for the retry time plus one second. */
export function quotaClient(
  options: Partial<QuotaOptions>,
  scenario: { readonly killEveryMs?: number; readonly headers?: boolean },
): ClientMaker {
  return (life, disk, random, onOtherClient) => {
    const commitMs = scenario.killEveryMs === undefined ? () => 0 : () => random.between(0, 10);
    const store = createDiskQuotaStore(disk, life.clock, commitMs);
    const quota = createQuota({ source: "bench", clock: life.clock, store, onOtherClient, ...options });
    const neverAborted = new AbortController().signal;
    const exchange = async (send: () => Promise<LimiterVerdict>) => {
      const sentMs = life.clock.monotonic();
      const { ok, remaining, retryAfterS } = await send();
      if (scenario.headers !== false && remaining !== null)
        quota.observeHeaders("read", { limit: 20, remaining }, sentMs);
      if (ok) return;
      const waitMs = (retryAfterS + 1) * 1000;
      quota.pauseRequests(waitMs, "read");
      throw new Throttled("refused", waitMs);
    };
    return {
      async run(lane, send) {
        try {
          await quota.run(lane, lane === "write" ? "write" : "read", () => exchange(send), neverAborted);
        } catch (error) {
          if (!(error instanceof Throttled)) throw error;
        }
      },
    };
  };
}

/** Replaces the date and timers of the runtime by virtual time; returns a function that restores them. */
function installGlobalTimers(clock: VirtualClock): () => void {
  const realTimers = { now: Date.now, setTimeout: globalThis.setTimeout, clearTimeout: globalThis.clearTimeout };
  const start = (callback: () => void, ms: number) => {
    const timer = new AbortController();
    clock.sleep(ms, timer.signal).then(callback, () => undefined);
    return timer;
  };
  Date.now = () => Math.floor(clock.now());
  const stop = (timer: AbortController | undefined) => timer?.abort();
  Object.assign(globalThis, { setTimeout: start, clearTimeout: stop });
  return () => {
    Date.now = realTimers.now;
    Object.assign(globalThis, { setTimeout: realTimers.setTimeout, clearTimeout: realTimers.clearTimeout });
  };
}
