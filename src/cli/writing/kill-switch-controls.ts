import { mkdirSync } from "node:fs";
import { resolve } from "node:path";
import type { Config } from "../../app/config/config.ts";
import { ConfigError, errorText, Retryable } from "../../core/errors/errors.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { createKillSwitch } from "../../engine/commands/kill-switch.ts";
import { releaseFleetKillSwitch, throwFleetKillSwitch } from "../../scale/fleet/kill-switch.ts";
import { requestFleetWrites } from "../../ui/operator/control-socket-client.ts";
import type { CliContext } from "../shell/command-context.ts";
import { formatErrorLines } from "../shell/exit-codes.ts";
import { findWorkerState, type RunningWorker, rejectedConfigText } from "../shell/find-worker.ts";
import { useStateDatabase } from "../shell/open-worker-state.ts";

/** Stops and resumes writing at every location of the kill switch, even if the configuration is invalid. */
interface KillSwitchControls {
  stop(by: string): Promise<readonly string[]>;
  resumeWriting(): Promise<void>;
}

const FLEET_WRITING_STOPPED_TEXT = "Writing is stopped in the whole fleet, until `plenum writes resume`.";

export async function findKillSwitches(context: CliContext): Promise<KillSwitchControls> {
  const configFile = context.configFile();
  try {
    const { state } = context.config();
    return state.postgres === undefined
      ? killSwitchOfFile(context, configFile, state.folder)
      : killSwitchOfDatabase({ state });
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return killSwitchWithoutFile(context, configFile, error);
  }
}

/** Controls `folder`, and the former state folder if a running worker still uses it after a change of the file. */
function killSwitchOfFile(context: CliContext, configFile: string, folder: string): KillSwitchControls {
  const ownKillSwitches = killSwitchOfFolder(folder);
  const findOtherKillSwitches = async () => {
    const { running } = await findWorkerState(configFile, process.env, context.signal);
    const otherFolders = running.flatMap(({ config: { state } }) =>
      state.postgres === undefined && resolve(state.folder) !== resolve(folder) ? [state.folder] : [],
    );
    return combineKillSwitches(otherFolders.map(killSwitchOfFolder));
  };
  // Use the configured folder first, because the search for other folders takes seconds if a worker hangs.
  return {
    stop: async (by) => [...(await ownKillSwitches.stop(by)), ...(await (await findOtherKillSwitches()).stop(by))],
    async resumeWriting() {
      await ownKillSwitches.resumeWriting();
      await (await findOtherKillSwitches()).resumeWriting();
    },
  };
}

async function killSwitchWithoutFile(
  context: CliContext,
  configFile: string,
  error: ConfigError,
): Promise<KillSwitchControls> {
  const { signal } = context;
  const { fleetState, folders, running, searchFailure } = await findWorkerState(configFile, process.env, signal);
  const runningMember = running.find(({ config }) => config.state.postgres !== undefined);
  const allKillSwitches = [
    ...folders.map(killSwitchOfFolder),
    ...(runningMember === undefined ? [] : [killSwitchOfMember(runningMember, signal)]),
    ...(runningMember === undefined && fleetState !== null ? [killSwitchOfDatabase({ state: fleetState })] : []),
  ];
  if (allKillSwitches.length === 0) {
    context.terminal().info(KILL_SWITCH_NOT_FOUND_TEXT, ...(searchFailure === null ? [] : [errorText(searchFailure)]));
    throw error;
  }
  context.terminal().info(rejectedConfigText(configFile, formatErrorLines(error)));
  return combineKillSwitches(allKillSwitches);
}

const KILL_SWITCH_NOT_FOUND_TEXT =
  "Nothing was changed: no worker of this configuration file was found. Correct the file; or, to stop writing, create the file WRITES-STOPPED in the worker's state folder.";

/** Stops or resumes at every location of the kill switch, then throws the first failure. */
function combineKillSwitches(allControls: readonly KillSwitchControls[]): KillSwitchControls {
  async function applyToAllKillSwitches<T>(
    switchAction: (controls: KillSwitchControls) => Promise<T>,
  ): Promise<readonly T[]> {
    const switchOutcomes = await Promise.allSettled(allControls.map(switchAction));
    for (const outcome of switchOutcomes) if (outcome.status === "rejected") throw outcome.reason;
    return switchOutcomes.flatMap((outcome) => (outcome.status === "fulfilled" ? [outcome.value] : []));
  }
  return {
    stop: async (by) => (await applyToAllKillSwitches((controls) => controls.stop(by))).flat(),
    resumeWriting: async () => void (await applyToAllKillSwitches((controls) => controls.resumeWriting())),
  };
}

/** Creates a missing folder, so that writing can be stopped before the first start. */
function killSwitchOfFolder(folder: string): KillSwitchControls {
  return {
    async stop(by) {
      mkdirSync(folder, { recursive: true, mode: 0o700 });
      const killSwitch = createKillSwitch(folder);
      killSwitch.turnOn(by, isoUtc(systemClock.now()));
      return [`Writing is stopped while ${killSwitch.file} exists.`];
    },
    resumeWriting: async () => createKillSwitch(folder).turnOff(),
  };
}

/** Stops all members: each member reads the database once a second, and writes no tags while that fails. */
function killSwitchOfDatabase(state: Pick<Config, "state">): KillSwitchControls {
  return {
    async stop(by) {
      const killSwitchRecord = { by, at: isoUtc(systemClock.now()) };
      await useStateDatabase(state, (database) => throwFleetKillSwitch(database, killSwitchRecord));
      return [FLEET_WRITING_STOPPED_TEXT];
    },
    async resumeWriting() {
      if (!(await useStateDatabase(state, releaseFleetKillSwitch))) throw writingStoppedAgainError();
      // In a fleet, a kill switch file also stops the members on this machine, so delete it too.
      createKillSwitch(state.state.folder).turnOff();
    },
  };
}

/** Stops the writes of a fleet through a running member, which works even if the configuration file is wrong now. */
function killSwitchOfMember({ socket, config }: RunningWorker, signal: AbortSignal): KillSwitchControls {
  return {
    async stop(by) {
      const isStopRecorded = await requestFleetWrites(socket, { stopped: true, by }, signal);
      if (isStopRecorded) return [FLEET_WRITING_STOPPED_TEXT];
      throw new Retryable("Writing is stopped at this member, and the fleet's database has not recorded it yet.", {
        hint: "The member goes on trying; members that cannot reach the database write nothing either.",
      });
    },
    async resumeWriting() {
      if (!(await requestFleetWrites(socket, { stopped: false, by: "" }, signal))) throw writingStoppedAgainError();
      createKillSwitch(config.state.folder).turnOff();
    },
  };
}

function writingStoppedAgainError(): Retryable {
  return new Retryable("Writing was stopped again just now, so it stays stopped.", {
    hint: "Find out who did, and run plenum writes resume again.",
  });
}
