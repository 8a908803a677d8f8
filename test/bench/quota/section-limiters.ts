import { GOALS, WINDOWS } from "./goals.ts";
import { LIMITERS, type LimiterName } from "./limiters.ts";
import { optimalUtilisation } from "./optimum.ts";
import { percent, type Report } from "./report.ts";
import { strictQueueClient } from "./strict-queue.ts";
import { type Sum, simulateSeeds } from "./sum.ts";

const HOURS = 24;
const SEEDS = [1, 2, 3];
/** Just short of a whole number of bursts 60.5 s apart, so that the last one does not flatter the comparison. */
const COMPARED_HOURS = 4.016;

export async function steadyLoad(report: Report): Promise<void> {
  const names = Object.keys(LIMITERS) as LimiterName[];
  const ours = new Map<LimiterName, Sum>();
  for (const limiter of names) ours.set(limiter, await simulateSeeds({ limiter, hours: HOURS }, SEEDS));
  const compared = async (intervalMs: number) => {
    const cells: string[] = [];
    for (const limiter of names) {
      const scenario = {
        limiter,
        hours: COMPARED_HOURS,
        client: strictQueueClient(intervalMs),
        globalTimers: true,
      };
      cells.push(cell(await simulateSeeds(scenario, [1])));
    }
    return cells;
  };
  const optimum = optimalUtilisation();
  report.title(
    `Always something waiting, round trips 15 to 500 ms, clocks +-100 ppm, ${HOURS} h, ${SEEDS.length} seeds; % of the quota / 429 per hour`,
  );
  report.table(
    ["", ...names],
    [
      ["the quota", ...names.map((name) => cell(ours.get(name)))],
      ["bound for any client that is never refused", ...names.map((name) => bound(name, optimum))],
      [`p-queue strict, 20 per 60 s (4 h)`, ...(await compared(60_000))],
      [`p-queue strict, 20 per 60.5 s (4 h)`, ...(await compared(60_500))],
    ],
  );
  for (const name of WINDOWS) {
    report.goal(`${name}: share of the quota`, ours.get(name)?.utilisation ?? 0, "least", GOALS.windows.utilisation);
    report.goal(`${name}: refusals`, ours.get(name)?.refused ?? Number.NaN, "most", GOALS.windows.refusals);
  }
  for (const [name, goal] of [
    ["leaky, burst 1", GOALS.leaky],
    ["weighted counter", GOALS.weighted],
  ] as const) {
    report.goal(`${name}: share of the quota`, ours.get(name)?.utilisation ?? 0, "least", goal.utilisation);
    report.goal(`${name}: refusals`, ours.get(name)?.refusedPerHour ?? Number.NaN, "most", goal.refusalsPerHour, "/h");
  }
}

function cell(sum: Sum | undefined): string {
  return sum === undefined ? "" : `${percent(sum.utilisation)} / ${sum.refusedPerHour.toFixed(2)}`;
}

/** A leaky bucket needs 3 s + the spread of the way (at most 0.345 s here); a weighted counter bears 19 even ones. */
function bound(name: LimiterName, optimum: number): string {
  if (name === "leaky, burst 1") return percent(3 / 3.3455);
  return name === "weighted counter" ? percent(19 / 20) : percent(optimum);
}
