import type { Command } from "commander";
import { buildPlanSettings } from "../../app/build-sync.ts";
import type { Config, SourceConfigEntry } from "../../app/config/config.ts";
import { refuseUnverifiedTls } from "../../core/http/verified-tls.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { formatSeconds } from "../../core/values/duration.ts";
import type { StateConfig } from "../../engine/store/state-config.ts";
import { type PlanReport, reportPlan } from "../../engine/sync/plan/report.ts";
import { loadPlanFacts, planFactsFromLists } from "../../engine/sync/quota-plan-inputs.ts";
import { describeListProgress, type TagListProgress } from "../../engine/sync/visible-building.ts";
import { requestSourcePlan } from "../../ui/operator/control-socket-client.ts";
import { formatUtcMinute } from "../past/backfill-command.ts";
import { type CliContext, chooseSource } from "../shell/command-context.ts";
import { findWorkerOfConfig } from "../shell/find-worker.ts";
import { readStateIfAny } from "../shell/open-worker-state.ts";
import { useStandaloneSource } from "../shell/source-and-sinks-without-worker.ts";
import { formatTextTable, omitMissingLines } from "../shell/terminal-output.ts";

export function defineCommand(command: Command, context: CliContext): void {
  command
    .option("--source <name>", "only this source")
    .option("--ask", "list sites and tags at the service, even where the state knows them")
    .addHelpText(
      "after",
      "\nLists cost nothing of the quota. Change the configuration and plan again: nothing has to run for it." +
        "\n\nExample:\n  plenum plan --json",
    )
    .action(async (options: { readonly source?: string; readonly ask?: boolean }) => {
      const terminal = context.terminal();
      const config = context.config();
      const { sources, state } = config;
      const entries = options.source === undefined ? Object.entries(sources) : [chooseSource(config, options.source)];
      const planReports = await terminal.progress("Planning", async (showProgress) => {
        const finishedReports: PlanReport[] = [];
        for (const [name, sourceConfig] of entries) {
          const storedPlan =
            options.ask === true ? null : await planSourceFromState(context, config, name, sourceConfig);
          finishedReports.push(
            storedPlan ?? (await planSourceFromLists(context, state, name, sourceConfig, showProgress)),
          );
        }
        return finishedReports;
      });
      terminal.print(planReports, planReports.flatMap(quotaPlanLines));
    });
}

/** Plans the quota from the worker's stored lists and measurements; null if the worker has not listed the tags. */
async function planSourceFromState(
  context: CliContext,
  config: Config,
  name: string,
  sourceConfig: SourceConfigEntry,
): Promise<PlanReport | null> {
  const stateSelector = { config, source: name };
  return readStateIfAny(stateSelector, async (store) => {
    const worker = await findWorkerOfConfig(stateSelector, context.signal);
    if (worker.kind === "silent") context.terminal().info(`${worker.failure.message} What it measures is left out.`);
    const workerPlan =
      worker.kind === "open" ? await requestSourcePlan(worker.socket, name, context.signal).catch(() => null) : null;
    const { quota } = sourceConfig;
    const usualRequestsPerMinute = Math.max(1, quota.requests_per_minute * quota.polite - quota.reserve_for_writes);
    const measurements = workerPlan && {
      // Plan with the lower of two rates: the configured rate, and the rate that the worker measured after refusals.
      quota: { polls: Math.min(usualRequestsPerMinute, workerPlan.quota.polls), shared: workerPlan.quota.shared },
      freshness: workerPlan.classes.map(({ name, tags, promisedSeconds, measuredSeconds }) => ({
        ...{ name, tags, promisedMs: promisedSeconds * 1_000 },
        achievedMs: measuredSeconds === null ? null : measuredSeconds * 1_000,
      })),
    };
    const planFacts = await loadPlanFacts(
      store,
      buildPlanSettings(name, sourceConfig, config.state),
      systemClock,
      measurements,
    );
    return planFacts.tags === 0 ? null : reportPlan(planFacts);
  });
}

async function planSourceFromLists(
  context: CliContext,
  state: StateConfig,
  sourceName: string,
  sourceConfig: SourceConfigEntry,
  update: (progressText: string) => void,
): Promise<PlanReport> {
  refuseUnverifiedTls();
  const settings = buildPlanSettings(sourceName, sourceConfig, state);
  const reportListProgress = (progress: TagListProgress) => update(describeListProgress(progress, sourceConfig.quota));
  return useStandaloneSource(sourceName, sourceConfig, process.env, async (source) =>
    reportPlan(await planFactsFromLists(source, settings, systemClock, context.signal, reportListProgress)),
  );
}

export function quotaPlanLines(plan: PlanReport): readonly string[] {
  const { quota, backfill, classes, history, learning } = plan;
  const unreadTagsText =
    plan.tagsNotRead === 0 || classes.length === 0 ? "" : ` (${plan.tagsNotRead} in no class of live reads)`;
  const planOriginText = plan.basis === "state" ? "from the worker's state" : "as the service lists them";
  const pollText = quota.polls >= quota.perMinute ? "100.0 %" : `polls get ${quota.polls.toFixed(1)}`;
  const rows = plan.lanes.map((lanePlan) => [
    lanePlan.lane,
    lanePlan.requestsPerMinute.toFixed(2),
    formatPercent(lanePlan.share),
  ]);
  return omitMissingLines(
    `source ${plan.source}: ${plan.sites} sites, ${plan.tags} tags${unreadTagsText}, ${planOriginText}`,
    "",
    ...indentTable(["requests", "a minute", "of the quota"], [...rows, ["all", quota.perMinute.toFixed(2), pollText]]),
    "",
    ...(classes.length === 0 ? ["No live reads: `read` is empty."] : readClassTable(classes)),
    classes.length > 0 && `Reading every one of them once takes ${formatSeconds(plan.fullSweepSeconds)}.`,
    ...(history.length === 0 ? [] : ["", ...historyClassTable(history)]),
    learning !== null &&
      `Until it is known which of ${learning.tags} tags have a log, learning it takes what live values leave over, at least ${learning.requestsPerMinute.toFixed(1)} a minute.`,
    ...(backfill === null ? [] : backfillPlanLines(backfill)),
    "",
    ...formatPlanVerdict(plan),
    plan.alarms ?? null,
    "",
  );
}

function readClassTable(classes: PlanReport["classes"]): readonly string[] {
  return indentTable(
    ["class", "tags", "interval", "planned", "at best", "measured", "rows a day", "requests a minute"],
    classes.map((readClass) => [
      readClass.name,
      String(readClass.tags),
      formatSeconds(readClass.targetSeconds),
      formatSeconds(readClass.promisedSeconds) + (readClass.stretch > 1 ? ` (×${readClass.stretch.toFixed(2)})` : ""),
      formatSeconds(readClass.atBestSeconds),
      readClass.measuredSeconds === null ? "–" : formatSeconds(readClass.measuredSeconds),
      String(readClass.rowsPerDay),
      readClass.requestsPerMinute.toFixed(2),
    ]),
  );
}

function historyClassTable(history: PlanReport["history"]): readonly string[] {
  return indentTable(
    ["history", "tags", "resolution", "requests a minute", "without a log"],
    history.map(({ name, tags, resolution, total, requestsPerMinute, withoutLog }) => [
      ...[name, String(tags), `${resolution}${total ? " total" : ""}`],
      ...[requestsPerMinute.toFixed(3), String(withoutLog)],
    ]),
  );
}

function backfillPlanLines(backfill: NonNullable<PlanReport["backfill"]>): readonly string[] {
  const { doneAt, requestsLeft, requestsPerMinute, requestsAtBest, atBestDoneAt } = backfill;
  return omitMissingLines(
    doneAt === null
      ? `The backfill is paused with ${requestsLeft} requests left; \`plenum backfill --resume\` goes on.`
      : `The backfill takes ${requestsLeft} requests, ${requestsPerMinute.toFixed(1)} a minute, and is done at ${formatUtcMinute(doneAt)}.`,
    atBestDoneAt !== null && requestsAtBest <= requestsLeft * 0.9
      ? `If the service bears larger replies than it has shown, it takes ${requestsAtBest} and is done at ${formatUtcMinute(atBestDoneAt)}.`
      : null,
  );
}

function formatPlanVerdict({ fits, load, changes, classes }: PlanReport): readonly string[] {
  const quotaLoadText = `${(load * 100).toFixed(0)} % of the plannable quota`;
  if (fits)
    return [
      `It fits: the intervals need ${quotaLoadText}.${formatMeasuredAges(classes) || " By this plan no value becomes older than its interval."}`,
    ];
  const [cheapest, ...otherChanges] = changes;
  return [
    `It does not fit: the intervals need ${quotaLoadText}.${formatMeasuredAges(classes)}`,
    ...(cheapest === undefined ? [] : [`The cheapest change: ${cheapest.text}`, `    ${cheapest.yaml}`]),
    ...otherChanges.slice(0, 2).flatMap(({ text, yaml }) => [`Or: ${text}`, `    ${yaml}`]),
  ];
}

function formatMeasuredAges(classes: PlanReport["classes"]): string {
  const measuredClasses = classes.filter(({ measuredSeconds }) => measuredSeconds !== null);
  const lateClasses = measuredClasses.filter(({ olderThanTarget }) => olderThanTarget);
  if (measuredClasses.length === 0) return "";
  if (lateClasses.length === 0) return " No measured value was older than its interval.";
  const lateClassTexts = lateClasses.map(
    ({ name, measuredSeconds, targetSeconds }) =>
      `${name} ${formatSeconds(measuredSeconds ?? 0)} instead of ${formatSeconds(targetSeconds)}`,
  );
  return ` Measured values were older than their interval: ${lateClassTexts.join(", ")}.`;
}

const formatPercent = (share: number): string => `${(share * 100).toFixed(1)} %`;

function indentTable(columnTitles: readonly string[], rows: readonly (readonly string[])[]): readonly string[] {
  return formatTextTable(columnTitles, rows, "right").map((line) => `  ${line}`);
}
