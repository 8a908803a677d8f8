import { type Command, CommanderError } from "commander";
import { createProgram } from "#src/cli/command-line-program.ts";

export async function completeProgram(): Promise<Command> {
  const program = createProgram(new AbortController().signal, {});
  program.configureOutput({ writeOut: () => undefined });
  for (const command of program.commands) {
    command.configureOutput({ writeOut: () => undefined });
    await program.parseAsync([command.name(), "--help"], { from: "user" }).catch((error: unknown) => {
      if (!(error instanceof CommanderError) || error.exitCode !== 0) throw error;
    });
  }
  return program;
}
