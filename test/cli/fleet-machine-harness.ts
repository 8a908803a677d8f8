import { mkdirSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Config } from "#src/app/config/config.ts";
import { useStateDatabase } from "#src/cli/shell/open-worker-state.ts";
import type { FleetStatus } from "#src/scale/fleet/fleet-status.ts";
import { readFleetStatus } from "#src/scale/fleet/fleet-status.ts";
import type { Harness } from "../member/fleet-harness.ts";
import { type Running, runPlenum } from "../plenum-process.ts";
import { COMPILED, command } from "./hosted.ts";
import type { Ended } from "./plenum.ts";

const baseVariables = () => ({ PATH: process.env.PATH, TMPDIR: tmpdir(), NODE_COMPILE_CACHE: COMPILED });

export type Machine = ReturnType<typeof createMachine>;

export const PASSWORD = "page-password";

export function createMachine(harness: Harness, configuration: Readonly<Record<string, unknown>>, member: string) {
  const folder = join(harness.folder, `machine-${member}`);
  mkdirSync(folder);
  const environment = { ...harness.environment, WRONG: "wrong", PASSWORD, HOME: folder, XDG_RUNTIME_DIR: folder };
  const startedProcesses: Running[] = [];
  const running = (line: string) => {
    const plenumProcess = runPlenum(line.split(" "), { cwd: folder, environment });
    startedProcesses.push(plenumProcess);
    return plenumProcess;
  };
  const runLine = (line: string) =>
    command({ args: line.split(" "), folder, environment: { ...baseVariables(), ...environment } });
  const run = async <Lines extends readonly string[]>(...lines: Lines) => {
    const results: Ended[] = [];
    for (const line of lines) results.push(await runLine(line));
    return results as unknown as { readonly [N in keyof Lines]: Ended };
  };
  const configure = (name: string, sections: Readonly<Record<string, unknown>>) => {
    writeFileSync(join(folder, name), JSON.stringify({ ...configuration, ...sections }));
    return name;
  };
  configure("plenum.yaml", {});
  return {
    ...{ member, folder, running, run, one: runLine, configure },
    start: () => running(`run --member ${member}`).waitForOutput("Plenum is running"),
    stop: () => Promise.all(startedProcesses.map((each) => each.end("SIGKILL"))),
  };
}

export function fleetOf({ configuration, services }: Harness): Promise<FleetStatus> {
  return useStateDatabase(Config.parse(configuration), (database) =>
    readFleetStatus(database, null, [...services.keys()]),
  );
}
