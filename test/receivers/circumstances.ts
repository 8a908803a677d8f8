import type { SeededRandom } from "../commands/seeded-random.ts";

/** What a seed draws before anything happens: which troubles there are, and how the sink is configured for them. */
export interface RequestContext {
  /** The log is offered again, or a stretch of it; a part of it is older than the sink. */
  readonly replays: boolean;
  /** Gateways go away and come back; the alarms behind one are one thing. */
  readonly gateways: boolean;
  /** The sink's filter leaves out that a gateway is back, so the sink has to see it by itself. */
  readonly filtersReturns: boolean;
  /** Many alarms begin at once, and the receiver tells to wait again and again. */
  readonly storms: boolean;
  /** Every request takes so long, in milliseconds; of a large batch the deadline then cuts off the rest. */
  readonly slowMs: number;
  /** Options that every receiver has. */
  readonly options: {
    readonly fold: { readonly gateway: boolean; readonly storm?: StormOptions };
    readonly hold: string;
  };
  readonly holdMs: number;
  /** Events that are offered at once. */
  readonly batch: number;
}

interface StormOptions {
  readonly openings: number;
  readonly within: string;
  readonly over: "site" | "all";
}

export function circumstancesOf(random: SeededRandom): RequestContext {
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

/** In a few words, for whoever looks at a seed that failed. */
export function inWords({ replays, gateways, storms, slowMs, options, holdMs, batch }: RequestContext): string {
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
