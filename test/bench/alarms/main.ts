import { costOf } from "./cost.ts";
import { type StormOptions, storm } from "./storm.ts";

/**
 * What following many alarms costs, and how soon a storm of them is told (`npm run bench:alarms`). The costs are of
 * the processor and so of this machine; the storm is in virtual time and the same on every machine. Ends with exit
 * code 1 when a figure falls short of its goal.
 */
const GOALS = {
  /** Of the processor, for a poll of 4,000 alarms, each list read twice. */
  steadyMsPer1000: 100,
  heldBytesPerAlarm: 3_000,
  /** How much more an alarm of 4,000 may cost than one of 1,000. */
  growth: 1.3,
  p95Ms: 60_000,
} as const;

const shortfalls: string[] = [];
const demand = (name: string, holds: boolean) => {
  if (!holds) shortfalls.push(name);
};
const line = (...cells: readonly string[]) => console.log(cells.map((cell) => cell.padStart(13)).join(""));
const ms = (value: number) => `${value.toFixed(0)} ms`;
const seconds = (value: number) => `${(value / 1000).toFixed(0)} s`;

console.log("A poll of active alarms, one site, pages of 500; several pages are read twice\n");
line("alarms", "nothing new", "per 1,000", "all new", "held", "per alarm");
await costOf(500); // The first one compiles.
const costs = [];
for (const alarms of [100, 250, 500, 1_000, 2_000, 3_000, 4_000]) {
  const cost = await costOf(alarms);
  costs.push(cost);
  line(
    String(alarms),
    ms(cost.steadyMs),
    ms((cost.steadyMs / alarms) * 1000),
    ms(cost.firstMs),
    `${(cost.heldBytes / 1e6).toFixed(1)} MB`,
    `${(cost.heldBytes / alarms / 1000).toFixed(1)} kB`,
  );
}
const few = costs.find((cost) => cost.alarms === 1_000);
const many = costs.at(-1);
if (few === undefined || many === undefined) throw new Error("nothing was measured");
demand(
  `a poll takes more than ${GOALS.steadyMsPer1000} ms per 1,000 alarms`,
  (many.steadyMs / many.alarms) * 1000 <= GOALS.steadyMsPer1000,
);
demand(
  `an alarm takes more than ${GOALS.heldBytesPerAlarm} bytes`,
  many.heldBytes / many.alarms <= GOALS.heldBytesPerAlarm,
);
demand(
  "time grows faster than the number of alarms",
  many.steadyMs / many.alarms <= GOALS.growth * (few.steadyMs / few.alarms),
);
demand(
  "memory grows faster than the number of alarms",
  many.heldBytes / many.alarms <= GOALS.growth * (few.heldBytes / few.alarms),
);

console.log("\nA storm: 2,000 active alarms, 200 changes a minute for 20 minutes, 30 list requests a minute\n");
line("sites", "changes", "untold", "> 2 polls", "median", "p95", "longest", "requests/min", "brief", "brief until");
const base: Omit<StormOptions, "sites" | "sweepEveryMinutes"> = {
  active: 2_000,
  changesPerMinute: 200,
  minutes: 20,
};
for (const [sites, sweepEveryMinutes] of [
  [[3], 10],
  [[2, 3, 4], 10],
  [[2, 3, 4], 2],
] as const) {
  const figures = await storm({ ...base, sites, sweepEveryMinutes });
  line(
    String(sites.length),
    String(figures.changes),
    String(figures.untold),
    String(figures.beyondTwoPolls),
    seconds(figures.medianMs),
    seconds(figures.p95Ms),
    seconds(figures.longestMs),
    figures.requestsPerMinute.toFixed(1),
    String(figures.brief),
    seconds(figures.longestBriefMs),
  );
  const name = `${sites.length} sites`;
  demand(`${name}: ${figures.untold} changes were never told`, figures.untold === 0);
  demand(`${name}: ${figures.beyondTwoPolls} took more than two polls`, figures.beyondTwoPolls === 0);
  demand(`${name}: 95 % after ${seconds(figures.p95Ms)}`, figures.p95Ms <= GOALS.p95Ms);
  demand(
    `${name}: a brief alarm after ${seconds(figures.longestBriefMs)}`,
    figures.longestBriefMs <= (sweepEveryMinutes + 1) * 60_000,
  );
}
console.log("\nBrief alarms came and went within two polls: only the sweep over resolved alarms can find them.");

for (const shortfall of shortfalls) console.log(`\nFALLS SHORT: ${shortfall}`);
process.exitCode = shortfalls.length > 0 ? 1 : 0;
