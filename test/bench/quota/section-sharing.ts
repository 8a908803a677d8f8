import { GOALS, WINDOWS } from "./goals.ts";
import { percent, type Report, seconds } from "./report.ts";
import type { Outcome } from "./run.ts";
import { strictQueueClient } from "./strict-queue.ts";
import { mean, quantile, type Sum, simulateSeeds } from "./sum.ts";

const HOURS = 24;
const SEEDS = [1, 2, 3];
const EVERY_MS = 60_000;
const RIVAL_HOURS = 4;
const RIVAL_FROM_MS = 3_600_000;
const RIVAL_PER_MINUTE = 4;

/** Writes at random moments, one a minute, while polls never stop. */
export async function urgent(report: Report): Promise<void> {
  const scenario = { limiter: "sliding log", hours: HOURS, urgentEveryMs: EVERY_MS } as const;
  const none = await simulateSeeds(scenario, SEEDS);
  const one = await simulateSeeds({ ...scenario, reserve: 1 }, SEEDS);
  const strict = { ...scenario, client: strictQueueClient(60_500), globalTimers: true };
  const compared = await simulateSeeds(strict, [1]);
  report.title(`Urgent writes, one a minute, among polls that never stop, sliding log, ${HOURS} h; seconds waited`);
  report.table(
    ["", "mean", "p95", "max", "% of the quota", "429"],
    [
      waits("the quota", none),
      waits("the quota, 1 slot reserved", one),
      waits("p-queue strict 60.5 s with priority", compared),
    ],
  );
  report.goal("urgent: p95", quantile(none.waitsMs, 0.95), "most", GOALS.urgent.p95Ms, " ms");
  report.goal("urgent with a reserve: p95", quantile(one.waitsMs, 0.95), "most", GOALS.urgent.p95WithReserveMs, " ms");
}

/** Somebody else begins to send on the same token after an hour. */
export async function rival(report: Report): Promise<void> {
  const rows: string[][] = [];
  let longestMs = 0;
  for (const limiter of WINDOWS) {
    const cells: string[] = [];
    for (const headers of [true, false]) {
      const scenario = {
        limiter,
        hours: RIVAL_HOURS,
        rivalPerMinute: RIVAL_PER_MINUTE,
        rivalFromMs: RIVAL_FROM_MS,
      };
      const sum = await simulateSeeds({ ...scenario, headers }, [1, 2, 3]);
      const told = sum.outcomes.map(toldAfter);
      longestMs = Math.max(longestMs, ...told);
      cells.push(`${(Math.max(...told) / 60_000).toFixed(1)} min`, afterwards(sum));
    }
    rows.push([limiter, ...cells]);
  }
  report.title(
    `A stranger sends ${RIVAL_PER_MINUTE} requests a minute on the same token; told after / our requests a minute / our 429 per hour`,
  );
  report.table(["", "headers: told", "then", "no headers: told", "then"], rows);
  report.goal("a stranger is told", longestMs / 1000, "most", GOALS.rival.toldWithinMs / 1000, " s");
}

/** A stranger whose requests are all refused uncounted leaves no trace; time runs from the first that is counted. */
function toldAfter({ foreignToldMs, rivalCountedMs }: Outcome): number {
  // Told before it came would be an invention, and counts as never.
  if (foreignToldMs === null || rivalCountedMs === null || foreignToldMs < rivalCountedMs) {
    return Number.POSITIVE_INFINITY;
  }
  return foreignToldMs - rivalCountedMs;
}

function afterwards(sum: Sum): string {
  const hours = RIVAL_HOURS - RIVAL_FROM_MS / 3_600_000;
  const perMinute = (sum.utilisation * 20 * RIVAL_HOURS - 20) / hours;
  return `${perMinute.toFixed(1)} / ${(sum.refused / sum.outcomes.length / hours).toFixed(1)}`;
}

function waits(name: string, sum: Sum): string[] {
  return [
    name,
    seconds(mean(sum.waitsMs)),
    seconds(quantile(sum.waitsMs, 0.95)),
    seconds(quantile(sum.waitsMs, 1)),
    percent(sum.utilisation),
    String(sum.refused),
  ];
}
