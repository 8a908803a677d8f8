import type { Config } from "../../app/config/config.ts";
import type { Places } from "../../app/config/places.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import { checkStateFolder, freeBytes } from "../../engine/store/folder.ts";
import { durabilityWarnings } from "../../scale/postgres/state-database.ts";
import { requestReport } from "../../ui/operator/remote.ts";
import { tryAddress } from "../../ui/status/address.ts";
import { findWorkerFor, isSameFile } from "../shell/find-worker.ts";
import { openStateDatabaseForCommand } from "../shell/state-access.ts";
import { type CheckLine, failedCheck } from "./check-line.ts";

/** Checks the state folder or database, the free space, and the address of the status page. */
export async function checkMachine(
  config: Config,
  file: string,
  places: Places,
  signal: AbortSignal,
): Promise<readonly CheckLine[]> {
  const { state, status } = config;
  const running = await runningFor(config, file, signal);
  const folder =
    state.postgres === undefined ? checkFolder(state, places) : await checkDatabase(state.postgres, places);
  const place = places(["state", "folder"]);
  const address = await checkAddress(status, running === "own", places);
  if (typeof running === "string") return [...folder, address];
  const busy = { ...busyLine(state.folder, running.startedWith), place };
  // The running worker may use the address.
  return [...folder, busy, address.result === "ok" ? address : { ...address, result: "warning" }];
}

/** Finds a running worker on this state. Members of a fleet share one, so any member counts as `own`. */
async function runningFor(
  config: Config,
  file: string,
  signal: AbortSignal,
): Promise<"none" | "own" | { readonly startedWith: string }> {
  try {
    const found = await findWorkerFor({ config }, signal);
    if (found.kind === "none") return "none";
    if (found.kind === "silent" || config.state.postgres !== undefined) return "own";
    const startedWith = (await requestReport(found.door, signal)).configuration?.file ?? null;
    return startedWith === null || isSameFile(startedWith, file) ? "own" : { startedWith };
  } catch {
    // The line about the folder reports a folder that cannot be read.
    signal.throwIfAborted();
    return "none";
  }
}

function busyLine(folder: string, startedWith: string): CheckLine {
  const detail = `A worker that was started with ${startedWith} uses ${folder}, so no other worker can start on it: set state.folder to another folder, unless this configuration is to take its place.`;
  return { what: "state folder", result: "warning", detail };
}

function checkFolder({ folder, max_bytes: maxBytes }: Config["state"], places: Places): readonly CheckLine[] {
  const what = "state folder";
  try {
    checkStateFolder(folder);
    const free = freeBytes(folder);
    if (free >= maxBytes) return [{ what, result: "ok", detail: `${folder}, with ${sizeText(free)} free` }];
    const detail = `Its disk has ${sizeText(free)} free, and the log may take ${sizeText(maxBytes)}: lower state.max_bytes, or make room.`;
    return [{ what, result: "warning", detail, place: places(["state", "max_bytes"]) }];
  } catch (error) {
    return [{ ...failedCheck(what, error), place: places(["state", "folder"]) }];
  }
}

/** Checks the connection, the schema and the durability settings of the server. */
async function checkDatabase(
  postgres: NonNullable<Config["state"]["postgres"]>,
  places: Places,
): Promise<readonly CheckLine[]> {
  const what = "state database";
  const place = places(["state", "postgres"]);
  try {
    const database = await openStateDatabaseForCommand(postgres);
    try {
      const description = await database.describe();
      const found = `${database.name} (${description.server}), ${sizeText(description.bytes)}`;
      return [
        { what, result: "ok", detail: found },
        ...durabilityWarnings(description).map((detail) => ({
          what,
          result: "warning" as const,
          detail,
          place,
        })),
      ];
    } finally {
      await database.close();
    }
  } catch (error) {
    // The first member that starts creates or migrates the schema.
    const isForMember = error instanceof ConfigError && error.field === "schema";
    return [{ ...failedCheck(what, error), ...(isForMember ? { result: "warning" as const } : {}), place }];
  }
}

async function checkAddress({ host, port }: Config["status"], isRunning: boolean, places: Places): Promise<CheckLine> {
  const what = "status page";
  if (port === 0) return { what, result: "ok", detail: `on ${host}, on any free port` };
  if (isRunning) return { what, result: "ok", detail: `on ${host}:${port}; a worker is running on this state` };
  try {
    await tryAddress(host, port);
    return { what, result: "ok", detail: `${host}:${port} is free` };
  } catch (error) {
    return { ...failedCheck(what, error), place: places(["status", "port"]) };
  }
}

function sizeText(bytes: number): string {
  const mebibytes = bytes / 1024 ** 2;
  return mebibytes < 1024 ? `${Math.round(mebibytes)} MiB` : `${(mebibytes / 1024).toFixed(1)} GiB`;
}
