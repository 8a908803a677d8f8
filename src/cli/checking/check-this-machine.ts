import type { Config } from "../../app/config/config.ts";
import type { LocateOption } from "../../app/config/yaml-variables-and-errors.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import { checkStateFolder, freeDiskBytes } from "../../engine/store/state-folder.ts";
import { durabilityWarnings } from "../../scale/postgres/state-database.ts";
import { requestStatus } from "../../ui/operator/control-socket-client.ts";
import { checkStatusAddress } from "../../ui/status/status-server.ts";
import { findWorkerFor, isSameFile } from "../shell/find-worker.ts";
import { withStateDatabase } from "../shell/open-worker-state.ts";
import { type CheckLine, failedCheck, passedCheck, warningLine } from "./check-result-line.ts";

export async function checkMachine(
  config: Config,
  file: string,
  places: LocateOption,
  signal: AbortSignal,
): Promise<readonly CheckLine[]> {
  const { state, status } = config;
  const runningWorker = await findRunningWorker(config, file, signal);
  const stateLines = state.postgres === undefined ? [checkFolder(state, places)] : await checkDatabase(config, places);
  const addressLine = await checkAddress(status, runningWorker === "own", places);
  if (typeof runningWorker === "string") return [...stateLines, addressLine];
  const folderInUseText = `A worker that was started with ${runningWorker.startedWith} uses ${state.folder}, so no other worker can start on it: set state.folder to another folder, unless this configuration is to take its place.`;
  // The running worker may use the address.
  const uncertainAddress = addressLine.result === "ok" ? addressLine : { ...addressLine, result: "warning" as const };
  return [...stateLines, warningLine("state folder", folderInUseText, places(["state", "folder"])), uncertainAddress];
}

/** Members of a fleet share one state, so any member counts as `own`. */
async function findRunningWorker(
  config: Config,
  file: string,
  signal: AbortSignal,
): Promise<"none" | "own" | { readonly startedWith: string }> {
  try {
    const foundWorker = await findWorkerFor({ config }, signal);
    if (foundWorker.kind === "none") return "none";
    if (foundWorker.kind === "silent" || config.state.postgres !== undefined) return "own";
    const workerConfigFile = (await requestStatus(foundWorker.socket, signal)).configuration?.file ?? null;
    return workerConfigFile === null || isSameFile(workerConfigFile, file) ? "own" : { startedWith: workerConfigFile };
  } catch {
    // The line about the folder reports a folder that cannot be read.
    signal.throwIfAborted();
    return "none";
  }
}

function checkFolder({ folder, max_bytes: maxBytes }: Config["state"], places: LocateOption): CheckLine {
  const checkName = "state folder";
  try {
    checkStateFolder(folder);
    const freeBytes = freeDiskBytes(folder);
    if (freeBytes >= maxBytes) return passedCheck(checkName, `${folder}, with ${formatSize(freeBytes)} free`);
    const detail = `Its disk has ${formatSize(freeBytes)} free, and the log may take ${formatSize(maxBytes)}: lower state.max_bytes, or make room.`;
    return warningLine(checkName, detail, places(["state", "max_bytes"]));
  } catch (error) {
    return failedCheck(checkName, error, places(["state", "folder"]));
  }
}

async function checkDatabase(config: Config, places: LocateOption): Promise<readonly CheckLine[]> {
  const checkName = "state database";
  const optionLocation = places(["state", "postgres"]);
  try {
    return await withStateDatabase(config, async (database) => {
      const description = await database.describe();
      return [
        passedCheck(checkName, `${database.name} (${description.server}), ${formatSize(description.bytes)}`),
        ...durabilityWarnings(description).map((detail) => warningLine(checkName, detail, optionLocation)),
      ];
    });
  } catch (error) {
    const failureLine = failedCheck(checkName, error, optionLocation);
    // The first member that starts creates or migrates the schema.
    const isForMember = error instanceof ConfigError && error.field === "schema";
    return [isForMember ? { ...failureLine, result: "warning" } : failureLine];
  }
}

async function checkAddress(
  { host, port }: Config["status"],
  isRunning: boolean,
  places: LocateOption,
): Promise<CheckLine> {
  const checkName = "status page";
  if (port === 0) return passedCheck(checkName, `on ${host}, on any free port`);
  if (isRunning) return passedCheck(checkName, `on ${host}:${port}; a worker is running on this state`);
  try {
    await checkStatusAddress(host, port);
    return passedCheck(checkName, `${host}:${port} is free`);
  } catch (error) {
    return failedCheck(checkName, error, places(["status", "port"]));
  }
}

function formatSize(bytes: number): string {
  const mebibytes = bytes / 1024 ** 2;
  return mebibytes < 1024 ? `${Math.round(mebibytes)} MiB` : `${(mebibytes / 1024).toFixed(1)} GiB`;
}
