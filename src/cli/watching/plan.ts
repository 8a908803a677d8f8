import type { Command } from "commander";
import { planSettings } from "../../app/build-sync.ts";
import type { Config, SourceEntry } from "../../app/config/config.ts";
import { refuseUnverifiedTls } from "../../core/http/verified-tls.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { durationText } from "../../core/values/duration.ts";
import type { StateConfig } from "../../engine/store/config.ts";
import { factsFromLists, factsFromState } from "../../engine/sync/facts-for-plan.ts";
import { type PlanReport, planReport } from "../../engine/sync/plan/report.ts";
import { type ListProgress, listingText } from "../../engine/sync/seen-building.ts";
import { requestPlan } from "../../ui/operator/work.ts";
import { type CliContext, chooseSource } from "../shell/context.ts";
import { findWorkerFor } from "../shell/find-worker.ts";
import { withStandaloneSource } from "../shell/standalone.ts";
import { readStateIfAny } from "../shell/state-access.ts";
import { tableLines } from "../shell/terminal.ts";

interface PlanOptions {
  readonly source?: string;
  readonly ask?: boolean;
}

/** Plans the use of the quota. Needs no running worker, sends no tag request and writes nothing. */
export function define(command: Command, context: CliContext): void {
  command
    .option("--source <name>", "only this source")
    .option("--ask", "list sites and tags at the service, even where the state knows them")
    .addHelpText(
      "after",
      "\nLists cost nothing of the quota. Change the configuration and plan again: nothing has to run for it." +
        "\n\nExample:\n  plenum plan --json",
    )
    .action(async (options: PlanOptions) => {
      const terminal = context.terminal();
      const config = context.config();
      const { sources, state } = config;
      const chosen = options.source === undefined ? Object.entries(sources) : [chooseSource(config, options.source)];
      const reports = await terminal.progress("Planning", async (update) => {
        const made: PlanReport[] = [];
        for (const [name, entry] of chosen) {
          const known = options.ask === true ? null : await fromState(context, config, name, entry);
          made.push(known ?? (await fromLists(context, state, name, entry, update)));
        }
        return made;
      });
      terminal.object(reports, reports.flatMap(planLines));
    });
}

/**
 * Plans from the state and the measurements of the running worker. Null without an inventory. Uses the configuration
 * file, even if the worker runs with another one.
 */
async function fromState(
  context: CliContext,
  config: Config,
  name: string,
  entry: SourceEntry,
): Promise<PlanReport | null> {
  const { state } = config;
  const which = { config, source: name };
  return readStateIfAny(which, async (store) => {
    const found = await findWorkerFor(which, context.signal);
    if (found.kind === "silent") context.terminal().say(`${found.trouble.message} What it measures is left out.`);
    const running =
      found.kind === "open" ? await requestPlan(found.door, name, context.signal).catch(() => null) : null;
    const freshness = (running?.classes ?? []).map((each) => ({
      name: each.name,
      tags: each.tags,
      promisedMs: each.promisedSeconds * 1_000,
      achievedMs: each.measuredSeconds === null ? null : each.measuredSeconds * 1_000,
    }));
    const { quota } = entry;
    const usual = Math.max(1, quota.requests_per_minute * quota.polite - quota.reserve_for_writes);
    const live = running && {
      // Count what refusals and other clients take now, and a lower quota in the file.
      quota: { polls: Math.min(usual, running.quota.polls), shared: running.quota.shared },
      freshness,
    };
    const facts = await factsFromState(store, planSettings(name, entry, state), systemClock, live);
    return facts.tags === 0 ? null : planReport(facts);
  });
}

async function fromLists(
  context: CliContext,
  state: StateConfig,
  name: string,
  entry: SourceEntry,
  update: (text: string) => void,
): Promise<PlanReport> {
  refuseUnverifiedTls();
  const settings = planSettings(name, entry, state);
  const told = (progress: ListProgress) => update(listingText(progress, entry.quota));
  return withStandaloneSource(name, entry, process.env, async (source) =>
    planReport(await factsFromLists(source, settings, systemClock, context.signal, told)),
  );
}

/** Prints the plan of one source. */
export function planLines(plan: PlanReport): readonly string[] {
  const { quota, backfill } = plan;
  return [
    `source ${plan.source}: ${plan.sites} sites, ${plan.tags} tags${unreadText(plan)}, ${plan.basis === "state" ? "from the worker's state" : "as the service lists them"}`,
    "",
    ...table(
      ["requests", "a minute", "of the quota"],
      [
        ...plan.lanes.map(({ lane, requestsPerMinute, share }) => [
          lane === "spare" ? "spare" : lane,
          requestsPerMinute.toFixed(2),
          `${(share * 100).toFixed(1)} %`,
        ]),
        ["all", quota.perMinute.toFixed(2), pollsText(plan)],
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

/** Compares the measured ages with the targets. */
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

/** Alternative end of the backfill if the service accepts larger responses than seen so far. */
function largerReplies({ backfill }: PlanReport): readonly string[] {
  if (backfill?.atBestDoneAt == null || backfill.requestsAtBest > backfill.requestsLeft * 0.9) return [];
  const { requestsAtBest, atBestDoneAt } = backfill;
  return [
    `If the service bears larger replies than it has shown, it takes ${requestsAtBest} and is done at ${minuteOf(atBestDoneAt)}.`,
  ];
}

const minuteOf = (time: string): string => `${time.slice(0, 16)}Z`;

function unreadText({ tagsNotRead, classes }: PlanReport): string {
  return tagsNotRead === 0 || classes.length === 0 ? "" : ` (${tagsNotRead} in no class of live reads)`;
}

function pollsText({ quota }: PlanReport): string {
  if (quota.polls >= quota.perMinute) return "100.0 %";
  return `polls get ${quota.polls.toFixed(1)}`;
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): readonly string[] {
  return tableLines(head, rows, "right").map((line) => `  ${line}`);
}
