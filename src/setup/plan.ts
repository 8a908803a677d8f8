import type { Config } from "../config/config.ts";
import { spanText } from "../duration.ts";
import { factsFromTags, type PlanSettings } from "../sync/facts-for-plan.ts";
import { type PlanReport, planReport } from "../sync/plan/report.ts";
import { type SeenBuilding, tagsForPlan } from "./seen.ts";

/** What the only source of a configuration costs on a building as it was seen. */
export function planOf(
  config: Config,
  seen: SeenBuilding,
  nowMs: number,
  settingsOf: (name: string, entry: Config["sources"][string], state: Config["state"]) => PlanSettings,
): PlanReport {
  const [[name, entry] = []] = Object.entries(config.sources);
  if (name === undefined || entry === undefined) throw new Error("a configuration without a source");
  const settings = settingsOf(name, entry, config.state);
  return planReport(factsFromTags(settings, { sites: seen.sites.length, tags: tagsForPlan(seen) }, nowMs));
}

/** `These wishes take 62 % of the quota (20 requests a minute).` */
export function shareText({ load, quota, lanes, fits }: PlanReport): string {
  const perMinute = `${Number(quota.perMinute.toFixed(1))} requests a minute`;
  const used = lanes.filter(({ lane }) => lane === "live" || lane === "history");
  const share = used.reduce((sum, each) => sum + each.share, 0);
  return fits
    ? `These wishes take ${percent(share)} of the quota (${perMinute}).`
    : `These wishes need ${percent(load)} of the quota (${perMinute}), so values become older than wished.`;
}

/** What becomes of each wish, in a line each. */
export function promiseLines({ classes, history, backfill }: PlanReport): readonly string[] {
  return [
    ...classes.map(({ name, tags, promisedSeconds, stretch }) => {
      const late = stretch > 1 ? ", more than wished" : "";
      return `${name}: ${tags} tags, at most ${spanText(promisedSeconds)} old${late}`;
    }),
    ...history.map(({ name, tags, resolution }) => {
      const minutes = backfill === null ? 0 : backfill.requestsLeft / backfill.requestsPerMinute;
      const done = backfill === null ? "" : `, its past fetched in ${spanText(Math.ceil(minutes) * 60)}`;
      return `history ${name}: ${tags} tags at ${resolution}${done}`;
    }),
  ];
}

function percent(share: number): string {
  return `${Math.max(share > 0 ? 1 : 0, Math.round(share * 100))} %`;
}
