import { describe, expect, test } from "vitest";
import { simulate } from "./alarm-simulation.ts";

/**
 * Random schedules against the worker's polling: pages that shift, errors in the middle of lists, sites that leave
 * the scope, flapping alarms, restarts and failing commits. Whatever happens, nothing is ended without the service's
 * word, nothing that it still lists stays untold, and nothing is told twice.
 *
 * 500 in CI and 40 elsewhere. `PLENUM_SEED=17` replays one schedule; `PLENUM_SCHEDULES=10000` runs more of them.
 */
const only = process.env.PLENUM_SEED;
const schedules = Number(process.env.PLENUM_SCHEDULES ?? (process.env.CI === "true" ? 500 : 40));
const LOT = 25;

describe("random schedules", () => {
  if (only !== undefined) {
    test(`seed ${only}`, { timeout: 60_000 }, async () => {
      expect(await simulate(Number(only))).toEqual([]);
    });
    return;
  }
  for (let first = 1; first <= schedules; first += LOT) {
    const last = Math.min(schedules, first + LOT - 1);
    test(`seeds ${first} to ${last}`, { timeout: 120_000 }, async () => {
      for (let seed = first; seed <= last; seed += 1) {
        expect(await simulate(seed), `Replay with PLENUM_SEED=${seed}`).toEqual([]);
      }
    });
  }
});
