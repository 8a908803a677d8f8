import PQueue from "p-queue";
import { checkGoal, percent, printTable } from "../harness.ts";
import { computeMean } from "../history/missing-logs.ts";
import { GOALS, WINDOWS } from "./goals.ts";
import { LIMITERS, type LimiterName } from "./limiters.ts";
import { type Network, ordinary, slowGateway, stalling } from "./network.ts";
import { createRandom } from "./random.ts";
import type { ClientMaker, Scenario, SimulationResult } from "./run.ts";
import { quantile, type Sum, simulateSeeds } from "./sum.ts";

/** The worker's quota against unknown limiters, compared with its bound and p-queue (`npm run bench:quota`). */
const HOURS = 24;
const SEEDS = [1, 2, 3];
/** Just short of a whole number of bursts 60.5 s apart, so that the last burst does not flatter p-queue. */
const COMPARED_HOURS = 4.016;
const KILL_EVERY_MS = 15 * 60_000;
const FOREIGN_HOURS = 4;
const FOREIGN_FROM_MS = 3_600_000;
const FOREIGN_PER_MINUTE = 4;

function strictQueueClient(intervalMs: number): ClientMaker {
  return (life) => {
    const queue = new PQueue({ strict: true, intervalCap: 20, interval: intervalMs });
    return {
      async run(lane, send) {
        const limiterVerdict = await queue.add(send, { priority: lane === "write" ? 1 : 0 });
        if (limiterVerdict.ok || queue.isPaused) return;
        queue.pause();
        await life.clock.sleep((limiterVerdict.retryAfterS + 1) * 1000);
        queue.start();
      },
    };
  };
}

function simulateStrictQueue(scenario: Omit<Scenario, "seed">, intervalMs: number, seed = 1): Promise<Sum> {
  return simulateSeeds({ ...scenario, client: strictQueueClient(intervalMs), globalTimers: true }, [seed]);
}

/** Maximum share without refusals: each request costs T(1+r) + E[min(round trip - shortest, spread of the way up)]. */
function optimalShare(network: Network = ordinary): number {
  const samples = 200_000;
  const random = createRandom(1);
  const ways = Array.from({ length: samples }, () => network(random));
  const shortestMs = ways.reduce((least, way) => Math.min(least, way.upMs + way.downMs), Number.POSITIVE_INFINITY);
  const ups = ways.map((way) => way.upMs);
  const spreadMs = ups.reduce((a, b) => Math.max(a, b)) - ups.reduce((a, b) => Math.min(a, b));
  const sum = ways.reduce((total, way) => total + Math.min(way.upMs + way.downMs - shortestMs, spreadMs), 0);
  return 60_000 / (60_000 * (1 + 200e-6) + sum / samples);
}

/** A leaky bucket needs 3 s plus the spread of the way (at most 0.345 s); a weighted counter allows 19 evenly spaced. */
function findBound(name: LimiterName, optimum: number): number {
  if (name === "leaky, burst 1") return 3 / 3.3455;
  return name === "weighted counter" ? 19 / 20 : optimum;
}

const perHour = (sum: Sum) => `${percent(sum.utilisation, 2)} / ${sum.refusedPerHour.toFixed(2)}`;
const perKill = (sum: Sum) => `${percent(sum.utilisation, 2)} / ${(sum.refused / sum.kills).toFixed(2)}`;

async function steadyLoad(): Promise<void> {
  const names = Object.keys(LIMITERS) as LimiterName[];
  const optimum = optimalShare();
  const columns: (readonly string[])[] = [];
  for (const limiter of names) {
    const sum = await simulateSeeds({ limiter, hours: HOURS }, SEEDS);
    const shortRun = { limiter, hours: COMPARED_HOURS };
    const strictRuns = [await simulateStrictQueue(shortRun, 60_000), await simulateStrictQueue(shortRun, 60_500)];
    columns.push([perHour(sum), percent(findBound(limiter, optimum), 2), ...strictRuns.map(perHour)]);
    const isWindow = limiter !== "leaky, burst 1" && limiter !== "weighted counter";
    const goal = limiter === "leaky, burst 1" ? GOALS.leaky : isWindow ? GOALS.windows : GOALS.weighted;
    checkGoal(`${limiter}: share of the quota`, sum.utilisation, "at least", goal.utilisation);
    const maxRefusals = "refusals" in goal ? goal.refusals : goal.refusalsPerHour;
    checkGoal(`${limiter}: refusals`, sum.refusedPerHour, "at most", maxRefusals, "/h");
  }
  const rows = ["the quota", "bound without refusals", "p-queue strict, 60 s", "p-queue strict, 60.5 s"];
  printTable(
    `Always requests waiting, round trips 15 to 500 ms, clocks ±100 ppm, ${HOURS} h; % of the quota / 429 per hour`,
    ["", ...names],
    rows.map((name, row) => [name, ...columns.map((column) => column[row] ?? "")]),
  );
}

async function networks(): Promise<void> {
  const rows: string[][] = [];
  for (const [name, network, clockStepEveryMs] of [
    ["slow gateway, 0.9 s to 15 s", slowGateway, undefined],
    ["0.5 % stalls of 0.2 to 3 s", stalling, undefined],
    ["clock steps of ±2 s every 10 min", ordinary, 600_000],
    ["stalls and clock steps", stalling, 600_000],
  ] as const) {
    const weather = { limiter: "sliding log", network, ...(clockStepEveryMs ? { clockStepEveryMs } : {}) } as const;
    const sum = await simulateSeeds({ ...weather, hours: HOURS }, SEEDS);
    const shortRun = { ...weather, hours: COMPARED_HOURS };
    const strictRuns = [await simulateStrictQueue(shortRun, 60_000), await simulateStrictQueue(shortRun, 60_500)];
    rows.push([name, perHour(sum), percent(optimalShare(network), 2), ...strictRuns.map(perHour)]);
    if (network === slowGateway) {
      checkGoal(`${name}: share of the quota`, sum.utilisation, "at least", GOALS.slowGateway.utilisation);
      checkGoal(`${name}: refusals`, sum.refused, "at most", GOALS.slowGateway.refusals);
    } else
      checkGoal(`${name}: refusals`, sum.refusedPerHour, "at most", GOALS.stallsAndClockSteps.refusalsPerHour, "/h");
  }
  const tableTitle = `Sliding log, other networks and clocks, ${HOURS} h; % of the quota / 429 per hour`;
  printTable(tableTitle, ["", "the quota", "bound", "p-queue strict 60 s", "p-queue strict 60.5 s"], rows);
}

async function urgentWrites(): Promise<void> {
  const scenario = { limiter: "sliding log", hours: HOURS, urgentEveryMs: 60_000 } as const;
  const plainSum = await simulateSeeds(scenario, SEEDS);
  const reservedSum = await simulateSeeds({ ...scenario, reserve: 1 }, SEEDS);
  const strictSum = await simulateStrictQueue(scenario, 60_500);
  const seconds = (ms: number) => (ms / 1000).toFixed(2);
  const row = (name: string, { waitsMs, utilisation, refused }: Sum) => [
    ...[name, seconds(computeMean(waitsMs)), seconds(quantile(waitsMs, 0.95)), seconds(quantile(waitsMs, 1))],
    ...[percent(utilisation, 2), String(refused)],
  ];
  const tableTitle = `Urgent writes, one a minute, among polls that never stop, sliding log, ${HOURS} h; seconds waited`;
  printTable(
    tableTitle,
    ["", "mean", "p95", "max", "% of the quota", "429"],
    [
      ...[row("the quota", plainSum), row("the quota, 1 slot reserved", reservedSum)],
      row("p-queue strict 60.5 s with priority", strictSum),
    ],
  );
  const { p95Ms, p95WithReserveMs } = GOALS.urgent;
  checkGoal("urgent: p95", quantile(plainSum.waitsMs, 0.95), "at most", p95Ms, " ms");
  checkGoal("urgent with a reserve: p95", quantile(reservedSum.waitsMs, 0.95), "at most", p95WithReserveMs, " ms");
}

async function kills(): Promise<void> {
  const rows: string[][] = [];
  const all: Sum[] = [];
  for (const limiter of WINDOWS) {
    const sum = await simulateSeeds({ limiter, hours: 55, killEveryMs: KILL_EVERY_MS }, [11]);
    all.push(sum);
    const strictSum = await simulateStrictQueue({ limiter, hours: 10, killEveryMs: KILL_EVERY_MS }, 60_500, 11);
    rows.push([limiter, String(sum.kills), perKill(sum), perKill(strictSum)]);
  }
  const tableTitle = "Killed every 15 min, 3 s down, state stored; % of the quota / 429 per kill (down time included)";
  printTable(tableTitle, ["", "kills", "the quota", "p-queue strict 60.5 s"], rows);
  const total = (value: (sum: Sum) => number) => all.reduce((result, sum) => result + value(sum), 0);
  const [killCount, refusals, shares] = [total((s) => s.kills), total((s) => s.refused), total((s) => s.utilisation)];
  checkGoal("kills", killCount, "at least", GOALS.kills.atLeast);
  checkGoal("kills: refusals", refusals, "at most", GOALS.kills.refusals);
  checkGoal("kills: share of the quota", shares / all.length, "at least", GOALS.kills.utilisation);
}

async function otherClient(): Promise<void> {
  const rows: string[][] = [];
  let longestMs = 0;
  for (const limiter of WINDOWS) {
    const cells: string[] = [];
    for (const headers of [true, false]) {
      const otherOptions = { otherPerMinute: FOREIGN_PER_MINUTE, otherFromMs: FOREIGN_FROM_MS };
      const sum = await simulateSeeds({ limiter, hours: FOREIGN_HOURS, headers, ...otherOptions }, SEEDS);
      const slowestMs = Math.max(...sum.outcomes.map(reportedAfterMs));
      longestMs = Math.max(longestMs, slowestMs);
      const hours = FOREIGN_HOURS - FOREIGN_FROM_MS / 3_600_000;
      const perMinute = (sum.utilisation * 20 * FOREIGN_HOURS - 20) / hours;
      const refusalsPerHour = sum.refused / sum.outcomes.length / hours;
      cells.push(`${(slowestMs / 60_000).toFixed(1)} min`, `${perMinute.toFixed(1)} / ${refusalsPerHour.toFixed(1)}`);
    }
    rows.push([limiter, ...cells]);
  }
  const tableTitle = `Another client sends ${FOREIGN_PER_MINUTE} requests a minute; reported after, then own requests a minute / 429 per hour`;
  printTable(tableTitle, ["", "headers: reported", "then", "no headers: reported", "then"], rows);
  const withinS = GOALS.foreign.reportedWithinMs / 1000;
  checkGoal("another client is reported after", longestMs / 1000, "at most", withinS, " s");
}

function reportedAfterMs({ otherReportedMs, otherCountedMs }: SimulationResult): number {
  if (otherReportedMs === null || otherCountedMs === null || otherReportedMs < otherCountedMs)
    return Number.POSITIVE_INFINITY;
  return otherReportedMs - otherCountedMs;
}

for (const section of [steadyLoad, networks, urgentWrites, kills, otherClient]) await section();
