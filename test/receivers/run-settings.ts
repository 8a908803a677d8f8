import type { SeededRandom } from "../commands/seeded-random.ts";

export interface RunSettings {
  readonly replays: boolean;
  readonly gateways: boolean;
  readonly filtersReturns: boolean;
  readonly storms: boolean;
  readonly slowMs: number;
  readonly options: {
    readonly fold: { readonly gateway: boolean; readonly storm?: StormOptions };
    readonly hold: string;
  };
  readonly holdMs: number;
  readonly batch: number;
}

interface StormOptions {
  readonly openings: number;
  readonly within: string;
  readonly over: "site" | "all";
}

export function drawRunSettings(random: SeededRandom): RunSettings {
  const storms = random.chance(0.5);
  const holdMs = random.pick([0, 0, 60_000]);
  const storm: StormOptions = {
    openings: 2 + random.below(8),
    within: random.pick(["1m", "5m"]),
    over: random.pick(["site", "all"]),
  };
  return {
    replays: random.chance(0.5),
    gateways: random.chance(0.5),
    filtersReturns: random.chance(0.3),
    storms,
    slowMs: storms ? random.pick([0, 1_000, 7_000]) : 0,
    options: {
      fold: { gateway: random.chance(0.8), ...(storms && random.chance(0.8) ? { storm } : {}) },
      hold: `${holdMs / 1_000}s`,
    },
    holdMs,
    batch: random.pick([3, 20, 500]),
  };
}

export function describeSettings({ replays, gateways, storms, slowMs, options, holdMs, batch }: RunSettings): string {
  const { gateway, storm } = options.fold;
  return [
    replays ? "replays" : null,
    gateways ? `gateways${gateway ? ", folded" : ""}` : null,
    storms ? "storms" : null,
    storm === undefined ? null : `folded over ${storm.over} from ${storm.openings} within ${storm.within} on`,
    slowMs > 0 ? `${slowMs} ms a request` : null,
    holdMs > 0 ? "held" : null,
    `batches of ${batch}`,
  ]
    .filter((word) => word !== null)
    .join(", ");
}
