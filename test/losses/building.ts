import { Config } from "#src/app/config/config.ts";
import type { HistoryClass } from "#src/engine/sync/history/config.ts";
import type { ReadClass } from "#src/engine/sync/read/config.ts";
import metadata from "#src/simulator/data/metadata.json" with { type: "json" };
import type { SimulatorOptionsInput } from "#src/simulator/options.ts";
import type { SeededRandom } from "../commands/seeded-random.ts";

export interface LossWorld {
  readonly siteIds: readonly number[];
  readonly tags: ReadonlyMap<number, readonly string[]>;
  readonly gateways: ReadonlyMap<number, readonly number[]>;
  readonly simulator: SimulatorOptionsInput;
  readonly source: object;
  readonly read: readonly ReadClass[];
  readonly history: readonly HistoryClass[];
  readonly timeZone: string;
  /** Maximum delay of a sample on its way to the log. */
  readonly lateMs: number;
}

/** Recorded sites with 4 to 23 tags each. */
const SITES = [2, 3, 4, 5, 6, 7, 8, 9, 10, 14, 15];
const MOST_TAGS = 60;

export function lossWorld(seed: number, random: SeededRandom): LossWorld {
  const tags = new Map<number, readonly string[]>();
  const siteCount = 2 + random.below(3);
  while (tags.size < siteCount) {
    const site = random.pick(SITES);
    const siteTags = metadata.tags.filter(({ site_id }) => site_id === site).map(({ id }) => id);
    const otherTagCount = [...tags.values()].flat().length;
    if (!tags.has(site) && otherTagCount + siteTags.length <= MOST_TAGS) tags.set(site, siteTags);
  }
  const siteIds = [...tags.keys()].toSorted((a, b) => a - b);
  const gatewaysOf = (site: number) => metadata.gateways.filter(({ site_id }) => site_id === site).map(({ id }) => id);
  const gateways = new Map(siteIds.map((site) => [site, gatewaysOf(site)]));
  const all = siteIds.flatMap((site) => tags.get(site) ?? []);
  const timeZone = random.pick(["Europe/Oslo", "UTC", "America/New_York"]);
  const often = all.filter((_, index) => index % 3 === 0);
  const read = [
    { name: "often", every: random.pick(["30s", "1m", "2m"]), select: { ids: often } },
    { name: "seldom", every: random.pick(["3m", "5m"]), on_change: random.chance(0.5) },
  ];
  const fine = { name: "fine", resolution: "5m", every: random.pick(["5m", "15m"]) };
  const coarse = { name: "coarse", resolution: "1h", every: random.pick(["30m", "1h"]) };
  const daily = { name: "daily", resolution: "1d", every: "3h", backfill: random.pick(["5d", "12d"]) };
  const history = random.pick([
    [{ ...fine, backfill: random.pick(["3h", "1d"]) }],
    [{ ...coarse, backfill: random.pick(["1d", "4d"]) }],
    [
      { ...fine, backfill: "6h" },
      { ...coarse, backfill: "2d" },
    ],
    [{ ...coarse, backfill: "1d" }, daily],
  ]);
  const lateMinutes = random.pick([0, 0, 10, 40]);
  const source = {
    time_zone: timeZone,
    quota: { polite: random.pick([0.5, 0.5, 1]) },
    schedules: {
      ...{ token: "0 * * * *", sites: "*/5 * * * *", tags: "3-59/10 * * * *", gateways: "*/2 * * * *" },
      ...{ hosts: "7 * * * *", systems: false },
    },
    read,
    history,
  };
  const parsed = Config.parse({
    sources: { main: { base_url: "http://127.0.0.1", token: { env: "TOKEN" }, ...source } },
  }).sources.main;
  if (parsed === undefined) throw new Error("The configuration names no source.");
  return {
    ...{ siteIds, tags, gateways, timeZone, lateMs: lateMinutes * 60_000, source, read: parsed.read },
    history: parsed.history,
    simulator: {
      seed,
      sites: [...siteIds],
      alarms: { recorded: false, out_of_scope_site: random.pick(["empty", "403"]) },
      loops_before: random.pick([0, 1]),
      forbidden: random.pick(["inside", "real"]),
      reads: {
        out_of_scope_tag: random.pick(["403", "403", "403", "404", "422", "omit"]),
        unknown_tag: random.pick(["404", "404", "422", "omit"]),
        offline_delay_ms: random.pick([0, 4_000]),
      },
      history: {
        range_end: random.pick(["exclusive", "inclusive"]),
        no_log: { share: random.pick([0, 0.1, 0.3]), cluster_by_host: random.chance(0.3) },
        ...(random.chance(0.3) ? { log_every_s: 600 } : {}),
        log_start_spread_days: random.pick([0, 0, 90]),
        late_data: { minutes: lateMinutes, share: 0.3 },
        ...(random.chance(0.3) ? { max_values: 2_000, over_max_values: random.pick([500, 504]) } : {}),
      },
      limits: { tag_endpoints: { model: random.pick(["first_hit_window", "sliding_log"]) } },
      request_log: 100_000,
    },
  };
}
