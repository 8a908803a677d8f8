import { GOALS } from "./goals.ts";
import { type Network, ordinary, slowGateway, stalling } from "./network.ts";
import { optimalUtilisation } from "./optimum.ts";
import { percent, type Report } from "./report.ts";
import { strictQueueClient } from "./strict-queue.ts";
import { type Sum, simulateSeeds } from "./sum.ts";

const HOURS = 24;
const SEEDS = [1, 2, 3];
/** Just short of a whole number of bursts 60.5 s apart, so that the last one does not flatter the comparison. */
const COMPARED_HOURS = 4.016;

interface Weather {
  readonly name: string;
  readonly network: Network;
  readonly clockStepEveryMs?: number;
}

const WEATHERS: readonly Weather[] = [
  { name: "slow gateway, 0.9 s to 15 s", network: slowGateway },
  { name: "0.5 % stalls of 0.2 to 3 s", network: stalling },
  { name: "clock steps of +-2 s every 10 min", network: ordinary, clockStepEveryMs: 600_000 },
  { name: "stalls and clock steps", network: stalling, clockStepEveryMs: 600_000 },
];

export async function networks(report: Report): Promise<void> {
  const rows: string[][] = [];
  const sums = new Map<string, Sum>();
  for (const { name, ...weather } of WEATHERS) {
    const sum = await simulateSeeds({ limiter: "sliding log", hours: HOURS, ...weather }, SEEDS);
    sums.set(name, sum);
    const compared = {
      limiter: "sliding log",
      hours: COMPARED_HOURS,
      globalTimers: true,
      ...weather,
    } as const;
    const plain = await simulateSeeds({ ...compared, client: strictQueueClient(60_000) }, [1]);
    const padded = await simulateSeeds({ ...compared, client: strictQueueClient(60_500) }, [1]);
    rows.push([name, cell(sum), percent(optimalUtilisation(weather.network)), cell(plain), cell(padded)]);
  }
  report.title(
    `Sliding log, other networks and clocks, ${HOURS} h, ${SEEDS.length} seeds; % of the quota / 429 per hour`,
  );
  report.table(["", "the quota", "bound", "p-queue strict 60 s", "p-queue strict 60.5 s"], rows);
  const slow = sums.get("slow gateway, 0.9 s to 15 s");
  report.goal("slow gateway: share of the quota", slow?.utilisation ?? 0, "least", GOALS.slowGateway.utilisation);
  report.goal("slow gateway: refusals", slow?.refused ?? Number.NaN, "most", GOALS.slowGateway.refusals);
  for (const { name } of WEATHERS.slice(1)) {
    const refusals = sums.get(name)?.refusedPerHour ?? Number.NaN;
    report.goal(`${name}: refusals`, refusals, "most", GOALS.stallsAndClockSteps.refusalsPerHour, "/h");
  }
}

function cell(sum: Sum): string {
  return `${percent(sum.utilisation)} / ${sum.refusedPerHour.toFixed(2)}`;
}
