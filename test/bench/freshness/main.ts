import type { PlannedTag } from "../../sync/planned-tags.ts";
import { checkGoal, percent, printTable } from "../harness.ts";
import {
  type Class,
  computeLoad,
  ELEVEN_CLASSES,
  FOUR_CLASSES,
  GROUP_SIZE,
  LONG_CLASSES,
  loadInSlots,
  minOverload,
  OVERLOAD,
  type Policy,
  scaleClasses,
  simulate,
} from "./simulate.ts";
import { driveWorker } from "./worker.ts";

/** The planner of live reads compared with naive strategies (`npm run bench:freshness`); the same on every machine. */

/** Share of the slots that live reads may use above the bound in whole slots while history wants slots. */
const SLOTS_ABOVE_BOUND = 0.045;
const WORKER_ABOVE_BOUND = 1.03;
/** 400 tags every 60 s, the complete quota. A slot is 3 s, so 63 s are promised; a plain round robin reaches 60 s. */
const FULL_QUOTA: readonly Class[] = [[400, 60]];

function roundRobin(): Policy {
  let nextIndex = 0;
  return (tags) => Array.from({ length: GROUP_SIZE }, () => tags[nextIndex++ % tags.length]?.id ?? "");
}

function cronPerClass(): Policy {
  const queue: string[][] = [];
  const firedAtMs = new Map<number, number>();
  return (tags, nowMs) => {
    for (const [intervalMs, members] of Map.groupBy(tags, (tag: PlannedTag) => tag.intervalMs)) {
      const fired = firedAtMs.get(intervalMs);
      if (fired !== undefined && nowMs - fired < intervalMs) continue;
      firedAtMs.set(intervalMs, nowMs);
      for (let i = 0; i < members.length; i += GROUP_SIZE)
        queue.push(members.slice(i, i + GROUP_SIZE).map(({ id }) => id));
    }
    return queue.shift() ?? [];
  };
}

const ratios = (worst: readonly number[]) => worst.map((ratio) => ratio.toFixed(2).padStart(5)).join(" ");

function compareStrategies(title: string, classes: readonly Class[]): void {
  const load = computeLoad(classes);
  const slots = loadInSlots(classes);
  const isOverload = load > 1;
  const rows = [
    ["bound", percent(Math.min(1, load)), "100.0", "", ratios(classes.map(() => load))],
    ["bound in whole slots", percent(Math.min(1, slots)), "100.0", "", ""],
  ];
  const strategies: readonly (readonly [string, boolean, Policy?])[] = [
    ["planner, slots free", true],
    ...(isOverload ? [] : [["planner, history wants slots", false] as const]),
    ["cron job per class", true, cronPerClass()],
    ["round robin", true, roundRobin()],
  ];
  for (const [name, eager, policy] of strategies) {
    // The first rounds of the planner read hourly tags in bunches; the bounds describe the steady state.
    const warmUpHours = policy === undefined ? 6 : 3;
    const options = { eager, hours: 3, warmUpHours, ...(policy ? { policy } : {}) };
    const { used, fill, late, worst } = simulate(classes, options);
    rows.push([name, percent(used), percent(fill), String(late), ratios(worst)]);
    if (policy !== undefined) continue;
    const checkFigure = (what: string, value: number, bound: "at most" | "at least", goal: number) =>
      checkGoal(`${title}, ${name}: ${what}`, value, bound, goal);
    const highest = Math.max(...worst);
    if (isOverload) {
      // One slot is 30 % of a 10 s interval: at 12 s the other classes only fit at 1.5 of their intervals.
      checkFigure("highest stretch / lowest", highest / Math.min(...worst), "at most", 1.2);
      checkFigure("highest stretch", highest, "at most", minOverload(classes) * 1.001);
      continue;
    }
    checkFigure("late readings", late, "at most", 0);
    if (classes === FOUR_CLASSES && eager) checkFigure("worst age", highest, "at most", load * 1.05);
    if (eager) continue;
    checkFigure("fill of the requests", fill, "at least", 0.99);
    const maxShare = Math.min(slots + SLOTS_ABOVE_BOUND, classes === ELEVEN_CLASSES ? 0.86 : 1);
    checkFigure("share of the slots", used, "at most", maxShare);
  }
  printTable(title, ["", "slots", "fill", "late", "worst age / interval, by class"], rows);
}

async function measureWorker(): Promise<void> {
  const rows: (readonly string[])[] = [];
  for (const [name, classes] of [
    ["51 % demand", scaleClasses(FOUR_CLASSES, 0.575)],
    ["76 % demand", ELEVEN_CLASSES],
    ["89 % demand", FOUR_CLASSES],
    ["94 % demand", LONG_CLASSES],
    ["100 % demand", FULL_QUOTA],
    ["135 % demand", OVERLOAD],
  ] as const) {
    const load = computeLoad(classes);
    // The first round reads hourly tags in bunches; with few free slots it takes a second round to spread them.
    const warmUpMinutes = load > 0.8 && load < 1 ? 125 : 65;
    const { used, live, fill, late, warnings, worst } = await driveWorker(classes, { warmUpMinutes, minutes: 60 });
    const history = used - live;
    const freeShare = Math.max(0, 1 - loadInSlots(classes));
    rows.push([
      ...[name, percent(used), percent(live), percent(fill), String(late), String(warnings)],
      ...[percent(history), percent(freeShare), ratios(worst)],
    ]);
    const checkFigure = (what: string, value: number, bound: "at most" | "at least", goal: number) =>
      checkGoal(`worker, ${name}: ${what}`, value, bound, goal);
    checkFigure("share of the quota", used, "at least", 0.99);
    checkFigure("warnings", warnings, "at most", load < 1 ? 0 : 1);
    checkFigure("warnings", warnings, "at least", load < 1 ? 0 : 1);
    if (classes === FULL_QUOTA) checkFigure("worst age / interval", Math.max(...worst), "at most", 1.05);
    if (classes === ELEVEN_CLASSES) checkFigure("share of live reads", live, "at most", 0.86);
    if (load > 1) checkFigure("stretch", Math.max(...worst), "at most", minOverload(classes) * WORKER_ABOVE_BOUND);
    else {
      checkFigure("late readings", late, "at most", 0);
      checkFigure("share of history", history, "at least", freeShare - SLOTS_ABOVE_BOUND);
    }
  }
  const head = ["", "quota", "live", "fill", "late", "warnings", "history", "free", "worst age / interval, by class"];
  printTable("The worker's live reads, history and quota in virtual time, with a year of history to fetch", head, rows);
}

compareStrategies("89 % demand: 25 tags @10 s, 90 @60 s, 450 @5 min, 1,500 @1 h", FOUR_CLASSES);
compareStrategies("76 % demand: eleven odd classes", ELEVEN_CLASSES);
compareStrategies("135 % demand: 40 @10 s, 130 @60 s, 600 @5 min, 3,000 @1 h", OVERLOAD);
await measureWorker();
