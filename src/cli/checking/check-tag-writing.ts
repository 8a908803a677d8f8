import { acceptsCommands, type Config, canSinkAcceptCommands } from "../../app/config/config.ts";
import { findSinkConnector } from "../../app/config/config-sections.ts";
import type { LocateOption } from "../../app/config/yaml-variables-and-errors.ts";
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
import { type CheckResult, errorToCheckResult, passedResult, warningResult } from "./check-result-line.ts";

/** Returns every reason why no command can be written, with its remedy. Limits of single tags are checked elsewhere. */
export async function checkTagWriting(
  config: Config,
  locateOption: LocateOption,
  signal: AbortSignal,
): Promise<readonly CheckResult[]> {
  const { commands, sinks } = config;
  const isWritingSetUp = commands.enabled || commands.allow.length > 0 || Object.values(sinks).some(acceptsCommands);
  if (!isWritingSetUp) return [passedResult(CHECK_NAME, `${WRITING_DISABLED_TEXT}, and no command is executed`)];
  return [
    ...configWritingBlockers(config, locateOption),
    ...commandSenderBlockers(config, locateOption),
    ...writingHoursBlockers(config),
    ...(await stateWritingBlockers(config, signal)),
  ];
}

const CHECK_NAME = "writing";
const WRITING_DISABLED_TEXT = "Writing is off (commands.enabled: false)";

function configWritingBlockers({ commands, sources }: Config, locateOption: LocateOption): readonly CheckResult[] {
  const { allow, enabled, rehearsal } = commands;
  const sourcesWithoutTagList = Object.entries(sources).filter(
    ([name, { schedules }]) => schedules.tags === false && allow.some((tag) => (tag.source ?? name) === name),
  );
  const blockers: readonly (readonly [isBlocking: boolean, detail: string, path: readonly string[]])[] = [
    [!enabled, `${WRITING_DISABLED_TEXT}, so every command is refused: set commands.enabled: true.`, ["commands"]],
    [
      rehearsal,
      "Commands are only rehearsed (commands.rehearsal: true), so nothing is written: take rehearsal out, then restart the worker.",
      ["commands", "rehearsal"],
    ],
    [
      allow.length === 0,
      "No tag may be written, because commands.allow is empty: add an entry for each tag.",
      ["commands"],
    ],
    ...sourcesWithoutTagList.map(
      ([name]) =>
        [
          true,
          `The worker does not list the tags of ${name} (schedules.tags: false), so it refuses every command as unknown-tag: take schedules.tags: false out.`,
          ["sources", name, "schedules", "tags"],
        ] as const,
    ),
  ];
  return blockers.flatMap(([isBlocking, detail, path]) =>
    isBlocking ? [writingBlocker(detail, locateOption(path))] : [],
  );
}

function writingHoursBlockers({ commands, sources }: Config): readonly CheckResult[] {
  return commands.allow.flatMap((allowedTag) => {
    const { time_zone: timeZone } = sources[sourceOfAllowedTag(allowedTag, sources)] ?? {};
    if (timeZone === undefined) return [];
    const refusal = checkHours({ entry: allowedTag, forMs: null, nowMs: systemClock.now(), timeZone });
    return refusal === null
      ? []
      : [passedResult(CHECK_NAME, `Tag ${allowedTag.tag_id} is closed now: ${refusal.message}`)];
  });
}

function sourceOfAllowedTag({ source }: AllowedTag, sources: Config["sources"]): string {
  return source ?? Object.keys(sources)[0] ?? "";
}

async function stateWritingBlockers(config: Config, signal: AbortSignal): Promise<readonly CheckResult[]> {
  try {
    const { state } = config;
    const foundWorker = await findWorkerOfConfig({ config }, signal);
    const noWorkerText = "No worker is running here, and only a running worker writes: start it with plenum run.";
    return [
      ...(state.postgres === undefined ? await folderWritingBlockers(config) : await fleetWritingBlockers(config)),
      ...(foundWorker.kind === "none" ? [passedResult(CHECK_NAME, noWorkerText)] : []),
    ];
  } catch (error) {
    signal.throwIfAborted();
    return [errorToCheckResult(CHECK_NAME, error)];
  }
}

const STOPPED_TEXT = "Writing is stopped by the kill switch: when the reason is over, run `plenum writes resume`.";

async function folderWritingBlockers(config: Config): Promise<readonly CheckResult[]> {
  const { folder } = config.state;
  const killSwitchBlockers = createKillSwitch(folder).isOn() ? [writingBlocker(STOPPED_TEXT)] : [];
  // A rehearsal needs no `plenum writes arm`; a worker applies a pending arm request within 1 s.
  const needsWriteArming = !config.commands.rehearsal && !readArmWritingRequest(folder).isArmingRequested();
  const storedBlockers = await readStateIfAny({ config }, (store) =>
    stateBlockers(config, store, needsWriteArming ? `the state ${folder}` : null),
  );
  if (storedBlockers !== null || !needsWriteArming) return [...killSwitchBlockers, ...(storedBlockers ?? [])];
  const unarmedStateText =
    "This machine has no state yet, and a new state writes nothing until it is armed: run plenum writes arm once, where the worker runs.";
  return [...killSwitchBlockers, passedResult(CHECK_NAME, unarmedStateText)];
}

async function fleetWritingBlockers(config: Config): Promise<readonly CheckResult[]> {
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
  const sourceBlockers = await readSourceStores(config, Object.keys(config.sources), async (stores) => {
    const blockers = await Promise.all(stores.map((store) => stateBlockers(config, store, stateToArm)));
    return blockers
      .flat()
      .filter(({ detail }, n, lines) => lines.findIndex((earlierResult) => earlierResult.detail === detail) === n);
  });
  const unarmedMachineBlocker =
    isArmed && !isArmedHere && !config.commands.rehearsal
      ? [
          writingBlocker(
            `Writing was never armed on this machine for the fleet ${name}: run plenum writes arm here once.`,
          ),
        ]
      : [];
  return [...(isStopped ? [writingBlocker(STOPPED_TEXT)] : []), ...unarmedMachineBlocker, ...sourceBlockers];
}

async function stateBlockers(config: Config, store: Store, stateToArm: string | null): Promise<readonly CheckResult[]> {
  const { allow, audit_max_bytes: auditBytes } = config.commands;
  const armingRefusal = stateToArm === null ? null : await readArmingRefusal(store, stateToArm);
  const isLogFull = (await openAuditLogSize(store)).bytes() >= auditBytes;
  const buildingReader = createStoredBuildingReader(store);
  const offlineGatewayBlockers = await Promise.all(
    allow.map(async (allowedTag) => {
      const gateways = await buildingReader.gateways(
        sourceOfAllowedTag(allowedTag, config.sources),
        allowedTag.site_id,
      );
      const gatewayRefusal = checkGateway({ entry: allowedTag, gateways });
      return gatewayRefusal === null
        ? []
        : [
            writingBlocker(
              `Tag ${allowedTag.tag_id} is not written until its gateway is back. ${gatewayRefusal.message}`,
            ),
          ];
    }),
  );
  return [
    ...(armingRefusal === null ? [] : [writingBlocker(armingRefusal.message)]),
    ...(isLogFull
      ? [writingBlocker("The audit log is full, so nothing is written: raise commands.audit_max_bytes.")]
      : []),
    ...offlineGatewayBlockers.flat(),
  ];
}

/** Name by which `commands.allow[].from` permits commands of the command line and the status page. */
const OPERATOR_SENDER = "operator";

function commandSenderBlockers(config: Config, locateOption: LocateOption): readonly CheckResult[] {
  const { sinks, commands } = config;
  const commandSinks = Object.keys(sinks).filter((name) => sinks[name] !== undefined && acceptsCommands(sinks[name]));
  const allowedSenders = commands.allow.flatMap(({ from = [] }, index) =>
    from.map((sink, n) => ({ sink, path: ["commands", "allow", index, "from", n] })),
  );
  const tagsForAnySender = commands.allow.filter(({ from }) => from === undefined);
  return [
    ...(tagsForAnySender.length > 0 && commandSinks.length === 0 ? [noCommandSinkBlocker(config, locateOption)] : []),
    ...[...Map.groupBy(allowedSenders, ({ sink }) => sink).values()].flatMap(
      ([firstSender]): readonly CheckResult[] => {
        if (firstSender === undefined || firstSender.sink === OPERATOR_SENDER) return [];
        const detail = describeSinkWithoutCommands(firstSender.sink, sinks[firstSender.sink]);
        return detail === null ? [] : [writingBlocker(detail, locateOption(firstSender.path))];
      },
    ),
    ...commands.allow.flatMap((allowedTag, index) => {
      const detail = explainUnwritableTag(allowedTag, commandSinks);
      return detail === null ? [] : [writingBlocker(detail, locateOption(["commands", "allow", index]))];
    }),
  ];
}

function noCommandSinkBlocker({ sinks }: Config, locateOption: LocateOption): CheckResult {
  const [name, sink] = Object.entries(sinks).find(([, sinkConfig]) => canSinkAcceptCommands(sinkConfig)) ?? [];
  const commandSinkAdvice =
    name === undefined || sink === undefined
      ? "add an mqtt sink with commands: { enabled: true }"
      : `set ${sink.enabled ? "" : `sinks.${name}.enabled: true and `}${enableCommandsOption(name, sink)}`;
  return writingBlocker(
    `No sink listens for commands, so a command that is published at a broker has no effect: ${commandSinkAdvice}; or write from: [operator] for tags that only the command line and the status page may write.`,
    locateOption(name === undefined ? ["sinks"] : ["sinks", name]),
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
function explainUnwritableTag(allowedTag: AllowedTag, commandSinks: readonly string[]): string | null {
  const { from, second_person: needsSecondPerson, tag_id: id } = allowedTag;
  if (from?.length === 0)
    return `Tag ${id} may be written by no sender, because its from is empty: name a sink or operator in it.`;
  if (needsSecondPerson && from?.every((name) => name === OPERATOR_SENDER) === true && commandSinks.length === 0)
    return `Tag ${id} needs a second person, who agrees to commands of an operator over MQTT, and no sink listens for commands: set commands: { enabled: true } at an mqtt sink.`;
  return null;
}

export function tagListText(entries: readonly AllowedTag[]): string {
  return joinWords(entries.map((tag) => `${tag.tag_id}${tag.second_person ? " (once a second person agrees)" : ""}`));
}

const writingBlocker = (detail: string, place?: string): CheckResult => warningResult(CHECK_NAME, detail, place);
