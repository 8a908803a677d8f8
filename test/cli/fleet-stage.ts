import { mkdirSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Config } from "#src/app/config/config.ts";
import { withStateDatabase } from "#src/cli/shell/state-access.ts";
import type { FleetStatus } from "#src/scale/fleet/status.ts";
import { readFleet } from "#src/scale/fleet/status.ts";
import type { Stage } from "../member/stage.ts";
import { type Running, runPlenum } from "../plenum-process.ts";
import { COMPILED, command } from "./hosted.ts";
import type { Ended } from "./plenum.ts";

const usual = () => ({ PATH: process.env.PATH, TMPDIR: tmpdir(), NODE_COMPILE_CACHE: COMPILED });

/** A machine of a fleet: a folder with a configuration, a member that runs in it, and commands. */
export interface Machine {
  readonly member: string;
  readonly folder: string;
  /** Starts the member; not armed. */
  start(): Promise<void>;
  /** A command of its own, which is still running. */
  running(line: string): Running;
  /** Commands one after another, as a person types them without `plenum`. */
  run(...lines: readonly string[]): Promise<readonly Ended[]>;
  /** The only one. */
  one(line: string): Promise<Ended>;
  /** Writes a second configuration with these sections replaced; returns its name. */
  configure(name: string, sections: Readonly<Record<string, unknown>>): string;
  stop(): Promise<unknown>;
}

/** The password of the status pages, in the variable of its name. */
export const PASSWORD = "page-password";

export function setMachine(stage: Stage, configuration: Readonly<Record<string, unknown>>, member: string): Machine {
  const folder = join(stage.folder, `machine-${member}`);
  mkdirSync(folder);
  const environment = {
    ...stage.environment,
    WRONG: "wrong",
    PASSWORD,
    HOME: folder,
    XDG_RUNTIME_DIR: folder,
  };
  const started: Running[] = [];
  const running = (line: string) => {
    const each = runPlenum(line.split(" "), { cwd: folder, environment });
    started.push(each);
    return each;
  };
  const run = async (...lines: readonly string[]) => {
    const ended: Ended[] = [];
    for (const line of lines)
      ended.push(await command({ args: line.split(" "), folder, environment: { ...usual(), ...environment } }));
    return ended;
  };
  const configure = (name: string, sections: Readonly<Record<string, unknown>>) => {
    writeFileSync(join(folder, name), JSON.stringify({ ...configuration, ...sections }));
    return name;
  };
  configure("plenum.yaml", {});
  return {
    ...{ member, folder, running, run, configure },
    start: () => running(`run --member ${member}`).says("Plenum is running", 60_000),
    async one(line) {
      const [ended] = await run(line);
      if (ended === undefined) throw new Error(`Nothing came of ${line}.`);
      return ended;
    },
    stop: () => Promise.all(started.map((each) => each.end("SIGKILL"))),
  };
}

/** The fleet as its database says. */
export function fleetOf({ configuration, services }: Stage): Promise<FleetStatus> {
  return withStateDatabase(Config.parse(configuration), (database) => readFleet(database, null, [...services.keys()]));
}
