import { z } from "zod";
import type { Config } from "../../app/config/config.ts";
import { RESOLUTIONS } from "../../core/model/building.ts";
import { formatSeconds } from "../../core/values/duration.ts";
import { type PlanReport, reportPlan } from "../../engine/sync/plan/report.ts";
import { type PlanSettings, planFactsFromTags } from "../../engine/sync/quota-plan-inputs.ts";
import { type BuildingSummary, tagsForPlan, type UnitTagCount } from "./building-inspection.ts";

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const GroupReadInterval = z.int().min(3_000).max(DAY_MS).nullable();

/** Choices of a person on the setup page. Times are in milliseconds. */
export const SetupChoices = z.strictObject({
  every: z.strictObject({ readings: GroupReadInterval, meters: GroupReadInterval, rest: GroupReadInterval }),
  history: z.strictObject({ resolution: z.enum(RESOLUTIONS), backfillDays: z.int().min(0).max(3_650) }).nullable(),
  polite: z.number().min(0.05).max(1),
});
export type SetupChoices = z.infer<typeof SetupChoices>;

/** Units of meters. Rare readings of meters lose nothing, because their counters only grow. */
const METER_UNITS = /^(([kMG]?(Wh|VArh|varh|cal|J))|m3|m³|Sm3|Sm³|Nm3|Nm³|l|L|liter|pulses?|imp|pulser)$/;

export type UnitGroup = ReturnType<typeof unitGroups>[number];

const MAX_UNITS_PER_CLASS = 24;

/** Groups the units of a building into readings, meters and `rest` (no unit, and units beyond 24 per group). */
export function unitGroups({ units }: Pick<BuildingSummary, "units">) {
  const groups: Record<keyof SetupChoices["every"], UnitTagCount[]> = { readings: [], meters: [], rest: [] };
  for (const unitCount of units) {
    const group =
      unitCount.unit === "" ? groups.rest : groups[METER_UNITS.test(unitCount.unit) ? "meters" : "readings"];
    (group.length < MAX_UNITS_PER_CLASS ? group : groups.rest).push(unitCount);
  }
  return (["readings", "meters", "rest"] as const)
    .map((group) => ({ group, units: groups[group], tags: groups[group].reduce((sum, { tags }) => sum + tags, 0) }))
    .filter(({ tags }) => tags > 0);
}

export const INTERVALS_MS: readonly number[] = [
  ...[10_000, 15_000, 30_000],
  ...[1, 2, 5, 10, 15, 30].map((minutes) => minutes * MINUTE_MS),
  ...[1, 2, 3, 6, 12, 24].map((hours) => hours * HOUR_MS),
];

const SHORTEST_PROPOSED_STEP = INTERVALS_MS.indexOf(30_000);
const MIN_METER_INTERVAL_MS = 15 * MINUTE_MS;
/** Share of the quota that proposed intervals may use; the rest is for backfill, manual requests and growth. */
const TARGET_QUOTA_SHARE = 0.8;

/** Returns the shortest intervals that use at most 80 % of the quota, as calculated by `computePlan`. */
export function proposeChoices(
  building: Pick<BuildingSummary, "units" | "token">,
  history: SetupChoices["history"],
  computePlan: (choices: SetupChoices) => PlanReport,
): SetupChoices {
  const presentGroups = new Set(unitGroups(building).map(({ group }) => group));
  const intervalOfStepMs = (step: number) => INTERVALS_MS[step] ?? DAY_MS;
  const choicesForIntervalStep = (step: number): SetupChoices => ({
    every: {
      readings: presentGroups.has("readings") ? intervalOfStepMs(step) : null,
      meters: presentGroups.has("meters") ? Math.max(MIN_METER_INTERVAL_MS, intervalOfStepMs(step + 2)) : null,
      // Read `rest` at the shortest interval if the building has no other group.
      rest: presentGroups.has("rest") ? intervalOfStepMs(presentGroups.size === 1 ? step : step + 2) : null,
    },
    history: presentGroups.size === 0 ? null : history,
    polite: 1,
  });
  if (presentGroups.size === 0) return choicesForIntervalStep(SHORTEST_PROPOSED_STEP);
  // A binary search computes few plans: a plan of 30,000 tags takes half a second.
  let lowStep = SHORTEST_PROPOSED_STEP;
  let highStep = INTERVALS_MS.length - 1;
  while (lowStep < highStep) {
    const middleStep = Math.floor((lowStep + highStep) / 2);
    if (computePlan(choicesForIntervalStep(middleStep)).load <= TARGET_QUOTA_SHARE) highStep = middleStep;
    else lowStep = middleStep + 1;
  }
  return choicesForIntervalStep(lowStep);
}

/** Chooses the interval of history requests. A longer interval needs fewer requests and loses no values. */
export function historyPollMs(tagCount: number): number {
  if (tagCount > 4_000) return DAY_MS;
  return tagCount > 1_000 ? 6 * HOUR_MS : HOUR_MS;
}

export function planForBuilding(
  config: Config,
  building: BuildingSummary,
  nowMs: number,
  buildPlanSettings: (name: string, sourceConfig: Config["sources"][string], state: Config["state"]) => PlanSettings,
): PlanReport {
  const [[name, sourceConfig] = []] = Object.entries(config.sources);
  if (name === undefined || sourceConfig === undefined) throw new Error("a configuration without a source");
  const planSettings = buildPlanSettings(name, sourceConfig, config.state);
  return reportPlan(
    planFactsFromTags(planSettings, { sites: building.sites.length, tags: tagsForPlan(building) }, nowMs),
  );
}

export function quotaUseText({ load, quota, lanes, fits, classes }: PlanReport): string {
  if (classes.length === 0) return "No tag is read; alarms are followed.";
  const usedQuotaLanes = lanes.filter(({ lane }) => lane === "live" || lane === "history");
  const share = percentText(fits ? usedQuotaLanes.reduce((sum, lane) => sum + lane.share, 0) : load);
  const quotaText = `${share} of the quota (${Number(quota.perMinute.toFixed(1))} requests a minute)`;
  return fits
    ? `These intervals take ${quotaText}.`
    : `These intervals need ${quotaText}, so values become older than configured.`;
}

export function planLines({ classes, history, backfill }: PlanReport): readonly string[] {
  const rows = classes.reduce((sum, { rowsPerDay }) => sum + rowsPerDay, 0);
  return [
    ...classes.map(({ name, tags, promisedSeconds, stretch }) => {
      const ageText = `${name}: ${tags} tags, a value every ${formatSeconds(promisedSeconds)}`;
      return stretch > 1 ? `${ageText}, less often than configured` : ageText;
    }),
    ...(classes.length === 0 ? [] : [`A database or data lake stores ${rows} rows of values a day`]),
    ...history.map(({ name, tags, resolution }) => {
      const historyText = `history ${name}: ${tags} tags at ${resolution}`;
      if (backfill === null) return historyText;
      const minutes = Math.ceil(backfill.requestsLeft / backfill.requestsPerMinute);
      return `${historyText}, its past fetched in ${formatSeconds(minutes * 60)}`;
    }),
  ];
}

const percentText = (share: number): string => `${Math.max(share > 0 ? 1 : 0, Math.round(share * 100))} %`;
