import { type Scenario, type SimulationResult, simulate } from "./run.ts";

export interface Sum {
  readonly utilisation: number;
  readonly refused: number;
  readonly refusedPerHour: number;
  readonly kills: number;
  readonly waitsMs: readonly number[];
  readonly outcomes: readonly SimulationResult[];
}

export async function simulateSeeds(scenario: Omit<Scenario, "seed">, seeds: readonly number[]): Promise<Sum> {
  const outcomes: SimulationResult[] = [];
  for (const seed of seeds) outcomes.push(await simulate({ ...scenario, seed }));
  const addOutcomes = (value: (outcome: SimulationResult) => number) =>
    outcomes.reduce((sum, each) => sum + value(each), 0);
  return {
    utilisation: addOutcomes((each) => each.utilisation) / outcomes.length,
    refused: addOutcomes((each) => each.refused),
    refusedPerHour: addOutcomes((each) => each.refusedPerHour) / outcomes.length,
    kills: addOutcomes((each) => each.kills),
    waitsMs: outcomes.flatMap((each) => each.urgentWaitsMs),
    outcomes,
  };
}

export function quantile(values: readonly number[], share: number): number {
  const sortedValues = [...values].sort((a, b) => a - b);
  return sortedValues[Math.min(sortedValues.length - 1, Math.floor(sortedValues.length * share))] ?? Number.NaN;
}
