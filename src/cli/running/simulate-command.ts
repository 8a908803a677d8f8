import { readFileSync } from "node:fs";
import { type Command, InvalidArgumentError } from "commander";
import { loadYamlConfig } from "../../app/config/load.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import { SERVICE_TOKEN, SimulatorOptions } from "../../simulator/options.ts";
import { type CliContext, parseInteger, waitUntilAborted } from "../shell/command-context.ts";

interface SimulateOptions {
  readonly options?: string;
  readonly host: string;
  readonly port: number;
  readonly speed?: number;
  readonly state?: string;
}

export function defineCommand(command: Command, context: CliContext): void {
  command
    .option("--options <file>", "YAML file with options; src/simulator/README.md lists them")
    .option("--host <address>", "address to listen on", "127.0.0.1")
    .option("--port <number>", "port; 0 takes a free one", parseInteger, 8080)
    .option("--speed <factor>", "recorded seconds per second", parseReplaySpeed)
    .option("--state <file>", "start from a state that GET /_simulator/state gave")
    .addHelpText("after", `\nThe token is ${SERVICE_TOKEN}.\n\nExample:\n  plenum simulate --port 8080 --speed 60`)
    .action(async ({ host, port, speed, state, options: file }: SimulateOptions) => {
      const terminal = context.terminal();
      const fileOptions =
        file === undefined
          ? SimulatorOptions.parse({})
          : loadYamlConfig({ schema: SimulatorOptions, file, environment: process.env });
      const options = speed === undefined ? fileOptions : { ...fileOptions, speed };
      const { createSimulator } = await import("../../simulator/simulator.ts");
      const { startSimulatorServer } = await import("../../simulator/server.ts");
      const simulator = createSimulator(options, { now: Date.now });
      if (state !== undefined) simulator.importState(JSON.parse(readFileSync(state, "utf8")));
      const server = await startSimulatorServer(simulator, { host, port }).catch((error: NodeJS.ErrnoException) => {
        const hint = "Name another with --port, or 0 for any free one.";
        throw new ConfigError(`Port ${port} on ${host} cannot be used (${error.code}).`, { hint, cause: error });
      });
      terminal.print({ url: server.url }, [`The simulator answers at ${server.url}; Ctrl-C ends it.`]);
      await waitUntilAborted(context.signal);
      await server.close();
    });
}

function parseReplaySpeed(text: string): number {
  const speed = Number(text);
  if (!Number.isFinite(speed) || speed <= 0) throw new InvalidArgumentError("Write a number above 0.");
  return speed;
}
