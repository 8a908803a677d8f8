import { GOALS, WINDOWS } from "./goals.ts";
import { percent, type Report } from "./report.ts";
import { strictQueueClient } from "./strict-queue.ts";
import { type Sum, simulateSeeds } from "./sum.ts";

const EVERY_MS = 15 * 60_000;
const HOURS = 55;
const LOST_HOURS = 10;

/** Killed at random moments, every 15 minutes in the mean, three seconds down; a thousand times in all. */
export async function kills(report: Report): Promise<void> {
  const rows: string[][] = [];
  const all: Sum[] = [];
  for (const limiter of WINDOWS) {
    const sum = await simulateSeeds({ limiter, hours: HOURS, killEveryMs: EVERY_MS }, [11]);
    all.push(sum);
    const compared = { limiter, hours: LOST_HOURS, killEveryMs: EVERY_MS, client: strictQueueClient(60_500) };
    const strict = await simulateSeeds({ ...compared, globalTimers: true }, [11]);
    rows.push([limiter, String(sum.kills), cell(sum), cell(strict)]);
  }
  report.title("Killed every 15 min, 3 s down, record kept; % of the quota / 429 per kill (down time included)");
  report.table(["", "kills", "the quota", "p-queue strict 60.5 s"], rows);
  report.goal(
    "kills",
    total(all, (sum) => sum.kills),
    "least",
    GOALS.kills.atLeast,
  );
  report.goal(
    "kills: refusals",
    total(all, (sum) => sum.refused),
    "most",
    GOALS.kills.refusals,
  );
  const share = total(all, (sum) => sum.utilisation) / all.length;
  report.goal("kills: share of the quota", share, "least", GOALS.kills.utilisation);
}

/** What it costs to lose the record with each kill. No goal: it shows why the default paces and does not wait. */
export async function lostState(report: Report): Promise<void> {
  const rows: string[][] = [];
  for (const limiter of WINDOWS) {
    const scenario = { limiter, hours: LOST_HOURS, killEveryMs: EVERY_MS, loses: "state" } as const;
    const told = await simulateSeeds(scenario, [12]);
    const untold = await simulateSeeds({ ...scenario, headers: false }, [12]);
    rows.push([limiter, cell(told), cell(untold)]);
  }
  report.title("The same with the record lost each time; % of the quota / 429 per kill");
  report.table(["", "with x-ratelimit headers", "without"], rows);
}

function cell(sum: Sum): string {
  return `${percent(sum.utilisation)} / ${(sum.refused / sum.kills).toFixed(2)}`;
}

function total(sums: readonly Sum[], value: (sum: Sum) => number): number {
  return sums.reduce((result, sum) => result + value(sum), 0);
}
