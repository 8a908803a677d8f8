import { acceptsCommands, type Config, canSinkAcceptCommands } from "../../app/config/config.ts";
import { findSinkConnector } from "../../app/config/config-sections.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { openAuditLogSize } from "../../engine/commands/audit/audit-log.ts";
import type { AllowedTag } from "../../engine/commands/config.ts";
import { checkGateway, checkHours } from "../../engine/commands/gate.ts";
import { createKillSwitch } from "../../engine/commands/kill-switch.ts";
import { createStoredBuildingReader } from "../../engine/commands/stored-building-reader.ts";
import { readArmingRefusal, readArmWritingRequest } from "../../engine/commands/write-arming.ts";
import type { Store } from "../../engine/store/store.ts";
import { joinWords } from "../../engine/sync/selectors-without-match.ts";
import { readFleetKillSwitch } from "../../scale/fleet/kill-switch.ts";
import { readFleetDocument } from "../../scale/fleet/shared-json-document.ts";
import { ARM_WRITING_REQUEST_KEY, DATABASE_ID_KEY, isMachineArmedToWrite } from "../../scale/fleet-tag-write-guards.ts";
import { findWorkerOfConfig } from "../shell/find-worker.ts";
import { readSourceStores, readStateIfAny, useStateDatabase } from "../shell/open-worker-state.ts";
import type { CheckReport, CheckTopic } from "./check-report.ts";

const WRITING_DISABLED_TEXT = "Writing is off (commands.enabled: false)";

/** Reports each reason why Plenum can write no tag at all, with its remedy. Does not check limits of single tags. */
export async function checkTagWriting(config: Config, report: CheckReport, signal: AbortSignal): Promise<void> {
  const { commands, sinks } = config;
  const isWritingSetUp = commands.enabled || commands.allow.length > 0 || Object.values(sinks).some(acceptsCommands);
  const topic = report.about("writing");
  if (!isWritingSetUp) return topic.ok(`${WRITING_DISABLED_TEXT}, and no command is executed`);
  checkWritingOptions(config, topic);
  checkCommandSenders(config, topic);
  checkWritingHours(config, topic);
  await checkWritingInState(config, topic, signal);
}

function checkWritingOptions({ commands, sources }: Config, topic: CheckTopic): void {
  const { allow, enabled, rehearsal } = commands;
  if (!enabled)
    topic.warn(`${WRITING_DISABLED_TEXT}, so every command is refused: set commands.enabled: true.`, ["commands"]);
  if (rehearsal)
    topic.warn(
      "Commands are only rehearsed (commands.rehearsal: true), so nothing is written: take rehearsal out, then restart the worker.",
      ["commands", "rehearsal"],
    );
  if (allow.length === 0)
    topic.warn("No tag may be written, because commands.allow is empty: add an entry for each tag.", ["commands"]);
  for (const [name, { schedules }] of Object.entries(sources))
    if (schedules.tags === false && allow.some((tag) => (tag.source ?? name) === name))
      topic.warn(
        `The worker does not list the tags of ${name} (schedules.tags: false), so it refuses every command as unknown-tag: take schedules.tags: false out.`,
        ["sources", name, "schedules", "tags"],
      );
}

function checkWritingHours({ commands, sources }: Config, topic: CheckTopic): void {
  for (const allowedTag of commands.allow) {
    const { time_zone: timeZone } = sources[sourceOfAllowedTag(allowedTag, sources)] ?? {};
    if (timeZone === undefined) continue;
    const refusal = checkHours({ allowedTag, forMs: null, nowMs: systemClock.now(), timeZone });
    if (refusal !== null) topic.ok(`Tag ${allowedTag.tag_id} is closed now: ${refusal.message}`);
  }
}

function sourceOfAllowedTag({ source }: AllowedTag, sources: Config["sources"]): string {
  return source ?? Object.keys(sources)[0] ?? "";
}

async function checkWritingInState(config: Config, topic: CheckTopic, signal: AbortSignal): Promise<void> {
  try {
    const foundWorker = await findWorkerOfConfig({ config }, signal);
    if (config.state.postgres === undefined) await checkWritingInFolder(config, topic);
    else await checkWritingInFleet(config, topic);
    if (foundWorker.kind === "none")
      topic.ok("No worker is running here, and only a running worker writes: start it with plenum run.");
  } catch (error) {
    signal.throwIfAborted();
    topic.fail(error);
  }
}

const STOPPED_TEXT = "Writing is stopped by the kill switch: when the reason is over, run `plenum writes resume`.";

async function checkWritingInFolder(config: Config, topic: CheckTopic): Promise<void> {
  const { folder } = config.state;
  const isStopped = createKillSwitch(folder).isOn();
  // A rehearsal needs no `plenum writes arm`; a worker applies a pending arm request within 1 s.
  const needsWriteArming = !config.commands.rehearsal && !readArmWritingRequest(folder).isArmingRequested();
  const blockers = await readStateIfAny({ config }, (store) =>
    findStoredBlockers(config, store, needsWriteArming ? `the state ${folder}` : null),
  );
  if (isStopped) topic.warn(STOPPED_TEXT);
  for (const detail of blockers ?? []) topic.warn(detail);
  if (blockers === null && needsWriteArming)
    topic.ok(
      "This machine has no state yet, and a new state writes nothing until it is armed: run plenum writes arm once, where the worker runs.",
    );
}

async function checkWritingInFleet(config: Config, topic: CheckTopic): Promise<void> {
  const { folder } = config.state;
  const { isStopped, isArmed, isArmedHere, name } = await useStateDatabase(config, async (database) => {
    const id = await readFleetDocument(database, DATABASE_ID_KEY);
    return {
      isStopped: createKillSwitch(folder).isOn() || (await readFleetKillSwitch(database)) !== null,
      isArmed: (await readFleetDocument(database, ARM_WRITING_REQUEST_KEY)) !== null,
      isArmedHere: id !== null && isMachineArmedToWrite(folder, JSON.parse(id) as string),
      name: database.name,
    };
  });
  const stateToArm = isArmed || config.commands.rehearsal ? null : `the fleet ${name}`;
  const blockersBySource = await readSourceStores(config, Object.keys(config.sources), (stores) =>
    Promise.all(stores.map((store) => findStoredBlockers(config, store, stateToArm))),
  );
  if (isStopped) topic.warn(STOPPED_TEXT);
  if (isArmed && !isArmedHere && !config.commands.rehearsal)
    topic.warn(`Writing was never armed on this machine for the fleet ${name}: run plenum writes arm here once.`);
  for (const detail of new Set(blockersBySource.flat())) topic.warn(detail);
}

async function findStoredBlockers(config: Config, store: Store, stateToArm: string | null): Promise<readonly string[]> {
  const { allow, audit_max_bytes: auditBytes } = config.commands;
  const blockers: string[] = [];
  const armingRefusal = stateToArm === null ? null : await readArmingRefusal(store, stateToArm);
  if (armingRefusal !== null) blockers.push(armingRefusal.message);
  if ((await openAuditLogSize(store)).bytes() >= auditBytes)
    blockers.push("The audit log is full, so nothing is written: raise commands.audit_max_bytes.");
  const buildingReader = createStoredBuildingReader(store);
  for (const allowedTag of allow) {
    const gateways = await buildingReader.gateways(sourceOfAllowedTag(allowedTag, config.sources), allowedTag.site_id);
    const gatewayRefusal = checkGateway({ allowedTag, gateways });
    if (gatewayRefusal !== null)
      blockers.push(`Tag ${allowedTag.tag_id} is not written until its gateway is back. ${gatewayRefusal.message}`);
  }
  return blockers;
}

/** Name by which `commands.allow[].from` permits commands of the command line and the status page. */
const OPERATOR_SENDER = "operator";

function checkCommandSenders({ sinks, commands }: Config, topic: CheckTopic): void {
  const hasCommandSink = Object.values(sinks).some(acceptsCommands);
  if (!hasCommandSink && commands.allow.some(({ from }) => from === undefined)) warnOfMissingCommandSink(sinks, topic);
  const checkedSenders = new Set([OPERATOR_SENDER]);
  for (const [index, { from = [] }] of commands.allow.entries())
    for (const [n, sender] of from.entries()) {
      const detail = checkedSenders.has(sender) ? null : describeSinkWithoutCommands(sender, sinks[sender]);
      checkedSenders.add(sender);
      if (detail !== null) topic.warn(detail, ["commands", "allow", index, "from", n]);
    }
  for (const [index, allowedTag] of commands.allow.entries()) {
    const detail = explainUnwritableTag(allowedTag, hasCommandSink);
    if (detail !== null) topic.warn(detail, ["commands", "allow", index]);
  }
}

function warnOfMissingCommandSink(sinks: Config["sinks"], topic: CheckTopic): void {
  const [name, sink] = Object.entries(sinks).find(([, sinkConfig]) => canSinkAcceptCommands(sinkConfig)) ?? [];
  const commandSinkAdvice =
    name === undefined || sink === undefined
      ? "add an mqtt sink with commands: { enabled: true }"
      : `set ${sink.enabled ? "" : `sinks.${name}.enabled: true and `}${enableCommandsOption(name, sink)}`;
  topic.warn(
    `No sink listens for commands, so a command that is published at a broker has no effect: ${commandSinkAdvice}; or write from: [operator] for tags that only the command line and the status page may write.`,
    name === undefined ? ["sinks"] : ["sinks", name],
  );
}

function enableCommandsOption(name: string, sink: Config["sinks"][string]): string {
  return `sinks.${name}.${findSinkConnector(sink)}.commands: { enabled: true }`;
}

/** Explains why a sink accepts no commands; null for a sink that accepts commands. */
function describeSinkWithoutCommands(name: string, sink: Config["sinks"][string] | undefined): string | null {
  if (sink === undefined || acceptsCommands(sink)) return null;
  if (!canSinkAcceptCommands(sink))
    return `The sink ${name} cannot send commands, because ${findSinkConnector(sink)} only receives events: name an mqtt sink in from, or operator.`;
  if (!sink.enabled)
    return `The sink ${name} is switched off, so no command comes from it: set sinks.${name}.enabled: true.`;
  return `The sink ${name} does not listen for commands: set ${enableCommandsOption(name, sink)}.`;
}

/** Explains why no sender can write a tag; null if a sender can, or if `describeSinkWithoutCommands` says why. */
function explainUnwritableTag(allowedTag: AllowedTag, hasCommandSink: boolean): string | null {
  const { from, second_person: needsSecondPerson, tag_id: id } = allowedTag;
  if (from?.length === 0)
    return `Tag ${id} may be written by no sender, because its from is empty: name a sink or operator in it.`;
  if (needsSecondPerson && from?.every((name) => name === OPERATOR_SENDER) === true && !hasCommandSink)
    return `Tag ${id} needs a second person, who agrees to commands of an operator over MQTT, and no sink listens for commands: set commands: { enabled: true } at an mqtt sink.`;
  return null;
}

export function tagListText(entries: readonly AllowedTag[]): string {
  return joinWords(entries.map((tag) => `${tag.tag_id}${tag.second_person ? " (once a second person agrees)" : ""}`));
}
