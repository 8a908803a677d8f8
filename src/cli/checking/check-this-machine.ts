import type { Config } from "../../app/config/config.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import { checkStateFolder, freeDiskBytes } from "../../engine/store/state-folder.ts";
import { durabilityWarnings } from "../../scale/postgres/state-database.ts";
import { requestStatus } from "../../ui/operator/control-socket-client.ts";
import { checkStatusAddress } from "../../ui/status/status-server.ts";
import { findWorkerOfConfig, isSameFile } from "../shell/find-worker.ts";
import { useStateDatabase } from "../shell/open-worker-state.ts";
import type { CheckReport } from "./check-report.ts";

export async function checkLocalMachine(
  config: Config,
  configFile: string,
  report: CheckReport,
  signal: AbortSignal,
): Promise<void> {
  const { state, status } = config;
  const runningWorker = await findRunningWorker(config, configFile, signal);
  if (state.postgres === undefined) checkStateFolderSpace(state, report);
  else await checkStateDatabase(config, report);
  if (typeof runningWorker !== "string") {
    const detail = `A worker that was started with ${runningWorker.startedWith} uses ${state.folder}, so no other worker can start on it: set state.folder to another folder, unless this configuration is to take its place.`;
    report.about("state folder").warn(detail, ["state", "folder"]);
  }
  await checkStatusPagePort(status, runningWorker, report);
}

/** Returns `own` for a worker with this configuration file, a member of its fleet, or a worker without a response. */
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

function checkStateFolderSpace({ folder, max_bytes: maxBytes }: Config["state"], report: CheckReport): void {
  const topic = report.about("state folder");
  try {
    checkStateFolder(folder);
    const freeBytes = freeDiskBytes(folder);
    const diskSpaceText = `Its disk has ${formatByteCount(freeBytes)} free, and the log may take ${formatByteCount(maxBytes)}: lower state.max_bytes, or make room.`;
    if (freeBytes >= maxBytes) topic.ok(`${folder}, with ${formatByteCount(freeBytes)} free`);
    else topic.warn(diskSpaceText, ["state", "max_bytes"]);
  } catch (error) {
    topic.fail(error, ["state", "folder"]);
  }
}

async function checkStateDatabase(config: Config, report: CheckReport): Promise<void> {
  const topic = report.about("state database");
  const path = ["state", "postgres"];
  try {
    await useStateDatabase(config, async (database) => {
      const description = await database.describe();
      topic.ok(`${database.name} (${description.server}), ${formatByteCount(description.bytes)}`);
      for (const detail of durabilityWarnings(description)) topic.warn(detail, path);
    });
  } catch (error) {
    // A missing or old schema is only a warning, because the first member that starts updates it.
    const isSchemaProblem = error instanceof ConfigError && error.field === "schema";
    topic.fail(error, path, isSchemaProblem ? "warning" : undefined);
  }
}

async function checkStatusPagePort(
  { host, port }: Config["status"],
  runningWorker: Awaited<ReturnType<typeof findRunningWorker>>,
  report: CheckReport,
): Promise<void> {
  const topic = report.about("status page");
  if (port === 0) return topic.ok(`on ${host}, on any free port`);
  if (runningWorker === "own") return topic.ok(`on ${host}:${port}; a worker is running on this state`);
  try {
    await checkStatusAddress(host, port);
    topic.ok(`${host}:${port} is free`);
  } catch (error) {
    // Only warn if a worker with another file uses this state folder: probably that worker uses the port, too.
    topic.fail(error, ["status", "port"], runningWorker === "none" ? undefined : "warning");
  }
}

function formatByteCount(bytes: number): string {
  const mebibytes = bytes / 1024 ** 2;
  return mebibytes < 1024 ? `${Math.round(mebibytes)} MiB` : `${(mebibytes / 1024).toFixed(1)} GiB`;
}
