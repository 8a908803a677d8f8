import type { PlannedTag } from "../../sync/planned-tags.ts";
import {
  type Class,
  ELEVEN_CLASSES,
  FOUR_CLASSES,
  LONG_CLASSES,
  leastStretch,
  loadInSlots,
  loadOf,
  OVERLOAD,
  type Policy,
  SIZE,
  scaled,
  simulate,
} from "./simulate.ts";
import { driveWorker } from "./worker.ts";

/**
 * What the freshness planner buys, beside naive strategies; exact, the same on every machine. Ends with exit code 1
 * when a figure falls short of its goal.
 */
/** How many more of the slots than the bound in whole slots the live reads may take while history wants some. */
const SLOTS_ABOVE_BOUND = 0.045;
/** In overload the worker is behind the bound by the time of a reply and by the runs of its jobs. */
const WORKER_ABOVE_BOUND = 1.03;

/** 400 tags every 60 s, the whole quota: a slot is 3 s, so 63 s are promised, and a plain round robin would reach 60. */
const WHOLE: readonly Class[] = [[400, 60]];

const shortfalls: string[] = [];
const demand = (name: string, holds: boolean) => {
  if (!holds) shortfalls.push(name);
};

/** Every tag in turn, whatever its interval. */
function roundRobin(): Policy {
  let next = 0;
  return (tags) => Array.from({ length: SIZE }, () => tags[next++ % tags.length]?.id ?? "");
}

/** A timer per class that queues batches of its own tags; the queue is served in order. */
function cronPerClass(): Policy {
  const queue: string[][] = [];
  const firedAt = new Map<number, number>();
  return (tags, nowMs) => {
    for (const [intervalMs, members] of Map.groupBy(tags, (tag: PlannedTag) => tag.intervalMs)) {
      const fired = firedAt.get(intervalMs);
      if (fired !== undefined && nowMs - fired < intervalMs) continue;
      firedAt.set(intervalMs, nowMs);
      for (let i = 0; i < members.length; i += SIZE) queue.push(members.slice(i, i + SIZE).map(({ id }) => id));
    }
    return queue.shift() ?? [];
  };
}

function show(title: string, classes: readonly Class[], rows: readonly (readonly [string, boolean, Policy?])[]): void {
  console.log(`\n${title}\n`);
  console.log(`${"".padEnd(26)}  slots   fill   late   worst age / interval, by class`);
  const load = loadOf(classes);
  // No plan can use fewer slots without being late, nor make the worst ratio smaller than the load.
  const bound = classes.map(() => load.toFixed(2).padStart(6)).join("");
  console.log(
    `${"bound".padEnd(26)} ${(Math.min(1, load) * 100).toFixed(1).padStart(6)} ${"100.0".padStart(6)} ${"-".padStart(6)}  ${bound}`,
  );
  const slots = loadInSlots(classes);
  const least = load > 1 ? classes.map(() => leastStretch(classes).toFixed(2).padStart(6)).join("") : "";
  console.log(
    `${"bound in whole slots".padEnd(26)} ${(Math.min(1, slots) * 100).toFixed(1).padStart(6)} ${"100.0".padStart(6)} ${"-".padStart(6)}  ${least}`,
  );
  for (const [name, eager, policy] of rows) {
    // The first rounds of the hourly tags bunch what is read; the bounds are those of the steady state.
    const warmUpHours = policy === undefined ? 6 : 3;
    const figures = simulate(classes, { eager, hours: 3, warmUpHours, ...(policy ? { policy } : {}) });
    const percent = (share: number) => `${(share * 100).toFixed(1)}`.padStart(6);
    const worst = figures.worst.map((ratio) => ratio.toFixed(2).padStart(6)).join("");
    console.log(
      `${name.padEnd(26)} ${percent(figures.used)} ${percent(figures.fill)} ${String(figures.late).padStart(6)}  ${worst}`,
    );
    if (policy !== undefined) continue;
    const overload = figures.load > 1;
    const highest = Math.max(...figures.worst);
    if (!overload) demand(`${title}, ${name}: ${figures.late} late`, figures.late === 0);
    if (!overload && !eager) demand(`${title}, ${name}: requests not full`, figures.fill >= 0.99);
    if (classes === FOUR_CLASSES && eager) {
      demand(`${title}: worst age ${highest}, load ${figures.load}`, highest <= figures.load * 1.05);
    }
    if (classes === ELEVEN_CLASSES && !eager) demand(`${title}: ${figures.used} of the slots`, figures.used <= 0.86);
    // One slot is 30 % of a 10 s interval: at 12 s there is room for the others at 1.5 of theirs only.
    if (overload)
      demand(
        `${title}: uneven stretch`,
        highest / Math.min(...figures.worst) <= 1.2 && highest <= leastStretch(classes) * 1.001,
      );
    if (!overload && !eager)
      demand(`${title}, ${name}: ${figures.used} of the slots`, figures.used <= slots + SLOTS_ABOVE_BOUND);
  }
}

const ours = [
  ["ours, slots free", true],
  ["ours, history wants slots", false],
] as const;
show("89 % demand: 25 tags @10 s, 90 @60 s, 450 @5 min, 1,500 @1 h", FOUR_CLASSES, [
  ...ours,
  ["cron job per class", true, cronPerClass()],
  ["round robin", true, roundRobin()],
]);
show("76 % demand: eleven odd classes", ELEVEN_CLASSES, [
  ...ours,
  ["cron job per class", true, cronPerClass()],
  ["round robin", true, roundRobin()],
]);
show("135 % demand: 40 @10 s, 130 @60 s, 600 @5 min, 3,000 @1 h (bound: 1.35)", OVERLOAD, [
  ["ours, slots free", true],
  ["cron job per class", true, cronPerClass()],
  ["round robin", true, roundRobin()],
]);

console.log(
  "\nThe worker itself: its live reads, history and quota in virtual time, a year of history wanted besides\n",
);
console.log(`${"".padEnd(26)}  quota   live   fill   late  told  history   free   worst age / interval, by class`);
for (const [name, classes] of [
  ["51 % demand", scaled(FOUR_CLASSES, 0.575)],
  ["76 % demand", ELEVEN_CLASSES],
  ["89 % demand", FOUR_CLASSES],
  ["94 % demand", LONG_CLASSES],
  ["100 % demand", WHOLE],
  ["135 % demand", OVERLOAD],
] as const) {
  const figures = await driveWorker(classes, {
    // The first round bunches the hourly tags: where little is free it takes a second until they lie apart.
    warmUpMinutes: loadOf(classes) > 0.8 && loadOf(classes) < 1 ? 125 : 65,
    minutes: 60,
  });
  const percent = (share: number) => `${(share * 100).toFixed(1)}`.padStart(6);
  const worst = figures.worst.map((ratio) => ratio.toFixed(2).padStart(6)).join("");
  const history = figures.used - figures.live;
  // What is left when each tag is read after the most whole slots that its interval allows.
  const free = Math.max(0, 1 - loadInSlots(classes));
  console.log(
    `${name.padEnd(26)} ${percent(figures.used)} ${percent(figures.live)} ${percent(figures.fill)} ${String(figures.late).padStart(6)} ${String(figures.told).padStart(5)}   ${percent(history)} ${percent(free)}  ${worst}`,
  );
  const wishesFit = loadOf(classes) <= 1;
  demand(`${name}, the worker: ${figures.used} of the quota`, figures.used >= 0.99);
  demand(`${name}, the worker: told ${figures.told} times`, figures.told === (loadOf(classes) < 1 ? 0 : 1));
  if (classes === WHOLE)
    demand(`${name}, the worker: ${figures.worst.join()} of the interval`, Math.max(...figures.worst) <= 1.05);
  if (wishesFit) {
    demand(`${name}, the worker: ${figures.late} late`, figures.late === 0);
    demand(`${name}, the worker: ${history} for history`, history >= free - SLOTS_ABOVE_BOUND);
  } else {
    const most = Math.max(...figures.worst);
    demand(`${name}, the worker: stretched to ${most}`, most <= leastStretch(classes) * WORKER_ABOVE_BOUND);
  }
  if (classes === ELEVEN_CLASSES) demand(`${name}, the worker: ${figures.live} for live reads`, figures.live <= 0.86);
}

for (const shortfall of shortfalls) console.log(`\nFALLS SHORT: ${shortfall}`);
process.exitCode = shortfalls.length > 0 ? 1 : 0;
