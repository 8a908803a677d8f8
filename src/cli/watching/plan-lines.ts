import { durationText } from "../../core/values/duration.ts";
import type { PlanReport } from "../../engine/sync/plan/report.ts";

/** The plan of one source for a person. */
export function planLines(plan: PlanReport): readonly string[] {
  const { quota, backfill } = plan;
  return [
    `source ${plan.source}: ${plan.sites} sites, ${plan.tags} tags${notRead(plan)}, ${plan.basis === "state" ? "as the worker's state knows them" : "as the service lists them"}`,
    "",
    ...table(
      ["requests", "a minute", "of the quota"],
      [
        ...plan.lanes.map(({ lane, requestsPerMinute, share }) => [
          lane === "spare" ? "spare" : lane,
          requestsPerMinute.toFixed(2),
          `${(share * 100).toFixed(1)} %`,
        ]),
        ["all", quota.perMinute.toFixed(2), politeText(plan)],
      ],
    ),
    "",
    ...(plan.classes.length === 0
      ? ["No live reads: `read` is empty."]
      : table(
          ["class", "tags", "wished", "promised", "at best", "measured", "requests a minute"],
          plan.classes.map((each) => [
            each.name,
            String(each.tags),
            durationText(each.wishedSeconds),
            durationText(each.promisedSeconds) + (each.stretch > 1 ? ` (×${each.stretch.toFixed(2)})` : ""),
            durationText(each.atBestSeconds),
            each.measuredSeconds === null ? "–" : durationText(each.measuredSeconds),
            each.requestsPerMinute.toFixed(2),
          ]),
        )),
    ...(plan.classes.length === 0
      ? []
      : [`Reading every one of them once takes ${durationText(plan.fullSweepSeconds)}.`]),
    ...(plan.history.length === 0
      ? []
      : [
          "",
          ...table(
            ["history", "tags", "resolution", "requests a minute", "without a log"],
            plan.history.map((each) => [
              each.name,
              String(each.tags),
              `${each.resolution}${each.total ? " total" : ""}`,
              each.requestsPerMinute.toFixed(3),
              String(each.withoutLog),
            ]),
          ),
        ]),
    ...(plan.learning === null
      ? []
      : [
          `Until it is known which of ${plan.learning.tags} tags have a log, learning it takes what live values leave over, at least ${plan.learning.requestsPerMinute.toFixed(1)} a minute.`,
        ]),
    ...(backfill === null
      ? []
      : [
          backfill.doneAt === null
            ? `The backfill is paused with ${backfill.requestsLeft} requests left; \`plenum backfill --resume\` goes on.`
            : `The backfill takes ${backfill.requestsLeft} requests, ${backfill.requestsPerMinute.toFixed(1)} a minute, and is done at ${minuteOf(backfill.doneAt)}.`,
          ...largerReplies(plan),
        ]),
    "",
    ...verdict(plan),
    ...(plan.alarms === undefined ? [] : [plan.alarms]),
    "",
  ];
}

function verdict({ fits, load, changes, classes }: PlanReport): readonly string[] {
  const needs = `${(load * 100).toFixed(0)} % of what can be planned with`;
  if (fits) return [`It fits: the wishes need ${needs}.${measured(classes) || BY_PLAN}`];
  const [cheapest, ...others] = changes;
  return [
    `It does not fit: the wishes need ${needs}.${measured(classes)}`,
    ...(cheapest === undefined ? [] : [`The cheapest change: ${cheapest.text}`, `    ${cheapest.yaml}`]),
    ...others.slice(0, 2).flatMap(({ text, yaml }) => [`Or: ${text}`, `    ${yaml}`]),
  ];
}

const BY_PLAN = " By this plan no value becomes older than wished.";

/** What was measured is said beside what is planned, whichever of the two is the better news. */
function measured(classes: PlanReport["classes"]): string {
  const known = classes.filter(({ measuredSeconds }) => measuredSeconds !== null);
  const older = known.filter(({ olderThanWished }) => olderThanWished);
  if (known.length === 0) return "";
  if (older.length === 0) return " No value that was measured was older than wished.";
  const each = older.map(
    ({ name, measuredSeconds, wishedSeconds }) =>
      `${name} ${durationText(measuredSeconds ?? 0)} instead of ${durationText(wishedSeconds)}`,
  );
  return ` Measured, values became older than wished: ${each.join(", ")}.`;
}

/** How much the service puts into a reply is learned while it is used: until then the plan counts with a day. */
function largerReplies({ backfill }: PlanReport): readonly string[] {
  if (backfill?.atBestDoneAt == null || backfill.requestsAtBest > backfill.requestsLeft * 0.9) return [];
  const { requestsAtBest, atBestDoneAt } = backfill;
  return [
    `If the service bears larger replies than it has shown, it takes ${requestsAtBest} and is done at ${minuteOf(atBestDoneAt)}.`,
  ];
}

const minuteOf = (time: string): string => `${time.slice(0, 16)}Z`;

function notRead({ tagsNotRead, classes }: PlanReport): string {
  return tagsNotRead === 0 || classes.length === 0 ? "" : ` (${tagsNotRead} in no class of live reads)`;
}

function politeText({ quota }: PlanReport): string {
  if (quota.polls >= quota.perMinute) return "100.0 %";
  return `polls get ${quota.polls.toFixed(1)}`;
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): readonly string[] {
  const widths = head.map((title, i) => Math.max(title.length, ...rows.map((row) => row[i]?.length ?? 0)));
  const line = (cells: readonly string[]) =>
    `  ${cells.map((cell, i) => (i === 0 ? cell.padEnd(widths[i] ?? 0) : cell.padStart(widths[i] ?? 0))).join("  ")}`;
  return [line(head), ...rows.map(line)];
}
