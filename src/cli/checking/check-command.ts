import type { Command } from "commander";
import type { Config } from "../../app/config/config.ts";
import { findSinkConnector } from "../../app/config/config-sections.ts";
import { ALLOW_WRITABLE_FLAG, refuseUntrustedConfigFile } from "../../app/config/file-permission-check.ts";
import { locateOptionsInFile } from "../../app/config/yaml-variables-and-errors.ts";
import type { Sink } from "../../core/connector.ts";
import { ConfigError, Retryable } from "../../core/errors/errors.ts";
import { refuseUnverifiedTls } from "../../core/http/verified-tls.ts";
import { type Event, sourceUri } from "../../core/model/event.ts";
import { formatDuration } from "../../core/values/duration.ts";
import { formatCount } from "../../core/values/plural.ts";
import { readApprovalState } from "../../engine/commands/approval/sign-rules.ts";
import type { AllowedTag } from "../../engine/commands/config.ts";
import { matchesFilter } from "../../engine/delivery/filter.ts";
import type { VisibleBuilding } from "../../engine/sync/selection-mismatches.ts";
import { readPageCredentials } from "../../ui/status/access-control.ts";
import type { CliContext } from "../shell/command-context.ts";
import { createStandaloneSink } from "../shell/source-without-worker.ts";
import { approvalQuestion } from "../writing/writing-control-command.ts";
import { filterLines, priorityLines } from "./check-building.ts";
import { checkSource } from "./check-monitoring-source.ts";
import {
  type CheckLine,
  failedCheck,
  passedCheck,
  warningLine,
  withTimeLimit,
  wrongLine,
} from "./check-result-line.ts";
import { checkWriting, writableText } from "./check-tag-writing.ts";
import { checkMachine } from "./check-this-machine.ts";

interface CheckOptions {
  readonly strict?: boolean;
  readonly ask?: boolean;
  readonly lists?: boolean;
  readonly allowWritableConfig?: boolean;
}

/** Sends no tag request and no event, only an MQTT probe, which brokers deliver to subscribers of its topic. */
export function define(command: Command, context: CliContext): void {
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
    .action(async (options: CheckOptions) => {
      refuseUnverifiedTls();
      const terminal = context.terminal();
      const config = context.config();
      const lines = await terminal.progress("Checking", (update) => runChecks(config, context, options, update));
      const detail = ({ place, detail: text }: CheckLine) => (place === undefined ? text : `${place} ${text}`);
      terminal.rows(lines, { what: "what", result: "result", detail });
      throwIfFailed(lines, options.strict === true);
    });
}

async function runChecks(
  config: Config,
  context: CliContext,
  { lists = true, ask = false, allowWritableConfig = false }: CheckOptions,
  update: (text: string) => void,
): Promise<readonly CheckLine[]> {
  const { signal } = context;
  const places = locateOptionsInFile(context.configFile());
  const lines: CheckLine[] = [
    checkFile(context.configFile(), allowWritableConfig),
    ...(await checkMachine(config, context.configFile(), places, signal)),
    ...checkPasswords(config),
    ...(await checkApproved(config)),
  ];
  const writingBlockers = await checkWriting(config, places, signal);
  lines.push(...writingBlockers);
  const writableTags: AllowedTag[] = [];
  const buildings = new Map<string, Pick<VisibleBuilding, "sites">>();
  for (const [name, entry] of Object.entries(config.sources)) {
    update(`Asking source ${name}`);
    const result = await checkSource({ name, entry, config, places, lists, ask, signal, update });
    lines.push(...result.lines);
    writableTags.push(...(result.writable ?? config.commands.allow.filter((tag) => (tag.source ?? name) === name)));
    if (result.sites !== null) buildings.set(name, { sites: result.sites });
  }
  lines.push(...checkAnySink(config), ...priorityLines(config, places));
  for (const name of Object.keys(config.sinks)) {
    update(`Asking sink ${name}`);
    lines.push(...(await checkSink(name, config, signal)));
  }
  if (buildings.size === Object.keys(config.sources).length) lines.push(...filterLines(config, buildings, places));
  const mayWrite =
    writingBlockers.length === 0 && !lines.some(({ result }) => ["wrong", "unavailable"].includes(result));
  if (!mayWrite || writableTags.length === 0) return lines;
  return [
    ...lines,
    passedCheck("writing", `${formatCount(writableTags.length, "tag")} may be written: ${writableText(writableTags)}`),
  ];
}

function checkFile(file: string, isWritableAllowed: boolean): CheckLine {
  const checkName = "configuration";
  try {
    if (!isWritableAllowed) refuseUntrustedConfigFile(file);
    return passedCheck(checkName, file);
  } catch (error) {
    return failedCheck(checkName, error);
  }
}

/** Throws ConfigError if a check found something wrong, Retryable if something is only unavailable. */
function throwIfFailed(lines: readonly CheckLine[], isStrict: boolean): void {
  const wrongLines = lines.filter(({ result }) => result === "wrong" || (isStrict && result === "warning"));
  const unavailableLines = lines.filter(({ result }) => result === "unavailable");
  const failedCount = wrongLines.length + unavailableLines.length;
  if (failedCount === 0) return;
  const failureText = `${failedCount} of ${lines.length} checks did not pass.`;
  throw wrongLines.length > 0 ? new ConfigError(failureText) : new Retryable(failureText);
}

function checkPasswords({ status }: Config): readonly CheckLine[] {
  try {
    return readPageCredentials(status) === null ? [] : [passedCheck("status", "the passwords are there")];
  } catch (error) {
    return [failedCheck("status", error)];
  }
}

/** Checks that a second person has approved what may be written. */
async function checkApproved(config: Config): Promise<readonly CheckLine[]> {
  if (!config.commands.enabled) return [];

  try {
    const question = await approvalQuestion(config);
    if (question.config === null && question.pinned === null) return [];
    const { approvedBy, refusing } = readApprovalState(question);
    if (refusing !== null) return [wrongLine("approval of writing", refusing)];
    return [passedCheck("approval of writing", `approved by ${approvedBy.join(", ")}`)];
  } catch (error) {
    return [failedCheck("approval of writing", error)];
  }
}

async function checkSink(name: string, config: Config, signal: AbortSignal): Promise<readonly CheckLine[]> {
  const checkName = `sink ${name}`;
  const entry = config.sinks[name];
  if (entry === undefined || !entry.enabled) return [warningLine(checkName, "switched off (enabled: false)")];
  const connector = findSinkConnector(entry);
  let sink: Sink | undefined;
  try {
    sink = await createStandaloneSink(name, entry);
    if (sink?.probe === undefined) return [passedCheck(checkName, `${connector}: nothing to ask`)];
    await withTimeLimit(signal, async (limited) => sink?.probe?.(limited));
    const retentionMs = await withTimeLimit(signal, async (limited) => (await sink?.retentionMs?.(limited)) ?? null);
    return [
      passedCheck(checkName, `${connector} answers`),
      ...(retentionMs === null ? [] : shortRetentionLines(checkName, entry, config, retentionMs)),
    ];
  } catch (error) {
    signal.throwIfAborted();
    return [failedCheck(checkName, error)];
  } finally {
    await sink?.close();
  }
}

function checkAnySink({ sinks, state }: Config): readonly CheckLine[] {
  if (Object.values(sinks).some(({ enabled }) => enabled)) return [];
  const noSinkText = Object.keys(sinks).length === 0 ? "No sink is configured" : "Every sink is switched off";
  const detail = `${noSinkText}: what happens is kept for ${formatDuration(state.replay_window)} and goes nowhere. Name one under sinks, such as files: { file: { folder: events } }.`;
  return [warningLine("sinks", detail)];
}

/** A backfill may reach further back than the retention of the sink's server. */
function shortRetentionLines(
  what: string,
  { filter }: Config["sinks"][string],
  config: Config,
  retentionMs: number,
): readonly CheckLine[] {
  return Object.entries(config.sources).flatMap(([source, { history }]) =>
    history.flatMap(({ name, backfill, total }): CheckLine[] => {
      const eventType = total ? "tag-total" : "tag-history";
      const event = { type: eventType, source: sourceUri(source), siteid: filter.sites[0] } as Event;
      if (backfill <= retentionMs || !matchesFilter({ ...filter, priorities: [] }, event)) return [];
      const backfillText = `the history ${name} of ${source} asks for the past ${formatDuration(backfill)}`;
      const detail = `It keeps ${formatDuration(retentionMs)}, and ${backfillText}: what is older is fetched and lost there. Shorten backfill, or keep more there.`;
      return [warningLine(what, detail)];
    }),
  );
}
