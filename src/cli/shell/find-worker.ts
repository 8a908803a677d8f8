import { readdirSync } from "node:fs";
import { join } from "node:path";
import type { Config } from "../../app/config/config.ts";
import { Retryable } from "../../core/errors/errors.ts";
import { readFleet } from "../../scale/fleet/report.ts";
import { whereabouts } from "../../scale/fleet/whereabouts.ts";
import type { ControlSocket } from "../../ui/operator/call.ts";
import { type FoundWorker, findWorker, requestReport } from "../../ui/operator/remote.ts";
import type { WhichState } from "./look-at-state.ts";
import { withStateDatabase } from "./state-database.ts";

/**
 * Who works for a configuration on this machine. Members of a fleet have a door each, in the folder of the state or in
 * one of their name below it; where a source is meant, the one that holds it counts.
 */
export async function findWorkerFor(which: WhichState, signal: AbortSignal): Promise<FoundWorker> {
  const { state } = which.config;
  if (state.postgres === undefined) return findWorker(state.folder, signal);
  let silent: FoundWorker | null = null;
  for (const found of await membersHere(state, signal)) {
    if (found.kind === "silent") silent = found;
    if (found.kind === "open" && (await holds(found.door, which.source, signal))) return found;
  }
  return silent ?? { kind: "none" };
}

/** All members of a fleet whose doors are on this machine. */
export async function membersHere(
  { folder }: Pick<Config["state"], "folder">,
  signal: AbortSignal,
): Promise<readonly FoundWorker[]> {
  const found = await Promise.all([folder, ...foldersIn(folder)].map((each) => findWorker(each, signal)));
  return found.filter(({ kind }) => kind !== "none");
}

/** The door of whoever works for it and answers; null when nobody runs. Rejects when one is there and does not answer. */
export async function openDoorFor(which: WhichState, signal: AbortSignal): Promise<ControlSocket | null> {
  const found = await findWorkerFor(which, signal);
  if (found.kind === "silent") throw found.trouble;
  if (found.kind === "open") return found.door;
  if (which.config.state.postgres === undefined || which.source === undefined) return null;
  throw await heldElsewhere(which.config.state, which.source);
}

async function heldElsewhere(state: Config["state"], source: string): Promise<Retryable> {
  const { holder, message } = whereabouts(
    source,
    await withStateDatabase({ state }, (database) => readFleet(database, null, [source])),
  );
  const hint =
    holder === null
      ? "`plenum fleet` shows the members that there are."
      : `Run this on its machine, with its configuration; its door is not in ${state.folder}.`;
  return new Retryable(message, { hint });
}

async function holds(door: ControlSocket, source: string | undefined, signal: AbortSignal): Promise<boolean> {
  if (source === undefined) return true;
  const { sources } = await requestReport(door, signal);
  return sources.some(({ name }) => name === source);
}

function foldersIn(folder: string): readonly string[] {
  try {
    const entries = readdirSync(folder, { withFileTypes: true });
    return entries.filter((entry) => entry.isDirectory()).map(({ name }) => join(folder, name));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw error;
  }
}
