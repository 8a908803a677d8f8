import type { Command } from "commander";
import type { Config } from "../../app/config/config.ts";
import { findSinkConnector } from "../../app/config/config-sections.ts";
import { ALLOW_WRITABLE_FLAG, refuseUntrustedConfigFile } from "../../app/config/file-permission-check.ts";
import { locateOptionsInFile } from "../../app/config/yaml-variables-and-errors.ts";
import { readNamesFile } from "../../app/reload/tag-names-file-watch.ts";
import type { Sink } from "../../core/connector.ts";
import { ConfigError, Retryable } from "../../core/errors/errors.ts";
import { refuseUnverifiedTls } from "../../core/http/verified-tls.ts";
import { type Event, sourceUri } from "../../core/model/event.ts";
import { formatDuration } from "../../core/values/duration.ts";
import { formatCount } from "../../core/values/plural.ts";
import { readApprovalState } from "../../engine/commands/approval/sign-write-approval.ts";
import type { AllowedTag } from "../../engine/commands/config.ts";
import { matchesFilter } from "../../engine/delivery/filter.ts";
import type { VisibleBuilding } from "../../engine/sync/selectors-without-match.ts";
import { readPageCredentials } from "../../ui/status/access-control.ts";
import type { CliContext } from "../shell/command-context.ts";
import { createStandaloneSink } from "../shell/source-and-sinks-without-worker.ts";
import { loadApprovalInputs } from "../writing/writes-command.ts";
import { checkSinkPriorities, checkSinkSites } from "./check-building.ts";
import { checkMonitoringSource } from "./check-monitoring-source.ts";
import {
  type CheckReport,
  type CheckResult,
  type CheckTopic,
  createCheckReport,
  withTimeLimit,
} from "./check-report.ts";
import { checkTagWriting, tagListText } from "./check-tag-writing.ts";
import { checkLocalMachine } from "./check-this-machine.ts";

interface CheckCommandOptions {
  readonly strict?: boolean;
  readonly ask?: boolean;
  readonly lists?: boolean;
  readonly allowWritableConfig?: boolean;
}

/** Defines `plenum check`, which reads no tag values and sends no events, only a probe message to MQTT. */
export function defineCommand(command: Command, context: CliContext): void {
  command
    .option("--strict", "treat warnings as errors, for pipelines")
    .option("--ask", "list sites and tags at the service, even where the state knows them")
    .option("--no-lists", "leave out the comparison with the building, which lists its tags")
    .option(ALLOW_WRITABLE_FLAG, "accept a configuration file that other users may change, as plenum run does with it")
    .addHelpText(
      "after",
      "\nThe configuration is compared with the building: what selects nothing, is never reached, does not exist. Lists" +
        "\ncost nothing of the quota; 30,000 tags take two minutes where no worker has listed them." +
        "\n\nExample:\n  plenum check --config /etc/plenum/plenum.yaml --strict",
    )
    .action(async (options: CheckCommandOptions) => {
      refuseUnverifiedTls();
      const terminal = context.terminal();
      const config = context.config();
      const checkResults = await terminal.progress("Checking", (update) => runChecks(config, context, options, update));
      const detailColumn = ({ place, detail: text }: CheckResult) => (place === undefined ? text : `${place} ${text}`);
      terminal.printRows(checkResults, { what: "what", result: "result", detail: detailColumn });
      throwIfCheckFailed(checkResults, options.strict === true);
    });
}

async function runChecks(
  config: Config,
  context: CliContext,
  { lists = true, ask = false, allowWritableConfig = false }: CheckCommandOptions,
  update: (progressText: string) => void,
): Promise<readonly CheckResult[]> {
  const { signal } = context;
  const configFile = context.configFile();
  const report = createCheckReport(locateOptionsInFile(configFile));
  const { results } = report;
  checkConfigFile(configFile, allowWritableConfig, report);
  await checkLocalMachine(config, configFile, report, signal);
  checkPagePasswords(config, report);
  checkNamesFiles(config, report);
  await checkWritingApproval(config, report);
  const resultCount = results.length;
  await checkTagWriting(config, report, signal);
  const isWritingBlocked = results.length > resultCount;
  const writableTags: AllowedTag[] = [];
  const buildings = new Map<string, Pick<VisibleBuilding, "sites">>();
  for (const [name, sourceConfig] of Object.entries(config.sources)) {
    update(`Asking source ${name}`);
    const source = await checkMonitoringSource({ name, sourceConfig, config, report, lists, ask, signal, update });
    writableTags.push(...(source.writableTags ?? config.commands.allow.filter((tag) => (tag.source ?? name) === name)));
    if (source.sites !== null) buildings.set(name, { sites: source.sites });
  }
  checkForEnabledSink(config, report);
  checkSinkPriorities(config, report);
  for (const name of Object.keys(config.sinks)) {
    update(`Asking sink ${name}`);
    await checkSink(name, config, report, signal);
  }
  if (buildings.size === Object.keys(config.sources).length) checkSinkSites(config, buildings, report);
  const hasFailure = results.some(({ result }) => ["wrong", "unavailable"].includes(result));
  if (!isWritingBlocked && !hasFailure && writableTags.length > 0)
    report
      .about("writing")
      .ok(`${formatCount(writableTags.length, "tag")} may be written: ${tagListText(writableTags)}`);
  return results;
}

function checkConfigFile(file: string, isWritableAllowed: boolean, report: CheckReport): void {
  const topic = report.about("configuration");
  try {
    if (!isWritableAllowed) refuseUntrustedConfigFile(file);
    topic.ok(file);
  } catch (error) {
    topic.fail(error);
  }
}

/** Throws ConfigError if a check found something wrong, Retryable if something is only unavailable. */
function throwIfCheckFailed(checkResults: readonly CheckResult[], isStrict: boolean): void {
  const wrongResults = checkResults.filter(({ result }) => result === "wrong" || (isStrict && result === "warning"));
  const unavailableResults = checkResults.filter(({ result }) => result === "unavailable");
  const failedCheckCount = wrongResults.length + unavailableResults.length;
  if (failedCheckCount === 0) return;
  const failureText = `${failedCheckCount} of ${checkResults.length} checks did not pass.`;
  throw wrongResults.length > 0 ? new ConfigError(failureText) : new Retryable(failureText);
}

function checkPagePasswords({ status }: Config, report: CheckReport): void {
  const topic = report.about("status");
  try {
    if (readPageCredentials(status) !== null) topic.ok("the passwords are there");
  } catch (error) {
    topic.fail(error);
  }
}

function checkNamesFiles({ sources }: Config, report: CheckReport): void {
  for (const [source, { names: file }] of Object.entries(sources)) {
    if (file === undefined) continue;
    const topic = report.about(`names of ${source}`);
    const { entries, problems } = readNamesFile(file, new Set());
    for (const problem of problems) topic.warn(problem, ["sources", source, "names"]);
    if (problems.length === 0) topic.ok(`${file} names ${formatCount(entries.size, "tag")}`);
  }
}

async function checkWritingApproval(config: Config, report: CheckReport): Promise<void> {
  if (!config.commands.enabled) return;
  const topic = report.about("approval of writing");
  try {
    const approvalInputs = await loadApprovalInputs(config);
    if (approvalInputs.config === null && approvalInputs.pinned === null) return;
    const { approvedBy, refusing } = readApprovalState(approvalInputs);
    if (refusing === null) topic.ok(`approved by ${approvedBy.join(", ")}`);
    else topic.wrong(refusing);
  } catch (error) {
    topic.fail(error);
  }
}

async function checkSink(name: string, config: Config, report: CheckReport, signal: AbortSignal): Promise<void> {
  const topic = report.about(`sink ${name}`);
  const sinkConfig = config.sinks[name];
  if (sinkConfig === undefined || !sinkConfig.enabled) return topic.warn("switched off (enabled: false)");
  const connector = findSinkConnector(sinkConfig);
  let sink: Sink | undefined;
  try {
    sink = await createStandaloneSink(name, sinkConfig);
    if (sink?.probe === undefined) return topic.ok(`${connector}: nothing to ask`);
    await withTimeLimit(signal, async (limitedSignal) => sink?.probe?.(limitedSignal));
    const retentionMs = await withTimeLimit(signal, async (limitedSignal) => sink?.retentionMs?.(limitedSignal));
    topic.ok(`${connector} answers`);
    if (retentionMs != null) checkSinkRetention(topic, sinkConfig, config, retentionMs);
  } catch (error) {
    signal.throwIfAborted();
    topic.fail(error);
  } finally {
    await sink?.close();
  }
}

function checkForEnabledSink({ sinks, state }: Config, report: CheckReport): void {
  if (Object.values(sinks).some(({ enabled }) => enabled)) return;
  const noSinkText = Object.keys(sinks).length === 0 ? "No sink is configured" : "Every sink is switched off";
  report
    .about("sinks")
    .warn(
      `${noSinkText}: what happens is kept for ${formatDuration(state.replay_window)} and goes nowhere. Name one under sinks, such as files: { file: { folder: events } }.`,
    );
}

/** Warns if a backfill reaches further back than the sink's server keeps data. */
function checkSinkRetention(
  topic: CheckTopic,
  { filter }: Config["sinks"][string],
  { sources }: Config,
  retentionMs: number,
): void {
  for (const [source, { history }] of Object.entries(sources))
    for (const { name, backfill, total } of history) {
      const eventType = total ? "tag-total" : "tag-history";
      const sampleEvent = { type: eventType, source: sourceUri(source), siteid: filter.sites[0] } as Event;
      if (backfill <= retentionMs || !matchesFilter({ ...filter, priorities: [] }, sampleEvent)) continue;
      const backfillText = `the history ${name} of ${source} asks for the past ${formatDuration(backfill)}`;
      topic.warn(
        `It keeps ${formatDuration(retentionMs)}, and ${backfillText}: what is older is fetched and lost there. Shorten backfill, or keep more there.`,
      );
    }
}
