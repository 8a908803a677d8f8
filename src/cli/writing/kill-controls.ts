import { mkdirSync } from "node:fs";
import { resolve } from "node:path";
import type { Config } from "../../app/config/config.ts";
import { ConfigError, Retryable, sentence } from "../../core/errors/errors.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { createKillSwitch } from "../../engine/commands/kill-switch.ts";
import type { StateConfig } from "../../engine/store/config.ts";
import { releaseFleetKillSwitch, throwFleetKillSwitch } from "../../scale/fleet/kill-switch.ts";
import { requestFleetWrites } from "../../ui/operator/remote.ts";
import type { CliContext } from "../shell/context.ts";
import { complaint } from "../shell/exit.ts";
import { findState, type RunningWorker, rejectedLine } from "../shell/find-worker.ts";
import { withStateDatabase } from "../shell/state-access.ts";

/**
 * Where the kill switch of a configuration file is. It has to be found in every case, so a wrong file is no reason to
 * fail: then the running worker says where, its pointer, or as much of the file as can be read.
 */
export interface KillControls {
  /** Throws it everywhere; answers a line for each place. */
  stop(by: string): Promise<readonly string[]>;
  resume(): Promise<void>;
}

const OF_FLEET = "Writing is stopped in the whole fleet, until `plenum writes resume`.";

export async function killControls(context: CliContext): Promise<KillControls> {
  const file = context.configFile();
  let state: StateConfig;
  try {
    ({ state } = context.config());
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return withoutFile(context, file, error);
  }
  return state.postgres === undefined ? ofFile(context, file, state.folder) : ofDatabase({ state });
}

/** A changed `state.folder` waits for a restart: until then the running worker looks into the old folder, which counts too. */
function ofFile(context: CliContext, file: string, folder: string): KillControls {
  async function each<T>(work: (one: KillControls) => Promise<T>): Promise<readonly T[]> {
    // The file's own first: to look for a worker that hangs takes seconds.
    const own = await work(ofFolder(folder));
    const { running } = await findState(file, process.env, context.signal);
    const others = running.flatMap(({ config: { state } }) =>
      state.postgres === undefined && resolve(state.folder) !== resolve(folder) ? [state.folder] : [],
    );
    return [own, ...(await Promise.all(others.map((other) => work(ofFolder(other)))))];
  }
  return {
    stop: async (by) => (await each((one) => one.stop(by))).flat(),
    resume: async () => void (await each((one) => one.resume())),
  };
}

async function withoutFile(context: CliContext, file: string, error: ConfigError): Promise<KillControls> {
  const { signal } = context;
  const { fleetState, folders, running, trouble } = await findState(file, process.env, signal);
  const member = running.find(({ config }) => config.state.postgres !== undefined);
  const all = [
    ...folders.map(ofFolder),
    ...(member === undefined ? [] : [ofMember(member, signal)]),
    ...(member === undefined && fleetState !== null ? [ofDatabase({ state: fleetState })] : []),
  ];
  if (all.length === 0) {
    context.terminal().say(NOT_FOUND, ...(trouble === null ? [] : [sentence(trouble)]));
    throw error;
  }
  context.terminal().say(rejectedLine(file, complaint(error)));
  return together(all);
}

const NOT_FOUND =
  "Nothing was changed: no worker of this configuration file was found. Correct the file; or, to stop writing, create the file WRITES-STOPPED in the worker's state folder.";

/** One place that cannot be reached does not keep the others from being stopped; it fails the command afterwards. */
function together(all: readonly KillControls[]): KillControls {
  async function each<T>(work: (one: KillControls) => Promise<T>): Promise<readonly T[]> {
    const done = await Promise.allSettled(all.map(work));
    for (const one of done) if (one.status === "rejected") throw one.reason;
    return done.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
  }
  return {
    stop: async (by) => (await each((one) => one.stop(by))).flat(),
    resume: async () => void (await each((one) => one.resume())),
  };
}

/** A folder need not be there yet: before the first start too, writing can be stopped. */
function ofFolder(folder: string): KillControls {
  return {
    async stop(by) {
      mkdirSync(folder, { recursive: true, mode: 0o700 });
      const killSwitch = createKillSwitch(folder);
      killSwitch.throwIt(by, isoUtc(systemClock.now()));
      return [`Writing is stopped while ${killSwitch.file} exists.`];
    },
    resume: async () => createKillSwitch(folder).release(),
  };
}

/** Every member looks once a second; one that cannot ask the database writes nothing either. */
function ofDatabase(state: Pick<Config, "state">): KillControls {
  return {
    async stop(by) {
      const thrown = { by, at: isoUtc(systemClock.now()) };
      await withStateDatabase(state, (database) => throwFleetKillSwitch(database, thrown));
      return [OF_FLEET];
    },
    async resume() {
      if (!(await withStateDatabase(state, releaseFleetKillSwitch))) throw stoppedAgain();
      // In a fleet the file counts as well, for the members of this machine.
      createKillSwitch(state.state.folder).release();
    },
  };
}

/** A member knows its database, whatever the file says by now. */
function ofMember({ door, config }: RunningWorker, signal: AbortSignal): KillControls {
  return {
    async stop(by) {
      const isRecorded = await requestFleetWrites(door, { stopped: true, by }, signal);
      if (isRecorded) return [OF_FLEET];
      throw new Retryable(
        "Writing is stopped at this member, and the fleet's database has not recorded it yet.",
        {
          hint: "The member goes on trying; members that cannot reach the database write nothing either.",
        },
      );
    },
    async resume() {
      if (!(await requestFleetWrites(door, { stopped: false, by: "" }, signal))) throw stoppedAgain();
      createKillSwitch(config.state.folder).release();
    },
  };
}

function stoppedAgain(): Retryable {
  return new Retryable("Writing was stopped again just now, so it stays stopped.", {
    hint: "Find out who did, and run plenum writes resume again.",
  });
}
