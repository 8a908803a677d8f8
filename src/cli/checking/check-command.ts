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
import { createStandaloneSink } from "../shell/connect-without-worker.ts";
import { loadApprovalInputs } from "../writing/writing-control-command.ts";
import { checkSinkPriorities, checkSinkSites } from "./check-building.ts";
import { checkMonitoringSource } from "./check-monitoring-source.ts";
import {
  type CheckResult,
  errorToCheckResult,
  passedResult,
  warningResult,
  withTimeLimit,
  wrongResult,
} from "./check-result-line.ts";
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
  const locateOption = locateOptionsInFile(context.configFile());
  const checkResults: CheckResult[] = [
    checkConfigFile(context.configFile(), allowWritableConfig),
    ...(await checkLocalMachine(config, context.configFile(), locateOption, signal)),
    ...checkPagePasswords(config),
    ...checkNamesFiles(config, locateOption),
    ...(await checkWritingApproval(config)),
  ];
  const writingBlockers = await checkTagWriting(config, locateOption, signal);
  checkResults.push(...writingBlockers);
  const writableTags: AllowedTag[] = [];
  const buildings = new Map<string, Pick<VisibleBuilding, "sites">>();
  for (const [name, entry] of Object.entries(config.sources)) {
    update(`Asking source ${name}`);
    const result = await checkMonitoringSource({ name, entry, config, locateOption, lists, ask, signal, update });
    checkResults.push(...result.lines);
    writableTags.push(...(result.writableTags ?? config.commands.allow.filter((tag) => (tag.source ?? name) === name)));
    if (result.sites !== null) buildings.set(name, { sites: result.sites });
  }
  checkResults.push(...checkForEnabledSink(config), ...checkSinkPriorities(config, locateOption));
  for (const name of Object.keys(config.sinks)) {
    update(`Asking sink ${name}`);
    checkResults.push(...(await checkSink(name, config, signal)));
  }
  if (buildings.size === Object.keys(config.sources).length)
    checkResults.push(...checkSinkSites(config, buildings, locateOption));
  const isWritingPossible =
    writingBlockers.length === 0 && !checkResults.some(({ result }) => ["wrong", "unavailable"].includes(result));
  if (!isWritingPossible || writableTags.length === 0) return checkResults;
  return [
    ...checkResults,
    passedResult("writing", `${formatCount(writableTags.length, "tag")} may be written: ${tagListText(writableTags)}`),
  ];
}

function checkConfigFile(file: string, isWritableAllowed: boolean): CheckResult {
  const checkName = "configuration";
  try {
    if (!isWritableAllowed) refuseUntrustedConfigFile(file);
    return passedResult(checkName, file);
  } catch (error) {
    return errorToCheckResult(checkName, error);
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

function checkPagePasswords({ status }: Config): readonly CheckResult[] {
  try {
    return readPageCredentials(status) === null ? [] : [passedResult("status", "the passwords are there")];
  } catch (error) {
    return [errorToCheckResult("status", error)];
  }
}

function checkNamesFiles(
  { sources }: Config,
  locateOption: ReturnType<typeof locateOptionsInFile>,
): readonly CheckResult[] {
  return Object.entries(sources).flatMap(([source, { names: file }]) => {
    if (file === undefined) return [];
    const { entries, problems } = readNamesFile(file, new Set());
    const optionLocation = locateOption(["sources", source, "names"]);
    if (problems.length > 0)
      return problems.map((problem) => warningResult(`names of ${source}`, problem, optionLocation));
    return [passedResult(`names of ${source}`, `${file} names ${formatCount(entries.size, "tag")}`)];
  });
}

async function checkWritingApproval(config: Config): Promise<readonly CheckResult[]> {
  if (!config.commands.enabled) return [];

  try {
    const approvalInputs = await loadApprovalInputs(config);
    if (approvalInputs.config === null && approvalInputs.pinned === null) return [];
    const { approvedBy, refusing } = readApprovalState(approvalInputs);
    if (refusing !== null) return [wrongResult("approval of writing", refusing)];
    return [passedResult("approval of writing", `approved by ${approvedBy.join(", ")}`)];
  } catch (error) {
    return [errorToCheckResult("approval of writing", error)];
  }
}

async function checkSink(name: string, config: Config, signal: AbortSignal): Promise<readonly CheckResult[]> {
  const checkName = `sink ${name}`;
  const sinkConfig = config.sinks[name];
  if (sinkConfig === undefined || !sinkConfig.enabled)
    return [warningResult(checkName, "switched off (enabled: false)")];
  const connector = findSinkConnector(sinkConfig);
  let sink: Sink | undefined;
  try {
    sink = await createStandaloneSink(name, sinkConfig);
    if (sink?.probe === undefined) return [passedResult(checkName, `${connector}: nothing to ask`)];
    await withTimeLimit(signal, async (limitedSignal) => sink?.probe?.(limitedSignal));
    const retentionMs = await withTimeLimit(
      signal,
      async (limitedSignal) => (await sink?.retentionMs?.(limitedSignal)) ?? null,
    );
    return [
      passedResult(checkName, `${connector} answers`),
      ...(retentionMs === null ? [] : checkSinkRetention(checkName, sinkConfig, config, retentionMs)),
    ];
  } catch (error) {
    signal.throwIfAborted();
    return [errorToCheckResult(checkName, error)];
  } finally {
    await sink?.close();
  }
}

function checkForEnabledSink({ sinks, state }: Config): readonly CheckResult[] {
  if (Object.values(sinks).some(({ enabled }) => enabled)) return [];
  const noSinkText = Object.keys(sinks).length === 0 ? "No sink is configured" : "Every sink is switched off";
  const detail = `${noSinkText}: what happens is kept for ${formatDuration(state.replay_window)} and goes nowhere. Name one under sinks, such as files: { file: { folder: events } }.`;
  return [warningResult("sinks", detail)];
}

/** Warns if a backfill reaches further back than the sink's server keeps data. */
function checkSinkRetention(
  checkName: string,
  { filter }: Config["sinks"][string],
  config: Config,
  retentionMs: number,
): readonly CheckResult[] {
  return Object.entries(config.sources).flatMap(([source, { history }]) =>
    history.flatMap(({ name, backfill, total }): CheckResult[] => {
      const eventType = total ? "tag-total" : "tag-history";
      const sampleEvent = { type: eventType, source: sourceUri(source), siteid: filter.sites[0] } as Event;
      if (backfill <= retentionMs || !matchesFilter({ ...filter, priorities: [] }, sampleEvent)) return [];
      const backfillText = `the history ${name} of ${source} asks for the past ${formatDuration(backfill)}`;
      const detail = `It keeps ${formatDuration(retentionMs)}, and ${backfillText}: what is older is fetched and lost there. Shorten backfill, or keep more there.`;
      return [warningResult(checkName, detail)];
    }),
  );
}
