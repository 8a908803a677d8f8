import { readFileSync } from "node:fs";
import { type Command, InvalidArgumentError } from "commander";
import { loadYaml } from "../../app/config/load.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import { DEFAULT_TOKEN, SimulatorOptions } from "../../simulator/options.ts";
import { type CliContext, parseInteger, untilAborted } from "../shell/context.ts";

interface SimulateOptions {
  readonly options?: string;
  readonly host: string;
  readonly port: number;
  readonly speed?: number;
  readonly state?: string;
}

export function define(command: Command, context: CliContext): void {
  command
    .option("--options <file>", "YAML file with options; src/simulator/README.md lists them")
    .option("--host <address>", "address to listen on", "127.0.0.1")
    .option("--port <number>", "port; 0 takes a free one", parseInteger, 8080)
    .option("--speed <factor>", "recorded seconds per second", parseSpeed)
    .option("--state <file>", "start from a state that GET /_simulator/state gave")
    .addHelpText("after", `\nThe token is ${DEFAULT_TOKEN}.\n\nExample:\n  plenum simulate --port 8080 --speed 60`)
    .action(async (given: SimulateOptions) => {
      const terminal = context.terminal();
      const fromFile =
        given.options === undefined
          ? SimulatorOptions.parse({})
          : loadYaml({ schema: SimulatorOptions, file: given.options, environment: process.env });
      const options = given.speed === undefined ? fromFile : { ...fromFile, speed: given.speed };
      const { createSimulator } = await import("../../simulator/simulator.ts");
      const { startSimulatorServer } = await import("../../simulator/server.ts");
      const simulator = createSimulator(options, { now: Date.now });
      if (given.state !== undefined) simulator.importState(JSON.parse(readFileSync(given.state, "utf8")));
      const server = await startSimulatorServer(simulator, { host: given.host, port: given.port }).catch(
        (error: NodeJS.ErrnoException) => {
          throw new ConfigError(`Port ${given.port} on ${given.host} cannot be used (${error.code}).`, {
            hint: "Name another with --port, or 0 for any free one.",
            cause: error,
          });
        },
      );
      terminal.object({ url: server.url }, [`The simulator answers at ${server.url}; Ctrl-C ends it.`]);
      await untilAborted(context.signal);
      await server.close();
    });
}

function parseSpeed(text: string): number {
  const number = Number(text);
  if (!Number.isFinite(number) || number <= 0) throw new InvalidArgumentError("Write a number above 0.");
  return number;
}
