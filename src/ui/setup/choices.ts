import { z } from "zod";
import { RESOLUTIONS } from "../../core/model/building.ts";
import type { PlanReport } from "../../engine/sync/plan/report.ts";
import type { SeenBuilding, UnitCount } from "./seen.ts";

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

const Every = z.int().min(3_000).max(DAY_MS);

/** Choices of a person for a building, as set on the setup page. Times in milliseconds. */
export const Choices = z.strictObject({
  /** How old values of each group may become; null where they are not read. */
  every: z.strictObject({
    readings: Every.nullable(),
    meters: Every.nullable(),
    rest: Every.nullable(),
  }),
  /** Null for none. */
  history: z.strictObject({ resolution: z.enum(RESOLUTIONS), backfillDays: z.int().min(0).max(3_650) }).nullable(),
  /** Share of the quota that is used at most. */
  polite: z.number().min(0.05).max(1),
});
export type Choices = z.infer<typeof Choices>;
export type Group = keyof Choices["every"];

/** Units of counters: they only grow, and between two readings nothing is missed. */
const METERS = /^(([kMG]?(Wh|VArh|varh|cal|J))|m3|m³|Sm3|Sm³|Nm3|Nm³|l|L|liter|pulses?|imp|pulser)$/;

/** The tags by what one usually wants of them: measured values, counters, and what has no unit (states, modes). */
function groupOf(unit: string): Group {
  if (unit === "") return "rest";
  return METERS.test(unit) ? "meters" : "readings";
}

export interface UnitGroup {
  readonly group: Group;
  readonly units: readonly UnitCount[];
  readonly tags: number;
}

/** Units beyond these are written no more: a class that names fifty is none that a person reads. */
const MOST_UNITS = 24;

/** The groups that the building has; a group's rare units beyond `MOST_UNITS` go to the rest. */
export function groupsOf({ units }: Pick<SeenBuilding, "units">): readonly UnitGroup[] {
  const groups: Record<Group, UnitCount[]> = { readings: [], meters: [], rest: [] };
  for (const each of units) {
    const own = groups[groupOf(each.unit)];
    (own.length < MOST_UNITS ? own : groups.rest).push(each);
  }
  return (["readings", "meters", "rest"] as const)
    .map((group) => ({ group, units: groups[group], tags: sum(groups[group]) }))
    .filter(({ tags }) => tags > 0);
}

function sum(units: readonly UnitCount[]): number {
  return units.reduce((all, { tags }) => all + tags, 0);
}

/** How old values may become, from the most lively on; each is a step of a slider. */
export const STEPS_MS: readonly number[] = [
  10_000,
  15_000,
  30_000,
  ...[1, 2, 5, 10, 15, 30].map((minutes) => minutes * MINUTE_MS),
  ...[1, 2, 3, 6, 12, 24].map((hours) => hours * HOUR_MS),
];

const FIRST_STEP = STEPS_MS.indexOf(30_000);
const METERS_AT_LEAST_MS = 15 * MINUTE_MS;
/** Target share of the quota; the rest is for backfill, manual requests and growth. */
const SHARE_WISHED = 0.8;

/**
 * The shortest intervals that use at most four fifths of the quota. Values without a unit are read a fourth as often as measured
 * values, counters every quarter of an hour. `planOf` computes the cost.
 */
export function proposedChoices(
  seen: Pick<SeenBuilding, "units" | "token">,
  history: Choices["history"],
  planOf: (wishes: Choices) => PlanReport,
): Choices {
  const groups = new Set(groupsOf(seen).map(({ group }) => group));
  const stepMs = (step: number) => STEPS_MS[Math.min(STEPS_MS.length - 1, step)] ?? DAY_MS;
  const wishesAt = (step: number): Choices => {
    const lively = stepMs(step);
    const slow = stepMs(step + 2);
    return {
      every: {
        readings: groups.has("readings") ? lively : null,
        meters: groups.has("meters") ? Math.max(METERS_AT_LEAST_MS, slow) : null,
        // The only group gets the shortest interval.
        rest: groups.has("rest") ? (groups.size === 1 ? lively : slow) : null,
      },
      history: groups.size === 0 ? null : history,
      polite: 1,
    };
  };
  if (groups.size === 0) return wishesAt(FIRST_STEP);
  // Each step costs less than the one before it; a plan of 30,000 tags takes half a second.
  let least = FIRST_STEP;
  let most = STEPS_MS.length - 1;
  while (least < most) {
    const middle = Math.floor((least + most) / 2);
    if (planOf(wishesAt(middle)).load <= SHARE_WISHED) most = middle;
    else least = middle + 1;
  }
  return wishesAt(least);
}

/** How often finished intervals are fetched: of many tags seldom, which costs fewer requests and not one point. */
export function historyEveryMs(tags: number): number {
  if (tags > 4_000) return DAY_MS;
  return tags > 1_000 ? 6 * HOUR_MS : HOUR_MS;
}
