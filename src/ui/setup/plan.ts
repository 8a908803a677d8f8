import type { Config } from "../../app/config/config.ts";
import { durationText } from "../../core/values/duration.ts";
import { factsFromTags, type PlanSettings } from "../../engine/sync/facts-for-plan.ts";
import { type PlanReport, planReport } from "../../engine/sync/plan/report.ts";
import { english, type Message, message } from "./messages.ts";
import { type SeenBuilding, tagsForPlan } from "./seen.ts";

/** Plan of a configuration's only source for a building. */
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

/** One sentence, e.g. that 62 % of the quota (20 requests a minute) is used. */
export const shareText = (plan: PlanReport): string => english(shareSaid(plan));

export function shareSaid({ load, quota, lanes, fits, classes }: PlanReport): Message {
  if (classes.length === 0) return message("No tag is read; alarms are followed.");
  const count = Number(quota.perMinute.toFixed(1));
  const used = lanes.filter(({ lane }) => lane === "live" || lane === "history");
  const share = used.reduce((sum, each) => sum + each.share, 0);
  return fits
    ? message("These wishes take {share} of the quota ({count} requests a minute).", {
        share: percent(share),
        count,
      })
    : message(
        "These wishes need {share} of the quota ({count} requests a minute), so values become older than wished.",
        { share: percent(load), count },
      );
}

/** Expected result of each choice, one line each. */
export function promises({ classes, history, backfill }: PlanReport): readonly Message[] {
  return [
    ...classes.map(({ name, tags, promisedSeconds, stretch }) => {
      const values = { name, tags, age: durationText(promisedSeconds) };
      return stretch > 1
        ? message("{name}: {tags} tags, at most {age} old, more than wished", values)
        : message("{name}: {tags} tags, at most {age} old", values);
    }),
    ...history.map(({ name, tags, resolution }) => {
      if (backfill === null) return message("history {name}: {tags} tags at {resolution}", { name, tags, resolution });
      const minutes = backfill.requestsLeft / backfill.requestsPerMinute;
      return message("history {name}: {tags} tags at {resolution}, its past fetched in {time}", {
        ...{ name, tags, resolution },
        time: durationText(Math.ceil(minutes) * 60),
      });
    }),
  ];
}

function percent(share: number): string {
  return `${Math.max(share > 0 ? 1 : 0, Math.round(share * 100))} %`;
}
