import { existsSync, readFileSync, realpathSync, statSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { Config } from "../../app/config/config.ts";
import { readStateOptions, type StateConfigSection } from "../../app/config/load.ts";
import { ConfigError, Retryable } from "../../core/errors/errors.ts";
import type { ProcessEnv } from "../../core/runtime/secret.ts";
import { valueOr } from "../../core/values/value-or-fallback.ts";
import { StateConfig } from "../../engine/store/state-config.ts";
import { lockFilePath } from "../../engine/store/state-folder.ts";
import { describeSourceHolder, readFleetStatus } from "../../scale/fleet/fleet-status.ts";
import {
  type ControlSocket,
  type FoundWorker,
  findWorker,
  requestConfiguration,
  requestStatus,
} from "../../ui/operator/control-socket-client.ts";
import { formatErrorLines } from "./exit-codes.ts";
import { type StateSelector, useStateDatabase } from "./open-worker-state.ts";
import { listSubfolders } from "./readiness-probe.ts";
import { readWorkerPointers } from "./worker-location-file.ts";

/** Finds the worker of a configuration. In a fleet, `source` selects the member that polls the source. */
export async function findWorkerOfConfig(stateSelector: StateSelector, signal: AbortSignal): Promise<FoundWorker> {
  const { state } = stateSelector.config;
  if (state.postgres === undefined) return findWorker(state.folder, signal);
  let silentWorker: FoundWorker | null = null;
  for (const member of await findLocalFleetMembers(state, signal)) {
    if (member.kind === "silent") silentWorker = member;
    if (member.kind === "open" && (await pollsSource(member.socket, stateSelector.source, signal))) return member;
  }
  return silentWorker ?? { kind: "none" };
}

export async function findLocalFleetMembers(
  { folder }: Pick<Config["state"], "folder">,
  signal: AbortSignal,
): Promise<readonly FoundWorker[]> {
  const foundWorkers = await Promise.all(
    [folder, ...listSubfolders(folder)].map((stateFolder) => findWorker(stateFolder, signal)),
  );
  return foundWorkers.filter(({ kind }) => kind !== "none");
}

export async function controlSocketOfWorker(state: StateSelector, signal: AbortSignal): Promise<ControlSocket | null> {
  const foundWorker = await findWorkerOfConfig(state, signal);
  if (foundWorker.kind === "silent") throw foundWorker.failure;
  if (foundWorker.kind === "open") return foundWorker.socket;
  if (state.config.state.postgres === undefined || state.source === undefined) return null;
  throw await sourceOnOtherMachineError(state.config.state, state.source);
}

async function sourceOnOtherMachineError(state: Config["state"], source: string): Promise<Retryable> {
  const { holder, message } = describeSourceHolder(
    source,
    await useStateDatabase({ state }, (database) => readFleetStatus(database, null, [source])),
  );
  const hint =
    holder === null
      ? "`plenum fleet` shows the members that there are."
      : `Run this on its machine, with its configuration; its control socket is not in ${state.folder}.`;
  return new Retryable(message, { hint });
}

async function pollsSource(socket: ControlSocket, source: string | undefined, signal: AbortSignal): Promise<boolean> {
  if (source === undefined) return true;
  const { sources } = await requestStatus(socket, signal);
  return sources.some(({ name }) => name === source);
}

export interface RunningWorker {
  readonly socket: ControlSocket;
  readonly config: Config;
}

/** Loads the configuration. If the file is invalid, returns the configuration that the running worker still uses. */
export async function acceptedConfig(file: string, loadConfig: () => Config, signal: AbortSignal) {
  try {
    return { config: loadConfig(), fileProblems: null };
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const [worker] = (await findWorkerState(file, process.env, signal)).running;
    if (worker === undefined) throw error;
    return { config: worker.config, fileProblems: formatErrorLines(error) };
  }
}

export function rejectedConfigText(file: string, [firstProblem = "", ...otherProblems]: readonly string[]): string {
  const moreText = otherProblems.length === 0 ? "" : ` (${otherProblems.length} more; \`plenum check\` lists them)`;
  return `The configuration file ${file} is rejected: ${firstProblem}${moreText}`;
}

export function oldConfigInUseText(file: string, problems: readonly string[]): string {
  return `${rejectedConfigText(file, problems)} The running worker continues with the configuration that it accepted last.`;
}

/** Finds the workers of an invalid configuration file by pointer files, the section `state` and the default folder. */
export async function findWorkerState(file: string, environment: ProcessEnv, signal: AbortSignal) {
  const stateOptions = readStateSectionLeniently(file, environment);
  const pointers = readWorkerPointers(file);
  const folder = stateOptions.folder ?? DEFAULT_STATE_FOLDER;
  const isFleetFolder = (folder: string) =>
    stateOptions.isFleet || pointers.some(({ isFleet, stateFolder }) => isFleet && stateFolder === folder);
  // A worker with another configuration file may use one of these folders, so check its file too.
  const stateCandidates = [
    ...pointers.map((pointer) => ({ ...pointer, isConfigured: false })),
    ...[...new Set([resolve(folder), resolve(dirname(file), folder)])].map((stateFolder) => ({
      stateFolder,
      isFleet: isFleetFolder(stateFolder),
      isConfigured: stateOptions.folder !== null,
    })),
  ];
  const workers: RunningWorker[] = [];
  const stateFolders = new Set<string>();
  /** Reason why Plenum could not find out whether a worker is running. */
  let searchFailure: ConfigError | Retryable | null = null;
  for (const { stateFolder, isFleet, isConfigured } of stateCandidates) {
    let usesOtherConfigFile = false;
    for (const foundWorker of (await requestOrNoteFailure(() => findWorkersInFolder(stateFolder, signal))) ?? []) {
      if (foundWorker.kind === "silent") searchFailure = foundWorker.failure;
      if (foundWorker.kind !== "open") continue;
      const { socket } = foundWorker;
      const reportedConfig = await requestOrNoteFailure(() => requestConfiguration(socket, signal));
      if (reportedConfig === null) continue;
      usesOtherConfigFile = !isConfigured && reportedConfig.file !== null && !isSameFile(reportedConfig.file, file);
      if (
        usesOtherConfigFile ||
        workers.some((worker) => resolve(worker.socket.stateFolder) === resolve(socket.stateFolder))
      )
        continue;
      workers.push({ socket, config: reportedConfig.config as Config });
    }
    if (!usesOtherConfigFile && !isFleet && existsSync(lockFilePath(stateFolder))) stateFolders.add(stateFolder);
  }
  for (const { config } of workers) if (config.state.postgres !== undefined) stateFolders.delete(config.state.folder);
  return {
    running: workers,
    folders: [...stateFolders],
    fleetState: parseFleetStateConfig(stateOptions),
    searchFailure: searchFailure as ConfigError | Retryable | null,
  };

  /** Notes an untrusted folder (ConfigError) or a worker that does not respond (Retryable), and returns null. */
  async function requestOrNoteFailure<T>(requestWorker: () => Promise<T>): Promise<T | null> {
    try {
      return await requestWorker();
    } catch (error) {
      if (!(error instanceof ConfigError || error instanceof Retryable)) throw error;
      searchFailure = error;
      return null;
    }
  }
}

async function findWorkersInFolder(folder: string, signal: AbortSignal): Promise<readonly FoundWorker[]> {
  const singleWorker = await findWorker(folder, signal);
  return singleWorker.kind === "none" ? findLocalFleetMembers({ folder }, signal) : [singleWorker];
}

function parseFleetStateConfig({ folder, postgres }: StateConfigSection): StateConfig | null {
  if (postgres === null) return null;
  return { ...StateConfig.parse({}), folder: folder ?? DEFAULT_STATE_FOLDER, postgres };
}

function readStateSectionLeniently(file: string, environment: ProcessEnv): StateConfigSection {
  // Read only a regular file: reading a named pipe a second time could block forever.
  const text = valueOr(() => (statSync(file).isFile() ? readFileSync(file, "utf8") : ""), "");
  return readStateOptions(text, environment);
}

const DEFAULT_STATE_FOLDER = Config.shape.state.parse(undefined).folder;

export const isSameFile = (firstPath: string, secondPath: string): boolean =>
  valueOr(
    () => resolve(firstPath) === resolve(secondPath) || realpathSync(firstPath) === realpathSync(secondPath),
    false,
  );
