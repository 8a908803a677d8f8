import type { Config } from "../../app/config/config.ts";
import type { LocateOption } from "../../app/config/yaml-variables-and-errors.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import { checkStateFolder, freeDiskBytes } from "../../engine/store/state-folder.ts";
import { durabilityWarnings } from "../../scale/postgres/state-database.ts";
import { requestStatus } from "../../ui/operator/control-socket-client.ts";
import { checkStatusAddress } from "../../ui/status/status-server.ts";
import { findWorkerOfConfig, isSameFile } from "../shell/find-worker.ts";
import { useStateDatabase } from "../shell/open-worker-state.ts";
import { type CheckResult, errorToCheckResult, passedResult, warningResult } from "./check-result-line.ts";

export async function checkLocalMachine(
  config: Config,
  configFile: string,
  locateOption: LocateOption,
  signal: AbortSignal,
): Promise<readonly CheckResult[]> {
  const { state, status } = config;
  const runningWorker = await findRunningWorker(config, configFile, signal);
  const stateChecks =
    state.postgres === undefined
      ? [checkStateFolderSpace(state, locateOption)]
      : await checkStateDatabase(config, locateOption);
  const portCheck = await checkStatusPagePort(status, runningWorker === "own", locateOption);
  if (typeof runningWorker === "string") return [...stateChecks, portCheck];
  const folderInUseText = `A worker that was started with ${runningWorker.startedWith} uses ${state.folder}, so no other worker can start on it: set state.folder to another folder, unless this configuration is to take its place.`;
  // The worker that uses the folder may also use the status page's port, so a taken port is only a warning.
  const portWarning = portCheck.result === "ok" ? portCheck : { ...portCheck, result: "warning" as const };
  return [
    ...stateChecks,
    warningResult("state folder", folderInUseText, locateOption(["state", "folder"])),
    portWarning,
  ];
}

/** Returns `own` for a worker of this configuration, and for any member of its fleet. */
async function findRunningWorker(
  config: Config,
  file: string,
  signal: AbortSignal,
): Promise<"none" | "own" | { readonly startedWith: string }> {
  try {
    const foundWorker = await findWorkerOfConfig({ config }, signal);
    if (foundWorker.kind === "none") return "none";
    if (foundWorker.kind === "silent" || config.state.postgres !== undefined) return "own";
    const workerConfigFile = (await requestStatus(foundWorker.socket, signal)).configuration?.file ?? null;
    return workerConfigFile === null || isSameFile(workerConfigFile, file) ? "own" : { startedWith: workerConfigFile };
  } catch {
    // Another check reports a state folder that cannot be read.
    signal.throwIfAborted();
    return "none";
  }
}

function checkStateFolderSpace(
  { folder, max_bytes: maxBytes }: Config["state"],
  locateOption: LocateOption,
): CheckResult {
  const checkName = "state folder";
  try {
    checkStateFolder(folder);
    const freeBytes = freeDiskBytes(folder);
    if (freeBytes >= maxBytes) return passedResult(checkName, `${folder}, with ${formatByteCount(freeBytes)} free`);
    const diskSpaceText = `Its disk has ${formatByteCount(freeBytes)} free, and the log may take ${formatByteCount(maxBytes)}: lower state.max_bytes, or make room.`;
    return warningResult(checkName, diskSpaceText, locateOption(["state", "max_bytes"]));
  } catch (error) {
    return errorToCheckResult(checkName, error, locateOption(["state", "folder"]));
  }
}

async function checkStateDatabase(config: Config, locateOption: LocateOption): Promise<readonly CheckResult[]> {
  const checkName = "state database";
  const postgresOptionLocation = locateOption(["state", "postgres"]);
  try {
    return await useStateDatabase(config, async (database) => {
      const description = await database.describe();
      return [
        passedResult(checkName, `${database.name} (${description.server}), ${formatByteCount(description.bytes)}`),
        ...durabilityWarnings(description).map((detail) => warningResult(checkName, detail, postgresOptionLocation)),
      ];
    });
  } catch (error) {
    const databaseFailure = errorToCheckResult(checkName, error, postgresOptionLocation);
    // A missing or old schema is only a warning, because the first member that starts updates it.
    const isSchemaProblem = error instanceof ConfigError && error.field === "schema";
    return [isSchemaProblem ? { ...databaseFailure, result: "warning" } : databaseFailure];
  }
}

async function checkStatusPagePort(
  { host, port }: Config["status"],
  isWorkerRunning: boolean,
  locateOption: LocateOption,
): Promise<CheckResult> {
  const checkName = "status page";
  if (port === 0) return passedResult(checkName, `on ${host}, on any free port`);
  if (isWorkerRunning) return passedResult(checkName, `on ${host}:${port}; a worker is running on this state`);
  try {
    await checkStatusAddress(host, port);
    return passedResult(checkName, `${host}:${port} is free`);
  } catch (error) {
    return errorToCheckResult(checkName, error, locateOption(["status", "port"]));
  }
}

function formatByteCount(bytes: number): string {
  const mebibytes = bytes / 1024 ** 2;
  return mebibytes < 1024 ? `${Math.round(mebibytes)} MiB` : `${(mebibytes / 1024).toFixed(1)} GiB`;
}
